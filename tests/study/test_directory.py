"""The latencies and the disorder of real partitions, what is known of them, and the advice that follows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.golden import golden

import kts
from kts.config import DAY_MS, HOUR_MS
from kts.study import directory
from kts.study.workloads import START_MS, Settings

SETTINGS = Settings()


def written(path: Path, create_h: Sequence[float], arrival_h: Sequence[float], kind: str) -> kts.PartitionLog:
    """A partition whose messages have these times of creation and arrival, in hours."""
    now = [0]
    with kts.Log(path, {"message.timestamp.type": kind, "segment.ms": 366 * DAY_MS}, clock=lambda: now[0]) as log:
        for create, arrival in zip(create_h, arrival_h, strict=True):
            now[0] = START_MS + int(arrival * HOUR_MS)
            log.append(kts.encode({"timestamp": np.array([START_MS + int(create * HOUR_MS)]), "value": [b"x"]}))
    return kts.open_partition(path)


def test_a_log_append_time_topic_has_both_times_and_so_its_latency(tmp_path: Path) -> None:
    arrival = np.arange(1, 101) * 1.0
    log = written(tmp_path / "orders-0", arrival - 1, arrival, "LogAppendTime")
    report = directory.run([log], SETTINGS)
    assert report["known"] == {"both": 100, "arrivalOnly": 0, "creationOnly": 0}
    assert report["latencyMs"] == {key: HOUR_MS for key in ("least", "greatest")} | {
        key: pytest.approx(HOUR_MS, rel=0.01) for key in ("median", "p90", "p99")
    }


def test_of_create_time_alone_the_arrival_is_the_latest_time_so_far(tmp_path: Path) -> None:
    log = written(tmp_path / "orders-0", [1, 2, -20, 3], [1, 2, 3, 4], "CreateTime")
    found = directory.entries_of(log)
    assert ((found.arrival_ms - START_MS) // HOUR_MS).tolist() == [1, 2, 2, 3]
    report = directory.run([log], SETTINGS)
    assert report["known"]["creationOnly"] == 4 and report["latencyMs"]["median"] is None
    assert report["behindMs"]["greatest"] == 22 * HOUR_MS


def test_a_first_time_from_the_future_hides_no_arrival(tmp_path: Path) -> None:
    log = written(tmp_path / "orders-0", [9e5, 1, 2, 9e5, 3], [0, 1, 2, 3, 4], "CreateTime")
    os.utime(log.segments[0].path, (START_MS / 1000 + 86_400,) * 2)
    found = directory.entries_of(kts.open_partition(tmp_path / "orders-0"))
    assert ((found.arrival_ms - START_MS) // HOUR_MS).tolist() == [1, 1, 2, 2, 3]
    assert directory.run([kts.open_partition(tmp_path / "orders-0")], SETTINGS)["inTheFuture"] == 2


def test_equal_large_latencies_are_served_by_create_time(tmp_path: Path) -> None:
    arrival = np.arange(200) * 1.0
    log = written(tmp_path / "orders-0", arrival - 30, arrival, "LogAppendTime")
    advice = directory.run([log], SETTINGS)["advice"]
    assert advice["option"] == "option 4 CreateTime"
    assert advice["settings"]["message.timestamp.before.max.ms"] in (30 * HOUR_MS, 31 * HOUR_MS)
    assert "retention: CT" in advice["why"]


def test_mixed_latencies_and_wrong_times_are_served_by_append_time(tmp_path: Path) -> None:
    arrival = np.arange(200) * 1.0
    mixed = written(tmp_path / "mixed-0", arrival - 30 * (np.arange(200) % 2), arrival, "LogAppendTime")
    wrong = written(tmp_path / "wrong-0", np.where(arrival == 5, 9e4, arrival), arrival, "LogAppendTime")
    for log in (mixed, wrong):
        assert directory.run([log], SETTINGS)["advice"]["option"] == "option 4 LogAppendTime"
    advice = directory.run([wrong], SETTINGS)["advice"]
    assert any("1 have a CreateTime after their arrival" in one for one in advice["why"])
    assert advice["settings"] == {"message.timestamp.type": "LogAppendTime"}  # the limits hold under CreateTime only


def test_kafka_s_own_directory_with_two_times_from_the_future_is_served_by_append_time() -> None:
    logs = list(kts.open_log_dirs(golden("demo", "orders").log_dir).values())
    report: dict[str, Any] = directory.run(logs, SETTINGS)
    assert report["inTheFuture"] == 2 and report["known"]["creationOnly"] == report["entries"] == 450
    assert report["advice"]["option"] == "option 4 LogAppendTime"


def test_a_large_partition_is_read_at_equal_distances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MOST_ENTRIES", 30)
    log = written(tmp_path / "orders-0", np.arange(100), np.arange(100), "CreateTime")
    assert ((directory.entries_of(log).create_ms - START_MS) // HOUR_MS).tolist() == list(range(0, 100, 4))


def test_without_a_timestamp_there_is_no_advice(tmp_path: Path) -> None:
    log = written(tmp_path / "orders-0", [], [], "CreateTime")
    assert directory.run([log], SETTINGS)["advice"] is None


def test_append_times_alone_give_no_advice() -> None:
    report = directory.run(list(kts.open_log_dirs(golden("0.10.2.2", "lat-none").log_dir).values()), SETTINGS)
    assert report["known"]["arrivalOnly"] == report["entries"] > 0
    assert report["advice"] is None
