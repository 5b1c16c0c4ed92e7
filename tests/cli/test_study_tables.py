"""The words and numbers in the cells of a study's tables."""

from __future__ import annotations

import pytest

from kts.cli import study_tables


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 ms"), (999, "999 ms"), (61_000, "1.0 min"), (-7_200_000, "-2.0 h"), (130_000_000, "1.5 d")],
)
def test_a_length_is_shown_by_its_largest_part(ms: int, text: str) -> None:
    assert study_tables.show(ms) == text


def test_where_a_rule_holds_is_named_by_its_patterns() -> None:
    patterns = ["pattern 1", "pattern 2", "pattern 3", "robustness"]
    assert study_tables.words(patterns) == "in all patterns"
    assert study_tables.words(patterns[:2]) == "in pattern 1, 2"
    assert study_tables.words("LAT overridden") == "LAT overridden"


def test_a_difference_between_logs_and_rules_is_loud() -> None:
    sample = {"logs": 2, "segments": 9, "differences": ["pattern 1, partition 3, option 1"]}
    assert "DIFFERENT from the rules in pattern 1, partition 3, option 1" in study_tables.compared(sample)
    assert study_tables.compared(sample | {"differences": []}).endswith("the rules count the same")
