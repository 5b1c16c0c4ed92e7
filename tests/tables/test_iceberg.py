"""Iceberg tables: rows and offsets in one snapshot, whatever other programs do to the table."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from support.tables import data_files, iceberg_table, query

from kts.errors import InvalidRequestError, LogLockedError
from kts.model import TopicPartition
from kts.tables.iceberg import OFFSETS, IcebergTable, open_catalog
from kts.tables.rows import table_schema

NAME = TopicPartition("t", 0)
DAY = datetime.date(2026, 1, 1)


def rows(*offsets: int, ms: int = 5, day: datetime.date | None = DAY) -> pa.Table:
    each = {"topic": "t", "partition": 0, "timestampMs": ms, "day": day, "value": b"v"}
    return pa.Table.from_pylist([each | {"offset": offset} for offset in offsets], schema=table_schema())


def table(folder: Path) -> IcebergTable:
    return IcebergTable(open_catalog("lake", str(folder / "c.sqlite")), ("db", "rows"), table_schema())


def found(folder: Path) -> list[int]:
    """The offsets that DuckDB sees."""
    return [offset for (offset,) in query(data_files(folder / "c.sqlite"), 'SELECT "offset" FROM rows ORDER BY ALL')]


def test_a_snapshot_holds_rows_and_offsets_and_days_are_partitions(tmp_path: Path) -> None:
    one = table(tmp_path)
    assert one.offsets == {}
    one.append(pa.concat_tables([rows(0, 1), rows(2, day=None)]), {NAME: 3})
    assert found(tmp_path) == [0, 1, 2] and table(tmp_path).offsets == {NAME: 3}
    there = iceberg_table(tmp_path / "c.sqlite")
    assert str(there.current_snapshot().summary.additional_properties[OFFSETS]) == '{"t":{"0":3}}'  # type: ignore[union-attr]
    days = {task.file.partition[0] for task in there.scan().plan_files()}
    assert days == {None, (DAY - datetime.date(1970, 1, 1)).days}


def test_of_two_programs_that_add_at_the_same_time_one_is_refused(tmp_path: Path) -> None:
    one, other = table(tmp_path), table(tmp_path)
    one.append(rows(0, 1), {NAME: 2})
    with pytest.raises(LogLockedError, match="another program has added records meanwhile"):
        other.append(rows(0, 1), {NAME: 2})
    assert found(tmp_path) == [0, 1]
    again = table(tmp_path)
    again.append(rows(2), {NAME: 3})
    assert found(tmp_path) == [0, 1, 2]


def test_a_program_that_rewrites_the_table_meanwhile_disturbs_nothing(tmp_path: Path) -> None:
    one = table(tmp_path)
    one.append(rows(0, 1), {NAME: 2})
    there = iceberg_table(tmp_path / "c.sqlite")
    there.overwrite(there.scan().to_arrow())  # as a compaction: snapshots without offsets
    assert there.current_snapshot().summary.additional_properties.get(OFFSETS) is None  # type: ignore[union-attr]
    one.append(rows(2), {NAME: 3})
    assert found(tmp_path) == [0, 1, 2] and table(tmp_path).offsets == {NAME: 3}


def test_where_all_snapshots_with_offsets_expired_the_rows_tell_them(tmp_path: Path) -> None:
    table(tmp_path).append(rows(0, 1, 7), {NAME: 9})
    there = iceberg_table(tmp_path / "c.sqlite")
    there.overwrite(there.scan().to_arrow())
    kept = there.current_snapshot().snapshot_id  # type: ignore[union-attr]
    there.maintenance.expire_snapshots().by_ids(
        [one.snapshot_id for one in there.snapshots() if one.snapshot_id != kept]
    ).commit()
    assert table(tmp_path).offsets == {NAME: 8}


def test_times_beyond_pythons_are_kept(tmp_path: Path) -> None:
    one = table(tmp_path)
    far = rows(0, ms=9_000_000_000_000_000, day=None).set_column(
        3, "timestamp", pa.array([9_000_000_000_000_000_000], pa.timestamp("us", tz="UTC"))
    )
    one.append(far, {NAME: 1})
    one.append(rows(1), {NAME: 2})
    sql = 'SELECT epoch_us(timestamp), timestampMs FROM rows ORDER BY "offset"'
    assert query(data_files(tmp_path / "c.sqlite"), sql)[0] == (9_000_000_000_000_000_000, 9_000_000_000_000_000)


def test_a_table_with_other_columns_is_refused_by_the_column(tmp_path: Path) -> None:
    catalog = open_catalog("lake", str(tmp_path / "c.sqlite"))
    IcebergTable(catalog, ("db", "rows"), table_schema())
    with pytest.raises(
        InvalidRequestError, match="expected the column value of type string, found the column value of"
    ):
        IcebergTable(catalog, ("db", "rows"), table_schema(pa.string()))
    with pytest.raises(InvalidRequestError, match="expected the column reason of type string, found no column reason"):
        IcebergTable(catalog, ("db", "rows"), table_schema(reason=True))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        open_catalog("lake", str(tmp_path / "missing" / "c.sqlite"))
