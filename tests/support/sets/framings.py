"""Compressed payloads with every length that a codec's framing can have, written byte by byte."""

from __future__ import annotations

import struct
import zlib

import lz4.block
from support.damage.false_lengths import Field
from support.reference import reference_codecs
from support.sets import generate


def framed(codec: int, plain: bytes) -> tuple[bytes, list[Field]]:
    """(payload, its length fields), with all optional fields that the format has."""
    return {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}[codec](plain)


def _gzip(plain: bytes) -> tuple[bytes, list[Field]]:
    """One member with an extra field, a name and a comment, around stored blocks, whose lengths are fields, too."""
    header = b"\x1f\x8b\x08\x1c" + bytes(6) + struct.pack("<H", 3) + b"ext" + b"name\0" + b"comment\0"
    engine = zlib.compressobj(0, zlib.DEFLATED, -15)
    body = engine.compress(plain) + engine.flush()
    payload = header + body + struct.pack("<II", zlib.crc32(plain), len(plain))
    return payload, [
        Field("gzip extra length", 10, 2, "<H", len(payload) - 12),
        Field("gzip stored length", len(header) + 1, 2, "<H", len(plain)),
        Field("gzip stored complement", len(header) + 3, 2, "<H", len(plain)),
        Field("gzip size", len(payload) - 4, 4, "<I", len(plain)),
    ]


def snappy_block(plain: bytes) -> bytes:
    """One literal, its length in three bytes."""
    return generate.plain_varint(len(plain)) + b"\xf8" + struct.pack("<I", len(plain) - 1)[:3] + plain


def _snappy(plain: bytes) -> tuple[bytes, list[Field]]:
    """Two chunks behind a header."""
    payload, found = (
        reference_codecs.XERIAL_HEADER,
        [
            Field("snappy version", 8, 4, ">i", 0),
            Field("snappy oldest version", 12, 4, ">i", 0),
        ],
    )
    whole = len(payload) + 2 * (4 + len(snappy_block(plain[: len(plain) // 2]))) + len(plain) % 2
    for i, piece in enumerate((plain[: len(plain) // 2], plain[len(plain) // 2 :])):
        block, at = snappy_block(piece), len(payload)
        size = len(generate.plain_varint(len(piece)))
        found += [
            Field(f"snappy chunk {i} length", at, 4, ">i", whole - at - 4),
            Field(f"snappy chunk {i} plain length", at + 4, size, "plain", len(piece)),
            Field(f"snappy chunk {i} literal length", at + 5 + size, 2, "<H", len(piece) - 1),
        ]
        payload += struct.pack(">i", len(block)) + block
    assert len(payload) == whole
    return payload, found


def snappy_raw(plain: bytes) -> tuple[bytes, list[Field]]:
    """One block without a header."""
    size = len(generate.plain_varint(len(plain)))
    return snappy_block(plain), [
        Field("snappy plain length", 0, size, "plain", len(plain)),
        Field("snappy literal length", 1 + size, 2, "<H", len(plain) - 1),
    ]


def lz4_repaired(payload: bytes) -> bytes:
    """The header checksum made right again."""
    end = 14 if payload[4] & 8 else 6
    check = reference_codecs.lz4_header_checksum(payload[4:end])
    return payload[:end] + bytes([check]) + payload[end + 1 :]


def _lz4(plain: bytes) -> tuple[bytes, list[Field]]:
    """Independent blocks, block checksums, content size; a compressed and a stored block."""
    head = reference_codecs.LZ4_MAGIC + b"\x78\x40" + struct.pack("<Q", len(plain)) + b"\0"
    half = len(plain) // 2
    block = lz4.block.compress(plain[:half], store_size=False)
    first = struct.pack("<I", len(block)) + block + struct.pack("<I", reference_codecs.xxh32(block))
    stored = plain[half:]
    second = struct.pack("<I", len(stored) | 1 << 31) + stored + struct.pack("<I", reference_codecs.xxh32(stored))
    payload = lz4_repaired(head + first + second + bytes(4))
    at = len(head) + len(first)
    return payload, [
        Field("lz4 content size", 6, 8, "<Q", len(plain)),
        Field("lz4 block size", len(head), 4, "<I", len(payload) - len(head) - 4),
        Field("lz4 stored block size", at, 4, "<I", len(payload) - at - 4),
        Field("lz4 end mark", len(payload) - 4, 4, "<I", 0),
    ]


def zstd_frame(plain: bytes, width: int = 4) -> tuple[bytes, list[Field]]:
    """One raw block; the content size in 1, 2, 4 or 8 bytes."""
    flags = {1: 0x20, 2: 0x60, 4: 0xA0, 8: 0xE0}[width]
    size = struct.pack({1: "<B", 2: "<H", 4: "<I", 8: "<Q"}[width], len(plain) - (256 if width == 2 else 0))
    payload = b"\x28\xb5\x2f\xfd" + bytes([flags]) + size + struct.pack("<I", len(plain) << 3 | 1)[:3] + plain
    kind = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}[width]
    return payload, [
        Field(f"zstd content size of {width}", 5, width, kind, len(plain)),
        Field("zstd block size", 5 + width, 3, "block", len(plain)),
    ]


def _zstd(plain: bytes) -> tuple[bytes, list[Field]]:
    """A skippable frame, then a frame."""
    payload, found = zstd_frame(plain)
    skippable = struct.pack("<II", 0x184D2A50, 2) + b"xx"
    found = [field._replace(at=field.at + len(skippable)) for field in found]
    return skippable + payload, [Field("zstd skippable length", 4, 4, "<I", len(payload) + 2), *found]
