"""One segment on disk: its files, its indexes, and its bytes in slices of whole batches."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kts._timeindex import OffsetIndex, TimeIndex
from kts.codec.columns import decode, scan_batches, valid_bytes
from kts.errors import CorruptRecordError
from kts.segment import files
from kts.segment.lookups import EVERYTHING, Lookups
from kts.segment.names import parse_file_name, partition_of_file

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

SLICE_BYTES = 4 * 2**20
OVERHEAD_BYTES = 12  # offset and size, in front of every batch or message
SMALLEST_SIZE = 14
_HEADER = struct.Struct(">qi4xb")  # offset, size, (epoch or CRC), magic


@dataclass(frozen=True)
class Segment:
    """Read-only view of one segment; nothing is remembered, every call sees the files as they are then.

    Parameters
    ----------
    path : str
        The ``.log`` file.
    topic, partition
        Whose segment it is.
    base_offset : int
        From the file's name, else of the first batch.
    indexed : bool
        False where the file's name is not Kafka's, so that index files beside it cannot be trusted to be its own.
    """

    path: str
    topic: str
    partition: int
    base_offset: int
    indexed: bool = True

    @property
    def size_bytes(self) -> int:
        """Length of the ``.log`` file now."""
        return files.size_of(self.path)

    @property
    def modified_ms(self) -> int:
        """Modification time of the ``.log`` file, ms since the epoch."""
        return files.modified_ms(self.path)

    @property
    def time_index_path(self) -> str | None:
        """The ``.timeindex`` file, or None if there is none."""
        return self._beside(".timeindex")

    @property
    def offset_index_path(self) -> str | None:
        """The ``.index`` file, or None if there is none."""
        return self._beside(".index")

    @property
    def txn_index_path(self) -> str | None:
        """The ``.txnindex`` file, or None if there is none."""
        return self._beside(".txnindex")

    def _beside(self, suffix: str) -> str | None:
        path = self._path_beside(suffix)
        return path if path is not None and files.exists(path) else None

    def _path_beside(self, suffix: str) -> str | None:
        stem, dot, transition = self.path.rpartition(".log")
        return f"{stem}{suffix}{transition}" if dot and self.indexed else None

    def time_index(self) -> TimeIndex:
        """The time index; an empty one if the file is missing or damaged."""
        index = TimeIndex(self._index_bytes(".timeindex", 12), self.base_offset)
        return index if _sound(index) else TimeIndex(b"", self.base_offset)

    def offset_index(self) -> OffsetIndex:
        """The offset index; an empty one if the file is missing or damaged."""
        index = OffsetIndex(self._index_bytes(".index", 8), self.base_offset)
        return index if _sound(index) else OffsetIndex(b"", self.base_offset)

    def closed_time_index(self) -> TimeIndex:
        """The time index of a segment that another follows; an empty one if the log does not confirm its end."""
        known = Lookups(self).closing_time()
        return self.time_index() if known is not None else TimeIndex(b"", self.base_offset)

    def _index_bytes(self, suffix: str, entry_bytes: int) -> bytes:
        # Also an open index has whole entries only: other lengths are damage.
        path = self._path_beside(suffix)
        return b"" if path is None else files.read_index(path, entry_bytes)

    def start_position(self, offset: int) -> int:
        """Where to start reading for an offset: the last border before which the log confirms that all is below it."""
        return Lookups(self).place(offset)

    def slices(
        self,
        start_position: int = 0,
        end_position: int | None = None,
        slice_bytes: int = SLICE_BYTES,
        first_bytes: int | None = None,
        file: files.File | None = None,
    ) -> Iterator[tuple[int, memoryview]]:
        """Bytes in slices of whole batches, as (position, bytes), each in memory of its own.

        Parameters
        ----------
        start_position : int
            A batch start.
        end_position : int, optional
            Where to stop; None is the file's end as it is when the first slice is read.
        slice_bytes : int
            About how many bytes a slice; a larger batch gets a larger slice.
        first_bytes : int, optional
            Size of the first slice, doubled from one to the next, for a reader that hopes to stop soon.
        file : File, optional
            The log, where it is open.

        Notes
        -----
        A cut tail is left out. Where the bytes are no batch, the rest of a slice is given as it is, for a decoder to
        say what is wrong with it.
        """
        with files.File(self.path) if file is None else nullcontext(file) as file:
            size = file.size()
            end = size if end_position is None else min(end_position, size)
            usual = slice_bytes if first_bytes is None else first_bytes
            position, want = start_position, usual
            while position < end:
                asked = min(want, end - position)
                data = file.read(position, asked)
                if len(data) < asked:
                    end = position + len(data)  # a broker cut the file meanwhile
                if not data:
                    return
                whole, needed = whole_entries(data)
                if whole == 0:
                    if needed <= len(data):
                        yield position, memoryview(data)
                        return
                    if position + needed > end:
                        return
                    want = needed
                    continue
                want = usual = min(slice_bytes, 2 * usual)
                yield position, memoryview(data)[:whole]
                position += whole

    def batches(
        self,
        start: int = 0,
        end: int | None = None,
        first_bytes: int | None = None,
        file: files.File | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """``kts.scan_batches`` of each slice between two positions, with positions in the file.

        Raises
        ------
        CorruptRecordError
            After the batches before the damage were given; ``.path`` and ``.position`` are set.
        """
        yield from batches_of(self, self.slices(start, end, first_bytes=first_bytes, file=file))

    def tail_position(self) -> int:
        """The last border that the offset index knows and the log confirms, 0 if there is none."""
        return Lookups(self).place(EVERYTHING)


def _sound(index: TimeIndex | OffsetIndex) -> bool:
    return all(line.startswith("preallocated") for line in index.check())


def whole_entries(data: bytes | memoryview) -> tuple[int, int]:
    """Length of the whole entries at the front, and the bytes that the next one needs.

    The second number is 0 where the bytes cannot be an entry, so that no more bytes would help.
    """
    try:
        position = valid_bytes(data)
    except CorruptRecordError as error:
        return error.position or 0, 0
    header = data[position : position + 17]
    if len(header) < OVERHEAD_BYTES:
        return position, OVERHEAD_BYTES
    size = int.from_bytes(header[8:12], "big", signed=True)
    if size < SMALLEST_SIZE or (len(header) == 17 and header[16] > 2):
        return position, 0
    return position, size + OVERHEAD_BYTES


def batches_of(segment: Segment, slices: Iterator[tuple[int, memoryview]]) -> Iterator[pa.RecordBatch]:
    """Header scans of slices, with positions in the file."""
    for position, data in slices:
        try:
            found = scan_batches(data)
        except CorruptRecordError as error:
            if error.position:
                yield rebase(scan_batches(data[: error.position]), position)
            raise at(error, segment.path, position) from error.__cause__
        yield rebase(found, position)


def int64(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
    """A column as int64 numbers, times as ms; null is -1."""
    import pyarrow as pa

    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    if column.null_count:
        column = column.fill_null(-1)
    if not pa.types.is_int64(column.type):
        kind = np.dtype(f"i{column.type.bit_width // 8}")
        return np.frombuffer(column.buffers()[1] or b"", kind, len(column), kind.itemsize * column.offset).astype(
            np.int64
        )
    # pyarrow's own to_numpy() imports pandas, where it is installed.
    return np.frombuffer(column.buffers()[1] or b"", np.int64, len(column), 8 * column.offset)


def bools(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.bool_]:
    """A column of bools without nulls."""
    column = batch.column(name)
    bits = np.frombuffer(column.buffers()[1] or b"", np.uint8)
    stop = column.offset + len(column)
    return np.unpackbits(bits, count=stop, bitorder="little")[column.offset :].view(np.bool_)


def rebase(batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
    """The same rows with ``start`` added to the column ``position``, where there is one."""
    index = batch.schema.get_field_index("position")
    if start == 0 or index < 0 or batch.num_rows == 0:
        return batch
    import pyarrow.compute as pc

    return batch.set_column(index, "position", pc.add(batch.column(index), start))


def at(error: CorruptRecordError, path: str, start: int) -> CorruptRecordError:
    """The same error with its path, and with its position in the file."""
    error.path = path
    error.position = start + (error.position or 0)
    return error


def segment_of_file(path: str) -> Segment:
    """A lone segment file under any name, topic and partition guessed from the names around it."""
    topic, partition = partition_of_file(path)
    name = parse_file_name(os.path.basename(path))
    if name is not None and name.suffix == ".log":
        return Segment(path, topic, partition, name.base_offset)
    return Segment(path, topic, partition, _first_offset(path), indexed=False)


def _first_offset(path: str) -> int:
    lone = Segment(path, "", 0, 0, indexed=False)
    for _, data in lone.slices(slice_bytes=2**16):
        if len(data) < _HEADER.size + 8:
            return 0
        offset, size, magic = _HEADER.unpack_from(data)
        if magic == 2 or (magic in (0, 1) and not data[17] & 7):
            return max(int(offset), 0)
        try:
            offsets = decode(data[: size + OVERHEAD_BYTES], ["offset", "headers"])
        except CorruptRecordError:
            return 0
        return int(offsets.column(0)[0].as_py()) if offsets.num_rows else 0
    return 0
