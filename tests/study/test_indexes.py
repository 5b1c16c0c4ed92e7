"""KIP-33's comparison of indexes on the same messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kts.study import indexes
from kts.study.indexes import BUCKETS, CONTINUING, MINUTES, SHIPPED
from kts.study.workloads import Settings

pytestmark = pytest.mark.slow  # logs of 10,000 messages

SETTINGS = Settings(index_messages=10_000, value_bytes=10)


@pytest.fixture(scope="module")
def compared() -> dict[str, Any]:
    return indexes.compare(SETTINGS)


@pytest.fixture(scope="module")
def options() -> dict[str, Any]:
    return indexes.by_option(SETTINGS)


def test_every_search_finds_the_first_message_by_the_time_that_the_log_has(compared: dict[str, Any]) -> None:
    for found in compared.values():
        assert found["segments"] >= 9
        for one in found["indexes"].values():
            assert one["right"] == one["searches"] == indexes.SEARCHES


def test_no_message_after_the_searched_time_is_missed(compared: dict[str, Any]) -> None:
    missed = {data: {one["created"]["missed"] for one in found["indexes"].values()} for data, found in compared.items()}
    assert missed == {"LogAppendTime": {0}, "CreateTime": {0}, "one in the future": {0}}


def test_a_time_in_the_future_empties_the_bucket_index_and_moves_every_answer_to_itself(
    compared: dict[str, Any],
) -> None:
    right, wrong = (compared[data]["indexes"] for data in ("CreateTime", "one in the future"))
    assert wrong[BUCKETS]["entries"] < right[BUCKETS]["entries"] / 5  # no later bucket is greater
    assert abs(wrong[MINUTES]["entries"] - right[MINUTES]["entries"]) <= 1
    for name in (SHIPPED, CONTINUING, BUCKETS, MINUTES):
        assert right[name]["created"]["early"] == 0 and wrong[name]["created"]["early"] > 1000
        assert wrong[name]["created"]["exact"] < 10 < right[name]["created"]["exact"]


def test_an_index_on_append_time_is_early_for_a_creation_and_one_on_create_time_misses_arrivals(
    compared: dict[str, Any],
) -> None:
    append, create = (compared[data]["indexes"][SHIPPED] for data in ("LogAppendTime", "CreateTime"))
    assert append["arrived"] == create["created"] == {"exact": indexes.SEARCHES, "early": 0, "missed": 0}
    assert append["created"]["early"] > 0 == append["created"]["missed"]
    assert create["arrived"]["missed"] > 0 == create["arrived"]["early"]


def test_the_judge_counts_what_is_read_in_vain_and_what_is_never_read() -> None:
    times = np.array([10, 30, 20, 40, 50])
    assert indexes.judged([1], [25], times) == {"exact": 1, "early": 0, "missed": 0}
    assert indexes.judged([0], [25], times) == {"exact": 0, "early": 1, "missed": 0}
    assert indexes.judged([3, 3], [25, 15], times) == {"exact": 0, "early": 0, "missed": 1.5}
    assert indexes.judged([5], [60], times) == {"exact": 1, "early": 0, "missed": 0}  # none is the right answer


def test_a_search_reads_no_further_than_an_index_interval_or_a_minute(compared: dict[str, Any]) -> None:
    batch = compared["CreateTime"]["logBytes"] * indexes.BATCH / SETTINGS.index_messages
    for one in compared["CreateTime"]["indexes"].values():
        assert indexes.BATCH <= one["messages"] <= one["mostMessages"]
        assert one["mostBytesRead"] == pytest.approx(one["mostMessages"] / indexes.BATCH * batch, rel=0.05)
        assert one["mostBytesRead"] < 4096 + 3 * batch


def test_rebuilding_reads_the_log_and_a_lost_bucket_index_all_later_segments(compared: dict[str, Any]) -> None:
    found = compared["CreateTime"]
    indexed = found["indexes"]
    assert {one["rebuildBytesRead"] for one in indexed.values()} == {found["logBytes"]}
    lost = {name: indexed[name]["segmentsReadAfterLoss"] for name in (SHIPPED, CONTINUING, BUCKETS, MINUTES)}
    assert lost == {SHIPPED: 1, CONTINUING: 1, BUCKETS: found["segments"] - 2, MINUTES: 1}
    read = {name: indexed[name]["bytesReadAfterLoss"] for name in lost}
    assert read[SHIPPED] == read[MINUTES] < found["logBytes"] / 8 < found["logBytes"] / 2 < read[BUCKETS]


def test_each_option_can_be_searched_by_the_times_that_it_keeps(options: dict[str, Any]) -> None:
    found = options
    known = {name: [one[time] is not None for time in indexes.TIMES] for name, one in found.items()}
    assert known == {
        "option 1": [True, True],
        "option 2": [False, True],
        "option 3": [True, True],
        "option 4 CreateTime": [True, False],
        "option 4 LogAppendTime": [False, True],
    }
    for option, one in found.items():
        for time, question, other in (("CreateTime", "created", "arrived"), ("LogAppendTime", "arrived", "created")):
            if one[time] is not None:
                exact = one[time][question]["exact"] == one[time]["right"] == indexes.SEARCHES
                assert exact or (option, time) == ("option 3", "LogAppendTime")  # it knows the minute
                assert one[time][question]["missed"] == 0
                assert (one[time][other]["missed"] > 0) is (time == "CreateTime")


def test_the_options_are_compared_on_the_same_messages_in_the_same_format_with_indexes_as_dense(
    options: dict[str, Any],
) -> None:
    found = options
    count = SETTINGS.index_messages // indexes.set_messages(SETTINGS) * indexes.set_messages(SETTINGS)
    sizes = {name: one["logBytes"] / count for name, one in found.items()}
    plain = indexes.MESSAGE_OVERHEAD + SETTINGS.value_bytes
    assert sizes == {name: plain + 8 * (name == "option 1") for name in sizes}
    dense = [one["indexBytes"] for name, one in found.items() if name != "option 3"]
    assert max(dense) < 1.2 * min(dense)
    by_create = {name: one["CreateTime"]["bytesRead"] for name, one in found.items() if one["CreateTime"]}
    assert by_create["option 1"] > 50 * by_create["option 4 CreateTime"]  # no index by CreateTime: from the start
    for one in found.values():
        for way in filter(None, (one[time] for time in indexes.TIMES)):
            for question in ("created", "arrived"):
                each = one["logBytes"] / count
                assert way["toFirst"][question] == round(way["bytesRead"] + way[question]["early"] * each)
