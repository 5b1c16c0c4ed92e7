"""``kts offset-for``: the answers of the broker, and how they are explained."""

from __future__ import annotations

from collections.abc import Callable

from support.golden import Golden, golden
from support.processes.cli_runs import lines, run

ORDERS = golden("demo", "orders")
LEGACY = golden("demo", "legacy")


def test_offset_for_answers_as_the_broker_did(writable: Callable[[Golden], Golden]) -> None:
    for scenario in (ORDERS, LEGACY, golden("demo", "clicks")):
        for name in scenario.partitions:
            path = scenario.partition_dir(name)
            for asked in (scenario.offsets_for_times(name) or {})["queries"][::6]:
                (row,) = lines("offset-for", path, "--time", asked["query"], "--unit", "ms", "--json")
                answer = asked["answer"]
                assert (row["offset"], row["timestamp"]) == (
                    (None, None) if answer is None else (answer["offset"], answer["timestamp"])
                )


def test_offset_for_explains_itself() -> None:
    path = ORDERS.partition_dir("orders-0")
    said = run("offset-for", path, "--time", "2026-09-08T10:00", "--explain").stdout
    assert "2 segments end before that time" in said
    assert "00000000000000001363.log" in said
    assert "offset 1,375, its own time is 2036-09-04T10:20:21.245Z" in said
    older = sum(r.offset > 1375 and r.timestamp < 1_788_861_600_000 for r in ORDERS.expected("orders-0"))
    assert f"later records that are older: {older}" in said
    (row,) = lines("offset-for", path, "--time", "2026-09-08T10:00", "--explain", "--json")
    assert row["offset"] == 1375 and row["explanation"]["laterOlderRecords"] == older
    assert row["explanation"]["segmentBaseOffset"] == 1363
    none = run("offset-for", path, "--time", "2100-01-01", "--explain").stdout
    assert "no record is that young" in none
    table = run("offset-for", ORDERS.log_dir, "--time", "2100-01-01").stdout
    assert table.count("no record at or after it") == 3
    run("offset-for", path, "--time", "0", "--explain", "--shipped-search", code=2)
