"""Seeded random Kafka bytes: record batches, messages and wrapper messages of every magic, codec and shape.

Built from struct and compression libraries alone, so that neither the codec nor the reference decoder is its own judge.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import cramjam
import crc32c
import lz4.block
import zstandard
from support.reference.reference_codecs import LZ4_MAGIC, XERIAL_HEADER, lz4_header_checksum, xxh32

I64 = 2**63
TIMES = (-1, -1, 0, 1, 1_500_000_000_000, 1_700_000_123_456, 253402300799999, -2, -62135596800000, 2**62, -I64, I64 - 1)
OFFSETS = (0, 0, 1, 7, 100, 2**31 - 2, 2**31, 2**40, 2**62, I64 - 100_000)
LENGTHS = (0, 1, 1, 2, 3, 8, 17, 60, 63, 64, 65, 130)
NAMES = ("", "h", "trace-id", "ключ", "\U0001f600", "a" * 70)


class Rec(NamedTuple):
    """What a record carries."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()


def wrap(value: int, bits: int = 64) -> int:
    """Two's complement, as Java's arithmetic."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


# --- pieces ----------------------------------------------------------------------------------------


def varint(value: int, pad: int = 0) -> bytes:
    """Zig-zag varint; ``pad`` adds needless groups of zero."""
    return plain_varint(((value << 1) ^ (value >> 63)) & ((1 << 64) - 1), pad)


def plain_varint(raw: int, pad: int = 0) -> bytes:
    """Varint of an unsigned number."""
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    for _ in range(pad):
        out[-1] |= 128
        out.append(0)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(delta_offset: int, delta_time: int, rec: Rec, attributes: int = 0, pad: int = 0) -> bytes:
    """A magic 2 record."""
    body = bytes([attributes]) + varint(delta_time) + varint(delta_offset, pad) + sized(rec.key) + sized(rec.value)
    body += varint(len(rec.headers)) + b"".join(sized(name) + sized(value) for name, value in rec.headers)
    return varint(len(body)) + body


def batch(
    payload: bytes,
    count: int,
    *,
    base: int = 0,
    last_delta: int = 0,
    attributes: int = 0,
    base_time: int = 0,
    max_time: int = 0,
    pid: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    leader_epoch: int = -1,
) -> bytes:
    """A magic 2 batch around the bytes of its records."""
    body = struct.pack(">hiqqqhii", attributes, last_delta, base_time, max_time, pid, epoch, sequence, count) + payload
    return struct.pack(">qiibI", base, len(body) + 9, leader_epoch, 2, crc32c.crc32c(body)) + body


def message(offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    """A magic 0 or 1 entry."""
    body = struct.pack(">bb", magic, wrap(attributes, 8)) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


# --- codecs ----------------------------------------------------------------------------------------


def split(rng: random.Random, data: bytes, most: int = 4) -> list[bytes]:
    """The data in a few pieces, some perhaps empty."""
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randrange(most)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def gzip_member(rng: random.Random, data: bytes) -> bytes:
    flags = rng.choice((0, 0, 0, 4, 8, 16, 2, 30, 0xE1))
    header = b"\x1f\x8b\x08" + bytes([flags]) + rng.randbytes(6)
    if flags & 4:
        extra = rng.randbytes(rng.randrange(5))
        header += struct.pack("<H", len(extra)) + extra
    header += b"name\0" * (flags >> 3 & 1) + b"a comment\0" * (flags >> 4 & 1)
    if flags & 2:
        header += struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    engine = zlib.compressobj(rng.choice((0, 1, 6, 9)), zlib.DEFLATED, -15)
    return header + engine.compress(data) + engine.flush() + struct.pack("<II", zlib.crc32(data), len(data))


def gzip(rng: random.Random, data: bytes) -> bytes:
    pieces = split(rng, data) if rng.random() < 0.3 else [data]
    return b"".join(gzip_member(rng, piece) for piece in pieces) + rng.choice((b"", b"", b"", b"tail", bytes(30)))


def snappy(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.25:
        return bytes(cramjam.snappy.compress_raw(data))
    out = bytearray(XERIAL_HEADER)
    step = rng.choice((7, 40, 1024, 32768))
    for i in range(0, len(data), step):
        chunk = bytes(cramjam.snappy.compress_raw(data[i : i + step]))
        out += struct.pack(">i", len(chunk)) + chunk
        if rng.random() < 0.05:
            out += XERIAL_HEADER
    return bytes(out) + rng.choice((b"", b"", b"", b"\0\0\0"))


def lz4_frame(rng: random.Random, data: bytes, magic: int) -> bytes:
    flags = 0x60 | rng.choice((0, 0, 4)) | rng.choice((0, 0, 8)) | rng.choice((0, 0, 16))
    descriptor = bytes([flags, rng.choice((0x40, 0x40, 0x50, 0x60, 0x70))])
    if flags & 8:
        descriptor += struct.pack("<Q", rng.choice((len(data), 0, 2**64 - 1)))  # nobody looks at it
    check = lz4_header_checksum(descriptor)
    if magic == 0:
        check = rng.choice((lz4_header_checksum(LZ4_MAGIC + descriptor), check, rng.randrange(256)))
    out = LZ4_MAGIC + descriptor + bytes([check])
    most = 1 << (8 + 2 * (descriptor[1] >> 4))
    pieces = split(rng, data) if rng.random() < 0.3 else [data]
    for piece in [part[i : i + most] for part in pieces for i in range(0, len(part), most)]:
        block = lz4.block.compress(piece, store_size=False)
        stored = len(block) >= len(piece) or rng.random() < 0.1
        block = piece if stored else block
        out += struct.pack("<I", len(block) | stored << 31) + block
        if flags & 16:
            out += struct.pack("<I", xxh32(block))
    out += rng.choice((b"\0\0\0\0", b"\0\0\0\0", b"\0\0\0\x80"))
    if flags & 4:
        out += rng.choice((struct.pack("<I", xxh32(data)), b"none"))  # not compared
    return out + rng.choice((b"", b"", b"", b"tail"))


def zstd(rng: random.Random, data: bytes) -> bytes:
    out = b""
    for piece in split(rng, data) if rng.random() < 0.3 else [data]:
        engine = zstandard.ZstdCompressor(
            level=rng.choice((1, 3, 9)), write_checksum=rng.random() < 0.5, write_content_size=rng.random() < 0.5
        )
        if rng.random() < 0.1:
            out += struct.pack("<II", 0x184D2A50 + rng.randrange(16), 3) + b"xyz"  # a skippable frame
        stream = engine.compressobj()
        out += stream.compress(piece) + stream.flush()
    return out


def compress(rng: random.Random, codec: int, magic: int, data: bytes) -> bytes:
    if codec == 3:
        return lz4_frame(rng, data, magic)
    return {1: gzip, 2: snappy, 4: zstd}[codec](rng, data)


# --- shapes ----------------------------------------------------------------------------------------


def blob(rng: random.Random, null: float = 0.15) -> bytes | None:
    if rng.random() < null:
        return None
    size = rng.choice(LENGTHS) if rng.random() < 0.98 else rng.choice((300, 5000, 9000))
    kind = rng.random()
    if kind < 0.4:
        return rng.randbytes(size)
    return bytes(size) if kind < 0.5 else (b"key and value " * (size // 14 + 1))[:size]


def headers(rng: random.Random) -> list[tuple[bytes, bytes | None]]:
    if rng.random() < 0.7:
        return []
    names = [rng.choice(NAMES).encode() for _ in range(rng.randrange(1, 5))]
    names = [rng.randbytes(3) + b"\xed\xa0\x80" if rng.random() < 0.05 else name for name in names]
    return [(name, blob(rng, 0.3)) for name in names]


def recs(rng: random.Random, count: int) -> list[Rec]:
    """Records with rising offsets, sometimes with the gaps that compaction leaves."""
    offset = rng.choice(OFFSETS)
    gaps = rng.random() < 0.3
    near = rng.choice(TIMES)
    out = []
    for _ in range(count):
        if rng.random() < 0.05:
            time = rng.choice(TIMES)
        else:
            time = wrap(near + rng.choice((0, 0, 1, -1, 1000, -1000, 2**31, -(2**33))))
        out.append(Rec(offset, time, blob(rng), blob(rng), headers(rng)))
        offset += rng.choice((1, 2, 9, 130)) if gaps else 1
    return out


def random_batch(rng: random.Random) -> bytes:
    """A magic 2 batch."""
    codec = rng.randrange(5)
    many = recs(rng, rng.choice((0, 1, 1, 2, 3, 5, 8)) if rng.random() < 0.99 else 70)
    base = many[0].offset - rng.choice((0, 0, 0, 1, 5)) if many else rng.choice(OFFSETS)
    base = wrap(base)
    base_time = many[0].timestamp if many and rng.random() < 0.9 else rng.choice(TIMES)
    flags = rng.choice((0, 0, 0, 8)) | rng.choice((0, 0, 0, 16, 32, 48)) | rng.choice((0, 0, 64, 0x180, -0x8000))
    payload = b"".join(
        record(
            wrap(rec.offset - base, 32),
            wrap(rec.timestamp - base_time),
            rec,
            rng.choice((0, 0, 0, 255)),
            pad=1 if rng.random() < 0.02 else 0,
        )
        for rec in many
    )
    if codec and (many or rng.random() < 0.5):
        payload = compress(rng, codec, 2, payload)
    last = wrap(many[-1].offset - base, 32) + rng.choice((0, 0, 3)) if many else rng.choice((0, 4, 2**31 - 1, -1))
    return batch(
        payload,
        len(many),
        base=base,
        last_delta=last,
        attributes=flags | codec,
        base_time=base_time,
        max_time=rng.choice((max((rec.timestamp for rec in many), default=-1), rng.choice(TIMES))),
        pid=rng.choice((-1, -1, 4000, 2**62)),
        epoch=rng.choice((-1, 0, 5, 2**15 - 1)),
        sequence=rng.choice((-1, -1, 0, 12, 2**31 - 3, -2)),
        leader_epoch=rng.choice((-1, 0, 3, 2**31 - 1)),
    )


def random_messages(rng: random.Random) -> bytes:
    """Plain messages of magic 0 or 1."""
    return b"".join(random_message(rng, rec) for rec in recs(rng, rng.randrange(1, 4)))


def random_message(rng: random.Random, rec: Rec | None = None) -> bytes:
    """A plain message of magic 0 or 1."""
    rec = rec or recs(rng, 1)[0]
    attributes = rng.choice((0, 0, 0, 8, 0x10, 0xF0))
    return message(rec.offset, rng.randrange(2), attributes, rec.timestamp, rec.key, rec.value)


def random_wrapper(rng: random.Random) -> bytes:
    """A wrapper message of magic 0 or 1 with relative, absolute or producer's offsets inside."""
    magic, codec = rng.randrange(2), rng.randrange(1, 4)
    many = recs(rng, rng.choice((1, 1, 2, 3, 6)))
    first = many[0].offset
    style = rng.choice(("relative", "relative", "gap", "absolute", "zero", "shuffled"))
    inner_offsets = [rec.offset - (0 if magic == 0 or style == "absolute" else first) for rec in many]
    if style == "gap":
        inner_offsets = [offset + 3 for offset in inner_offsets]
    if style == "shuffled":
        rng.shuffle(inner_offsets)
    outer_offset = 0 if style == "zero" else max(many[-1].offset, inner_offsets[-1])
    plain = b""
    for offset, rec in zip(inner_offsets, many, strict=True):
        inner_magic = magic if rng.random() < 0.97 else 1 - magic
        plain += message(offset, inner_magic, rng.choice((0, 0, 0, 8)), rec.timestamp, rec.key, rec.value)
    if rng.random() < 0.05:
        plain += message(9, magic, 0, 5, b"cut", b"entry")[: rng.randrange(1, 36)]  # a cut inner tail
    outer_time = rng.choice((max(rec.timestamp for rec in many), rng.choice(TIMES)))
    attributes = codec | rng.choice((0, 0, 0, 8, 0x20))
    key = rng.choice((None, None, None, b"k"))
    return message(outer_offset, magic, attributes, outer_time, key, compress(rng, codec, magic, plain))


def random_entries(rng: random.Random) -> tuple[bytes, int]:
    """(bytes, batches in them): one random batch, wrapper or run of plain messages."""
    kind = rng.random()
    if kind < 0.6:
        return random_batch(rng), 1
    if kind < 0.85:
        return random_wrapper(rng), 1
    return random_messages(rng), 1


def random_buffer(rng: random.Random, most: int = 6) -> tuple[bytes, int]:
    """(bytes, batches in them): a few of them, one after another, sometimes with a cut tail."""
    count = rng.randint(1, most)
    out = b"".join(random_entries(rng)[0] for _ in range(count))
    if rng.random() < 0.15:
        tail = random_entries(rng)[0]
        out += tail[: rng.randrange(min(len(tail), 60))]
    return out, count


# --- damage ----------------------------------------------------------------------------------------


def reseal(buf: bytes) -> bytes:
    """The same bytes with the CRC of every whole entry made right again (as far as sizes still lead to them)."""
    out = bytearray(buf)
    at = 0
    while len(out) - at >= 17:
        size = int.from_bytes(out[at + 8 : at + 12], "big", signed=True)
        end = at + 12 + size
        if size < 14 or end > len(out):
            break
        if out[at + 16] == 2:
            if size >= 49:
                out[at + 17 : at + 21] = struct.pack(">I", crc32c.crc32c(bytes(out[at + 21 : end])))
        else:
            out[at + 12 : at + 16] = struct.pack(">I", zlib.crc32(out[at + 16 : end]))
        at = end
    return bytes(out)


def mutate(rng: random.Random, buf: bytes) -> bytes:
    """One small damage; the CRC is repaired half of the time."""
    out = bytearray(buf)
    at = rng.randrange(len(out))
    how = rng.randrange(5)
    if how == 0:
        out[at] ^= 1 << rng.randrange(8)
    elif how == 1:
        out[at] = rng.choice((0, 1, 127, 128, 255))
    elif how == 2:
        width = rng.choice((1, 2, 4, 8))
        out[at : at + width] = rng.choice((bytes(width), b"\xff" * width, b"\x7f" + b"\xff" * (width - 1)))[
            : len(out) - at
        ]
    elif how == 3:
        del out[at : at + rng.randrange(1, 5)]
    else:
        out[at:at] = rng.randbytes(rng.randrange(1, 5))
    if rng.random() < 0.5:
        return bytes(out)
    return reseal(bytes(out))


def large_entry(rng: random.Random, magic: int, codec: int) -> bytes:
    """A batch or wrapper of some hundred KiB and thousands of records; plain messages for codec 0 below magic 2."""
    words = [rng.randbytes(rng.randrange(1, 40)) for _ in range(60)]

    def text(most: int) -> bytes:
        return b" ".join(rng.choices(words, k=rng.randrange(most))) if rng.random() < 0.9 else rng.randbytes(500 * most)

    many = [
        Rec(2**33 + 2 * i, 1_700_000_000_000 + i, text(2), text(5), [(b"h", text(2))] if i % 7 == 0 else [])
        for i in range(2000)
    ]
    if magic == 2:
        payload = b"".join(record(rec.offset - 2**33, rec.timestamp, rec) for rec in many)
        payload = compress(rng, codec, 2, payload) if codec else payload
        return batch(payload, len(many), base=2**33, last_delta=2 * len(many), attributes=codec)
    plain = b"".join(message(rec.offset, magic, 0, rec.timestamp, rec.key, rec.value) for rec in many)
    if codec == 0:
        return plain
    return message(many[-1].offset, magic, codec, 5, None, compress(rng, codec, magic, plain))
