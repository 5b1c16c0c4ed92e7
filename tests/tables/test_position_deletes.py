"""Position deletes, as pyiceberg reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from kts.tables.position_deletes import Replacement, columns_of, deleted_rows, write_deletes

ROWS = pa.table({"a": pa.array(range(100), pa.int64()), "b": [f"b{one}" for one in range(100)]})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    lake = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.sqlite", warehouse=f"file://{tmp_path}")
    lake.create_namespace("db")
    made = lake.create_table("db.t", ROWS.schema)
    made.append(ROWS.slice(0, 60))
    made.append(ROWS.slice(60))
    return made


def delete(table: Table, gone: list[int], *, replaced: bool = False) -> None:
    """Delete rows by the value of ``a``; or with the first of the files, whose rows come again without deletes."""
    tasks = [*table.scan().plan_files()]
    positions = []
    for task in tasks:
        found = columns_of(table, task.file, ["a"])
        places = np.flatnonzero(np.isin(np.asarray(found["a"]), gone))
        positions += [(task.file.file_path, places)] if len(places) else []
    with (
        table.transaction() as change,
        Replacement(Operation.OVERWRITE, change, table.io, snapshot_properties={"mine": "1"}) as snapshot,
    ):
        if replaced:
            snapshot.delete_data_file(tasks[0].file)
            snapshot.old_deletes = [*tasks[0].delete_files]
        else:
            snapshot.new_deletes = [write_deletes(table, tasks[0], positions)]


def left(table: Table) -> list[int]:
    return sorted(table.refresh().scan().to_arrow()["a"].to_pylist())


def told(table: Table, name: str) -> str | None:
    return table.current_snapshot().summary.additional_properties.get(name)  # type: ignore[union-attr]


def test_rows_of_several_files_go_by_one_delete_file(table: Table) -> None:
    gone = [0, 7, 59, 60, 99]
    delete(table, gone)
    assert left(table) == [one for one in range(100) if one not in gone]
    assert (told(table, "total-position-deletes"), told(table, "added-delete-files"), told(table, "mine")) == (
        "5", "1", "1",
    )  # fmt: skip
    delete(table, [1, 61])
    assert left(table) == [one for one in range(100) if one not in (*gone, 1, 61)]
    for task in table.scan().plan_files():
        values = np.asarray(columns_of(table, task.file, ["a"])["a"])
        assert {*values[deleted_rows(table, task)]} == {one for one in (*gone, 1, 61) if one in values}


def test_delete_files_go_with_the_data_files_that_they_are_about(table: Table) -> None:
    first = next(iter(table.scan().plan_files()))
    values = np.asarray(columns_of(table, first.file, ["a"])["a"])
    delete(table, [int(values[0])])
    delete(table, [int(values[1])])
    assert told(table.refresh(), "total-delete-files") == "2"
    delete(table, [], replaced=True)
    assert left(table) == sorted({*range(100)} - {*values.tolist()})
    assert (told(table, "total-delete-files"), told(table, "total-position-deletes")) == ("0", "0")
    assert all(not task.delete_files for task in table.scan().plan_files())


def test_columns_are_found_by_their_ids_whatever_they_are_called_now(table: Table) -> None:
    file = next(iter(table.scan().plan_files())).file
    with table.update_schema() as schema:
        schema.rename_column("a", "b2").rename_column("b", "a").add_column("c", table.schema().find_type("b"))
    found = columns_of(table.refresh(), file, ["a", "b2"])
    assert found.column_names == ["a", "b2"]
    assert found["a"][0].as_py() == f"b{found['b2'][0].as_py()}"
    assert columns_of(table, file, ["c"])["c"].null_count == found.num_rows, "the file is older than the column"
