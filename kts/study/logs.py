"""The same streams in real logs: files of kts, under the study's clock."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from kts.arguments import INT32_MAX
from kts.codec.columns import decode
from kts.codec.encode import encode
from kts.log.log import Log
from kts.proposals import options
from kts.proposals.options import OptionLog
from kts.segment.segment import int64

from .rules import first_check

if TYPE_CHECKING:
    from .rules import Played, ProposedOption
    from .workloads import Settings, Times


class StudyClock:
    """The study's clock, which only the study moves."""

    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@contextmanager
def scratch() -> Iterator[str]:
    """A directory for logs, removed afterwards: in memory if there is such a file system, because each roll syncs."""
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kts-study-", dir=in_memory) as directory:
        yield directory


class Outcome(NamedTuple):
    """What became of the messages of one real log: as ``rules.Played``, for one row."""

    begins: list[int]  # base offsets of all segments that ever had a message
    deleted_ms: dict[int, int]  # base offset: when it was deleted


class Player(Protocol):
    """A log that can be played."""

    def append(self, create_ms: int) -> None:
        """Append one message."""

    def check(self) -> list[int]:
        """Apply retention; returns the base offsets that are gone."""

    def oldest_ms(self) -> int:
        """The largest time of the oldest segment: none goes before it expires."""

    def bases(self) -> list[int]:
        """The base offsets of the segments."""

    def seen(self) -> tuple[Times | None, Times | None]:
        """CreateTime and LogAppendTime of all messages, as a consumer sees them; None for what it does not."""

    def indexed_ms(self) -> int | None:
        """Option 3: LogAppendTime of the first message, which the time index has and no consumer sees."""

    def close(self) -> None:
        """Close the files."""


class KafkaLog:
    """Option 4: a ``kts.Log``."""

    def __init__(self, path: str, option: ProposedOption, settings: Settings, clock: StudyClock) -> None:
        config = {
            "message.timestamp.type": "LogAppendTime" if option.rule.append_time else "CreateTime",
            "segment.ms": settings.roll_ms,
            "retention.ms": settings.retention_ms,
        }
        self.log = Log(path, config, clock=clock, proposals=option.modes)
        self._option = option
        self._value = bytes(settings.value_bytes)

    def append(self, create_ms: int) -> None:
        self.log.append(encode({"timestamp": np.array([create_ms]), "value": [self._value]}))

    def check(self) -> list[int]:
        return [one.base_offset for one in self.log.delete_old_segments()]

    def oldest_ms(self) -> int:
        return self.log.segments[0].largest_timestamp_ms

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]

    def seen(self) -> tuple[Times | None, Times | None]:
        records = self.log.read(self.log.log_start_offset, INT32_MAX).records
        times = int64(decode(records, ["timestamp"]), "timestamp")
        return (times, None) if self._option.create_time else (None, times)

    def indexed_ms(self) -> int | None:
        return None

    def close(self) -> None:
        self.log.abandon()


class RejectedLog:
    """Option 1, 2 or 3: an ``OptionLog``."""

    def __init__(self, path: str, option: ProposedOption, settings: Settings, clock: StudyClock) -> None:
        config = {"segment.ms": settings.roll_ms, "retention.ms": settings.retention_ms}
        self.log = OptionLog(path, option=option.number, config=config, clock=clock)
        self._option = option
        self._value = bytes(settings.value_bytes)

    def append(self, create_ms: int) -> None:
        times = {} if self._option.number == 2 else {"createTimestamp": np.array([create_ms])}
        self.log.append(options.encode({**times, "value": [self._value]}, option=self._option.number))

    def check(self) -> list[int]:
        return [one.base_offset for one in self.log.delete_old_segments()]

    def oldest_ms(self) -> int:
        return self.log.segments[0].last_append_ms or 0

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]

    def seen(self) -> tuple[Times | None, Times | None]:
        found = options.decode(self.log.read(self.log.log_start_offset, INT32_MAX), option=self._option.number)
        create, append = (
            found[name].cast("int64").to_numpy() if seen else None
            for name, seen in (
                ("createTimestamp", self._option.create_time),
                ("logAppendTimestamp", self._option.append_time),
            )
        )
        return create, append

    def indexed_ms(self) -> int | None:
        return self.log.index_entries()[0].append_ms if self._option.number == 3 else None

    def close(self) -> None:
        self.log.abandon()


def opened(path: str, option: ProposedOption, settings: Settings, clock: StudyClock) -> Player:
    """The real log of an option."""
    return (KafkaLog if option.number == 4 else RejectedLog)(path, option, settings, clock)


def play(directory: str, option: ProposedOption, create_ms: Times, arrival_ms: Times, settings: Settings) -> Outcome:
    """Play one row of a stream in a real log, until retention has deleted all of it."""
    clock = StudyClock()
    clock.now_ms = int(arrival_ms[0])
    log = opened(os.path.join(directory, "study-0"), option, settings, clock)
    begins: dict[int, None] = {}
    deleted: dict[int, int] = {}

    def check_until(end_ms: float) -> None:
        while clock.now_ms < end_ms and len(deleted) < len(begins):
            due = np.array([max(clock.now_ms, log.oldest_ms() + settings.retention_ms + 1)])
            check = int(first_check(due, settings.check_ms)[0])
            if check >= end_ms:
                break
            clock.now_ms = check
            gone = log.check()
            deleted.update(dict.fromkeys(gone, check))
            clock.now_ms = check + (not gone)

    try:
        for create, now in zip(create_ms.tolist(), arrival_ms.tolist(), strict=True):
            check_until(now)
            clock.now_ms = now
            log.append(create)
            begins[log.bases()[-1]] = None
        check_until(float("inf"))
    finally:
        log.close()
    return Outcome(list(begins), deleted)


def expected(played: Played, row: int) -> Outcome:
    """The outcome of one row by the rules."""
    begins = np.flatnonzero(played.begins[row])
    return Outcome(begins.tolist(), dict(zip(begins.tolist(), played.deleted_ms[row][begins].tolist(), strict=True)))
