"""What each way to find a record by its time answers, so that one table can compare them.

A lookup has a name, tells how large its indexes are (``index_size``), and finds the first record at or after a time
(``search``) with an account of what it read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kts.dataset.partition import PartitionLog
from kts.model import TimestampOffset
from kts.segment import search

ENTRY_BYTES = 12  # timestamp int64, relative offset int32: the same in all of KIP-33's revisions


class IndexSize(NamedTuple):
    """How large the indexes of a lookup are now.

    Attributes
    ----------
    entries : int
        Entries of all segments.
    file_bytes : int
        Bytes of its files.
    memory_bytes : int
        Bytes of entries that are kept in memory or mapped, 12 each, as KIP-33's table of memory counts them.
    """

    entries: int
    file_bytes: int
    memory_bytes: int


class Start(NamedTuple):
    """Where reading begins: at the shallow entry that holds an offset. All before it is older than the target."""

    base_offset: int  # of the segment
    offset: int


class Answer(NamedTuple):
    """The first record at or after a target, and what was read for it.

    Attributes
    ----------
    found : TimestampOffset or None
        None when there is no such record (or the search gave up before it).
    start : Start or None
        Where the lookup sent the reader; None when the lookup alone knew that there is nothing.
    segments_skipped, segments_read : int
        Segments before the answer that were left out, and that were read.
    bytes_read : int
        Bytes of ``.log`` files from where reading began to the end of the batch with the answer.
    batches_read, records_read : int
        Headers looked at, and records decoded because their header promised a hit.
    """

    found: TimestampOffset | None
    start: Start | None = None
    segments_skipped: int = 0
    segments_read: int = 0
    bytes_read: int = 0
    batches_read: int = 0
    records_read: int = 0


class Lookup(Protocol):
    """A way to find a record by its time."""

    name: str

    def index_size(self, log: PartitionLog) -> IndexSize:
        """What its indexes need in memory and on disk."""

    def search(self, log: PartitionLog, target_ms: int) -> Answer:
        """The first record at or after the target."""


def find(log: PartitionLog, starts: Iterable[Start], target_ms: int, *, none_is_a_time: bool = True) -> Answer:
    """The first record at or after a time: read from each start to the end of its segment, as KIP-33 says.

    Parameters
    ----------
    starts : iterable of Start
        In ascending order; segments without one are left out. A start says where to begin, not what to leave out: the
        offset of an index entry may be the last of equal times.
    none_is_a_time : bool
        Compare -1 as a number, as Kafka does; else a record without a timestamp is never found.

    Notes
    -----
    A segment that was deleted meanwhile is left out. Records before the log start offset do not count.
    """
    segments = {segment.base_offset: segment for segment in log.segments}
    numbers = {base: number for number, base in enumerate(segments)}
    query = search.Query(target_ms, log.log_start_offset, none_is_a_time=none_is_a_time)
    stats, first, before, found = search.ReadStats(), None, 0, None
    for start in starts:
        segment = segments.get(start.base_offset)
        if segment is None:
            continue
        stats.segments_skipped += numbers[start.base_offset] - before
        before, first = numbers[start.base_offset] + 1, first or start
        found = search.first_match_in(search.SegmentSearch(segment, start_offset=start.offset), query, stats)
        if found is not None:
            break
    else:
        stats.segments_skipped += len(segments) - before
    return Answer(
        found,
        first,
        stats.segments_skipped,
        stats.segments_read,
        stats.bytes_read,
        stats.batches_read,
        stats.records_read,
    )
