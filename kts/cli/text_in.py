"""Whole Arrow columns of base64, hex or UTF-8 text as bytes, without a step per record: ``text.py`` backwards."""

from __future__ import annotations

import binascii
from typing import Any

import numpy as np
import pyarrow as pa

from .text import layout

_PAD = ord("=")
_HEX = np.zeros(256, bool)
_HEX[list(b"0123456789abcdefABCDEF")] = True


class NotBytesError(ValueError):
    """A text is not in the encoding that it should be in; ``row`` is its place in the column."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def decode_column(column: Any, encoding: str) -> Any:
    """A string column in base64, hex or UTF-8 as a binary column; null stays null.

    Raises
    ------
    NotBytesError
        The first text that is not, and why.
    """
    if encoding == "utf8":
        return column.cast(pa.binary())
    try:
        return _hex(column) if encoding == "hex" else _base64(column)
    except ValueError as error:
        for row, text in enumerate(column.to_pylist()):
            if text is not None and (reason := why_not(text, encoding)) is not None:
                raise NotBytesError(row, reason) from error
        raise


def why_not(text: str, encoding: str) -> str | None:
    """Why a text is not in an encoding; None if it is."""
    shown = repr(text if len(text) <= 40 else f"{text[:37]}...")
    if encoding == "utf8":
        return None
    if encoding == "hex":
        if len(text) % 2 or not all(ord(c) < 256 and _HEX[ord(c)] for c in text):
            return f"expected hex, two digits a byte, found {shown}"
        return None
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:  # binascii.Error, or characters beyond ASCII
        return f"expected base64, found {shown} ({error})"
    return None


def _hex(column: Any) -> Any:
    offsets, data = layout(column)
    codes = np.frombuffer(data, np.uint8)
    if (offsets % 2).any() or not _HEX[codes].all():
        raise ValueError("not hex")
    return _binary(offsets // 2, bytes.fromhex(bytes(data).decode("ascii")), column)


def _base64(column: Any) -> Any:
    offsets, data = layout(column)
    if (offsets % 4).any():
        raise ValueError("not whole groups")
    codes = np.frombuffer(data, np.uint8).copy()
    ends = offsets[1:][np.diff(offsets) > 0]
    last, second = codes[ends - 1] == _PAD, codes[ends - 2] == _PAD
    pads = last.astype(np.int64) + (last & second)
    if np.count_nonzero(codes == _PAD) != pads.sum():
        raise ValueError("padding inside")
    # Every text fills whole groups, so that one call decodes them all; what the padding stood for is left out then.
    codes[codes == _PAD] = ord("A")
    plain = np.frombuffer(binascii.a2b_base64(codes.data, strict_mode=True), np.uint8)
    if not pads.any():
        return _binary(offsets // 4 * 3, plain, column)
    kept = np.ones(len(plain), bool)
    tails = ends // 4 * 3
    kept[tails[pads >= 1] - 1] = False
    kept[tails[pads == 2] - 2] = False
    lost = np.zeros(len(column), np.int64)
    lost[np.diff(offsets) > 0] = pads
    shortened = offsets // 4 * 3
    shortened[1:] -= np.cumsum(lost)
    return _binary(shortened, plain[kept], column)


def _binary(offsets: Any, data: Any, like: Any) -> Any:
    """A binary column out of offsets and bytes, null where ``like`` is."""
    validity = None
    if like.null_count:
        validity = pa.array(like.is_valid()).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(like), buffers)
