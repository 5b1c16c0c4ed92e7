"""``kts.spark.sync`` and ``kts sync`` leave the same tables, and each goes on where the other one ended."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import fastavro
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.types import StringType
from support.golden import scaled
from support.kafka.jvm import require_spark
from support.spark.applications import SETTINGS, Application
from support.spark.iceberg import iceberg_environ, iceberg_settings
from support.tables import data_files, folder_files, iceberg_table, query
from support.tiered import session

import kts
import kts.spark
from kts.codec.micros import MAX_MS
from kts.errors import InvalidRequestError, KtsError
from kts.spark import planning
from kts.tables import sync
from kts.tables.state import OFFSETS, SNAPSHOT, TOPIC_IDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
TABLE = "lake.db.my-rows"
AVRO_SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "m", "type": {"type": "map", "values": "int"}},
        {"name": "l", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 4}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "r", "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": ["null", "double"]}]}},
    ],
}
AVRO_ROW = {
    "m": {"k": 1},
    "l": ["a", None],
    "d": Decimal("1.25"),
    "f": b"abcd",
    "day": datetime.date(2026, 1, 1),
    "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "local": datetime.datetime(2026, 1, 1),
    "r": {"x": 1.5},
}
NOW = 1_767_225_600_000  # 2026-01-01
DAY_MS = 86_400_000
TOPIC_ID = "A" * 21 + "E"
Places = list[tuple[int, int]]  # partition and offset


def grow(logs: Path, sound: Places, refused: Places) -> None:
    """Add seven records to each of two partitions: some do not decode, one of them has no day and no timestamp."""
    for number in range(2):
        with kts.Log(logs / f"t-{number}", topic_id=TOPIC_ID) as log:
            end = log.log_end_offset
            values = [b'{"a":%d}' % offset if offset % 3 else b"{" for offset in range(end, end + 7)]
            log.append_rows({"value": values, "timestamp": [NOW, NOW + DAY_MS, MAX_MS + 1, *[NOW] * 4]}, unit="ms")
            log.checkpoint()
            for offset in range(end, end + 7):
                (sound if offset % 3 else refused).append((number, offset))


def test_each_engine_goes_on_in_the_parquet_folder_of_the_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seconds of Spark: that both leave the same folder can only be seen from both.
    (tmp_path / "schema.json").write_text(SCHEMA)
    decoded = {"value_format": "json", "value_schema": str(tmp_path / "schema.json")}
    monkeypatch.chdir(tmp_path)  # Spark's workers have another working directory
    monkeypatch.setattr(planning, "TASK_BYTES", 200)  # several tasks
    engines: list[Callable[..., Any]] = [partial(kts.spark.sync, spark), sync]
    sound, refused = Places(), Places()
    for turn in range(3):
        before = len(sound), len(refused)
        grow(tmp_path / "logs", sound, refused)
        for first in range(2):
            done = engines[(first + turn) % 2]("logs", f"./rows{first}", **decoded)
            assert [one.table for one in done.tables] == [f"./rows{first}", f"./rows{first}_rejected"]
            assert [one.records for one in done.tables] == [len(sound) - before[0], len(refused) - before[1]]
            assert [one.commits for one in done.tables] == [1, 1]
            without = [(one.without_day, one.without_timestamp) for one in done.tables]
            assert without == ([(2, 2), (0, 0)] if turn != 1 else [(0, 0), (2, 2)])
    for engine in engines:
        assert [(one.records, one.commits) for one in engine("logs", "./rows0", **decoded).tables] == [(0, 0)] * 2
    with pytest.raises(InvalidRequestError, match="expected the column value of type binary, found .* struct<a: int"):
        kts.spark.sync(spark, "logs", "./rows0")

    sync("logs", "./alone", **decoded)  # type: ignore[arg-type]
    columns = ["partition", "offset", "timestampMs", "timestampType", "value", "day"]
    for suffix, expected in (("", sound), ("_rejected", refused)):
        folders = [tmp_path / f"{name}{suffix}" for name in ("alone", "rows0", "rows1")]
        rows = [
            [tuple(row) for row in spark.read.parquet(str(one)).select(columns).sort(columns).collect()]
            for one in folders
        ]
        assert rows[0] == rows[1] == rows[2] and [row[:2] for row in rows[0]] == sorted(expected)
        for one in folders:
            asked = f"""SELECT partition, "offset", day FROM '{one}/*/*.parquet' ORDER BY ALL"""
            assert duckdb.sql(asked).fetchall() == [(*row[:2], row[-1]) for row in rows[0]]
            assert sorted(path.name for path in (one / "_kts").iterdir()) == ["ledger.json", "lock"]
        assert len({str(pq.read_schema(path)) for one in folders for path in folder_files(one)}) == 1
        assert len(folder_files(folders[1])) > len(folder_files(folders[0])) >= 3
        ledgers = [json.loads((one / "_kts" / "ledger.json").read_text()) for one in folders]
        assert ledgers[0]["offsets"] == ledgers[1]["offsets"] == ledgers[2]["offsets"]
        assert [ledger["topicIds"] for ledger in ledgers] == [{"t": TOPIC_ID}] * 3


def test_a_run_into_a_folder_that_fails_adds_nothing_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with kts.Log(tmp_path / "logs" / "t-0") as log:
        for value in (b"one", b"two", b"three"):
            log.append_rows({"value": [value], "timestamp": [NOW]})
    (path,) = (tmp_path / "logs" / "t-0").glob("*.log")
    path.write_bytes(path.read_bytes().replace(b"two", b"owt"))
    logs, table = str(tmp_path / "logs"), tmp_path / "rows"
    with pytest.raises(KtsError, match="could not do the work: .*CorruptRecordError: .*CRC"):
        kts.spark.sync(spark, logs, table)
    with pytest.raises(ValueError, match=r"expected a catalog of this session, found none: set spark.sql.catalog.none"):
        kts.spark.sync(spark, logs, "none.db.rows")
    assert folder_files(table) == []
    assert kts.spark.sync(spark, logs, table, on_error="skip").tables[0].records == 2
    assert query(folder_files(table), 'SELECT "offset", value FROM rows ORDER BY ALL') == [(0, b"one"), (2, b"three")]
    assert sorted(path.name for path in (table / "_kts").iterdir()) == ["ledger.json", "lock"]


def test_a_delta_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Spark's engine writes no Delta tables"):
        kts.spark.sync(spark, tmp_path, f"delta:{tmp_path / 'rows'}")


def test_a_task_has_files_of_no_more_days_than_asked(spark: SparkSession, tmp_path: Path) -> None:
    with kts.Log(tmp_path / "logs" / "t-0") as log:
        days = [*range(50), *[7] * 5]
        log.append_rows({"value": [b"v"] * 55, "timestamp": [NOW + day * DAY_MS for day in days]}, unit="ms")
    done = kts.spark.sync(spark, str(tmp_path / "logs"), tmp_path / "rows", max_days=5).tables[0]
    found = folder_files(tmp_path / "rows")
    assert len(found) == 6 and (done.records, done.without_day) == (55, 45)
    assert done.created == str(tmp_path / "rows")


def test_tiered_storage_becomes_a_folder_with_keys_that_no_executor_has_as_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = session("aiven-zstd-encrypted")
    monkeypatch.chdir(Path(one.remote).parent)  # not that of Spark's workers
    keys = {name: Path(path).read_bytes() for name, path in one.keys.items()}
    tier = {"remote": Path(one.remote).name, "remote_options": {"private_keys": keys}, "topics": "restart"}
    done = kts.spark.sync(spark, None, tmp_path / "rows", **tier)  # type: ignore[arg-type]
    assert done.tables[0].records > 300
    sync(one.data, tmp_path / "rows", to_end=True, **tier)  # type: ignore[arg-type]
    found = query(folder_files(tmp_path / "rows"), 'SELECT "offset" FROM rows ORDER BY ALL')
    assert [offset for (offset,) in found] == [row.offset for row in one.expected("restart-0")]


def check_types_of_avro(folder: Path, spark_sync: Callable[..., Any]) -> None:
    """Columns of each type that both engines have are the same to both, whichever made the table."""
    data = io.BytesIO()
    fastavro.schemaless_writer(data, AVRO_SCHEMA, AVRO_ROW)
    (folder / "schema.avsc").write_text(json.dumps(AVRO_SCHEMA))
    asked: dict[str, Any] = {"value_format": "avro", "value_schema": str(folder / "schema.avsc"), "topics": ["avro"]}
    engines: list[Callable[[str], list[int]]] = [
        lambda table: [one["added"][0] for one in spark_sync(table=table, **asked).values()],
        lambda table: [
            one.records for one in sync(folder / "logs", table, catalog=folder / "catalog.sqlite", **asked).tables
        ],
    ]
    with kts.Log(folder / "logs" / "avro-0") as log:
        for turn in range(3):
            log.append_rows({"value": [data.getvalue(), b"x"]})
            for first, table in enumerate(("lake.db.one", "lake.db.other")):
                assert engines[(first + turn) % 2](table) == [1, 1]
    for table in ("lake.db.one", "lake.db.other"):
        found = query(data_files(folder / "catalog.sqlite", table), "SELECT value FROM rows")
        assert found == [(AVRO_ROW,)] * 3


def check_changes_of_the_owner(folder: Path, spark_sync: Callable[..., Any]) -> None:
    """Rows that were deleted stay deleted, a rollback is undone, columns stay null, and lost offsets are refused."""
    catalog, table = folder / "catalog.sqlite", "lake.db.changed"

    def change(how: Callable[[Table], None]) -> None:
        """Change the table with pyiceberg, and expire all snapshots but the current one."""
        there = iceberg_table(catalog, table)
        how(there)
        kept = there.current_snapshot()
        others = [one.snapshot_id for one in there.snapshots() if kept and one.snapshot_id != kept.snapshot_id]
        there.maintenance.expire_snapshots().by_ids(others).commit()

    def count() -> int:
        return len(iceberg_table(catalog, table).scan().to_arrow())

    def compact(there: Table) -> None:
        there.overwrite(there.scan().to_arrow())

    def delete(there: Table) -> None:
        there.delete("partition == 0")
        compact(there)

    def lose(there: Table) -> None:
        compact(there)
        with there.transaction() as one:
            one.remove_properties(OFFSETS, TOPIC_IDS, SNAPSHOT)

    first = spark_sync(table=table)[table]["added"][0]
    told = iceberg_table(catalog, table)
    assert told.properties[SNAPSHOT] == str(told.metadata.current_snapshot_id)
    change(delete)
    kept = count()
    assert 0 < kept < first and spark_sync(table=table)[table]["added"] == [0, 0, 0, 0] and count() == kept
    with iceberg_table(catalog, table).update_schema() as schema:
        schema.add_column("note", StringType()).move_first("note")
    before = iceberg_table(catalog, table).metadata.current_snapshot_id
    assert before is not None
    grow(folder / "logs", Places(), Places())
    added = spark_sync(table=table)[table]["added"][0]
    assert added > 0 and count() == kept + added
    with iceberg_table(catalog, table).manage_snapshots() as snapshots:
        snapshots.rollback_to_snapshot(before)
    lost = spark_sync(table=table)  # the snapshot that had its offsets expired, and the properties are of the other
    assert lost["raised"] == "LostOffsetsError" and f"{table}: its property kts.offsets belongs to" in lost["said"]
    ends = {"t": {str(number): kts.open(folder / "logs" / f"t-{number}").log_end_offset - 7 for number in range(2)}}
    assert spark_sync(table=table, from_offsets=ends)[table]["added"][:2] == [added, 1] and count() == kept + added
    change(lose)
    lost = spark_sync(table=table)
    assert lost["raised"] == "LostOffsetsError" and "from_offsets" in lost["said"]
    assert spark_sync(table=table, from_offsets="latest")[table]["added"] == [0, 1, 0, 0]
    assert spark_sync(table=table)[table]["added"] == [0, 0, 0, 0] and count() == kept + added
    with iceberg_table(catalog, table).transaction() as one:
        one.set_properties({OFFSETS: "{"})
    assert f"{table}: the properties kts.offsets and" in spark_sync(table=table)["said"]


def check_the_latest_state(folder: Path, spark: Application) -> None:
    """Spark sees the latest state, of which rows were deleted by their position."""
    logs = folder / "keyed"
    asked: dict[str, Any] = {"catalog": folder / "catalog.sqlite", "mode": "latest", "buckets": 2, "to_end": True}
    for turn in range(3):
        with kts.Log(logs / "k-0") as log:
            keys = [b"%d" % key for key in (range(30_000) if turn == 0 else range(turn, 100, 7))]
            log.append_rows({"key": keys, "value": [None if turn == 2 else b"v"] * len(keys)})
        sync(logs, "lake.db.state", **asked)
        summary = iceberg_table(asked["catalog"], "lake.db.state").current_snapshot().summary  # type: ignore[union-attr]
        assert int(str(summary.additional_properties["total-position-deletes"])) == (0, 15, 29)[turn]  # type: ignore[union-attr]
        spark.tell(rows_of="lake.db.state")
        found = kts.latest(logs, columns=["partition", "offset"]).read_all().to_pylist()
        assert spark.answer()["rows"] == [[row["partition"], row["offset"]] for row in found]


# Iceberg's Spark is a second environment, which `make test` does not fetch.
@pytest.mark.parametrize("first", ["spark"][: scaled(0, 1)])
def test_spark_and_pyiceberg_go_on_in_one_table(tmp_path: Path, first: str) -> None:
    # Half a minute of Spark: that both leave the same table can only be seen from both.
    require_spark()
    schema = tmp_path / "schema.json"
    schema.write_text(SCHEMA)
    catalog = tmp_path / "catalog.sqlite"
    decoded = {"value_format": "json", "value_schema": str(schema)}
    settings = SETTINGS | iceberg_settings(tmp_path) | {"spark.master": "local[2]"}
    script = Path(__file__).with_name("sync_job.py")
    spark = Application(script, tmp_path, iceberg_environ(), json.dumps(settings), asks=True)

    def spark_sync(table: str = TABLE, **asked: Any) -> Any:
        spark.tell(path=str(tmp_path / "logs"), table=table, show=True, **asked)
        return spark.answer()

    offsets, refused = Places(), Places()
    with spark.running():
        for turn in range(4):
            grow(tmp_path / "logs", offsets, refused)
            if (turn % 2 == 0) == (first == "spark"):
                found = spark_sync(**decoded)
                assert set(found) == {TABLE, f"{TABLE}_rejected"}, found
                assert found[TABLE]["rows"] == sorted(map(list, offsets))
                assert found[f"{TABLE}_rejected"]["rows"] == sorted(map(list, refused))
                added = [found[name]["added"][0] for name in found]
            else:
                done = sync(tmp_path / "logs", TABLE, catalog=catalog, **decoded)  # type: ignore[arg-type]
                added = [table.records for table in done.tables]
            assert sum(added) == 14 and added[0] > added[1] > 0
        assert spark_sync(**decoded)[TABLE]["added"] == [0, 0, 0, 0]
        wrong = spark_sync()
        assert wrong["raised"] == "InvalidRequestError" and "expected the column value of type binary" in wrong["said"]
        local = spark_sync(catalog=str(catalog))
        assert local["raised"] == "TypeError" and "unexpected keyword argument 'catalog'" in local["said"]
        check_types_of_avro(tmp_path, spark_sync)
        check_the_latest_state(tmp_path, spark)
        check_changes_of_the_owner(tmp_path, partial(spark_sync, topics=["t"], **decoded))
        spark.ended()

    rows = query(data_files(catalog, TABLE), 'SELECT partition, "offset", value.a, timestampMs FROM rows ORDER BY ALL')
    assert [row[:2] for row in rows] == sorted(offsets) and all(row[1] == row[2] for row in rows)
    counts = "count(*) FILTER (day IS NULL), count(*) FILTER (timestamp IS NULL), count(*) FILTER (timestampMs > 2e15)"
    (none, unheld, far) = query(data_files(catalog, TABLE), f"SELECT {counts} FROM rows")[0]
    assert none == unheld == far > 0
    assert [ref for ref in iceberg_table(catalog, TABLE).refs() if ref != "main"] == []
    told = [snapshot.summary.additional_properties for snapshot in iceberg_table(catalog, TABLE).snapshots()]
    assert [json.loads(one[TOPIC_IDS]) for one in told if TOPIC_IDS in one] == [{"t": TOPIC_ID}] * 4
