"""Scripted lives of a log, run over faultfs, and what is true of the log before and after each call."""

from __future__ import annotations

import os
import random
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import pytest
from support.disk.faultfs import Fault, FaultyOs

import kts
from kts.store import local

PARTITION = "t-0"
START_MS = 1_500_000_000_000


class Kind(NamedTuple):
    """What a topic is like."""

    generation: str
    magic: int
    format: str
    codecs: tuple[str, ...]


KINDS = (
    Kind("0.10.2", 1, "0.10.2", ("none", "gzip", "none", "lz4")),
    Kind("3.9", 2, "3.0", ("none", "zstd", "none", "snappy")),
)


class Entry(NamedTuple):
    """One message, wrapper or batch as it must lie on the disk."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    data: bytes


@dataclass(frozen=True)
class Facts:
    """What is true of a log between two calls."""

    entries: tuple[Entry, ...] = ()  # all that were ever appended and not truncated
    flushed: int = 0  # everything before this offset is on the disk
    start: int = 0  # log start offset
    least_start: int = 0  # where it may be again after a crash: what retention takes may come back
    end: int = 0  # log end offset


class Step(NamedTuple):
    """One call: which operations it made, and the facts before and after."""

    name: str
    begin: int
    end: int
    before: Facts
    after: Facts


def shallow(data: bytes, first_offset: int) -> list[Entry]:
    """The entries of a record set, found by their headers alone; ``first_offset`` is that of the first record."""
    entries, position = [], 0
    while position < len(data):
        base, size = struct.unpack_from(">qi", data, position)
        magic = data[position + 16]
        if magic == 2:
            last = base + struct.unpack_from(">i", data, position + 23)[0]
            time = struct.unpack_from(">q", data, position + 35)[0]
            entry = Entry(base, last, time, data[position : position + 12 + size])
        else:
            time = struct.unpack_from(">q", data, position + 18)[0] if magic else -1
            entry = Entry(first_offset, base, time, data[position : position + 12 + size])
        entries.append(entry)
        first_offset, position = entry.last_offset + 1, position + 12 + size
    return entries


@lru_cache(4096)
def _encoded(times: tuple[int, ...], values: tuple[bytes, ...], magic: int, codec: str, base_offset: int) -> bytes:
    table = {"timestamp": times, "key": [b"%d" % n for n in range(len(times))], "value": values}
    epoch = {"partition_leader_epoch": 0} if magic == 2 else {}
    return kts.encode(table, magic=magic, compression=codec, base_offset=base_offset, **epoch)


@contextmanager
def in_place_of_os(system: Any) -> Iterator[None]:
    """Every file operation of kts goes through ``system``."""
    patch = pytest.MonkeyPatch()
    patch.setattr(local, "os", system)
    try:
        yield
    finally:
        patch.undo()


def quick_directory() -> tempfile.TemporaryDirectory[str]:
    """A temporary directory in memory where there is one."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


@dataclass
class Life:
    """A log that a script drives; each method is one call of ``kts.Log`` and notes what it did."""

    directory: str
    kind: Kind
    settings: dict[str, Any] = field(default_factory=dict)
    fault: Fault | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self.system = FaultyOs(self.directory, self.fault)
        self.random = random.Random(self.seed)
        self.path = os.path.join(self.directory, PARTITION)
        self.facts = Facts()
        self.possible = [self.facts]  # two while a call is under way
        self.name = ""  # of the last call
        self.steps: list[Step] = []
        self.now_ms = START_MS
        self.one_entry = True  # a set is one message, wrapper or batch: live indexes are then those of a rebuild
        self.holed = False  # a truncation inside a batch left an offset without a record
        self.first_offsets: dict[bytes, int] = {}  # of every entry that was ever appended
        self._log: kts.Log | None = None

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @property
    def log(self) -> kts.Log:
        if self._log is None:
            raise RuntimeError("the script did not open the log")
        return self._log

    def clock(self) -> int:
        """Ten ms go by at every look."""
        self.now_ms += 10
        return self.now_ms

    def config(self) -> dict[str, Any]:
        common = {"segment.index.bytes": 240, "index.interval.bytes": 600, "segment.bytes": 1_000_000}
        return common | {"message.format.version": self.kind.format} | self.settings

    @contextmanager
    def _step(self, name: str, wanted: Facts | None = None) -> Iterator[None]:
        begin, before, self.name = len(self.system.trace), self.facts, name
        if wanted is not None:
            self.first_offsets |= {entry.data: entry.first_offset for entry in wanted.entries}
        self.possible = [before] if wanted is None else [before, wanted]
        with in_place_of_os(self.system):
            yield
        self.know(self.possible[-1])
        self.steps.append(Step(name, begin, len(self.system.trace), before, self.facts))

    def know(self, facts: Facts) -> None:
        """That is how it is now."""
        self.facts, self.possible = facts, [facts]

    def open(self) -> None:
        self._log = None
        with self._step("open"):
            self._log = kts.Log(self.path, self.config(), generation=self.kind.generation, clock=self.clock)

    def message_set(self, count: int, value_bytes: int, codec: str) -> tuple[bytes, bytes]:
        """A set as a producer sends it, and as it must be stored."""
        times = tuple(self.now_ms + self.random.randrange(-60, 60) for _ in range(count))
        half = value_bytes // 2
        values = tuple(self.random.randbytes(half) + b"." * half for _ in range(count))
        magic, end = self.kind.magic, self.facts.end
        return _encoded(times, values, magic, codec, 0), _encoded(times, values, magic, codec, end)

    def append(self, count: int = 1, value_bytes: int = 300, codec: str | None = None) -> None:
        codec = self.random.choice(self.kind.codecs) if codec is None else codec
        if codec == "none" and self.kind.magic < 2 and count > 1 and self.one_entry:
            codec = "gzip"
        sent, stored = self.message_set(count, value_bytes, codec)
        entries = self.facts.entries + tuple(shallow(stored, self.facts.end))
        end = entries[-1].last_offset + 1
        at_once = self.settings.get("flush.messages") == 1
        wanted = replace(self.facts, entries=entries, end=end, flushed=end if at_once else self.facts.flushed)
        with self._step(f"append {count} x {value_bytes} {codec}", wanted):
            self.log.append(sent)

    def follow(self, *counts: int) -> None:
        """Append several sets at once as a follower does."""
        entries, stored, facts = self.facts.entries, b"", self.facts
        for count in counts:
            data = self.message_set(count, 200, "none")[1]
            stored += data
            entries += tuple(shallow(data, self.facts.end))
            self.facts = replace(self.facts, end=entries[-1].last_offset + 1)
        self.facts, wanted = facts, replace(self.facts, entries=entries)
        with self._step(f"append as follower {counts}", wanted):
            self.log.append_as_follower(stored)

    def flush(self) -> None:
        with self._step("flush", replace(self.facts, flushed=self.facts.end)):
            self.log.flush()

    def roll(self) -> None:
        with self._step("roll"):
            self.log.roll()

    def retain(self) -> None:
        """Retention; how far it goes is the log's affair, that it goes by whole segments is looked at."""
        with self._step("retain"):
            bases = [segment.base_offset for segment in self.log.segments] + [self.facts.end]
            self.possible += [replace(self.facts, start=base) for base in bases if base > self.facts.start]
            self.log.delete_old_segments()
            start = self.log.log_start_offset
            self.possible = [facts for facts in self.possible if facts.start == start]

    def start_at(self, offset: int) -> None:
        with self._step(f"advance log start offset to {offset}", replace(self.facts, start=offset)):
            self.log.advance_log_start_offset(offset)

    def truncate(self, offset: int) -> None:
        entries = tuple(entry for entry in self.facts.entries if entry.last_offset < offset)
        kept = entries[-1].last_offset + 1 if entries else offset  # a batch that the offset lies in goes as a whole
        flushed = min(self.facts.flushed, kept)
        self.holed |= kept != offset
        with self._step(f"truncate to {offset}", replace(self.facts, entries=entries, end=offset, flushed=flushed)):
            self.log.truncate_to(offset)

    def restart_at(self, offset: int) -> None:
        wanted = Facts(start=offset, least_start=offset, end=offset)
        with self._step(f"truncate fully and start at {offset}", wanted):
            self.log.truncate_fully_and_start_at(offset)

    def close(self) -> None:
        with self._step("close", replace(self.facts, flushed=self.facts.end)):
            self.log.close()

    def drop(self) -> None:
        """Let go of everything without a word to the disk, whatever state the log is in."""
        if self._log is not None:
            with suppress(kts.KtsError), in_place_of_os(self.system):
                self._log.abandon()
            self._log = None
