"""The two indexes of a segment while they are written: in memory for a rebuild, and as files.

Layout::

    .index      entries of 8 bytes:  relative offset i32 | position i32
    .timeindex  entries of 12 bytes: timestamp i64 | relative offset i32

An index open for appends has its full length from the start. The unused part is zeros and takes no space on disk.
"""

from __future__ import annotations

import errno
import struct
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kts._timeindex import search_file
from kts.arguments import INT32_MAX
from kts.behaviour import DEFAULT, NOTHING, Behaviour
from kts.codec.layout import SMALLEST_ENTRY_BYTES
from kts.errors import CorruptIndexError, IndexFullError, InvalidOffsetError, KtsError, LogStorageError
from kts.model import NO_TIMESTAMP
from kts.store import local, publishing
from kts.store.local import WritableFile
from kts.store.source import files

if TYPE_CHECKING:
    import numpy.typing as npt

SEGMENT_OFFSETS = INT32_MAX + 1  # an index keeps an offset as a 32-bit difference to the base offset
OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("time", ">i8"), ("offset", ">i4")])


class IndexSpacing:
    """Chooses the log entries to index: the first one more than an interval after the last indexed one.

    Parameters
    ----------
    interval : int
        ``index.interval.bytes``.
    position : int
        The position to count from: 0, or the size of the log when it was opened.
    """

    __slots__ = ("interval", "position")

    def __init__(self, interval: int, position: int = 0) -> None:
        self.interval = interval
        self.position = position

    def is_due(self, position: int) -> bool:
        """Whether the log entry at a position gets an index entry; if so, the caller sets ``position`` to it."""
        return position - self.position > self.interval

    def choose(self, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Rows of the log entries, given in order, that get index entries; advances ``position``."""
        interval, count = self.interval, len(positions)
        if int(sizes[:-1].min(initial=INT32_MAX)) > interval:  # all except those near the last indexed one
            first = int(np.searchsorted(positions, self.position + interval, "right"))
            chosen = np.arange(first, count)
        else:
            places = memoryview(positions.data)
            most = interval // SMALLEST_ENTRY_BYTES + 2
            found: list[int] = []
            row, step = bisect_right(places, self.position + interval), 1
            while row < count:
                found.append(row)
                end = places[row] + interval
                if row + step < count and places[row + step - 1] <= end < places[row + step]:
                    row += step  # entries of equal size: the same step as before
                else:
                    following = bisect_right(places, end, row + 1, min(row + most, count))
                    row, step = following, following - row
            chosen = np.array(found, np.int64)
        if len(chosen):
            self.position = int(positions[chosen[-1]])
        return chosen


# --- entries that are added in order ----------------------------------------------------------------


class GrowingIndex:
    """Adds entries to an index in order: here in memory, in ``IndexFile`` to a file.

    Parameters
    ----------
    path : str or None
        The file that errors name.
    base_offset : int
        Of the segment.
    max_bytes : int
        ``segment.index.bytes``.
    behaviour : Behaviour
        An index that adapts has room for at least one entry, grows for its closing entry, and keeps all entries when it
        is resized. Otherwise it fails where Kafka fails.
    """

    entry_bytes: ClassVar[int]
    name: ClassVar[str]

    def __init__(self, path: str | None, base_offset: int, max_bytes: int, behaviour: Behaviour = DEFAULT) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_bytes = max_bytes
        self.behaviour = behaviour
        self.data = bytearray()
        self.entries = 0
        self.max_entries = self._most_entries
        self.last_offset = base_offset

    @property
    def _most_entries(self) -> int:
        """How many entries ``segment.index.bytes`` gives room for."""
        return max(self.max_bytes // self.entry_bytes, 1 if self.behaviour.adapts_indexes else 0)

    @property
    def is_full(self) -> bool:
        """True if no further entry may be appended."""
        return self.entries >= self.max_entries

    def store(self, entries: bytes, count: int = 1) -> None:
        """Add entries by their bytes."""
        self.data += entries
        self.entries += count

    def outside(self, offset: int) -> int:
        """The number to write for an offset outside the range of relative ones; a rebuild stops before such."""
        return (offset - self.base_offset) & 0xFFFFFFFF

    def full(self) -> IndexFullError:
        """The error of an index with no free slot."""
        return IndexFullError(f"the {self.name} index is full, it has {self.entries} entries", path=self.path)


class GrowingOffsetIndex(GrowingIndex):
    """Adds entries to an offset index."""

    entry_bytes = 8
    name = "offset"
    last_position = -1
    _entry = struct.Struct(">II")

    def refused(self, offset: int) -> KtsError | None:
        """Why an entry is refused: no slot is free, or the offset is not greater than the last one."""
        if self.entries >= self.max_entries:
            return self.full()
        if self.entries and offset <= self.last_offset:
            message = f"expected an offset above {self.last_offset}, found {offset}"
            return InvalidOffsetError(message, path=self.path, offset=offset)
        return None

    def append(self, offset: int, position: int) -> None:
        """Add an entry.

        Raises
        ------
        IndexFullError, InvalidOffsetError
            No slot is free; the offset is not greater than the last one.
        """
        error = self.refused(offset)
        if error is not None:
            raise error
        self.add(offset, position)

    def add(self, offset: int, position: int) -> None:
        """Add an entry that is not refused."""
        relative = offset - self.base_offset
        if not 0 <= relative <= INT32_MAX:
            relative = self.outside(offset)
        self.store(self._entry.pack(relative, position))
        self.last_offset, self.last_position = offset, position

    def takes(self, offsets: npt.NDArray[np.int64]) -> bool:
        """Whether entries of these offsets can be added at once."""
        if self.entries + len(offsets) > self.max_entries or (self.entries and offsets[0] <= self.last_offset):
            return False
        return bool((offsets[1:] > offsets[:-1]).all())

    def extend(self, offsets: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> None:
        """Add entries that ``takes`` allows."""
        made = np.empty(len(offsets), OFFSET_ENTRY)
        made["offset"], made["position"] = offsets - self.base_offset, positions
        self.store(made.tobytes(), len(made))
        self.last_offset, self.last_position = int(offsets[-1]), int(positions[-1])


class GrowingTimeIndex(GrowingIndex):
    """Adds entries to a time index, whose last slot is kept for the closing entry."""

    entry_bytes = 12
    name = "time"
    _entry = struct.Struct(">qI")

    def __init__(self, path: str | None, base_offset: int, max_bytes: int, behaviour: Behaviour = DEFAULT) -> None:
        self._never = (NOTHING,) if behaviour.times.minus_one else (NO_TIMESTAMP, NOTHING)
        self.last_timestamp = behaviour.times.least
        super().__init__(path, base_offset, max_bytes, behaviour)

    @property
    def is_full(self) -> bool:
        """True if only the slot of the closing entry is left."""
        return self.entries >= self.max_entries - 1

    def refused(self, timestamp_ms: int, offset: int, skip_full_check: bool = False) -> KtsError | None:
        """Why an entry is refused: no slot is free, or its offset or time is below the last one."""
        if timestamp_ms in self._never and self.behaviour.adapts_indexes:
            return None
        if self.entries >= self.max_entries - 1:
            if not skip_full_check:
                return self.full()
            is_later = timestamp_ms > self.last_timestamp
            if self.entries >= self.max_entries and not self.behaviour.adapts_indexes and is_later:
                return IndexFullError("no slot is left for the closing entry of the time index", path=self.path)
        if self.entries and (offset < self.last_offset or timestamp_ms < self.last_timestamp):
            message = f"expected a timestamp from {self.last_timestamp} on, found {timestamp_ms}"
            if offset < self.last_offset:
                message = f"expected an offset from {self.last_offset} on, found {offset}"
            return InvalidOffsetError(message, path=self.path, offset=offset)
        return None

    def maybe_append(self, timestamp_ms: int, offset: int, skip_full_check: bool = False) -> None:
        """Add an entry if the time is later than the last one.

        Parameters
        ----------
        timestamp_ms, offset : int
            The greatest timestamp so far, and its offset.
        skip_full_check : bool
            For the closing entry.

        Raises
        ------
        IndexFullError, InvalidOffsetError
            No slot is free; the offset or the time is below the last one.
        """
        error = self.refused(timestamp_ms, offset, skip_full_check)
        if error is not None:
            raise error
        self.add(timestamp_ms, offset)

    def add(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry that is not refused, if the time is later than the last one."""
        if timestamp_ms <= self.last_timestamp or timestamp_ms in self._never:
            return
        relative = offset - self.base_offset
        if not 0 <= relative <= INT32_MAX:
            relative = self.outside(offset)
        self.store(self._entry.pack(timestamp_ms, relative))
        self.last_timestamp = timestamp_ms
        # As Kafka reads it back from the file, where a release cuts what does not fit.
        self.last_offset = self.base_offset + (relative if relative <= INT32_MAX else relative - 2**32)

    def takes(self, times: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], most: int) -> bool:
        """Whether entries of these offsets and rising times can be added at once, where up to ``most`` may come."""
        if self.entries + most > self.max_entries - 1:
            return False
        return not len(times) or bool(offsets[0] >= self.last_offset and (offsets[1:] >= offsets[:-1]).all())

    def extend(self, times: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> None:
        """Add entries that ``takes`` allows."""
        if len(times):
            made = np.empty(len(times), TIME_ENTRY)
            made["time"], made["offset"] = times, offsets - self.base_offset
            self.store(made.tobytes(), len(made))
            self.last_timestamp, self.last_offset = int(times[-1]), int(offsets[-1])


def append_to_both(
    offsets: GrowingOffsetIndex,
    times: GrowingTimeIndex,
    offset: int,
    position: int,
    timestamp_ms: int,
    timestamp_offset: int,
) -> bool:
    """Add an entry to each index of a segment; False if one of them is full and stops growing.

    Raises
    ------
    IndexFullError, InvalidOffsetError
        An entry is refused. Indexes that adapt are unchanged; otherwise, as in Kafka, the offset index has its entry.
    """
    if not offsets.behaviour.adapts_indexes:
        offsets.append(offset, position)
        times.maybe_append(timestamp_ms, timestamp_offset)
        return True
    if offsets.is_full or times.is_full:
        return False
    error = offsets.refused(offset) or times.refused(timestamp_ms, timestamp_offset)
    if error is not None:
        raise error
    offsets.add(offset, position)
    times.add(timestamp_ms, timestamp_offset)
    return True


# --- the files --------------------------------------------------------------------------------------


class IndexFile(GrowingIndex):
    """Base class of both files: see ``GrowingIndex``.

    Parameters
    ----------
    path : str
        The file. A missing file is created with full length and no entries; in an existing one every slot is an entry.

    Raises
    ------
    IndexFullError
        It does not adapt, and a new file would be smaller than one entry. As in Kafka, an empty file is left.

    Notes
    -----
    Holds a descriptor from ``resume`` to ``rest``; at other times each call opens the file.
    Source: AbstractIndex.
    """

    path: str
    _signed: ClassVar[struct.Struct]
    _offset_at: ClassVar[int]  # which field is the offset

    def __init__(self, path: str, base_offset: int, max_bytes: int, behaviour: Behaviour = DEFAULT) -> None:
        super().__init__(path, base_offset, max_bytes, behaviour)
        self.dirty = False  # written to since the last flush
        self.own_from = 0  # this process wrote the entries from here on; earlier ones were in the file
        self._confirmed = bytearray()  # a bit for each earlier entry
        self._file: WritableFile | None = None
        length = _length(path)
        if length is None:
            self.length = self._full_length
            try:
                with WritableFile(path, create=True) as file:
                    file.truncate(self.length)
            except LogStorageError:
                with suppress(LogStorageError):  # otherwise it would count as an index without slots
                    files.remove(path, missing_ok=True)
                raise
            if not self.length:
                message = f"segment.index.bytes: expected at least {self.entry_bytes}, found {max_bytes}"
                raise IndexFullError(message, path=path)
        else:
            self.length = length
            self.entries = self.own_from = length // self.entry_bytes
        self.max_entries = self.length // self.entry_bytes
        self._load_last()

    def _load_last(self) -> None:
        raise TypeError(f"{type(self).__name__} has no entries")

    def _in_order(self, relative: int) -> npt.NDArray[np.bool_]:
        """Which entries are below a relative offset, and in order with the one before."""
        raise TypeError(f"{type(self).__name__} has no entries")

    @property
    def _full_length(self) -> int:
        return self._most_entries * self.entry_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the entries."""
        return self.entries * self.entry_bytes

    # --- what the log confirms -------------------------------------------------------------------

    def trusts(self, slot: int) -> bool:
        """True if an answer may use an entry: this process wrote it, or the log confirmed it."""
        if slot >= self.own_from or self.behaviour.believes_indexes:
            return True
        return slot >> 3 < len(self._confirmed) and bool(self._confirmed[slot >> 3] & 1 << (slot & 7))

    def confirm(self, slot: int) -> None:
        """Record that the log confirms an entry; it stays confirmed until it is removed."""
        if slot < self.own_from:
            if not self._confirmed:
                self._confirmed = bytearray((self.own_from + 7) // 8)
            self._confirmed[slot >> 3] |= 1 << (slot & 7)

    def vouch(self) -> None:
        """Trust all entries, because the index is unchanged since it was closed."""
        self.own_from = 0

    # --- the file ---------------------------------------------------------------------------------

    def resume(self) -> WritableFile:
        """Open the file and keep it open."""
        file = self._file
        if file is None:
            file = self._file = WritableFile(self.path)
        return file

    def rest(self) -> None:
        """Keep the file open no longer. Active readers finish; the last one closes the descriptor."""
        self._file = None

    def abandon(self) -> None:
        """Close the descriptor without a flush; no reader may be using it."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self) -> WritableFile:
        return self._file or WritableFile(self.path)

    def read(self) -> bytes:
        """The bytes of all entries."""
        return self._open().read(0, self.size_bytes)

    def own_entries(self) -> bytes:
        """The entries that this process wrote."""
        return self.read()[self.entry_bytes * self.own_from :]

    def _too_short(self) -> LogStorageError:
        return LogStorageError(f"expected {self.entries} entries, found fewer: the file was cut", path=self.path)

    def flush(self) -> None:
        """Wait until all entries are on disk."""
        if self.dirty:
            self._open().sync()
            self.dirty = False

    def resize(self, new_bytes: int) -> None:
        """Change the length of the file; entries stay."""
        length = new_bytes // self.entry_bytes * self.entry_bytes
        if length < self.size_bytes:
            if not self.behaviour.adapts_indexes:
                raise IndexFullError(f"{self.entries} entries do not fit into {length} bytes", path=self.path)
            length = self.size_bytes
        if length == self.length:
            return
        self.dirty = True
        self._open().truncate(length)
        self.length = length
        self.max_entries = length // self.entry_bytes

    def expand(self) -> None:
        """Give the file its full length, as an active segment needs."""
        self.resize(self._full_length)

    def trim(self) -> None:
        """Truncate the unused part."""
        self.resize(self.size_bytes)

    def reset(self, entries: bytes = b"") -> None:
        """Replace all entries, with room up to the maximum. A file with exactly these entries is not written."""
        self.dirty = True
        self.own_from = 0
        may_be_same = self.behaviour.adapts_indexes and 0 < self.length == self.size_bytes == len(entries)
        if may_be_same and self.read() == entries:
            return
        file = self._open()
        file.truncate(0)
        self.length = max(self._full_length, len(entries))
        self.entries = 0
        if entries:
            file.write(entries, 0)
        file.truncate(self.length)
        self.entries = len(entries) // self.entry_bytes
        self.max_entries = self.length // self.entry_bytes
        self._load_last()

    def replace(self, entries: bytes) -> None:
        """Replace the file atomically by one with these entries only; keep its preallocated length."""
        room, is_open = self.length if self.length > self.size_bytes else 0, self._file is not None
        publishing.publish(self.path, entries)
        self.rest()
        self.length = len(entries)
        self.entries = self.max_entries = len(entries) // self.entry_bytes
        self.own_from, self._confirmed = 0, bytearray()
        if is_open:
            self.resume()
        self._load_last()
        self.resize(max(room, self.length))

    def cut(self, entries: int) -> None:
        """Keep only the first entries; the file keeps its length, and zeros follow."""
        self.entries = entries
        self.own_from = min(self.own_from, entries)
        self.dirty = True
        file = self._open()
        file.truncate(self.size_bytes)
        file.truncate(self.length)
        self._load_last()

    def close(self) -> None:
        """Trim it and close the file."""
        try:
            self.trim()
        finally:
            self.abandon()

    def rename(self, path: str) -> None:
        """Move the file."""
        local.rename(self.path, path)
        self.path = path

    def delete(self) -> None:
        """Delete the file, if it exists."""
        self.rest()
        files.remove(self.path, missing_ok=True)

    # --- entries ----------------------------------------------------------------------------------

    def store(self, entries: bytes, count: int = 1) -> None:
        """Write entries after the last one."""
        self.dirty = True
        file = self._file or self.resume()
        file.write(entries, self.entries * self.entry_bytes)
        self.entries += count
        if self.entries > self.max_entries:  # by the closing entry
            self.max_entries, self.length = self.entries, self.size_bytes

    def outside(self, offset: int) -> int:
        """The number to write for an offset outside the range of relative ones, unless it is refused."""
        if not self.behaviour.cuts_relative_offsets:
            message = f"expected an offset from {self.base_offset} to {self.base_offset + INT32_MAX}"
            raise InvalidOffsetError(f"{message}, found {offset}", path=self.path, offset=offset)
        return super().outside(offset)

    def lookup_slot(self, target: int, by_offset: bool = False) -> tuple[int, int, int]:
        """Slot and fields of the greatest entry at or below an offset, or a time in a time index; slot -1 below all."""
        warm = self.behaviour.searches_warm_entries
        try:
            return search_file(self._open, self.entries, self.base_offset, target, self.entry_bytes, by_offset, warm)
        except EOFError:
            raise self._too_short() from None

    def entry(self, slot: int) -> tuple[int, int]:
        """The fields of an entry, with an absolute offset."""
        found = self._open().read(slot * self.entry_bytes, self.entry_bytes)
        if len(found) < self.entry_bytes:
            raise self._too_short()
        first, second = self._signed.unpack(found)
        return (self.base_offset + first, second) if self._offset_at == 0 else (first, self.base_offset + second)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above an offset, and from the first on that is out of order."""
        if self.behaviour.believes_indexes:
            slot, *fields = self.lookup_slot(offset, by_offset=True)
            self.cut(slot if slot >= 0 and fields[self._offset_at] == offset else slot + 1)
            return
        kept = self._in_order(offset - self.base_offset)
        self.cut(len(kept) if kept.all() else int(kept.argmin()))

    def check_length(self) -> None:
        """Refuse a length that is not a multiple of the entry size."""
        if self.length % self.entry_bytes:
            message = f"expected a multiple of {self.entry_bytes} bytes, found {self.length}"
            raise CorruptIndexError(message, path=self.path)


def _length(path: str) -> int | None:
    """Length of a file, None if it is missing."""
    try:
        return files.size_of(path)
    except LogStorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return None


class OffsetIndexFile(IndexFile, GrowingOffsetIndex):
    """A writable ``.index``. Source: OffsetIndex."""

    _signed = struct.Struct(">ii")
    _offset_at = 0

    def _load_last(self) -> None:
        self.last_offset, self.last_position = self.entry(self.entries - 1) if self.entries else (self.base_offset, -1)

    def lookup(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the greatest entry at or below an offset; (base offset, 0) if there is none."""
        _, found, position = self.lookup_slot(offset)
        return (found, position) if position >= 0 else (self.base_offset, 0)  # else it is damaged

    def _in_order(self, relative: int) -> npt.NDArray[np.bool_]:
        entries = np.frombuffer(self.read(), OFFSET_ENTRY)
        offsets, positions = entries["offset"], entries["position"]
        kept: npt.NDArray[np.bool_] = (offsets < relative) & (positions >= 0)
        kept[1:] &= (offsets[1:] > offsets[:-1]) & (positions[1:] > positions[:-1])
        return kept

    def truncate_to_position(self, position: int) -> None:
        """Drop the entries at and after a position of the log."""
        entries = self.entries
        while entries and self.entry(entries - 1)[1] >= position:
            entries -= 1
        if entries != self.entries:
            self.cut(entries)

    def sanity_check(self) -> None:
        """The check that a broker makes when it loads the file.

        Raises
        ------
        CorruptIndexError
            The length is not a multiple of 8, or the last offset is not above the base offset. From 2.0 on it may
            equal the base offset, because a broker takes unused room for entries; here only if it is the only entry.
        """
        lowest = self.base_offset + (not self.behaviour.index_may_end_at_base)
        if self.entries and self.last_offset < lowest:
            message = f"expected a last offset from {lowest} on, found {self.last_offset}"
            raise CorruptIndexError(message, path=self.path)
        self.check_length()
        if self.entries > 1 and self.last_offset == self.base_offset and not self.behaviour.believes_indexes:
            message = f"expected a last offset above {self.base_offset} of {self.entries} entries, found it"
            raise CorruptIndexError(message, path=self.path)


class TimeIndexFile(IndexFile, GrowingTimeIndex):
    """A writable ``.timeindex``. Source: TimeIndex."""

    _signed = struct.Struct(">qi")
    _offset_at = 1

    def _load_last(self) -> None:
        self.last_timestamp, self.last_offset = (
            self.entry(self.entries - 1) if self.entries else (self.behaviour.times.least, self.base_offset)
        )

    @property
    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) if there is none."""
        return (self.last_timestamp if self.entries else NO_TIMESTAMP), self.last_offset

    def lookup(self, timestamp_ms: int) -> tuple[int, int]:
        """(timestamp, offset) of the latest entry at or before a time; (-1, base offset) if there is none."""
        return self.lookup_slot(timestamp_ms)[1:]

    def own_entries_after(self, timestamp_ms: int) -> bytes:
        """The entries that this process wrote, starting with the first one later than a time."""
        own = self.own_entries()
        later = np.frombuffer(own, TIME_ENTRY)["time"] > timestamp_ms
        return own[12 * int(later.argmax()) :] if later.any() else b""

    def _in_order(self, relative: int) -> npt.NDArray[np.bool_]:
        entries = np.frombuffer(self.read(), TIME_ENTRY)
        times, offsets = entries["time"], entries["offset"]
        kept: npt.NDArray[np.bool_] = (offsets < relative) & (offsets >= 0)
        kept[1:] &= (times[1:] > times[:-1]) & (offsets[1:] >= offsets[:-1])
        return kept

    def sanity_check(self) -> None:
        """The check that a broker up to 2.2 made when it loaded the file.

        Raises
        ------
        CorruptIndexError
            The length is not a multiple of 12, the last time is before the first, or its offset is below the base
            offset.
        """
        if self.entries:
            first, _ = self.entry(0)
            if self.last_timestamp < first:
                message = f"expected a last timestamp from {first} on, found {self.last_timestamp}"
                raise CorruptIndexError(message, path=self.path)
            if self.last_offset < self.base_offset:
                message = f"expected a last offset from {self.base_offset} on, found {self.last_offset}"
                raise CorruptIndexError(message, path=self.path)
        self.check_length()
