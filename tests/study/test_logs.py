"""Real logs and the rules without files count the same segments, deletions and times of deletion."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kts.config import DAY_MS, HOUR_MS
from kts.study import logs, rules
from kts.study.workloads import PATTERNS, Settings, streams

pytestmark = pytest.mark.slow  # some hundred real segments for each option: rules without files stand for them

SETTINGS = Settings(partitions=3, duration_ms=2 * DAY_MS, wrong=0.05, value_bytes=1)
QUICK = Settings(partitions=3, duration_ms=DAY_MS, retention_ms=10 * HOUR_MS, roll_ms=3 * HOUR_MS, value_bytes=1)


@pytest.mark.parametrize("settings", [SETTINGS, QUICK], ids=["kept", "expired on arrival"])
@pytest.mark.parametrize("name", rules.OPTIONS)
def test_real_logs_and_rules_count_the_same_segments_deletions_and_times(
    name: str, settings: Settings, tmp_path: Path
) -> None:
    option = rules.OPTIONS[name]
    segments = 0
    for number, pattern in enumerate(PATTERNS):
        (stream,) = streams(pattern, settings)
        row = number % 3
        played = rules.play(option.rule, stream.create_ms, stream.arrival_ms, settings)
        found = logs.play(str(tmp_path / pattern), option, stream.create_ms[row], stream.arrival_ms[row], settings)
        assert found == logs.expected(played, row)
        assert set(found.begins) == set(found.deleted_ms)
        segments += len(found.begins)
    assert segments > len(PATTERNS)


def test_the_clock_of_a_real_log_is_the_study_s(tmp_path: Path) -> None:
    option = rules.OPTIONS["option 4 LogAppendTime"]
    times = np.array([1_000_000, 2_000_000])
    found = logs.play(str(tmp_path), option, times, times, Settings(check_ms=1))
    assert found.deleted_ms == {0: 2_000_000 + 3 * DAY_MS + 1}


def test_the_scratch_directory_is_gone_afterwards() -> None:
    with logs.scratch() as directory:
        (Path(directory) / "x").mkdir()
    assert not Path(directory).exists()
