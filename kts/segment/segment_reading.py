"""What a segment that is written to answers: by offset, by timestamp, and how long it has waited."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.codec.refusals import as_shipped
from kts.errors import CorruptRecordError, KtsError
from kts.model import NO_TIMESTAMP, TimestampOffset
from kts.segment import files
from kts.segment.confirmation import confirmed_place, confirmed_time, entry_at
from kts.segment.files import FileRange
from kts.segment.index import OffsetIndexFile, TimeIndexFile
from kts.segment.segment_files import SegmentFiles
from kts.segment.shallow import (
    FIRST_READ_BYTES,
    ShallowEntry,
    Slices,
    decoded,
    decoded_as_shipped,
    greatest_timestamp,
    shallow_entries,
)

if TYPE_CHECKING:
    import numpy.typing as npt


class SegmentRead(NamedTuple):
    """Bytes of a segment from the first entry that was asked for; the last entry may be cut."""

    position: int
    data: bytes
    first_entry_incomplete: bool


class SegmentSlice(NamedTuple):
    """The same, to be sent as they lie."""

    position: int
    data: FileRange
    first_entry_incomplete: bool


class SegmentReading(SegmentFiles):
    """A segment's answers, also while it is written to, up to its size.

    Notes
    -----
    They rest on what the log confirms. What it does not confirm of an index is left out, and ``doubted`` says why.
    """

    # --- where to begin ---------------------------------------------------------------------------

    def start_of(self, offset: int) -> int:
        """Where to begin to look for an offset: an entry of the log that nothing before it reaches."""
        index = self.offset_index
        slot, found, position = index.find(offset)
        if slot < 0:
            if index.entries and self.doubted is None and not index.trusts(0) and not self._is_as_sealed(index):
                self._check_first(index)
            return 0
        if index.trusts(slot) or self._is_as_sealed(index):
            return max(position, 0)
        step = 1
        while slot >= 0:
            if found <= offset and (index.trusts(slot) or self._confirms(slot, found, position)):
                index.confirm(slot)
                return position
            self.doubt(f"the log does not confirm entry {slot} of the offset index")
            slot, step = slot - step, 2 * step
            if slot >= 0:
                found, position = index.entry(slot)
        return 0

    def _check_first(self, index: OffsetIndexFile) -> None:
        """Look at the first entry where all are above an offset: no answer rests on it, but what it could save."""
        if self._confirms(0, *index.entry(0)):
            index.confirm(0)
        else:
            self.doubt("the log does not confirm the first entry of the offset index")

    def _confirms(self, slot: int, offset: int, position: int) -> bool:
        """Whether the log confirms an entry of the offset index.

        What is damaged between it and the entry before it leads to no border: then the one that it points to must do.
        """
        log, size = self.log_file(), self.size
        before = max(self.offset_index.entry(slot - 1)[1], 0) if slot else 0
        if confirmed_place(log, size, offset, position, before) is not None:
            return True
        place = entry_at(log, size, position) if before < position < size else None
        return place is not None and place.first_offset <= offset and _is_damaged(log, size, before, position)

    def _start_of_time(self, timestamp_ms: int, lowest: int) -> int:
        """Where to begin to look for a time at an offset or behind it."""
        index = self.time_index
        slot, time, offset = index.find(timestamp_ms)
        step = 1
        while slot >= 0:
            position = self._place_of_time(slot, time, offset, lowest) if time <= timestamp_ms else None
            if position is not None:
                return position
            self.doubt(f"the log does not confirm entry {slot} of the time index")
            slot, step = slot - step, 2 * step
            if slot >= 0:
                time, offset = index.entry(slot)
        return self.start_of(max(lowest, self.base_offset))

    def _place_of_time(self, slot: int, time: int, offset: int, lowest: int) -> int | None:
        """Where to read on from an entry of the time index; None unless the log confirms it."""
        index = self.time_index
        if index.trusts(slot) or self._is_as_sealed(index):
            return self.start_of(max(offset, lowest))
        place = self._confirmed_time(slot, time, offset)
        if place is None:
            return None
        if place < self.start_of(offset):
            return place
        index.confirm(slot)
        return self.start_of(max(offset, lowest))

    def _confirmed_time(self, slot: int, time: int, offset: int) -> int | None:
        before = self.time_index.entry(slot - 1)[1] if slot else self.base_offset
        if not self.base_offset <= before <= offset:
            return None
        return confirmed_time(self.log_file(), self.size, time, offset, self.start_of(before) if slot else 0)

    def _is_its_time(self, slot: int) -> bool:
        """Whether an entry of the log has the time of one of the time index, which may also be later than the log's."""
        time, offset = self.time_index.entry(slot)
        place = self._confirmed_time(slot, time, offset)
        if place is None:
            return False
        found = next(shallow_entries(self.log_file(), place, self.size, self.generation, self.path), None)
        return found is not None and found.max_timestamp_ms == time

    def _is_as_sealed(self, index: OffsetIndexFile | TimeIndexFile) -> bool:
        """Whether an index is, as a whole, what it was when it was closed; looked at once."""
        if self.sealed is None or self.sealed.log_bytes != self.size or self.doubted is not None:
            return False
        if index is self.offset_index:
            kind, differs = "offset", self.sealed.index_differs(index.read())
        else:
            kind, differs = "time", self.sealed.time_index_differs(index.read())
        if differs:
            self.doubt(f"the {kind} index is not what it was when it was closed")
        else:
            index.vouch()
        return not differs

    # --- the greatest timestamp -------------------------------------------------------------------

    @property
    def max_timestamp_so_far(self) -> TimestampOffset:
        """Greatest timestamp of its entries and the offset it was reached at; (-1, base offset) if there is none."""
        if self._claimed:
            self._settle()
        if self._largest == self._least:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(self._largest, self._offset_of_largest)

    @property
    def has_timestamp(self) -> bool:
        """True if a timestamp counts: one that is not negative, or with ``allow.negative.timestamps`` any."""
        if self._claimed:
            self._settle()
        return self._largest > self._least if self._allow_negative else self._largest >= 0

    @property
    def largest_timestamp_ms(self) -> int:
        """Its greatest timestamp, or when the file was modified last if it has none."""
        return self._largest if self.has_timestamp else self.modified_ms

    def _settle(self) -> None:
        """The last time entry of a closed segment, if the log confirms that it is the last word."""
        (time, offset), slot = self._last_time_entry(), self._last_believed()
        if self._reaches_beyond(time):
            self.doubt("the log has later timestamps than the time index")
        if self.doubted is not None:
            time, offset = self._derived_largest(slot)
        self._largest, self._offset_of_largest = time, offset
        self._claimed = False

    def _last_believed(self) -> int:
        """The last slot of the time index, or the one before it if the log does not confirm that.

        0.10.2 wrote times that are later than the log's, or none such: a single one of many is damage.
        """
        times = self.time_index
        slot = times.entries - 1
        if slot < 0 or times.own_from == 0:
            return slot
        confirmed = self._place_of_time(slot, *times.last_entry, self.base_offset) is not None
        if confirmed and slot and not self._allow_negative:
            confirmed = self._is_its_time(slot) or not self._is_its_time(slot - 1)
        if confirmed:
            return slot
        self.doubt("the log does not confirm the last entry of the time index")
        return slot - 1

    def _reaches_beyond(self, time: int) -> bool:
        """Whether something behind the last entry of the offset index is later; emptied batches may count or not."""
        for batches in Slices(self.log_file(), self.start_of(2**63 - 1), self.size):
            times = batches.column("maxTimestamp")
            if ((times > time) & (times != NO_TIMESTAMP) & (batches.column("count") != 0)).any():
                return True
        return False

    def _derived_largest(self, slot: int) -> tuple[int, int]:
        """The greatest timestamp: that of a time entry or one before it that the log confirms, or one behind its place.

        Where the log is damaged, what lies behind that is looked at as far as the offset index leads there.
        """
        index, start = self.time_index, self.start_of(self.base_offset)
        time, offset = self._least, self.base_offset
        step = 1
        while slot >= 0:
            found = index.entry(slot)
            place = self._place_of_time(slot, *found, self.base_offset)
            if place is not None:
                if found[0] >= 0 or self._allow_negative or self.shipped:
                    (time, offset), start = found, place
                break
            self.doubt(f"the log does not confirm entry {slot} of the time index")
            slot, step = slot - step, 2 * step
        time, offset, end = self._greatest_from(start, time, offset)
        if end < self.size:
            time, offset, _ = self._greatest_from(max(self.start_of(2**63 - 1), end), time, offset)
        return time, offset

    def _greatest_from(self, start: int, time: int, offset: int) -> tuple[int, int, int]:
        """The greater of a timestamp and those from a place on, its offset, and where the entries end."""
        slices = Slices(self.log_file(), start, self.size)
        for batches in slices:
            times, lasts = batches.column("maxTimestamp"), batches.column("lastOffset")
            if not (self.shipped or batches.all_sound()):
                # A damaged header says any offset: what an index gets is none behind the sound batches so far.
                lasts = np.maximum.accumulate(np.where(batches.column("crcOk"), lasts, offset))
            for row in (times == NO_TIMESTAMP).nonzero()[0].tolist() if self._allow_negative else []:
                hidden = self._hidden_timestamp(batches.entry(row))
                if hidden != NO_TIMESTAMP and hidden > time:
                    time, offset = hidden, int(lasts[row])
            row = int(times.argmax())
            if times[row] > time and times[row] != NO_TIMESTAMP:
                time, offset = int(times[row]), int(lasts[row])
        if self.shipped and slices.reason is not None and slices.position < self.size:
            raise CorruptRecordError(slices.reason, path=self.path, position=slices.position)
        return time, offset, slices.position

    # --- answers ----------------------------------------------------------------------------------

    def translate_offset(self, offset: int, start_position: int = 0) -> ShallowEntry | None:
        """The first entry that reaches an offset, None if none does; not looked for before ``start_position``."""
        start = max(self.start_of(offset), start_position)
        for entry in shallow_entries(self.log_file(), start, self.size, self.generation, self.path):
            if entry.last_offset >= offset:
                return entry
        return None

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        max_position: int | None = None,
        max_offset: int | None = None,
        min_one_message: bool = False,
    ) -> SegmentRead | None:
        """Bytes from the first entry that reaches an offset; None if none does.

        Parameters
        ----------
        max_bytes : int
            Most bytes; the last entry may be cut.
        max_position, max_offset : int, optional
            Nothing from this position, or from the entry that reaches this offset on.
        min_one_message : bool
            Give the first entry whole, even if it is larger.
        """
        found = self._range(start_offset, max_bytes, max_position, max_offset, min_one_message)
        if found is None:
            return None
        position, count, incomplete = found
        return SegmentRead(position, self.log_file().read(position, count) if count else b"", incomplete)

    def slice(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        max_position: int | None = None,
        max_offset: int | None = None,
        min_one_message: bool = False,
    ) -> SegmentSlice | None:
        """What ``read`` reads, as a range of the file."""
        found = self._range(start_offset, max_bytes, max_position, max_offset, min_one_message)
        if found is None:
            return None
        position, count, incomplete = found
        return SegmentSlice(position, self.lend(position, count), incomplete)

    def lend(self, position: int, count: int) -> FileRange:
        """Bytes of the log, with a descriptor of their own; a cut takes them back."""
        if not count:
            return FileRange(None, position, 0)
        file = self._log
        lent = FileRange(self.log_file() if file is None else file.share(), position, count)
        self._lent.add(lent)
        return lent

    def _range(
        self,
        start_offset: int,
        max_bytes: int,
        max_position: int | None,
        max_offset: int | None,
        min_one_message: bool,
    ) -> tuple[int, int, bool] | None:
        """Position, count of bytes, and whether not even the first entry is whole."""
        size = self.size
        first = self.translate_offset(start_offset)
        if first is None:
            return None
        most = max(max_bytes, first.size) if min_one_message else max_bytes
        end = size if max_position is None else min(max_position, size)
        if max_offset is not None:
            last = self.translate_offset(max_offset, first.position)
            end = min(end, size if last is None else last.position)
        count = max(min(end - first.position, most), 0)
        return first.position, count, 0 < most < first.size

    def next_offset(self) -> int:
        """The offset behind its last entry, from the log; the base offset if there is none."""
        start = self.start_of(2**63 - 1)
        if self.shipped:  # where the index is damaged it takes a segment that has bytes for an empty one
            first = self.translate_offset(self.offset_index.last_offset)
            start = self.size if first is None else first.position
        end = self.base_offset
        for entry in shallow_entries(self.log_file(), start, self.size, self.generation, self.path):
            end = entry.last_offset + 1
        return end

    def find_offset_by_timestamp(
        self, timestamp_ms: int, starting_offset: int | None = None, max_position: int | None = None
    ) -> TimestampOffset | None:
        """The first record from an offset on with at least this timestamp; None if there is none before a position.

        Raises
        ------
        KtsError
            As 0.10.2 shipped: an entry promises such a record and has none.
        """
        lowest = self.base_offset if starting_offset is None else starting_offset
        # Below 0 and compared as numbers, neither an index nor a header says what -1 hides, if the setting was another.
        everything = timestamp_ms < 0 and not self._allow_negative and not self.shipped
        any_offset = self.shipped and not self._batches_are_indexed
        position = self.start_of(lowest) if everything else self._start_of_time(timestamp_ms, lowest)
        log = self.log_file()
        end = self.size if max_position is None else min(self.size, max_position)
        for entry in shallow_entries(log, position, end, self.generation, self.path):
            hidden = self._allow_negative and entry.max_timestamp_ms == NO_TIMESTAMP
            if entry.max_timestamp_ms < timestamp_ms and not hidden and not everything:
                continue
            if self.shipped and entry.is_plain:  # what is damaged behind its header is not looked at
                if any_offset or entry.last_offset >= lowest:
                    return TimestampOffset(entry.max_timestamp_ms, entry.last_offset)
                continue
            offsets, timestamps = self._decoded(log.read(entry.position, entry.size))
            hits = (timestamps >= timestamp_ms) & (any_offset | (offsets >= lowest))
            if self._allow_negative:
                hits &= timestamps != NO_TIMESTAMP
            if hits.any():
                first = int(hits.argmax())
                return TimestampOffset(int(timestamps[first]), int(offsets[first]))
            if self.shipped and not self._batches_are_indexed:
                message = f"expected a record with a timestamp from {timestamp_ms} on, found none"
                raise KtsError(message, path=self.path, position=entry.position)
        return None

    def _decoded(self, entry: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        if not self.shipped:
            return decoded(entry)
        try:
            return decoded_as_shipped(entry, self.generation)
        except CorruptRecordError as error:
            raise as_shipped(error, self.generation) from error

    def time_waited_for_roll(self, now_ms: int, message_timestamp_ms: int) -> int:
        """How long ago its first timestamp is, seen from an incoming one; without timestamps since it was made."""
        if self._rolling_base is None and self.size:
            try:
                self._rolling_base = self._first_timestamp()
            except CorruptRecordError:  # damage at rest costs what is damaged, and no append
                if self.shipped:
                    raise
                self._rolling_base = NO_TIMESTAMP
        base = NO_TIMESTAMP if self._rolling_base is None else self._rolling_base
        if base >= 0 and not self._allow_negative:
            return message_timestamp_ms - base
        if self._allow_negative and base != NO_TIMESTAMP and message_timestamp_ms != NO_TIMESTAMP:
            return message_timestamp_ms - base
        return now_ms - self.created_ms

    def _first_timestamp(self) -> int | None:
        entry = next(shallow_entries(self.log_file(), 0, self.size, self.generation, self.path), None)
        if entry is not None and self._allow_negative and entry.max_timestamp_ms == NO_TIMESTAMP:
            return self._hidden_timestamp(self.log_file().read(0, entry.size))
        return None if entry is None else entry.max_timestamp_ms

    def _hidden_timestamp(self, entry: bytes | bytearray | memoryview) -> int:
        found = greatest_timestamp(decoded(bytes(entry), verify_crc=False)[1])
        return NO_TIMESTAMP if found is None else found


def _is_damaged(log: files.File, size: int, start: int, end: int) -> bool:
    """True if the entries between two positions are not sound: then no walk tells what is a border."""
    slices = Slices(log, start, size, FIRST_READ_BYTES)
    for batches in slices:
        inside = batches.positions() < end
        if not batches.column("crcOk")[inside].all():
            return True
        if not inside.all():
            return False
    return slices.position < end
