"""Rows from real Spark against what Kafka's own consumers saw, for every golden directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.golden import Golden, Row, golden, goldens, rows

from kts.codec.micros import MAX_MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SEEN = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
VERSIONS = sorted({scenario.version for scenario in goldens()})


def kafka_rows(table: pa.Table) -> dict[str, list[Row]]:
    """Rows of a Spark result by partition, in the order of their offsets, times in ms again."""
    found: dict[str, list[Row]] = {}
    names = [
        f"{topic}-{partition}"
        for topic, partition in zip(
            table.column("topic").to_pylist(), table.column("partition").to_pylist(), strict=True
        )
    ]
    micros = table.column("timestamp").cast(pa.int64()).to_pylist()
    at = table.schema.get_field_index("timestamp")
    ms = pa.array([None if value is None else value // 1000 for value in micros], pa.int64())
    for name, row in zip(names, rows(table.set_column(at, "timestamp", ms)), strict=True):
        found.setdefault(name, []).append(row)
    return {name: sorted(some, key=lambda row: row.offset) for name, some in found.items()}


def log_starts(scenarios: list[Golden]) -> str:
    """Kafka keeps the log start offset outside the directory of a partition: what the broker said, as JSON."""
    starts: dict[str, dict[str, int]] = {}
    for scenario in scenarios:
        for name in scenario.partitions:
            topic, _, partition = name.rpartition("-")
            starts.setdefault(topic, {})[partition] = scenario.log_start_offset(name)
    return json.dumps(starts)


def representable(row: Row) -> Row:
    """What ``timestampOverflow=null`` makes of it."""
    return row if abs(row.timestamp) <= MAX_MS else row._replace(timestamp=None)


def collect(df: DataFrame) -> dict[str, list[Row]]:
    return kafka_rows(df.toArrow())


@pytest.mark.parametrize("version", VERSIONS)
def test_all_records_of_a_broker_version_equal_what_its_consumers_saw(version: str, load: Any) -> None:
    scenarios = [scenario for scenario in goldens() if scenario.version == version]
    options = {"includeHeaders": True, "timestampOverflow": "null", "logStartOffset": log_starts(scenarios)}
    found = collect(load([scenario.log_dir for scenario in scenarios], **options))
    for scenario in scenarios:
        for name in scenario.partitions:
            assert found.pop(name, []) == [representable(row) for row in scenario.expected(name)], f"{scenario} {name}"
    assert found == {}


def test_read_committed_leaves_out_what_was_aborted_or_is_open(load: Any) -> None:
    version = "3.9.2"
    scenarios = [
        scenario
        for scenario in goldens()
        if scenario.version == version
        and any("readCommittedOffsets" in facts for facts in scenario.meta["partitions"].values())
    ]
    assert {"txn-none", "txn-open"} <= {scenario.name for scenario in scenarios}
    paths = [scenario.log_dir for scenario in scenarios]
    options = {"isolation": "read_committed", "includeHeaders": True, "logStartOffset": log_starts(scenarios)}
    found = collect(load(paths, **options))
    for scenario in scenarios:
        for name, facts in scenario.meta["partitions"].items():
            expected = scenario.expected(name)
            if "readCommittedOffsets" in facts:
                expected = [row for row in expected if row.offset in set(facts["readCommittedOffsets"])]
            assert found.get(name, []) == expected, f"{scenario} {name}"


def test_control_records_come_when_asked_for(load: Any) -> None:
    scenario = golden("3.9.2", "txn-none")
    schema = "offset bigint, control boolean, transactional boolean"
    with_control = load(scenario.log_dir, schema, includeControl=True).orderBy("offset").collect()
    assert [row.offset for row in with_control if not row.control] == [
        row.offset for row in scenario.expected("txn-none-0")
    ]
    assert [row.offset for row in with_control] == list(range(scenario.meta["partitions"]["txn-none-0"]["endOffset"]))
    assert all(row.transactional for row in with_control if row.control)


@pytest.mark.parametrize("version", ["3.9.2", "0.10.2.2"])
def test_extreme_timestamps_follow_the_overflow_policy(version: str, load: Any) -> None:
    scenario = golden(version, "extreme-none")
    expected = scenario.expected("extreme-none-0")
    beyond = [row for row in expected if abs(row.timestamp) > MAX_MS]
    assert beyond
    clamped = load(scenario.log_dir, timestampOverflow="clamp").selectExpr("offset", "unix_micros(timestamp) AS t")
    assert {row.offset: row.t for row in clamped.collect()} == {
        row.offset: min(row.timestamp * 1000, 2**63 - 1) for row in expected
    }
    null = load(scenario.log_dir, timestampOverflow="null").where("timestamp IS NULL").select("offset")
    assert sorted(row.offset for row in null.collect()) == [row.offset for row in beyond]
    with pytest.raises(Exception, match="timestampOverflow") as caught:
        load(scenario.log_dir).count()
    message = str(caught.value)
    assert f"timestamp {beyond[0].timestamp} ms of offset {beyond[0].offset} in extreme-none-0" in message
    assert "InvalidTimestampError" in message


def test_extreme_timestamps_of_batch_headers_follow_the_same_policy(load: Any) -> None:
    scenario = golden("3.9.2", "extreme-none")
    schema = "lastOffset bigint, maxTimestamp timestamp"
    beyond = [row.offset for row in scenario.expected("extreme-none-0") if abs(row.timestamp) > MAX_MS]
    null = load(scenario.log_dir, schema, granularity="batch", timestampOverflow="null").where("maxTimestamp IS NULL")
    ends = [row.lastOffset for row in null.select("lastOffset").collect()]
    assert ends
    assert min(ends) >= min(beyond)
    with pytest.raises(Exception, match="maxTimestamp [0-9]+ ms of batch that ends at offset [0-9]+ in extreme-none-0"):
        load(scenario.log_dir, schema, granularity="batch").collect()


def test_demo_topics_by_name_and_counts_per_hour(load: Any) -> None:
    scenario = golden("demo", "orders")
    expected = [row for name in scenario.partitions for row in scenario.expected(name)]
    per_hour: dict[int, int] = {}
    for row in expected:
        per_hour[row.timestamp // 3_600_000] = per_hour.get(row.timestamp // 3_600_000, 0) + 1
    df = load([scenario.log_dir, golden("demo", "clicks").log_dir], subscribe="orders")
    hours = df.selectExpr("unix_micros(timestamp) div 3600000000 AS hour").groupBy("hour").count()
    assert {row["hour"]: row["count"] for row in hours.collect()} == per_hour


def test_a_user_schema_is_a_projection_with_our_columns_too(load: Any) -> None:
    scenario = golden("demo", "legacy")
    table = load(scenario.log_dir, "magic tinyint, offset bigint, codec tinyint, position bigint").toArrow()
    assert table.schema.names == ["magic", "offset", "codec", "position"]
    assert table.column("offset").to_pylist() == [row.offset for row in scenario.expected("legacy-0")]
    assert set(table.column("magic").to_pylist()) == {1}
    assert set(table.column("codec").to_pylist()) == {1}


def test_batch_headers_as_rows(load: Any) -> None:
    scenario = golden("demo", "orders")
    batches = load(scenario.log_dir, granularity="batch").orderBy("topic", "partition", "baseOffset").toArrow()
    assert batches.schema.names[:3] == ["topic", "partition", "segment"]
    for partition in range(3):
        mine = [row for row in batches.to_pylist() if row["partition"] == partition]
        records = scenario.expected(f"orders-{partition}")
        assert sum(row["count"] for row in mine) == len(records)
        assert mine[0]["baseOffset"] == 0
        assert mine[-1]["lastOffset"] == records[-1].offset
        assert {row["segment"] for row in mine} == {int(log.stem) for log in scenario.logs(f"orders-{partition}")}
        assert all(row["crcOk"] for row in mine)
        tops = {row.timestamp for row in records}
        assert all(row["maxTimestamp"].timestamp() * 1000 in tops for row in mine)


def test_batches_of_an_offset_range_are_those_that_overlap_it(load: Any) -> None:
    scenario = golden("demo", "orders")
    ends = {"orders": {"0": 100}}
    options = {
        "granularity": "batch",
        "assign": '{"orders": [0]}',
        "startingOffsets": json.dumps({"orders": {"0": 50}}),
    }
    schema = "baseOffset bigint, lastOffset bigint"
    some = load(scenario.log_dir, schema, endingOffsets=json.dumps(ends), **options).collect()
    everything = load(scenario.log_dir, schema, granularity="batch", assign='{"orders": [0]}').collect()
    assert some == [row for row in everything if row.lastOffset >= 50 and row.baseOffset < 100]
