"""KIP-33's comparison of indexes on the same messages."""

from __future__ import annotations

from typing import Any

import pytest

from kts.study import indexes
from kts.study.indexes import BUCKETS, CONTINUING, MINUTES, SHIPPED
from kts.study.workloads import Settings

pytestmark = pytest.mark.slow  # logs of 10,000 messages

SETTINGS = Settings(index_messages=10_000, value_bytes=10)


@pytest.fixture(scope="module")
def compared() -> dict[str, Any]:
    return indexes.compare(SETTINGS)


def test_every_search_finds_the_first_message_by_the_time_that_the_log_has(compared: dict[str, Any]) -> None:
    for found in compared.values():
        assert found["segments"] >= 9
        for one in found["indexes"].values():
            assert one["right"] == one["searches"] == indexes.SEARCHES


def test_no_message_after_the_searched_time_is_missed(compared: dict[str, Any]) -> None:
    assert [one["missed"] for found in compared.values() for one in found["indexes"].values()] == [0] * 12


def test_a_time_in_the_future_empties_the_bucket_index_and_moves_every_answer_to_itself(
    compared: dict[str, Any],
) -> None:
    right, wrong = (compared[data]["indexes"] for data in ("CreateTime", "one in the future"))
    assert wrong[BUCKETS]["entries"] < right[BUCKETS]["entries"] / 5  # no later bucket is greater
    assert abs(wrong[MINUTES]["entries"] - right[MINUTES]["entries"]) <= 1
    for name in (SHIPPED, CONTINUING, BUCKETS, MINUTES):
        assert right[name]["tooEarly"] < 100 < wrong[name]["tooEarly"]


def test_an_index_on_append_time_begins_early_for_a_time_of_creation_and_one_on_create_time_does_not(
    compared: dict[str, Any],
) -> None:
    assert compared["CreateTime"]["indexes"][SHIPPED]["tooEarly"] == 0
    assert compared["LogAppendTime"]["indexes"][SHIPPED]["tooEarly"] > 0


def test_a_lost_bucket_index_costs_all_later_segments_and_the_others_one(compared: dict[str, Any]) -> None:
    found = compared["CreateTime"]
    lost = {name: found["indexes"][name]["segmentsReadAfterLoss"] for name in (SHIPPED, BUCKETS, MINUTES)}
    assert lost == {SHIPPED: 1, BUCKETS: found["segments"] - 2, MINUTES: 1}


def test_each_option_can_be_searched_by_the_times_that_it_keeps() -> None:
    found = indexes.by_option(SETTINGS)
    known = {name: [one[time] is not None for time in indexes.TIMES] for name, one in found.items()}
    assert known == {
        "option 1": [True, True],
        "option 2": [False, True],
        "option 3": [True, True],
        "option 4 CreateTime": [True, False],
        "option 4 LogAppendTime": [False, True],
    }
    for option, one in found.items():
        for time in indexes.TIMES:
            if one[time] is not None:
                assert one[time]["missed"] == 0
                exact = one[time]["right"] == indexes.SEARCHES
                assert exact or (option, time) == ("option 3", "LogAppendTime")  # it knows the minute
    by_create = {name: one["CreateTime"]["bytesRead"] for name, one in found.items() if one["CreateTime"]}
    assert by_create["option 1"] > 50 * by_create["option 4 CreateTime"]  # no index by CreateTime: from the start
    assert found["option 1"]["logBytes"] == found["option 2"]["logBytes"] + 8 * SETTINGS.index_messages
