"""What both index files of a segment have in common while they are written: resize, trim, cut, look up.

An index that is appended to has its full length from the start; what is not used yet is zeros, which take no space.
"""

from __future__ import annotations

import errno
import struct
from contextlib import suppress
from typing import ClassVar

from kts.errors import CorruptIndexError, IndexFullError, InvalidOffsetError, LogStorageError
from kts.segment import files

GREATEST_RELATIVE_OFFSET = 2**31 - 1
NOTHING = -(2**63) - 1  # earlier than every timestamp
_BLOCK_BYTES = 4096


class IndexFile:
    """What both indexes have in common.

    Parameters
    ----------
    path : str
        The file. A missing one is made, of full length and without entries; of another one every slot counts.
    base_offset : int
        Of the segment.
    max_bytes : int
        ``segment.index.bytes``.
    generation : str
        Whose rules are followed: "0.10.2" or "3.9".
    shipped : bool
        Fail where Kafka fails; else an index gives way: it grows by its closing entry, and keeps all entries when it
        is resized.

    Notes
    -----
    Holds a descriptor from ``resume`` to ``rest``; in between a file is opened for each call.
    Source: AbstractIndex.
    """

    entry_bytes: ClassVar[int]

    def __init__(
        self, path: str, base_offset: int, max_bytes: int, *, generation: str = "3.9", shipped: bool = False
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_bytes = max_bytes
        self.generation = generation
        self.shipped = shipped
        self.dirty = False  # written to since the last flush
        self.own_from = 0  # entries from here on were written by this process, those before lay in the file
        self._confirmed = bytearray()  # a bit for each of those before
        self._file: files.WritableFile | None = None
        length = _length(path)
        if length is None:
            if max_bytes < self.entry_bytes:
                raise ValueError(f"segment.index.bytes: expected at least {self.entry_bytes}, found {max_bytes}")
            self.length = max_bytes // self.entry_bytes * self.entry_bytes
            self.entries = 0
            try:
                with files.WritableFile(path, create=True) as file:
                    file.truncate(self.length)
            except LogStorageError:
                with suppress(LogStorageError):  # else it would be taken for one without a slot
                    files.remove(path, missing_ok=True)
                raise
        else:
            self.length = length
            self.entries = self.own_from = length // self.entry_bytes
        self.max_entries = self.length // self.entry_bytes
        self._load_last()

    def _load_last(self) -> None:
        raise TypeError(f"{type(self).__name__} has no entries")

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
        """True if an answer may rest on an entry: this process wrote it, or found that the log confirms it."""
        if slot >= self.own_from or self.shipped:
            return True
        return slot >> 3 < len(self._confirmed) and bool(self._confirmed[slot >> 3] & 1 << (slot & 7))

    def confirm(self, slot: int) -> None:
        """The log confirms an entry; it stays confirmed as long as it lies there."""
        if slot < self.own_from:
            if not self._confirmed:
                self._confirmed = bytearray((self.own_from + 7) // 8)
            self._confirmed[slot >> 3] |= 1 << (slot & 7)

    def vouch(self) -> None:
        """All entries are those that were written."""
        self.own_from = 0

    # --- the file ---------------------------------------------------------------------------------

    def resume(self) -> files.WritableFile:
        """Keep the file open from now on."""
        file = self._file
        if file is None:
            file = self._file = files.WritableFile(self.path)
        return file

    def rest(self) -> None:
        """Keep it open no longer. Who reads just now may end; the descriptor goes with the last one."""
        self._file = None

    def abandon(self) -> None:
        """Close the descriptor as it is; nobody may be reading."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self) -> files.WritableFile:
        return self._file or files.WritableFile(self.path)

    def read(self) -> bytes:
        """All entries as they lie in the file."""
        return self._open().read(0, self.size_bytes)

    def _read_entry(self, slot: int) -> bytes:
        found = self._open().read(slot * self.entry_bytes, self.entry_bytes)
        if len(found) < self.entry_bytes:
            raise self._too_short()
        return found

    def _too_short(self) -> LogStorageError:
        return LogStorageError(f"expected {self.entries} entries, found fewer: the file was cut", path=self.path)

    def flush(self) -> None:
        """Wait until what was written is on the disk."""
        if self.dirty:
            self._open().sync()
            self.dirty = False

    def resize(self, new_bytes: int) -> None:
        """Give the file another length; entries stay."""
        length = new_bytes // self.entry_bytes * self.entry_bytes
        if length < self.size_bytes:
            if self.shipped:
                raise IndexFullError(f"{self.entries} entries do not fit into {length} bytes", path=self.path)
            length = self.size_bytes
        if length == self.length:
            return
        self.dirty = True
        self._open().truncate(length)
        self.length = length
        self.max_entries = length // self.entry_bytes

    def trim(self) -> None:
        """Cut off what is not used."""
        self.resize(self.size_bytes)

    def reset(self, entries: bytes = b"") -> None:
        """Have just these entries, and room up to the maximum; a file that is just them stays as it is."""
        self.dirty = True
        self.own_from = 0
        if not self.shipped and 0 < self.length == self.size_bytes == len(entries) and self.read() == entries:
            return
        file = self._open()
        file.truncate(0)
        self.length = max(self.max_bytes // self.entry_bytes * self.entry_bytes, len(entries))
        self.entries = 0
        if entries:
            file.write(entries, 0)
        file.truncate(self.length)
        self.entries = len(entries) // self.entry_bytes
        self.max_entries = self.length // self.entry_bytes
        self._load_last()

    def replace(self, entries: bytes) -> None:
        """Put a file of just these entries in the place of this one, in one step; as much room as before is kept."""
        room, is_open = self.length if self.length > self.size_bytes else 0, self._file is not None
        files.write_atomically(self.path, entries)
        self.rest()
        self.length = len(entries)
        self.entries = self.max_entries = len(entries) // self.entry_bytes
        self.own_from, self._confirmed = 0, bytearray()
        if is_open:
            self.resume()
        self._load_last()
        self.resize(max(room, self.length))

    def cut(self, entries: int) -> None:
        """Keep the first entries only; the length of the file stays, zeros follow."""
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
        files.rename(self.path, path)
        self.path = path

    def delete(self) -> None:
        """Remove the file, if it is there."""
        self.rest()
        files.remove(self.path, missing_ok=True)

    def _relative_offset(self, offset: int) -> int:
        relative = offset - self.base_offset
        if 0 <= relative <= GREATEST_RELATIVE_OFFSET:
            return relative
        if self.shipped and self.generation == "0.10.2":
            return relative & 0xFFFFFFFF  # it cuts the number to 32 bits
        message = f"expected an offset from {self.base_offset} to {self.base_offset + GREATEST_RELATIVE_OFFSET}"
        raise InvalidOffsetError(f"{message}, found {offset}", path=self.path, offset=offset)

    # --- searching --------------------------------------------------------------------------------

    def _slot(self, column: struct.Struct, at: int, target: int) -> tuple[int, bytes]:
        """Slot of the greatest entry at or below a target by one of its fields, and the entry; -1 if there is none.

        Kafka's own steps: in an index that is out of order they lead where Kafka's lead.
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
        if self.generation == "0.10.2":
            if field(0) > target:
                return -1, b""
        else:
            warm = max(0, count - 1 - 8192 // width)
            if field(warm) < target:
                low = warm
            elif field(0) > target:
                return -1, b""
            else:
                high = warm
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
        """How many entries lie before an offset."""
        slot, found = self._slot(column, at, relative)
        if slot < 0:
            return 0
        return slot if column.unpack_from(found, at)[0] == relative else slot + 1

    def check_length(self) -> None:
        """Refuse a length that is no multiple of an entry's."""
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
