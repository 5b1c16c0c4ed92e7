"""The two searches that need nothing but ``.timeindex``: the shipped one, and KIP-33's, which goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kts.proposals.answers import ENTRY_BYTES, Answer, Cost, Start
from kts.segment import files
from kts.segment.search import Explanation, explained

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog


def time_index_cost(log: PartitionLog) -> Cost:
    """Of all ``.timeindex`` files; the preallocated part of the active one counts as bytes, not as entries."""
    paths = [path for segment in log.segments if (path := segment.time_index_path) is not None]
    entries = sum(len(segment.time_index()) for segment in log.segments)
    return Cost(entries, sum(map(files.size_of, paths)), entries * ENTRY_BYTES)


class Continuing:
    """KIP-33's search over the shipped time index: from the oldest segment on, until a record is found.

    Notes
    -----
    Source: KIP-33, "Search message by timestamp"; KIP-32's promise that no later message is missed. A closed segment is
    left out if its last entry is before the target, and read if it has no entry.
    """

    name = "continuing-search"

    def cost(self, log: PartitionLog) -> Cost:
        """What it needs: the time indexes."""
        return time_index_cost(log)

    def search(self, log: PartitionLog, target_ms: int) -> Answer:
        """The first record at or after the target, and what was read for it."""
        return as_answer(explained(log, target_ms))


class OneSegment:
    """The shipped search: the first segment whose largest timestamp, or file time, reaches the target, and no other.

    Notes
    -----
    Source: Log.fetchOffsetsByTimestamp, LogSegment.findOffsetByTimestamp. That the choice of the segment costs nothing
    is right for a broker, which has its largest timestamps in memory.
    """

    name = "shipped-search"

    def cost(self, log: PartitionLog) -> Cost:
        """What it needs: the time indexes."""
        return time_index_cost(log)

    def search(self, log: PartitionLog, target_ms: int) -> Answer:
        """The first record at or after the target in that one segment, and what was read for it."""
        return as_answer(explained(log, target_ms, one_segment=True))


def as_answer(story: Explanation) -> Answer:
    """How the search went, as the other lookups tell it; the start is that in the last segment that was read."""
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
