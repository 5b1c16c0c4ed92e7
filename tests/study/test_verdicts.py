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
    criteria = [Criterion("x", create, append, 1, "ms") for create, append in figures]
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
    apart = [cell for name in ("retention", "rolling", "options") for cell in small[name] if cell["agrees"] is False]
    assert len(apart) > 5 and all(cell["why"] for cell in apart)  # each disagreement has its reason


def test_the_table_of_options_is_as_measured_but_for_kafka_s_rule_of_rolling(report: dict[str, Any]) -> None:
    apart = [(cell["row"], cell["option"], cell["measured"]) for cell in report["options"] if not cell["agrees"]]
    known = [one for one in apart if one[0] != "search"]
    assert known == [("rolling", "option 4 CreateTime", ["pattern 1", "pattern 2", "pattern 3"])]
    assert len(report["options"]) == 30


def test_the_paper_leaves_search_to_kip_33_and_only_create_time_alone_misses_arrivals(report: dict[str, Any]) -> None:
    cells = {cell["option"]: cell for cell in report["options"] if cell["row"] == "search"}
    assert all(cell["paper"] is cell["agrees"] is None for cell in cells.values())
    missed = {option: cell["figures"]["early"]["arrived"] is None for option, cell in cells.items()}
    assert missed == {option: option == "option 4 CreateTime" for option in cells}
    assert cells["option 4 CreateTime"]["measured"] == "created: exact; arrived: missed"
    assert cells["option 1"]["measured"] == "created: early; arrived: exact"


def test_every_cell_says_by_its_figures_what_decided_it(report: dict[str, Any]) -> None:
    retention = report["retention"][1]
    assert retention["why"] == "source and target delete a message apart: CT 0 ms, LAT 1.0 d"
    rolling = {(cell["rule"], cell["pattern"]): cell["why"] for cell in report["rolling"]}
    assert "both figures are within their tolerance" in rolling["CreateTime", "pattern 2"]
    assert rolling["CreateTime", "pattern 2"].endswith("; equal latencies cancel out")
    assert "segments closed before half of segment.ms: CT 100%, LAT 0%" in rolling["earliest-timestamp", "pattern 2"]
    (option,) = [cell for cell in report["options"] if cell["agrees"] is False]
    assert option["why"].endswith("by the paper's rule, which has the clock, it holds in pattern 1")


def test_what_was_known_before_stands_out_by_itself() -> None:
    """A day of a message each half hour: 48 segments of one message where LogAppendTime rolls 7."""
    report = run(
        Settings(partitions=1, duration_ms=86_400_000, roll_ms=10_800_000, messages_per_hour=2, index_messages=100)
    )
    assert (
        "pattern 2: CreateTime by KIP-32's rule has 48 segments, all of one message, where LogAppendTime has 7."
        in report["findings"]
    )
    assert not any(one.startswith("pattern 2: CreateTime by Kafka's") for one in report["findings"])
