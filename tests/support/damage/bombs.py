"""Payloads that decompress to 256 MiB, or claim to hold 2 GiB or 1 TiB, in every framing; and ones of an exact size.

Each is small and quickly made: zeros, compressed once and repeated.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import cramjam
import lz4.block
import zstandard
from support.reference.reference_codecs import LZ4_MAGIC, XERIAL_HEADER, lz4_header_checksum
from support.sets import generate

MIB = 1 << 20
BOUND = 16 * MIB
BOMB = 256 * MIB
GIB2, TIB = 1 << 31, 1 << 40
LIMIT, CORRUPT = "DecompressionLimitError", "CorruptRecordError"


class Bomb(NamedTuple):
    """How a payload is made, and the error that it must meet at a bound of 16 MiB."""

    name: str
    codec: int
    payload: Callable[[], bytes]
    error: str


# --- gzip: the size is claimed behind the data, modulo 2^32 ------------------------------------------


def member(size: int, claim: int | None = None, front: bytes = b"") -> bytes:
    """One gzip member of ``front`` and zeros; the deflate blocks are those of 1 MiB, over and over."""
    begin = zlib.compressobj(6, zlib.DEFLATED, -15)
    start = begin.compress(front) + begin.flush(zlib.Z_FULL_FLUSH) if front else b""
    engine = zlib.compressobj(6, zlib.DEFLATED, -15)
    first = engine.compress(bytes(MIB)) + engine.flush(zlib.Z_FULL_FLUSH)
    rest = zlib.compressobj(6, zlib.DEFLATED, -15)
    last = rest.compress(bytes(size % MIB)) + rest.flush()
    stated = len(front) + size if claim is None else claim
    trailer = struct.pack("<II", zlib.crc32(bytes(size), zlib.crc32(front)), stated % 2**32)
    return b"\x1f\x8b\x08" + bytes(7) + start + first * (size // MIB) + last + trailer


# --- snappy: each block claims its size in front -----------------------------------------------------


@cache
def block(size: int, front: bytes = b"") -> bytes:
    return bytes(cramjam.snappy.compress_raw(front + bytes(size)))


def claiming(claim: int, size: int) -> bytes:
    """A raw block that states another size than it has."""
    elements = block(size)
    while elements[0] & 0x80:
        elements = elements[1:]
    return generate.plain_varint(claim) + elements[1:]


def chunks(*blocks: bytes) -> bytes:
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(part)) + part for part in blocks)


# --- lz4: a frame may state its content's size; blocks have no size of their own ---------------------


def frame(size: int, code: int = 7, claim: int | None = None, front: bytes = b"") -> bytes:
    """One frame of ``front``, stored, and zeros in blocks of 64 KiB (code 4) to 4 MiB (7)."""
    most = 1 << (8 + 2 * code)
    descriptor = bytes([0x60 if claim is None else 0x68, code << 4])
    descriptor += b"" if claim is None else struct.pack("<Q", claim)
    out = LZ4_MAGIC + descriptor + bytes([lz4_header_checksum(descriptor)])
    out += struct.pack("<I", len(front) | 1 << 31) + front if front else b""
    whole = lz4.block.compress(bytes(most), store_size=False)
    out += (struct.pack("<I", len(whole)) + whole) * (size // most)
    if size % most:
        rest = lz4.block.compress(bytes(size % most), store_size=False)
        out += struct.pack("<I", len(rest)) + rest
    return out + bytes(4)


# --- zstd: a frame may state its content's size ------------------------------------------------------


def zframe(size: int, claim: int | None = None, front: bytes = b"") -> bytes:
    """One frame of ``front``, raw, and zeros in run-length blocks of 128 KiB; a window of 8 MiB."""
    head = b"\x28\xb5\x2f\xfd" + (b"\x00" if claim is None else b"\xc0") + b"\x68"
    head += b"" if claim is None else struct.pack("<Q", claim)
    head += struct.pack("<I", len(front) << 3)[:3] + front if front else b""
    run = struct.pack("<I", 131072 << 3 | 2)[:3] + b"\0"
    return head + run * (size // 131072) + struct.pack("<I", (size % 131072) << 3 | 3)[:3] + b"\0"


def whole_zframe(size: int, stated: bool) -> bytes:
    """One frame as the library writes it."""
    if stated:
        return zstandard.compress(bytes(size))
    engine = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return b"".join(engine.compress(bytes(MIB)) for _ in range(size // MIB)) + engine.flush()


# --- the table ---------------------------------------------------------------------------------------


def framings(size: int, front: bytes = b"") -> dict[str, tuple[int, Callable[[], bytes]]]:
    """``front`` and so many zeros in every framing that states the size rightly or not at all: (codec, payload).

    Where there are many members, chunks, blocks or frames, ``front`` is the first of them.
    """
    many, rest, whole = size // MIB, size % MIB, len(front) + size
    return {
        "gzip, one member": (1, lambda: member(size, front=front)),
        "gzip, many members": (1, lambda: member(0, front=front) + member(MIB) * many + member(rest)),
        "snappy, one chunk": (2, lambda: chunks(block(size, front))),
        "snappy, many chunks": (2, lambda: chunks(block(0, front), *[block(MIB)] * many, block(rest))),
        "snappy, raw": (2, lambda: block(size, front)),
        "lz4, blocks of 4 MiB, no size": (3, lambda: frame(size, front=front)),
        "lz4, blocks of 64 KiB, no size": (3, lambda: frame(size, 4, front=front)),
        "lz4, right size": (3, lambda: frame(size, claim=whole, front=front)),
        "zstd, one frame, no size": (4, lambda: zframe(size, front=front)),
        "zstd, one frame, right size": (4, lambda: zframe(size, whole, front)),
        "zstd, many frames, no size": (4, lambda: zframe(0, front=front) + zframe(MIB) * many + zframe(rest)),
        "zstd, many frames, right size": (
            4,
            lambda: zframe(0, len(front), front) + zframe(MIB, MIB) * many + zframe(rest, rest),
        ),
    }


def bombs() -> list[Bomb]:
    """256 MiB that are there, with a true, no, or a false size; and a byte with the size of 2 GiB or 1 TiB."""
    found = [Bomb(f"{name}: 256 MiB", codec, payload, LIMIT) for name, (codec, payload) in framings(BOMB).items()]
    found += [
        Bomb("zstd, the library's, no size: 256 MiB", 4, lambda: whole_zframe(BOMB, False), LIMIT),
        Bomb("zstd, the library's, right size: 256 MiB", 4, lambda: whole_zframe(BOMB, True), LIMIT),
        Bomb("lz4, a second frame: 256 MiB", 3, lambda: frame(1) + frame(BOMB), CORRUPT),  # Kafka reads the first
        Bomb("gzip, no trailer: 256 MiB", 1, lambda: member(BOMB)[:-8], LIMIT),
        Bomb("lz4, no end mark: 256 MiB", 3, lambda: frame(BOMB)[:-4], CORRUPT),
        Bomb("zstd, no last block: 256 MiB", 4, lambda: zframe(BOMB)[:-4], CORRUPT),
    ]
    for claim, name in ((1, "1 byte"), (GIB2, "2 GiB"), (TIB, "1 TiB")):
        # 1 TiB does not fit gzip's and snappy's field: gzip's says 0, snappy's is longer than any that is read
        fits = claim < TIB
        few = LIMIT if claim > BOUND and fits else CORRUPT
        found += [
            Bomb(f"gzip, {name} claimed: 256 MiB", 1, lambda c=claim: member(BOMB, c), LIMIT),
            Bomb(f"snappy chunk, {name} claimed: 256 MiB", 2, lambda c=claim: chunks(claiming(c, BOMB)), few),
            Bomb(f"snappy raw, {name} claimed: 256 MiB", 2, lambda c=claim: claiming(c, BOMB), few),
            Bomb(f"lz4, {name} claimed: 256 MiB", 3, lambda c=claim: frame(BOMB, claim=c), LIMIT),
            Bomb(f"zstd, {name} claimed: 256 MiB", 4, lambda c=claim: zframe(BOMB, c), CORRUPT),
        ]
        if claim > 1:
            found += [
                Bomb(f"gzip, {name} claimed: 100 bytes", 1, lambda c=claim: member(100, c), CORRUPT),
                Bomb(f"snappy chunk, {name} claimed: 100 bytes", 2, lambda c=claim: chunks(claiming(c, 100)), few),
                Bomb(f"snappy raw, {name} claimed: 100 bytes", 2, lambda c=claim: claiming(c, 100), few),
                Bomb(f"zstd, {name} claimed: 100 bytes", 4, lambda c=claim: zframe(100, c), CORRUPT),
                # not looked at, as in Kafka: what is there are 100 zeros, which are no record
                Bomb(f"lz4, {name} claimed: 100 bytes", 3, lambda c=claim: frame(100, claim=c), CORRUPT),
            ]
    return found


def entry(codec: int, magic: int, payload: bytes) -> bytes:
    """The batch or wrapper that carries the payload."""
    if magic == 2:
        return generate.batch(payload, 1, attributes=codec)
    return generate.message(0, magic, codec, 0, None, payload)


def magics(codec: int) -> tuple[int, ...]:
    """zstd came with magic 2."""
    return (2,) if codec == 4 else (0, 1, 2)
