"""The search that goes on into later segments until it finds something, as KIP-33 says, for built indexes.

A start says where to begin, not what to leave out: an entry's offset may be the last of equal times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kts.proposals.answers import Answer, Start
from kts.segment.search import Cost, Query, SegmentSearch, first_match_in

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog


def find(log: PartitionLog, starts: Iterable[Start], target_ms: int, *, none_is_a_time: bool = True) -> Answer:
    """The first record at or after a time, reading from each start to the end of its segment.

    Parameters
    ----------
    starts : iterable of Start
        Rising; segments without one are left out.
    none_is_a_time : bool
        Compare -1 as a number, as Kafka does; else a record without a timestamp is never found.

    Notes
    -----
    A segment that is gone meanwhile is left out. Records before the log start offset do not count.
    """
    segments = {segment.base_offset: segment for segment in log.segments}
    numbers = {base: number for number, base in enumerate(segments)}
    query = Query(target_ms, log.log_start_offset, none_is_a_time=none_is_a_time)
    cost, first, before, found = Cost(), None, 0, None
    for start in starts:
        segment = segments.get(start.base_offset)
        if segment is None:
            continue
        cost.segments_skipped += numbers[start.base_offset] - before
        before, first = numbers[start.base_offset] + 1, first or start
        found = first_match_in(SegmentSearch(segment, start_offset=start.offset), query, cost)
        if found is not None:
            break
    else:
        cost.segments_skipped += len(segments) - before
    return Answer(
        found,
        first,
        cost.segments_skipped,
        cost.segments_read,
        cost.bytes_read,
        cost.batches_read,
        cost.records_read,
    )
