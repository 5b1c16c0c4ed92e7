"""KIP-33's earlier time index: one entry for each bucket of ``time.index.interval.ms``, ascending over all segments.

An index entry (b, o) means that the log entry at o is the first in bucket b or a later one: all log entries before it
are earlier than b. A bucket without a message has no entry. A segment in which no bucket is later than those of the
segments before it has an empty index.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from kts.proposals.answers import Start
from kts.proposals.index import IndexEntries, IndexMode
from kts.proposals.shallow import Shallow, floored, with_a_time

MINUTE_MS = 60_000  # the granularity that the KIP recommends


class BucketIndex:
    """The rule without files: the index entries of a log, and where a search begins.

    Parameters
    ----------
    interval_ms : int
        ``time.index.interval.ms``, above 0.
    allow_negative : bool
        Timestamps below 0 other than -1 count too (KIP-228).

    Notes
    -----
    Source: KIP-33, the revisions with ``time.index.interval.ms``: an entry (start of the bucket, first offset in it)
    for each bucket that is greater than the last entry of the log; when a segment is closed, an entry for its largest
    timestamp if that is the largest of the log; for a segment without any timestamp, (file time, last offset).
    """

    chained = True  # a segment's index depends on the segments before it

    def __init__(self, interval_ms: int = MINUTE_MS, *, allow_negative: bool = False) -> None:
        if interval_ms < 1:
            raise ValueError(f"time.index.interval.ms: expected 1 or more, found {interval_ms}")
        self.interval_ms = interval_ms
        self.allow_negative = allow_negative
        self.segments: dict[int, IndexEntries] = {}  # by base offset, oldest first
        self.largest: tuple[int, int] | None = None  # timestamp of the log, and the first entry that has it
        self.last_entry: tuple[int, int] | None = None  # of the log, in whichever segment it is
        self._largest: dict[int, tuple[int, int]] = {}  # the same of each segment that has a timestamp
        self._last_offset: int | None = None  # of the last segment

    def create(self, base_offset: int) -> None:
        """Add a new last segment, with an empty index."""
        self.load(IndexEntries(base_offset), None)

    def load(self, entries: IndexEntries, largest: tuple[int, int] | None) -> None:
        """Add a closed segment from its file; ``largest`` is its largest timestamp and the entry that has it."""
        self.segments[entries.base_offset] = entries
        self._last_offset = None
        self._extended(entries)
        if largest is not None:
            self._reached(entries.base_offset, largest)

    def _extended(self, entries: IndexEntries) -> None:
        if len(entries):
            self.last_entry = entries.timestamps[-1], entries.offsets[-1]

    def _reached(self, base_offset: int, largest: tuple[int, int]) -> None:
        known = self._largest.get(base_offset)
        if known is None or largest[0] > known[0]:
            self._largest[base_offset] = largest
        if self.largest is None or largest[0] > self.largest[0]:
            self.largest = largest

    def remove(self, base_offset: int) -> None:
        """The segment was deleted, with its index."""
        entries, largest = self.segments.pop(base_offset, None), self._largest.pop(base_offset, None)
        if largest is not None and largest == self.largest:
            self.largest = max(self._largest.values(), key=lambda one: (one[0], -one[1]), default=None)
        if entries is not None and len(entries):
            self.last_entry = None
            last = next((one for one in reversed(self.segments.values()) if len(one)), None)
            if last is not None:
                self._extended(last)

    def add(self, base_offset: int, shallow: Shallow) -> None:
        """Add the index entries for a set that was appended to the last segment."""
        if len(shallow.last_offsets):
            self._last_offset = int(shallow.last_offsets[-1])
        counted = with_a_time(shallow.timestamps, self.allow_negative)
        if not counted.any():
            return
        timestamps, offsets = shallow.timestamps[counted], shallow.first_offsets[counted]
        buckets = floored(timestamps, self.interval_ms)
        fresh = np.ones(len(buckets), bool)
        fresh[1:] = buckets[1:] > np.maximum.accumulate(buckets)[:-1]
        known = self._known()
        if known is not None:
            fresh &= buckets > known
        entries = self.segments[base_offset]
        entries.extend(buckets[fresh].tolist(), offsets[fresh].tolist())
        self._extended(entries)
        top = int(timestamps.argmax())
        self._reached(base_offset, (int(timestamps[top]), int(offsets[top])))

    def _known(self) -> int | None:
        """The last bucket of the log: only later buckets get an entry.

        It is the bucket of the last entry or of the largest timestamp: retention may have deleted the latter's entry.
        """
        last, largest = self.last_entry, self.largest
        known = [] if last is None else [last[0]]
        if largest is not None:
            known.append(int(floored(np.array([largest[0]]), self.interval_ms)[0]))
        return max(known, default=None)

    def close(self, base_offset: int, modified_ms: int) -> None:
        """Close the last segment: it may get a closing entry.

        Parameters
        ----------
        modified_ms : int
            Modification time of its ``.log``, for a segment without timestamps.
        """
        entries, largest, last = self.segments[base_offset], self._largest.get(base_offset), self.last_entry
        closing: tuple[int, int] | None = None
        if largest is not None:
            closing = largest if largest == self.largest else None
        elif self._last_offset is not None:
            closing = modified_ms, self._last_offset
        if closing is not None and (last is None or closing[0] > last[0]):
            entries.extend([closing[0]], [closing[1]])
            self._extended(entries)

    def starts(self, target_ms: int) -> Iterator[Start]:
        """Where to start reading for a timestamp, segment by segment; nothing if no record is that late.

        Notes
        -----
        Two binary searches, because entries ascend over all segments. For a target below 0 reading starts at the first
        segment, unless such timestamps are allowed: the index does not have them.
        """
        bases = list(self.segments)
        first = Start(bases[0], bases[0]) if bases else None
        if target_ms >= 0 or self.allow_negative:
            largest = self.largest
            if largest is None or target_ms > largest[0]:
                return
            indexed = [entries for entries in self.segments.values() if len(entries)]
            at = bisect_right([entries.timestamps[0] for entries in indexed], target_ms) - 1
            if at >= 0:
                entry = bisect_right(indexed[at].timestamps, target_ms) - 1
                first = Start(indexed[at].base_offset, indexed[at].offsets[entry])
        if first is not None:
            yield first
            yield from (Start(base, base) for base in bases if base > first.base_offset)


class BucketIndexMode(IndexMode):
    """``bucket-index``: KIP-33's earlier ``.time.index``; see ``BucketIndex``."""

    name = "bucket-index"
    suffix = ".time.index"

    def __init__(self, interval_ms: int = MINUTE_MS, *, allow_negative: bool = False) -> None:
        super().__init__(BucketIndex(interval_ms, allow_negative=allow_negative))
