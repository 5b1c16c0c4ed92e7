"""The clock of a broker for tests: with the wall clock until it is set, and then only where it is told."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from kts.testing import Clock


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_clock_goes_with_the_wall_clock_until_it_is_set_or_advanced() -> None:
    clock = Clock()
    before = wall_ms()
    assert before <= clock() <= wall_ms()
    assert not clock.stands_still
    there = clock.advance(timedelta(seconds=2))
    assert clock.stands_still
    assert before + 2000 <= there <= wall_ms() + 2000
    assert clock() == there == clock.advance(0)
    assert clock.advance(5) == clock() == there + 5
    clock.set(None)
    assert not clock.stands_still
    assert before <= clock() <= wall_ms()


def test_a_clock_takes_milliseconds_and_times_with_a_zone() -> None:
    clock = Clock(1_500_000_000_000)
    assert clock() == 1_500_000_000_000
    clock.set(datetime(2020, 1, 1, tzinfo=UTC))
    assert clock() == 1_577_836_800_000
    clock.set(datetime(2020, 1, 1, 2, microsecond=999_999, tzinfo=timezone(timedelta(hours=2))))
    assert clock() == 1_577_836_800_999
    assert Clock(datetime(2020, 1, 1, tzinfo=UTC)).advance(timedelta(days=1)) == 1_577_923_200_000


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda clock: clock.set(datetime(2020, 1, 1)), ValueError, "time zone"),
        (lambda clock: clock.set("2020"), TypeError, "time: expected an int"),
        (lambda clock: clock.set(-1), ValueError, "since 1970"),
        (lambda clock: clock.set(2**63), ValueError, "time: expected"),
        (lambda clock: clock.advance(-1), ValueError, "by: expected 0 or more"),
        (lambda clock: clock.advance(timedelta(days=-1)), ValueError, "by: expected 0 or more"),
        (lambda clock: clock.advance(1.5), TypeError, "by: expected an int"),
        (lambda clock: clock.advance(2**63 - 1), ValueError, "below 2\\^63"),
    ],
)
def test_a_clock_refuses_what_is_no_time_and_keeps_its_own(call, error, says) -> None:
    clock = Clock(7)
    with pytest.raises(error, match=says):
        call(clock)
    assert clock() == 7
