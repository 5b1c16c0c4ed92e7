"""Record sets in a binary column, decoded by the functions of ``kts.spark`` in real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.golden import golden, rows

from kts.spark import decode_in_arrow, decode_udf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADERS = golden("3.9.2", "headers")
LZ4 = golden("3.9.2", "ct-lz4")
EXTREME = golden("3.9.2", "extreme-none")


def require_arrow_udf() -> None:
    from pyspark.sql import functions

    if not hasattr(functions, "arrow_udf"):
        pytest.skip("needs pyspark 4.1 or newer, for its arrow_udf; get it by: pip install -U 'pyspark[sql]'")


@pytest.fixture
def payloads(spark: SparkSession) -> DataFrame:
    """A table of record sets: a null, an empty one, a whole segment, and one with a cut tail."""
    whole = HEADERS.logs("headers-0")[0].read_bytes()
    return spark.createDataFrame([(0, None), (1, b""), (2, whole), (3, whole[:-5])], "id int, payload binary")


def as_ms(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("timestamp")
    ms = [value // 1000 for value in table.column("timestamp").cast(pa.int64()).to_pylist()]
    return table.set_column(at, "timestamp", pa.array(ms, pa.int64()))


def test_map_in_arrow_gives_flat_rows_and_keeps_chosen_columns(payloads: DataFrame) -> None:
    flat = decode_in_arrow(payloads, "payload", keep=["id"]).toArrow()
    assert flat.schema.names == ["id", "offset", "timestamp", "timestampType", "key", "value", "headers"]
    expected = HEADERS.expected("headers-0")
    first = flat.filter(pa.compute.equal(flat.column("id"), 2))
    assert rows(as_ms(first)) == expected
    assert set(flat.column("id").to_pylist()) == {2, 3}
    cut = rows(as_ms(flat.filter(pa.compute.equal(flat.column("id"), 3))))
    assert cut == expected[: len(cut)]
    assert len(cut) < len(expected)


def test_whole_segment_files_of_binary_file_become_rows(spark: SparkSession) -> None:
    files = spark.read.format("binaryFile").load([str(path) for path in LZ4.logs("ct-lz4-0")])
    flat = decode_in_arrow(files, "content", keep=["path"], columns=["offset", "codec"]).orderBy("offset").toArrow()
    assert flat.column("offset").to_pylist() == [row.offset for row in LZ4.expected("ct-lz4-0")]
    assert all(path.endswith(".log") for path in flat.column("path").to_pylist())


def test_the_function_gives_an_array_of_structs(payloads: DataFrame) -> None:
    require_arrow_udf()
    decoded = payloads.select("id", decode_udf()("payload").alias("records"))
    assert [(row.id, None if row.records is None else len(row.records)) for row in decoded.collect()][:2] == [
        (0, None),
        (1, 0),
    ]
    flat = decoded.where("id = 2").selectExpr("explode(records) AS r").select("r.*").toArrow()
    assert rows(as_ms(flat)) == HEADERS.expected("headers-0")


def test_damage_names_the_row(spark: SparkSession) -> None:
    whole = bytearray(HEADERS.logs("headers-0")[0].read_bytes())
    whole[70] ^= 1
    table = spark.createDataFrame([(b"",), (bytes(whole),)], "payload binary").coalesce(1)
    with pytest.raises(Exception, match=r"row 1 \(counted from 0\) of an Arrow batch of 2 rows"):
        decode_in_arrow(table, "payload").count()
    assert decode_in_arrow(table, "payload", columns=["offset"], verify_crc=False).count() > 0
    require_arrow_udf()
    with pytest.raises(Exception, match=r"CorruptRecordError: row 1 \(counted from 0\)"):
        table.select(decode_udf(["offset"])("payload")).collect()


def test_timestamps_beyond_sparks_follow_the_policy(spark: SparkSession) -> None:
    files = spark.read.format("binaryFile").load([str(path) for path in EXTREME.logs("extreme-none-0")])
    expected = EXTREME.expected("extreme-none-0")
    for policy, beyond in (("null", None), ("clamp", 2**63 - 1)):
        decoded = decode_in_arrow(files, "content", columns=["offset", "timestamp"], timestamp_overflow=policy)
        found = {row.offset: row.t for row in decoded.selectExpr("offset", "unix_micros(timestamp) AS t").collect()}
        assert found == {
            row.offset: row.timestamp * 1000 if row.timestamp * 1000 < 2**63 else beyond for row in expected
        }
    with pytest.raises(Exception, match="timestamp_overflow"):
        decode_in_arrow(files, "content").count()


def test_mistakes_are_refused_before_anything_runs(payloads: DataFrame) -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"column": "paylod"}, "column paylod is not in the table; it has id, payload"),
        ({"column": "id"}, "column id must be binary, found int"),
        ({"column": "payload", "columns": ["ofset"]}, "ofset"),
        ({"column": "payload", "keep": ["id", "id"]}, "column id would be there twice"),
        ({"column": "payload", "timestamp_overflow": "wrap"}, "timestamp_overflow: expected one of error, null, clamp"),
    ]
    for arguments, message in mistakes:
        with pytest.raises(ValueError, match=message):
            decode_in_arrow(payloads, **arguments)
