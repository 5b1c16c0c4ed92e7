"""Tables of the latest state as their owners and other programs meet them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.types import StringType
from support.tables import iceberg_table

import kts
from kts.errors import InvalidRequestError, LogLockedError, LogStorageError
from kts.tables import Added, state_tables, sync
from kts.tables.compaction import compact
from kts.tables.upkeep import Upkeep

KEYS = 200


def append(folder: Path, keys: range, value: bytes | None) -> None:
    with kts.Log(folder / "logs" / "t-0") as log:
        log.append_rows({"key": [b"%d" % key for key in keys], "value": [value] * len(keys)})


def synced(folder: Path, **more: Any) -> Added:
    asked: dict[str, Any] = {"catalog": folder / "c.sqlite", "mode": "latest", "buckets": 2, "to_end": True}
    return sync(folder / "logs", "lake.db.rows", **asked | more).tables[0]


def found(folder: Path) -> dict[bytes, bytes]:
    table = iceberg_table(folder / "c.sqlite").scan().to_arrow()
    assert len(set(table["key"].to_pylist())) == table.num_rows
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def files(folder: Path) -> tuple[int, int]:
    """How many data files and delete files the table has."""
    tasks = [*iceberg_table(folder / "c.sqlite").scan().plan_files()]
    return len(tasks), len({one.file_path for task in tasks for one in task.delete_files})


def before_the_commit(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let another program act just before the next commit."""
    real = state_tables._replace

    def late(*given: Any) -> None:
        patch.setattr(state_tables, "_replace", real)
        act()
        real(*given)

    patch.setattr(state_tables, "_replace", late)


@pytest.fixture
def by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables keep their files, too."""
    monkeypatch.setattr(state_tables, "FEW_ROWS", 10)
    monkeypatch.setattr(state_tables, "MOST_DELETED", 5)


@pytest.mark.usefixtures("by_position")
@pytest.mark.slow
def test_few_changes_keep_the_files_until_there_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_tables, "MOST_FILES", 4)
    append(tmp_path, range(KEYS), b"0")
    synced(tmp_path)
    expected, seen = {b"%d" % key: b"0" for key in range(KEYS)}, []
    for turn in range(1, 6):
        append(tmp_path, range(2), b"%d" % turn)  # of one bucket, or of both
        added = synced(tmp_path)
        assert (added.records, added.removed) == (2, 2)
        expected |= {b"0": b"%d" % turn, b"1": b"%d" % turn}
        assert found(tmp_path) == expected
        seen.append(files(tmp_path))
    assert seen[0][1] > 0 and any(after < before for before, after in zip(seen, seen[1:], strict=False))
    for _, deletes in seen:
        assert deletes <= 2 * 4, "delete files go with the files that they are about"
    append(tmp_path, range(KEYS // 2), None)
    assert synced(tmp_path).removed == KEYS // 2
    assert len(found(tmp_path)) == KEYS // 2 and files(tmp_path)[1] == 0


@pytest.mark.usefixtures("by_position")
def test_one_snapshot_has_what_came_what_changed_and_what_went(tmp_path: Path) -> None:
    append(tmp_path, range(KEYS), b"0")
    synced(tmp_path)
    before = len(iceberg_table(tmp_path / "c.sqlite").snapshots())
    append(tmp_path, range(KEYS, KEYS + 3), b"new")
    append(tmp_path, range(3), b"changed")
    append(tmp_path, range(5, 8), None)
    added = synced(tmp_path)
    table = iceberg_table(tmp_path / "c.sqlite")
    assert len(table.snapshots()) == before + 1
    told = table.current_snapshot().summary.additional_properties  # type: ignore[union-attr]
    assert (added.records, added.removed) == (6, 6)
    assert (told["added-records"], told["added-position-deletes"]) == ("6", "6")


@pytest.mark.usefixtures("by_position")
@pytest.mark.parametrize("count", [2, KEYS], ids=["by position", "rewritten"])
def test_of_two_programs_that_change_at_the_same_time_one_is_refused(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, range(KEYS), b"0")
    synced(tmp_path)
    append(tmp_path, range(count), b"1")
    before_the_commit(monkeypatch, lambda: synced(tmp_path))
    with pytest.raises(LogLockedError, match="another program has added records meanwhile"):
        synced(tmp_path)
    assert found(tmp_path) == {b"%d" % key: b"1" if key < count else b"0" for key in range(KEYS)}


@pytest.mark.usefixtures("by_position")
@pytest.mark.parametrize("count", [2, KEYS], ids=["by position", "rewritten"])
def test_a_program_that_rewrites_the_table_meanwhile_disturbs_nothing(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, range(KEYS), b"0")
    synced(tmp_path)
    append(tmp_path, range(count), b"1")
    there = iceberg_table(tmp_path / "c.sqlite")
    before_the_commit(monkeypatch, lambda: there.overwrite(there.scan().to_arrow()))
    assert synced(tmp_path).removed == count
    assert found(tmp_path) == {b"%d" % key: b"1" if key < count else b"0" for key in range(KEYS)}
    known = {task.file.file_path for task in iceberg_table(tmp_path / "c.sqlite").scan().plan_files()}
    left = {f"file://{path}" for path in (tmp_path / "warehouse").rglob("*.parquet")}
    assert known <= left, "only files of the attempt that failed are removed"


@pytest.mark.usefixtures("by_position")
@pytest.mark.slow
def test_columns_of_the_owner_keep_their_values(tmp_path: Path) -> None:
    append(tmp_path, range(KEYS), b"0")
    synced(tmp_path)
    with iceberg_table(tmp_path / "c.sqlite").update_schema() as schema:
        schema.add_column("note", StringType()).rename_column("headers", "tags")
    with pytest.raises(InvalidRequestError, match="no column headers"):
        synced(tmp_path)
    with iceberg_table(tmp_path / "c.sqlite").update_schema() as schema:
        schema.rename_column("tags", "headers")
    there = iceberg_table(tmp_path / "c.sqlite")
    rows = there.scan().to_arrow()
    noted = rows.set_column(rows.schema.get_field_index("note"), "note", [["mine"] * len(rows)])
    there.overwrite(noted)
    append(tmp_path, range(KEYS // 2), b"1")
    synced(tmp_path)
    table = iceberg_table(tmp_path / "c.sqlite").scan().to_arrow().to_pylist()
    assert {row["note"] for row in table if row["value"] == b"0"} == {"mine"}
    assert {row["note"] for row in table if row["value"] == b"1"} == {None}


def test_a_table_with_another_partitioning_is_refused(tmp_path: Path) -> None:
    append(tmp_path, range(KEYS), b"0")
    synced(tmp_path)
    with iceberg_table(tmp_path / "c.sqlite").update_spec() as spec:
        spec.remove_field("key_bucket")
    append(tmp_path, range(2), b"1")
    with pytest.raises(InvalidRequestError, match="expected a table that is partitioned by buckets of key"):
        synced(tmp_path)


def test_a_folder_is_a_table_of_duckdb_and_a_key_has_one_file(tmp_path: Path) -> None:
    for value in (b"0", b"1"):
        append(tmp_path, range(KEYS), value)
        sync(tmp_path / "logs", tmp_path / "rows", mode="latest", buckets=4, to_end=True)
        assert sorted(path.name for path in (tmp_path / "rows").glob("bucket=*/*")) == [state_tables.STATE] * 4
    seen = duckdb.sql(f"SELECT count(*), count(DISTINCT key), min(value) FROM '{tmp_path}/rows/*/*.parquet'").fetchall()
    assert seen == [(KEYS, KEYS, b"1")]
    assert duckdb.sql(f"SELECT DISTINCT bucket FROM '{tmp_path}/rows/*/*.parquet' ORDER BY 1").fetchall() == [
        (one,) for one in range(4)
    ]


@pytest.mark.parametrize("wrong", ["bucket=9/state.parquet", "bucket=1/other.parquet", "../state.parquet"])
def test_a_ledger_names_only_files_of_its_buckets(tmp_path: Path, wrong: str) -> None:
    append(tmp_path, range(KEYS), b"0")
    sync(tmp_path / "logs", tmp_path / "rows", mode="latest", buckets=4, to_end=True)
    ledger = tmp_path / "rows" / "_kts" / "ledger.json"
    ledger.write_text(ledger.read_text().replace("bucket=1/state.parquet", wrong))
    with pytest.raises(LogStorageError, match="expected a file of one of 4 buckets"):
        sync(tmp_path / "logs", tmp_path / "rows", mode="latest", to_end=True)


def test_a_folder_that_lost_its_ledger_goes_on_with_its_own_buckets_alone(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"path": tmp_path / "logs", "table": tmp_path / "rows", "mode": "latest", "to_end": True}
    append(tmp_path, range(KEYS), b"0")
    sync(**asked, buckets=3)
    append(tmp_path, range(2), b"1")
    (tmp_path / "rows" / "_kts" / "ledger.json").unlink()
    with pytest.raises(LogStorageError, match="expected the ledger"):
        sync(**asked)
    for buckets in (None, 6):
        with pytest.raises(InvalidRequestError, match="buckets: expected the number that .* was made with"):
            sync(**asked, buckets=buckets, from_offsets={"t": {0: KEYS}})
    sync(**asked, buckets=3, from_offsets={"t": {0: KEYS}})
    seen = duckdb.sql(
        f"SELECT count(*), count(DISTINCT key), count(*) FILTER (value = '1'::BLOB) FROM '{tmp_path}/rows/*/*.parquet'"
    )
    assert seen.fetchall() == [(KEYS, KEYS, 2)]


@pytest.mark.parametrize("first", ["append", "latest"])
def test_without_its_ledger_a_folder_is_still_of_its_mode(tmp_path: Path, first: str) -> None:
    append(tmp_path, range(KEYS), b"0")
    sync(tmp_path / "logs", tmp_path / "rows", mode=first, to_end=True)
    (tmp_path / "rows" / "_kts" / "ledger.json").unlink()
    other = {"append": "latest", "latest": "append"}[first]
    with pytest.raises(InvalidRequestError, match="give the mode that it was made with"):
        sync(tmp_path / "logs", tmp_path / "rows", mode=other, to_end=True, from_offsets="earliest")


@pytest.mark.usefixtures("by_position")
def test_a_delete_file_is_of_the_partition_of_its_data_files(tmp_path: Path) -> None:
    """Readers look for it there alone."""
    with kts.Log(tmp_path / "logs" / "t-0"):
        synced(tmp_path)
    with iceberg_table(tmp_path / "c.sqlite").update_spec() as spec:
        spec.add_field("partition", "identity")
    for keys, value in ((range(KEYS), b"0"), (range(2), b"1")):
        for partition in range(2):
            with kts.Log(tmp_path / "logs" / f"t-{partition}") as log:
                log.append_rows({"key": [b"%d" % key for key in keys], "value": [value] * len(keys)})
        synced(tmp_path)
    tasks = [*iceberg_table(tmp_path / "c.sqlite").scan().plan_files()]
    pairs = {(one.partition, task.file.partition) for task in tasks for one in task.delete_files}
    assert pairs and all(own == of_file for own, of_file in pairs)
    rows = iceberg_table(tmp_path / "c.sqlite").scan().to_arrow()
    assert sorted(zip(rows["partition"].to_pylist(), rows["key"].to_pylist(), strict=True)) == sorted(
        (partition, b"%d" % key) for partition in range(2) for key in range(KEYS)
    )


@pytest.mark.usefixtures("by_position")
def test_compaction_and_expiry_leave_the_state_as_it_is(tmp_path: Path) -> None:
    append(tmp_path, range(KEYS), b"0")
    synced(tmp_path)
    expected = {b"%d" % key: b"0" for key in range(KEYS)}
    for turn in range(1, 4):
        append(tmp_path, range(turn, turn + 3), b"%d" % turn)
        synced(tmp_path)
        expected |= {b"%d" % key: b"%d" % turn for key in range(turn, turn + 3)}
    assert files(tmp_path)[1] > 0
    upkeep = Upkeep("lake.db.rows", tmp_path / "c.sqlite")
    assert compact(upkeep).records >= KEYS
    assert found(tmp_path) == expected and files(tmp_path) == (2, 0)
    told = iceberg_table(tmp_path / "c.sqlite").current_snapshot().summary.additional_properties  # type: ignore[union-attr]
    assert told["total-delete-files"] == told["total-position-deletes"] == "0"
    assert synced(tmp_path).records == 0
    append(tmp_path, range(2), None)
    synced(tmp_path)
    assert found(tmp_path) == {key: value for key, value in expected.items() if key not in (b"0", b"1")}
