"""Random partition directories: every magic, codec and order of times, with the index files a broker would write.

The bytes of the sets are made by ``kts.encode``, what they hold is read by the reference decoder, and the index entries
are written here by the rules in words, slowly: neither of the things under test is its own judge.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.reference import reference

import kts

CODECS = {0: ["none", "gzip", "snappy", "lz4"], 1: ["none", "gzip", "snappy", "lz4"],
          2: ["none", "gzip", "snappy", "lz4", "zstd"]}  # fmt: skip
ORDERS = ("rising", "rising", "near", "wild", "equal", "few", "none", "mostly none", "falling", "negative")
INDEXES = ("all", "all", "all", "preallocated", "none", "no time index", "empty time index")
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Shape:
    """What a random log is made of; printed when a test fails."""

    magics: tuple[int, ...]
    order: str
    append_time: float  # share of sets with LogAppendTime
    gaps: bool  # offsets that the cleaner removed
    sets: int
    roll: float  # chance of a new segment before a set
    interval: int  # index.interval.bytes
    per_batch: bool  # one index entry a batch (3.9.2) or a set (0.10.2)
    indexes: str
    first_offset: int
    tail: str  # what lies behind the last whole entry

    @property
    def generation(self) -> str:
        return "3.9" if self.per_batch else "0.10.2"


def shape(rng: random.Random, *, orders: tuple[str, ...] = ORDERS, sets: tuple[int, int] = (15, 60)) -> Shape:
    """A random shape."""
    magics = rng.choice([(0,), (1,), (2,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
    return Shape(
        magics=magics,
        order=rng.choice(orders),
        append_time=rng.choice((0, 0, 0.4, 1)),
        gaps=rng.random() < 0.3,
        sets=rng.randint(*sets),
        roll=rng.choice((0, 0.05, 0.2)),
        interval=rng.choice((0, 100, 1000, 4096)),
        per_batch=2 in magics or rng.random() < 0.3,
        indexes=rng.choice(INDEXES),
        first_offset=rng.choice((0, 0, 7, 2**31 - 20, 10**12)),
        tail=rng.choice(("", "", "", "cut", "truncated")),
    )


def times(rng: random.Random, order: str) -> Iterator[int]:
    """Timestamps without end, in one of ORDERS; -1 is none."""
    now = NOW_MS + rng.randrange(10**9)
    few = [now + rng.randrange(10**6) for _ in range(3)]
    for i in range(10**9):
        if order == "rising":
            now += rng.randrange(1000)
            yield now
        elif order == "near":
            yield now + 50 * i + rng.randint(-2000, 2000)
        elif order == "wild":
            yield rng.choice((0, 1, rng.randrange(2 * NOW_MS), rng.randrange(2 * NOW_MS), 2**62, -1))
        elif order == "equal":
            yield now
        elif order == "few":
            yield rng.choice(few)
        elif order == "none":
            yield -1
        elif order == "mostly none":
            yield -1 if rng.random() < 0.9 else now + rng.randint(-1000, 1000)
        elif order == "falling":
            yield now - 17 * i
        else:
            yield rng.choice((-1, rng.randint(-NOW_MS, 1000), rng.randint(-50, 50), -2 - i, -(2**63)))


@dataclass
class RecordSet:
    """One set of entries as one append would bring it, offsets and times in place."""

    data: bytes
    first_offset: int
    last_offset: int
    magic: int


def record_set(
    rng: random.Random, shape: Shape, clock: Iterator[int], first_offset: int, produced: bool = False
) -> RecordSet:
    """A random set that starts at an offset; ``produced`` as a producer sends it, who sets no append times."""
    magic = rng.choice(shape.magics)
    count = rng.choice((1, 1, 2, 3, 5, 8, 20))
    step = (1, 1, 2, 9) if shape.gaps else (1,)
    offsets = [first_offset + (rng.choice((0, 0, 3, 40)) if shape.gaps else 0)]
    while len(offsets) < count:
        offsets.append(offsets[-1] + rng.choice(step))
    stamps = [next(clock) for _ in offsets]
    value = rng.choice((b"", b"v" * 20, rng.randbytes(rng.choice((10, 100, 600)))))
    columns = {
        "offset": offsets,
        "timestamp": stamps,
        "key": [None if rng.random() < 0.2 else b"key-%d" % offset for offset in offsets],
        "value": [None if rng.random() < 0.1 else b"%d:" % offset + value for offset in offsets],
    }
    append_time = not produced and magic > 0 and rng.random() < shape.append_time
    data = kts.encode(
        columns,
        magic=magic,
        compression=rng.choice(CODECS[magic]),
        timestamp_type="LogAppendTime" if append_time else "CreateTime",
        log_append_time_ms=max(next(clock), 0) if append_time else None,
        batch_bytes=2**20 if produced else rng.choice((150, 1000, 16384)),
    )
    return RecordSet(data, offsets[0], offsets[-1], magic)


@dataclass
class IndexWriter:
    """The entries that a broker writes while sets are appended to one segment; see section 5.5 of the rules."""

    base_offset: int
    interval: int
    per_batch: bool
    size: int = 0
    since_entry: int = 0
    largest: int = -1
    offset_of_largest: int = 0
    offset_entries: list[tuple[int, int]] = field(default_factory=list)
    time_entries: list[tuple[int, int]] = field(default_factory=list)

    def append(self, one: RecordSet) -> None:
        headers = reference.scan_batches(one.data)
        for batches in [[header] for header in headers] if self.per_batch else [headers]:
            size = sum(header["sizeInBytes"] for header in batches)
            for header in batches:
                if header["maxTimestamp"] > self.largest:
                    self.largest, self.offset_of_largest = header["maxTimestamp"], header["lastOffset"]
            if self.since_entry > self.interval:
                offset = batches[-1]["lastOffset"] if self.per_batch else one.first_offset
                self.offset_entries.append((offset - self.base_offset, self.size))
                self.maybe_append()
                self.since_entry = 0
            self.size += size
            self.since_entry += size

    def maybe_append(self) -> None:
        if self.largest > (self.time_entries[-1][0] if self.time_entries else -1):
            self.time_entries.append((self.largest, self.offset_of_largest - self.base_offset))

    def offset_index(self) -> bytes:
        return b"".join(struct.pack(">ii", *entry) for entry in self.offset_entries)

    def time_index(self) -> bytes:
        return b"".join(struct.pack(">qi", *entry) for entry in self.time_entries)


@dataclass
class Written:
    """A random log on disk, and all that it holds."""

    path: Path
    shape: Shape
    log_start_offset: int
    records: list[tuple[int, int]]  # (offset, timestamp) from the log start offset on, by the reference decoder


def write(rng: random.Random, path: Path, shape: Shape) -> Written:
    """Write a log of a shape into the directory ``path``, which must not exist yet."""
    path.mkdir(parents=True)
    clock = times(rng, shape.order)
    offset = shape.first_offset
    segments: list[tuple[IndexWriter, bytearray]] = []
    for _ in range(shape.sets):
        if not segments or (segments[-1][1] and rng.random() < shape.roll):
            segments.append((IndexWriter(offset, shape.interval, shape.per_batch), bytearray()))
        one = record_set(rng, shape, clock, offset)
        segments[-1][0].append(one)
        segments[-1][1].extend(one.data)
        offset = one.last_offset + 1
    tail = segments[-1][1]
    if shape.tail == "cut":
        tail.extend(record_set(rng, shape, clock, offset).data[: rng.randrange(1, 17)])
    elif shape.tail == "truncated":  # by a 0.10 broker, which leaves the indexes as they are
        starts = [header["position"] for header in reference.scan_batches(bytes(tail))]
        del tail[rng.choice(starts) :]
    for index, log in segments:
        closed = index is not segments[-1][0]
        if closed or rng.random() < 0.5:
            index.maybe_append()
        _write_segment(path, shape, index, bytes(log), closed)
    written = Written(path, shape, segments[0][0].base_offset, [])
    everything = read_reference(path)
    if everything and rng.random() < 0.4:
        written.log_start_offset = max(written.log_start_offset, rng.choice(everything)[0] + rng.choice((0, 1)))
    written.records = [record for record in everything if record[0] >= written.log_start_offset]
    return written


def _write_segment(path: Path, shape: Shape, index: IndexWriter, log: bytes, closed: bool) -> None:
    stem = path / f"{index.base_offset:020}"
    stem.with_suffix(".log").write_bytes(log)
    if shape.indexes == "none":
        return
    spare = 10 if shape.indexes == "preallocated" and not closed else 0
    stem.with_suffix(".index").write_bytes(index.offset_index() + bytes(8 * spare))
    if shape.indexes != "no time index":
        times_written = b"" if shape.indexes == "empty time index" else index.time_index()
        stem.with_suffix(".timeindex").write_bytes(times_written + bytes(12 * spare))


def read_reference(path: Path) -> list[tuple[int, int]]:
    """(offset, timestamp) of every record in a directory, by the reference decoder."""
    found = []
    for log in sorted(path.glob("*.log")):
        for row in reference.decode(log.read_bytes()):
            found.append((row["offset"], row["timestamp"]))
    return found


def write_log(rng: random.Random, path: Path, shape: Shape) -> tuple[kts.Log, Written]:
    """A log of a shape that kts wrote, as a leader or as a follower, still open; it was truncated and reopened, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    follower = len(shape.magics) > 1 or shape.gaps or rng.random() < 0.5
    ticks = times(rng, "rising")
    config: dict[str, object] = {
        "segment.bytes": rng.choice((20_000, 40_000, 2**20)) if shape.roll else 2**30,
        "segment.index.bytes": rng.choice((240, 9600)),
        "index.interval.bytes": shape.interval,
        "message.timestamp.type": "LogAppendTime" if rng.random() < shape.append_time else "CreateTime",
        "message.format.version": {0: "0.9.0", 1: "0.10.2", 2: "3.0"}[max(shape.magics)],
        "allow.negative.timestamps": shape.order == "negative",
    }

    def opened() -> kts.Log:
        return kts.Log(path, config, generation=shape.generation, clock=lambda: next(ticks))

    log = opened()
    log.truncate_fully_and_start_at(shape.first_offset)
    clock = times(rng, shape.order)
    for _ in range(shape.sets):
        if follower:
            log.append_as_follower(record_set(rng, shape, clock, log.log_end_offset).data)
        else:
            log.append(record_set(rng, shape, clock, 0, produced=True).data)
        if rng.random() < shape.roll:
            log.roll()
        if rng.random() < 0.03:
            log.truncate_to(max(log.log_end_offset - rng.choice((1, 5, 40)), log.log_start_offset))
        if rng.random() < 0.03:
            log.close() if rng.random() < 0.5 else log.abandon()
            log = opened()
    if shape.generation != "0.10.2" and rng.random() < 0.4:
        log.advance_log_start_offset(rng.randint(log.log_start_offset, log.log_end_offset))
    records = [record for record in read_reference(path) if record[0] >= log.log_start_offset]
    return log, Written(path, shape, log.log_start_offset, records)


def set_modified_ms(path: Path, rng: random.Random) -> None:
    """Random modification times for the ``.log`` files, which decide the shipped search where there is no timestamp."""
    for log in path.glob("*.log"):
        os.utime(log, ns=(rng.choice((1, NOW_MS, 2 * NOW_MS)) * 1_000_000,) * 2)
