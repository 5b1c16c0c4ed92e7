"""Record sets in a binary column, decoded by the functions of ``kts.spark`` in real Spark."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.golden import PATIENCE_S, golden, rows

import kts
from kts.spark import decode_in_arrow, decode_udf, from_event_time, to_event_time
from kts.spark.functions import _Decoder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADERS = golden("3.9.2", "headers")
LZ4 = golden("3.9.2", "ct-lz4")
EXTREME = golden("3.9.2", "extreme-none")


# Three batches of two records.
PARTS = [kts.encode({"offset": [2 * i, 2 * i + 1], "value": [b"%d" % i] * 2}, base_offset=2 * i) for i in range(3)]
SETS = b"".join(PARTS)
ENDS = [len(b"".join(PARTS[: i + 1])) for i in range(3)]


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
    flat = decode_in_arrow(payloads, "payload", keep=["id"], incomplete="drop").toArrow()
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
    decoded = payloads.select("id", decode_udf(incomplete="drop")("payload").alias("records"))
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


def test_an_incomplete_batch_is_an_error_unless_it_is_dropped(payloads: DataFrame) -> None:
    said = r"row . \(counted from 0\).* expected whole record batches, found \d+ bytes that are none"
    with pytest.raises(Exception, match=said):
        decode_in_arrow(payloads, "payload", columns=["offset"]).count()
    require_arrow_udf()
    told = decode_udf(["offset"], on_error="skip")("payload").alias("told")
    found = payloads.select("id", told).selectExpr("id", "size(told.records) n", "told.error").collect()
    count = len(HEADERS.expected("headers-0"))
    assert [(row.id, row.error is None) for row in found] == [(0, True), (1, True), (2, True), (3, False)]
    assert [row.n for row in found][1:3] == [0, count] and found[3].n < count
    assert "expected whole record batches" in found[3].error and "bytes are left out" in found[3].error


def test_a_damaged_batch_is_a_row_that_says_so_and_ends_no_query(spark: SparkSession) -> None:
    data = bytearray(SETS)
    data[ENDS[1] - 1] ^= 1
    table = spark.createDataFrame([(0, bytes(data)), (1, SETS), (2, b"no records")], "id int, payload binary")
    flat = decode_in_arrow(table.coalesce(1), "payload", keep=["id"], columns=["offset"], on_error="skip").collect()
    assert [(row.id, row.offset) for row in flat if row.error is None] == [
        *((0, offset) for offset in (0, 1, 4, 5)),
        *((1, offset) for offset in range(6)),
    ]
    lost = [row for row in flat if row.error is not None]
    assert [(row.id, row.offset) for row in lost] == [(0, None), (2, None)]
    assert f"{ENDS[1] - ENDS[0]} bytes are left out, at position {ENDS[0]}" in lost[0].error
    require_arrow_udf()
    told = decode_udf(["offset"], on_error="skip")("payload").alias("t")
    found = table.select(told).selectExpr("t.records.offset AS offsets", "t.error").collect()
    assert [row.offsets for row in found] == [[0, 1, 4, 5], [*range(6)], []]
    assert [row.error is None for row in found] == [False, True, False]


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
        ({"column": "payload", "incomplete": "skip"}, "incomplete: expected one of error, drop"),
        ({"column": "payload", "on_error": "drop"}, "on_error: expected one of raise, skip"),
        ({"column": "payload", "timestamp_overflow": "wrap"}, "timestamp_overflow: expected one of error, null, clamp"),
    ]
    for arguments, message in mistakes:
        with pytest.raises(ValueError, match=message):
            decode_in_arrow(payloads, **arguments)


# --- event times before 1970 ----------------------------------------------------------------------

HOUR_MS = 3_600_000
OLD_MS = -386_380_800_000  # 1957-10-04


def test_a_watermark_drops_what_is_before_1970_unless_the_event_time_is_shifted(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two streaming queries, because Spark's rule holds in no other place: every row is late, or none is."""
    from pyspark.sql.functions import col, unix_millis, window

    with kts.Log(tmp_path / "logs" / "t-0", {"segment.ms": 2**62}) as log:
        times = [OLD_MS + i * HOUR_MS // 4 for i in range(40)]
        log.append_rows({"timestamp": [*times, -1], "value": [b"v"] * 41})
    logs = spark.readStream.format("kts").option("startingOffsets", "earliest").load(str(tmp_path / "logs"))

    def counted(name: str, frame: DataFrame) -> list[tuple[int, int]]:
        hours = frame.withWatermark("eventTime", "1 day").groupBy(window("eventTime", "1 hour").alias("hour")).count()
        write = hours.writeStream.format("memory").queryName(name).outputMode("update").trigger(availableNow=True)
        assert write.start().awaitTermination(int(PATIENCE_S))
        start = from_event_time("hour.start") if name == "shifted" else col("hour.start")
        found = spark.table(name).select(unix_millis(start).alias("ms"), "count").collect()
        return sorted((row.ms, row["count"]) for row in found)

    assert counted("plain", logs.withColumnRenamed("timestamp", "eventTime")) == []
    shifted = counted("shifted", logs.withColumn("eventTime", to_event_time("timestamp")))
    assert shifted == [*((OLD_MS + i * HOUR_MS, 4) for i in range(10)), (-HOUR_MS, 1)]


def test_an_event_time_comes_back_and_none_is_too_large(spark: SparkSession) -> None:
    from pyspark.sql.functions import col, unix_micros

    times = [OLD_MS * 1000, -1, 0, 1_700_000_000_123_456, -62_135_596_800_000_000, None]
    table = spark.createDataFrame([(one,) for one in times], "us bigint")
    table = table.selectExpr("us", "timestamp_micros(us) t")
    both = table.select("us", unix_micros(to_event_time("t")), unix_micros(from_event_time(to_event_time(col("t")))))
    for us, shifted, back in both.collect():
        assert back == us and (us is None) == (shifted is None)
        assert shifted is None or (shifted > 0 and (shifted - us) % (7 * 24 * HOUR_MS * 1000) == 0)
    huge = spark.sql("select timestamp_micros(9223372036854775807) t").select(unix_micros(to_event_time("t")))
    assert huge.collect()[0][0] == 2**63 - 1


# --- without a session: the same on many inputs ---------------------------------------------------


def decoded(data: bytes, **how: str) -> tuple[list[int], list[str]]:
    """Offsets, and what is told."""
    asked = {"incomplete": "error", "on_error": "raise"} | how
    decoder = _Decoder(["offset"], True, "error", 2**27, asked["incomplete"], asked["on_error"])
    batch = pa.record_batch([pa.array([data], pa.binary())], names=["set"])
    offsets, told = list[int](), list[str]()
    for piece in decoder.flat(iter([batch]), []):
        offsets += [one for one in piece["offset"].to_pylist() if one is not None]
        told += [one for one in piece["error"].to_pylist() if one is not None] if decoder.skips else []
    return offsets, told


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_cut_anywhere_is_told_or_dropped(on_error: str) -> None:
    for length in range(len(SETS) + 1):
        whole = [offset for offset in range(6) if ENDS[offset // 2] <= length]
        assert decoded(SETS[:length], incomplete="drop", on_error=on_error) == (whole, [])
        if length in (0, *ENDS):
            assert decoded(SETS[:length], on_error=on_error) == (whole, [])
        elif on_error == "skip":
            offsets, [told] = decoded(SETS[:length], on_error="skip")
            assert offsets == whole and f"{length - [0, *ENDS][len(whole) // 2]} bytes are left out" in told
        else:
            with pytest.raises(kts.CorruptRecordError, match="row 0 .* expected whole record batches"):
                decoded(SETS[:length])


@pytest.mark.slow
def test_what_is_skipped_is_told_and_is_what_a_scan_skips(tmp_path: Path, rng: random.Random) -> None:
    """Each byte damaged once, the sizes that reach past the end too: no batch is lost without a word."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / f"{0:020}.log"
    for position in range(len(SETS)):
        number, inside = divmod(position, ENDS[0])
        if inside < 8 or 12 <= inside < 16:  # no CRC covers an offset or a leader epoch
            continue
        data = bytearray(SETS)
        data[position] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kts.KtsWarning)
            scanned = kts.scan(directory, columns=["offset"], on_error="skip").read_all()["offset"].to_pylist()
        expected = [offset for offset in range(6) if offset // 2 != number]
        for incomplete in ("error", "drop"):
            offsets, told = decoded(bytes(data), on_error="skip", incomplete=incomplete)
            assert offsets == scanned == expected, position
            is_cut_by_its_size = inside < 12 and number == 2
            assert told or (incomplete == "drop" and is_cut_by_its_size), position
