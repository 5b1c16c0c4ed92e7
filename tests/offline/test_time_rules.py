"""The rules for bad times on columns of numbers; ``test_doctor.py`` has them on logs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from kts.arguments import INT64_MAX, INT64_MIN
from kts.config import LogConfig
from kts.offline.time_rules import (
    AHEAD,
    FINE,
    FUTURE,
    KINDS,
    LATE,
    NONE,
    PAST,
    STEPS_BACK,
    Points,
    TimeLimits,
    judged,
    latest_by_file,
)
from kts.times import UNIT_NAMES, UNITS, YEAR_2000_MS

NOW, HOUR, DAY = 1_790_000_000_000, 3_600_000, 86_400_000
LIMITS = TimeLimits(NOW, HOUR, 7 * DAY)


def kinds_of(times: list[int], limits: TimeLimits = LIMITS, **how: Any) -> list[str | None]:
    """The kind of each time; each is a batch of one record."""
    count = len(times)
    mask = {name: np.full(count, how.get(name, name == "timed")) for name in ("appended", "control", "timed")}
    numbers = np.arange(count)
    latest = np.full(count, how.get("latest_ms", INT64_MAX))
    points = Points(np.array(times, np.int64), numbers, numbers, **mask, latest_ms=latest)
    return [None if kind == FINE else KINDS[kind - 1] for kind in judged(points, limits)[0].tolist()]


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit != "ms"])
def test_a_number_is_of_another_unit_from_the_year_2000_until_an_hour_from_now(unit: str) -> None:
    per_ms = 1 / UNITS[unit]
    for ms, is_unit in ((YEAR_2000_MS, True), (YEAR_2000_MS - 1000, False), (NOW, True), (NOW + 2 * HOUR, False)):
        assert (kinds_of([int(ms * per_ms)]) == [UNIT_NAMES[unit]]) is is_unit


def test_the_limits_of_the_future_and_the_past_are_exact() -> None:
    assert kinds_of([NOW + HOUR, NOW + HOUR + 1]) == [None, FUTURE]
    assert kinds_of([YEAR_2000_MS, YEAR_2000_MS - 1]) == [None, PAST]
    assert kinds_of([NOW, NOW - DAY + 1], latest_ms=NOW - DAY) == [FUTURE, FUTURE]
    assert kinds_of([-2, 0, NOW, -1]) == [PAST, PAST, None, NONE]
    assert kinds_of([-1, -1]) == [None, None]


def test_the_limit_of_disorder_is_exact() -> None:
    times = [NOW - 30 * DAY + at for at in range(40)]
    times[20] = times[19] - 7 * DAY
    assert kinds_of(times) == [None] * 40
    times[20] -= 1
    assert kinds_of(times) == [None] * 20 + [LATE] + [None] * 19
    times[20] = times[21] + 7 * DAY
    assert kinds_of(times) == [None] * 40
    times[20] += 1
    assert kinds_of(times) == [None] * 20 + [AHEAD] + [None] * 19


@pytest.mark.parametrize("gap", [1, 5, 11, 100])
def test_a_gap_in_time_is_no_disorder(gap: int) -> None:
    times = [NOW - 300 * DAY + at for at in range(gap)] + [NOW - 10 * DAY + at for at in range(gap)]
    assert kinds_of(times) == [None] * (2 * gap)


def test_with_few_neighbours_the_shorter_side_is_wrong() -> None:
    early, later = NOW - 60 * DAY, NOW - 30 * DAY
    after_a_jump = [later, early + 1, early + 2, later + 3, later + 4, later + 5]
    assert kinds_of(after_a_jump) == [AHEAD, None, None, None, None, None]
    assert kinds_of([later, later + 1, early, later + 2]) == [None, None, LATE, None]
    assert kinds_of([early, early + 1, early + 2, later, early + 3]) == [None, None, None, AHEAD, None]


def test_control_records_append_times_and_old_formats_are_judged_by_what_they_can_show() -> None:
    times = [1_700_000_000, NOW - 60 * DAY, NOW - 90 * DAY, NOW + DAY]
    assert kinds_of(times, control=True) == [None, None, None, FUTURE]
    assert kinds_of(times, appended=True) == [None, None, STEPS_BACK, FUTURE]
    assert kinds_of(times, timed=False) == [None] * 4


def test_extreme_numbers_overflow_nothing(rng: random.Random) -> None:
    extremes = [INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, 2**62, -(2**62), 0, -1, -2]
    with np.errstate(all="raise"):
        for _ in range(50):
            times = [NOW - 20 * DAY + at for at in range(30)]
            planted = rng.sample(range(30), 4)
            for at in planted:
                times[at] = rng.choice(extremes)
            for appended in (False, True):
                kinds = kinds_of(times, appended=appended)
                for at, time in enumerate(times):
                    if at not in planted:
                        assert kinds[at] is None
                    elif time > NOW:
                        assert kinds[at] == FUTURE
                    elif not appended:
                        assert kinds[at] == (NONE if time == -1 else PAST)


def test_a_topics_settings_are_its_limits() -> None:
    assert TimeLimits.of(LogConfig(), NOW) == TimeLimits(NOW, HOUR, 7 * DAY)
    of_topic = LogConfig(retention_ms=DAY, segment_ms=2 * DAY, message_timestamp_after_max_ms=5)
    assert TimeLimits.of(of_topic, NOW) == TimeLimits(NOW, 5, DAY)
    assert TimeLimits.of(LogConfig(retention_ms=DAY, cleanup_policy="compact"), NOW).disorder_ms == 7 * DAY
    assert TimeLimits.of(LogConfig(retention_ms=-1), NOW).disorder_ms == 7 * DAY


def test_a_files_time_counts_unless_most_batches_or_a_brokers_clock_contradict_it() -> None:
    file, old = NOW - 300 * DAY, NOW - 301 * DAY
    by_producer, by_broker = np.zeros(3, np.bool_), np.array([False, False, True])

    def bound(times: list[int], stamped: Any, modified_ms: int | None = file) -> int:
        return latest_by_file(np.array(times), stamped, modified_ms, LIMITS)

    assert bound([old, old, NOW], by_producer) == file + HOUR
    assert bound([old, old, NOW], by_broker) == INT64_MAX
    assert bound([old, old, NOW + DAY], by_broker) == file + HOUR  # a broker's clock that is wrong says nothing
    assert bound([old, NOW, NOW], by_producer) == INT64_MAX
    assert bound([old, old, old], by_producer, None) == bound([], by_producer[:0]) == INT64_MAX
