"""One task on an executor: batches of Spark's types, and what went missing since the driver planned. Needs no JVM."""

from __future__ import annotations

import gzip
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.golden import golden
from support.kafka.jvm import require_spark
from support.sets.compressed import compress_logs
from support.sets.keyed import random_log
from support.sets.partitions import log_of

import kts
from kts.codec.micros import MAX_MS
from kts.errors import CorruptRecordError, InvalidTimestampError, LogStorageError
from kts.spark.options import parse_options
from kts.spark.planning import plan_tasks
from kts.spark.reading import _latest, read_task


def test_segments_that_went_missing_are_data_loss(tmp_path: Path) -> None:
    require_spark()
    from pyspark.sql.types import LongType, StructType

    orders = golden("demo", "orders")
    shutil.copytree(orders.partition_dir("orders-0"), tmp_path / "orders-0")
    schema = StructType().add("offset", LongType())
    strict = parse_options({"path": str(tmp_path)})
    lenient = parse_options({"path": str(tmp_path), "failOnDataLoss": "false"})
    (task,) = plan_tasks(strict)
    first, second = sorted((tmp_path / "orders-0").glob("*.log"))[:2]
    first.rename(first.with_name(first.name + ".deleted"))
    lost = rf"offsets {int(first.stem)} to {int(second.stem)} \(not included\) of orders-0 went missing"
    with pytest.raises(LogStorageError, match=f"{lost} .* set failOnDataLoss to false"):
        list(read_task(task, strict, schema))
    with pytest.warns(UserWarning, match=lost):
        left = [offset for b in read_task(task, lenient, schema) for offset in b.column("offset").to_pylist()]
    expected = [row.offset for row in orders.expected("orders-0")]
    assert left == [offset for offset in expected if offset >= int(second.stem)]


@pytest.mark.parametrize("start", [0, 5000])
def test_a_segment_that_is_deleted_while_it_is_read_is_read_to_its_end(
    tmp_path: Path, rng: random.Random, start: int
) -> None:
    """The task holds the file: between its look at it and its last byte no record can vanish."""
    require_spark()
    from pyspark.sql.types import BinaryType, LongType, StructType

    folder = tmp_path / "t-0"
    with kts.Log(folder, {"segment.bytes": 2_000_000}) as log:
        while len(log.segments) < 2:  # records that a reader finds to be larger than their bytes, and reads in two goes
            log.append_rows({"value": [rng.randbytes(100) * 10 for _ in range(100)]}, compression="zstd")
        end = log.segments[1].base_offset
        asked = {"startingOffsets": f'{{"t": {{"0": {start}}}}}', "endingOffsets": f'{{"t": {{"0": {end}}}}}'}
        options = parse_options({"path": str(tmp_path), "maxBatchBytes": "500k"} | asked)
        (task,) = plan_tasks(options)
        batches = read_task(task, options, StructType().add("offset", LongType()).add("value", BinaryType()))
        offsets = next(batches).column("offset").to_pylist()
        assert offsets[-1] < end - 1
        for file in folder.glob(f"{0:020d}.*"):
            file.unlink()
        for batch in batches:
            offsets += batch.column("offset").to_pylist()
    assert offsets == [*range(start, end)]


def test_batches_have_about_the_size_that_is_asked_for() -> None:
    require_spark()
    from pyspark.sql.types import BinaryType, LongType, StructType

    clicks = golden("demo", "clicks")
    schema = StructType().add("offset", LongType()).add("value", BinaryType())
    counts = []
    for most, limit in (("1k", 8 << 10), ("20k", 60 << 10)):
        options = parse_options({"path": str(clicks.log_dir), "maxBatchBytes": most})
        batches = [batch for task in plan_tasks(options) for batch in read_task(task, options, schema)]
        assert sum(batch.num_rows for batch in batches) == len(clicks.expected("clicks-0"))
        assert max(batch.nbytes for batch in batches) < limit
        counts.append(len(batches))
    assert counts[0] > 3 * counts[1] > 10


@pytest.mark.parametrize("granularity", ["record", "batch", "segment"])
def test_compressed_logs_give_the_rows_of_plain_ones(tmp_path: Path, granularity: str) -> None:
    """Their size, by which tasks are cut and checked, is that of the log inside."""
    require_spark()
    from pyspark.sql.types import LongType, StructType

    orders = golden("demo", "orders")
    schema = StructType().add("position" if granularity != "segment" else "sizeInBytes", LongType())
    schema = schema.add("offset" if granularity == "record" else "lastOffset", LongType())

    def read(path: Path) -> list[dict[str, Any]]:
        options = parse_options({"path": str(path), "granularity": granularity})
        batches = [batch for task in plan_tasks(options) for batch in read_task(task, options, schema)]
        return [row for batch in batches for row in batch.to_pylist()]

    found = read(compress_logs(Path(shutil.copytree(orders.log_dir, tmp_path / "logs"))))
    assert len(found) > 3 and found == read(orders.log_dir)


def test_a_compressed_log_that_was_cut_is_a_segment_up_to_there(tmp_path: Path) -> None:
    require_spark()
    from pyspark.sql.types import LongType, StringType, StructType

    with kts.Log(tmp_path / "t-0", {"segment.bytes": 3000}) as log:
        for number in range(60):
            log.append_rows({"value": [b"%d" % number + b" " * 90]})
    first, *_ = sorted((tmp_path / "t-0").glob("*.log"))
    first.with_suffix(".log.gz").write_bytes(gzip.compress(first.read_bytes())[:-30])
    first.unlink()
    options = parse_options({"path": str(tmp_path), "granularity": "segment", "onError": "skip"})
    schema = StructType().add("segment", LongType()).add("batches", LongType()).add("damage", StringType())
    batches = [batch for task in plan_tasks(options) for batch in read_task(task, options, schema)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["segment"] for row in rows if row["damage"]] == [0]
    assert "the gzip data ends early" in rows[0]["damage"] and 0 < rows[0]["batches"] < rows[1]["segment"]
    with pytest.raises(CorruptRecordError, match="the gzip data ends early"):
        plan_tasks(parse_options({"path": str(tmp_path), "granularity": "segment"}))


@pytest.mark.parametrize("granularity", ["record", "batch"])
def test_the_missing_end_of_a_segment_is_data_loss(tmp_path: Path, granularity: str) -> None:
    """A closed ``.log`` of 0 bytes whose indexes have entries is in no plan by its bytes, yet records are gone."""
    require_spark()
    from pyspark.sql.types import LongType, StructType

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


def test_a_file_that_the_executor_does_not_see_is_named_with_what_to_do(tmp_path: Path) -> None:
    require_spark()
    from pyspark.sql.types import LongType, StructType

    orders = golden("demo", "orders")
    shutil.copytree(orders.partition_dir("orders-0"), tmp_path / "logs" / "orders-0")
    options = parse_options({"path": str(tmp_path / "logs")})
    tasks = plan_tasks(options)
    (tmp_path / "logs").rename(tmp_path / "elsewhere")
    schema = StructType().add("offset", LongType())
    with pytest.raises(LogStorageError, match=r"does not see .*orders-0.*shared mount"):
        [list(read_task(task, options, schema)) for task in tasks]


def test_a_timestamp_that_does_not_fit_names_its_record_also_where_offsets_are_not_asked_for(tmp_path: Path) -> None:
    require_spark()
    from pyspark.sql.types import LongType, StructType, TimestampType

    folder = tmp_path / "t-0"
    folder.mkdir()
    sets = kts.encode({"timestamp": [5, MAX_MS, MAX_MS + 1], "value": [b"v"] * 3}, batch_bytes=1)
    (folder / f"{0:020d}.log").write_bytes(sets)
    schema = StructType().add("timestamp", TimestampType())
    (task,) = plan_tasks(parse_options({"path": str(folder)}))
    with pytest.raises(InvalidTimestampError, match=rf"timestamp {MAX_MS + 1} ms of offset 2 in t-0 does not fit"):
        list(read_task(task, parse_options({"path": str(folder)}), schema))
    lenient = parse_options({"path": str(folder), "timestampOverflow": "null"})
    read = [
        micros for batch in read_task(task, lenient, schema) for micros in batch.column(0).cast("int64").to_pylist()
    ]
    assert read == [5000, MAX_MS * 1000, None]
    headers = StructType().add("maxTimestamp", TimestampType()).add("lastOffset", LongType())
    of_batches = parse_options({"path": str(folder), "granularity": "batch"})
    (task,) = plan_tasks(of_batches)
    with pytest.raises(InvalidTimestampError, match="of batch that ends at offset 2 in t-0 does not fit"):
        list(read_task(task, of_batches, headers))


@pytest.mark.parametrize("granularity", ["record", "batch", "segment"])
@pytest.mark.parametrize("base", [3, 6])
def test_what_a_segment_has_behind_its_last_record_is_told(tmp_path: Path, granularity: str, base: int) -> None:
    """Part of an entry: damage in the second of three segments, and in the last one what a crash leaves."""
    require_spark()
    from pyspark.sql.types import LongType, StructType

    path = log_of(tmp_path, [5] * 9) / f"{base:020}.log"
    where = f"position {path.stat().st_size}"
    with path.open("ab") as file:
        file.write(kts.encode({"value": [b"stray"]}, base_offset=9)[:40])
    column = {"record": "offset", "batch": "lastOffset", "segment": "lastOffset"}[granularity]
    schema = StructType().add(column, LongType())

    def read(on_error: str) -> list[int]:
        options = parse_options({"path": str(tmp_path), "granularity": granularity, "onError": on_error})
        batches = [batch for task in plan_tasks(options) for batch in read_task(task, options, schema)]
        return [offset for batch in batches for offset in batch.column(column).to_pylist()]

    offsets = [2, 5, 8] if granularity == "segment" else list(range(9))
    if base == 6:
        with pytest.warns(kts.KtsWarning, match=where):
            assert read("raise") == offsets
        return
    with pytest.raises(CorruptRecordError, match=where):
        read("raise")
    if granularity == "record":
        with pytest.warns(kts.DamageWarning, match=where):
            assert read("skip") == offsets


def test_records_that_go_missing_between_the_two_readings_of_a_state_are_told(
    tmp_path: Path, rng: random.Random
) -> None:
    require_spark()
    random_log(tmp_path / "t-0", rng)
    options = parse_options({"path": str(tmp_path), "latest": "true", "failOnDataLoss": "false"})
    [task] = plan_tasks(options)
    rows = _latest(task, ("offset", "value"), options)
    next(rows)
    for path in sorted((tmp_path / "t-0").glob("*.log"))[2:]:
        path.unlink()
    with pytest.raises(kts.LogStorageError, match="records of the state were deleted"), pytest.warns(kts.KtsWarning):
        list(rows)
