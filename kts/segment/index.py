"""The two writable index files of a segment: append, truncate, look up, check.

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

from kts.arguments import INT32_MAX
from kts.behaviour import DEFAULT, NOTHING, Behaviour
from kts.codec.layout import SMALLEST_ENTRY_BYTES
from kts.errors import CorruptIndexError, IndexFullError, InvalidOffsetError, LogStorageError
from kts.model import NO_TIMESTAMP
from kts.store import local, publishing
from kts.store.local import WritableFile
from kts.store.source import files

if TYPE_CHECKING:
    import numpy.typing as npt

SEGMENT_OFFSETS = INT32_MAX + 1  # an index keeps an offset as a 32-bit difference to the base offset
_NEVER_INDEXED = (NO_TIMESTAMP, NOTHING)
_BLOCK_BYTES = 4096


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


def slots(max_bytes: int, entry_bytes: int, behaviour: Behaviour) -> int:
    """How many entries ``segment.index.bytes`` gives room for."""
    return max(max_bytes // entry_bytes, 1 if behaviour.adapts_indexes else 0)


class IndexFile:
    """Base class of both indexes.

    Parameters
    ----------
    path : str
        The file. A missing file is created with full length and no entries; in an existing one every slot is an entry.
    base_offset : int
        Of the segment.
    max_bytes : int
        ``segment.index.bytes``.
    behaviour : Behaviour
        An index that adapts has room for at least one entry, grows for its closing entry, and keeps all entries when it
        is resized. Otherwise it fails where Kafka fails.

    Raises
    ------
    IndexFullError
        It does not adapt, and a new file would be smaller than one entry. As in Kafka, an empty file is left.

    Notes
    -----
    Holds a descriptor from ``resume`` to ``rest``; at other times each call opens the file.
    Source: AbstractIndex.
    """

    entry_bytes: ClassVar[int]

    def __init__(self, path: str, base_offset: int, max_bytes: int, behaviour: Behaviour = DEFAULT) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_bytes = max_bytes
        self.behaviour = behaviour
        self.dirty = False  # written to since the last flush
        self.own_from = 0  # this process wrote the entries from here on; earlier ones were in the file
        self._confirmed = bytearray()  # a bit for each earlier entry
        self._file: WritableFile | None = None
        length = _length(path)
        if length is None:
            self.length = self._full_length
            self.entries = 0
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

    @property
    def _full_length(self) -> int:
        return slots(self.max_bytes, self.entry_bytes, self.behaviour) * self.entry_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the entries."""
        return self.entries * self.entry_bytes

    @property
    def is_full(self) -> bool:
        """True if no further entry may be appended."""
        return self.entries >= self.max_entries

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

    def _read_entry(self, slot: int) -> bytes:
        found = self._open().read(slot * self.entry_bytes, self.entry_bytes)
        if len(found) < self.entry_bytes:
            raise self._too_short()
        return found

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

    def _outside_offset(self, offset: int) -> int:
        """The value to write for an offset outside the range of relative offsets, unless it is refused."""
        relative = offset - self.base_offset
        if self.behaviour.cuts_relative_offsets:
            return relative & 0xFFFFFFFF
        message = f"expected an offset from {self.base_offset} to {self.base_offset + INT32_MAX}"
        raise InvalidOffsetError(f"{message}, found {offset}", path=self.path, offset=offset)

    # --- searching --------------------------------------------------------------------------------

    def _slot(self, column: struct.Struct, at: int, target: int) -> tuple[int, bytes]:
        """Slot and bytes of the greatest entry with a field at or below a target; slot -1 if there is none.

        Follows Kafka's steps exactly: an index that is out of order gives Kafka's result.
        """
        count, width = self.entries, self.entry_bytes
        if count == 0:
            return -1, b""
        file = self._open()
        block, start = b"", 0
        if count * width <= _BLOCK_BYTES:
            block = file.read(0, count * width)

        def entry(slot: int) -> bytes:
            place = slot * width - start
            return block[place : place + width] if 0 <= place < len(block) else file.read(slot * width, width)

        def field(slot: int) -> int:
            found = entry(slot)
            if len(found) < width:
                raise self._too_short()
            value: int = column.unpack_from(found, at)[0]
            return value

        low, high = 0, count - 1
        if self.behaviour.searches_warm_entries:
            warm = max(0, count - 1 - 8192 // width)
            if field(warm) < target:
                low = warm
            elif field(0) > target:
                return -1, b""
            else:
                high = warm
        elif field(0) > target:
            return -1, b""
        while low < high:
            if not block and (high - low) * width < _BLOCK_BYTES:
                start = low * width
                block = file.read(start, (high - low + 1) * width)
            middle = (low + high + 1) // 2
            found = field(middle)
            if found > target:
                high = middle - 1
            elif found < target:
                low = middle
            else:
                low = high = middle
        return low, entry(low)

    def _cut_slot(self, column: struct.Struct, at: int, relative: int) -> int:
        """How many entries are below an offset."""
        slot, found = self._slot(column, at, relative)
        if slot < 0:
            return 0
        return slot if column.unpack_from(found, at)[0] == relative else slot + 1

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


# --- what an index refuses --------------------------------------------------------------------------


def full(kind: str, entries: int, path: str | None) -> IndexFullError:
    """The error for an ``offset`` or ``time`` index with no free slot."""
    return IndexFullError(f"the {kind} index is full, it has {entries} entries", path=path)


def refused_offset_entry(
    entries: int, most: int, last_offset: int, offset: int, path: str | None, position: int | None = None
) -> IndexFullError | InvalidOffsetError | None:
    """Why an offset index refuses an entry: no slot is free, or the offset is not greater than the last one."""
    if entries >= most:
        return full("offset", entries, path)
    if entries and offset <= last_offset:
        message = f"expected an offset above {last_offset}, found {offset}"
        return InvalidOffsetError(message, path=path, position=position, offset=offset)
    return None


def refused_time_entry(
    entries: int, last_offset: int, offset: int, path: str | None, position: int | None = None
) -> InvalidOffsetError | None:
    """Why a time index refuses an entry: its offset is below the last one."""
    if not entries or offset >= last_offset:
        return None
    message = f"expected an offset from {last_offset} on, found {offset}"
    return InvalidOffsetError(message, path=path, position=position, offset=offset)


# --- the two files ----------------------------------------------------------------------------------


class OffsetIndexFile(IndexFile):
    """A writable ``.index``. Source: OffsetIndex."""

    entry_bytes = 8
    _entry = struct.Struct(">II")
    _signed = struct.Struct(">ii")
    _field = struct.Struct(">i")

    def _load_last(self) -> None:
        self.last_offset, self.last_position = self.base_offset, -1
        if self.entries:
            relative, self.last_position = self._signed.unpack(self._open().read(self.size_bytes - 8, 8))
            self.last_offset = self.base_offset + relative

    def append(self, offset: int, position: int) -> None:
        """Add an entry.

        Raises
        ------
        IndexFullError, InvalidOffsetError
            No slot is free; the offset is not greater than the last one.
        """
        slot = self.entries
        error = refused_offset_entry(slot, self.max_entries, self.last_offset, offset, self.path)
        if error is not None:
            raise error
        relative = offset - self.base_offset
        if not 0 <= relative <= INT32_MAX:
            relative = self._outside_offset(offset)
        self.dirty = True
        file = self._file or self.resume()
        file.write(self._entry.pack(relative, position), slot * 8)
        self.entries = slot + 1
        self.last_offset, self.last_position = offset, position

    def lookup(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the greatest entry at or below an offset; (base offset, 0) if there is none."""
        slot, found = self._slot(self._field, 0, offset - self.base_offset)
        if slot < 0:
            return self.base_offset, 0
        relative, position = self._signed.unpack(found)
        if position < 0:  # damaged
            return self.base_offset, 0
        return self.base_offset + relative, position

    def lookup_slot(self, offset: int) -> tuple[int, int, int]:
        """Slot, offset and position of the greatest entry at or below an offset; slot -1 if there is none."""
        slot, found = self._slot(self._field, 0, offset - self.base_offset)
        if slot < 0:
            return -1, self.base_offset, 0
        relative, position = self._signed.unpack(found)
        return slot, self.base_offset + relative, position

    def entry(self, slot: int) -> tuple[int, int]:
        """(offset, position) of an entry."""
        relative, position = self._signed.unpack(self._read_entry(slot))
        return self.base_offset + relative, position

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above an offset, and from the first on that is out of order."""
        if self.behaviour.believes_indexes:
            self.cut(self._cut_slot(self._field, 0, offset - self.base_offset))
            return
        offsets, positions = np.frombuffer(self.read(), ">i4").reshape(-1, 2).T
        kept = (offsets < offset - self.base_offset) & (positions >= 0)
        kept[1:] &= (offsets[1:] > offsets[:-1]) & (positions[1:] > positions[:-1])
        self.cut(len(kept) if kept.all() else int(kept.argmin()))

    def truncate_to_position(self, position: int) -> None:
        """Drop the entries at and after a position of the log."""
        entries = self.entries
        while entries and self._signed.unpack(self._open().read(8 * entries - 8, 8))[1] >= position:
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


class TimeIndexFile(IndexFile):
    """A writable ``.timeindex``. Source: TimeIndex."""

    entry_bytes = 12
    _entry = struct.Struct(">qI")
    _signed = struct.Struct(">qi")
    _time = struct.Struct(">q")
    _relative = struct.Struct(">i")

    def __init__(self, path: str, base_offset: int, max_bytes: int, behaviour: Behaviour = DEFAULT) -> None:
        self._never = (NOTHING,) if behaviour.times.minus_one else _NEVER_INDEXED
        super().__init__(path, base_offset, max_bytes, behaviour)

    def _load_last(self) -> None:
        self.last_timestamp, self.last_offset = self.behaviour.times.least, self.base_offset
        if self.entries:
            last = self._open().read(self.size_bytes - 12, 12)
            self.last_timestamp, relative = self._signed.unpack(last)
            self.last_offset = self.base_offset + relative

    @property
    def is_full(self) -> bool:
        """True if only the slot of the closing entry is left."""
        return self.entries >= self.max_entries - 1

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
        is_indexed = timestamp_ms not in self._never
        if not is_indexed and self.behaviour.adapts_indexes:
            return
        slot = self.entries
        if slot >= self.max_entries - 1:
            if not skip_full_check:
                raise full("time", slot, self.path)
            if slot >= self.max_entries and not self.behaviour.adapts_indexes and timestamp_ms > self.last_timestamp:
                raise IndexFullError("no slot is left for the closing entry of the time index", path=self.path)
        error = refused_time_entry(slot, self.last_offset, offset, self.path)
        if error is not None:
            raise error
        if timestamp_ms <= self.last_timestamp:
            if slot and timestamp_ms < self.last_timestamp:
                message = f"expected a timestamp from {self.last_timestamp} on, found {timestamp_ms}"
                raise InvalidOffsetError(message, path=self.path, offset=offset)
            return
        if not is_indexed:
            return
        relative = offset - self.base_offset
        if not 0 <= relative <= INT32_MAX:
            relative = self._outside_offset(offset)
        self.dirty = True
        file = self._file or self.resume()
        file.write(self._entry.pack(timestamp_ms, relative), slot * 12)
        self.entries = slot + 1
        self.last_timestamp = timestamp_ms
        self.last_offset = offset if relative <= INT32_MAX else self.base_offset + relative - 2**32
        if slot >= self.max_entries:
            self.max_entries, self.length = slot + 1, (slot + 1) * 12

    def lookup(self, timestamp_ms: int) -> tuple[int, int]:
        """(timestamp, offset) of the latest entry at or before a time; (-1, base offset) if there is none."""
        slot, found = self._slot(self._time, 0, timestamp_ms)
        if slot < 0:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative = self._signed.unpack(found)
        return timestamp, self.base_offset + relative

    def lookup_slot(self, timestamp_ms: int) -> tuple[int, int, int]:
        """Slot, timestamp and offset of the latest entry at or before a time; slot -1 if there is none."""
        slot, found = self._slot(self._time, 0, timestamp_ms)
        if slot < 0:
            return -1, NO_TIMESTAMP, self.base_offset
        timestamp, relative = self._signed.unpack(found)
        return slot, timestamp, self.base_offset + relative

    def entry(self, slot: int) -> tuple[int, int]:
        """(timestamp, offset) of an entry."""
        timestamp, relative = self._signed.unpack(self._read_entry(slot))
        return timestamp, self.base_offset + relative

    def own_entries_after(self, timestamp_ms: int) -> bytes:
        """The entries that this process wrote, starting with the first one later than a time."""
        own = self.own_entries()
        later = np.frombuffer(own, [("time", ">i8"), ("offset", ">i4")])["time"] > timestamp_ms
        return own[12 * int(later.argmax()) :] if later.any() else b""

    @property
    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) if there is none."""
        return (self.last_timestamp if self.entries else NO_TIMESTAMP), self.last_offset

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above an offset, and from the first on that is out of order."""
        if self.behaviour.believes_indexes:
            self.cut(self._cut_slot(self._relative, 8, offset - self.base_offset))
            return
        entries = np.frombuffer(self.read(), [("time", ">i8"), ("offset", ">i4")])
        times, offsets = entries["time"], entries["offset"]
        kept = (offsets < offset - self.base_offset) & (offsets >= 0)
        kept[1:] &= (times[1:] > times[:-1]) & (offsets[1:] >= offsets[:-1])
        self.cut(len(kept) if kept.all() else int(kept.argmin()))

    def sanity_check(self) -> None:
        """The check that a broker up to 2.2 made when it loaded the file.

        Raises
        ------
        CorruptIndexError
            The length is not a multiple of 12, the last time is before the first, or its offset is below the base
            offset.
        """
        if self.entries:
            first: int = self._time.unpack_from(self._open().read(0, 12))[0]
            if self.last_timestamp < first:
                message = f"expected a last timestamp from {first} on, found {self.last_timestamp}"
                raise CorruptIndexError(message, path=self.path)
            if self.last_offset < self.base_offset:
                message = f"expected a last offset from {self.base_offset} on, found {self.last_offset}"
                raise CorruptIndexError(message, path=self.path)
        self.check_length()
