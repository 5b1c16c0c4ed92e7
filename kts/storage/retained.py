"""What retention would look at in a partition that is only read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kts.storage.retention import LogFacts, SegmentFacts
from kts.storage.search import max_so_far

if TYPE_CHECKING:
    from kts.storage.directory import PartitionLog


def facts_of(log: PartitionLog) -> LogFacts:
    """The facts of a partition as a broker would have them that has just started, all of it replicated.

    Notes
    -----
    The largest timestamp of a closed segment is that of its last time index entry; without timestamps the time of its
    file counts, which a copy may have changed.
    """
    segments = log.segments
    found = []
    for segment in segments:
        largest = max_so_far(segment, segment is segments[-1])
        from_file = largest < 0
        time = segment.modified_ms if from_file else largest
        found.append(SegmentFacts(segment.base_offset, segment.size_bytes, time, from_file))
    return LogFacts(tuple(found), log.log_end_offset, log.log_start_offset)
