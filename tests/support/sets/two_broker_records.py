"""Record sets as clients of all generations send them, whole and wrong, for the script that two brokers get."""

from __future__ import annotations

import random
import struct
from typing import Any, NamedTuple

import crc32c

import kts

CODECS = {0: ["none", "gzip", "snappy", "lz4"], 1: ["none", "gzip", "snappy", "lz4"]}
CODECS[2] = [*CODECS[1], "zstd"]
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


class RecordSet(NamedTuple):
    """Bytes, how many records they hold, and whether the broker may keep them as they are."""

    data: bytes
    count: int
    kept: bool


def random_time(rng: random.Random, now: int) -> int:
    """Hours, days or years from now, never minutes: the broker's own clock is told apart by that."""
    some = rng.randrange(-20 * MINUTE, 20 * MINUTE)
    return rng.choice([now - 5 * HOUR + some, now - 5 * HOUR, now - 30 * DAY + some, now + 2 * HOUR + some, 0, 1, -1])


def good_set(rng: random.Random, now: int, version: int) -> RecordSet:
    """What a client of a Produce version sends: magic 0 or 1 before version 3."""
    magic = rng.choice([0, 1, 1]) if version < 3 else 2
    codec = rng.choice(["none", rng.choice(CODECS[magic])])
    if codec == "zstd" and version < 7:
        codec = "lz4"
    count = rng.choice([1, 1, 2, 5])
    return RecordSet(encoded(rng, now, magic, codec, count), count, magic == 2)


def encoded(rng: random.Random, now: int, magic: int, codec: str, count: int, size: int = 60, **more: Any) -> bytes:
    """Random records."""
    records: dict[str, Any] = {
        "key": [rng.choice([None, b"k%d" % rng.randrange(4), b""]) for _ in range(count)],
        "value": [rng.choice([None, b"", rng.randbytes(rng.randrange(size)).hex().encode()]) for _ in range(count)],
    }
    if magic:
        records["timestamp"] = [random_time(rng, now) for _ in range(count)]
    return kts.encode(records, magic=magic, compression=codec, **more)


def resealed(batch: bytes, at: int, part: bytes) -> bytes:
    """A magic 2 batch with other bytes at a place behind its CRC, and the CRC they need."""
    body = batch[21:at] + part + batch[at + len(part) :]
    return batch[:17] + struct.pack(">I", crc32c.crc32c(body)) + body


def bad_set(rng: random.Random, now: int, version: int) -> RecordSet:
    """What a broker must refuse, or take as it is; not null, which 3.9 never answers to."""
    magic = 2 if version >= 3 else rng.choice([0, 1, 2])
    good = encoded(rng, now, magic, "none", 2)
    kinds = ["empty", "cut", "crc", "size", "magic", "two", "other magic", "large", "bytes"]
    if magic == 2:
        kinds += [
            "count",
            "delta",
            "base",
            "attributes",
            "control",
            "transactional",
            "append time",
            "sequence",
            "codec",
        ]
        kinds += ["zstd", "future"]
    kind = rng.choice(kinds)
    data: bytes = {
        "empty": b"",
        "cut": good[: rng.randrange(1, len(good))],
        "crc": good[:-1] + bytes([good[-1] ^ 1]),
        "size": good[:8] + struct.pack(">i", rng.choice([0, -1, 5, 2**30, len(good)])) + good[12:],
        "magic": good[:16] + bytes([rng.choice([3, 127, 255])]) + good[17:],
        "two": good + encoded(rng, now, magic, "gzip", 1),
        "other magic": encoded(rng, now, 1 if magic == 2 else 2, "none", 2),
        "large": encoded(rng, now, magic, "none", 60, 200),
        "bytes": rng.randbytes(rng.randrange(1, 120)),
    }.get(kind, good)
    if magic == 2:
        changes = {
            "count": (57, struct.pack(">i", rng.choice([0, 1, 3, -1]))),
            "delta": (23, struct.pack(">i", rng.choice([0, 5, -1]))),
            "attributes": (21, struct.pack(">h", rng.choice([0x40, 0x80]))),
            "control": (21, struct.pack(">h", 0x20)),
            "transactional": (21, struct.pack(">h", 0x10)),
            "codec": (21, struct.pack(">h", rng.choice([1, 2, 3, 4]))),
            "sequence": (51, struct.pack(">hi", rng.choice([0, -1, -5]), rng.choice([0, 5, -1, -7]))),
            "future": (35, struct.pack(">q", rng.choice([2**62, now + 30 * DAY, -5]))),
        }
        if kind in changes:
            data = resealed(good, *changes[kind])
        elif kind == "base":
            data = struct.pack(">q", rng.choice([5, -1, 2**40])) + good[8:]
        elif kind == "zstd":
            data = encoded(rng, now, 2, "zstd", 2)
    return RecordSet(data, 2, magic == 2)
