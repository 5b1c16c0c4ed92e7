"""What retention would look at in a partition that is only read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kts.log.retention import LogFacts, SegmentFacts
from kts.segment.rereading import settled
from kts.segment.search import largest_ms

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog


def facts_of(log: PartitionLog) -> LogFacts:
    """The facts of a partition as a broker would have them that has just started, all of it replicated.

    Notes
    -----
    The largest timestamp of a closed segment is that of its last time index entry; without timestamps the time of its
    file counts, which a copy may have changed.
    """
    return settled(lambda: _facts_of(log.listed()))


def _facts_of(log: PartitionLog) -> LogFacts:
    segments = log.segments
    found = []
    for segment in segments:
        time, from_file = largest_ms(segment, segment is segments[-1])
        found.append(SegmentFacts(segment.base_offset, segment.size_bytes, time, from_file))
    return LogFacts(tuple(found), log.log_end_offset, log.log_start_offset)
