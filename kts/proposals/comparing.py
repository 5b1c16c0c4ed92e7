"""The ways to find a record by its time, side by side over any log that can be read; nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kts.proposals.answers import ENTRY_BYTES, Answer, Cost, Lookup
from kts.proposals.bucket_index import MINUTE_MS, BucketIndex
from kts.proposals.finding import find
from kts.proposals.index_mode import BucketIndexMode, MinuteMapMode, Rule, replay
from kts.proposals.minute_map import MinuteMap
from kts.proposals.shipped import Continuing, OneSegment

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog


class Built:
    """An index as its rule would have made it for a log, in memory only.

    Parameters
    ----------
    log : PartitionLog
        Read once, from headers; the search does not see what is appended later.
    rule : BucketIndex or MinuteMap
        An empty one.
    """

    def __init__(self, log: PartitionLog, rule: Rule, name: str) -> None:
        self.name = name
        self._rule = rule
        segments = log.segments
        for segment in segments:
            rule.create(segment.base_offset)
            replay(segment, rule)
            if segment is not segments[-1]:
                rule.close(segment.base_offset, segment.modified_ms)

    def cost(self, log: PartitionLog) -> Cost:
        """What it would need: a file's bytes are those of its entries."""
        entries = sum(map(len, self._rule.segments.values()))
        return Cost(entries, entries * ENTRY_BYTES, entries * ENTRY_BYTES)

    def search(self, log: PartitionLog, target_ms: int) -> Answer:
        """The first record at or after the target, and what was read for it."""
        none_is_a_time = not self._rule.allow_negative
        return find(log, self._rule.starts(target_ms), target_ms, none_is_a_time=none_is_a_time)


def lookups(log: PartitionLog, *, interval_ms: int = MINUTE_MS, allow_negative: bool = False) -> list[Lookup]:
    """Every row of the table for a log: the shipped search, KIP-33's over the same index, and its two other indexes.

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
