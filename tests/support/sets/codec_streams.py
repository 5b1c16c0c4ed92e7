"""Odd payloads of each codec, one by one, and what Kafka's Java stream does with them (kafka-clients 3.9.2).

``READ`` and ``REFUSED`` are Kafka's and ours. ``STRICTER`` is read by Kafka, by accident or with data left out, and
refused here. Every case is a batch whose payload holds one record, then (``+ second``) another.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import NamedTuple

import cramjam
import lz4.block
import zstandard
from support.reference.reference_codecs import LZ4_MAGIC, XERIAL_HEADER, XERIAL_MAGIC, lz4_header_checksum, xxh32
from support.sets import generate

READ, REFUSED, STRICTER = "read", "refused", "stricter"
ONE = generate.record(0, 0, generate.Rec(0, 0, b"k", b"v"))
TWO = generate.record(1, 0, generate.Rec(1, 0, b"K", b"V"))


class Case(NamedTuple):
    """A payload, how many records the batch declares, and what becomes of it."""

    name: str
    payload: bytes
    count: int
    verdict: str


# --- gzip ------------------------------------------------------------------------------------------

G1, G2 = gzip.compress(ONE, mtime=0), gzip.compress(TWO, mtime=0)
HEADER = b"\x1f\x8b\x08" + bytes(7)
GZIP = [
    Case("one member", G1, 1, READ),
    Case("two members", G1 + G2, 2, READ),
    Case("two members, one record declared", G1 + G2, 1, REFUSED),
    Case("empty members around", gzip.compress(b"") + G1 + gzip.compress(b""), 1, READ),
    Case("text behind", G1 + b"abc", 1, READ),
    Case("40 bytes of text behind", G1 + b"abcd" * 10, 1, READ),
    Case("zeros behind", G1 + bytes(40), 1, READ),
    Case("a member of bad deflate data behind", G1 + HEADER + b"\xff" * 30, 1, REFUSED),
    Case("a cut member behind", G1 + G2[:-1], 2, REFUSED),
    Case("a cut member behind, one record declared", G1 + G2[:-1], 1, REFUSED),
    Case("18 bytes of a member behind", G1 + G2[:18], 1, READ),
    Case("reserved header flags", G1[:3] + b"\xe0" + G1[4:], 1, READ),
    Case(
        "right header checksum",
        G1[:3] + b"\x02" + G1[4:10] + struct.pack("<H", zlib.crc32(G1[:3] + b"\x02" + G1[4:10]) & 0xFFFF) + G1[10:],
        1,
        READ,
    ),
    Case("wrong header checksum", G1[:3] + b"\x02" + G1[4:10] + b"zz" + G1[10:], 1, REFUSED),
    Case("extra field beyond the end", G1[:3] + b"\x04" + G1[4:10] + b"\xff\xff" + G1[10:], 1, REFUSED),
    Case("method other than deflate", G1[:2] + b"\x07" + G1[3:], 1, REFUSED),
    Case("wrong CRC", G1[:-8] + b"abcd" + G1[-4:], 1, REFUSED),
    Case("wrong size", G1[:-4] + b"abcd", 1, REFUSED),
    Case("cut trailer", G1[:-1], 1, REFUSED),
    Case("cut header", G1[:9], 1, REFUSED),
    Case("zlib instead", zlib.compress(ONE), 1, REFUSED),
    Case("nothing", b"", 1, REFUSED),
]

# --- snappy ----------------------------------------------------------------------------------------


def raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def chunks(*blocks: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(block)) + block for block in blocks)


S1, S2 = chunks(raw(ONE)), chunks(raw(TWO))
OLD = XERIAL_MAGIC + bytes(8)
SNAPPY = [
    Case("one chunk", XERIAL_HEADER + S1, 1, READ),
    Case("record over two chunks", XERIAL_HEADER + chunks(raw(ONE[:3]), raw(ONE[3:])), 1, READ),
    Case("chunks of nothing", XERIAL_HEADER + chunks(b"\0") + S1 + chunks(b"\0"), 1, READ),
    Case("three bytes behind", XERIAL_HEADER + S1 + b"abc", 1, READ),
    Case("a chunk length behind", XERIAL_HEADER + S1 + b"\0\0\0\x09", 1, REFUSED),
    Case("two streams", XERIAL_HEADER + S1 + XERIAL_HEADER + S2, 2, READ),
    Case("second stream of version 0", XERIAL_HEADER + S1 + OLD + S2, 2, REFUSED),
    Case("first stream of version 0", OLD + S1, 1, READ),
    Case("second header cut", XERIAL_HEADER + S1 + XERIAL_HEADER[:15], 1, REFUSED),
    Case("second header of another name", XERIAL_HEADER + S1 + b"\x82SNAxxx\0" + bytes(8) + S2, 2, STRICTER),
    Case("chunk length 0", XERIAL_HEADER + chunks(b"") + S1, 1, REFUSED),
    Case("chunk length -1", XERIAL_HEADER + S1 + b"\xff" * 4, 1, REFUSED),
    Case("cut chunk", XERIAL_HEADER + S1[:-1], 1, REFUSED),
    Case("only the header", XERIAL_HEADER, 1, REFUSED),
    Case("raw", raw(ONE), 1, READ),
    Case("raw with a byte behind", raw(ONE) + b"a", 1, REFUSED),
    Case("raw, longer length", b"\x8a\x00" + raw(ONE)[1:] if raw(ONE)[0] == 10 else raw(ONE), 1, READ),
    Case("nothing", b"", 1, REFUSED),
]

# --- lz4 -------------------------------------------------------------------------------------------


def frame(*blocks: bytes, flags: int = 0x60, descriptor: int = 0x40, size: bytes = b"", check: int | None = None,
          end: bytes = bytes(4)) -> bytes:  # fmt: skip
    head = bytes([flags, descriptor]) + size
    check = lz4_header_checksum(head) if check is None else check
    return LZ4_MAGIC + head + bytes([check]) + b"".join(blocks) + end


def stored(data: bytes) -> bytes:
    return struct.pack("<I", len(data) | 1 << 31) + data


def packed(block: bytes) -> bytes:
    return struct.pack("<I", len(block)) + block


L1 = stored(ONE)
LZ4 = [
    Case("stored block", frame(L1), 1, READ),
    Case("compressed block", frame(packed(lz4.block.compress(ONE, store_size=False))), 1, READ),
    Case("two blocks", frame(stored(ONE[:4]), stored(ONE[4:])), 1, READ),
    Case("text behind", frame(L1) + b"abcdef", 1, READ),
    Case("another frame behind", frame(L1) + frame(stored(TWO)), 1, STRICTER),
    Case("two frames for two records", frame(L1) + frame(stored(TWO)), 2, REFUSED),
    Case("no end mark", frame(L1, end=b""), 1, REFUSED),
    Case("end mark with the high bit", frame(L1, end=b"\0\0\0\x80"), 1, READ),
    Case("content checksum missing", frame(L1, flags=0x64), 1, REFUSED),
    Case("content checksum wrong", frame(L1, flags=0x64) + b"abcd", 1, READ),
    Case("content size wrong", frame(L1, flags=0x68, size=b"\xff" * 8), 1, READ),
    Case("block checksum right", frame(L1 + struct.pack("<I", xxh32(ONE)), flags=0x70), 1, READ),
    Case("block checksum wrong", frame(L1 + b"abcd", flags=0x70), 1, REFUSED),
    Case("header checksum wrong", frame(L1, check=0), 1, REFUSED),
    Case("dependent blocks", frame(L1, flags=0x40), 1, REFUSED),
    Case("version 2", frame(L1, flags=0xA0), 1, REFUSED),
    Case("dictionary id", frame(L1, flags=0x61, size=b"abcd"), 1, REFUSED),
    Case("reserved descriptor bits", frame(L1, descriptor=0x41), 1, REFUSED),
    Case("block size code 3", frame(L1, descriptor=0x30), 1, REFUSED),
    Case("block larger than the code says", frame(stored(bytes(65537))), 1, REFUSED),
    Case("block of nothing at the end", frame(L1, packed(b"\0")), 1, STRICTER),
    Case("block of nothing in the middle", frame(L1, packed(b"\0"), stored(TWO)), 2, REFUSED),
    Case("only the header", frame(end=b""), 1, REFUSED),
    Case("other magic number", b"\x02" + frame(L1)[1:], 1, REFUSED),
    Case("nothing", b"", 1, REFUSED),
]

# --- zstd ------------------------------------------------------------------------------------------

Z1, Z2 = zstandard.compress(ONE), zstandard.compress(TWO)
CHECKED = zstandard.ZstdCompressor(write_checksum=True).compress(ONE)
SKIPPABLE = struct.pack("<II", 0x184D2A50, 3) + b"abc"
ZSTD = [
    Case("one frame", Z1, 1, READ),
    Case("two frames", Z1 + Z2, 2, READ),
    Case("two frames, one record declared", Z1 + Z2, 1, REFUSED),
    Case("skippable frames around", SKIPPABLE + Z1 + SKIPPABLE, 1, READ),
    Case("cut skippable frame behind", Z1 + SKIPPABLE[:-1], 1, STRICTER),
    Case("first byte of a frame behind", Z1 + b"\x28", 1, STRICTER),
    Case("another byte behind", Z1 + b"a", 1, REFUSED),
    Case("text behind", Z1 + b"abcd", 1, REFUSED),
    Case("a cut frame behind", Z1 + Z2[:-1], 2, REFUSED),
    Case("the header of a frame behind", Z1 + Z2[:5], 1, STRICTER),
    Case("content checksum right", CHECKED, 1, READ),
    Case("content checksum wrong", CHECKED[:-1] + bytes([CHECKED[-1] ^ 1]), 1, REFUSED),
    Case("content size wrong", Z1[:5] + bytes([Z1[5] + 1]) + Z1[6:], 1, REFUSED),
    Case("cut frame", Z1[:-1], 1, REFUSED),
    Case("nothing", b"", 1, REFUSED),
]

TABLES = {"gzip": (1, GZIP), "snappy": (2, SNAPPY), "lz4": (3, LZ4), "zstd": (4, ZSTD)}


def batch_of(codec: int, case: Case) -> bytes:
    """The batch that carries the payload."""
    return generate.batch(case.payload, case.count, attributes=codec, last_delta=case.count - 1)
