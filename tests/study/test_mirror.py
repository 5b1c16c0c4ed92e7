"""KIP-32's mirror maker case in detail: T0, T1 and T2 in both clusters, and what a consumer can know at T3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kts.study import mirror, rules
from kts.study.workloads import Settings

SETTINGS = Settings(latency_ms=250, large_latency_ms=3_600_000, value_bytes=1)


@pytest.fixture(scope="module")
def compared() -> dict[str, Any]:
    return mirror.compare(SETTINGS)


def test_no_message_overtakes_another_and_each_hop_takes_time() -> None:
    true = mirror.journey(SETTINGS)
    for before, after in zip(true, true[1:], strict=False):
        assert (after > before).all() and (after[1:] >= after[:-1]).all()


def test_create_time_is_passed_across_clusters_and_append_time_is_overridden(compared: dict[str, Any]) -> None:
    t0, t1, t2, _ = compared["true"].values()
    stored = {name: (*one["source"].values(), *one["target"].values()) for name, one in compared["options"].items()}
    assert stored == {
        "option 1": (t0, t1, t0, t2),
        "option 2": (None, t1, None, t2),
        "option 3": (t0, None, t0, None),
        "option 4 CreateTime": (t0, None, t0, None),
        "option 4 LogAppendTime": (None, t1, None, t2),
    }
    assert compared["options"]["option 3"]["indexedLogAppendTime"] == t2


def test_what_a_consumer_computes_is_true_or_null(compared: dict[str, Any]) -> None:
    known = {
        name: [key for key in ("endToEndMs", "lagMs", "latencyMs") if one[key] is not None]
        for name, one in compared["options"].items()
    }
    assert known == {
        "option 1": ["endToEndMs", "lagMs", "latencyMs"],
        "option 2": ["lagMs"],
        "option 3": ["endToEndMs"],
        "option 4 CreateTime": ["endToEndMs"],
        "option 4 LogAppendTime": ["lagMs"],
    }
    for one in compared["options"].values():
        for key in ("endToEnd", "lag", "latency"):
            assert one[f"{key}Ms"] in (None, one[f"{key}TrueMs"]) and one[f"{key}ErrorMs"] in (None, 0)


@pytest.mark.parametrize("name", rules.TABLE)
def test_a_real_log_shows_a_consumer_what_its_option_says(name: str, tmp_path: Path) -> None:
    option, true = rules.OPTIONS[name], mirror.journey(SETTINGS)
    seen = mirror.cluster(str(tmp_path), option, true.t0, true.t1, SETTINGS)
    assert (seen.create_ms is not None) == option.create_time and (seen.append_ms is not None) == option.append_time
    assert seen.create_ms is None or (seen.create_ms == true.t0).all()
    assert seen.append_ms is None or (seen.append_ms == true.t1).all()
