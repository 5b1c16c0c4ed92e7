"""The data source as its users meet it: SQL, mistakes, damage, and files that go missing."""

from __future__ import annotations

import json
import random
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.clusters import cluster_of
from support.coordinators import GROUPS, broker, described
from support.golden import golden
from support.sets.keyed import random_log

import kts
import kts.spark
from kts.spark import planning
from kts.spark.options import parse_options
from kts.spark.planning import plan_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS = golden("demo", "clicks")
COUNT = len(CLICKS.expected("clicks-0"))


def test_a_view_in_sql(spark: SparkSession) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW clicks USING kts OPTIONS (path '{CLICKS.log_dir}', includeHeaders 'true')"
    )
    row = spark.sql("SELECT count(*) AS n, count(headers) AS h, min(offset) AS low FROM clicks").first()
    assert row is not None
    assert (row.n, row.h, row.low) == (COUNT, 0, 0)


def test_registering_it_by_hand_does_no_harm(spark: SparkSession, load: Any) -> None:
    from pyspark.errors import AnalysisException

    from pyspark_kts import DefaultSource

    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:  # pyspark 4.0 refuses, as it has found the source already
        assert "DATA_SOURCE_ALREADY_EXISTS" in str(error)
    assert load(CLICKS.log_dir).count() == COUNT


def test_the_schema_is_sparks_own(load: Any) -> None:
    assert load(CLICKS.log_dir).schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )


def test_a_wrong_option_is_named(load: Any) -> None:
    for name, value in (("minPartitions", "none"), ("kafka.bootstrap.servers", "h:9092"), ("startTimestamp", "5")):
        with pytest.raises(Exception, match=f"(?i)option {name}"):
            load(CLICKS.log_dir, **{name: value})
        with pytest.raises(Exception, match=f"(?i)option {name}"):
            load(CLICKS.log_dir, "offset bigint", **{name: value}).count()


def test_a_wrong_column_is_named(load: Any) -> None:
    with pytest.raises(Exception, match="column offset has type bigint, found string"):
        load(CLICKS.log_dir, "offset string").count()
    with pytest.raises(Exception, match="column ofset does not exist"):
        load(CLICKS.log_dir, "ofset bigint").count()


def test_a_missing_path_is_named(load: Any) -> None:
    with pytest.raises(Exception, match="FileNotFoundError: option path: there is nothing at /no/such/directory"):
        load("/no/such/directory")
    with pytest.raises(Exception, match="option subscribe: there is no topic click .* did you mean clicks"):
        load(CLICKS.log_dir, subscribe="click")


def test_every_column_can_be_asked_for(load: Any) -> None:
    from kts.spark.schema import RECORD_TYPES, ddl

    found = load(CLICKS.log_dir, ddl(tuple(RECORD_TYPES), RECORD_TYPES)).orderBy("partition", "offset").toArrow()
    check_rows(found, kts.scan(CLICKS.log_dir, columns=list(RECORD_TYPES)).read_all())


def test_times_are_instants_whatever_timestamp_means_in_schema_strings(spark: SparkSession, load: Any) -> None:
    from kts.spark import decode_in_arrow, decode_udf

    files = spark.read.format("binaryFile").load(str(CLICKS.log_dir))
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        udf = files.select(decode_udf(["timestamp"])("content").alias("r")).selectExpr("inline(r)")
        frames = [load(CLICKS.log_dir), decode_in_arrow(files, "content"), udf]
        assert [dict(frame.dtypes)["timestamp"] for frame in frames] == ["timestamp"] * 3
        assert load(CLICKS.log_dir, assign='{"clicks": [0]}', startingOffsets="earliest").count() > 0
    finally:
        spark.conf.unset("spark.sql.timestampType")


def check_rows(found: pa.Table, expected: pa.Table) -> None:
    """Spark's rows are those of a scan, in Spark's types."""
    assert found.schema.names == expected.schema.names and found.num_rows > 0
    for name in expected.schema.names:
        wanted = expected[name] if "list" in str(expected[name].type) else expected[name].cast(found[name].type)
        assert found[name].to_pylist() == wanted.to_pylist(), name


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A copy of a partition with one bit of a record wrong."""
    folder = tmp_path / "clicks-0"
    shutil.copytree(CLICKS.partition_dir("clicks-0"), folder)
    log = sorted(folder.glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    return folder


def test_damage_names_file_and_position(damaged: Path, load: Any) -> None:
    with pytest.raises(Exception, match=r"CorruptRecordError: .*, at position 0 of .*/clicks-0/0{20}\.log"):
        load(damaged).count()
    headers = load(damaged, "crcOk boolean", granularity="batch").collect()
    assert [row.crcOk for row in headers].count(False) == 1


@pytest.mark.parametrize("decoder", ["offsets", "transactions", "share", "metadata"])
def test_a_decoder_gives_the_columns_that_scan_gives(load: Any, decoder: str) -> None:
    folder = cluster_of("4.3.1") if decoder == "metadata" else GROUPS
    found = load(folder, decoder=decoder).orderBy("partition", "offset").toArrow()
    check_rows(found, kts.scan(folder, decoder=decoder).read_all())


def test_committed_offsets_can_be_asked_for_in_sql(spark: SparkSession, load: Any) -> None:
    schema = "`group` string, committedTopic string, committedPartition int, committedOffset bigint, offset bigint"
    rows = load(broker("3.9.2"), schema, decoder="offsets", isolation="read_committed")
    rows.createOrReplaceTempView("commits")
    last = spark.sql(
        "SELECT `group`, committedTopic, committedPartition, max_by(committedOffset, offset) AS last FROM commits "
        "WHERE committedTopic IS NOT NULL GROUP BY ALL HAVING last IS NOT NULL ORDER BY ALL"
    )
    assert [(*row[:3], row.last) for row in last.collect()] == [row[:4] for row in described("3.9.2")]


@pytest.mark.parametrize("room", [1, planning.TASK_BYTES], ids=["a task a partition", "one task"])
def test_the_latest_state_is_that_of_kts_latest(
    tmp_path: Path, spark: SparkSession, load: Any, rng: random.Random, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "TASK_BYTES", room)
    monkeypatch.setattr(planning, "FILE_BYTES", 0)
    monkeypatch.setattr(planning, "SHARED_FROM", 2)
    rows = [row for number in range(4) for row in random_log(tmp_path / f"t-{number}", rng)]
    ends = {"t": {number: rng.randrange(10, 80) for number in range(4)}}
    at = rng.choice(rows)["timestamp"]
    names = ["partition", "offset", "key", "value"]
    tasks = plan_tasks(parse_options({"path": str(tmp_path), "latest": "true"}))
    assert len(tasks) == (4 if room == 1 else 2)

    def state(**asked: Any) -> list[Any]:
        found = load(tmp_path, latest="true", **asked).select(*names).collect()
        return sorted(
            (tuple(bytes(one) if isinstance(one, bytearray) else one for one in row) for row in found), key=str
        )

    def expected(**asked: Any) -> list[Any]:
        found = kts.latest(tmp_path, columns=names, **asked).read_all().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=str)

    assert state() == expected()
    assert state(tombstones="true") == expected(tombstones=True) != expected()
    assert state(endingOffsets=json.dumps(ends)) == expected(as_of=ends)
    shown = datetime.fromtimestamp(at / 1000, UTC)
    assert state(endingTimestamp=at) == expected(as_of=shown)  # however late the records come
    assert load(tmp_path, latest="true").columns == load(tmp_path).columns
    read = kts.spark.read(spark, tmp_path, end=at, latest=True)
    assert read.count() == len(expected(as_of=shown))


def test_the_latest_state_leaves_aborted_transactions_out(tmp_path: Path, load: Any) -> None:
    def sent(value: bytes, base: int, **of_batch: Any) -> bytes:
        return kts.encode({"key": [b"k"], "value": [value]}, base_offset=base, **of_batch)

    of_one = {"transactional": True, "producer_id": 1, "producer_epoch": 0}
    marker = kts.encode({"key": [bytes(4)], "value": [bytes(6)]}, base_offset=2, control=True, **of_one)
    with kts.Log(tmp_path / "t-0") as log:
        log.append_as_follower(sent(b"kept", 0) + sent(b"aborted", 1, base_sequence=0, **of_one) + marker)
    for asked, value in (({}, b"kept"), ({"isolation": "read_uncommitted"}, b"aborted")):
        [row] = load(tmp_path, latest="true", **asked).collect()
        assert bytes(row.value) == value
