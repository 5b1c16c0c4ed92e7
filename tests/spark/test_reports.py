"""granularity=segment and finding: a row for each segment, and what ``kts verify`` finds. Needs no JVM."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.golden import Golden, golden, golden_partitions
from support.kafka.jvm import require_spark
from support.sets.partitions import flip, log_of

import kts
from kts.codec.micros import MAX_MS
from kts.errors import CorruptRecordError
from kts.offline.verify import verify
from kts.spark.options import parse_options
from kts.spark.planning import grouped, plan_tasks
from kts.spark.reading import read_task
from kts.spark.schema import types_of

SCENARIOS = {scenario.log_dir: scenario for scenario, _ in golden_partitions()}


def rows_of(path: object, granularity: str, **more: str) -> list[dict[str, Any]]:
    require_spark()
    from pyspark.sql import types

    options = parse_options({"path": str(path), "granularity": granularity, **more})
    kinds = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "timestamp": types.TimestampType(),
        "array<tinyint>": types.ArrayType(types.ByteType()),
        "array<string>": types.ArrayType(types.StringType()),
    }
    schema = types.StructType([types.StructField(name, kinds[kind]) for name, kind in types_of(options).items()])
    batches = [batch for task in plan_tasks(options) for batch in read_task(task, options, schema)]
    rows = list[dict[str, Any]]()
    for batch in batches:
        for number, field in enumerate(batch.schema):
            if pa.types.is_timestamp(field.type):
                batch = batch.set_column(number, field.name, batch.column(number).cast(pa.int64()))
        rows += batch.to_pylist()
    return rows


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=str)
def test_a_segment_is_what_its_records_and_files_say(scenario: Golden) -> None:
    rows = rows_of(scenario.log_dir, "segment", timestampOverflow="clamp")
    found = {(row["topic"], row["partition"], row["segment"]): row for row in rows}
    seen = 0
    for name, log in kts.open_log_dirs(scenario.log_dir).items():
        if name.topic.startswith("__"):
            continue
        for segment in log.segments:
            columns = ["offset", "timestamp", "magic"]
            table = kts.scan(segment.path, columns=columns, include_control=True).read_all()
            records = {name: table[name].to_pylist() for name in ("offset", "magic")}
            if (name.topic, name.partition, segment.base_offset) not in found:
                assert not records["offset"] or records["offset"][-1] < log.log_start_offset
                continue
            row = found.pop((name.topic, name.partition, segment.base_offset))
            seen += 1
            assert (row["path"], row["sizeInBytes"]) == (segment.path, segment.size_bytes)
            index = Path(segment.path).with_suffix(".timeindex")
            assert row["timeIndexSizeInBytes"] == (index.stat().st_size if index.exists() else None)
            assert row["modified"] == Path(segment.path).stat().st_mtime_ns // 10**6 * 1000
            assert row["damage"] is None
            if records["offset"]:
                assert row["lastOffset"] >= records["offset"][-1]
                assert row["firstOffset"] is None or row["firstOffset"] <= records["offset"][0]
                assert row["records"] in (None, len(records["offset"]))
                assert row["magics"] == sorted({*records["magic"]})
                times = [ms for ms in table["timestamp"].cast(pa.int64()).to_pylist() if ms != -1]
                known = [] if row["maxTimestamp"] is None else [row["maxTimestamp"] // 1000]
                assert bool(known) == bool(times)
                assert all(abs(ms) > MAX_MS for ms in times) or known[0] >= max(ms for ms in times if ms <= MAX_MS)
            else:
                assert row["records"] in (0, None)
    assert not found and seen


def test_damage_raises_or_is_a_column(tmp_path: Path) -> None:
    path = log_of(tmp_path, list(range(40)), per_segment=20)
    first = path / f"{0:020}.log"
    tenth = kts.scan_batches(first.read_bytes())["position"][10].as_py()
    flip(first, tenth + 16, 0x7F)  # a magic of 125
    with pytest.raises(CorruptRecordError):
        rows_of(path, "segment")
    broken, sound = rows_of(path, "segment", onError="skip")
    assert (broken["batches"], broken["lastOffset"], sound["batches"]) == (10, 9, 20)
    assert "magic" in broken["damage"] and sound["damage"] is None
    assert len(rows_of(path, "damage")) == len(rows_of(path, "damage", minPartitions="20")) == 1


@pytest.mark.parametrize("deep", [False, True])
def test_findings_are_those_of_verify(deep: bool, tmp_path: Path) -> None:
    orders = golden("demo", "orders")
    shutil.copytree(orders.log_dir, tmp_path / "logs")
    logs = tmp_path / "logs"
    first = sorted((logs / "orders-1").glob("*.log"))[0]
    flip(first, first.stat().st_size // 2)
    next((logs / "orders-0").glob("*.timeindex")).unlink()
    (logs / "recovery-point-offset-checkpoint").write_text("x\n")
    found = rows_of(logs, "finding", deep=str(deep).lower())
    expected = [vars(one) for one in verify(logs, deep=deep)]
    assert [{name: row[name] for name in expected[0]} for row in found] == expected
    assert {row["partition"] for row in found} == {None, 0, 1}
    assert {row["kind"] for row in found} >= {"checkpoint", "missing"}
    assert rows_of(orders.log_dir, "finding") == []


def test_small_partitions_share_a_task_and_large_ones_do_not(tmp_path: Path) -> None:
    for number in range(600):
        folder = tmp_path / f"t-{number}"
        folder.mkdir()
        with (folder / f"{0:020}.log").open("wb") as file:
            file.truncate((40 << 20) if number % 100 == 0 else 0)
    groups = list(grouped([*kts.open_log_dirs(tmp_path).values()]))
    assert [log.partition for group in groups for log in group] == list(range(600))
    assert 6 <= len(groups) <= 12
    assert all(sum(log.partition % 100 == 0 for log in group) <= 1 for group in groups)
