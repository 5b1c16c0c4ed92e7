"""Retention and roll: each rule at its border, and random logs step by step."""

from __future__ import annotations

import random

import pytest

from kts.config import LogConfig
from kts.log import policies
from kts.log.policies import SIZE, START, TIME, LogFacts, RetentionPolicy, SegmentFacts

NOW = 1_000_000

# --- retention ------------------------------------------------------------------------------------


def facts(*segments: tuple[int, int, int], end: int = 100, start: int = 0, mark: int | None = None) -> LogFacts:
    return LogFacts(tuple(SegmentFacts(*segment) for segment in segments), end, start, mark)


def three(*sizes: int) -> LogFacts:
    return facts(*((10 * i, size, NOW) for i, size in enumerate(sizes)))


@pytest.mark.parametrize(
    ("log", "limit", "expected"),
    [
        (facts((0, 10, NOW - 1000), (10, 10, NOW)), 1000, 0),
        (facts((0, 10, NOW - 1001), (10, 10, NOW)), 1000, 1),
        (facts((0, 10, NOW - 1001), (10, 10, NOW - 1001)), 1000, 2),
        (facts((0, 10, NOW - 1001), (10, 0, NOW - 1001)), 1000, 1),
        (facts((0, 0, NOW - 1001)), 1000, 0),
        (facts((0, 10, NOW), (10, 10, NOW - 5000), (20, 10, NOW)), 1000, 0),
        (facts((0, 10, NOW + 10**9), (10, 10, 0), (20, 10, 0)), 0, 0),
        (facts((0, 10, 0), (10, 10, 0)), -1, 0),
        (facts((0, 10, 0), (10, 10, 0)), -5, 0),
        (facts((0, 10, NOW - 1), (10, 10, NOW)), 0, 1),
        (facts((0, 10, -(2**62)), (10, 10, NOW)), 1000, 1),
    ],
)
def test_time_takes_from_the_oldest_what_is_older_than_the_limit(log: LogFacts, limit: int, expected: int) -> None:
    assert policies.deletable(TIME, log, RetentionPolicy(limit), NOW) == expected


@pytest.mark.parametrize(
    ("log", "limit", "expected"),
    [
        (three(60, 50, 40), 100, 0),
        (three(40, 50, 60), 100, 1),
        (three(40, 50, 60), 150, 0),
        (three(40, 50, 60), 0, 3),
        (three(40, 50, 0), 0, 2),
        (three(40, 50, 60), -1, 0),
        (three(40, 50, 60), 200, 0),
    ],
)
def test_size_never_cuts_below_the_limit(log: LogFacts, limit: int, expected: int) -> None:
    assert policies.deletable(SIZE, log, RetentionPolicy(-1, limit), NOW) == expected


@pytest.mark.parametrize(("start", "expected"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (100, 2)])
def test_log_start_offset_takes_segments_that_end_at_or_below_it(start: int, expected: int) -> None:
    log = facts((0, 10, NOW), (10, 10, NOW), (20, 10, NOW), start=start)
    assert policies.deletable(START, log, RetentionPolicy(-1), NOW) == expected


@pytest.mark.parametrize(("mark", "expected"), [(9, 0), (10, 1), (20, 2), (99, 2), (100, 3), (None, 3)])
def test_nothing_behind_the_high_watermark_goes(mark: int | None, expected: int) -> None:
    log = facts((0, 10, 0), (10, 10, 0), (20, 10, 0), mark=mark)
    assert policies.deletable(TIME, log, RetentionPolicy(0), NOW) == expected
    assert policies.deletable(SIZE, log, RetentionPolicy(-1, 0), NOW) == expected


def test_the_order_of_rules_and_what_a_policy_without_delete_leaves() -> None:
    assert policies.retention_rules(RetentionPolicy(0, generation="0.10.2")) == (TIME, SIZE)
    assert policies.retention_rules(RetentionPolicy(0, generation="3.9")) == (START, SIZE, TIME)
    assert policies.retention_rules(RetentionPolicy(0, deletes=False, generation="0.10.2")) == ()
    assert policies.retention_rules(RetentionPolicy(0, deletes=False, generation="3.9")) == (START,)


def random_log(rng: random.Random) -> LogFacts:
    base, segments = 0, []
    for _ in range(rng.randint(1, 8)):
        time = rng.choice([rng.randint(0, 2 * NOW), rng.randint(NOW - 50, NOW + 50)])
        segments.append((base, rng.choice([0, rng.randint(1, 100)]), time))
        base += rng.randint(1, 20)
    segments[:-1] = [(base, max(size, 1), time) for base, size, time in segments[:-1]]
    start, mark = rng.randint(0, base), rng.choice([None, rng.randint(0, base)])
    return facts(*segments, end=base, start=start, mark=mark)


def test_what_is_said_to_go_is_what_the_rules_take_one_by_one(rng: random.Random) -> None:
    for _ in range(2000):
        log = random_log(rng)
        policy = RetentionPolicy(
            rng.choice([-1, 0, rng.randint(0, NOW)]),
            rng.choice([-1, 0, rng.randint(0, 400)]),
            rng.random() < 0.8,
            rng.choice(["0.10.2", "3.9"]),
        )
        expected: list[str] = []
        left = log
        for rule in policies.retention_rules(policy):
            count = policies.deletable(rule, left, policy, NOW)
            expected += [rule] * count
            left = policies.without(left, count) if count else left
        told = policies.outlook(log, policy, NOW)
        assert [one.rule for one in told] == [*expected, *[None] * len(log.segments)][: len(log.segments)]
        assert len(told) == len(log.segments)


def test_each_expires_at_the_time_that_is_told_and_not_before(rng: random.Random) -> None:
    checked = 0
    for _ in range(500):
        log = random_log(rng)._replace(high_watermark=None)
        policy = RetentionPolicy(rng.randint(0, NOW))
        for number, one in enumerate(policies.outlook(log, policy, NOW)):
            if one.expires_ms is not None:
                assert policies.deletable(TIME, log, policy, one.expires_ms - 1) <= number
                assert policies.deletable(TIME, log, policy, one.expires_ms) > number
                checked += 1
    assert checked > 500


def test_a_segment_from_the_future_is_named_by_all_that_it_keeps() -> None:
    log = facts((0, 10, 5), (10, 10, NOW + 60_000), (20, 10, 6), (30, 10, NOW))
    told = policies.outlook(log, RetentionPolicy(1000), NOW)
    assert [one.rule for one in told] == [TIME, None, None, None]
    assert told[1].why == "its largest timestamp is from the future"
    assert [one.why for one in told[2:]] == ["waits for segment 10, which has a timestamp from the future"] * 2
    assert {one.kept_by.base_offset for one in told[1:] if one.kept_by} == {10}
    assert [one.expires_ms for one in told] == [1006, *[NOW + 61_001] * 3]


def test_how_many_bytes_are_missing_until_size_takes_a_segment() -> None:
    log = three(40, 50, 60)
    assert [policies.bytes_missing(log, RetentionPolicy(-1, 200), number) for number in range(3)] == [90, 140, 200]
    assert policies.bytes_missing(log, RetentionPolicy(-1, -1), 0) is None
    grown = log._replace(segments=(*log.segments, SegmentFacts(30, 90, NOW)))
    assert policies.deletable(SIZE, grown, RetentionPolicy(-1, 200), NOW) == 1


# --- roll -----------------------------------------------------------------------------------------


QUIET = {
    "size": 100,
    "incoming": 50,
    "segment_bytes": 1000,
    "waited_ms": 0,
    "limit_ms": 1000,
    "indexes_full": False,
    "relative_offset": 10,
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, None),
        ({"size": 950}, None),
        ({"size": 951}, "size"),
        ({"waited_ms": 1000}, None),
        ({"waited_ms": 1001}, "time"),
        ({"waited_ms": 1001, "size": 0}, None),
        ({"waited_ms": -(2**62)}, None),
        ({"limit_ms": -1}, "time"),
        ({"indexes_full": True}, "index"),
        ({"indexes_full": True, "size": 0}, "index"),
        ({"relative_offset": 2**31 - 1}, None),
        ({"relative_offset": 2**31}, "offset"),
    ],
)
def test_a_segment_rolls_by_the_rule_whose_border_is_passed(changed: dict[str, int], expected: str | None) -> None:
    assert policies.roll_reason(**{**QUIET, **changed}) == expected


def test_jitter_is_below_the_smaller_of_its_setting_and_the_limit(rng: random.Random) -> None:
    config = LogConfig.of({"segment.jitter.ms": 700, "segment.ms": 500})
    numbers = [rng.randrange(-(2**31), 2**31) for _ in range(1000)]
    found = [policies.roll_jitter_ms(config, number) for number in numbers]
    assert [abs(number) % 500 for number in numbers] == found
    assert policies.roll_jitter_ms(config, -(2**31)) == 0
    assert policies.roll_jitter_ms(LogConfig.of({}), 12345) == 0


def test_a_new_segment_starts_at_the_log_end_or_where_a_set_behind_a_gap_fits() -> None:
    assert policies.new_base_offset(10, 20, 10) == 10
    assert policies.new_base_offset(-1, 20, 10) == 10
    assert policies.new_base_offset(2**40, 2**40 + 5, 10) == 2**40
    assert policies.new_base_offset(-1, 2**40, 10) == 2**40 - (2**31 - 1)
