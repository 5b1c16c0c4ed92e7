"""``kts stats`` against header scans and what consumers saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from support.golden import Golden, golden, golden_partitions, goldens
from support.processes.cli_runs import lines, run

import kts
from kts.times import parse_time, show_time

ORDERS = golden("demo", "orders")
LEGACY = golden("demo", "legacy")
HOUR = 3_600_000


def test_stats_count_batches_where_their_greatest_time_lies() -> None:
    rows = lines("stats", ORDERS.log_dir, "--by", "1h", "--json")
    headers = [row for name in ORDERS.partitions for row in lines("batches", ORDERS.partition_dir(name), "--json")]
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for header in headers:
        counts[header["maxTimestamp"] // HOUR * HOUR] += header["records"]
        sizes[header["maxTimestamp"] // HOUR * HOUR] += header["sizeInBytes"]
    assert {row["start"]: row["records"] for row in rows} == counts
    assert {row["start"]: row["sizeInBytes"] for row in rows} == sizes
    assert sum(row["records"] for row in rows) == 9000 and all(row["recordsAreExact"] for row in rows)
    assert [row["start"] for row in rows] == sorted(counts)
    by_partition = lines("stats", ORDERS.log_dir, "--per", "partition", "--by", "1d", "--json")
    assert {f"{row['topic']}-{row['partition']}" for row in by_partition} == set(ORDERS.partitions)
    assert sum(row["records"] for row in by_partition) == 9000


def test_stats_say_when_a_count_is_a_guess() -> None:
    rows = lines("stats", LEGACY.log_dir, "--json")
    assert sum(row["records"] for row in rows) == 4000
    assert not any(row["recordsAreExact"] for row in rows)
    result = run("stats", LEGACY.log_dir, "--by", "1d")
    assert "<=4,000 records" in result.stdout and "counted by offsets" in result.stderr
    assert "█" in result.stdout or "#" in result.stdout


@pytest.mark.slow
def test_stats_never_count_too_little() -> None:
    for scenario, name in golden_partitions():
        rows = lines("stats", scenario.partition_dir(name), "--json")
        start = scenario.log_start_offset(name)
        seen = sum(1 for row in scenario.expected(name) if row.offset >= start)
        total = sum(row["records"] for row in rows)
        assert total >= seen
        assert sum(row["sizeInBytes"] for row in rows) == sum(log.stat().st_size for log in scenario.logs(name))
        if all(row["recordsAreExact"] for row in rows) and start == scenario_base(scenario, name):
            assert total == seen, f"{scenario} {name}"


def scenario_base(scenario: Golden, name: str) -> int:
    return int(scenario.logs(name)[0].stem)


def test_stats_give_records_without_a_time_their_own_row() -> None:
    scenario = next(s for s in goldens() if s.name.startswith("notime"))
    rows = lines("stats", scenario.log_dir, "--json")
    assert rows[0]["start"] is None and rows[0]["startTime"] is None
    assert "no timestamp" in run("stats", scenario.log_dir).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("zone", "by"),
    [
        ("Europe/Berlin", "1d"),
        ("Europe/Berlin", "1h"),
        ("Europe/Berlin", "6h"),
        ("Asia/Kolkata", "1d"),
        ("Asia/Kolkata", "1h"),
        ("Australia/Lord_Howe", "1d"),
        ("Africa/Cairo", "1d"),
        ("America/Havana", "1d"),
    ],
)
def test_stats_count_by_the_clocks_of_a_zone(zone: str, by: str, tmp_path: Path) -> None:
    """A record every half hour of 2026, compared with Python's own local times."""
    times = range(parse_time("2026-01-01"), parse_time("2027-01-01"), 1_800_000)
    make_log(tmp_path / "t-0", times)
    rows = lines("stats", tmp_path, "--by", by, "--tz", zone, "--json")
    assert sum(row["records"] for row in rows) == len(times)
    hours = {"1d": 24, "6h": 6, "1h": 1}[by]
    shown = [datetime.fromtimestamp(ms / 1000, ZoneInfo(zone)) for ms in times]
    expected = Counter((at.date(), at.hour // hours, at.utcoffset() if hours == 1 else None) for at in shown)
    assert [row["records"] for row in rows] == list(expected.values())
    starts = [datetime.fromtimestamp(row["start"] / 1000, ZoneInfo(zone)) for row in rows]
    found = [(at.date(), at.hour // hours, at.utcoffset() if hours == 1 else None) for at in starts]
    assert found == list(expected)
    assert all(row["startTime"] == show_time(row["start"], ZoneInfo(zone)) for row in rows)
    for row, following in pairwise(rows):
        assert row["start"] + row["lengthMs"] == following["start"]


def test_a_day_on_which_clocks_change_has_23_or_25_hours_and_an_hour_that_is_twice_has_two_rows(tmp_path: Path) -> None:
    day = 86_400_000
    hours = [*range(parse_time("2026-03-27T23:00"), parse_time("2026-03-30T22:00"), 3_600_000)]
    make_log(tmp_path / "t-0", hours)
    shown = run("stats", tmp_path, "--by", "1d", "--tz", "Europe/Berlin").stdout
    assert "from (Europe/Berlin)" in shown and "nothing for" not in shown
    assert [line.split()[:2] for line in shown.splitlines()[1:-1]] == [
        ["2026-03-28", "24"],
        ["2026-03-29", "23"],
        ["2026-03-30", "24"],
    ]
    make_log(tmp_path / "u-0", [*range(parse_time("2025-10-25T23:00"), parse_time("2025-10-26T03:00"), 900_000)])
    shown = run("stats", tmp_path / "u-0", "--tz", "Europe/Berlin").stdout
    labels = [line.split("    ")[0] for line in shown.splitlines()[1:-1]]
    assert [label.strip() for label in labels] == [
        "2025-10-26 01:00",
        "2025-10-26 02:00 +02:00",
        "2025-10-26 02:00 +01:00",
        "2025-10-26 03:00",
    ]
    make_log(tmp_path / "v-0", [hours[0], hours[0] + 3 * day])
    shown = run("stats", tmp_path / "v-0", "--by", "1d", "--tz", "Europe/Berlin").stdout
    assert "nothing for 1d 23h" in shown, "29 March has 23 hours"


def test_stats_by_a_zone_count_times_beyond_the_calendar(tmp_path: Path) -> None:
    times = [-1, 0, 253_402_300_800_000, 2**63 - 1]
    make_log(tmp_path / "t-0", times)
    rows = lines("stats", tmp_path, "--by", "1d", "--tz", "Asia/Tokyo", "--json")
    assert sum(row["records"] for row in rows) == 4 and len(rows) == 4
    run("stats", tmp_path, "--by", "1d", "--tz", "Asia/Tokyo")


def make_log(path: Path, times: Iterable[int]) -> None:
    """A log with a batch for each time."""
    path.mkdir()
    batches = [kts.encode({"timestamp": [time], "value": [b"v"]}, base_offset=n) for n, time in enumerate(times)]
    (path / f"{0:020d}.log").write_bytes(b"".join(batches))
