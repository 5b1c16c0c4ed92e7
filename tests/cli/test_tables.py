"""``kts tables``: what it says, and its exit codes."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from support.processes.cli_runs import lines, run
from support.tables import Filled, data_files

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
