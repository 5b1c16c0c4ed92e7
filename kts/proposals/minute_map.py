"""KIP-33's rejected form: each segment has a map from a minute to the first offset in it, and a copy of it on disk.

Unlike a time index it is not in the order of timestamps: a late message adds an entry for its own, earlier minute, so
the map has the first offset of every minute. A search starts at the first entry of the target's minute or a later one.
If its minute is later, the answer is in the log entry there, and nothing else is read.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kts.proposals.answers import Start
from kts.proposals.index import IndexEntries, IndexMode
from kts.proposals.shallow import Shallow, floored, with_a_time

MINUTE_MS = 60_000


class MinuteMap:
    """The rule without files: ``Map[TopicPartitionSegment, Map[TimestampByMinute, Offset]]`` of one partition.

    Parameters
    ----------
    allow_negative : bool
        Timestamps below 0 other than -1 count too (KIP-228).

    Notes
    -----
    Source: KIP-33, rejected alternatives.
    """

    chained = False

    def __init__(self, *, allow_negative: bool = False) -> None:
        self.allow_negative = allow_negative
        self.segments: dict[int, IndexEntries] = {}  # by base offset, oldest first
        self._minutes: dict[int, set[int]] = {}

    def create(self, base_offset: int) -> None:
        """Add a new last segment, with an empty map."""
        self.load(IndexEntries(base_offset), None)

    def load(self, entries: IndexEntries, largest: tuple[int, int] | None) -> None:
        """Add a closed segment from its persistent copy."""
        self.segments[entries.base_offset] = entries
        self._minutes[entries.base_offset] = set(entries.timestamps)

    def remove(self, base_offset: int) -> None:
        """The segment was deleted: remove its map."""
        self.segments.pop(base_offset, None)
        self._minutes.pop(base_offset, None)

    def add(self, base_offset: int, shallow: Shallow) -> None:
        """Add an entry for each minute that the segment's map does not have yet."""
        counted = with_a_time(shallow.timestamps, self.allow_negative)
        minutes, places = np.unique(floored(shallow.timestamps[counted], MINUTE_MS), return_index=True)
        known = self._minutes[base_offset]
        fresh = sorted((p, m) for m, p in zip(minutes.tolist(), places.tolist(), strict=True) if m not in known)
        offsets = shallow.first_offsets[counted]
        self.segments[base_offset].extend([m for _, m in fresh], [int(offsets[p]) for p, _ in fresh])
        known.update(m for _, m in fresh)

    def close(self, base_offset: int, modified_ms: int) -> None:
        """A map has no closing entry."""

    def starts(self, target_ms: int) -> Iterator[Start]:
        """Where to start reading: in each segment, at the first entry of the target's minute or a later one.

        Notes
        -----
        A segment without such a minute is skipped. For a target below 0 everything is read, unless such timestamps are
        allowed.
        """
        minute = int(floored(np.array([target_ms]), MINUTE_MS)[0])
        for base, entries in self.segments.items():
            if target_ms < 0 and not self.allow_negative:
                yield Start(base, base)
                continue
            young = np.frombuffer(entries.timestamps, np.int64) >= minute
            if young.any():
                yield Start(base, entries.offsets[int(young.argmax())])


class MinuteMapMode(IndexMode):
    """``minute-map``: KIP-33's rejected map with its persistent copy; see ``MinuteMap``."""

    name = "minute-map"
    suffix = ".minute.index"

    def __init__(self, *, allow_negative: bool = False) -> None:
        super().__init__(MinuteMap(allow_negative=allow_negative))
