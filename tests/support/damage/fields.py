"""Where the length and count fields of an entry lie, and entries with one of them changed."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from support.damage.false_lengths import LONG_VARINTS, Field, all_lies
from support.sets import generate
from support.sets.framings import framed

__all__ = [
    "LONG_VARINTS", "Field", "batch_fields", "codec_of", "framed", "inner_fields", "lies", "message_fields", "rebuild",
    "record_fields",
]  # fmt: skip


def lies(data: bytes, fields: list[Field]) -> Iterator[tuple[str, bytes]]:
    """(what was done, the data with one field overwritten), for every field and extreme."""
    for lie in all_lies(data, fields):
        yield str(lie), lie.told(data)


def codec_of(entry: bytes) -> int:
    """The codec in an entry's attributes."""
    return (entry[22] if entry[16] == 2 else entry[17]) & 7


def rebuild(entry: bytes, payload: bytes) -> bytes:
    """The entry around another payload (records or value), its size and CRC right."""
    if entry[16] == 2:
        out = entry[:61] + payload
    else:
        value_at = 26 if entry[16] == 0 else 34
        value_at += max(0, struct.unpack_from(">i", entry, value_at - 8)[0])
        out = entry[: value_at - 4] + struct.pack(">i", len(payload)) + payload
    return generate.reseal(out[:8] + struct.pack(">i", len(out) - 12) + out[12:])


# --- where the fields lie ----------------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, position after it)."""
    raw = shift = 0
    while True:
        byte = data[at]
        raw |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < 128:
            return (raw >> 1) ^ -(raw & 1), at


def record_fields(plain: bytes, count: int) -> list[Field]:
    """Lengths and counts of magic 2 records."""
    found: list[Field] = []
    at = 0
    stop = len(plain)

    def take(name: str) -> int:
        nonlocal at
        value, end = _varint(plain, at)
        found.append(Field(name, at, end - at, "varint", stop - end))
        at = end
        return value

    for i in range(count):
        stop = len(plain)
        length = take(f"record {i} length")
        stop = at + length
        at += 1
        take(f"record {i} timestamp delta")
        take(f"record {i} offset delta")
        for part in ("key", "value"):
            length = take(f"record {i} {part} length")
            at += max(0, length)
        for j in range(take(f"record {i} header count")):
            for part in ("key", "value"):
                length = take(f"record {i} header {j} {part} length")
                at += max(0, length)
    return found


def message_fields(entry: bytes, at: int = 0) -> list[Field]:
    """Lengths of one magic 0 or 1 entry that begins at ``at``."""
    key_at = at + (26 if entry[at + 16] else 18)
    key = struct.unpack_from(">i", entry, key_at)[0]
    value_at = key_at + 4 + max(0, key)
    size = struct.unpack_from(">i", entry, at + 8)[0]
    end = at + 12 + size
    return [
        Field("message size", at + 8, 4, ">i", len(entry) - at - 12),
        Field("key length", key_at, 4, ">i", end - key_at - 8),
        Field("value length", value_at, 4, ">i", end - value_at - 4),
    ]


def batch_fields(entry: bytes, plain: bytes | None = None) -> list[Field]:
    """Lengths and counts of a magic 2 batch header; ``plain`` are its records."""
    return [
        Field("batch length", 8, 4, ">i", len(entry) - 12),
        Field("last offset delta", 23, 4, ">i", 0),
        Field("base sequence", 53, 4, ">i", 0),
        Field("record count", 57, 4, ">i", (len(entry) if plain is None else len(plain)) // 7),
    ]


def inner_fields(plain: bytes) -> list[Field]:
    """Sizes and lengths of the entries inside a wrapper."""
    found: list[Field] = []
    at = 0
    while len(plain) - at >= 12 and at + 12 + struct.unpack_from(">i", plain, at + 8)[0] <= len(plain):
        found += message_fields(plain, at)
        at += 12 + struct.unpack_from(">i", plain, at + 8)[0]
    return found
