"""Topics for brokers to open: their settings, and the record sets that kts appends to them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import kts

T = 1_600_000_000_000
HOUR = 3_600_000
SMALL = {"segment.bytes": 3000, "segment.index.bytes": 4096}
Times = Callable[[random.Random, int, int], int]  # random numbers, the set's number, the record's number in it


class Scenario(NamedTuple):
    """One topic; the names say what is special."""

    name: str
    configs: dict[str, Any]
    sets: list[bytes]
    then: str = ""  # what else is done to the log before it is closed


def rising(_: random.Random, number: int, record: int) -> int:
    return T + number * 60_000 + record * 1000


def shuffled(rng: random.Random, number: int, record: int) -> int:
    return T + number * 60_000 + rng.randrange(-HOUR, HOUR)


def none(_: random.Random, number: int, record: int) -> int:
    return -1


def none_first(rng: random.Random, number: int, record: int) -> int:
    return -1 if number < 40 else rising(rng, number, record)


def some(rng: random.Random, number: int, record: int) -> int:
    return rng.choice([-1, rising(rng, number, record), rng.randrange(T, T + HOUR)])


def record_sets(rng: random.Random, magic: int, times: Times, codecs: str = "none", count: int = 80) -> list[bytes]:
    """Sets of 1 to 6 records each, offsets from 0 as a producer writes them."""
    return [a_set(rng, magic, times, rng.choice(codecs.split()), number) for number in range(count)]


def a_set(rng: random.Random, magic: int, times: Times, codec: str, number: int) -> bytes:
    size = rng.randint(1, 6)
    rows: dict[str, list[Any]] = {
        "timestamp": [times(rng, number, record) for record in range(size)],
        "key": [rng.choice([None, b"", rng.randbytes(5)]) for _ in range(size)],
        "value": [rng.choice([None, b"", rng.randbytes(9), bytes(60)]) for _ in range(size)],
    }
    if magic == 2:
        choices = [None, [], [("h", b"x"), ("h", None), ("ü", b"")]]
        rows["headers"] = [rng.choice(choices) for _ in range(size)]
    return kts.encode(rows, magic=magic, compression=codec)


def legacy(rng: random.Random) -> list[Scenario]:
    """For brokers whose format is magic 1, or 0 where a topic asks for it."""
    every = {**SMALL, "index.interval.bytes": 0}
    lat = {"message.timestamp.type": "LogAppendTime"}
    soon = {"file.delete.delay.ms": 0}
    retained = every | soon | {"retention.bytes": 4000}
    full = {"segment.index.bytes": 60, "index.interval.bytes": 0}
    return [
        Scenario("v1-plain", {**SMALL, "index.interval.bytes": 300}, record_sets(rng, 1, rising)),
        Scenario("v1-every-set-indexed", every, record_sets(rng, 1, shuffled)),
        Scenario("v1-defaults", {}, record_sets(rng, 1, shuffled)),
        Scenario("v1-codecs", every, record_sets(rng, 1, shuffled, "none gzip snappy lz4")),
        Scenario("v1-append-time", every | lat, record_sets(rng, 1, shuffled)),
        Scenario("v1-append-time-codecs", every | lat, record_sets(rng, 1, shuffled, "gzip snappy lz4")),
        Scenario("v1-no-times", every, record_sets(rng, 1, none)),
        Scenario("v1-no-times-first", every, record_sets(rng, 1, none_first)),
        Scenario("v1-some-times", every, record_sets(rng, 1, some, "none lz4")),
        Scenario("v1-full-indexes", full, record_sets(rng, 1, rising)),
        Scenario("v1-hours", {"segment.ms": HOUR // 4, "index.interval.bytes": 100}, record_sets(rng, 1, shuffled)),
        Scenario("v1-recompressed", every | {"compression.type": "gzip"}, record_sets(rng, 1, rising, "none lz4")),
        Scenario("v1-from-v0", every, record_sets(rng, 0, none, "none gzip")),
        Scenario("v1-truncated", every | soon, record_sets(rng, 1, shuffled), then="truncate"),
        Scenario("v1-retained", retained, record_sets(rng, 1, shuffled), then="retain"),
        Scenario("v1-rolled-last", every, record_sets(rng, 1, shuffled), then="roll"),
        Scenario("v1-never-written", every, []),
        Scenario("v0-plain", every | {"message.format.version": "0.9.0"}, record_sets(rng, 0, none)),
        Scenario("v0-codecs", every | {"message.format.version": "0.9.0"}, record_sets(rng, 0, none, "gzip snappy")),
        Scenario("v0-from-v1", every | {"message.format.version": "0.9.0"}, record_sets(rng, 1, rising, "none gzip")),
    ]


def batches(rng: random.Random) -> list[Scenario]:
    """For brokers whose format is magic 2."""
    every = {**SMALL, "index.interval.bytes": 0}
    lat = {"message.timestamp.type": "LogAppendTime"}
    soon = {"file.delete.delay.ms": 0}
    retained = every | soon | {"retention.bytes": 4000}
    full = {"segment.index.bytes": 60, "index.interval.bytes": 0}
    codecs = "none gzip snappy lz4 zstd"
    return [
        Scenario("v2-plain", {**SMALL, "index.interval.bytes": 300}, record_sets(rng, 2, rising)),
        Scenario("v2-every-batch-indexed", every, record_sets(rng, 2, shuffled)),
        Scenario("v2-defaults", {}, record_sets(rng, 2, shuffled)),
        Scenario("v2-codecs", every, record_sets(rng, 2, shuffled, codecs)),
        Scenario("v2-append-time", every | lat, record_sets(rng, 2, shuffled, codecs)),
        Scenario("v2-no-times", every, record_sets(rng, 2, none)),
        Scenario("v2-no-times-first", every, record_sets(rng, 2, none_first)),
        Scenario("v2-some-times", every, record_sets(rng, 2, some, "none lz4")),
        Scenario("v2-full-indexes", full, record_sets(rng, 2, rising)),
        Scenario("v2-hours", {"segment.ms": HOUR // 4, "index.interval.bytes": 100}, record_sets(rng, 2, shuffled)),
        Scenario("v2-recompressed", every | {"compression.type": "zstd"}, record_sets(rng, 2, rising, "none lz4")),
        Scenario("v2-from-v1", every, record_sets(rng, 1, shuffled, "none gzip")),
        Scenario("v2-truncated", every | soon, record_sets(rng, 2, shuffled), then="truncate"),
        Scenario("v2-retained", retained, record_sets(rng, 2, shuffled), then="retain"),
        Scenario("v2-start-moved", every, record_sets(rng, 2, shuffled), then="move start"),
        Scenario("v2-rolled-last", every, record_sets(rng, 2, shuffled), then="roll"),
        Scenario("v2-never-written", every, []),
    ]
