"""Logs of KIP-32's options under a clock of the test, and what was appended to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from kts.proposals.options import OptionLog, TimeIndexEntry, decode, encode, walk

START_MS = 1_699_999_980_000  # the first ms of a minute
MINUTE_MS = 60_000


class Clock:
    """ms since the epoch, as the test sets it."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Replica:
    """A log of one option with its own clock, and the LogAppendTime of every message that it took as leader."""

    path: Path
    option: int
    settings: dict[str, Any] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    stamped: dict[int, int] = field(default_factory=dict)  # by offset

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> OptionLog:
        config = {"segment.index.bytes": 2400, "index.interval.bytes": 300} | self.settings
        self.log = OptionLog(self.path, option=self.option, config=config, clock=self.clock)
        return self.log

    def crash(self) -> None:
        """The process ends without a word; what it wrote is still there."""
        self.log.abandon()
        self.open()

    def reopen(self) -> None:
        self.log.close()
        self.open()

    def append(self, count: int = 1, *, create_ms: int | None = None, codec: str = "none", size: int = 40) -> int:
        """Append as the leader; the LogAppendTime."""
        columns: dict[str, Any] = {"value": [b"v" * size] * count}
        if self.option != 2:
            create = self.clock() if create_ms is None else create_ms
            columns["createTimestamp"] = [create + number for number in range(count)]
        done = self.log.append(encode(columns, option=self.option, compression=codec))
        self.stamped |= dict.fromkeys(range(done.first_offset, done.last_offset + 1), done.append_ms)
        return done.append_ms

    def fetch_from(self, leader: Replica, *, most_bytes: int = 1 << 20) -> bool:
        """One fetch as a follower; False if there was nothing to fetch."""
        for gap in self.log.waits_for_leader:
            self.log.fill_index(gap, leader.log.index_entries(*gap))
        start = self.log.log_end_offset
        data = leader.log.read(start, most_bytes)
        last = int(walk(data, option=self.option).last_offset[-1]) if data else start - 1
        entries = leader.log.index_entries(start - 1, last) if self.option == 3 else ()
        self.log.append_as_follower(data, entries)
        return bool(data)

    def catch_up(self, leader: Replica, *, most_bytes: int = 1 << 20) -> None:
        while self.fetch_from(leader, most_bytes=most_bytes):
            pass

    def contents(self) -> bytes:
        parts, offset = [], self.log.log_start_offset
        while data := self.log.read(offset, 1 << 20):
            parts.append(data)
            offset = int(walk(data, option=self.option).last_offset[-1]) + 1
        return b"".join(parts)

    def table(self) -> pa.Table:
        return decode(self.contents(), option=self.option)

    def times(self, name: str) -> list[int]:
        found: list[int] = self.table()[name].cast(pa.int64()).to_pylist()
        return found

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]


def expected_index(replica: Replica) -> list[TimeIndexEntry]:
    """Option 3's index in the KIP's words, from what was stamped: first, first in each minute, last of a closed one."""
    found: list[TimeIndexEntry] = []
    bases = [*replica.bases(), replica.log.log_end_offset]
    for number, (base, end) in enumerate(zip(bases, bases[1:], strict=False)):
        minute = None
        for offset in range(base, end):
            now = replica.stamped[offset]
            closing = offset == end - 1 and number < len(bases) - 2
            if minute is None or now // MINUTE_MS > minute or closing:
                found.append(TimeIndexEntry(now, offset))
                minute = now // MINUTE_MS
    return found
