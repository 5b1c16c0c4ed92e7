"""One run of the study: its real logs agree with its rules, and the same settings give the same report."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from kts.study import Settings, rules, run
from kts.study.study import steps

pytestmark = pytest.mark.slow  # whole studies, with real logs of every option

SETTINGS = Settings(partitions=8, duration_ms=43_200_000, index_messages=400)


def test_the_sample_in_real_logs_counts_as_the_rules_and_progress_ends_at_its_sum() -> None:
    amounts: list[int] = []
    report = run(SETTINGS, advance=amounts.append)
    assert sum(amounts) == steps(SETTINGS)
    sample = report["sample"]
    assert sample["differences"] == []
    assert sample["logs"] == 4 * len(rules.OPTIONS) and sample["segments"] > sample["logs"]


def test_the_same_settings_give_the_same_report() -> None:
    small = replace(SETTINGS, partitions=1)
    assert without_cpu(run(small)) == without_cpu(run(small))


def test_a_difference_between_logs_and_rules_is_reported() -> None:
    """A rule that rolls earlier than the log, whose settings are its own."""
    from kts.study.study import Sample
    from kts.study.workloads import streams

    sample = Sample(SETTINGS)
    (stream,) = streams("pattern 1", SETTINGS)
    later = replace(SETTINGS, roll_ms=SETTINGS.roll_ms // 3)
    played = {rule: rules.play(rule, stream.create_ms, stream.arrival_ms, later) for rule in rules.RULES}
    sample.play("pattern 1", stream, played, lambda amount: None)
    assert len(sample.differences) >= len(rules.OPTIONS) - 1


def test_importing_kts_does_not_load_the_study() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "import kts, sys; print([name for name in sys.modules if 'study' in name])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == "[]"


def without_cpu(report: dict[str, Any]) -> str:
    return re.sub(r'"\w+CpuMs": [^,}]+', "", json.dumps(report))
