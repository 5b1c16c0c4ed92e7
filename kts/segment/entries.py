"""Shallow entries of an open ``.log`` file: a few at a time from their headers, or many at once as arrays.

A shallow entry is a plain message, a wrapper message or a v2 batch, as stored in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kts.behaviour import DEFAULT, KAFKA_TIMES, Behaviour, TimeRules
from kts.codec.columns import decode, header_rows
from kts.codec.layout import (
    OVERHEAD_BYTES,
    SMALLEST_ENTRY_BYTES,
    Entries,
    Entry,
    claimed_size,
    is_sound_message,
    read_header,
)
from kts.errors import CorruptRecordError
from kts.model import NO_TIMESTAMP
from kts.store.protocol import Readable

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

FIRST_READ_BYTES = 2**13
LAST_READ_BYTES = 2**20
SLICE_BYTES = 2**22


def is_plain(entry: Entry) -> bool:
    """True for an uncompressed message of magic 0 or 1: its header has all that is needed."""
    return entry.magic < 2 and not entry.codec


def shallow_entries(
    file: Readable, start: int, end: int, behaviour: Behaviour = DEFAULT, path: str | None = None
) -> Iterator[Entry]:
    """Entries from a position on, from their headers alone.

    Parameters
    ----------
    start : int
        Where an entry begins.
    end : int
        The end of the published bytes.
    behaviour : Behaviour
        It says how many bytes must remain for an entry to be read.

    Raises
    ------
    CorruptRecordError
        A size is below the smallest one, or the magic is unknown.

    Notes
    -----
    As in Kafka, an entry that extends past the end is left out. Source: FileLogInputStream.
    """
    least = behaviour.entry_header_bytes
    position, want = start, FIRST_READ_BYTES
    while position + least < end:
        asked = min(want, end - position)
        data = file.read(position, asked)
        want = min(2 * want, LAST_READ_BYTES)
        found = Entries(data, start=position, until_damage=True)
        yield from found
        if found.error is not None:
            if found.end + least >= end:
                return
            size = claimed_size(data, found.end - position)
            if size is not None and size >= SMALLEST_ENTRY_BYTES and found.end + size > end:
                return  # Kafka checks the magic of whole entries only
            raise at(found.error, path)
        if position + asked >= end or len(data) < asked:
            return  # the rest is an incomplete entry
        entry = read_header(data, found.end - position, start=position)
        position = found.end
        if entry is not None:  # it ends after the bytes that were read
            if entry.end > end:
                return
            yield entry
            position = entry.end
            if entry.size > LAST_READ_BYTES // 4:
                want = FIRST_READ_BYTES


def at(error: CorruptRecordError, path: str | None, start: int = 0) -> CorruptRecordError:
    """The same error with its path, and with its position in the file."""
    error.path = path
    error.position = start + (error.position or 0)
    return error


class Batches:
    """The entries of one slice of a log, with their CRCs checked, and their bytes.

    Parameters
    ----------
    entries : Entries
        Their headers, with positions in the file.
    data : memoryview
        The slice. The next slice reuses this memory.
    start : int
        Position of its first byte.

    Attributes
    ----------
    rows : int
        How many entries count: all, until fewer are asked for.
    all_sound : bool
        True if no CRC of the slice is wrong.
    """

    def __init__(self, entries: Entries, data: memoryview, start: int) -> None:
        self._entries = entries
        self._chosen: npt.NDArray[np.intp] | None = None
        self.data = data
        self.start = start
        self.rows = len(entries)
        self.all_sound = entries.all_sound

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> Entry:
        if not 0 <= row < self.rows:
            raise IndexError(f"expected one of {self.rows} entries, found {row}")
        return self._entries[row if self._chosen is None else int(self._chosen[row])]

    def column(self, name: str) -> npt.NDArray[Any]:
        """A field of all entries, by its name in ``Entry``."""
        found = self._entries.column(name)
        return found[: self.rows] if self._chosen is None else found[self._chosen[: self.rows]]

    @property
    def wrappers(self) -> npt.NDArray[np.bool_]:
        """Which are compressed messages: their headers state neither the first offset nor the count."""
        return (self.column("magic") < 2) & (self.column("codec") > 0)

    def only(self, mask: npt.NDArray[np.bool_]) -> Batches:
        """Those that a mask chooses."""
        chosen = Batches(self._entries, self.data, self.start)
        chosen._chosen = np.flatnonzero(mask) if self._chosen is None else self._chosen[mask]
        chosen.rows = len(chosen._chosen)
        return chosen

    @property
    def end(self) -> int:
        """Position behind the last entry."""
        return self[self.rows - 1].end if self.rows else self.start

    @property
    def last_offset(self) -> int:
        """That of the last entry, of which there must be one."""
        return self[self.rows - 1].last_offset

    def arrow(self) -> pa.RecordBatch:
        """The same as rows of ``kts.scan_batches``."""
        if self._chosen is None:
            return header_rows(self._entries, self.rows)
        return header_rows(self._entries, len(self._entries)).take(self._chosen[: self.rows])

    def records(self) -> memoryview:
        """The bytes up to the end of the last entry."""
        return self.data[: self.end - self.start]

    def entry(self, row: int) -> memoryview:
        """The bytes of one entry."""
        entry = self[row]
        return self.data[entry.position - self.start : entry.end - self.start]


class Slices:
    """The entries of a file, slice by slice, up to the first fault; iterate once.

    Parameters
    ----------
    file : File
        The log.
    start, end : int
        From the start of an entry to here.
    first_bytes : int
        Size of the first slice, for a reader that may stop early; each slice is twice as large as the last.
    slice_bytes : int
        Approximate size of a slice; a larger entry gets a larger one.

    Attributes
    ----------
    position : int
        End of the last entry that was yielded.
    error : CorruptRecordError or None
        The damage that the entries end at.
    reason : str or None
        Why the entries stop before ``end``: damage, or an entry that is cut; None if they do not.

    Raises
    ------
    CorruptRecordError
        A sound message of a format that was proposed: nothing may be cut off there.
    """

    def __init__(
        self, file: Readable, start: int, end: int, first_bytes: int | None = None, slice_bytes: int = SLICE_BYTES
    ) -> None:
        self.file = file
        self.position = start
        self.end = end
        self.error: CorruptRecordError | None = None
        self.reason: str | None = None
        self._most = slice_bytes
        self._memory = memoryview(bytearray(min(first_bytes or slice_bytes, max(end - start, 0))))

    def __iter__(self) -> Iterator[Batches]:
        while self.position < self.end and self.reason is None:
            data, unreadable = self._read(min(len(self._memory), self.end - self.position))
            entries = Entries(data, start=self.position, verify_crc=True, until_damage=True)
            if len(entries):
                batches = Batches(entries, data, self.position)
                yield batches
                self.position = entries.end
                if len(self._memory) < self._most:
                    self._memory = memoryview(bytearray(min(2 * len(self._memory), max(self.end - self.position, 0))))
                continue
            self.error = entries.error or unreadable
            if self.error is None:
                self._make_room(data)
            elif self.error.reason == "PROPOSED_MAGIC" and self._is_sound(self.position):
                raise at(self.error, self.file.path)
            else:
                self.reason = "zeros after the last entry" if data and not any(data[:64]) else self.error.message

    def _read(self, count: int) -> tuple[memoryview, CorruptRecordError | None]:
        """So many bytes; or those before bytes of tiered storage that cannot be read, and the error."""
        unreadable = None
        try:
            count = self.file.read_into(self._memory[:count], self.position)
        except CorruptRecordError as error:
            unreadable, count = error, max((error.position or 0) - self.position, 0)
            count = self.file.read_into(self._memory[:count], self.position)
        return self._memory[:count], unreadable

    def _is_sound(self, position: int) -> bool:
        """Whether the message there is whole and sound, whatever its magic."""
        size = claimed_size(self.file.read(position, OVERHEAD_BYTES)) or 0
        return OVERHEAD_BYTES < size <= self.end - position and is_sound_message(self.file.read(position, size))

    def _make_room(self, data: memoryview) -> None:
        """Enlarge the slice for an entry that does not fit, or record that the entry is cut."""
        left = self.end - self.position
        size = claimed_size(data) or OVERHEAD_BYTES
        if size > left or len(data) < min(len(self._memory), left):
            self.reason = f"an entry of {size} bytes is cut, {min(left, len(data))} bytes are left"
        else:
            self._memory = memoryview(bytearray(size))


def decoded(entry: bytes | memoryview, verify_crc: bool = True) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Offsets and timestamps of the records in one entry."""
    found = decode(entry, ["offset", "timestamp"], verify_crc=verify_crc)
    if not found.num_rows:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    offsets, timestamps = (
        np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset) for column in found.columns
    )
    return offsets, timestamps


def decoded_by(entry: bytes | memoryview, behaviour: Behaviour) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The same as a release reads them: CRCs are not checked, and inner offsets may be taken as they are."""
    if behaviour.checks_searched_entries:
        return decoded(entry)
    head = read_header(entry)
    if not behaviour.takes_inner_offsets_as_they_are or head is None or head.magic != 1 or is_plain(head):
        return decoded(entry, verify_crc=False)
    offsets, timestamps = decoded(bytes(8) + bytes(entry[8:]), verify_crc=False)
    base = head.last_offset - int(offsets[-1]) if len(offsets) else 0
    return offsets + max(base, 0), timestamps


def greatest_timestamp(timestamps: npt.NDArray[np.int64], rules: TimeRules = KAFKA_TIMES) -> int | None:
    """The greatest timestamp, without -1 unless that is a time; None if there is none."""
    times = timestamps if rules.minus_one else timestamps[timestamps != NO_TIMESTAMP]
    return int(times.max()) if len(times) else None
