"""``kts batches`` and ``kts dump`` of files beside a log."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.golden import golden
from support.processes.cli_runs import run

PARTITION = golden("demo", "orders").partition_dir("orders-0")
TRANSACTIONS = golden("3.9.2", "txn-none").partition_dir("txn-none-0")
OPEN = golden("3.9.2", "txn-open").partition_dir("txn-open-0")


def files(kind: str) -> list[Path]:
    """Files of real brokers that have entries."""
    folder = PARTITION if kind.endswith("index") and kind != ".txnindex" else TRANSACTIONS
    least = 10 if kind == ".snapshot" else 0
    return sorted(path for path in folder.glob(f"*{kind}") if path.stat().st_size > least)


@pytest.mark.parametrize("command", ["dump", "batches"])
@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_the_entries_of_a_file_beside_a_log_are_shown(kind: str, command: str) -> None:
    path = files(kind)[-1]
    rows = [json.loads(line) for line in run(command, path, "--json").stdout.splitlines()]
    assert rows and {(row["segment"], row["path"]) for row in rows} == {(int(path.stem), str(path))}
    as_table = ["--format", "table"] * (command == "dump")
    table = run(command, path, *as_table).stdout.splitlines()
    assert len(table) == len(rows) + 1
    numbers = [str(value) for name, value in rows[0].items() if name not in ("segment", "path", "timestamp")]
    assert {number for number in numbers if number != "-1"} <= {*table[1].split()}
    assert run(command, path, "--limit", 1, "--json").stdout.count("\n") == 1
    both = run(command, *files(kind), "--json").stdout.splitlines()
    assert len({json.loads(line)["path"] for line in both}) == len(files(kind))


def test_times_are_written_as_those_of_records_are() -> None:
    path = files(".timeindex")[0]
    numbers = [json.loads(line)["timestamp"] for line in run("dump", path, "--json").stdout.splitlines()]
    iso = [
        json.loads(line)["timestamp"]
        for line in run("dump", path, "--format", "jsonl", "--times", "iso").stdout.splitlines()
    ]
    assert numbers and [int(datetime.fromisoformat(time).timestamp() * 1000) for time in iso] == numbers
    assert [line.split()[0] for line in run("batches", path).stdout.splitlines()[1:]] == iso


def test_an_open_transaction_shows_in_a_snapshot(tmp_path: Path) -> None:
    rows = [
        json.loads(line) for path in OPEN.glob("*.snapshot") for line in run("dump", path, "--json").stdout.splitlines()
    ]
    assert 18 in [row["openFromOffset"] for row in rows if row["producerId"] == 3]
    output = tmp_path / "x.parquet"
    path = files(".snapshot")[-1]
    run("dump", path, "-o", output)
    assert pq.read_table(output)["producerId"].to_pylist() == [
        json.loads(line)["producerId"] for line in run("dump", path, "--json").stdout.splitlines()
    ]


def test_a_damaged_file_is_shown_as_far_as_it_goes_with_an_exit_code(tmp_path: Path) -> None:
    index = tmp_path / files(".index")[0].name
    index.write_bytes(files(".index")[0].read_bytes()[:-3])
    found = run("batches", index, code=1)
    assert (
        found.stdout.count("\n") > 2
        and f"{index}: size {os.path.getsize(index)} is not a multiple of 8" in found.stderr
    )
    snapshot = tmp_path / files(".snapshot")[-1].name
    snapshot.write_bytes(files(".snapshot")[-1].read_bytes()[:-3])
    for command in (["batches"], ["batches", "--json"], ["dump"], ["dump", "--format", "csv"]):
        found = run(*command, snapshot, code=3)
        assert "CRC" in found.stderr and str(snapshot) in found.stderr and "Traceback" not in found.stderr
    (tmp_path / "copy.index").write_bytes(index.read_bytes()[:8])
    assert "offsets are relative ones" in run("batches", tmp_path / "copy.index").stderr


def test_options_about_records_and_mixed_files_are_wrong_use(tmp_path: Path) -> None:
    index, log = files(".index")[0], next(PARTITION.glob("*.log"))
    assert "--from is about records" in run("dump", index, "--from", "now", code=2).stderr
    assert "--topic is about records" in run("batches", index, "--topic", "t", code=2).stderr
    assert "expected files of one kind, found .index and others" in run("dump", index, log, code=2).stderr
    assert (
        "expected files of one kind, found .index and .timeindex"
        in run("dump", index, files(".timeindex")[0], code=2).stderr
    )
    assert "no such file" in run("dump", tmp_path / f"{0:020}.index", code=2).stderr
    assert "kts batches lists its entries" in run("stats", index, code=2).stderr
    copy = tmp_path / index.name
    copy.write_bytes(index.read_bytes())
    assert "is among the input" in run("dump", copy, "--format", "csv", "-o", copy, code=2).stderr
    assert copy.read_bytes() == index.read_bytes()
