"""KIP-33's comparison of indexes on the same messages."""

from __future__ import annotations

from typing import Any

import pytest

from kts.study import indexes
from kts.study.indexes import BUCKETS, CONTINUING, MINUTES, SHIPPED
from kts.study.workloads import Settings

pytestmark = pytest.mark.slow  # three logs of 20,000 messages

SETTINGS = Settings(index_messages=20_000, value_bytes=10)


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
