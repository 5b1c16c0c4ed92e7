"""The latencies and the disorder of real partitions, what is known of them, and the advice that follows."""

from __future__ import annotations

import os
import struct
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
FAR = 3652 * DAY_MS


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
    assert any(why.startswith("retention: CT (source and target delete a message apart") for why in advice["why"])


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


def test_a_kafka_directory_under_log_append_time_has_creation_and_arrival_of_each_batch() -> None:
    """Read here again, byte by byte: the first time of a batch is its creation, the second its arrival."""
    folder = golden("3.9.2", "segments-lat").log_dir
    logs = list(kts.open_log_dirs(folder).values())
    expected = []
    for segment in sorted(Path(logs[0].path).glob("*.log")):
        data, place = segment.read_bytes(), 0
        while place < len(data):
            created, arrived = struct.unpack_from(">qq", data, place + 27)
            expected.append(arrived - created)
            place += 12 + struct.unpack_from(">i", data, place + 8)[0]
    report = directory.run(logs, SETTINGS)
    assert report["known"] == {"both": len(expected), "arrivalOnly": 0, "creationOnly": 0} and len(expected) == 45
    latency = report["latencyMs"]
    assert (latency["least"], latency["greatest"]) == (min(expected), max(expected))
    assert latency["least"] > 5 * 365 * DAY_MS and report["rolling"]["measured"] == "LAT"
    assert any("too short to judge rolling" in why for why in report["advice"]["why"])


def test_a_large_partition_is_counted_whole_and_played_by_a_sample_of_its_whole_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old and new by turns: each n-th, or the first, would be of one kind."""
    monkeypatch.setattr(directory, "MOST_ENTRIES", 100)
    arrival = np.arange(400) * 1.0
    log = written(tmp_path / "orders-0", arrival - 30 * (np.arange(400) % 2), arrival, "LogAppendTime")
    report = directory.run([log], SETTINGS)
    assert (report["entries"], report["played"]) == (400, 100)
    assert report["spanMs"] == 399 * HOUR_MS and report["behindMs"]["greatest"] == 29 * HOUR_MS
    late = report["rules"]["CreateTime"]["lateMessages"]
    assert 30 < late < 70 and report["rules"]["CreateTime"]["messages"] == 100
    segments = report["rules"]["LogAppendTime"]["segments"]
    assert segments == pytest.approx(400 / 13, rel=0.2)  # as all of it: 12 hours each, and up to the next message
    assert report["retention"]["measured"] == "LAT"


def test_a_sample_has_one_of_each_part_and_the_time_that_holds_all_later_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory, "MOST_ENTRIES", 100)
    arrival = START_MS + np.arange(1000, dtype=np.int64)
    create = arrival.copy()
    create[[404, 407, 500]] += [FAR, 2 * FAR, FAR]  # the third is not greater than the second
    nothing = np.zeros(1000, bool)
    whole = directory.stream_of(directory.EntryTimes(create, arrival, nothing, nothing, np.zeros_like(create), 0))
    for seed in range(20):
        some = directory.sampled(whole, np.random.default_rng(seed))
        places = some.arrival_ms[0] - START_MS
        assert (places // 10).tolist() == list(range(100))
        assert places[40] == 407
    assert len(set(places % 10)) == 10  # at random


def test_partitions_are_chosen_over_all_of_a_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MOST_PARTITIONS", 3)
    logs = [written(tmp_path / f"orders-{number}", [1], [1], "CreateTime") for number in range(7)]
    passed: list[int] = []
    report = directory.run(logs, SETTINGS, advance=passed.append)
    assert (report["partitions"], report["read"]) == (7, ["orders-0", "orders-2", "orders-4"])
    assert sum(passed) == sum(segment.size_bytes for log in logs for segment in log.segments)


def test_each_topic_has_its_own_advice(tmp_path: Path) -> None:
    arrival = np.arange(200) * 1.0
    logs = [
        written(tmp_path / "mixed-0", arrival - 30 * (np.arange(200) % 2), arrival, "LogAppendTime"),
        written(tmp_path / "late-0", arrival - 30, arrival, "LogAppendTime"),
        written(tmp_path / "late-1", arrival - 30, arrival, "LogAppendTime"),
    ]
    late, mixed = directory.by_topic(logs, SETTINGS)
    assert (late["topic"], late["partitions"], mixed["topic"]) == ("late", 2, "mixed")
    assert late["advice"]["option"] == "option 4 CreateTime"
    assert mixed["advice"]["option"] == "option 4 LogAppendTime"


def test_without_a_timestamp_there_is_no_advice(tmp_path: Path) -> None:
    log = written(tmp_path / "orders-0", [], [], "CreateTime")
    assert directory.run([log], SETTINGS)["advice"] is None


def test_append_times_alone_give_no_advice() -> None:
    report = directory.run(list(kts.open_log_dirs(golden("0.10.2.2", "lat-none").log_dir).values()), SETTINGS)
    assert report["known"]["arrivalOnly"] == report["entries"] > 0
    assert report["advice"] is None


@pytest.mark.parametrize(
    ("create_h", "kind"),
    [
        ([hour - 24.0 for hour in range(600)], "a day late"),
        ([hour - 24.0 - 9000 * (hour % 5 == 0) for hour in range(600)], "a day late, every fifth a year"),
        ([hour - 24.0 * 365 * 50 for hour in range(600)], "of the seventies"),
        ([hour + 5.0 for hour in range(600)], "from the future"),
        ([hour + 24.0 * 365 * 60 for hour in range(600)], "from the far future"),
        ([hour * 1.0 for hour in range(600)], "at once"),
    ],
)
def test_advised_limits_accept_the_messages_that_they_were_advised_for(
    create_h: list[float], kind: str, tmp_path: Path
) -> None:
    """Judged by a log with these limits, whose clock shows the time at which each message came."""
    arrival_h = [float(hour) for hour in range(600)]
    log = written(tmp_path / "orders-0", create_h, arrival_h, "CreateTime")
    os.utime(log.segments[0].path, ((START_MS + 599 * HOUR_MS) / 1000,) * 2)
    report = directory.run([kts.open_partition(tmp_path / "orders-0")], SETTINGS)
    limits = {name: ms for name, ms in report["advice"]["settings"].items() if name != "message.timestamp.type"}
    refused, now = 0, [0]
    with kts.Log(tmp_path / "played-0", limits, clock=lambda: now[0]) as played:
        for create, arrival in zip(create_h, arrival_h, strict=True):
            now[0] = START_MS + int(arrival * HOUR_MS)
            try:
                played.append(kts.encode({"timestamp": [START_MS + int(create * HOUR_MS)], "value": [b"x"]}))
            except kts.InvalidTimestampError:
                refused += 1
    assert refused <= 6
    if report["advice"]["settings"]["message.timestamp.type"] == "CreateTime":
        why = " ".join(report["advice"]["why"])
        assert "would have refused" in why or "is not advised" in why
        assert ("message.timestamp.before.max.ms is not advised" in why) == (kind == "of the seventies")


def test_the_limit_without_the_files_times_is_named_for_a_copy(tmp_path: Path) -> None:
    log = written(tmp_path / "orders-0", [float(hour) for hour in range(600)], range(600), "CreateTime")
    os.utime(log.segments[0].path, ((START_MS + 2000 * HOUR_MS) / 1000,) * 2)
    advice = directory.run([kts.open_partition(tmp_path / "orders-0")], SETTINGS)["advice"]
    assert advice["settings"]["message.timestamp.before.max.ms"] == 1401 * HOUR_MS
    assert any("which a copy sets anew: if this is one, 3600000 ms" in why for why in advice["why"])
