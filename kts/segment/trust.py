"""What the log of an open segment confirms of its indexes: which entries answers may use, and why an index is corrupt.

An entry is trusted if this process wrote it, if the log confirmed it before, or if the index is as it was when it was
closed. Any other one is compared with the log when an answer first needs it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kts.behaviour import Behaviour
from kts.segment.confirmation import backwards, confirmed_place, confirmed_time, entry_at
from kts.segment.entries import FIRST_READ_BYTES, Slices, shallow_entries
from kts.segment.index import OffsetIndexFile, TimeIndexFile
from kts.segment.index_checksums import Sealed
from kts.store.local import File


class IndexedLog(Protocol):
    """The segment whose indexes are trusted or not."""

    base_offset: int
    path: str
    size: int
    behaviour: Behaviour
    time_index: TimeIndexFile

    @property
    def offset_index(self) -> OffsetIndexFile:
        """Opened at its first use."""

    def log_file(self) -> File:
        """The log, for reading."""


class TimePlace(NamedTuple):
    """An entry of the time index that is believed, and where to start reading for its timestamp."""

    timestamp_ms: int
    offset: int
    place: int


class IndexTrust:
    """Looks up in the indexes of a segment, and keeps what it found out about them.

    Attributes
    ----------
    sealed : Sealed or None
        What the indexes were when they were closed.
    corrupt : str or None
        Why an index is corrupt: no entry that is not confirmed is used, and both must be rebuilt.
    on_corrupt : callable
        Called once with the segment, when an index proves corrupt.
    """

    def __init__(self, segment: IndexedLog) -> None:
        self._itself = weakref.ref(segment)  # no cycle: a segment that is let go of closes its files
        self._segment: IndexedLog = weakref.proxy(segment)
        self.sealed: Sealed | None = None
        self.corrupt: str | None = None
        self.on_corrupt: Callable[[Any], None] = lambda segment: None

    def mark_corrupt(self, why: str) -> None:
        """Mark the indexes corrupt."""
        if self.corrupt is None:
            self.corrupt = why
            self.on_corrupt(self._itself())

    def rebuilt(self) -> None:
        """The indexes were rebuilt from the log."""
        self.corrupt = self.sealed = None

    # --- places -----------------------------------------------------------------------------------

    def place(self, offset: int) -> int:
        """Where to start looking for an offset: at an entry of the log, and no earlier entry reaches the offset."""
        index = self._segment.offset_index
        slot, found, position = index.lookup_slot(offset)
        if slot < 0:
            if index.entries and self.corrupt is None and not index.trusts(0) and not self.is_as_sealed(index):
                self._check_first(index)
            return 0
        if index.trusts(slot) or self.is_as_sealed(index):
            return max(position, 0)
        for candidate in backwards(slot):
            found, position = index.entry(candidate)
            if found <= offset and (index.trusts(candidate) or self._confirms(candidate, found, position)):
                index.confirm(candidate)
                return position
            self.mark_corrupt(f"the log does not confirm entry {candidate} of the offset index")
        return 0

    def _check_first(self, index: OffsetIndexFile) -> None:
        """Check the first entry when all are above the offset: no answer uses it, but it can reveal corruption."""
        if self._confirms(0, *index.entry(0)):
            index.confirm(0)
        else:
            self.mark_corrupt("the log does not confirm the first entry of the offset index")

    def _confirms(self, slot: int, offset: int, position: int) -> bool:
        """Whether the log confirms an entry of the offset index.

        Damage since the previous index entry hides the borders between the two: then a sound entry at its position is
        enough.
        """
        segment = self._segment
        log, size = segment.log_file(), segment.size
        before = max(segment.offset_index.entry(slot - 1)[1], 0) if slot else 0
        if confirmed_place(log, size, offset, position, before) is not None:
            return True
        place = entry_at(log, size, position) if before < position < size else None
        return place is not None and place.first_offset <= offset and _is_damaged(log, size, before, position)

    # --- times ------------------------------------------------------------------------------------

    def place_of_time(self, timestamp_ms: int, lowest: int) -> int:
        """Where to start looking for a time at or after an offset."""
        found = self.last_time(self._segment.time_index.lookup_slot(timestamp_ms)[0], timestamp_ms, lowest)
        return self.place(max(lowest, self._segment.base_offset)) if found is None else found.place

    def last_time(self, slot: int, most_ms: int, lowest: int) -> TimePlace | None:
        """The last believed entry of the time index, up to a slot, that is not later than a time."""
        index = self._segment.time_index
        for candidate in backwards(slot):
            time, offset = index.entry(candidate)
            place = self._place_of_entry(candidate, time, offset, lowest) if time <= most_ms else None
            if place is not None:
                return TimePlace(time, offset, place)
            self.mark_corrupt(f"the log does not confirm entry {candidate} of the time index")
        return None

    def last_believed(self) -> int:
        """The last slot of the time index, or the one before it if the log does not confirm the last.

        0.10.2 wrote either all times later than the log's or none: a single later one is damage.
        """
        segment = self._segment
        index = segment.time_index
        slot = index.entries - 1
        if slot < 0 or index.own_from == 0:
            return slot
        confirmed = self._place_of_entry(slot, *index.last_entry, segment.base_offset) is not None
        if confirmed and slot and not segment.behaviour.times.before_1970:
            confirmed = self._is_its_time(slot) or not self._is_its_time(slot - 1)
        if confirmed:
            return slot
        self.mark_corrupt("the log does not confirm the last entry of the time index")
        return slot - 1

    def _place_of_entry(self, slot: int, time: int, offset: int, lowest: int) -> int | None:
        """Where to start reading for an entry of the time index; None unless the log confirms it."""
        index = self._segment.time_index
        if index.trusts(slot) or self.is_as_sealed(index):
            return self.place(max(offset, lowest))
        place = self._confirmed_time(slot, time, offset)
        if place is None:
            return None
        if place < self.place(offset):
            return place
        index.confirm(slot)
        return self.place(max(offset, lowest))

    def _confirmed_time(self, slot: int, time: int, offset: int) -> int | None:
        segment = self._segment
        before = segment.time_index.entry(slot - 1)[1] if slot else segment.base_offset
        if not segment.base_offset <= before <= offset:
            return None
        start = self.place(before) if slot else 0
        return confirmed_time(segment.log_file(), segment.size, time, offset, start)

    def _is_its_time(self, slot: int) -> bool:
        """Whether the log has the timestamp of a time-index entry, which may also be later than the log's own."""
        segment = self._segment
        time, offset = segment.time_index.entry(slot)
        place = self._confirmed_time(slot, time, offset)
        if place is None:
            return False
        found = next(shallow_entries(segment.log_file(), place, segment.size, segment.behaviour, segment.path), None)
        return found is not None and found.max_timestamp == time

    # --- sealed indexes ---------------------------------------------------------------------------

    def is_as_sealed(self, index: OffsetIndexFile | TimeIndexFile) -> bool:
        """Whether an index is unchanged since it was closed; compared once."""
        if self.sealed is None or self.sealed.log_bytes != self._segment.size or self.corrupt is not None:
            return False
        data, is_offsets = index.read(), isinstance(index, OffsetIndexFile)
        if self.sealed.index_differs(data) if is_offsets else self.sealed.time_index_differs(data):
            self.mark_corrupt(f"the {'offset' if is_offsets else 'time'} index is not what it was when it was closed")
            return False
        index.vouch()
        return True

    def load_seal(self, sealed: Sealed) -> bool:
        """Compare lengths and the last time-index entry with the recorded ones, if these apply to this log.

        Returns
        -------
        bool
            They apply, and are equal.
        """
        segment = self._segment
        index, times = segment.offset_index, segment.time_index
        if sealed.log_bytes != segment.size:
            if sealed.log_bytes > segment.size and index.size_bytes == sealed.index_bytes:  # a truncation changes both
                self.sealed = sealed  # recorded again while the end is missing
                self.mark_corrupt(f"the log had {sealed.log_bytes} bytes when it was closed, found {segment.size}")
            return False
        self.sealed = sealed
        if index.size_bytes != sealed.index_bytes:
            found = f"{sealed.index_bytes} bytes when it was closed, found {index.size_bytes}"
            self.mark_corrupt(f"the offset index had {found}")
        elif sealed.end_differs(times.size_bytes, times.last_entry):
            self.mark_corrupt("the time index does not end as it did when it was closed")
        return self.corrupt is None

    def seal(self) -> Sealed | None:
        """The state of the indexes to record, if this log wrote every entry or an earlier record still holds."""
        segment = self._segment
        if self.sealed is not None and (self.sealed.log_bytes == segment.size or self.corrupt is not None):
            return self.sealed
        if segment.behaviour.believes_indexes or not segment.size:
            return None
        index, times = segment.offset_index, segment.time_index
        if index.own_from or times.own_from:
            return None
        self.sealed = Sealed.of(segment.size, index.read(), times.read(), times.last_entry)
        return self.sealed


def _is_damaged(log: File, size: int, start: int, end: int) -> bool:
    """True if the entries between two positions are not sound, so that sizes do not show the borders."""
    slices = Slices(log, start, size, FIRST_READ_BYTES)
    for batches in slices:
        inside = batches.column("position") < end
        if not batches.column("crc_ok")[inside].all():
            return True
        if not inside.all():
            return False
    return slices.position < end
