"""Bytes that are small or sound, but meant to cost a reader much time or memory."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

import lz4.block
import zstandard
from support.golden import scaled
from support.reference import reference_codecs
from support.sets import framings, generate

EMPTY = generate.record(0, 0, generate.Rec(0, 0, None, None))
XERIAL = reference_codecs.XERIAL_HEADER
LZ4_HEAD = framings.lz4_repaired(reference_codecs.LZ4_MAGIC + b"\x60\x40\0")


class Attack(NamedTuple):
    """What is made for a size n, and what must come of it: the rows, or a pattern of the error's words."""

    name: str
    n: int
    make: Callable[[int], bytes]
    rows: int | None  # None: refused
    words: str = ""
    plain: Callable[[int], int] = lambda n: 0  # bytes decompressed, with an object for each gzip member


def one_record(codec: int, payload: bytes, count: int = 1) -> bytes:
    return generate.batch(payload, count, attributes=codec, last_delta=max(0, count - 1))


def empty_records(n: int) -> bytes:
    return one_record(0, EMPTY * n, n)


def zstd_of_empty_records(n: int) -> bytes:
    return one_record(4, zstandard.compress(EMPTY * n), n)


def headers(n: int, name: bytes = b"") -> bytes:
    return one_record(0, generate.record(0, 0, generate.Rec(0, 0, None, None, [(name, None)] * n)))


def headers_in_many_records(n: int) -> bytes:
    return one_record(0, generate.record(0, 0, generate.Rec(0, 0, None, None, [(b"\xff", b"")])) * n, n)


def one_long_key(n: int) -> bytes:
    """Every byte of the header's key becomes three."""
    return headers(1, b"\xff" * n)


def cut_sequences(n: int) -> bytes:
    """Four bytes that promise a fifth: each is one U+FFFD, found after three steps."""
    return headers(1, b"\xf0\x90\x80" * n)


def gzip_members(n: int) -> bytes:
    """The record in the first member, then members of nothing."""
    return one_record(1, gzip.compress(EMPTY, mtime=0) + gzip.compress(b"", mtime=0) * n)


def gzip_members_of_a_byte(n: int) -> bytes:
    value = bytes(n)
    plain = generate.record(0, 0, generate.Rec(0, 0, None, value))
    stored = b"\x1f\x8b\x08" + bytes(7) + b"\x01\1\0\xfe\xff"
    members = {byte: stored + bytes([byte]) + struct.pack("<II", zlib.crc32(bytes([byte])), 1) for byte in range(256)}
    return one_record(1, b"".join(members[byte] for byte in plain))


def gzip_names(n: int) -> bytes:
    """Members whose names have no end until the next member's has one."""
    member = b"\x1f\x8b\x08\x08" + bytes(6) + b"a" * 30 + b"\0\x03\0" + bytes(8)
    return one_record(1, gzip.compress(EMPTY, mtime=0) + member * n + b"\x1f\x8b\x08\x08" + b"a" * n)


def snappy_chunks(n: int) -> bytes:
    block = framings.snappy_block(EMPTY)
    return one_record(2, XERIAL + struct.pack(">i", len(block)) + block + b"\0\0\0\1\0" * n)


def snappy_headers(n: int) -> bytes:
    block = framings.snappy_block(EMPTY)
    return one_record(2, (XERIAL * n) + struct.pack(">i", len(block)) + block)


def lz4_blocks(n: int) -> bytes:
    """A byte a block."""
    plain = generate.record(0, 0, generate.Rec(0, 0, None, bytes(n)))
    return one_record(3, LZ4_HEAD + b"".join(b"\1\0\0\x80" + bytes([byte]) for byte in plain) + bytes(4))


def lz4_claims(n: int) -> bytes:
    """Blocks of a few bytes that could each hold 4 MiB by the header."""
    head = framings.lz4_repaired(reference_codecs.LZ4_MAGIC + b"\x60\x70\0")
    block = lz4.block.compress(b"a", store_size=False)
    plain = generate.record(0, 0, generate.Rec(0, 0, None, b"a" * n))
    start = plain[: len(plain) - n - 1]
    first = struct.pack("<I", len(start) | 1 << 31) + start
    return one_record(3, head + first + (struct.pack("<I", len(block)) + block) * n + b"\1\0\0\x80\0" + bytes(4))


def zstd_frames(n: int) -> bytes:
    return one_record(4, zstandard.compress(EMPTY) + zstandard.compress(b"") * n)


def zstd_blocks(n: int) -> bytes:
    """Blocks of nothing."""
    last = struct.pack("<I", len(EMPTY) << 3 | 1)[:3] + EMPTY
    return one_record(4, b"\x28\xb5\x2f\xfd\0\x50" + bytes(3) * n + last)


def zstd_skippable(n: int) -> bytes:
    return one_record(4, struct.pack("<II", 0x184D2A50, 0) * n + zstandard.compress(EMPTY))


def zstd_claims(n: int) -> bytes:
    """Run-length blocks of 128 KiB, but each frame's window is too small for them."""
    return one_record(4, (b"\x28\xb5\x2f\xfd\0\0" + struct.pack("<I", 131072 << 3 | 3)[:3] + b"a") * n)


def empty_batches(n: int) -> bytes:
    return generate.batch(b"", 0) * n


def tiny_compressed_batches(codec: int) -> Callable[[int], bytes]:
    def make(n: int) -> bytes:
        from support.damage import framing_cases

        return one_record(codec, framing_cases.simple(codec, EMPTY)) * n

    return make


def null_messages(n: int) -> bytes:
    return generate.message(0, 0, 0, 0, None, None) * n


def inner_messages(n: int) -> bytes:
    plain = generate.message(0, 0, 0, 0, None, None) * n
    return generate.message(n, 0, 1, 0, None, zlib.compress(plain, wbits=31))


def nested_wrappers(n: int) -> bytes:
    data = generate.message(0, 1, 0, 0, None, b"v")
    for _ in range(n):
        data = generate.message(0, 1, 1, 0, None, zlib.compress(data, wbits=31))
    return data


def claimed_count(codec: int) -> Callable[[int], bytes]:
    def make(n: int) -> bytes:
        from support.damage import framing_cases

        return generate.batch(framing_cases.simple(codec, EMPTY), 2**31 - 1, attributes=codec)

    return make


def claimed_headers(n: int) -> bytes:
    body = bytes(1) + generate.varint(0) * 2 + generate.varint(-1) * 2 + generate.varint(2**31 - 1)
    return one_record(0, generate.varint(len(body)) + body)


def sound(i: int) -> bytes:
    return generate.message(i, 1, 0, 0, b"k", b"v")


def damaged_messages(n: int) -> bytes:
    """Every entry's CRC is wrong."""
    message = generate.message(0, 1, 0, 0, b"k", b"v")
    return (message[:12] + b"\0\0\0\0" + message[16:]) * n


def damaged_batches(n: int) -> bytes:
    batch = one_record(0, EMPTY)
    return (batch[:17] + b"\0\0\0\0" + batch[21:]) * n


MILLION = 1_000_000
MEMBERS = scaled(100_000, 300_000)  # of gzip, each a decompressor of its own
COUNT = "record count 2147483647 does not fit the 7 bytes of records.*"
ATTACKS = [
    Attack("a million empty records", MILLION, empty_records, MILLION),
    Attack("a million empty records, zstd", MILLION, zstd_of_empty_records, MILLION, plain=lambda n: 7 * n),
    Attack("a million headers", MILLION, headers, 1),
    Attack("a million records with a header", MILLION, headers_in_many_records, MILLION),
    Attack("a header key of 4 MB that is not UTF-8", 4 * MILLION, one_long_key, 1),
    Attack("a header key of a million cut sequences", MILLION, cut_sequences, 1),
    Attack("gzip members of nothing", MEMBERS, gzip_members, 1),
    Attack("gzip members of a byte", MEMBERS, gzip_members_of_a_byte, 1, plain=lambda n: 64 * n),
    Attack("gzip members with names", MEMBERS, gzip_names, 1),
    Attack("snappy chunks of nothing", MILLION, snappy_chunks, 1),
    Attack("snappy headers", MILLION, snappy_headers, 1),
    Attack("lz4 blocks of a byte", MILLION, lz4_blocks, 1, plain=lambda n: n),
    Attack("lz4 blocks that could be large", MILLION, lz4_claims, 1, plain=lambda n: n),
    Attack("zstd frames of nothing", MILLION, zstd_frames, 1),
    Attack("zstd blocks of nothing", MILLION, zstd_blocks, 1),
    Attack("zstd skippable frames", MILLION, zstd_skippable, 1),
    Attack("zstd frames that claim", MILLION, zstd_claims, None, "zstd data is damaged.*|decompressing would pass.*"),
    Attack("empty batches", MILLION // 2, empty_batches, 0),
    *(
        Attack(f"batches of a record, {name}", MILLION // 10, tiny_compressed_batches(codec), MILLION // 10)
        for codec, name in enumerate(reference_codecs.CODEC_NAMES)
    ),
    Attack("messages of nothing", MILLION, null_messages, MILLION),
    Attack("inner messages of nothing", MILLION, inner_messages, MILLION, plain=lambda n: 26 * n),
    Attack("wrappers in wrappers", 100, nested_wrappers, None, "inner message 0: inner message is compressed itself.*"),
    *(
        Attack(f"a claimed count, {name}", 1, claimed_count(codec), None, COUNT)
        for codec, name in enumerate(reference_codecs.CODEC_NAMES)
    ),
    Attack("a claimed header count", 1, claimed_headers, None, ".*header count 2147483647 does not fit.*"),
    Attack("damaged messages", MILLION, damaged_messages, None, "CRC is .*"),
    Attack("damaged batches", MILLION // 2, damaged_batches, None, "CRC is .*"),
]
