"""What a release would refuse of a log, against a log of that release that takes each record by itself."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.golden import golden
from support.processes.cli_runs import lines, run

import kts
from kts.behaviour import NEWEST
from kts.codec.validate import validate
from kts.offline.release_check import DAY_MS, check_release
from kts.testing import KtsBroker

NOW = 1_700_000_000_000
HOUR = 3_600_000
SETTINGS = [
    ("4.3", {}),
    ("4.3", {"message.timestamp.before.max.ms": 7 * DAY_MS}),
    ("4.3", {"message.timestamp.after.max.ms": 0, "cleanup.policy": "compact,delete"}),
    ("4.3", {"message.timestamp.missing": "refuse"}),
    ("3.9", {}),
    ("3.9", {"message.timestamp.difference.max.ms": DAY_MS}),
    ("0.10.2", {"message.timestamp.difference.max.ms": DAY_MS, "cleanup.policy": "compact"}),
]


def random_log(path: Path, rng: random.Random, magics: list[int]) -> None:
    """Several codecs and sizes of batches, times around the limits and far from them, two segments or more."""
    near = [0, 1, HOUR, HOUR + 1, -7 * DAY_MS, -7 * DAY_MS - 1, DAY_MS, DAY_MS + 1, -DAY_MS, -DAY_MS - 1]
    with kts.Log(path, {"segment.bytes": 3000, "segment.ms": 2**62}, release="3.9") as log:
        for _ in range(rng.randrange(5, 40)):
            count = rng.randrange(1, 8)
            times = [-1 if rng.random() < 0.1 else NOW + rng.choice([*near, -30 * DAY_MS]) for _ in range(count)]
            times = [rng.choice([time, time, 2**62 if rng.random() < 0.1 else time]) for time in times]
            magic = rng.choice(magics)
            log.append_as_follower(
                kts.encode(
                    {"timestamp": times, "key": [rng.choice([None, b"k"]) for _ in times], "value": [b"v"] * count},
                    magic=magic,
                    compression=rng.choice(["none", "gzip", "lz4"]),
                    base_offset=log.log_end_offset,
                    batch_bytes=2**20,
                )
            )


def error_of(config: kts.LogConfig, row: dict[str, Any]) -> str | None:
    """The error for one record, sent by itself to a topic of the release; None if it is taken."""
    if row["magic"] < config.behaviour().least_magic:
        return "InvalidRecordError"  # of the request, before the log sees it
    columns = {"key": [row["key"]], "value": [b"v"], "timestamp": [row["timestamp"]]}
    try:
        validate(kts.encode(columns, magic=row["magic"]), offset=0, now_ms=NOW, config=config)
    except kts.KtsError as error:
        return type(error).__name__
    return None


@pytest.mark.parametrize(("release", "settings"), SETTINGS)
def test_each_record_is_judged_as_by_a_topic_of_the_release(
    release: str, settings: dict[str, Any], tmp_path: Path, rng: random.Random
) -> None:
    config, refused = kts.LogConfig.of(settings, release=release), 0
    for number in range(5):
        path = tmp_path / f"t-{number}"
        random_log(path, rng, [0, 1] if release == "0.10.2" else [0, 1, 2])
        counts: Counter[tuple[str, int | None]] = Counter()
        first: dict[tuple[str, int | None], int] = {}
        with kts.open_partition(path) as log:
            table = log.scan(columns=["offset", "key", "timestamp", "magic"]).read_all()
            times = table.column("timestamp").cast("int64")
            for row in table.set_column(2, "timestamp", times).to_pylist():
                error, time = error_of(config, row), row["timestamp"]
                if error is not None:
                    key = error, None if time == -1 else time // DAY_MS * DAY_MS
                    counts[key] += 1
                    first.setdefault(key, row["offset"])
            found = check_release(log, config, NOW)
        summed: Counter[tuple[str, int | None]] = Counter()
        earliest: dict[tuple[str, int | None], int] = {}
        for one in found:
            key = one.rule.error.__name__, one.start_ms
            summed[key] += one.records
            earliest[key] = min(earliest.get(key, one.first_offset), one.first_offset)
        assert (summed, earliest) == (counts, first)
        refused += counts.total()
    assert refused or release == "3.9"


def test_a_batch_that_is_too_large_counts_with_all_its_records(tmp_path: Path) -> None:
    """And the compacted topic's missing keys before times, each record once."""
    with kts.Log(tmp_path / "t-0", release="3.9", clock=lambda: NOW) as log:
        log.append(kts.encode({"value": [b"x" * 600] * 3, "timestamp": [NOW + 2 * HOUR] * 3}, batch_bytes=4096))
        log.append(kts.encode({"key": [None, b"k"], "timestamp": [NOW + 2 * HOUR] * 2}))
        config = kts.LogConfig.of({"max.message.bytes": 1000, "cleanup.policy": "compact"}, release="4.3")
        log.flush()
        with kts.open_partition(tmp_path / "t-0") as read:
            found = [(one.rule.name, one.records, one.first_offset) for one in check_release(read, config, NOW)]
    expected = [("cleanup.policy", 1, 3), ("max.message.bytes", 3, 0), ("message.timestamp.after.max.ms", 1, 4)]
    assert found == expected


def test_times_that_the_broker_set_and_its_own_records_are_not_judged(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", {"message.timestamp.type": "LogAppendTime"}, clock=lambda: NOW) as log:
        log.append(kts.encode({"value": [b"v"] * 3}))
        marker = {"key": [bytes.fromhex("00000001")], "value": [bytes(6)], "timestamp": [NOW]}
        log.append_as_follower(kts.encode(marker, base_offset=3, control=True, transactional=True, producer_id=1))
    with kts.open_partition(tmp_path / "t-0") as read:
        assert check_release(read, kts.LogConfig(release="4.3"), NOW - 2 * HOUR) == []


def test_a_topic_whose_times_the_broker_sets_refuses_none(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", release="3.9") as log:
        log.append(kts.encode({"key": [b"k", None], "timestamp": [2**62, -5000]}))
    settings = {"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": 1}
    with kts.open_partition(tmp_path / "t-0") as read:
        assert check_release(read, kts.LogConfig.of(settings, release="4.3"), NOW) == []
        compacted = kts.LogConfig.of(settings | {"cleanup.policy": "compact"}, release="4.3")
        assert [one.rule.name for one in check_release(read, compacted, NOW)] == ["cleanup.policy"]


def test_times_before_1970_are_found_whatever_the_limit(tmp_path: Path) -> None:
    """The earliest interval is the least that a number of 64 bits can begin."""
    with kts.Log(tmp_path / "t-0", release="3.9") as log:
        log.append(kts.encode({"timestamp": [-5000, -1, -(2**63) + 1]}))
    config = kts.LogConfig.of({"message.timestamp.before.max.ms": 100 * 365 * DAY_MS}, release="4.3")
    with kts.open_partition(tmp_path / "t-0") as read:
        [found] = check_release(read, config, NOW)
    assert (found.rule.name, found.records, found.first_offset) == ("message.timestamp.before.max.ms", 1, 2)
    assert found.start_ms is not None and found.start_ms < -(2**63) + 2 * DAY_MS
    for zone in ("UTC", "Europe/Berlin"):
        options = ["--check-release", "4.3", "--config", "message.timestamp.before.max.ms=1000", "--tz", zone, "--json"]
        starts = [row["start"] for row in lines("stats", tmp_path, *options, code=1)]
        assert starts[0] < starts[1] < 0


def test_stats_judges_by_the_settings_that_the_directory_keeps(tmp_path: Path) -> None:
    with KtsBroker(tmp_path, release="4.3") as broker:
        broker.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
    with kts.Log(tmp_path / "t-0", release="3.9") as log:
        log.append(kts.encode({"timestamp": [NOW * 2]}))
    assert "would take every record" in run("stats", tmp_path, "--check-release", "4.3").stdout
    own = ["--check-release", "4.3", "--config", "message.timestamp.type=CreateTime"]
    assert "would refuse 1 record\n" in run("stats", tmp_path, *own, code=1).stdout


def test_stats_shows_what_a_release_would_refuse_and_ends_with_1() -> None:
    demo = golden("demo", "orders").log_dir
    options = ["--check-release", NEWEST.release, "--now", "2026-11-28"]
    rows = lines("stats", demo, *options, "--json", code=1)
    assert [(row["rule"], row["records"], row["first"]["offset"]) for row in rows] == [
        ("message.timestamp.after.max.ms", 1, 2425),
        ("message.timestamp.after.max.ms", 1, 1375),
    ]
    shown = run("stats", demo, *options, code=1).stdout
    assert "2036-09-04" in shown and "orders-0, offset 1375" in shown and "Kafka 4.3 would refuse 2 records" in shown
    assert "would take every record" in run("stats", demo, "--check-release", "3.9").stdout
    assert "--config is for --check-release" in run("stats", demo, "--config", "retention.ms=1", code=2).stderr
    assert "leave out one" in run("stats", demo, *options, "--timestamps", code=2).stderr
    old = golden("0.10.2.2", "ct-gzip").log_dir
    shown = run("stats", old, *options, code=1)
    assert "message format 1" in shown.stdout and "next: kts convert" in shown.stderr
