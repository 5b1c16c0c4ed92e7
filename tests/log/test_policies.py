"""Retention and roll: each rule at its border, and random logs step by step."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

import kts
from kts.behaviour import Behaviour
from kts.config import LogConfig
from kts.log import policies
from kts.log.policies import SIZE, START, TIME, LogFacts, RetentionPolicy, SegmentFacts, kept_by_future

NOW, DAY_MS = 1_000_000, 86_400_000
LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}

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
    assert policies.retention_rules(RetentionPolicy(0, behaviour=Behaviour.of("0.10.2"))) == (TIME, SIZE)
    assert policies.retention_rules(RetentionPolicy(0, behaviour=Behaviour.of("3.9"))) == (START, SIZE, TIME)
    assert policies.retention_rules(RetentionPolicy(0, deletes=False, behaviour=Behaviour.of("0.10.2"))) == ()
    assert policies.retention_rules(RetentionPolicy(0, deletes=False, behaviour=Behaviour.of("3.9"))) == (START,)


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
            Behaviour.of(rng.choice(["0.10.2", "3.9"])),
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


def test_local_segments_go_once_tiered_storage_has_them() -> None:
    log = facts((0, 10, 5), (10, 10, 6), (20, 10, 7), end=30)
    policy = RetentionPolicy(1000, is_local=True)
    for until, expected in ((0, 0), (10, 1), (29, 2), (30, 3), (None, 3)):
        told = policies.outlook(log._replace(copied_until=until), policy, NOW)
        assert [one.rule for one in told] == [f"local.{TIME}"] * expected + [None] * (3 - expected)
        lacks = "has no copy in tiered storage yet"
        whys = [f"it {lacks}", *[f"waits for segment {expected * 10}, which {lacks}"] * 2][: 3 - expected]
        assert [one.why for one in told[expected:]] == whys
    unlimited = policies.outlook(log._replace(copied_until=0), RetentionPolicy(-1, is_local=True), NOW)
    assert {one.why for one in unlimited} == {"local.retention.ms is unlimited"}
    by_size = policies.outlook(log._replace(copied_until=20), RetentionPolicy(-1, 0, is_local=True), NOW)
    assert [one.rule for one in by_size] == [f"local.{SIZE}"] * 2 + [None]


def test_a_higher_log_start_offset_needs_no_copy() -> None:
    log = facts((0, 10, NOW), (10, 10, NOW), (20, 10, NOW), end=30, start=20)._replace(copied_until=0)
    assert [one.rule for one in policies.outlook(log, RetentionPolicy(1000, is_local=True), NOW)] == [
        START,
        START,
        None,
    ]


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


# --- settings that belong together ------------------------------------------------------------------

DIFFERENCE = "message.timestamp.difference.max.ms"
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"


def test_the_settings_that_kafka_ships_give_no_warning() -> None:
    for generation in ("0.10.2", "3.9"):
        assert policies.roll_warning(LogConfig.of(None, generation=generation)) is None
        for fine in ({"segment.ms": 8 * DAY_MS}, {DIFFERENCE: DAY_MS}, {"segment.ms": 1, **LOG_APPEND_TIME}):
            assert policies.roll_warning(LogConfig.of(fine, generation=generation)) is None
    assert policies.roll_warning(LogConfig.of({BEFORE: 1000})) is None


def test_a_format_without_timestamps_gives_no_warning() -> None:
    """No limit holds for its messages, and none of them rolls a segment by its time."""
    hasty = {"segment.ms": 1, DIFFERENCE: 1000}
    for version, warns in (("0.9.0", False), ("0.10.0", True)):
        for generation in ("0.10.2", "3.9"):
            config = LogConfig.of(hasty | {"message.format.version": version}, generation=generation)
            assert (policies.roll_warning(config) is not None) is warns


def segments_of(path: Path, settings: dict[str, Any], generation: str, times: list[int]) -> list[int]:
    """How many messages each segment has after they came at one moment, each for itself."""
    magic = 1 if generation == "0.10.2" else 2
    with kts.Log(path, {**settings, "message.format.version": generation}, clock=lambda: NOW) as log:
        for time in times:
            log.append(kts.encode({"value": [b"v"], "timestamp": [time]}, magic=magic))
        bases = [segment.base_offset for segment in log.segments]
    return [end - base for base, end in zip(bases, [*bases[1:], len(times)], strict=True)]


@pytest.mark.parametrize("generation", ["0.10.2", "3.9"])
@pytest.mark.parametrize(
    ("before", "after", "roll"),
    [(50, 50, 100), (50, 50, 99), (51, 50, 100), (0, 7, 7), (0, 8, 7), (30, 0, 9), (99, 101, 20), (500, 500, 1)],
)
def test_it_warns_exactly_if_messages_of_one_moment_can_roll_and_of_as_many_segments(
    tmp_path: Path, generation: str, before: int, after: int, roll: int
) -> None:
    """KIP-33: "set max.message.time.difference.ms appropriately together with log.roll.ms"."""
    settings: dict[str, Any] = {"segment.ms": roll, BEFORE: before, AFTER: after}
    if generation == "0.10.2":
        before = after = max(before, after)
        settings = {"segment.ms": roll, DIFFERENCE: before}
    told = policies.roll_warning(LogConfig.of(settings, generation=generation))
    rising = list(range(NOW - before, NOW + after + 1, roll + 1))
    found = segments_of(tmp_path / "rising-0", settings, generation, rising)
    rng = random.Random(f"{before} {after} {roll}")
    some = [rng.randint(NOW - before, NOW + after) for _ in range(100)]
    others = segments_of(tmp_path / "others-0", settings, generation, some)
    if told is None:
        assert (len(found), len(others)) == (1, 1)
        return
    assert found == [1] * len(found)
    assert f"up to {len(found) - 1} at once: set " in told
    assert len(others) <= len(found)


@pytest.mark.parametrize("proposal", ["largest-timestamp", "earliest-timestamp", "wall-clock"])
@pytest.mark.parametrize(("before", "after", "roll"), [(100, 0, 100), (101, 0, 100), (60, 60, 100), (500, 1, 7)])
def test_under_the_kips_own_rules_it_warns_exactly_if_the_oldest_messages_roll_at_each_append(
    tmp_path: Path, proposal: str, before: int, after: int, roll: int
) -> None:
    """KIP-33 says it of this rule: the clock is compared with the largest timestamp ever seen."""
    settings: dict[str, Any] = {"segment.ms": roll, BEFORE: before, AFTER: after, "proposals": proposal}
    told = policies.roll_warning(LogConfig.of(settings))
    found = segments_of(tmp_path / "t-0", settings, "3.9", [NOW - before] * 9)
    assert found == ([9] if told is None else [1] * 9)
    if told is not None:
        assert f"{BEFORE} {before} may give messages a segment of their own, each message: set {BEFORE}" in told
        assert told.endswith(f" to at most {roll}, or segment.ms to at least {before}")


@pytest.mark.parametrize(
    "settings",
    [
        {"segment.ms": 1000, DIFFERENCE: 501},
        {"segment.ms": 1000, DIFFERENCE: 501, "segment.jitter.ms": 300},
        {"segment.ms": 1000, "segment.jitter.ms": 5000, DIFFERENCE: 1},
        {"segment.ms": 1000},
        {"segment.ms": 1000, BEFORE: 900, AFTER: 101},
        {"segment.ms": 1000, BEFORE: 900},
        {"segment.ms": 1000, DIFFERENCE: 1001, "proposals": "largest-timestamp"},
        {"segment.ms": DAY_MS, DIFFERENCE: 50, "cleanup.policy": "compact", "max.compaction.lag.ms": 99},
    ],
)
def test_what_the_warning_says_to_set_is_enough_and_no_more_than_needed(settings: dict[str, Any]) -> None:
    told = policies.roll_warning(LogConfig.of(settings))
    assert told is not None
    lag = ["max.compaction.lag.ms"] * ("max.compaction.lag.ms" in settings)
    assert told.startswith(f"{(lag or ['segment.ms'])[0]} {settings[(lag or ['segment.ms'])[0]]} ")

    def left(**changes: int) -> str | None:
        return policies.roll_warning(
            LogConfig.of(settings | {name.replace("_", "."): n for name, n in changes.items()})
        )

    if match := re.search(rf": set {DIFFERENCE} to at most (\d+)", told):
        assert left(message_timestamp_difference_max_ms=int(match[1])) is None
        assert left(message_timestamp_difference_max_ms=int(match[1]) + 1) is not None
    else:
        match = re.search(rf": set {BEFORE} and {AFTER} to at most (\d+) together", told)
        assert match is not None
        both = {"message_timestamp_before_max_ms": int(match[1]) - 5, "message_timestamp_after_max_ms": 5}
        assert left(**both) is None
        assert left(**both | {"message_timestamp_after_max_ms": 6}) is not None
    match = re.search(rf", or segment.ms{''.join(f' and {name}' for name in lag)} to at least (\d+)$", told)
    assert (match is None) is ("unlimited" in told)
    if match is not None:
        names = ["segment.ms", *lag]
        assert left(**dict.fromkeys(names, int(match[1]))) is None
        assert left(**dict.fromkeys(names, int(match[1]) - 1)) is not None


def test_the_warning_reckons_with_the_greatest_jitter() -> None:
    settings = {"segment.ms": 100, "segment.jitter.ms": 30}
    greatest = max(policies.roll_jitter_ms(LogConfig.of(settings), number) for number in range(1000))
    assert policies.roll_warning(LogConfig.of(settings | {BEFORE: 100 - greatest, AFTER: 0})) is None
    assert policies.roll_warning(LogConfig.of(settings | {BEFORE: 100 - greatest + 1, AFTER: 0})) is not None


def test_by_kafka_20609_a_time_from_the_future_gives_way_to_that_of_the_file(rng: random.Random) -> None:
    """A log of few segments, whose clock goes on by a ms at a time: each goes when the outlook said so."""
    by_file = 0
    for _ in range(300):
        policy = RetentionPolicy(rng.randrange(8), future_by_file=True)
        segments = [SegmentFacts(10 * i, 1, rng.randrange(40), False, rng.randrange(12)) for i in range(4)]
        log, asked = LogFacts(tuple(segments), 40), rng.randrange(20)
        now = asked
        told = policies.outlook(log, policy, asked)
        went: dict[int, int] = {}
        while len(went) < len(segments):
            count = policies.deletable(TIME, log, policy, now)
            went |= {segment.base_offset: now for segment in log.segments[:count]}
            log, now = log._replace(segments=log.segments[count:]), now + 1
        for one in told:
            expected = went[one.segment.base_offset]
            assert one.expires_ms is not None and (one.rule == TIME) == (one.expires_ms <= asked)
            if one.rule is None:
                assert one.expires_ms == expected
            by_file += "KAFKA-20609" in one.why
    assert by_file


def test_the_rule_is_asked_for_and_told() -> None:
    log = LogFacts((SegmentFacts(0, 10, 5000, False, 100), SegmentFacts(10, 10, 200, False, 200)), 20)
    policy = RetentionPolicy(500, future_by_file=True)
    assert [one.rule for one in policies.outlook(log, policy._replace(future_by_file=False), 650)] == [None, None]
    goes, waits = policies.outlook(log, policy, 650)
    assert (goes.rule, goes.expires_ms, goes.why) == (
        TIME,
        601,
        "goes by retention.ms and the time of its file, by KAFKA-20609",
    )
    assert (waits.rule, waits.expires_ms, waits.why) == (None, 701, "not old enough")
    first, second = policies.outlook(log, policy, 550)
    assert (first.expires_ms, first.why) == (601, "not old enough by the modification time of its file (KAFKA-20609)")
    assert second.expires_ms == 701
    later = log._replace(segments=(log.segments[0], log.segments[1]._replace(largest_timestamp_ms=50)))
    assert (
        policies.outlook(later, policy, 550)[1].why
        == "waits for segment 0, by the modification time of its file (KAFKA-20609)"
    )


def test_the_segment_from_the_future_at_which_retention_by_time_ends_is_named() -> None:
    old, future, later = SegmentFacts(0, 10, 5), SegmentFacts(10, 10, 2000), SegmentFacts(20, 10, 6)
    log = LogFacts((old, future, later), 30)
    policy = RetentionPolicy(100)
    assert kept_by_future(log, policy, 1000) == future
    assert kept_by_future(log, policy, 2000) is None  # no longer from the future
    assert kept_by_future(LogFacts((old, later), 30), policy, 1000) is None
    assert kept_by_future(LogFacts((later._replace(largest_timestamp_ms=950), future), 30), policy, 1000) is None
    for other in (policy._replace(retention_ms=-1), policy._replace(deletes=False)):
        assert kept_by_future(log, other, 1000) is None
    assert kept_by_future(log._replace(high_watermark=15), policy, 1000) is None  # it could not go anyway
    assert kept_by_future(LogFacts((SegmentFacts(0, 0, 2000, True),), 0), policy, 1000) is None
