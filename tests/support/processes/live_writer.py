"""A writer whose every record says which append brought it, and that tells another process what it does."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import kts

CONFIG = {
    "segment.bytes": 6000,
    "segment.index.bytes": 960,
    "index.interval.bytes": 300,
    "retention.bytes": 30_000,
    "retention.ms": -1,
    "file.delete.delay.ms": 0,
}
NOW_MS = 1_700_000_000_000
Say = Callable[..., None]  # a word and numbers, to whoever watches


class Content(NamedTuple):
    """What a record says of itself in its value."""

    number: int  # of the append
    offset: int
    index: int
    count: int  # records of the append


def content(value: bytes) -> Content:
    return Content(*json.loads(value.rstrip(b" ")))


def record_set(number: int, first_offset: int, rng: random.Random, **options: Any) -> tuple[bytes, int]:
    """A set of records that say where they belong, and how many they are; one batch, unless options differ."""
    count = rng.choice((1, 2, 3, 7))
    values = [json.dumps([number, first_offset + i, i, count]).encode() for i in range(count)]
    columns = {
        "timestamp": [NOW_MS + number] * count,
        "key": [b"%d" % number] * count,
        "value": [value.ljust(rng.choice((20, 100, 300))) for value in values],
    }
    compression = rng.choice(("none", "none", "gzip", "lz4"))
    return kts.encode(columns, **{"compression": compression, "batch_bytes": 1 << 20, **options}), count


def numbers(first: int = 0) -> Iterator[int]:
    """Numbers for appends, which are also their times."""
    while True:
        first += 1
        yield first


def open_log(path: Any, first_ms: int = NOW_MS) -> kts.Log:
    """A writable log with small segments and a clock that only counts."""
    ticks = numbers(first_ms)
    return kts.Log(path, CONFIG, clock=lambda: next(ticks))


def work(log: kts.Log, rng: random.Random, say: Say, number: int, operations: int, follower: bool = False) -> int:
    """Append, flush, roll, retain and truncate; returns the last number used.

    What is said: ``append`` first offset, count, number before it and ``appended`` after it; ``flushed`` end offset;
    ``truncate`` and ``truncated`` offset, where a set of this work begins; ``retain``, ``retained`` start offset.
    A follower appends sets of several batches.
    """
    starts: list[int] = []
    for _ in range(operations):
        what = rng.random()
        if what < 0.75:
            number += 1
            first = log.log_end_offset
            options = {"base_offset": first, "batch_bytes": 150} if follower else {}
            data, count = record_set(number, first, rng, **options)
            say("append", first, count, number)
            (log.append_as_follower if follower else log.append)(data)
            say("appended", first, count, number)
            starts.append(first)
        elif what < 0.87:
            log.flush()
            say("flushed", log.log_end_offset)
        elif what < 0.91:
            log.roll()
        elif what < 0.97 or not starts:
            say("retain", log.log_start_offset)
            log.delete_old_segments()
            say("retained", log.log_start_offset)
        else:
            offset = starts[-min(len(starts), rng.choice((1, 2, 5, 30)))]
            if offset >= log.log_start_offset:
                say("truncate", offset)
                log.truncate_to(offset)
                starts = [start for start in starts if start < offset]
                say("truncated", offset)
    return number
