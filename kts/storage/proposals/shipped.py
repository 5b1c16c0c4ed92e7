"""The two searches that need nothing but ``.timeindex``: the shipped one, and KIP-33's, which goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kts.storage import files
from kts.storage.proposals.answers import ENTRY_BYTES, Answer, Cost, Start
from kts.storage.proposals.finding import find
from kts.storage.search import max_so_far

if TYPE_CHECKING:
    from kts.storage.directory import PartitionLog

GREATEST = 2**63 - 1


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
        return find(log, self._starts(log, target_ms), target_ms)

    def _starts(self, log: PartitionLog, target_ms: int) -> Iterator[Start]:
        segments = log.segments
        for segment in segments:
            if target_ms < 0:  # the time index does not know these, nor messages without a timestamp
                yield Start(segment.base_offset, segment.base_offset)
                continue
            closed = segment is not segments[-1]
            index = segment.closed_time_index() if closed else segment.time_index()
            if not (closed and len(index) and index.lookup(GREATEST)[0] < target_ms):
                yield Start(segment.base_offset, index.lookup(target_ms)[1])


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
        segments = log.segments
        for segment in segments:
            largest = max_so_far(segment, segment is segments[-1])
            if (largest if largest >= 0 else segment.modified_ms) >= target_ms:
                start = Start(segment.base_offset, segment.time_index().lookup(target_ms)[1])
                return find(log, [start], target_ms)
        return Answer(None, segments_skipped=len(segments))
