"""All lookups by timestamp, for comparison, over any readable log. Nothing is written."""

from __future__ import annotations

from kts.dataset.partition import PartitionLog
from kts.proposals.answers import ENTRY_BYTES, Answer, IndexSize, Lookup, Start, find
from kts.proposals.bucket_index import MINUTE_MS, BucketIndex, BucketIndexMode
from kts.proposals.index import IndexRule, replay
from kts.proposals.minute_map import MinuteMap, MinuteMapMode
from kts.segment.search import Explanation, explained


def time_index_size(log: PartitionLog) -> IndexSize:
    """The size of all ``.timeindex`` files. The preallocated part of the active one counts as bytes, not as entries."""
    paths = [path for segment in log.segments if (path := segment.time_index_path) is not None]
    entries = sum(len(segment.time_index()) for segment in log.segments)
    return IndexSize(entries, sum(map(log.source.size_of, paths)), entries * ENTRY_BYTES)


class Continuing:
    """KIP-33's search over the shipped time index: from the oldest segment on, until a record is found.

    Notes
    -----
    Source: KIP-33, "Search message by timestamp"; KIP-32's promise that no later message is missed. A closed segment is
    skipped if its last entry is before the target, and read if it has no entry.
    """

    name = "continuing-search"

    def index_size(self, log: PartitionLog) -> IndexSize:
        """The size of the time indexes."""
        return time_index_size(log)

    def search(self, log: PartitionLog, target_ms: int) -> Answer:
        """The first record at or after the target, and how much was read."""
        return as_answer(explained(log, target_ms))


class OneSegment:
    """The shipped search: only the first segment whose largest timestamp, or file time, reaches the target.

    Notes
    -----
    Source: Log.fetchOffsetsByTimestamp, LogSegment.findOffsetByTimestamp. The choice of the segment is not counted: a
    broker has the largest timestamps in memory.
    """

    name = "shipped-search"

    def index_size(self, log: PartitionLog) -> IndexSize:
        """The size of the time indexes."""
        return time_index_size(log)

    def search(self, log: PartitionLog, target_ms: int) -> Answer:
        """The first record at or after the target in that one segment, and how much was read."""
        return as_answer(explained(log, target_ms, one_segment=True))


def as_answer(story: Explanation) -> Answer:
    """A search as an ``Answer``. Its start is the one in the last segment that was read."""
    start = None
    if story.segment_base_offset is not None:
        entry = story.time_index_entry
        start = Start(story.segment_base_offset, story.segment_base_offset if entry is None else entry[1])
    return Answer(
        story.answer,
        start,
        story.segments_skipped,
        story.segments_read,
        story.bytes_read,
        story.batches_read,
        story.records_read,
    )


class Built:
    """An index in memory, as its rule would have built it for a log.

    Parameters
    ----------
    log : PartitionLog
        Its headers are read once; records appended later are not indexed.
    rule : BucketIndex or MinuteMap
        An empty one.
    """

    def __init__(self, log: PartitionLog, rule: IndexRule, name: str) -> None:
        self.name = name
        self._rule = rule
        segments = log.segments
        for segment in segments:
            rule.create(segment.base_offset)
            replay(segment, rule)
            if segment is not segments[-1]:
                rule.close(segment.base_offset, segment.modified_ms)

    def index_size(self, log: PartitionLog) -> IndexSize:
        """The size of its entries, in memory and as files."""
        entries = sum(map(len, self._rule.segments.values()))
        return IndexSize(entries, entries * ENTRY_BYTES, entries * ENTRY_BYTES)

    def search(self, log: PartitionLog, target_ms: int) -> Answer:
        """The first record at or after the target, and how much was read."""
        none_is_a_time = not self._rule.allow_negative
        return find(log, self._rule.starts(target_ms), target_ms, none_is_a_time=none_is_a_time)


def lookups(log: PartitionLog, *, interval_ms: int = MINUTE_MS, allow_negative: bool = False) -> list[Lookup]:
    """Every lookup for a log: the shipped search, KIP-33's search over the same index, and KIP-33's two other indexes.

    Parameters
    ----------
    interval_ms : int
        ``time.index.interval.ms`` of the bucket index.
    """
    return [
        OneSegment(),
        Continuing(),
        Built(log, BucketIndex(interval_ms, allow_negative=allow_negative), BucketIndexMode.name),
        Built(log, MinuteMap(allow_negative=allow_negative), MinuteMapMode.name),
    ]
