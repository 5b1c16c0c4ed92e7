"""Reads many structs at once: a column of bytes becomes a column per field, without a loop over rows.

For structs of numbers and strings alone. A row that these readers do not follow (cut bytes, null where none is allowed,
a long compact string, tagged fields) is not read here: the reader of ``kts.protocol.reading`` reads or refuses it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kts.protocol.fields import FIXED, Field

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

SIZES = {name: struct.calcsize(FIXED[name]) for name in ("int8", "int16", "int32", "int64")}


def readable(fields: Sequence[Field], version: int) -> bool:
    """True if a version consists of numbers and strings."""
    there = [field for field in fields if version in field.versions and field.tag is None]
    return all(not field.is_array and (field.type in SIZES or field.type == "string") for field in there)


def read_structs(
    fields: Sequence[Field], version: int, flexible: bool, column: pa.BinaryArray, start: int
) -> tuple[dict[str, pa.Array], Mask]:
    """All fields as columns, defaults for those that the version lacks, and which rows were read.

    Parameters
    ----------
    column : pyarrow.BinaryArray
        Without nulls; each value holds a struct from byte ``start`` on.
    """
    import pyarrow as pa

    rows = Cursors(column, start)
    found: dict[str, pa.Array] = {}
    for field in fields:
        if version not in field.versions or field.tag is not None:
            found[field.name] = pa.repeat(pa.scalar(field.default), len(column))
        elif field.type == "string":
            found[field.name] = rows.strings(rows.compact_lengths() if flexible else rows.numbers("int16"))
        else:
            found[field.name] = pa.array(rows.numbers(field.type))
    if flexible:
        rows.fits &= rows.compact_lengths() == -1  # no tagged fields
    return found, rows.fits


def read_numbers(column: pa.BinaryArray, type_: str, start: int) -> tuple[Numbers, Mask]:
    """The number at byte ``start`` of each value, and which values have one."""
    rows = Cursors(column, start)
    return rows.numbers(type_), rows.fits


class Cursors:
    """A position in each row.

    Attributes
    ----------
    fits : array of bool
        The rows that were read so far.
    """

    def __init__(self, column: pa.BinaryArray, start: int) -> None:
        _, offsets, data = column.buffers()
        edges = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
        self.data = np.frombuffer(b"" if data is None else data, np.uint8)
        self.position = edges[:-1] + start
        self.end = edges[1:]
        self.fits: Mask = self.position <= self.end

    def numbers(self, type_: str) -> Numbers:
        """The next number of each row, 0 where the row is cut."""
        size = SIZES[type_]
        self.fits &= self.position + size <= self.end
        if not self.fits.any():
            return np.zeros(len(self.position), np.int64)
        windows = np.lib.stride_tricks.sliding_window_view(self.data, size)
        taken = windows[np.where(self.fits, self.position, self.position[self.fits][0])]
        self.position += size
        numbers = np.ascontiguousarray(taken).view(f">{FIXED[type_]}" if size > 1 else "i1")[:, 0].astype(np.int64)
        return np.where(self.fits, numbers, 0)

    def compact_lengths(self) -> Numbers:
        """The next compact length of each row, if it has one byte; null is -1."""
        lengths = self.numbers("int8") - 1
        self.fits &= lengths >= -1
        return lengths

    def strings(self, lengths: Numbers) -> pa.Array:
        """The next string of each row, empty or null where it is cut, null or no UTF-8."""
        import pyarrow as pa

        self.fits &= (lengths >= 0) & (self.position + lengths <= self.end)
        lengths = np.where(self.fits, lengths, 0)
        edges = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.position - edges[:-1], lengths) + np.arange(edges[-1])
        text = self.data[places]
        self.position += lengths
        buffers = [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(text)]
        column = pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [_text(value) for value in column.to_pylist()]
            self.fits &= np.array([text is not None for text in texts])
            return pa.array(texts, pa.string())


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
