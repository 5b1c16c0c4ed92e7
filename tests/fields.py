"""Where the length and count fields of an entry lie, and what a liar would write into them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import generate
import lz4.block
import reference_codecs

I32_MIN, I32_MAX = -(2**31), 2**31 - 1
LONG_VARINTS = (
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x70",  # what does not fit is dropped
    b"\x80\x80\x80\x80\x80\x01",
    b"\xff" * 9 + b"\x01",
    b"\x80" * 10 + b"\x01",
)


class Field(NamedTuple):
    """A length or count: where it lies, how it is written, and how many bytes follow it."""

    name: str
    at: int
    size: int
    kind: str  # "varint" or a struct format
    left: int


def extremes(left: int, kind: str) -> list[bytes]:
    """The values of a liar, as bytes."""
    values = (I32_MIN, -2, -1, 0, 1, left - 1, left, left + 1, I32_MAX)
    if kind == "varint":
        return [generate.varint(value) for value in values] + list(LONG_VARINTS)
    bits = 8 * struct.calcsize(kind)
    return [struct.pack(kind, value % 2**bits if kind[-1].isupper() else value) for value in values]


def lies(data: bytes, fields: list[Field]) -> Iterator[tuple[str, bytes]]:
    """(what was done, the data with one field overwritten)."""
    for field in fields:
        for raw in extremes(field.left, field.kind):
            changed = data[: field.at] + raw + data[field.at + field.size :]
            if changed != data:
                yield f"{field.name} at {field.at} := {raw.hex()}", changed


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

    def take(name: str) -> int:
        nonlocal at
        value, end = _varint(plain, at)
        found.append(Field(name, at, end - at, "varint", len(plain) - end))
        at = end
        return value

    for i in range(count):
        take(f"record {i} length")
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
        Field("key length", key_at, 4, ">i", end - key_at - 4),
        Field("value length", value_at, 4, ">i", end - value_at - 4),
    ]


def batch_fields(entry: bytes) -> list[Field]:
    """Lengths and counts of a magic 2 batch header."""
    return [
        Field("batch length", 8, 4, ">i", len(entry) - 12),
        Field("last offset delta", 23, 4, ">i", 0),
        Field("base sequence", 53, 4, ">i", 0),
        Field("record count", 57, 4, ">i", len(entry) - 61),
    ]


def inner_fields(plain: bytes) -> list[Field]:
    """Sizes and lengths of the entries inside a wrapper."""
    found: list[Field] = []
    at = 0
    while len(plain) - at >= 12 and at + 12 + struct.unpack_from(">i", plain, at + 8)[0] <= len(plain):
        found += message_fields(plain, at)
        at += 12 + struct.unpack_from(">i", plain, at + 8)[0]
    return found


# --- payloads with every field that a codec's framing has --------------------------------------------


def framed(codec: int, plain: bytes) -> tuple[bytes, list[Field]]:
    """(payload, its length fields), with all optional fields that the format has."""
    return {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}[codec](plain)


def _gzip(plain: bytes) -> tuple[bytes, list[Field]]:
    header = b"\x1f\x8b\x08\x04" + bytes(6) + struct.pack("<H", 3) + b"ext"
    engine = zlib.compressobj(0, zlib.DEFLATED, -15)  # stored blocks: their lengths are fields, too
    body = engine.compress(plain) + engine.flush()
    payload = header + body + struct.pack("<II", zlib.crc32(plain), len(plain))
    return payload, [
        Field("gzip extra length", 10, 2, "<H", len(payload) - 12),
        Field("gzip stored length", len(header) + 1, 2, "<H", len(body) - 3),
        Field("gzip size", len(payload) - 4, 4, "<I", 0),
    ]


def _snappy(plain: bytes) -> tuple[bytes, list[Field]]:
    block = generate.plain_varint(len(plain)) + b"\xf8" + struct.pack("<I", len(plain) - 1)[:3] + plain
    payload = reference_codecs.XERIAL_HEADER + struct.pack(">i", len(block)) + block
    size = len(generate.plain_varint(len(plain)))
    return payload, [
        Field("snappy version", 8, 4, ">i", 0),
        Field("snappy chunk length", 16, 4, ">i", len(block)),
        Field("snappy plain length", 20, size, "varint", len(plain)),
        Field("snappy literal length", 21 + size, 2, "<H", len(plain)),
    ]


def _lz4(plain: bytes) -> tuple[bytes, list[Field]]:
    descriptor = b"\x78\x40" + struct.pack("<Q", len(plain))  # independent blocks, block checksums, content size
    head = reference_codecs.LZ4_MAGIC + descriptor + bytes([reference_codecs.lz4_header_checksum(descriptor)])
    block = lz4.block.compress(plain, store_size=False)
    payload = head + struct.pack("<I", len(block)) + block + struct.pack("<I", reference_codecs.xxh32(block)) + bytes(4)
    return payload, [
        Field("lz4 block size", len(head), 4, "<I", len(block) + 8),
        Field("lz4 end mark", len(payload) - 4, 4, "<I", 0),
    ]


def _zstd(plain: bytes) -> tuple[bytes, list[Field]]:
    block = struct.pack("<I", len(plain) << 3 | 1)[:3] + plain  # one raw block, the last
    payload = b"\x28\xb5\x2f\xfd" + b"\xa0" + struct.pack("<I", len(plain)) + block
    skippable = struct.pack("<II", 0x184D2A50, 2) + b"xx"
    return skippable + payload, [
        Field("zstd skippable length", 4, 4, "<I", len(payload) + 2),
        Field("zstd content size", 15, 4, "<I", len(plain)),
        Field("zstd block size", 19, 2, "<H", len(plain)),
    ]
