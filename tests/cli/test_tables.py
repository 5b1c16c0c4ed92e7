"""``kts tables``: what it says, and its exit codes."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from support.buckets.s3 import TestBucket
from support.golden import golden
from support.processes.cli_runs import lines, run
from support.tables import Filled, data_files

import kts

OLD = time.time() - 9 * 86_400


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Filled:
    monkeypatch.chdir(tmp_path)
    return Filled(tmp_path, runs=3)


def tables(action: str, *more: Any) -> list[Any]:
    return ["tables", action, Filled.NAME, "--catalog", "c.sqlite", *more]


def test_the_command_that_check_names_is_the_next_one(filled: Filled) -> None:
    said = run(*tables("check")).stdout.splitlines()
    assert [line for line in said if line.startswith("next: ")] == [
        "next: kts tables compact lake.db.rows --catalog c.sqlite"
    ]
    run(*shlex.split(said[-1].removeprefix("next: kts ")))
    assert run(*tables("check", "--rows")).stdout.splitlines()[-1] == "OK"
    assert len(data_files(filled.catalog)) == 2
    filled.check_each_once()


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(filled: Filled) -> None:
    orphan = filled.folder / "warehouse/db/rows/data/x.parquet"
    orphan.write_bytes(b"x" * 2048)
    os.utime(orphan, (OLD, OLD))
    before = filled.files()
    assert "6 to 2" in run(*tables("compact", "--dry-run")).stdout
    time.sleep(0.01)
    assert run(*tables("expire", "--older-than", "1ms", "--dry-run")).stdout.splitlines()[1].split()[:2] == ["2", "1"]
    assert "x.parquet" in (said := run(*tables("orphans", "--dry-run")).stdout) and "1 orphan, 2.0 KiB" in said
    assert filled.files() == before
    (gone,) = lines(*tables("orphans", "--json"))
    assert [one["path"] for one in gone["orphans"]] == [str(orphan)] and gone["removed"] == 1 and not orphan.exists()
    (done,) = lines(*tables("expire", "--older-than", "1ms", "--json"))
    assert len(done["expired"]) == 2 and done["done"] and len(filled.table.snapshots()) == 1
    filled.check_each_once()


def test_what_is_wrong_is_exit_code_1(filled: Filled) -> None:
    gone = Path(data_files(filled.catalog)[0])
    gone.unlink()
    said = run(*tables("check"), code=1).stdout
    assert f"wrong: a file that a snapshot refers to is not there: file://{gone}" in said and "next: " not in said
    (found,) = lines(*tables("check", "--json"), code=1)
    assert found["missing"] == [f"file://{gone}"] and not found["ok"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (tables("check", "--keep", 2), "--keep is for expire"),
        (tables("compact", "--older-than", "5d"), "--older-than is for expire and orphans"),
        (tables("orphans", "--older-than", "2d"), "--older-than: expected at least 3d"),
        (["tables", "check", "rows", "--catalog", "c.sqlite"], "expected catalog, namespace and name"),
        (["tables", "check", "lake.db.none", "--catalog", "c.sqlite"], "lake.db.none: there is no such table"),
        (["tables", "check", "lake.db.rows", "--catalog", "d.sqlite"], "there is no such file of a catalog"),
        (["tables", "check", "lake.db.rows"], "Missing option '--catalog'"),
    ],
)
def test_wrong_use_is_told(filled: Filled, given: list[Any], told: str) -> None:
    assert told in run(*given, code=2).stderr


@pytest.mark.slow  # a real server
def test_a_table_in_a_bucket_is_looked_after_and_read_with_its_log(bucket: TestBucket, tmp_path: Path) -> None:
    catalog = tmp_path / "c.sqlite"
    source = golden("demo", "orders").log_dir
    for partition in range(2):
        given = ["sync", source, "lake.db.orders", "--catalog", catalog, "--partition", partition]
        run(*given, "--warehouse", f"{bucket.address}/lake")
    on = ["lake.db.orders", "--catalog", catalog, "--json"]
    (found,) = lines("tables", "check", *on, "--rows")
    assert (found["ok"], found["records"], found["advice"]) == (True, 5994, ["compact"])
    (done,) = lines("tables", "compact", *on)
    assert done["filesAfter"] < done["filesBefore"]
    (gone,) = lines("tables", "expire", *on, "--older-than", "1ms")
    assert gone["removed"] == gone["files"] > done["filesBefore"]
    (left,) = lines("tables", "orphans", *on)
    assert (left["orphans"], left["tooYoung"]) == ([], 0) and left["location"].startswith(bucket.address)
    (found,) = lines("tables", "check", *on, "--rows")
    assert (found["ok"], found["records"], found["advice"]) == (True, 5994, [])
    rows = kts.union("lake.db.orders", source, catalog=catalog, columns=["partition", "offset"]).read_all()
    assert rows.num_rows == rows.group_by(["partition", "offset"]).aggregate([]).num_rows == 9000
