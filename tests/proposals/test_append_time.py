"""LogAppendTime that never goes back: KIP-32's first rejected option."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.sets.shallow_entries import T

import kts
from kts.model import NO_TIMESTAMP
from kts.proposals.append_time import MonotonicAppendTime

LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


class Clock:
    now_ms = T

    def __call__(self) -> int:
        return self.now_ms


def opened(path: Path, clock: Clock, **config: str) -> kts.Log:
    return kts.Log(path, LOG_APPEND_TIME | config, clock=clock, proposals=("monotonic-append-time",))


def stamped(log: kts.Log, clock: Clock, now_ms: int) -> int:
    """The time that a record gets when the clock says `now_ms`, as a reader of the log sees it."""
    clock.now_ms = now_ms
    log.append(kts.encode({"timestamp": np.array([T - 5]), "value": [b"x"]}))
    last: int = (
        kts.open(log.path).scan(columns=["timestamp"]).read_all()["timestamp"].to_pylist()[-1].timestamp() * 1000
    )
    return round(last)


def test_the_time_stands_still_until_the_clock_has_passed_it(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path / "t-0", clock) as log:
        assert [stamped(log, clock, T + late) for late in (0, 50, 20, 50, 51)] == [T, T + 50, T + 50, T + 50, T + 51]


def test_a_start_finds_the_last_time_in_the_log_and_a_truncation_the_one_before(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path / "t-0", clock) as log:
        for late in (0, 30, 60):
            stamped(log, clock, T + late)
        log.roll()  # the active segment is empty: the time lies in the one before
    with opened(tmp_path / "t-0", clock) as log:
        assert stamped(log, clock, T + 1) == T + 60
        log.truncate_to(2)
        assert stamped(log, clock, T + 1) == T + 30
        log.truncate_to(0)
        assert stamped(log, clock, T + 1) == T + 1


@pytest.mark.parametrize("now_ms", [0, T])
def test_an_empty_log_takes_the_clock_as_it_is(now_ms: int) -> None:
    mode = MonotonicAppendTime()
    assert mode.last_ms == NO_TIMESTAMP
    assert mode.append_time(now_ms) == now_ms
