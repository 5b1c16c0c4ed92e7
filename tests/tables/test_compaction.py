"""Compaction: fewer files, the same rows and offsets, whatever is committed meanwhile."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.golden import scaled
from support.sets.growing import Writer
from support.tables import Filled, data_files, iceberg_table, query

import kts
from kts.errors import KtsError, LogStorageError
from kts.model import TopicPartition
from kts.tables import compaction, sync
from kts.tables.compaction import compact
from kts.tables.iceberg import IcebergTable
from kts.tables.orphans import orphans
from kts.tables.state import OFFSETS, TOPIC_IDS
from kts.tables.upkeep import Upkeep


def test_small_files_of_a_day_become_one_and_rows_and_offsets_stay(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=5)
    before = query(data_files(filled.catalog), "SELECT * FROM rows ORDER BY ALL")
    (schema,) = {str(pq.read_schema(file)) for file in data_files(filled.catalog)}
    planned = compact(filled.open(), dry_run=True)
    assert (planned.files_before, planned.files_after, planned.commits) == (10, 2, 0)
    assert len(data_files(filled.catalog)) == 10
    done = compact(filled.open())
    assert (done.files_before, done.files_after, done.commits, done.records) == (10, 2, 1, 100)
    assert query(data_files(filled.catalog), "SELECT * FROM rows ORDER BY ALL") == before
    assert {str(pq.read_schema(file)) for file in data_files(filled.catalog)} == {schema}
    assert len(filled.table.current_snapshot().manifests(filled.table.io)) == 2  # type: ignore[union-attr]
    summary = filled.table.current_snapshot().summary.additional_properties  # type: ignore[union-attr]
    assert summary[OFFSETS] == '{"t":{"0":50,"1":50}}' and summary[TOPIC_IDS] == filled.table.properties[TOPIC_IDS]
    assert filled.open().kept and filled.open().offsets == {TopicPartition("t", 0): 50, TopicPartition("t", 1): 50}
    assert filled.sync() == 0 and compact(filled.open()).commits == 0
    filled.run()
    filled.check_each_once()
    assert all("day=2026-01-0" in file for file in data_files(filled.catalog))


def test_decoded_values_of_every_shape_stay_as_they_are(tmp_path: Path) -> None:
    shapes = {
        "s": {"type": "object", "properties": {"a-b": {"type": "integer"}, "c": {"type": "string"}}},
        "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
        "m": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
    }
    (tmp_path / "schema.json").write_text(json.dumps({"type": "object", "properties": shapes}))
    asked: dict[str, Any] = {"value_format": "json", "value_schema": tmp_path / "schema.json"}
    catalog = tmp_path / "c.sqlite"
    for run in range(3):
        values = [{"s": {"a-b": run, "c": "z"}, "l": [{"x": 1.5}, {}], "m": {"k": ["a", None]}}, {"m": {}}, {"l": None}]
        with kts.Log(tmp_path / "logs" / "t-0") as log:
            log.append_rows({"value": [json.dumps(value).encode() for value in values]})
        sync(tmp_path / "logs", "lake.db.rows", catalog=catalog, **asked)
    before = iceberg_table(catalog).scan().to_arrow().sort_by("offset").to_pylist()
    assert compact(Upkeep("lake.db.rows", catalog)).files_after == 1
    assert iceberg_table(catalog).scan().to_arrow().sort_by("offset").to_pylist() == before and len(before) == 9
    assert [row["value"]["s"]["a-b"] for row in before if row["value"]["s"]] == [0, 1, 2]


def test_files_have_about_the_size_that_is_asked_for(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=9, days=1)
    one = max(Path(file).stat().st_size for file in data_files(filled.catalog))
    compact(filled.open(), target_bytes=3 * one)
    assert len(data_files(filled.catalog)) == 3
    ranges = sorted(
        query([file], 'SELECT min("offset"), max("offset") FROM rows')[0] for file in data_files(filled.catalog)
    )
    assert all(one[1] < other[0] for one, other in pairwise(ranges))  # a reader of few offsets opens few files
    filled.check_each_once()
    large = {*data_files(filled.catalog)}
    filled.run()
    filled.run()
    compact(filled.open(), target_bytes=min(Path(file).stat().st_size for file in large))
    assert large < {*data_files(filled.catalog)} and len(data_files(filled.catalog)) == 5
    filled.check_each_once()


@pytest.mark.parametrize("first", ["sync", "compaction"])
def test_of_two_commits_the_second_is_made_on_top_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    filled = Filled(tmp_path, runs=4)
    with monkeypatch.context() as patched:
        if first == "sync":
            real = compaction._replace

            def replace(*given: Any) -> None:
                patched.setattr(compaction, "_replace", real)
                filled.run()
                real(*given)

            patched.setattr(compaction, "_replace", replace)
            assert compact(filled.open()).files_before == 8
        else:
            append = IcebergTable.append

            def appended(table: IcebergTable, *given: Any) -> None:
                patched.setattr(IcebergTable, "append", append)
                assert compact(filled.open()).files_before == 8
                append(table, *given)

            patched.setattr(IcebergTable, "append", appended)
            filled.run()
    assert len(data_files(filled.catalog)) == 4 and filled.sync() == 0
    filled.check_each_once()
    orphans = [file for file in filled.files() if "-compacted" in file and file not in data_files(filled.catalog)]
    assert not orphans


def test_what_another_program_changed_meanwhile_stays_as_that_left_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = Filled(tmp_path, runs=4)
    real = compaction._replace

    def replace(*given: Any) -> None:
        monkeypatch.setattr(compaction, "_replace", real)
        filled.table.delete("offset == 0 and day == '2026-01-01'")
        real(*given)

    monkeypatch.setattr(compaction, "_replace", replace)
    done = compact(filled.open())
    assert (done.commits, done.dropped, done.files_before, done.files_after) == (1, 1, 4, 1)
    assert filled.places() == [(number, at) for number in range(2) for at in range(1, 40)]
    assert sum("-compacted" in file for file in filled.files()) == 1
    assert filled.sync() == 0


def test_a_table_of_others_and_one_without_offsets_are_compacted_too(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=3)
    with filled.table.transaction() as change:
        change.remove_properties(OFFSETS, TOPIC_IDS, "kts.snapshot", "commit.retry.num-retries")
    filled.table.overwrite(filled.table.scan().to_arrow())
    there = filled.table
    kept = {ref.snapshot_id for ref in there.metadata.refs.values()}
    there.maintenance.expire_snapshots().by_ids(
        [one.snapshot_id for one in there.snapshots() if one.snapshot_id not in kept]
    ).commit()
    there.append(there.scan().to_arrow().slice(0, 5))
    assert filled.open().lost
    assert compact(filled.open()).commits == 1
    assert OFFSETS not in filled.table.current_snapshot().summary.additional_properties  # type: ignore[union-attr]
    assert len(filled.places()) == 65


def test_rows_that_are_not_those_of_the_files_are_never_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = Filled(tmp_path, runs=3)
    monkeypatch.setattr(Upkeep, "batches", lambda self, task, columns=None: [])
    with pytest.raises(LogStorageError, match="expected .* rows in 3 files"):
        compact(filled.open())
    filled.check_each_once()


def test_a_run_that_ends_before_its_commit_changes_nothing_and_leaves_orphans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = Filled(tmp_path, runs=3)
    before = filled.files()
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "_replace", lambda *_: sys.exit(1))  # a BaseException, as of a signal
        with pytest.raises(SystemExit):
            compact(filled.open())
    left = filled.files() - before
    filled.check_each_once()
    for file in filled.files():
        os.utime(file, (1, 1))
    assert len(left) == 2 and {one.path for one in orphans(filled.open()).files} == left
    filled.check_each_once()
    assert compact(filled.open()).files_before == 6


def test_a_race_that_is_always_lost_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = Filled(tmp_path, runs=3)
    real = compaction._replace

    def replace(*given: Any) -> None:
        with filled.table.transaction() as change:
            change.set_properties({"n": str(len(filled.table.metadata.metadata_log))})
        filled.run(2)
        real(*given)

    monkeypatch.setattr(compaction, "_replace", replace)
    monkeypatch.setattr("kts.tables.state.ATTEMPTS", 3)
    with pytest.raises(KtsError, match="in 3 attempts another program committed first each time"):
        compact(filled.open())
    filled.check_each_once()


@pytest.mark.slow
def test_each_record_is_there_once_after_compactions_beside_a_running_sync(tmp_path: Path, rng: random.Random) -> None:
    # Seconds: a writer appends, and syncs and compactions race for every commit.
    writer, catalog, failed = Writer(tmp_path / "logs", rng, {}), tmp_path / "c.sqlite", list[BaseException]()
    writer.start()
    done = threading.Event()

    def add() -> None:
        try:
            while not done.wait(0.2):
                sync(tmp_path / "logs", "lake.db.rows", catalog=catalog, to_end=True)
        except BaseException as error:
            failed.append(error)

    sync(tmp_path / "logs", "lake.db.rows", catalog=catalog, to_end=True)
    adding = threading.Thread(target=add)
    adding.start()
    commits = 0
    while commits < scaled(3, 40):
        commits += compact(Upkeep("lake.db.rows", catalog)).commits
    done.set()
    adding.join()
    ends = writer.stop()
    assert not failed, failed
    sync(tmp_path / "logs", "lake.db.rows", catalog=catalog, to_end=True)
    compact(Upkeep("lake.db.rows", catalog))
    found = query(data_files(catalog), 'SELECT partition, "offset" FROM rows ORDER BY ALL')
    assert found == [(number, at) for number, end in enumerate(ends) for at in range(end)]
    assert len([*iceberg_table(catalog).scan().plan_files()]) <= 2
