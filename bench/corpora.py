"""Seeded record sets to decode: realistic JSON values in 16 KiB batches, built by aiokafka, compressed as Java does."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import cramjam
import crc32c
import lz4.frame
import zstandard
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

BATCH_BYTES = 16384
SIZES = ("tiny", "100 B", "1 KB")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000
V2_HEADER, LEGACY_HEADER = 61, 12  # bytes before the records; before a message's CRC
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


@dataclass(frozen=True)
class Corpus:
    """One record set and what is needed to walk it without any decoder."""

    magic: int
    codec: str
    size: str
    data: bytes
    entries: list[tuple[int, int]]  # (position, size) of every batch, wrapper or run of single messages
    counts: list[int]  # of records in each of them

    @cached_property
    def records(self) -> int:
        return sum(self.counts)

    @property
    def name(self) -> str:
        return f"v{self.magic} {self.codec} {self.size}"

    def front(self, most_bytes: int) -> Corpus:
        """The whole entries within the first `most_bytes`, at least one; for slow peers."""
        kept = [entry for entry in self.entries if sum(entry) <= most_bytes] or self.entries[:1]
        return Corpus(self.magic, self.codec, self.size, self.data[: sum(kept[-1])], kept, self.counts[: len(kept)])


def values(size: str, rng: random.Random) -> Iterator[bytes]:
    """Endless values of about that size: digits, or JSON with fields that repeat as they do in real topics."""
    cities = ["Berlin", "Nairobi", "Osaka", "Lima", "Toronto", "Pune"]
    words = "order shipped paid address invoice customer refund parcel express return gift store online".split()
    while True:
        number = rng.randrange(10**9)
        if size == "tiny":
            yield b"%010d" % number
            continue
        line = f'{{"id":{number},"city":"{cities[number % 6]}","amount":{number % 99999 / 100},"paid":true'
        line += f',"sku":"{number * 7919 % 10**12:012d}"'
        if size == "1 KB":
            note = " ".join(rng.choices(words, k=110))
            line += f',"note":"{note}","trace":"{rng.getrandbits(256):064x}"'
        yield (line + "}").encode()


@dataclass(frozen=True)
class Shape:
    """How records are put into batches."""

    batch_bytes: int = BATCH_BYTES  # most uncompressed bytes of a batch
    batch_records: int = 2**31 - 1  # most records of a batch
    headers: bool = False  # two or three of them in every record; magic 2 only


DEFAULT_SHAPE = Shape()


def some_headers(rng: random.Random) -> list[tuple[str, bytes]]:
    """Two or three, such as tracing and schema tools add."""
    made = [("trace-id", b"%032x" % rng.getrandbits(128)), ("content-type", b"application/json")]
    return made + [("schema-id", b"%d" % rng.randrange(1000))] * rng.randrange(2)


def plain_batches(
    magic: int, size: str, total_bytes: int, seed: int, shape: Shape
) -> Iterator[tuple[bytearray, int, int]]:
    """Uncompressed batches as (bytes, first offset, records); legacy ones are runs of single messages."""
    rng, extra = random.Random(f"{seed} {size}"), random.Random(seed)
    source, offset, made, value = values(size, rng), 0, 0, b""
    while made < total_bytes:
        first = offset
        if magic == 2:
            builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, shape.batch_bytes)
        else:
            builder = LegacyRecordBatchBuilder(magic, 0, shape.batch_bytes)
        while offset - first < shape.batch_records:
            key = b"user-%d" % rng.randrange(1000, 10**8)
            value = value or next(source)
            timestamp = START_MS + offset
            if magic == 2:
                headers = some_headers(extra) if shape.headers else []
                taken = builder.append(offset - first, timestamp, key, value, headers)
            else:
                taken = builder.append(offset, timestamp, key, value)
            if taken is None:
                break
            offset, value = offset + 1, b""
        batch = builder.build()
        made += len(batch)
        yield batch, first, offset - first


@lru_cache(1)
def kept_batches(magic: int, size: str, total_bytes: int, seed: int, shape: Shape) -> list[tuple[bytearray, int, int]]:
    """The last ones are kept: corpora that differ in the codec alone have the same records."""
    return list(plain_batches(magic, size, total_bytes, seed, shape))


def _snappy(payload: bytes) -> bytes:
    """Blocks of 32 KiB in the framing of snappy-java."""
    framed = [XERIAL]
    for start in range(0, len(payload), 32768):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + 32768]))
        framed += [struct.pack(">i", len(block)), block]
    return b"".join(framed)


def _gzip(payload: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(payload) + packer.flush()


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": lambda payload: lz4.frame.compress(
        payload, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    ),
    # zstd-jni streams, so its frames do not say how large the content is.
    "zstd": zstandard.ZstdCompressor(level=3, write_content_size=False).compress,
}


def compressed_batch(batch: bytearray, codec: str) -> bytes:
    """The same batch of magic 2 with its records compressed."""
    body = bytearray(batch[21:V2_HEADER])
    body[1] |= CODECS.index(codec)
    body += COMPRESSORS[codec](bytes(batch[V2_HEADER:]))
    head = bytearray(batch[:21])
    struct.pack_into(">i", head, 8, len(body) + 9)
    struct.pack_into(">I", head, 17, crc32c.crc32c(bytes(body)))
    return bytes(head + body)


def wrapper_message(messages: bytearray, first: int, count: int, codec: str) -> bytes:
    """One compressed message of magic 1 around these, with relative inner offsets."""
    inner, position = bytearray(messages), 0
    for relative in range(count):
        struct.pack_into(">q", inner, position, relative)
        position += LEGACY_HEADER + struct.unpack_from(">i", inner, position + 8)[0]
    value = COMPRESSORS[codec](bytes(inner))
    body = struct.pack(">bbqii", 1, CODECS.index(codec), START_MS + first + count - 1, -1, len(value)) + value
    return struct.pack(">qiI", first + count - 1, len(body) + 4, zlib.crc32(body)) + body


def corpora(
    magic: int, size: str, codecs: list[str], total_bytes: int, seed: int, shape: Shape = DEFAULT_SHAPE
) -> Iterator[Corpus]:
    """The same records once for each codec."""
    batches = kept_batches(magic, size, total_bytes, seed, shape)
    counts = [count for _, _, count in batches]
    for codec in codecs:
        data, entries = bytearray(), []
        for batch, first, count in batches:
            if magic == 2:
                piece = bytearray(batch if codec == "none" else compressed_batch(batch, codec))
                struct.pack_into(">q", piece, 0, first)  # not covered by the CRC
            else:
                piece = batch if codec == "none" else bytearray(wrapper_message(batch, first, count, codec))
            entries.append((len(data), len(piece)))
            data += piece
        yield Corpus(magic, codec, size, bytes(data), entries, counts)
