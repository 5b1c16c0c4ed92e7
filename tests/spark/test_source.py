"""The data source as its users meet it: SQL, mistakes, damage, and files that go missing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.golden import golden
from support.kafka.jvm import require_spark

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
    with pytest.raises(Exception, match="FileNotFoundError: option path: nothing lies at /no/such/directory"):
        load("/no/such/directory")
    with pytest.raises(Exception, match="option subscribe: there is no topic click .* did you mean clicks"):
        load(CLICKS.log_dir, subscribe="click")


def test_every_column_can_be_asked_for(load: Any) -> None:
    from kts.spark.schema import RECORD_TYPES, ddl

    table = load(CLICKS.log_dir, ddl(tuple(RECORD_TYPES), RECORD_TYPES)).toArrow()
    assert table.num_rows == COUNT
    assert table.schema.names == list(RECORD_TYPES)


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


def test_batches_of_about_the_size_that_is_asked_for(load: Any) -> None:
    small = load(CLICKS.log_dir, maxBatchBytes="1k")
    assert small.count() == COUNT


def test_segments_that_went_missing_are_data_loss(tmp_path: Path) -> None:
    require_spark()
    from pyspark.sql.types import LongType, StructType

    from kts.errors import LogStorageError
    from kts.spark.options import parse_options
    from kts.spark.planning import plan_tasks
    from kts.spark.reading import read_task

    orders = golden("demo", "orders")
    shutil.copytree(orders.partition_dir("orders-0"), tmp_path / "orders-0")
    schema = StructType().add("offset", LongType())
    strict = parse_options({"path": str(tmp_path)})
    lenient = parse_options({"path": str(tmp_path), "failOnDataLoss": "false"})
    (task,) = plan_tasks(strict)
    first, second = sorted((tmp_path / "orders-0").glob("*.log"))[:2]
    first.rename(first.with_name(first.name + ".deleted"))
    with pytest.raises(LogStorageError, match=r"offsets .* of orders-0 went missing .* set failOnDataLoss to false"):
        list(read_task(task, strict, schema))
    with pytest.warns(UserWarning, match="went missing"):
        left = [offset for b in read_task(task, lenient, schema) for offset in b.column("offset").to_pylist()]
    expected = [row.offset for row in orders.expected("orders-0")]
    assert left == [offset for offset in expected if offset >= int(second.stem)]


@pytest.mark.parametrize("granularity", ["record", "batch"])
def test_the_missing_end_of_a_segment_is_data_loss(tmp_path: Path, granularity: str) -> None:
    """A closed ``.log`` of 0 bytes whose indexes have entries is in no plan by its bytes, yet records are gone."""
    require_spark()
    from pyspark.sql.types import LongType, StructType

    from kts.errors import CorruptRecordError
    from kts.spark.options import parse_options
    from kts.spark.planning import plan_tasks
    from kts.spark.reading import read_task

    orders = golden("demo", "orders")
    shutil.copytree(orders.partition_dir("orders-0"), tmp_path / "orders-0")
    first, second = sorted((tmp_path / "orders-0").glob("*.log"))[:2]
    first.write_bytes(b"")
    column = "offset" if granularity == "record" else "lastOffset"
    schema = StructType().add(column, LongType())
    strict = parse_options({"path": str(tmp_path), "granularity": granularity})
    lenient = parse_options({"path": str(tmp_path), "granularity": granularity, "failOnDataLoss": "false"})
    with pytest.raises(CorruptRecordError, match=f"base offset {int(second.stem)}; found an end of 0 bytes"):
        [list(read_task(task, strict, schema)) for task in plan_tasks(strict)]
    with pytest.warns(UserWarning, match="the end of the segment is missing"):
        batches = [batch for task in plan_tasks(lenient) for batch in read_task(task, lenient, schema)]
    left = {offset for batch in batches for offset in batch.column(column).to_pylist()}
    expected = {row.offset for row in orders.expected("orders-0") if row.offset >= int(second.stem)}
    assert left == expected if granularity == "record" else left <= expected and max(left) == max(expected)
