"""The common interface of all lookups by timestamp, and their answers, for comparison.

A lookup has a name, the size of its indexes (``index_size``), and a ``search`` for the first record at or after a
timestamp, which also counts what it read.
"""

from __future__ import annotations

from collections.abc import Iterable
from errno import ENOENT
from typing import NamedTuple, Protocol

from kts.dataset.partition import PartitionLog
from kts.errors import LogStorageError
from kts.model import TimestampOffset
from kts.segment import search

ENTRY_BYTES = 12  # timestamp int64, relative offset int32: the same in all of KIP-33's revisions


class IndexSize(NamedTuple):
    """The current size of a lookup's indexes.

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
    """Where reading begins: at the shallow entry that contains an offset. All records before it are too early."""

    base_offset: int  # of the segment
    offset: int


class Answer(NamedTuple):
    """The first record at or after a target, and how much was read to find it.

    Attributes
    ----------
    found : TimestampOffset or None
        None if there is no such record, or the search stopped before it.
    start : Start or None
        Where reading began; None if the index alone showed that there is no such record.
    segments_skipped, segments_read : int
        Segments before the answer that were skipped, and segments that were read.
    bytes_read : int
        Bytes of ``.log`` files from where reading began to the end of the batch with the answer.
    batches_read, records_read : int
        Batch headers read, and records decoded because the header allowed a match.
    """

    found: TimestampOffset | None
    start: Start | None = None
    segments_skipped: int = 0
    segments_read: int = 0
    bytes_read: int = 0
    batches_read: int = 0
    records_read: int = 0


class Lookup(Protocol):
    """A way to find a record by timestamp."""

    name: str

    def index_size(self, log: PartitionLog) -> IndexSize:
        """The size of its indexes in memory and on disk."""

    def search(self, log: PartitionLog, target_ms: int) -> Answer:
        """The first record at or after the target."""


def find(log: PartitionLog, starts: Iterable[Start], target_ms: int, *, none_is_a_time: bool = True) -> Answer:
    """The first record at or after a timestamp: read from each start to the end of its segment, as KIP-33 says.

    Parameters
    ----------
    starts : iterable of Start
        In ascending order; segments without a start are skipped. Records of the first batch below the start's offset
        can be the answer: an index entry may have the last offset of several equal timestamps.
    none_is_a_time : bool
        Compare -1 as a number, as Kafka does; else a record without a timestamp is never found.

    Notes
    -----
    A segment that was deleted meanwhile is skipped. Records before the log start offset do not count.
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
        one = search.SegmentSearch(segment, active=before == len(segments), start_offset=start.offset)
        try:
            found = search.first_match_in(one, query, stats)
        except LogStorageError as error:
            if error.errno != ENOENT or segment.source.exists(segment.path):
                raise
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
