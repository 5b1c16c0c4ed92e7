"""``kts sync``: what it says, and its exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.buckets.s3 import TestBucket
from support.golden import golden
from support.processes.cli_runs import lines, run
from support.tables import data_files, query

import kts
from kts.cli import main

ORDERS = golden("demo", "orders").log_dir


@pytest.mark.slow
def test_json_says_what_was_added_to_which_offsets(tmp_path: Path) -> None:
    given = ["sync", ORDERS, "lake.db.orders", "--catalog", tmp_path / "c.sqlite", "--jobs", 2, "--json"]
    ends = {"orders": {"0": 3042, "1": 2952, "2": 3006}}
    said = {"table": "lake.db.orders", "withoutTimestamp": 0, "offsets": ends, "heldBack": {}}
    assert lines(*given) == [said | {"records": 9000, "commits": 1, "withoutDay": 1}]
    assert lines(*given) == [said | {"records": 0, "commits": 0, "withoutDay": 0}]


@pytest.mark.slow
def test_without_a_catalog_the_table_is_a_folder(tmp_path: Path) -> None:
    (said,) = lines("sync", ORDERS, tmp_path / "orders", "--json")
    assert (said["table"], said["records"], said["withoutDay"]) == (str(tmp_path / "orders"), 9000, 1)
    assert len(list((tmp_path / "orders").glob("day=*/*.parquet"))) > 10
    assert "give catalog as well" in run("sync", ORDERS, tmp_path / "orders", "--warehouse", "w", code=2).stderr


@pytest.mark.slow
def test_a_name_that_may_be_an_iceberg_tables_is_asked_about_and_what_was_made_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run("sync", ORDERS, "lake.db.orders", code=2).stderr
    assert "kts sync DIR lake.db.orders --catalog lake.sqlite" in said and "kts sync DIR ./lake.db.orders" in said
    assert list(tmp_path.iterdir()) == []
    done = run("sync", ORDERS, "./lake.db.orders")
    assert f"made ./lake.db.orders, a folder of Parquet files, in {tmp_path}/lake.db.orders" in done.stderr
    assert "made" not in run("sync", ORDERS, "./lake.db.orders").stderr
    done = run("sync", ORDERS, "lake.db.orders", "--catalog", "c.sqlite", "--json")
    told = f"made lake.db.orders, an Iceberg table of the catalog c.sqlite, in file://{tmp_path}/warehouse/db/orders"
    assert told in done.stderr


def test_lost_offsets_are_an_error_that_says_how_to_state_them(tmp_path: Path) -> None:
    given = ["sync", ORDERS / "orders-1", tmp_path / "rows"]
    run(*given)
    (tmp_path / "rows" / "_kts" / "ledger.json").unlink()
    assert 'as --from-offsets, such as \'{"orders": {"0": 23}}\'' in run(*given, code=3).stderr
    for wrong in ("{", "[]", "never", '{"orders": {"1": 1.5}}', '{"orders": 5}', '{"orders": {"0": 5}}'):
        assert "--from-offsets: " in run(*given, "--from-offsets", wrong, code=2).stderr
    (said,) = lines(*given, "--json", "--from-offsets", '{"orders": {"1": 2950}}')
    assert said["records"] == 2 and said["offsets"] == {"orders": {"1": 2952}}
    assert "leave --from-offsets out" in run(*given, "--from-offsets", "latest", code=2).stderr


def test_what_is_not_stable_is_said(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "logs" / "t-0") as log:
        log.append_rows({"value": [b"v"] * 5})
    (tmp_path / "logs" / "replication-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    given = ["sync", tmp_path / "logs", "lake.db.t", "--catalog", tmp_path / "c.sqlite"]
    done = run(*given)
    assert done.stdout.split("\n")[1].split() == ["lake.db.t", "3", "1", "0", "0"]
    assert "2 offsets of 1 partition: not stable yet" in done.stderr
    assert run(*given, "--to-end").stdout.split("\n")[1].split() == ["lake.db.t", "2", "1", "0", "0"]


def test_lost_records_are_wrong_use_unless_they_may_be_missed(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "logs" / "t-0") as log:
        log.append_rows({"value": [b"v"] * 5})
        given = ["sync", tmp_path / "logs", "lake.db.t", "--catalog", tmp_path / "c.sqlite"]
        run(*given)
        log.append_rows({"value": [b"v"] * 5})
        log.advance_log_start_offset(7)
    assert "--no-fail-on-data-loss" in run(*given, code=2).stderr
    done = run(*given, "--no-fail-on-data-loss")
    assert "offsets 5 to 7 (not included) of t-0 were deleted" in done.stderr


def test_wrong_use_is_named(tmp_path: Path) -> None:
    given = ["sync", ORDERS, "lake.db.orders", "--catalog"]
    assert "no such folder" in run(*given, tmp_path / "missing" / "c.sqlite", code=2).stderr
    assert (
        "expected catalog, namespace and name"
        in run("sync", ORDERS, "orders", "--catalog", tmp_path / "c.sqlite", code=2).stderr
    )
    assert "looks like seconds" in run(*given, tmp_path / "c.sqlite", "--plausible-from", 1_700_000_000, code=2).stderr
    assert "there is no topic nothing" in run(*given, tmp_path / "c.sqlite", "--topic", "nothing", code=2).stderr
    avro = [*given, tmp_path / "c.sqlite", "--value-format", "avro", "--value-schema"]
    assert "no such file for --value-schema" in run(*avro, tmp_path / "missing", code=2).stderr
    assert "expected text in UTF-8" in run(*avro, sys.executable, code=2).stderr
    (tmp_path / "text").write_text("no database")
    assert "expected the SQLite file of an Iceberg catalog" in run(*given, tmp_path / "text", code=3).stderr


@pytest.mark.parametrize("table", [ORDERS, ORDERS / "orders-0", "", "/"])
def test_a_folder_among_the_logs_is_no_table(table: Path | str) -> None:
    """Without a name it would be the working directory."""
    before = sorted(ORDERS.rglob("*"))
    assert "expected the name of a table, or a folder of its own" in run("sync", ORDERS, table, code=2).stderr
    assert sorted(ORDERS.rglob("*")) == before


@pytest.mark.slow  # a real server
def test_a_warehouse_may_lie_in_a_bucket_of_the_environment(bucket: TestBucket, tmp_path: Path) -> None:
    given = ["sync", ORDERS / "orders-1", "lake.db.orders", "--catalog", tmp_path / "c.sqlite"]
    (said,) = lines(*given, "--warehouse", f"{bucket.address}/lake", "--json")
    assert said["records"] == 2952
    (said,) = lines(*given, "--json")
    assert said["records"] == 0 and said["offsets"] == {"orders": {"1": 2952}}
    assert not (tmp_path / "warehouse").exists()


@pytest.mark.slow  # a real server
def test_a_bucket_is_added_bit_by_bit(bucket: TestBucket, tmp_path: Path) -> None:
    """An object that replaces the active segment's, a new segment and a new partition are what a second run adds."""
    logs = {name: kts.Log(tmp_path / "logs" / name, {"segment.bytes": 2000}) for name in ("t-0", "t-1")}

    def append(name: str, count: int) -> None:
        for row in range(logs[name].log_end_offset, logs[name].log_end_offset + count):
            logs[name].append_rows({"value": [b"%d" % row * 50], "timestamp": [1_767_225_600_000 + row]})
        logs[name].flush()
        bucket.put_folder(tmp_path / "logs" / name, f"logs/{name}")

    def synced() -> list[object]:
        bucket.forget()
        given = [f"{bucket.address}/logs", "lake.db.rows", "--catalog", str(tmp_path / "c.sqlite"), "--json"]
        done = CliRunner().invoke(main, ["sync", *given])
        assert done.exit_code == 0, done.output
        said = json.loads(done.stdout)
        return [said["records"], said["commits"], said["offsets"]]

    try:
        append("t-0", 5)
        assert synced() == [5, 1, {"t": {"0": 5}}]
        append("t-0", 43)
        append("t-1", 30)
        assert synced() == [73, 1, {"t": {"0": 48, "1": 30}}]
        assert synced() == [0, 0, {"t": {"0": 48, "1": 30}}]
    finally:
        for log in logs.values():
            log.close()
    assert len(list((tmp_path / "logs" / "t-0").glob("*.log"))) > 2
    expected = [(0, row, b"%d" % row * 50) for row in range(48)] + [(1, row, b"%d" % row * 50) for row in range(30)]
    sql = 'SELECT partition, "offset", value FROM rows ORDER BY ALL'
    assert query(data_files(tmp_path / "c.sqlite"), sql) == expected
