"""The rules of the options, on streams that are short enough to count by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kts.config import DAY_MS, HOUR_MS
from kts.study import rules
from kts.study.rules import CREATE_TIME, EARLIEST, LARGEST, LOG_APPEND_TIME, RULES, WALL_CLOCK, Played, SegmentRule
from kts.study.workloads import START_MS, MessageStream, Settings

HOURLY = Settings(roll_ms=7 * HOUR_MS, retention_ms=3 * DAY_MS)


def played(
    rule: SegmentRule, create_h: Sequence[float], arrival_h: Sequence[float], settings: Settings = HOURLY
) -> Played:
    create, arrival = ((START_MS + np.array([hours]) * HOUR_MS).astype(np.int64) for hours in (create_h, arrival_h))
    return rules.play(rule, create, arrival, settings)


def test_equal_large_latencies_make_48_segments_of_one_message_by_the_paper_s_rule_and_7_by_append_time() -> None:
    arrival = np.arange(48) * 1.0
    six = Settings(roll_ms=6 * HOUR_MS)  # spanned by seven messages
    counts = {rule: int(played(rule, arrival - 24, arrival, six).begins.sum()) for rule in RULES}
    assert counts == {LOG_APPEND_TIME: 7, CREATE_TIME: 7, EARLIEST: 48, LARGEST: 48, WALL_CLOCK: 7}


def test_a_busy_log_never_rolls_by_the_largest_timestamp() -> None:
    arrival = np.arange(48) * 1.0
    assert played(LARGEST, arrival, arrival).begins.sum() == 1
    assert played(LARGEST, [0, 1, 9, 10], [0, 1, 9, 10]).begins.tolist() == [[True, False, True, False]]


def test_a_lagged_message_rolls_by_the_earliest_timestamp_and_not_by_kafka_s_rule() -> None:
    create, arrival = [0, 1, -20, 3, 4], [0, 1, 2, 3, 4]
    assert played(EARLIEST, create, arrival).begins.tolist() == [[True, False, False, True, False]]
    assert played(CREATE_TIME, create, arrival).begins.sum() == 1


def test_a_time_in_the_future_keeps_kafka_s_rule_from_rolling() -> None:
    arrival = np.arange(48) * 1.0
    create = np.where(arrival == 3, 1e5, arrival)
    assert np.flatnonzero(played(CREATE_TIME, create, arrival).begins).tolist() == [0, 3]


def test_a_segment_goes_when_its_largest_time_and_those_before_it_have_expired() -> None:
    one = played(CREATE_TIME, [0, 5, 8, 9], [0, 5, 8, 9])
    assert one.begins.tolist() == [[True, False, True, False]]
    expected = [5 + 72, 5 + 72, 9 + 72, 9 + 72]
    checks = START_MS + np.array([expected]) * HOUR_MS + HOURLY.check_ms  # after, not at, the end of retention.ms
    assert (one.deleted_ms == checks).all()
    late = played(CREATE_TIME, [50, 58, 9], [50, 58, 66])  # the last one is in the second segment
    assert len(set(late.deleted_ms[0].tolist())) == 2 and late.deleted_ms[0][2] == late.deleted_ms[0][1]


def test_messages_older_than_retention_are_deleted_at_the_next_check_with_the_active_segment() -> None:
    old = played(CREATE_TIME, [-100, -99, -98], [0, 1, 2])
    assert old.begins.all()
    assert ((old.deleted_ms - START_MS) // HOUR_MS == [0, 1, 2]).all()
    assert ((played(LOG_APPEND_TIME, [-100, -99, -98], [0, 1, 2]).deleted_ms - START_MS) // HOUR_MS == 74).all()


@pytest.mark.parametrize(("rule", "hours_apart"), [(CREATE_TIME, 0), (LOG_APPEND_TIME, 24)])
def test_pattern_2_the_source_deletes_at_the_same_time_by_create_time_and_a_day_earlier_by_append_time(
    rule: SegmentRule, hours_apart: int
) -> None:
    arrival = START_MS + DAY_MS + np.arange(48)[None] * HOUR_MS
    create = arrival - DAY_MS
    stream = MessageStream(create, create, create, arrival, np.zeros((1, 48), np.int8))
    apart = rules.play(rule, create, arrival, HOURLY).deleted_ms - rules.at_source(rule, stream, HOURLY)
    assert (apart == hours_apart * HOUR_MS).all()


def test_two_sources_are_two_logs() -> None:
    arrival = START_MS + np.arange(8)[None] * HOUR_MS
    source = np.array([[0, 1, 0, 1, 0, 1, 0, 1]], np.int8)
    created = np.where(source == 1, arrival - DAY_MS, arrival)
    stream = MessageStream(created, created, created, arrival, source)
    hours = (rules.at_source(CREATE_TIME, stream, HOURLY) - START_MS) // HOUR_MS
    assert hours.tolist() == [[78, 55, 78, 55, 78, 55, 78, 55]]  # the last of each source: hours 6 and 7 - 24
