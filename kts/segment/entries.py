"""Shallow entries of an open ``.log`` file: a few at a time from their headers, or many at once as arrays.

A shallow entry is a plain message, a wrapper message or a v2 batch, as stored in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kts.behaviour import DEFAULT, KAFKA_TIMES, Behaviour, TimeRules
from kts.codec.columns import BATCH_COLUMNS, decode, scan_batches
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
_COLUMNS = {name: number for number, name in enumerate(BATCH_COLUMNS)}
_DTYPES: dict[str, type[np.generic]] = {
    **dict.fromkeys(("position", "baseOffset", "lastOffset", "baseTimestamp", "maxTimestamp", "producerId"), np.int64),
    **dict.fromkeys(("sizeInBytes", "count", "timestampType", "partitionLeaderEpoch", "baseSequence"), np.int32),
    **dict.fromkeys(("transactional", "control", "crcOk"), np.bool_),
    "producerEpoch": np.int16,
    "magic": np.int8,
    "codec": np.int8,
}


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
    """The entries of one slice of a log as arrays, each built on first use.

    Parameters
    ----------
    found : pyarrow.RecordBatch
        The slice's header scan.
    data : memoryview
        The slice. The next slice reuses this memory.
    start : int
        Position of its first byte.

    Notes
    -----
    ``codec.layout.Entries`` reads the same headers into one table of all fields, which suits few entries. This class
    suits many entries and few columns: 30,000 small messages with their CRCs take 0.7 ms instead of 1.2 ms.
    """

    def __init__(self, found: pa.RecordBatch, data: memoryview, start: int) -> None:
        self._found = found
        self.data = data
        self.start = start
        self.rows: int = found.num_rows

    def __len__(self) -> int:
        return self.rows

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column of ``kts.scan_batches``; times are int64, and -1 stands for null."""
        column = self._found.column(_COLUMNS[name])
        if column.null_count:  # base offset and count of a wrapper message
            column = column.fill_null(-1)
        data = column.buffers()[1]  # pyarrow's to_numpy() imports pandas if it is installed
        kind = _DTYPES[name]
        if kind is np.bool_:
            return np.unpackbits(np.frombuffer(data, np.uint8), count=self.rows, bitorder="little").view(np.bool_)
        return np.frombuffer(data, kind, self.rows)

    def all_sound(self) -> bool:
        """True if no CRC is wrong."""
        return bool(self._found.column(_COLUMNS["crcOk"]).true_count == self._found.num_rows)

    def positions(self) -> npt.NDArray[np.int64]:
        """Where the entries start in the file."""
        found: npt.NDArray[np.int64] = self.column("position") + self.start
        return found

    def records(self) -> memoryview:
        """The bytes of all entries."""
        if not self.rows:
            return self.data[:0]
        return self.data[: int(self.column("position")[-1]) + int(self.column("sizeInBytes")[-1])]

    def entry(self, row: int) -> memoryview:
        """The bytes of one entry."""
        begin = int(self.column("position")[row])
        return self.data[begin : begin + int(self.column("sizeInBytes")[row])]


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

    Attributes
    ----------
    position : int
        End of the last entry that was yielded.
    reason : str or None
        Why the entries stop before ``end``; None if they do not.
    """

    def __init__(self, file: Readable, start: int, end: int, first_bytes: int = SLICE_BYTES) -> None:
        self.file = file
        self.position = start
        self.end = end
        self.reason: str | None = None
        self._memory = memoryview(bytearray(min(first_bytes, max(end - start, 0))))

    def __iter__(self) -> Iterator[Batches]:
        while self.position < self.end and self.reason is None:
            want = min(len(self._memory), self.end - self.position)
            try:
                count = self.file.read_into(self._memory[:want], self.position)
            except CorruptRecordError as error:  # bytes of tiered storage
                self.reason = error.message
                return
            data = self._memory[:count]
            try:
                found = scan_batches(data)
            except CorruptRecordError as error:
                if error.reason == "PROPOSED_MAGIC" and self._is_sound(error.position or 0):
                    raise at(error, self.file.path, self.position) from error.__cause__  # nothing may be cut off
                found = scan_batches(data[: error.position or 0])
                self.reason = _zeros(data, error.position or 0) or error.message
            if found.num_rows:
                batches = Batches(found, data, self.position)
                end = len(batches.records())
                yield batches
                self.position += end
                if len(self._memory) < SLICE_BYTES:
                    self._memory = memoryview(bytearray(min(2 * len(self._memory), max(self.end - self.position, 0))))
            elif self.reason is None:
                self._make_room(data)

    def _is_sound(self, position: int) -> bool:
        """Whether a message in the slice is whole and sound, whatever its magic."""
        start = self.position + position
        size = claimed_size(self.file.read(start, OVERHEAD_BYTES)) or 0
        return OVERHEAD_BYTES < size <= self.end - start and is_sound_message(self.file.read(start, size))

    def _make_room(self, data: memoryview) -> None:
        """Enlarge the slice for an entry that does not fit, or record that the entry is cut."""
        left = self.end - self.position
        size = claimed_size(data) or OVERHEAD_BYTES
        if size > left or len(data) < min(len(self._memory), left):
            self.reason = f"an entry of {size} bytes is cut, {min(left, len(data))} bytes are left"
        else:
            self._memory = memoryview(bytearray(size))


def _zeros(data: memoryview, at: int) -> str | None:
    return "zeros after the last entry" if not any(data[at : at + 64]) else None


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
