"""Whole Arrow columns of bytes as text: base64, hex, UTF-8 and JSON strings, without a step per record."""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .not_text import NotTextError

ENCODINGS = ("base64", "utf8", "hex")
_PADS = pa.array([b"", b"\0\0", b"\0"], pa.binary())
_EQUALS = ord("=")


def spelled(column: Any, spell: Callable[[Any], str]) -> Any:
    """A column with few different values as strings, each value spelled once."""
    coded = column.dictionary_encode(null_encoding="encode")
    return pa.array(map(spell, coded.dictionary.to_pylist()), pa.string()).take(coded.indices)


def encode_column(column: Any, encoding: str, name: str) -> Any:
    """A binary column as a string column in base64, hex or UTF-8; null stays null.

    Raises
    ------
    NotTextError
        ``utf8`` and a value that is not.
    """
    if encoding == "utf8":
        return utf8_column(column, name)
    return hex_column(column) if encoding == "hex" else base64_column(column)


def base64_column(column: Any) -> Any:
    """Base64 with padding, each value by itself."""
    left_over = np.asarray(pc.fill_null(pc.binary_length(column), 0)) % 3
    padded = pc.binary_join_element_wise(pc.fill_null(column, b""), _PADS.take(pa.array(left_over)), b"")
    offsets, data = layout(padded)
    # Every value fills whole groups of three bytes, so one call encodes them all and no group holds two values.
    text = bytearray(b2a_base64(data, newline=False))
    ends = offsets // 3 * 4
    view = np.frombuffer(text, np.uint8)
    view[ends[1:][left_over != 0] - 1] = _EQUALS
    view[ends[1:][left_over == 1] - 2] = _EQUALS
    return _strings(ends, text, column)


def hex_column(column: Any) -> Any:
    """Two lower-case digits a byte."""
    offsets, data = layout(pc.fill_null(column, b""))
    return _strings(offsets * 2, bytes(data).hex().encode("ascii"), column)


def utf8_column(column: Any, name: str) -> Any:
    """The bytes as text, checked; ``name`` is for the error."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        for row, value in enumerate(column.to_pylist()):
            try:
                if value is not None:
                    value.decode("utf-8")
            except UnicodeDecodeError as error:
                raise NotTextError(name, row, f"byte {value[error.start]:#04x} at {error.start}") from None
        raise


def json_strings(column: Any) -> Any:
    """A string column as JSON strings with their quotes; null becomes ``null``."""
    quoted = pc.binary_join_element_wise('"', escaped(column), '"', "")
    return pc.fill_null(quoted, "null") if column.null_count else quoted


def escaped(column: Any) -> Any:
    """A string column with the characters replaced that JSON strings may not hold."""
    column = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), '"', '\\"')
    _, data = layout(column)
    codes = np.frombuffer(data, np.uint8)
    if len(codes) and codes.min() < 32:
        for code in np.unique(codes[codes < 32]).tolist():
            column = pc.replace_substring(column, chr(code), json.dumps(chr(code))[1:-1])
    return column


def layout(column: Any) -> tuple[Any, memoryview]:
    """Offsets from 0 and the bytes they cut, for a binary or string column."""
    _, offset_buffer, data = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    if not len(offsets):
        return np.zeros(1, np.int32), memoryview(b"")
    view = memoryview(b"" if data is None else data)
    return offsets - offsets[0], view[offsets[0] : offsets[-1]]


def _strings(offsets: Any, text: bytes | bytearray, like: Any) -> Any:
    """A string column out of offsets and text, null where ``like`` is."""
    buffers = (pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(text))
    made = pa.StringArray.from_buffers(len(like), *buffers)
    return pc.if_else(like.is_valid(), made, None) if like.null_count else made
