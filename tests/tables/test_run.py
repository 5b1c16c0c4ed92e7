"""A log becomes a table bit by bit, each record once."""

from __future__ import annotations

import datetime
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.transforms import BucketTransform, HourTransform
from support.golden import golden
from support.tables import data_files, folder_files, iceberg_table, query
from support.tiered import session

import kts
from kts.codec.micros import MAX_MS
from kts.errors import (
    CorruptRecordError,
    InvalidRequestError,
    KtsWarning,
    LogStorageError,
    OffsetOutOfRangeError,
)
from kts.model import TopicPartition
from kts.tables import Synced, sync
from kts.tables.iceberg import IcebergTable
from kts.tables.rows import LAST_MS

CONFIG = {"segment.bytes": 2000, "file.delete.delay.ms": 0, "retention.bytes": 4000, "retention.ms": -1}
DAY_MS = 86_400_000
FIRST_DAY = 1_767_225_600_000  # 2026-01-01


def append(log: kts.Log, count: int, ms: int = FIRST_DAY, **columns: list[Any]) -> None:
    log.append_rows(
        {"value": [b"v%d" % (log.log_end_offset + i) for i in range(count)], "timestamp": [ms] * count} | columns
    )


def synced(folder: Path, **more: Any) -> Synced:
    return sync(folder / "logs", "lake.db.rows", catalog=folder / "c.sqlite", **more)


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    return query(data_files(folder / "c.sqlite"), sql)


def identities(folder: Path) -> list[tuple[Any, ...]]:
    return rows(folder, 'SELECT topic, partition, "offset" FROM rows ORDER BY ALL')


@pytest.mark.slow
def test_the_table_has_what_the_broker_wrote(tmp_path: Path) -> None:
    source = golden("demo", "orders").log_dir
    done = sync(source, "lake.db.rows", catalog=tmp_path / "c.sqlite", threads=2, commit_bytes=200_000)
    columns = 'topic, partition, "offset", timestampMs, timestampType, key, value'
    found = rows(tmp_path, f'SELECT {columns} FROM rows ORDER BY topic, partition, "offset"')
    expected = kts.scan(source, columns=["topic", "partition", "offset", "timestamp", "timestampType", "key", "value"])
    table = expected.read_all()
    table = table.set_column(3, "timestamp", table.column("timestamp").cast("int64"))
    assert found == [tuple(row.values()) for row in table.to_pylist()]
    assert done.tables[0].commits > 3 and done.tables[0].records == len(found) == 9000
    assert rows(tmp_path, "SELECT count(*) FROM rows WHERE day IS NULL") == [(done.tables[0].without_day,)] == [(1,)]
    assert rows(tmp_path, "SELECT count(*) FROM rows WHERE day <> CAST(timestamp AS DATE)") == [(0,)]


def test_each_run_adds_what_is_new_and_late_records_lie_in_their_day(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "logs" / "t-0", CONFIG) as log:
        append(log, 3, FIRST_DAY + DAY_MS)
        assert synced(tmp_path).tables[0].records == 3
        assert (synced(tmp_path).tables[0].records, synced(tmp_path).tables[0].commits) == (0, 0)
        append(log, 2, FIRST_DAY)
        with kts.Log(tmp_path / "logs" / "t-1", CONFIG) as added:
            append(added, 1)
        assert synced(tmp_path).tables[0].records == 3
    assert identities(tmp_path) == [("t", 0, offset) for offset in range(5)] + [("t", 1, 0)]
    first, second = datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)
    assert rows(tmp_path, "SELECT day, count(*) FROM rows GROUP BY day ORDER BY day") == [(first, 3), (second, 3)]


def test_retention_deletes_nothing_and_what_was_missed_is_told(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "logs" / "t-0", CONFIG) as log:
        append(log, 5)
        synced(tmp_path)
        for _ in range(40):
            append(log, 5)
        log.advance_log_start_offset(100)
        log.delete_old_segments()
        first, end = log.log_start_offset, log.log_end_offset
    assert first > 5
    missed = rf"offsets 5 to {first} \(not included\) of t-0 were deleted before they were read"
    with pytest.raises(OffsetOutOfRangeError, match=missed + ".*fail_on_data_loss"):
        synced(tmp_path)
    assert len(identities(tmp_path)) == 5
    with pytest.warns(KtsWarning, match=missed):
        synced(tmp_path, fail_on_data_loss=False)
    assert [offset for *_, offset in identities(tmp_path)] == [*range(5), *range(first, end)]


def test_a_partition_or_an_end_that_is_gone_is_told(tmp_path: Path) -> None:
    for number in range(2):
        with kts.Log(tmp_path / "logs" / f"t-{number}", CONFIG) as log:
            append(log, 5)
    synced(tmp_path)
    (tmp_path / "logs" / "t-1").rename(tmp_path / "logs" / "t-1.0123456789abcdef0123456789abcdef-delete")
    with pytest.raises(OffsetOutOfRangeError, match="t-1, which was read up to offset 5, is gone"):
        synced(tmp_path)
    with kts.Log(tmp_path / "logs" / "t-0", CONFIG) as log:
        log.truncate_to(2)
    with pytest.raises(OffsetOutOfRangeError, match="t-1, .* is gone"):
        synced(tmp_path, partitions=[0])
    with pytest.warns(KtsWarning, match="t-0 was read up to offset 5, and ends now at offset 0"):
        assert synced(tmp_path, fail_on_data_loss=False).tables[0].records == 0
    assert len(identities(tmp_path)) == 10


@pytest.mark.parametrize("catalog", [True, False], ids=["iceberg", "folder"])
def test_a_topic_that_was_created_again_is_told_by_its_id(tmp_path: Path, catalog: bool) -> None:
    """Its offsets look as if nothing were new."""
    logs, table = tmp_path / "logs", "lake.db.rows" if catalog else str(tmp_path / "rows")
    more: dict[str, Any] = {"catalog": tmp_path / "c.sqlite"} if catalog else {}

    def run(count: int, topic_id: str, **options: Any) -> int:
        with kts.Log(logs / "t-0", CONFIG, topic_id=topic_id) as log:
            append(log, count)
        return sync(logs, table, **more, **options).tables[0].records

    first, again = "A" * 21 + "E", "B" * 21 + "E"
    assert run(3, first) == 3 and run(2, first) == 2
    shutil.rmtree(logs / "t-0")
    told = f"{table}: the topic t had the id {first} when it was read, and has {again}: it was created again"
    with pytest.raises(OffsetOutOfRangeError, match=told + ".*fail_on_data_loss"):
        run(4, again)
    with pytest.warns(KtsWarning, match=told):
        assert run(1, again, fail_on_data_loss=False) == 5
    assert run(2, again) == 2


def test_only_stable_records_are_added(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "logs" / "t-0", CONFIG) as log:
        append(log, 5)
    (tmp_path / "logs" / "replication-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    done = synced(tmp_path)
    assert done.held_back == {TopicPartition("t", 0): 2} and len(identities(tmp_path)) == 3
    assert synced(tmp_path, to_end=True).held_back == {} and len(identities(tmp_path)) == 5
    again = synced(tmp_path)
    assert again.tables[0].records == 0, "a high watermark behind what was read is no loss"
    assert again.held_back == {}, "the table has them"


def test_damage_ends_a_run_behind_the_records_before_it(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "logs" / "t-0", CONFIG) as log:
        append(log, 5)
        append(log, 5)
        append(log, 5)
    (path,) = (tmp_path / "logs" / "t-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[data.index(b"v7")] ^= 1
    path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="CRC"):
            synced(tmp_path)
        assert [offset for *_, offset in identities(tmp_path)] == [*range(5)]
    with pytest.warns(kts.DamageWarning):
        assert synced(tmp_path, on_error="skip").tables[0].records == 5
    assert [offset for *_, offset in identities(tmp_path)] == [*range(5), *range(10, 15)]


def test_tiered_storage_is_a_source_like_any_other(tmp_path: Path) -> None:
    one = session("aiven-zstd-encrypted")
    tier = {"remote": one.remote, "remote_options": {"private_keys": dict(one.keys)}, "topics": "restart"}
    done = sync(None, "lake.db.rows", catalog=tmp_path / "c.sqlite", **tier)
    assert done.tables[0].records > 300
    both = sync(one.data, "lake.db.rows", catalog=tmp_path / "c.sqlite", to_end=True, **tier)
    assert both.tables[0].records > 0
    assert [offset for *_, offset in identities(tmp_path)] == [row.offset for row in one.expected("restart-0")]


@pytest.mark.parametrize("table", ["rows", "lake.rows", "lake..rows", "lake.db."])
def test_a_table_is_named_as_in_spark(tmp_path: Path, table: str) -> None:
    with pytest.raises(ValueError, match="table: expected catalog, namespace and name, such as lake.db.orders"):
        sync(golden("demo", "orders").log_dir, table, catalog=tmp_path / "c.sqlite")


SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'


def test_what_does_not_decode_lies_in_a_table_of_its_own_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(SCHEMA)
    values = [b'{"a":1}', b"{", None, b'{"a":2}', b"{}"]
    with kts.Log(tmp_path / "logs" / "t-0", CONFIG) as log:
        append(log, 5, value=values)
    done = synced(tmp_path, value_format="json", value_schema=tmp_path / "schema.json")
    assert [(one.table, one.records) for one in done.tables] == [("lake.db.rows", 3), ("lake.db.rows_rejected", 2)]
    sql = 'SELECT "offset", value.a FROM rows ORDER BY ALL'
    assert rows(tmp_path, sql) == [(0, 1), (2, None), (3, 2)]
    rejected = query(
        data_files(tmp_path / "c.sqlite", "lake.db.rows_rejected"),
        'SELECT "offset", value, reason FROM rows ORDER BY ALL',
    )
    assert [row[:2] for row in rejected] == [(1, b"{"), (4, b"{}")]
    assert rejected[0][2] == "not JSON: it ends at 1" and rejected[1][2] == "the field a is missing"
    with pytest.raises(
        InvalidRequestError, match="expected the column value of type binary, found .* struct<a: int64>"
    ):
        synced(tmp_path)


def test_a_run_that_ended_between_the_two_commits_goes_on_in_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "schema.json").write_text(SCHEMA)
    given = {"value_format": "json", "value_schema": tmp_path / "schema.json"}
    add = IcebergTable.append

    def fails(self: IcebergTable, *arguments: Any) -> None:
        if self.name.endswith("_rejected"):
            raise OSError("no space left")
        add(self, *arguments)

    with kts.Log(tmp_path / "logs" / "t-0", CONFIG) as log:
        append(log, 4, value=[b'{"a":1}', b"{", b"{", b'{"a":2}'])
        monkeypatch.setattr(IcebergTable, "append", fails)
        with pytest.raises(OSError, match="no space"):
            synced(tmp_path, **given)
        monkeypatch.undo()
        append(log, 2, value=[b"{", b'{"a":3}'])
    assert len(identities(tmp_path)) == 2
    assert [one.records for one in synced(tmp_path, **given).tables] == [1, 3]
    assert [offset for *_, offset in identities(tmp_path)] == [0, 3, 5]


def test_a_registrys_topic_among_the_paths_has_the_schemas(tmp_path: Path) -> None:
    key = b'{"keytype":"SCHEMA","subject":"t-value","version":1,"magic":1}'
    told = {"subject": "t-value", "version": 1, "id": 5, "schema": SCHEMA, "schemaType": "JSON", "deleted": False}
    with kts.Log(tmp_path / "logs" / "_schemas-0") as log:
        log.append_rows({"key": [key], "value": [json.dumps(told).encode()]})
    with kts.Log(tmp_path / "logs" / "t-0", CONFIG) as log:
        append(log, 2, value=[b'\0\0\0\0\5{"a":1}', b'{"a":1}'])
    done = synced(tmp_path, value_format="json", registry=True)
    assert [one.records for one in done.tables] == [1, 1] and done.tables[0].offsets == {TopicPartition("t", 0): 2}
    with pytest.raises(ValueError, match="expected json, which the registry has, found avro"):
        synced(tmp_path, value_format="avro", registry=True)


def delete_and_expire(folder: Path, condition: str | None) -> None:
    """What an owner does who wants rows to be gone; without a condition, a compaction."""
    there = iceberg_table(folder / "c.sqlite")
    if condition is None:
        there.overwrite(there.scan().to_arrow())
    else:
        there.delete(condition)
    kept = there.current_snapshot()
    assert kept is not None
    others = [one.snapshot_id for one in there.snapshots() if one.snapshot_id != kept.snapshot_id]
    there.maintenance.expire_snapshots().by_ids(others).commit()


def test_rows_that_were_deleted_stay_deleted(tmp_path: Path) -> None:
    for topic in ("a", "b"):
        with kts.Log(tmp_path / "logs" / f"{topic}-0", CONFIG) as log:
            append(log, 3)
    assert synced(tmp_path).tables[0].records == 6
    delete_and_expire(tmp_path, "topic == 'a'")
    assert synced(tmp_path).tables[0].records == 0
    with kts.Log(tmp_path / "logs" / "a-0", CONFIG) as log:
        append(log, 2)
    assert synced(tmp_path).tables[0].records == 2
    assert identities(tmp_path) == [("a", 0, 3), ("a", 0, 4), ("b", 0, 0), ("b", 0, 1), ("b", 0, 2)]


def test_a_topic_that_was_created_again_is_told_after_snapshots_expired(tmp_path: Path) -> None:
    for topic_id in ("A" * 21 + "E", "B" * 21 + "E"):
        shutil.rmtree(tmp_path / "logs", ignore_errors=True)
        with kts.Log(tmp_path / "logs" / "t-0", CONFIG, topic_id=topic_id) as log:
            append(log, 4)
        if topic_id.startswith("A"):
            synced(tmp_path)
            delete_and_expire(tmp_path, "offset < 2")
    with pytest.raises(OffsetOutOfRangeError, match="lake.db.rows: the topic t had the id A.* and has B"):
        synced(tmp_path)
    assert len(identities(tmp_path)) == 2


def lose(folder: Path, catalog: bool) -> None:
    """Let the table lose its offsets."""
    if not catalog:
        (folder / "rows" / "_kts" / "ledger.json").unlink()
        return
    delete_and_expire(folder, None)
    with iceberg_table(folder / "c.sqlite").transaction() as change:
        change.remove_properties("kts.offsets", "kts.topic.ids", "kts.snapshot")


@pytest.mark.slow
@pytest.mark.parametrize("catalog", [True, False], ids=["iceberg", "folder"])
def test_a_table_that_lost_its_offsets_goes_on_where_it_is_told_to(tmp_path: Path, catalog: bool) -> None:
    logs, table = tmp_path / "logs", "lake.db.rows" if catalog else str(tmp_path / "rows")
    more: dict[str, Any] = {"catalog": tmp_path / "c.sqlite"} if catalog else {}

    def run(**options: Any) -> tuple[int, int]:
        done = sync(logs, table, **more, **options).tables[0]
        return done.records, done.commits

    for number in range(2):
        with kts.Log(logs / f"t-{number}", CONFIG) as log:
            append(log, 5)
    assert run(from_offsets={"t": {0: 1, 1: -2}}) == (9, 1), "a new table may begin anywhere"
    with pytest.raises(
        ValueError, match=r"from_offsets: the table knows its offsets .*\"0\": 5.*: leave from_offsets out"
    ):
        run(from_offsets="earliest")
    lose(tmp_path, catalog)
    with pytest.raises(LogStorageError, match="from_offsets"):
        run()
    for wrong, said in (
        ({"t": {0: 5}}, "found none for t-1"),
        ({"t": {0: 5, 1: -3}}, "expected an offset of t-1, found -3"),
        ({"t": {0: 5, 1: 6}}, "t-1 ends at offset 5, found 6"),
        ({"t": {0: 5, 1: 5}, "other": {0: -1}}, "other-0 is not read, so that it needs an offset as a number"),
    ):
        with pytest.raises(ValueError, match=f"from_offsets: .*{said}"):
            run(from_offsets=wrong)
    with pytest.raises(TypeError, match="from_offsets: expected earliest, latest or"):
        run(from_offsets="never")
    assert run(from_offsets={"t": {0: 5, 1: 3}, "other": {0: 7}}) == (2, 1)
    assert run() == (0, 0)
    for word, added in (("latest", 0), ("earliest", 10)):
        lose(tmp_path, catalog)
        assert run(from_offsets=word) == (added, 1), "it is kept, though nothing is new"
        assert run() == (0, 0)


def test_a_name_with_a_dot_and_no_catalog_is_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kts.Log(tmp_path / "logs" / "t-0", CONFIG) as log:
        append(log, 1)
    monkeypatch.chdir(tmp_path)
    for name in ("lake.db.rows", "db.rows", "rows.parquet"):
        with pytest.raises(ValueError, match=f"DIR (lake.)?{name} --catalog lake.sqlite. .*: kts sync DIR ./{name}"):
            sync("logs", name)
        assert not (tmp_path / name).exists()
    made = sync("logs", "./lake.db.rows").tables[0]
    assert made.records == 1 and made.created == str(tmp_path / "lake.db.rows")
    again = sync("logs", "lake.db.rows").tables[0]
    assert again.records == 0 and again.created is None
    assert sync("logs", Path("a.b")).tables[0].records == 1
    assert sync("logs", "rows").tables[0].created == str(tmp_path / "rows")
    iceberg = sync("logs", "lake.db.rows", catalog="c.sqlite").tables[0]
    assert iceberg.created == f"file://{tmp_path}/warehouse/db/rows"


@pytest.mark.parametrize("catalog", [True, False], ids=["iceberg", "folder"])
def test_a_random_clock_makes_a_bounded_number_of_files(tmp_path: Path, catalog: bool) -> None:
    with kts.Log(tmp_path / "logs" / "t-0") as log:
        days = [*range(300), *[7] * 5]
        log.append_rows({"value": [b"v"] * 305, "timestamp": [FIRST_DAY + day * DAY_MS for day in days]}, unit="ms")
    table = "lake.db.rows" if catalog else str(tmp_path / "rows")
    more: dict[str, Any] = {"catalog": tmp_path / "c.sqlite"} if catalog else {}
    with pytest.warns(KtsWarning, match="a commit has records of 300 days, .* of 295 days .* max_days .now 5."):
        done = sync(tmp_path / "logs", table, max_days=5, **more).tables[0]
    found = data_files(tmp_path / "c.sqlite") if catalog else folder_files(tmp_path / "rows")
    assert len(found) == 6 and done.records == 305 and done.without_day == 295
    if catalog:
        sql = "SELECT day, count(*) FROM rows WHERE timestampMs = " + str(FIRST_DAY + 7 * DAY_MS) + " GROUP BY day"
        assert query(found, sql) == [(datetime.date(2026, 1, 8), 6)]


@pytest.mark.slow
def test_a_warehouse_that_does_not_answer_ends_by_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the libraries try again, and for how long."""
    with kts.Log(tmp_path / "logs" / "t-0") as log:
        append(log, 1)
    access = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name, value in (access | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}"}).items():
            monkeypatch.setenv(name, value)
        said = r"lake.db.rows: .* no answer within 0.5 s \(storage option time_limit\); check its warehouse"
        with pytest.raises(LogStorageError, match=said):
            synced(tmp_path, warehouse="s3://lake/warehouse", storage_options={"time_limit": 0.5})
    with pytest.raises(ValueError, match="storage_options: time_limit: expected a number of seconds, found 'x'"):
        synced(tmp_path, storage_options={"time_limit": "x"})


def test_a_table_that_its_owner_partitions_by_hours_takes_all_times(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "logs" / "t-0") as log:
        append(log, 1)
        synced(tmp_path)
        with iceberg_table(tmp_path / "c.sqlite").update_spec() as change:
            change.add_field("timestamp", HourTransform()).add_field("key", BucketTransform(4)).remove_field("day")
        times = [FIRST_DAY, LAST_MS, LAST_MS + 1, MAX_MS, -1, 2**63 - 1]
        log.append_rows({"value": [b"v"] * 6, "timestamp": times}, unit="ms")
    assert (synced(tmp_path).tables[0].records, synced(tmp_path).tables[0].records) == (6, 0)
    found = rows(tmp_path, 'SELECT timestampMs, epoch_ms(timestamp) FROM rows WHERE "offset" > 0 ORDER BY "offset"')
    assert found == [(ms, ms if -1 <= ms <= LAST_MS else None) for ms in times]
