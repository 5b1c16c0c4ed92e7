"""kts.spark.read and damage: exact ranges, one read for each DataFrame, and plans that say what is read."""

from __future__ import annotations

import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.golden import golden
from support.kafka.jvm import require_spark
from support.processes.cli_runs import run
from support.sets.partitions import flip

import kts
from kts.errors import DamageWarning
from kts.spark import planning
from kts.spark.options import parse_options
from kts.times import show_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = golden("demo", "orders")
ROWS = [(name, row) for name in ORDERS.partitions for row in ORDERS.expected(name)]
TIMES = sorted(row.timestamp for _, row in ROWS)
START, END = TIMES[len(TIMES) // 3], TIMES[len(TIMES) // 2]


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_a_range_is_what_where_on_timestamp_gives_and_the_plan_names_it(spark: SparkSession) -> None:
    from kts.spark import read

    path = ORDERS.log_dir
    frame = read(spark, path, start=START, end=datetime.fromtimestamp(END / 1000, UTC), columns=["partition", "offset"])
    found = sorted((f"orders-{row.partition}", row.offset) for row in frame.collect())
    assert found == sorted((name, row.offset) for name, row in ROWS if START <= row.timestamp < END)
    start, end = (f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z" for ms in (START, END))
    assert f"kts {path}; {start} <= timestamp < {end}[partition#" in plan_of(frame)
    assert "offset#" in plan_of(frame) and "key#" not in plan_of(frame)
    some = read(spark, path, partitions=[0, 2, 7], columns=["partition"])
    counts = Counter(name for name, _ in ROWS)
    assert {f"orders-{n}": count for n, count in some.groupBy("partition").count().collect()} == {
        name: count for name, count in counts.items() if name != "orders-1"
    }
    assert 'assign {"orders": [0, 2]}' in plan_of(some)
    assert frame.count() == len(found), "a second read leaves the first as it is"


def test_the_unit_of_a_time_is_that_of_start_and_end_alone(spark: SparkSession) -> None:
    from kts.spark import read

    frames = [
        read(spark, ORDERS.log_dir, start=start, columns=["offset"], timeUnit="s")
        for start in (START // 1000, show_time(START // 1000 * 1000))
    ]
    assert [frame.count() for frame in frames] == [read(spark, ORDERS.log_dir, start=START // 1000 * 1000).count()] * 2


def test_the_names_of_scan_are_taken_too(spark: SparkSession) -> None:
    from kts.spark import read

    for asked in (
        {"start": START, "end": END, "strict": False, "onError": "skip", "columns": ["partition", "offset"]},
        {"start": START // 1000, "timeUnit": "s", "isolation": "read_committed", "includeControl": True},
    ):
        names = {"start": "starting_timestamp", "end": "ending_timestamp", "strict": "strict_time_range"}
        names |= {"onError": "on_error", "timeUnit": "unit", "includeControl": "include_control"}
        other = read(spark, ORDERS.log_dir, **{names.get(name, name): value for name, value in asked.items()})
        assert other.count() == read(spark, ORDERS.log_dir, **asked).count() > 0
        assert other.columns == read(spark, ORDERS.log_dir, **asked).columns
    for twice in ({"start": 1, "starting_timestamp": 1}, {"onError": "skip", "on_error": "skip"}):
        with pytest.raises(TypeError, match=f"{[*twice][0]}|{[*twice][1]}"):
            read(spark, ORDERS.log_dir, **twice)


def test_sql_options_give_the_same_range(spark: SparkSession) -> None:
    options = f"path '{ORDERS.log_dir}', startingTimestamp '{START}', endingTimestamp '{END}', strictTimeRange 'true'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW ranged USING kts OPTIONS ({options})")
    wanted = sum(START <= row.timestamp < END for _, row in ROWS)
    assert spark.sql("SELECT count(*) FROM ranged").collect()[0][0] == wanted
    assert spark.sql("SELECT count(*) FROM ranged WHERE partition = 0").collect()[0][0] < wanted
    assert spark.sql("SELECT count(*) FROM ranged").collect()[0][0] == wanted


def test_wrong_arguments_are_named(spark: SparkSession) -> None:
    from kts.spark import read

    with pytest.raises(ValueError, match="columns: unknown column 'ofset'; known are"):
        read(spark, ORDERS.log_dir, columns=["ofset"])
    with pytest.raises(ValueError, match="columns: expected at least one name"):
        read(spark, ORDERS.log_dir, columns=[])
    with pytest.raises(TypeError, match="columns: expected a list of names, found 'offset'"):
        read(spark, ORDERS.log_dir, columns="offset")
    with pytest.raises(ValueError, match="start: .* looks like .* timeUnit=s or timeUnit=ms"):
        read(spark, ORDERS.log_dir, start=START // 1000)
    with pytest.raises(ValueError, match="start: .* is after end"):
        read(spark, ORDERS.log_dir, start=START, end=START - 1)
    with pytest.raises(TypeError, match="topics: expected a list of names, found 3"):
        read(spark, ORDERS.log_dir, topics=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="partitions: expected a list of ints or .*, found 3"):
        read(spark, ORDERS.log_dir, partitions=3)  # type: ignore[arg-type]
    with pytest.raises(kts.UnknownTopicOrPartitionError, match=r"partitions: expected some .* found \[7\]"):
        read(spark, ORDERS.log_dir, partitions=[7])
    with pytest.raises(ValueError, match="partitions: expected those of orders, found clicks"):
        read(spark, ORDERS.log_dir, topics="orders", partitions={"clicks": [0]})
    with pytest.raises(ValueError, match="option onErorr is unknown"):
        read(spark, ORDERS.log_dir, onErorr="skip")


def test_partitions_alone_are_those_of_the_topic_that_a_decoder_reads(tmp_path: Path) -> None:
    require_spark()
    from kts.spark.frames import _chosen

    for name in ("__consumer_offsets-0", "__consumer_offsets-1", "orders-0"):
        kts.Log(tmp_path / name).close()
    asked = {"decoder": "offsets"}
    assert _chosen([str(tmp_path)], None, [0], asked) == {"assign": '{"__consumer_offsets": [0]}'}


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


@pytest.mark.slow
def test_spark_still_keeps_pushed_filters_with_the_dataframe(spark: SparkSession, pushdown: None) -> None:
    """Why kts has no ``pushFilters``: if this fails, Spark mended it, and kts can prune on filters (4 s of Spark)."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, LessThan

    class Reader(DataSourceReader):
        limit = 100

        def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
            for one in filters:
                if isinstance(one, LessThan) and one.attribute == ("offset",):
                    self.limit = min(self.limit, one.value)
                else:
                    yield one

        def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_arrays([pa.array(range(self.limit), pa.int64())], names=["offset"])

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "pushed"

        def schema(self) -> str:
            return "offset bigint"

        def reader(self, schema: Any) -> Any:
            return Reader()

    spark.dataSource.register(Source)
    frame = spark.read.format("pushed").load()
    assert frame.where("offset < 5").count() == 5
    assert frame.count() == 5, "100 is right: Spark mended it"
    assert spark.read.format("pushed").load().count() == 100


def damaged(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    for name in ("orders-0", "orders-1"):
        shutil.copytree(ORDERS.partition_dir(name), path / name)
    first = sorted((path / "orders-0").glob("*.log"))[0]
    flip(first, first.stat().st_size // 2)
    return path


def test_what_is_skipped_is_a_frame(spark: SparkSession, load: Any, tmp_path: Path) -> None:
    from kts.spark import damage

    path = damaged(tmp_path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        local = kts.scan(path, on_error="skip").read_all()
    messages = [str(one.message) for one in told if issubclass(one.category, DamageWarning)]
    assert messages
    assert load(path, onError="skip").count() == local.num_rows < sum(name != "orders-2" for name, _ in ROWS)
    with pytest.raises(Exception, match="CorruptRecordError"):
        load(path).count()
    lost = damage(spark, path).collect()
    assert [(row.topic, row.partition, row.segment) for row in lost] == [("orders", 0, 0)] * len(messages)
    said = [
        f"{r.path}: {r.sizeInBytes} bytes at position {r.position} are damaged and left out: {r.reason}" for r in lost
    ]
    assert said == messages
    assert damage(spark, path, partitions=[1]).count() == 0


def test_a_large_read_without_a_range_is_told_how_to_have_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_spark()
    monkeypatch.setattr(planning, "WHOLE_BYTES", 1000)
    given = {"path": str(ORDERS.log_dir)}

    def hints(**more: str) -> int:
        options = parse_options(given | more)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            planning.warn_of_whole_read(planning.plan_tasks(options), options)
        return sum("kts.spark.read(spark, path, start=" in str(one.message) for one in told)

    assert hints() == 1
    assert hints(startingTimestamp=str(START)) == hints(granularity="batch") == hints(assign='{"orders": [0]}') == 0


@pytest.mark.parametrize("granularity", ["batch", "segment"])
def test_a_range_of_batches_or_segments_has_all_that_may_hold_its_records(
    spark: SparkSession, granularity: str
) -> None:
    from kts.spark import read

    start, end = 1_788_861_600_000, 1_788_868_800_000  # two hours, with a record of 2036 before them
    rows = read(spark, ORDERS.log_dir, start=start, end=end, granularity=granularity).collect()
    there = {
        (row.partition, row.baseOffset if granularity == "batch" else row.firstOffset, row.lastOffset) for row in rows
    }
    wanted = {(name, row.offset) for name, row in ROWS if start <= row.timestamp < end}
    assert (
        all(any(f"orders-{p}" == name and a <= o <= b for p, a, b in there) for name, o in wanted) and len(wanted) == 94
    )
    everything = read(spark, ORDERS.log_dir, granularity=granularity).count()
    assert len(rows) < everything / 2 if granularity == "batch" else len(rows) <= everything


def test_spark_reads_a_parquet_dump_with_an_absurd_time(spark: SparkSession, tmp_path: Path) -> None:
    """Spark makes microseconds of all times of a file, and fails if one does not fit."""
    most = (2**63 - 1) // 1000
    times = [1_700_000_000_000, 2**63 - 1, -(2**63), -1, most, most + 1, -most - 1, 253_402_300_800_000]
    path = tmp_path / "t-0" / f"{0:020}.log"
    path.parent.mkdir()
    parts = [kts.encode({"timestamp": [ms], "value": [b"v"]}, base_offset=n) for n, ms in enumerate(times)]
    path.write_bytes(b"".join(parts))
    told = run("dump", path, "-o", tmp_path / "x.parquet").stderr
    assert "4 times are null in this Parquet file" in told and f"{2**63 - 1} ms at offset 1;" in told
    frame = spark.read.parquet(str(tmp_path / "x.parquet")).selectExpr("offset", "unix_micros(timestamp) AS us")
    found = {row.offset: row.us for row in frame.collect()}
    assert found == {n: ms * 1000 if -most <= ms <= most else None for n, ms in enumerate(times)}
