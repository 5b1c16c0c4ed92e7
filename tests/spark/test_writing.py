"""The writers behind ``df.write.format("kts")`` and ``writeStream``: options, rows, failures, restarts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from support.kafka.jvm import spark_environ

import kts
from kts.log import staging
from kts.offline.verify import verify
from kts.segment.commits import read_commits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kts.spark.writing import WriteOptions

T = 1_700_000_000_000
SMALL = {"segment.bytes": "5000"}


@pytest.fixture
def parse() -> Callable[..., WriteOptions]:
    """The options of a write into /data, or the error."""
    spark_environ()
    from kts.spark.writing import parse_write_options

    return lambda **given: parse_write_options({"path": "/data", **given})


def test_options_are_those_of_sparks_kafka_sink_and_of_kafkas_topics(parse: Callable[..., WriteOptions]) -> None:
    assert parse(TOPIC="t").topic == "t"
    options = parse(
        **{"compression.type": "zstd", "batch.size": "64k", "num.partitions": "4", "sortby": "timestamp"},
        **{"timestamptype": "LogAppendTime", "segment.bytes": "1000000", "message.format.version": "3.0"},
    )
    assert (options.compression, options.batch_bytes, options.partitions, options.sort) == ("zstd", 65536, 4, True)
    config = options.config
    assert (config.message_timestamp_type, config.segment_bytes, config.magic) == ("LogAppendTime", 1_000_000, 2)
    assert parse(checkpointlocation="/x", queryname="q").config == kts.LogConfig()
    assert parse(release="4.3").config == kts.LogConfig(release="4.3")
    assert parse(**{"compression.type": "uncompressed"}).compression == "none"
    assert (parse().batch_bytes, parse().compression, parse().partitions) == (16384, "none", 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"path": " "}, "option path is missing"),
        ({"path": "ftp://host/x"}, "mount or copy the ftp data first"),
        ({"path": "s3://bucket/x"}, "expected a directory, found .s3://bucket/x"),
        ({"kafka.acks": "all"}, "option kafka.acks is for clients of a broker"),
        ({"startingoffsets": "earliest"}, "option startingoffsets is for reading"),
        ({"segment.byts": "5"}, "segment.byts.*segment.bytes"),
        ({"segment.bytes": "x"}, "segment.bytes: expected"),
        ({"segment.bytes": "1"}, "segment.bytes: expected .* found '1'$"),
        ({"compression.type": "brotli"}, "option compression.type: expected none or gzip .*found 'brotli'"),
        ({"sortby": "key"}, "option sortBy: expected timestamp, found 'key'"),
        ({"timestamptype": "x"}, "option timestampType: expected CreateTime or LogAppendTime"),
        (
            {"timestamptype": "CreateTime", "message.timestamp.type": "LogAppendTime"},
            "timestampType and message.timestamp.type contradict each other",
        ),
        ({"num.partitions": "0"}, "option num.partitions: expected a whole number above 0"),
        ({"num.partitions": "2147483648"}, "option num.partitions: expected .* up to 2147483647, found '2147483648'"),
        ({"release": "4"}, "option release: expected 0.10.2 or 3.9 or 4.3, found '4'"),
        ({"release": "4.3", "segment.bytes": "1000"}, "segment.bytes: expected"),
        ({"release": "4.3", "message.format.version": "3.0"}, "message.format.version"),
        ({"batch.size": "0"}, "option batch.size: expected a size in bytes"),
    ],
)
def test_a_wrong_option_is_refused(parse: Callable[..., WriteOptions], given: dict[str, str], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        parse(**given)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("value string", "the topic is missing: give option topic"),
        ("key binary, topic string", "column value is missing: the rows have key, topic"),
        ("value int, topic string", "column value: expected string or binary, found int; cast it"),
        ("value string, topic string, partition bigint", "column partition: expected int, found bigint"),
    ],
)
def test_rows_that_are_no_records_are_refused(
    spark: SparkSession, parse: Callable[..., WriteOptions], columns: str, expected: str
) -> None:
    from kts.spark.writing import check_written

    with pytest.raises(ValueError, match=expected):
        check_written(spark.createDataFrame([], columns).schema, parse())


def test_a_program_for_sparks_kafka_sink_writes_the_same_records(spark: SparkSession, tmp_path: Path) -> None:
    """It may set `includeHeaders`, which that sink takes, and has columns that are not written."""
    from kts.spark.writing import check_written, parse_write_options

    frame = spark.sql(
        "select 'k' key, 'v' value, array(struct('h' as key, cast('x' as binary) as value)) headers, 5 extra"
    )
    for number, headers in enumerate(("true", "False", None)):
        write = frame.write.format("kts").mode("append").option("topic", "t")
        write = write if headers is None else write.option("includeHeaders", headers)
        write.save(str(tmp_path / str(number)))
        [row] = kts.scan(tmp_path / str(number), columns=["key", "value", "headers"]).read_all().to_pylist()
        assert row == {"key": b"k", "value": b"v", "headers": [{"key": "h", "value": b"x"}]}
    options = parse_write_options({"path": str(tmp_path), "topic": "t"})
    with pytest.warns(
        kts.KtsWarning, match=r"not written.*: extra, valeu \(they have key, .*\); valeu: did you mean value"
    ):
        check_written(spark.sql("select 'v' value, 5 extra, 1 valeu").schema, options)
    with pytest.raises(ValueError, match="option includeHeaders: expected true or false, found 'yes'"):
        parse_write_options({"path": str(tmp_path), "topic": "t", "includeHeaders": "yes"})


@pytest.mark.parametrize("writer", ["KtsWriter", "KtsStreamWriter"])
def test_a_directory_that_is_held_is_refused_before_tasks_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    spark_environ()
    from pyspark.sql.types import StringType, StructType

    from kts.spark import writing

    monkeypatch.setattr(staging, "CHECK_PATIENCE_S", 0.1)
    given = {"path": str(tmp_path), "topic": "t"}, StructType().add("value", StringType()), False
    held = staging.LogDirectory(str(tmp_path))
    with pytest.raises(kts.LogLockedError):
        getattr(writing, writer)(*given)
    held.leave()
    assert aside(tmp_path) == []
    getattr(writing, writer)(*given)


def test_rows_of_spark_4_0_become_columns(spark: SparkSession) -> None:
    from pyspark.sql import Row

    from kts.spark.writing import _columns

    columns = "value binary, headers array<struct<key:string,value:binary>>, partition int"
    schema = spark.createDataFrame([], columns).schema
    rows = [Row(value=b"%d" % n, headers=[Row(key="h", value=b"x")] if n else None, partition=n) for n in range(3)]
    [batch] = _columns(iter(rows), schema)
    assert batch.column("value").to_pylist() == [b"0", b"1", b"2"]
    assert batch.column("headers").to_pylist() == [None, *[[{"key": "h", "value": b"x"}]] * 2]


def test_times_are_milliseconds_unless_timeunit_says_otherwise() -> None:
    spark_environ()
    from kts.spark.writing import _in_ms

    rows = pa.table({"timestamp": [1_788_256_800, None], "value": [b"", b""]})
    assert _in_ms(rows, "s").to_pydict() == {"timestamp": [1_788_256_800_000, None], "value": [b"", b""]}
    with pytest.raises(ValueError, match=r"1788256800 looks like seconds .* Say which with timeUnit=s or timeUnit=ms"):
        _in_ms(rows, None)


# --- with Spark -----------------------------------------------------------------------------------


def save(frame: DataFrame, path: Path, **options: str) -> None:
    frame.write.format("kts").options(**options).mode("append").save(str(path))


def values(path: Path) -> list[int]:
    with kts.open_log_dirs(path) as logs:
        return sorted(
            int(value)
            for log in logs.values()
            for value in log.scan(columns=["value"]).read_all().column(0).to_pylist()
        )


def aside(path: Path) -> list[str]:
    """What a write left that is no partition and no checkpoint."""
    return [name for name in os.listdir(path) if name.startswith(("kts-write", "kts-commit-0"))]


def test_a_frame_is_written_and_read_back_equal(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 5000, 1, 3).selectExpr(
        "if(id % 3 = 0, null, cast(cast(id as string) as binary)) key",
        "cast(concat('v', id) as binary) value",
        f"timestamp_millis({T} + id) timestamp",
        "if(id % 2 = 0, 'a', 'b') topic",
        "if(id % 2 = 0, cast(id % 4 as int), null) partition",
        "if(id % 5 = 0, array(struct('h' as key, cast('x' as binary) as value)), null) headers",
    )
    save(frame, tmp_path, **{"num.partitions": "2", "compression.type": "lz4", **SMALL})
    names = ["key", "value", "timestamp", "topic", "headers"]
    read = spark.read.format("kts").option("includeHeaders", "true").load(str(tmp_path))
    assert read.count() == 5000
    assert sorted(map(str, read.select(names).collect())) == sorted(map(str, frame.select(names).collect()))
    of_row = "if(topic = 'a', int(substr(string(value), 2)) % 4, partition)"
    placed = {tuple(row) for row in read.selectExpr("topic", "partition", of_row).distinct().collect()}
    assert placed == {("a", 0, 0), ("a", 2, 2), ("b", 0, 0), ("b", 1, 1)}
    assert [str(one) for one in verify(tmp_path, deep=True)] == []
    assert aside(tmp_path) == []
    save(read, tmp_path / "copy")  # columns of a read are taken or left out
    assert spark.read.format("kts").load(str(tmp_path / "copy")).count() == 5000


def test_a_write_whose_task_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 4000, 1, 2).selectExpr("if(id = 3999, raise_error('the task fails'), string(id)) value")
    with pytest.raises(Exception, match="the task fails"):
        save(frame, tmp_path, topic="t")
    assert aside(tmp_path) == []
    with pytest.raises(FileNotFoundError, match="no partition directories"):
        kts.open_log_dirs(tmp_path)


def test_rows_that_a_release_refuses_are_named_and_nothing_is_written(spark: SparkSession, tmp_path: Path) -> None:
    """Two jobs: the hour of Kafka 4.3 is the difference between them."""
    ahead = "cast(unix_millis(current_timestamp()) + if(id = 2, 7200000, 0) as bigint)"
    frame = spark.range(5).selectExpr("'v' as value", f"{ahead} as timestamp").coalesce(1)
    with pytest.raises(Exception, match=r"InvalidTimestampError: t-0: row 2: timestamp \d+ is out of range"):
        save(frame, tmp_path, topic="t", release="4.3")
    assert aside(tmp_path) == [] and not (tmp_path / "t-0").exists()
    save(frame, tmp_path, topic="t", release="3.9")
    assert kts.scan(tmp_path).read_all().num_rows == 5


def test_overwriting_and_unknown_options_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("string(id) value")
    with pytest.raises(Exception, match="found one that replaces what is there: kts appends"):
        frame.write.format("kts").option("topic", "t").mode("overwrite").save(str(tmp_path))
    with pytest.raises(Exception, match="segment.bytes"):
        save(frame, tmp_path, topic="t", **{"segment.byts": "3"})
    assert os.listdir(tmp_path) == []


def test_a_table_of_a_catalog_is_refused_with_what_to_use_instead(spark: SparkSession) -> None:
    frame = spark.range(3).selectExpr("string(id) value")
    with pytest.raises(Exception, match=r"option path is missing: .*\.save\(.*; saveAsTable, writeTo"):
        frame.write.format("kts").option("topic", "t").saveAsTable("rows")
    with pytest.raises(Exception, match="option owner comes from CREATE TABLE.*: use CREATE TEMPORARY VIEW"):
        spark.sql("CREATE TABLE rows USING kts")


def test_a_query_that_restarts_writes_each_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    """A batch that was committed runs again if the query died before Spark noted it: here its note is removed."""
    source, checkpoint, data = (str(tmp_path / name) for name in ("source", "checkpoint", "data"))

    def more(first: int) -> None:
        spark.range(first, first + 100, 1, 1).selectExpr("string(id) value").write.mode("append").text(source)

    def run() -> None:
        stream = spark.readStream.text(source).writeStream.format("kts").option("topic", "t")
        query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(data)
        query.awaitTermination()

    more(0)
    run()
    more(100)
    run()
    assert values(Path(data)) == list(range(200))
    for noted in Path(checkpoint, "commits").glob("*1*"):
        noted.unlink()
    (_, batch), *rest = read_commits(data).streams.items()
    assert (batch, rest) == (1, [])
    more(200)
    run()  # batch 1 again, then batch 2
    assert read_commits(data).streams.popitem()[1] == 2
    assert values(Path(data)) == list(range(300))
    assert aside(Path(data)) == []
    assert [str(one) for one in verify(data, deep=True)] == []
