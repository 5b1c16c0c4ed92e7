"""The proposed rules for rolling a segment by time."""

from __future__ import annotations

import numpy as np
import pytest
from support.sets.shallow_entries import T

from kts.arguments import INT64_MAX
from kts.proposals.rolling import EarliestTimestamp, LargestTimestamp, WallClock


def test_the_wall_clock_rolls_by_creation_whatever_the_messages_say() -> None:
    assert WallClock().due(T + 1000, T, 1000) is None
    assert WallClock().due(T + 1001, T, 1000) == "created 1001 ms ago, over 1000 ms"


def test_the_largest_timestamp_rolls_when_nothing_young_was_appended() -> None:
    rule = LargestTimestamp()
    rule.observe(np.array([T, T + 50, T + 20, -1]))
    assert rule.due(T + 1050, 0, 1000) is None  # however long ago the segment was made
    assert rule.due(T + 1051, T + 1051, 1000) == f"largest timestamp {T + 50} is 1001 ms old, over 1000 ms"
    rule.observe(np.array([T + 1051]))
    assert rule.due(T + 1051, 0, 1000) is None


def test_a_log_filled_with_old_messages_rolls_at_each_append_by_the_largest_timestamp() -> None:
    rule = LargestTimestamp()
    for day in range(5):
        rule.observe(np.array([T + day * 1000]))
        assert rule.due(T + 10**9, T + 10**9, 1000) is not None


def test_a_timestamp_from_the_future_keeps_the_segment_from_rolling() -> None:
    rule = LargestTimestamp()
    rule.observe(np.array([INT64_MAX]))
    assert rule.due(T, 0, 1000) is None


def test_without_a_timestamp_both_rules_go_by_creation() -> None:
    for rule in (LargestTimestamp(), EarliestTimestamp()):
        rule.observe(np.array([-1, -1]))
        assert rule.due(T + 1000, T, 1000) is None
        assert rule.due(T + 1001, T, 1000) == "created 1001 ms ago, over 1000 ms"


def test_the_earliest_timestamp_rolls_by_the_oldest_record_of_the_segment() -> None:
    rule = EarliestTimestamp()
    rule.observe(np.array([T + 500, T, T + 900]))
    assert rule.due(T + 1000, 0, 1000) is None
    assert rule.due(T + 1001, 0, 1000) == f"earliest timestamp {T} is 1001 ms old, over 1000 ms"
    rule.rolled(None, 0, 5)  # type: ignore[arg-type]
    assert rule.timestamp_ms is None


@pytest.mark.parametrize("rule", [LargestTimestamp, EarliestTimestamp])
def test_negative_times_count_where_they_are_allowed(rule: type[LargestTimestamp | EarliestTimestamp]) -> None:
    off, on = rule(), rule(allow_negative=True)
    for one in (off, on):
        one.observe(np.array([-5000, -1]))
    assert off.due(-3999, -3999, 1000) is None
    assert on.due(-4000, -4000, 1000) is None
    assert on.due(-3999, -3999, 1000) is not None
