"""Columns and types of the Spark source, and timestamps that do not fit Spark's. Needs no Spark but its types."""

from __future__ import annotations

import pyarrow as pa
import pytest
from support.kafka.jvm import require_spark

from kts.codec.columns import ALL_COLUMNS, BATCH_COLUMNS, record_schema
from kts.coordinator_records.columns import DECODERS
from kts.dataset.options import stream_columns, stream_schema
from kts.spark.options import Options, parse_options
from kts.spark.schema import (
    BATCH_TYPES,
    RECORD_TYPES,
    arrow_schema,
    check_schema,
    ddl,
    default_schema,
    split,
    to_spark,
)

INT64_MAX = (1 << 63) - 1
MS = pa.timestamp("ms", tz="UTC")


def options(**given: str) -> Options:
    return parse_options({"path": "/logs", **given})


def test_the_default_schema_is_that_of_sparks_kafka_source() -> None:
    seven = (
        "`key` binary, `value` binary, `topic` string, `partition` int, `offset` bigint, `timestamp` timestamp_ltz, "
        "`timestampType` int"
    )
    assert default_schema(options()) == seven
    headers = ", `headers` array<struct<key:string,value:binary>>"
    assert default_schema(options(includeHeaders="true")) == seven + headers


def test_the_default_schema_of_a_decoder_is_what_scan_gives() -> None:
    for decoder in DECODERS:
        expected = stream_schema(stream_columns(None, decoder))
        shown = default_schema(options(decoder=decoder))
        assert [name for name in expected.names if f"`{name}` " in shown] == expected.names
    assert "`committedOffset` bigint, `committedLeaderEpoch` int" in default_schema(options(decoder="offsets"))
    partitions = "`transactionPartitions` array<struct<topic:string,partitions:array<int>>>"
    assert partitions in default_schema(options(decoder="transactions"))
    assert "`keyVersion` smallint, `valueVersion` smallint, `tombstone` boolean" in shown


def test_every_column_has_a_spark_type() -> None:
    assert set(RECORD_TYPES) == {*ALL_COLUMNS, "topic", "partition"}
    assert set(BATCH_TYPES) == {*BATCH_COLUMNS, "topic", "partition", "segment"}


def test_a_schema_is_a_projection_and_mistakes_name_the_column() -> None:
    require_spark()
    from pyspark.sql.types import BinaryType, LongType, StringType, StructType

    asked = StructType().add("value", BinaryType()).add("position", LongType())
    assert check_schema(asked, options()) == ("value", "position")
    mistakes = [
        (StructType().add("ofset", LongType()), "column ofset does not exist.* did you mean offset"),
        (StructType().add("offset", StringType()), "column offset has type bigint, found string"),
        (StructType().add("offset", LongType()).add("offset", LongType()), "column offset is named twice"),
        (StructType().add("key", BinaryType(), nullable=False), "column key can be null"),
        (StructType(), "names no column"),
    ]
    for schema, message in mistakes:
        with pytest.raises(ValueError, match=message):
            check_schema(schema, options())
    with pytest.raises(ValueError, match="column value does not exist with granularity=batch"):
        check_schema(asked, options(granularity="batch"))
    maybe_null = StructType().add("timestamp", "timestamp", nullable=False)
    assert check_schema(maybe_null, options()) == ("timestamp",)
    with pytest.raises(ValueError, match="column timestamp can be null"):
        check_schema(maybe_null, options(timestampOverflow="null"))


def test_batches_get_exactly_the_arrow_schema_that_spark_demands() -> None:
    require_spark()
    from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StructType, TimestampType

    schema = StructType().add("timestamp", TimestampType()).add("offset", LongType(), nullable=False)
    schema = schema.add("value", BinaryType()).add("control", BooleanType()).add("partition", IntegerType())
    target = arrow_schema(schema)
    assert target.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert not target.field("offset").nullable
    source = record_schema(("offset", "timestamp", "value", "control", "partition"), False)
    rows = [{"offset": 7, "timestamp": -1, "value": b"v", "control": False, "partition": 3}]
    converted = to_spark(pa.RecordBatch.from_pylist(rows, schema=source), target, "error")
    assert converted.schema.equals(target)
    assert converted.column("timestamp").cast(pa.int64()).to_pylist() == [-1000]


def test_ddl_quotes_names() -> None:
    assert ddl(("offset", "codec"), RECORD_TYPES) == "`offset` bigint, `codec` tinyint"
    assert ddl(("a",), {"a": "array<struct<timestamp:timestamp>>"}) == "`a` array<struct<timestamp:timestamp_ltz>>"


def test_large_batches_are_cut_by_rows_and_bytes() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(range(200_000), pa.int64())], names=["offset"])
    parts = split(batch, 4 << 20)
    assert max(part.num_rows for part in parts) <= 1 << 16
    assert pa.Table.from_batches(parts).column(0).to_pylist() == list(range(200_000))
    wide = pa.RecordBatch.from_arrays([pa.array([b"x" * 1000] * 1000)], names=["value"])
    assert len(split(wide, 4 << 20)) == 1
    assert max(part.nbytes for part in split(wide, 64 << 10)) < 200_000
    assert [part.num_rows for part in split(wide, 1)] == [1] * 1000
