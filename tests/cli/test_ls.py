"""``kts ls`` against what brokers and consumers saw."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.golden import Golden, golden, goldens
from support.processes.cli_runs import lines, run

import kts

ORDERS = golden("demo", "orders")


@pytest.mark.parametrize("scenario", goldens(), ids=str)
def test_ls_knows_the_offsets_that_the_broker_had(scenario: Golden) -> None:
    for row in lines("ls", scenario.log_dir, "--json"):
        name = f"{row['topic']}-{row['partition']}"
        facts = scenario.meta["partitions"][name]
        assert row["logEndOffset"] == facts["endOffset"]
        assert row["segments"] == len(scenario.logs(name))
        assert row["lastStableOffset"] == facts.get("lastStableOffset", facts["endOffset"])
        assert bool(row["openTransactions"]) == (row["lastStableOffset"] < row["logEndOffset"])
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


# --- times and entries that headers do not tell ---------------------------------------------------

T = 1_700_000_000_000
FIRST = {
    "the first of a wrapper is not its latest": kts.encode(
        {"timestamp": [T, T + 9, T + 3], "value": [b"v"] * 3}, magic=1, compression="gzip"
    ),
    "the first of a batch is not its base": kts.encode({"timestamp": [T, T - 9, T + 3], "value": [b"v"] * 3}),
    "a time before 1970": kts.encode({"timestamp": [-5, T], "value": [b"v"] * 2}),
    "no time": kts.encode({"timestamp": [-1, T], "value": [b"v"] * 2}),
    "the time of the append": kts.encode(
        {"timestamp": [7], "value": [b"v"]}, timestamp_type="LogAppendTime", log_append_time_ms=T
    ),
    "a message without any": kts.encode({"value": [b"v"]}, magic=0),
}


@pytest.mark.parametrize("what", FIRST)
def test_the_first_time_is_that_of_the_first_record(what: str, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(FIRST[what])
    following = kts.encode({"timestamp": [T + 50, T + 40], "value": [b"v"] * 2}, base_offset=10)
    (directory / f"{10:020}.log").write_bytes(following)
    expected = kts.decode(FIRST[what], ["timestamp"])["timestamp"].cast("int64")[0].as_py()
    [row] = lines("ls", tmp_path, "--json")
    assert (row["firstTimestamp"], row["maxTimestamp"]) == (None if expected == -1 else expected, T + 50)
    assert lines("ls", tmp_path, "--segments", "--json")[0]["firstTimestamp"] == row["firstTimestamp"]
    log = kts.open_partition(directory)
    shown = kts.times.show_time(expected)
    assert f"first_time={shown}, last_time=2023-11-14T22:13:20.040Z" in repr(log)
    assert f"first_time={shown}, last_time=" in repr(log.segments[0])


def test_the_first_time_is_of_the_first_record_that_is_still_there(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0") as log:
        log.append_rows({"timestamp": [T, T + 1, T + 2], "value": [b"v"] * 3})
        log.advance_log_start_offset(2)
    assert [row["firstTimestamp"] for row in lines("ls", tmp_path, "--json")] == [T + 2]
    assert "log_start_offset=2, log_end_offset=3, first_time=2023-11-14T22:13:20.002Z" in repr(kts.open(tmp_path))


def test_entries_are_counted_whatever_times_they_have(tmp_path: Path) -> None:
    settings = {"allow.negative.timestamps": "true", "index.interval.bytes": 0, "segment.ms": 2**62}
    with kts.Log(tmp_path / "t-0", settings) as log:
        for time in (-9, -5, -3, 4):
            log.append(kts.encode({"timestamp": [time], "value": [b"v"]}))
    [row] = lines("ls", tmp_path, "--segments", "--json")
    path = tmp_path / "t-0" / f"{0:020}.timeindex"
    assert row["timeIndexEntries"] == path.stat().st_size // 12 > 1
    assert row["offsetIndexEntries"] == path.with_suffix(".index").stat().st_size // 8 > 1
