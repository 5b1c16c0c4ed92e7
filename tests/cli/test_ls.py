"""``kts ls`` against what brokers and consumers saw."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from support.golden import Golden, golden, goldens
from support.processes.cli_runs import lines, run

ORDERS = golden("demo", "orders")


@pytest.mark.parametrize("scenario", goldens(), ids=str)
def test_ls_knows_the_offsets_that_the_broker_had(scenario: Golden) -> None:
    for row in lines("ls", scenario.log_dir, "--json"):
        name = f"{row['topic']}-{row['partition']}"
        facts = scenario.meta["partitions"][name]
        assert row["logEndOffset"] == facts["endOffset"]
        assert row["segments"] == len(scenario.logs(name))
        assert row["sizeInBytes"] == sum(path.stat().st_size for path in scenario.logs(name))
        times = scenario.offsets_for_times(name) or {}
        answer = times.get("maxTimestamp")
        if answer and answer["timestamp"] >= 0:
            assert (row["maxTimestamp"], row["offsetOfMaxTimestamp"]) == (answer["timestamp"], answer["offset"])


def test_ls_lists_segments_and_people_can_read_it() -> None:
    rows = lines("ls", ORDERS.log_dir, "--segments", "--json")
    assert [(row["partition"], row["segment"]) for row in rows] == [
        (int(name[-1]), int(log.stem)) for name in ORDERS.partitions for log in ORDERS.logs(name)
    ]
    for row in rows:
        records = [r for r in ORDERS.expected(f"orders-{row['partition']}") if r.offset >= row["logStartOffset"]]
        inside = [record.timestamp for record in records if record.offset < row["logEndOffset"]]
        assert (row["firstTimestamp"], row["maxTimestamp"]) == (inside[0], max(inside))
    shown = run("ls", ORDERS.log_dir)
    assert "orders-0          4      0  3,042  2026-09-01T04:03:12.531Z" in shown.stdout
    assert shown.stderr == ""


def test_ls_shows_what_it_can_when_one_partition_is_damaged(writable: Callable[[Golden], Golden]) -> None:
    scenario = writable(ORDERS)
    last = scenario.logs("orders-1")[-1]
    last.write_bytes(last.read_bytes()[:-30] + bytes(200))
    result = run("ls", scenario.log_dir, "--json", code=3)
    assert [json.loads(line)["partition"] for line in result.stdout.splitlines()] == [0, 2]
    assert "orders-1 is left out" in result.stderr and str(last) in result.stderr


def test_ls_names_the_file_whose_first_batch_is_damaged(writable: Callable[[Golden], Golden]) -> None:
    scenario = writable(ORDERS)
    first = scenario.logs("orders-0")[0]
    data = bytearray(first.read_bytes())
    data[16] = 0xFF
    first.write_bytes(data)
    assert str(first) in run("ls", scenario.log_dir, code=3).stderr
