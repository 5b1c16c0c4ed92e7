"""Sets of entries for segments, what a log passes on of them, and a plain walk over the entries of a log."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any, NamedTuple

import kts
from kts.segment.log_segment import LogSegment

START_MS = 1_500_000_000_000


class Entry(NamedTuple):
    """One shallow entry, found without kts."""

    position: int
    size: int
    magic: int
    offset: int  # of the last record, or of the message
    time: int


def walk(log: bytes) -> list[Entry]:
    """The whole entries of a log."""
    found, position = [], 0
    while position + 26 <= len(log):
        offset, size, magic = struct.unpack_from(">qi4xb", log, position)
        size += 12
        if size < 26 or position + size > len(log):
            break
        time = -1
        if magic == 2:
            delta, time = struct.unpack_from(">i8xq", log, position + 23)
            offset += delta
        elif magic == 1:
            [time] = struct.unpack_from(">q", log, position + 18)
        found.append(Entry(position, size, magic, offset, time))
        position += size
    return found


class Appended(NamedTuple):
    """A set, as a log hands it to its active segment."""

    records: bytes
    first: int
    last: int
    time: int
    time_offset: int

    def to(self, segment: LogSegment) -> None:
        segment.append(self.records, self.first, self.last, self.time, self.time_offset)


def appended(records: bytes) -> Appended:
    """What a log passes on of a set: the greatest header timestamp, and the shallow offset that has it first."""
    entries = walk(records)
    time = max(entry.time for entry in entries)
    reached = next(entry.offset for entry in entries if entry.time == time)
    offsets = kts.decode(records[: entries[0].size], ["offset"]).column(0).to_pylist()
    first = offsets[0] if offsets else entries[0].offset
    return Appended(records, first, entries[-1].offset, time, reached)


def made_set(
    rng: random.Random, magic: int, offset: int, count: int, time: int, spread: int = 500, **how: Any
) -> bytes:
    """Encoded records from an offset on, at random times around one."""
    table = {
        "timestamp": [time + rng.randrange(-spread, spread + 1) for _ in range(count)],
        "value": [rng.randbytes(rng.randrange(1, 300)) for _ in range(count)],
    }
    if magic == 0:
        del table["timestamp"]
    return bytes(kts.encode(table, magic=magic, base_offset=offset, **how))


def index_bytes(path: str | Path) -> tuple[bytes, bytes]:
    """The bytes of both index files beside a log."""
    stem = str(path).removesuffix(".log")
    return Path(f"{stem}.index").read_bytes(), Path(f"{stem}.timeindex").read_bytes()
