"""The two index files of a segment while they are written: append, truncate, look up, sanity.

Layout::

    .index      entries of 8 bytes:  relative offset i32 | position i32
    .timeindex  entries of 12 bytes: timestamp i64 | relative offset i32
"""

from __future__ import annotations

import struct

import numpy as np

from kts.errors import CorruptIndexError, IndexFullError, InvalidOffsetError
from kts.model import NO_TIMESTAMP
from kts.segment.index_file import GREATEST_RELATIVE_OFFSET, NOTHING, IndexFile


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
            There is no slot left; the offset is not greater than the last one.
        """
        slot = self.entries
        if slot >= self.max_entries:
            raise IndexFullError(f"the offset index is full, it has {slot} entries", path=self.path)
        if slot and offset <= self.last_offset:
            raise InvalidOffsetError(
                f"expected an offset above {self.last_offset}, found {offset}", path=self.path, offset=offset
            )
        relative = self._relative_offset(offset)
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

    def find(self, offset: int) -> tuple[int, int, int]:
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
        if self.shipped:
            self.cut(self._cut_slot(self._field, 0, offset - self.base_offset))
            return
        offsets, positions = np.frombuffer(self.read(), ">i4").reshape(-1, 2).T
        kept = (offsets < offset - self.base_offset) & (positions >= 0)
        kept[1:] &= (offsets[1:] > offsets[:-1]) & (positions[1:] > positions[:-1])
        self.cut(len(kept) if kept.all() else int(kept.argmin()))

    def truncate_to_position(self, position: int) -> None:
        """Drop the entries at and behind a position of the log."""
        entries = self.entries
        while entries and self._signed.unpack(self._open().read(8 * entries - 8, 8))[1] >= position:
            entries -= 1
        if entries != self.entries:
            self.cut(entries)

    def sanity_check(self) -> None:
        """What a broker looks at when it loads the file.

        Raises
        ------
        CorruptIndexError
            The length is no multiple of 8, or the last offset is not above the base offset (not below it, from 2.0 on,
            where a broker takes room that was never used for entries; not so here, if there are others before it).
        """
        lowest = self.base_offset + (self.generation == "0.10.2")
        if self.entries and self.last_offset < lowest:
            message = f"expected a last offset from {lowest} on, found {self.last_offset}"
            raise CorruptIndexError(message, path=self.path)
        self.check_length()
        if self.entries > 1 and self.last_offset == self.base_offset and not self.shipped:
            message = f"expected a last offset above {self.base_offset} of {self.entries} entries, found it"
            raise CorruptIndexError(message, path=self.path)


class TimeIndexFile(IndexFile):
    """A writable ``.timeindex``. Source: TimeIndex.

    Parameters
    ----------
    allow_negative : bool
        Times before 1970 count as they are, only -1 is none (KIP-228). Else they are never entered.
    """

    entry_bytes = 12
    _entry = struct.Struct(">qI")
    _signed = struct.Struct(">qi")
    _time = struct.Struct(">q")
    _relative = struct.Struct(">i")

    def __init__(
        self,
        path: str,
        base_offset: int,
        max_bytes: int,
        *,
        generation: str = "3.9",
        shipped: bool = False,
        allow_negative: bool = False,
    ) -> None:
        self._least = NOTHING if allow_negative else NO_TIMESTAMP
        super().__init__(path, base_offset, max_bytes, generation=generation, shipped=shipped)

    def _load_last(self) -> None:
        self.last_timestamp, self.last_offset = self._least, self.base_offset
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
            The greatest timestamp so far, and where it was reached.
        skip_full_check : bool
            For the closing entry.

        Raises
        ------
        IndexFullError, InvalidOffsetError
            There is no slot left; the offset or the time lies before the last one.
        """
        if not self.shipped and timestamp_ms in (NO_TIMESTAMP, NOTHING):
            return
        slot = self.entries
        if slot >= self.max_entries - 1:
            if not skip_full_check:
                raise IndexFullError(f"the time index is full, it has {slot} entries", path=self.path)
            if slot >= self.max_entries and self.shipped and timestamp_ms > self.last_timestamp:
                raise IndexFullError("no slot is left for the closing entry of the time index", path=self.path)
        if slot and offset < self.last_offset:
            raise InvalidOffsetError(
                f"expected an offset from {self.last_offset} on, found {offset}", path=self.path, offset=offset
            )
        if timestamp_ms <= self.last_timestamp:
            if slot and timestamp_ms < self.last_timestamp:
                message = f"expected a timestamp from {self.last_timestamp} on, found {timestamp_ms}"
                raise InvalidOffsetError(message, path=self.path, offset=offset)
            return
        if timestamp_ms in (NO_TIMESTAMP, NOTHING):
            return
        relative = self._relative_offset(offset)
        self.dirty = True
        file = self._file or self.resume()
        file.write(self._entry.pack(timestamp_ms, relative), slot * 12)
        self.entries = slot + 1
        self.last_timestamp = timestamp_ms
        self.last_offset = offset if relative <= GREATEST_RELATIVE_OFFSET else self.base_offset + relative - 2**32
        if slot >= self.max_entries:
            self.max_entries, self.length = slot + 1, (slot + 1) * 12

    def lookup(self, timestamp_ms: int) -> tuple[int, int]:
        """(timestamp, offset) of the latest entry at or before a time; (-1, base offset) if there is none."""
        slot, found = self._slot(self._time, 0, timestamp_ms)
        if slot < 0:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative = self._signed.unpack(found)
        return timestamp, self.base_offset + relative

    def find(self, timestamp_ms: int) -> tuple[int, int, int]:
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

    @property
    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) if there is none."""
        return (self.last_timestamp if self.entries else NO_TIMESTAMP), self.last_offset

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and above an offset, and from the first on that is out of order."""
        if self.shipped:
            self.cut(self._cut_slot(self._relative, 8, offset - self.base_offset))
            return
        entries = np.frombuffer(self.read(), [("time", ">i8"), ("offset", ">i4")])
        times, offsets = entries["time"], entries["offset"]
        kept = (offsets < offset - self.base_offset) & (offsets >= 0)
        kept[1:] &= (times[1:] > times[:-1]) & (offsets[1:] >= offsets[:-1])
        self.cut(len(kept) if kept.all() else int(kept.argmin()))

    def sanity_check(self) -> None:
        """What a broker looked at when it loaded the file, up to 2.2.

        Raises
        ------
        CorruptIndexError
            The length is no multiple of 12, the last time lies before the first, or its offset below the base offset.
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
