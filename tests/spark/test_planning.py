"""How work is shared out among tasks, and how few bytes a narrow range opens. Needs no Spark."""

from __future__ import annotations

import os
import pickle
import shutil
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.buckets.s3 import TestBucket
from support.golden import golden
from support.sets.biglog import BATCH_BYTES, FIRST_MS, write_log
from support.sets.partitions import flip

import kts
from kts.dataset.reader import read_range
from kts.errors import UnknownTopicOrPartitionError
from kts.remote import buckets
from kts.spark import planning
from kts.spark.options import Options, parse_options
from kts.spark.planning import Task, plan_tasks
from kts.store.local import File
from kts.store.source import Source

SEGMENTS, RECORDS = 3, 60_000


def options(path: object, **given: object) -> Options:
    return parse_options({"path": str(path), **{name: str(value) for name, value in given.items()}})


def offsets(tasks: list[Task], **asked: Any) -> list[int]:
    found: list[int] = []
    for task in tasks:
        for part in task.ranges:
            for batch in read_range(part, columns=["offset"], within=task.within, **asked):
                found += batch.column("offset").to_pylist()
    return found


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments of about 6 MiB."""
    folder = tmp_path_factory.mktemp("big")
    write_log(folder / "big-0", SEGMENTS, RECORDS)
    return folder


@pytest.fixture
def log_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of ``.log`` files that are read while the test runs, one number a read."""
    sizes: list[int] = []
    for name in ("read", "read_into"):
        real = getattr(File, name)

        def counted(self: File, *arguments: Any, real: Any = real) -> Any:
            result = real(self, *arguments)
            if self.path.endswith(".log"):
                sizes.append(result if isinstance(result, int) else len(result))
            return result

        monkeypatch.setattr(File, name, counted)
    return sizes


def test_one_percent_of_the_time_opens_about_one_percent_of_the_bytes(big: Path, log_bytes: list[int]) -> None:
    total = sum(path.stat().st_size for path in big.rglob("*.log"))
    count = SEGMENTS * RECORDS
    start = count * 2 // 5
    tasks = plan_tasks(
        options(
            big,
            startingTimestamp=FIRST_MS + start,
            endingTimestamp=FIRST_MS + start + count // 100,
            allowedLateness="5ms",
        )
    )
    planned = sum(log_bytes)
    assert offsets(tasks) == list(range(start, start + count // 100))
    print(f"{planned} of {total} bytes opened to plan, {sum(log_bytes)} in all: {sum(log_bytes) / total:.2%}")
    assert sum(log_bytes) < total * 0.02 + SEGMENTS * 2 * BATCH_BYTES


def test_planning_everything_opens_next_to_nothing(big: Path, log_bytes: list[int]) -> None:
    tasks = plan_tasks(options(big))
    assert sum(log_bytes) < SEGMENTS * 4 * BATCH_BYTES
    assert offsets(tasks) == list(range(SEGMENTS * RECORDS))


def test_large_segments_are_split_at_index_entries_and_small_ones_joined(
    big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(plan_tasks(options(big))) == 1
    monkeypatch.setattr(planning, "TASK_BYTES", 1 << 20)
    tasks = plan_tasks(options(big))
    sizes = [sum(part.end_position - part.start_position for part in task.ranges) for task in tasks]
    assert max(sizes) <= (1 << 20) + 2 * BATCH_BYTES
    assert len(tasks) <= 2 * sum(sizes) / (1 << 20)
    assert offsets(tasks) == list(range(SEGMENTS * RECORDS))


def test_tasks_hold_nothing_but_small_plain_values(big: Path) -> None:
    for task in plan_tasks(options(big, startingTimestamp=FIRST_MS + 5, strictTimeRange="true")):
        assert task.within == (FIRST_MS + 5, None, 3_600_000)
        assert len(pickle.dumps(task)) < 2000
        for part in task.ranges:
            assert os.path.isabs(part.path)
            assert all(isinstance(value, (str, int, tuple, Source)) for value in vars(part).values())


@pytest.mark.parametrize(("most", "least"), [(7000, None), (None, 25), (7000, 40), (50_000, 2)])
def test_tasks_are_as_many_as_asked(big: Path, most: int | None, least: int | None) -> None:
    given = {"maxRecordsPerPartition": most, "minPartitions": least}
    tasks = plan_tasks(options(big, **{name: value for name, value in given.items() if value is not None}))
    assert len(tasks) >= (least or 1)
    if most is not None:
        assert max(len(offsets([task])) for task in tasks) <= most
        assert len(tasks) >= SEGMENTS * RECORDS / most
    assert offsets(tasks) == list(range(SEGMENTS * RECORDS))


def test_a_log_without_indexes_gives_the_same_rows(big: Path, tmp_path: Path) -> None:
    shutil.copytree(big / "big-0", tmp_path / "big-0", ignore=shutil.ignore_patterns("*index"))
    given = {"startingTimestamp": FIRST_MS + 70_000, "endingTimestamp": FIRST_MS + 80_000, "minPartitions": 3}
    assert offsets(plan_tasks(options(tmp_path, **given))) == list(range(70_000, 80_000))


def test_internal_topics_are_left_out_unless_named(big: Path, tmp_path: Path) -> None:
    for name in ("__consumer_offsets-0", "__cluster_metadata-0", "plain-0"):
        shutil.copytree(golden("3.9.2", "one").log_dir / "one-0", tmp_path / name)
    assert {task.ranges[0].topic for task in plan_tasks(options(tmp_path))} == {"plain"}
    named = plan_tasks(options(tmp_path, subscribe="__consumer_offsets"))
    assert {task.ranges[0].topic for task in named} == {"__consumer_offsets"}
    found = plan_tasks(options(tmp_path, subscribePattern=".*"))
    assert {task.ranges[0].topic for task in found} == {"plain"}, "as in Kafka's consumer"


def test_a_wrong_size_in_the_last_segment_does_not_end_the_log(tmp_path: Path) -> None:
    """An entry that reaches past the end is what a writer left only if nothing sound lies behind its start."""
    with kts.Log(tmp_path / "t-0") as log:
        for _ in range(4):
            log.append_rows({"value": [b"v" * 50] * 5})
    (path,) = (tmp_path / "t-0").glob("*.log")
    second = kts.scan_batches(path.read_bytes())["position"][1].as_py()
    flip(path, second + 9)
    with pytest.raises(kts.CorruptRecordError, match="past the end of the file, but a sound one starts .* bytes on"):
        plan_tasks(options(tmp_path))
    with pytest.warns(kts.DamageWarning):
        found = offsets(plan_tasks(options(tmp_path, onError="skip")), on_error="skip")
        assert found == kts.scan(tmp_path, columns=["offset"], on_error="skip").read_all()["offset"].to_pylist()
    assert found == [*range(5), *range(10, 20)]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(
    ("magic", "compression", "changes"),
    [
        pytest.param(2, "none", [(2, 8, 243)], id="a size that covers the rest of the file"),
        pytest.param(2, "none", [(4, 23, -9)], id="a last offset below the first, which the CRC covers"),
        pytest.param(0, "lz4", [(4, 4, 2)], id="an offset below earlier ones, which no CRC covers"),
        pytest.param(2, "none", [(2, 4, 999), (3, 60, 7)], id="an offset that leaps, before damage"),
    ],
)
def test_a_read_to_the_latest_offset_gives_what_a_scan_gives(
    magic: int, compression: str, changes: list[tuple[int, int, int]], on_error: str, tmp_path: Path
) -> None:
    """The same records or the same error, wherever damage in the last batches has moved the log end offset."""
    columns = {"value": [b"v"] * 3}
    parts = [
        bytearray(kts.encode(columns, magic=magic, compression=compression, base_offset=n)) for n in range(0, 15, 3)
    ]
    for number, position, value in changes:
        struct.pack_into(">i", parts[number], position, value)
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(b"".join(parts))

    def outcome(read: Callable[[], list[int]]) -> list[int] | int | None:
        try:
            return read()
        except kts.CorruptRecordError as error:
            return error.position

    def scanned() -> list[int]:
        found: list[int] = kts.scan(tmp_path, columns=["offset"], on_error=on_error).read_all()["offset"].to_pylist()
        return found

    def planned() -> list[int]:
        return offsets(plan_tasks(options(tmp_path, onError=on_error)), on_error=on_error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kts.KtsWarning)
        wanted = outcome(scanned)
        assert outcome(planned) == wanted
    assert on_error == "raise" or (isinstance(wanted, list) and len(wanted) >= 12)


def test_a_directory_that_only_has_a_partition_s_name_is_none(tmp_path: Path) -> None:
    (tmp_path / "dbus-1").mkdir()
    (tmp_path / "dbus-1" / "session.conf").touch()
    with pytest.raises(FileNotFoundError, match="holds no partition directories"):
        plan_tasks(options(tmp_path))


def test_topics_that_are_not_there_are_named_with_the_nearest(big: Path) -> None:
    with pytest.raises(
        UnknownTopicOrPartitionError, match="option subscribe: there is no topic bik .* did you mean big"
    ):
        plan_tasks(options(big, subscribe="bik"))
    for wrong in ({"subscribe": "bi[!g]"}, {"subscribePattern": "bi"}):
        (name,) = wrong
        with pytest.raises(UnknownTopicOrPartitionError, match=f"option {name}: no topic .*match"):
            plan_tasks(options(big, **wrong))
    assert plan_tasks(options(big, subscribe="b*")) == plan_tasks(options(big))
    with pytest.raises(UnknownTopicOrPartitionError, match="option assign: there is no big-4 .* partitions 0"):
        plan_tasks(options(big, assign='{"big": [4]}'))


def test_paths_that_the_driver_does_not_see_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="option path: there is nothing at /.*/gone as the driver on"):
        plan_tasks(options(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match="holds no partition directories"):
        plan_tasks(options(tmp_path))
    shutil.copytree(golden("3.9.2", "one").log_dir, tmp_path / "below")
    with pytest.raises(FileNotFoundError, match="there are some in .*/below: name one of these$"):
        plan_tasks(options(tmp_path))


def test_an_empty_log_has_no_tasks() -> None:
    assert plan_tasks(options(golden("3.9.2", "empty").log_dir)) == []


def test_rows_of_a_slice_are_those_of_the_whole(big: Path) -> None:
    tasks = plan_tasks(options(big, startingOffsets='{"big": {"0": 59990}}', endingOffsets='{"big": {"0": 60010}}'))
    (task,) = tasks
    assert len(task.ranges) == 2
    found = pa.Table.from_batches([b for part in task.ranges for b in read_range(part, columns=["offset"])])
    assert found.column(0).to_pylist() == list(range(59_990, 60_010))


@pytest.mark.slow
@pytest.mark.parametrize("granularity", ["record", "segment", "finding"])
def test_a_task_has_access_to_the_buckets_that_it_reads_and_to_no_other(
    granularity: str, bucket: TestBucket, big: Path
) -> None:
    """Also where a read names no options, and goes by those that its bucket was first opened with."""
    there = bucket.put_folder(golden("demo", "orders").path, "orders")
    bucket.forget()
    kts.open(there, storage_options=bucket.options)
    for path, options_of in ((there, [bucket.options]), (big, [])):
        pickled = pickle.dumps(plan_tasks(options(path, granularity=granularity)))
        assert (bucket.options["secret_key"].encode() in pickled) == bool(options_of)
        buckets._buckets.pop(bucket.address, None)  # as in another process
        tasks = pickle.loads(pickled)
        assert [one.options for one in buckets._buckets.get(bucket.address, [])] == options_of
        assert tasks and all(task.ranges or task.logs or task.folders for task in tasks)
        assert bucket.options["secret_key"] not in repr(tasks)  # which Spark may print
