"""Iceberg tables: rows and offsets in one snapshot, whatever other programs do to the table."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.exceptions
import pytest
import sqlalchemy.exc
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, HourTransform
from pyiceberg.types import StringType
from support.tables import data_files, iceberg_table, query

from kts.errors import InvalidRequestError, KtsWarning, LogLockedError, LogStorageError
from kts.model import TopicPartition
from kts.tables.iceberg import IcebergTable, errors_of_libraries, open_catalog
from kts.tables.rows import fitted, table_schema
from kts.tables.state import OFFSETS, SNAPSHOT, TOPIC_IDS

NAME = TopicPartition("t", 0)
DAY = datetime.date(2026, 1, 1)


def rows(*offsets: int, ms: int = 5, day: datetime.date | None = DAY) -> pa.Table:
    each = {"topic": "t", "partition": 0, "timestampMs": ms, "day": day, "value": b"v"}
    return pa.Table.from_pylist([each | {"offset": offset} for offset in offsets], schema=table_schema())


def table(folder: Path, **more: Any) -> IcebergTable:
    return IcebergTable(open_catalog("lake", str(folder / "c.sqlite")), ("db", "rows"), table_schema(), **more)


def delete_some(there: Table) -> None:
    there.delete("offset == 0")


def delete_all(there: Table) -> None:
    there.delete()


def compact(there: Table) -> None:
    """As other programs do: snapshots without offsets."""
    there.overwrite(there.scan().to_arrow())


def current(folder: Path) -> int:
    snapshot = iceberg_table(folder / "c.sqlite").current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def roll_back(folder: Path, snapshot: int) -> None:
    with iceberg_table(folder / "c.sqlite").manage_snapshots() as change:
        change.rollback_to_snapshot(snapshot)


def expire(folder: Path) -> None:
    """Expire all snapshots but the current one."""
    there, kept = iceberg_table(folder / "c.sqlite"), current(folder)
    others = [one.snapshot_id for one in there.snapshots() if one.snapshot_id != kept]
    there.maintenance.expire_snapshots().by_ids(others).commit()


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


def test_one_that_has_to_set_properties_first_is_refused_too(tmp_path: Path) -> None:
    one, other = table(tmp_path), table(tmp_path)
    one.append(rows(0, 1, ms=10**15), {NAME: 2})  # such times need a property of the table
    with pytest.raises(LogLockedError, match="another program has added records meanwhile"):
        other.append(rows(0, 1, ms=10**15), {NAME: 2})
    assert found(tmp_path) == [0, 1]


def test_a_program_that_rewrites_the_table_meanwhile_disturbs_nothing(tmp_path: Path) -> None:
    one = table(tmp_path)
    one.append(rows(0, 1), {NAME: 2})
    there = iceberg_table(tmp_path / "c.sqlite")
    there.overwrite(there.scan().to_arrow())  # as a compaction: snapshots without offsets
    assert there.current_snapshot().summary.additional_properties.get(OFFSETS) is None  # type: ignore[union-attr]
    one.append(rows(2), {NAME: 3})
    assert found(tmp_path) == [0, 1, 2] and table(tmp_path).offsets == {NAME: 3}


@pytest.mark.slow
def test_deleted_rows_stay_deleted_when_snapshots_expire(tmp_path: Path) -> None:
    """The table's own properties stand in, as long as its rows come from the snapshot that they belong to."""
    for number, change in enumerate((delete_some, delete_all, compact, lambda one: [delete_some(one), compact(one)])):
        folder = tmp_path / str(number)
        folder.mkdir()
        table(folder).append(rows(0, 1, 7), {NAME: 9})
        change(iceberg_table(folder / "c.sqlite"))
        expire(folder)
        one = table(folder)
        assert one.offsets == {NAME: 9} and one.kept
        one.append(rows(9), {NAME: 10})
        compact(iceberg_table(folder / "c.sqlite"))
        expire(folder)
        assert table(folder).offsets == {NAME: 10}


def test_a_table_goes_on_from_the_snapshot_that_it_was_rolled_back_to(tmp_path: Path) -> None:
    table(tmp_path).append(rows(0, 1), {NAME: 2})
    first = current(tmp_path)
    table(tmp_path).append(rows(2, 3), {NAME: 4})
    second = current(tmp_path)
    roll_back(tmp_path, first)
    one = table(tmp_path)
    assert one.offsets == {NAME: 2} and not one.kept, "the table's properties are those of the other snapshot"
    assert iceberg_table(tmp_path / "c.sqlite").properties[SNAPSHOT] == str(second)
    one.append(rows(2), {NAME: 3})
    delete_some(iceberg_table(tmp_path / "c.sqlite"))
    expire(tmp_path)
    assert table(tmp_path).offsets == {NAME: 3}


def test_the_properties_of_rows_that_are_no_longer_the_tables_are_refused(tmp_path: Path) -> None:
    """Rolled back, changed and expired: what the properties say was added is not there, and would be missed."""
    table(tmp_path).append(rows(0, 1), {NAME: 2})
    first = current(tmp_path)
    table(tmp_path).append(rows(2, 3), {NAME: 4})
    roll_back(tmp_path, first)
    compact(iceberg_table(tmp_path / "c.sqlite"))
    expire(tmp_path)
    with pytest.raises(LogStorageError, match=r'lake.db.rows: its property kts.offsets .* {"t":{"0":4}}: .*from_offs'):
        table(tmp_path)
    stated = table(tmp_path, stated=True)
    assert stated.lost and stated.offsets == {}


def test_without_properties_and_snapshots_rows_tell_nothing(tmp_path: Path) -> None:
    table(tmp_path).append(rows(0, 1, 7), {NAME: 9})
    there = iceberg_table(tmp_path / "c.sqlite")
    with there.transaction() as change:
        change.remove_properties(OFFSETS, TOPIC_IDS, SNAPSHOT)
    assert table(tmp_path).offsets == {NAME: 9}, "the snapshot has them"
    compact(iceberg_table(tmp_path / "c.sqlite"))
    expire(tmp_path)
    with pytest.raises(LogStorageError, match="lake.db.rows: the offsets .* are lost: .* from_offsets"):
        table(tmp_path)


def test_malformed_offsets_are_an_error_that_names_the_table(tmp_path: Path) -> None:
    table(tmp_path).append(rows(0), {NAME: 1})
    there = iceberg_table(tmp_path / "c.sqlite")
    with there.transaction() as change:
        change.set_properties({OFFSETS: '{"t": {"0": -1}}'})
    with pytest.raises(LogStorageError, match=r"lake.db.rows: the properties .* are malformed: .*from_offsets"):
        table(tmp_path)
    table(tmp_path, stated=True).append(rows(1), {NAME: 2})
    assert table(tmp_path).offsets == {NAME: 2}
    iceberg_table(tmp_path / "c.sqlite").append(rows(), snapshot_properties={OFFSETS: "[" * 100_000})
    with pytest.raises(LogStorageError, match=r"lake.db.rows, snapshot [0-9]+: .* are malformed: .* nested too deep"):
        table(tmp_path)


def test_a_table_partitioned_by_its_owner_goes_on(tmp_path: Path) -> None:
    one = table(tmp_path)
    one.append(rows(0), {NAME: 1})
    with iceberg_table(tmp_path / "c.sqlite").update_spec() as change:
        change.add_field("timestamp", HourTransform()).add_field("key", BucketTransform(4))
        change.remove_field("day")
    table(tmp_path).append(pa.concat_tables([rows(1), rows(2, day=None)]), {NAME: 3})
    assert found(tmp_path) == [0, 1, 2]


def test_columns_of_the_owner_stay_null_and_required_ones_are_refused(tmp_path: Path) -> None:
    table(tmp_path).append(rows(0), {NAME: 1})
    with iceberg_table(tmp_path / "c.sqlite").update_schema() as change:
        change.add_column("note", StringType()).move_first("note")
    table(tmp_path).append(rows(1), {NAME: 2})
    files = data_files(tmp_path / "c.sqlite")
    assert query(files[:1], "SELECT note FROM rows") == [(None,)] and found(tmp_path) == [0, 1]
    with iceberg_table(tmp_path / "c.sqlite").update_schema(allow_incompatible_changes=True) as change:
        change.add_column("must", StringType(), required=True)
    with pytest.raises(InvalidRequestError, match="lake.db.rows: the column must may not be null"):
        table(tmp_path)


def test_values_of_another_version_of_their_schema_are_added_as_far_as_the_table_has_columns(tmp_path: Path) -> None:
    def opened(value: pa.DataType) -> IcebergTable:
        return IcebergTable(open_catalog("lake", str(tmp_path / "c.sqlite")), ("db", "rows"), table_schema(value))

    def added(offset: int, value: pa.DataType, row: dict[str, Any]) -> None:
        one = opened(value)
        each = {"topic": "t", "partition": 0, "offset": offset, "day": DAY, "timestampMs": 5, "value": row}
        batches = pa.Table.from_pylist([each], schema=table_schema(value)).to_batches()
        one.append(pa.Table.from_batches([fitted(batch, one.schema) for batch in batches]), {NAME: offset + 1})

    element = pa.struct([("p", pa.int32())])
    first = pa.struct([("id", pa.int32()), ("old", pa.string()), ("list", pa.list_(element))])
    added(0, first, {"id": 1, "old": "x", "list": [{"p": 1}]})
    more = pa.struct([("p", pa.int32()), ("q", pa.int32())])
    later = pa.struct([("note", pa.string()), ("id", pa.int32()), ("list", pa.list_(more))])
    with pytest.warns(KtsWarning, match="lake.db.rows: .* without them: value.note, value.list.element.q; add such"):
        added(1, later, {"note": "new", "id": 2, "list": [{"p": 2, "q": 3}]})
    sql = 'SELECT value FROM rows ORDER BY "offset"'
    assert query(data_files(tmp_path / "c.sqlite"), sql) == [
        ({"id": 1, "old": "x", "list": [{"p": 1}]},), ({"id": 2, "old": None, "list": [{"p": 2}]},)
    ]  # fmt: skip
    wider = pa.struct([("id", pa.int64()), ("old", pa.string())])
    with pytest.raises(InvalidRequestError, match="has int64 for value.id, and the table int32: widen it, as ALTER"):
        opened(wider)
    for other in (pa.struct([("a", pa.int32())]), pa.struct([("id", pa.string())]), pa.binary()):
        with pytest.raises(
            InvalidRequestError, match=r"expected the column value\S* of type .*, found the column value"
        ):
            opened(other)


def test_errors_of_libraries_are_ours_and_name_the_table(tmp_path: Path) -> None:
    """Each of pyiceberg's and SQLAlchemy's, and what a damaged table makes the libraries raise."""
    libraries = [one for one in vars(pyiceberg.exceptions).values() if isinstance(one, type)]
    assert len(libraries) > 25
    for kind in [*libraries, sqlalchemy.exc.SQLAlchemyError, sqlalchemy.exc.NoResultFound, KeyError, OSError]:
        with pytest.raises((LogStorageError, ModuleNotFoundError), match=r"lake\.db\.rows") as raised:  # noqa: SIM117
            with errors_of_libraries("lake.db.rows"):
                raise kind("why")
        assert "why" in str(raised.value)
    table(tmp_path).append(rows(0), {NAME: 1})
    there = iceberg_table(tmp_path / "c.sqlite")
    metadata = Path(there.metadata_location.removeprefix("file://"))
    whole = metadata.read_text()
    for wrong in (
        "",
        "{",
        "[]",
        "{}",
        whole[:-50],
        whole.replace('"schemas"', '"x"'),
        whole.replace('"id":1', '"id":"a"'),
    ):
        metadata.write_text(wrong)
        with pytest.raises(LogStorageError, match="lake.db.rows: pyiceberg could not read or write the table"):
            table(tmp_path)
    metadata.unlink()
    with pytest.raises(LogStorageError, match="lake.db.rows: .*No such file"):
        table(tmp_path)


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
