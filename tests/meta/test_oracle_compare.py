"""The comparison with Kafka's verdicts sees what it must: every field, every error, every record."""

from __future__ import annotations

import base64
import copy
import json
from collections import Counter
from typing import Any

import pytest
from support.golden import oracle_cases
from support.oracle import oracle_decode
from support.oracle.oracle_compare import Known, differences, judge

READ = {"0.10.2": 1125, "3.9": 929}  # cases without damage that kts reads; what it refuses: test_oracle_decode.py
REFUSED = {"0.10.2": 35, "3.9": 3}


@pytest.mark.parametrize("gen", ["0.10.2", "3.9"])
def test_undamaged_bytes_are_described_as_kafka_describes_them(gen: str) -> None:
    counts: Counter[str] = Counter()
    for case in oracle_cases(f"decode-{gen}"):
        if "error" in json.dumps(case["out"]):
            continue
        ours = oracle_decode.decode(base64.b64decode(case["in"]["bytes"]), gen)
        differs = differences(case, ours)
        if any("_error" in difference.where for difference in differs):
            counts["refused"] += 1
        else:
            assert not differs, f"{case['id']}: {differs[0]}"
            counts["read"] += 1
    assert counts == {"read": READ[gen], "refused": REFUSED[gen]}


def case(**out: Any) -> dict[str, Any]:
    return {"id": "made-up", "family": "convert", "gen": "3.9", "in": {}, "tags": [], "out": out}


def test_a_field_left_out_is_a_difference_but_metrics_may_lack() -> None:
    verdict = case(max_timestamp=5, metrics={"calls": 1})
    assert differences(verdict, {"max_timestamp": 5}) == []
    assert [found.where for found in differences(verdict, {})] == ["out.max_timestamp"]


def test_another_value_another_length_and_another_type_are_differences() -> None:
    verdict = case(answers=[1, [2, 3]], open=True)
    assert differences(verdict, {"answers": [1, (2, 3)], "open": True}) == []
    for answer in ([1, [2, 4]], [1, [2]], [1], [1, None], None):
        assert differences(verdict, {"answers": answer, "open": True})
    assert differences(verdict, {"answers": [1, [2, 3]], "open": 1})


def test_an_error_agrees_with_one_of_its_group_only() -> None:
    verdict = case(error={"class": "org.apache.kafka.common.InvalidRecordException", "message": "no"})
    assert differences(verdict, {"error": {"class": "CorruptRecordException", "message": "other words"}}) == []
    assert differences(verdict, {"error": {"class": "InvalidTimestampException"}})
    assert differences(verdict, {"error": {"class": "NullPointerException"}})
    assert differences(verdict, {"bytes": ""})
    assert differences(verdict, {})
    assert differences(case(size=1), {"size": 1, "error": {"class": "CorruptRecordException"}})


def test_the_refused_records_are_compared() -> None:
    refused = {"class": "RecordValidationException", "invalid": "InvalidTimestampException"}
    verdict = case(error=refused | {"record_errors": [[0, "a"], [2, "b"]]})
    answer = {"class": "InvalidTimestampException", "record_errors": [[0, "x"], [2, "y"]]}
    assert differences(verdict, {"error": answer}) == []
    assert differences(verdict, {"error": answer | {"record_errors": [[0, "x"]]}})


def test_bytes_are_compared_exactly_or_by_their_records() -> None:
    rebuilt = next(case for case in oracle_cases("convert-3.9") if case["out"].get("byte_exact") is False)
    sound = {"bytes": rebuilt["out"]["bytes"]}
    assert differences(rebuilt, sound) == []
    exact = copy.deepcopy(rebuilt)
    exact["out"]["byte_exact"] = True
    assert differences(exact, sound) == []
    assert differences(exact, {"bytes": ""})
    assert differences(rebuilt, {"bytes": ""})
    assert differences(rebuilt, {})
    rebuilt["out"]["decoded"]["batches"][-1]["records"][-1]["ts"] += 1
    assert differences(rebuilt, sound)


def test_a_class_of_differences_has_just_the_cases_that_it_says() -> None:
    def refuse(case: dict[str, Any]) -> dict[str, Any]:
        return {"error": {"class": "KafkaException"}}

    total = 500 - sum(
        case["out"].get("error", {}).get("class", "").rpartition(".")[2]
        in ("IllegalArgumentException", "KafkaException")
        for case in oracle_cases("convert-3.9")
    )
    judge("convert-3.9", refuse, [Known("everything is refused", total, lambda case, differs: True)])
    with pytest.raises(AssertionError):
        judge("convert-3.9", refuse, [Known("everything is refused", total + 1, lambda case, differs: True)])
    with pytest.raises(AssertionError, match="cases of convert-3.9"):
        judge("convert-3.9", refuse, [Known("nothing", 0, lambda case, differs: False)])
    twice = [Known("one", total, lambda case, differs: True), Known("two", total, lambda case, differs: True)]
    with pytest.raises(AssertionError, match="cases of convert-3.9"):
        judge("convert-3.9", refuse, twice)
