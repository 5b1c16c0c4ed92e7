"""Every recorded verdict of Kafka's cleaner, from kts.Log as shipped: passes batch for batch; what consumers see."""

from __future__ import annotations

from typing import Any

import pytest
from support.golden import oracle_cases
from support.oracle import oracle_clean
from support.oracle.oracle_compare import judge

pytestmark = pytest.mark.slow

FAMILIES = ("clean-3.9", "clean-4.3", "view-3.9", "view-4.3")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_recorded_pass_of_the_cleaner_agrees(name: str) -> None:
    judge(name, oracle_clean.clean, ())


@pytest.mark.parametrize("name", FAMILIES[2:])
def test_no_pass_of_the_default_behaviour_changes_the_latest_state(name: str) -> None:
    """Kafka's does where an ABORT is not met; a checkpoint that was set by hand is not the log's own."""
    for case in oracle_cases(name):
        if any(step["do"] == "checkpoint" for step in case["in"]["steps"]):
            continue
        answers = oracle_clean.clean(case["in"] | {"id": case["id"], "gen": case["gen"]}, shipped=False)["answers"]
        before: dict[str, Any] | None = None
        for step, answer in zip(case["in"]["steps"], answers, strict=True):
            if step["do"] == "view":
                if before is not None:
                    assert answer["latest"] == before["latest"], case["id"]
                    assert answer["committed_position"] == before["committed_position"], case["id"]
                    assert answer["uncommitted_position"] == before["uncommitted_position"], case["id"]
                    assert all(row in before["uncommitted"] for row in answer["uncommitted"]), case["id"]
                before = answer
            elif step["do"] != "clean":
                before = None
