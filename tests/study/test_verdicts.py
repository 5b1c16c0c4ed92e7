"""A verdict follows from its figures by one rule, and changes when they do."""

from __future__ import annotations

from typing import Any

import pytest
from support.sets.studies import small_report

from kts.study import run
from kts.study.verdicts import CT, DEPENDS, EITHER, LAT, Criterion, cell, preference
from kts.study.workloads import PATTERNS, Settings

pytestmark = pytest.mark.slow  # whole studies: the verdicts of the papers' tables are their result


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [
        ([(5, 5), (9, 9)], EITHER),
        ([(5, 6), (9, 9)], EITHER),  # within the tolerance
        ([(5, 7), (9, 9)], CT),
        ([(5, 5), (9, 2)], LAT),
        ([(1, 5), (9, 2)], DEPENDS),
    ],
)
def test_a_criterion_speaks_for_the_smaller_figure_if_they_differ_by_more_than_its_tolerance(
    figures: list[tuple[float, float]], verdict: str
) -> None:
    criteria = [Criterion("x", create, append, 1, "") for create, append in figures]
    assert preference(criteria) == verdict
    assert cell("pattern 1", EITHER, criteria)["agrees"] is (verdict == EITHER)


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return small_report()


def verdicts(report: dict[str, Any], table: str, rule: str | None = None) -> list[str]:
    return [cell["measured"] for cell in report[table] if cell.get("rule") == rule]


def test_kip_32_retention_comparison_is_what_is_measured(report: dict[str, Any]) -> None:
    assert verdicts(report, "retention") == [EITHER, CT, LAT, LAT]


def test_kip_32_rolling_comparison_is_what_its_own_rule_measures(report: dict[str, Any]) -> None:
    assert verdicts(report, "rolling", "earliest-timestamp") == [EITHER, LAT, LAT, LAT]


def test_kafka_s_rule_rolls_by_create_time_as_by_append_time_unless_times_are_wrong(report: dict[str, Any]) -> None:
    assert verdicts(report, "rolling", "CreateTime") == [EITHER, EITHER, EITHER, LAT]
    apart = [(cell["rule"], cell["pattern"]) for cell in report["rolling"] if not cell["agrees"]]
    assert apart[:2] == [("CreateTime", "pattern 2"), ("CreateTime", "pattern 3")]


def test_the_verdicts_change_with_the_streams() -> None:
    """A large latency below a segment's span is a small one, whatever the pattern is called."""
    small = run(Settings(partitions=2, large_latency_ms=3_600_000, wrong=0.0, index_messages=100))
    assert verdicts(small, "retention") == [EITHER] * len(PATTERNS)
    assert verdicts(small, "rolling", "earliest-timestamp") == [EITHER] * len(PATTERNS)


def test_the_table_of_options_is_as_measured_but_for_kafka_s_rule_of_rolling(report: dict[str, Any]) -> None:
    apart = [(cell["row"], cell["option"], cell["measured"]) for cell in report["options"] if not cell["agrees"]]
    assert apart == [("rolling", "option 4 CreateTime", ["pattern 1", "pattern 2", "pattern 3"])]
    assert len(report["options"]) == 25
