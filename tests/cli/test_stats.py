"""``kts stats`` against header scans and what consumers saw."""

from __future__ import annotations

from collections import Counter

import pytest
from support.golden import Golden, golden, golden_partitions, goldens
from support.processes.cli_runs import lines, run

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
