"""``kts.spark.sync`` and ``kts sync`` leave the same Iceberg table, and each goes on where the other one ended."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from support.golden import scaled
from support.kafka.jvm import require_spark
from support.spark.applications import SETTINGS, Application
from support.spark.iceberg import iceberg_environ, iceberg_settings
from support.tables import data_files, iceberg_table, query

import kts
from kts.codec.micros import MAX_MS
from kts.tables import sync

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

    offsets: list[tuple[int, int]] = []
    refused: list[tuple[int, int]] = []
    with (
        spark.running(),
        kts.Log(tmp_path / "logs" / "t-0") as one,
        kts.Log(tmp_path / "logs" / "t-1") as other,
    ):
        for turn in range(4):
            for number, log in enumerate((one, other)):
                end = log.log_end_offset
                values = [b'{"a":%d}' % offset if offset % 3 else b"{" for offset in range(end, end + 7)]
                times = [NOW, NOW + 86_400_000, MAX_MS + 1, *[NOW] * 4]
                log.append_rows({"value": values, "timestamp": times}, unit="ms")
                log.checkpoint()
                for offset in range(end, end + 7):
                    (offsets if offset % 3 else refused).append((number, offset))
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
        spark.ended()

    rows = query(data_files(catalog, TABLE), 'SELECT partition, "offset", value.a, timestampMs FROM rows ORDER BY ALL')
    assert [row[:2] for row in rows] == sorted(offsets) and all(row[1] == row[2] for row in rows)
    counts = "count(*) FILTER (day IS NULL), count(*) FILTER (timestamp IS NULL), count(*) FILTER (timestampMs > 2e15)"
    (none, unheld, far) = query(data_files(catalog, TABLE), f"SELECT {counts} FROM rows")[0]
    assert none == unheld == far > 0
    assert [ref for ref in iceberg_table(catalog, TABLE).refs() if ref != "main"] == []
