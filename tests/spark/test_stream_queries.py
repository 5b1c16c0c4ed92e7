"""Streaming queries of real Spark: triggers, restarts, what comes while they run, and what goes wrong."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.golden import PATIENCE_S, golden
from support.kafka.jvm import require_spark

import kts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ORDERS = golden("demo", "orders")
NOW_MS = 1_700_000_000_000


class Queries:
    """Streaming queries from ``logs`` into Parquet, all with one checkpoint."""

    def __init__(self, spark: SparkSession, logs: Path, work: Path) -> None:
        self.spark, self.logs, self.work = spark, logs, work
        self.started: list[StreamingQuery] = []

    def start(self, trigger: dict[str, Any], **options: object) -> StreamingQuery:
        given = {"startingOffsets": "earliest", **{name: str(value) for name, value in options.items()}}
        table = self.spark.readStream.format("kts").options(**given).load(str(self.logs))
        write = table.writeStream.format("parquet").option("checkpointLocation", str(self.work / "checkpoint"))
        query = write.trigger(**trigger).start(str(self.work / "rows"))
        self.started.append(query)
        return query

    def finished(self, trigger: dict[str, Any], **options: object) -> list[int]:
        """Rows of each micro-batch of a query that ends by itself."""
        query = self.start(trigger, **options)
        assert query.awaitTermination(int(PATIENCE_S))
        return [int(one["numInputRows"]) for one in query.recentProgress]

    def offsets(self) -> list[dict[str, dict[str, int]]]:
        """The ends of all micro-batches, as the checkpoint has them."""
        written = [path for path in (self.work / "checkpoint" / "offsets").iterdir() if path.name.isdigit()]
        lines = [path.read_text(encoding="utf-8").splitlines() for path in sorted(written, key=lambda p: int(p.name))]
        return [json.loads(one[-1]) for one in lines]

    def rows(self) -> DataFrame:
        return self.spark.read.parquet(str(self.work / "rows"))


@pytest.fixture
def queries(spark: SparkSession, tmp_path: Path) -> Iterator[Queries]:
    made = Queries(spark, tmp_path / "logs", tmp_path)
    yield made
    for query in made.started:
        query.stop()


Append = Callable[..., int]


@pytest.fixture
def append(tmp_path: Path) -> Iterator[Append]:
    """``append("orders-0", 5)``: five more records, and their partition's new end."""
    logs: dict[str, kts.Log] = {}

    def more(name: str, count: int) -> int:
        log = logs.get(name) or logs.setdefault(name, kts.Log(tmp_path / "logs" / name, {"segment.bytes": 5000}))
        rows = range(log.log_end_offset, log.log_end_offset + count)
        log.append_rows({"value": [b"%d" % row for row in rows], "timestamp": [NOW_MS + row for row in rows]})
        log.checkpoint()
        return log.log_end_offset

    yield more
    for log in logs.values():
        log.close()


def each_once(rows: DataFrame) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows.select("topic", "partition", "offset").orderBy("topic", "partition", "offset").collect():
        found.setdefault(f"{row.topic}-{row.partition}", []).append(row.offset)
    return found


def test_a_stream_has_the_rows_and_columns_of_a_batch_query(queries: Queries, load: Any) -> None:
    queries.logs = ORDERS.log_dir
    rows = queries.finished({"availableNow": True}, includeHeaders="true", maxOffsetsPerTrigger=4000)
    assert rows == [4000, 4000, 1000]
    expected = load(ORDERS.log_dir, includeHeaders="true")
    assert queries.rows().schema == expected.schema
    places = ("partition", "offset")
    assert queries.rows().orderBy(*places).collect() == expected.orderBy(*places).collect()


def test_a_query_goes_on_under_every_trigger_where_the_last_one_stopped(queries: Queries, append: Append) -> None:
    append("orders-0", 60)
    append("orders-1", 40)
    assert queries.finished({"availableNow": True}, maxOffsetsPerTrigger=50) == [50, 50]
    append("orders-0", 10)
    assert queries.finished({"once": True}, maxOffsetsPerTrigger=5) == [10]
    query = queries.start({"processingTime": "0 seconds"}, maxOffsetsPerTrigger=50)
    ends = {}
    for name in ("orders-0", "orders-2", "clicks-0"):  # a new partition and a new topic while it runs
        ends[name] = append(name, 7)
        query.processAllAvailable()
    query.stop()
    assert queries.offsets()[:3] == [
        {"orders": {"0": 30, "1": 20}},
        {"orders": {"0": 60, "1": 40}},
        {"orders": {"0": 70, "1": 40}},
    ]
    assert queries.offsets()[-1] == {"clicks": {"0": 7}, "orders": {"0": 77, "1": 40, "2": 7}}
    ends["orders-1"] = 40
    assert each_once(queries.rows()) == {name: list(range(end)) for name, end in ends.items()}
    progress = query.lastProgress
    assert progress is not None
    assert json.loads(progress["sources"][0]["latestOffset"].replace("'", '"')) == queries.offsets()[-1]


def test_latest_is_the_end_of_the_log_when_the_query_first_ran(queries: Queries, append: Append) -> None:
    append("orders-0", 30)
    assert sum(queries.finished({"availableNow": True}, startingOffsets="latest")) == 0
    append("orders-0", 5)
    shutil.rmtree(queries.work / "checkpoint" / "commits")  # as if killed before the first commit
    assert sum(queries.finished({"availableNow": True}, startingOffsets="latest")) == 5
    assert each_once(queries.rows()) == {"orders-0": [*range(30, 35)]}


def test_lost_records_end_a_query_and_are_left_out_if_told_so(queries: Queries, append: Append) -> None:
    append("orders-0", 500)
    queries.finished({"availableNow": True}, maxOffsetsPerTrigger=500)
    append("orders-0", 1000)
    for segment in sorted((queries.logs / "orders-0").glob("*.log"))[:-2]:
        segment.unlink()
    first = kts.open_partition(queries.logs / "orders-0").log_start_offset
    assert first > 500
    with pytest.raises(Exception, match=rf"offsets 500 to {first} \(not included\) of orders-0 were deleted"):
        queries.finished({"availableNow": True})
    queries.finished({"availableNow": True}, failOnDataLoss="false")
    assert each_once(queries.rows()) == {"orders-0": [*range(500), *range(first, 1500)]}


def test_a_wrong_option_ends_a_query_and_is_named(queries: Queries, append: Append) -> None:
    append("orders-0", 3)
    with pytest.raises(Exception, match="option endingOffsets is for batch queries"):
        queries.finished({"availableNow": True}, endingOffsets="latest")
    with pytest.raises(Exception, match="option maxTriggerDelay: expected a length of time"):
        queries.start({"availableNow": True}, maxTriggerDelay="soon")


def test_an_option_that_needs_a_newer_pyspark_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    require_spark()
    from pyspark.sql.types import LongType, StructType

    from kts.spark import source

    monkeypatch.setattr(source, "HAS_LIMITS", False)
    for name, value in {"maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "7", "maxTriggerDelay": "7s"}.items():
        given = {"path": str(ORDERS.log_dir), name: value}
        with pytest.raises(ValueError, match=f"option {name} needs pyspark 4.2 or newer, found"):
            source.KtsStreamReader(given, StructType().add("offset", LongType())).initialOffset()


def test_segments_that_overlap_give_each_offset_once_in_batches_and_streams(
    queries: Queries, load: Any, tmp_path: Path
) -> None:
    """As a crash between the renames of a split leaves them, and as some backups are restored."""
    sets = {first: kts.encode({"value": [b"v"] * 3}, base_offset=first) for first in range(0, 15, 3)}
    layouts = {
        "covered-0": {0: (0, 3, 6, 9), 6: (6, 9), 12: (12,)},
        "partly-0": {0: (0, 3, 6), 3: (3, 6, 9), 12: (12,)},
        "short-0": {0: (0, 3, 6, 9), 3: (3,), 12: (12,)},
    }
    for name, layout in layouts.items():
        (tmp_path / "overlaps" / name).mkdir(parents=True)
        for base, firsts in layout.items():
            path = tmp_path / "overlaps" / name / f"{base:020d}.log"
            path.write_bytes(b"".join(sets[first] for first in firsts))
    expected = {name: list(range(15)) for name in layouts}
    queries.logs = tmp_path / "overlaps"
    assert each_once(load(queries.logs)) == expected
    assert each_once(load(queries.logs, minPartitions="7")) == expected
    assert load(queries.logs, granularity="batch").count() == 15
    queries.finished({"availableNow": True}, maxOffsetsPerTrigger=7)
    assert each_once(queries.rows()) == expected


@pytest.mark.slow  # a query of real Spark for some seconds, which tasks in Python workers read beside a cleaner
def test_a_query_beside_a_cleaner_has_what_is_left_exactly_once(queries: Queries, tmp_path: Path) -> None:
    config = {"cleanup.policy": "compact", "segment.bytes": 2000, "file.delete.delay.ms": 0, "index.interval.bytes": 0}
    with kts.Log(tmp_path / "logs" / "orders-0", config) as log:

        def more() -> None:
            """Records of twenty keys, and a pass over all but the last of them."""
            rows = range(log.log_end_offset, log.log_end_offset + 60)
            keys = [b"%d" % (row * 7 % 20) for row in rows]
            log.append_rows({"key": keys, "value": [b"%d" % row for row in rows], "timestamp": [NOW_MS] * 60})
            log.roll()
            log.checkpoint()
            log.clean(force=True)

        more()
        query = queries.start({"processingTime": "0 seconds"}, maxOffsetsPerTrigger=200)
        for _ in range(8):
            more()
            time.sleep(0.3)  # so that the query keeps up
        query.processAllAvailable()
        found = queries.rows().select("offset", "value").collect()
        left = log.scan(columns=["offset", "value"]).read_all().to_pylist()
    assert len(found) == len({row.offset for row in found})
    assert all(row.value == b"%d" % row.offset for row in found)
    assert {row["offset"] for row in left} <= {row.offset for row in found}
