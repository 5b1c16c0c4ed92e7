"""Many small segments and partitions: few batches, few tasks, few processes, and nothing read once for each of them."""

from __future__ import annotations

import os
import random
import struct
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.processes.cli_runs import lines, run
from support.sets import log_records

import kts
from kts.cli import verify, work
from kts.dataset.options import TimeRange
from kts.segment import checkpoints
from kts.spark import planning
from kts.spark.options import parse_options
from kts.store.local import File
from kts.store.source import files

ROWS = 5


def small_set(number: int, magic: int = 2, compression: str = "none") -> bytes:
    """The records of the segment of that number."""
    times = [log_records.NOW + number * ROWS + i for i in range(ROWS)]
    made = bytearray(log_records.batch(*times, value=b"v%d" % number, magic=magic, compression=compression))
    struct.pack_into(">q", made, 0, number * ROWS)
    return bytes(made)


def segments(partition: Path, count: int, first: int = 0) -> Path:
    partition.mkdir(parents=True)
    for number in range(first, first + count):
        (partition / f"{number * ROWS:020d}.log").write_bytes(small_set(number))
    return partition


def expected(count: int) -> list[int]:
    return list(range(count * ROWS))


@pytest.mark.slow
@pytest.mark.parametrize("views", [False, True])
def test_small_batches_are_put_together_and_the_first_ones_come_early(
    views: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 300
    segments(tmp_path / "t-0", count)
    opened: list[str] = []
    real = File.__init__

    def counted(self: File, path: str) -> None:
        opened.append(path)
        real(self, path)

    reader = kts.scan(tmp_path, columns=["offset", "value", "key"], views=views)
    monkeypatch.setattr(File, "__init__", counted)
    first = reader.read_next_batch()
    early = len({path for path in opened if path.endswith(".log")})
    assert first.column("offset").to_pylist() == list(range(ROWS)) and early < 5, "the rest is not opened for it"
    batches = [first, *reader]
    sizes = [batch.num_rows for batch in batches]
    assert len(batches) < 20, sizes
    assert all(size <= max(sum(sizes[:number]), ROWS) for number, size in enumerate(sizes)), sizes
    whole = pa.Table.from_batches(batches)
    assert whole.column("offset").to_pylist() == expected(count)
    values = whole.column("value").cast(pa.binary()).to_pylist()
    assert values == [b"v%d" % (offset // ROWS) for offset in expected(count)]
    for batch in batches:
        batch.validate(full=True)


@pytest.mark.slow
@pytest.mark.parametrize("batch_bytes", [1, 300, 4000, 10**6])
def test_no_batch_is_larger_than_asked_but_one_that_is_read_as_one(batch_bytes: int, tmp_path: Path) -> None:
    segments(tmp_path / "t-0", 100)
    [one] = kts.scan(segments(tmp_path / "one" / "t-0", 1))
    batches = list(kts.scan(tmp_path / "t-0", batch_bytes=batch_bytes))
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == expected(100)
    slack = one.nbytes // 4  # validity bitmaps and the like, which joined batches share
    assert all(batch.nbytes <= max(batch_bytes, one.nbytes) + slack for batch in batches)
    assert all(batch.num_rows for batch in batches)


def test_partitions_of_several_topics_share_batches_in_their_order(tmp_path: Path) -> None:
    for name in ("a-0", "a-1", "b-0"):
        segments(tmp_path / name, 20)
    table = kts.scan(tmp_path, columns=["topic", "partition", "offset"]).read_all()
    wanted = [(topic, number, offset) for topic, number in (("a", 0), ("a", 1), ("b", 0)) for offset in expected(20)]
    assert [tuple(row.values()) for row in table.to_pylist()] == wanted
    assert sum(batch.num_rows for batch in kts.scan(tmp_path, columns=[])) == len(wanted)


def test_rows_before_damage_come_before_its_error_and_skip_leaves_out_no_more(
    tmp_path: Path, rng: random.Random
) -> None:
    count = 60
    partition = segments(tmp_path / "t-0", count)
    broken = rng.randrange(1, count - 1)
    path = partition / f"{broken * ROWS:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    found: list[int] = []
    with pytest.raises(kts.CorruptRecordError) as error:
        for batch in kts.scan(partition):
            found += batch.column("offset").to_pylist()
    assert found == expected(broken) and error.value.path == str(path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        table = kts.scan(partition, on_error="skip").read_all()
    left = [offset for offset in expected(count) if offset // ROWS != broken]
    assert table.column("offset").to_pylist() == left and [str(path) in str(one.message) for one in said] == [True]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = []
        with pytest.raises(UserWarning):
            for batch in kts.scan(partition, on_error="skip"):
                found += batch.column("offset").to_pylist()
        assert found == expected(broken), "also before a warning that is an error"


def test_a_scan_that_is_given_up_holds_no_file(tmp_path: Path) -> None:
    segments(tmp_path / "t-0", 50)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for taken in (1, 2, 5):
        reader = kts.scan(tmp_path)
        for _ in range(taken):
            reader.read_next_batch()
        reader.close()
        del reader
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# --- Spark -----------------------------------------------------------------------------------------------------


def tasks_of(path: Path, **given: object) -> list[planning.Task]:
    return planning.plan_tasks(parse_options({"path": str(path)} | {k: str(v) for k, v in given.items()}))


def planned(tasks: list[planning.Task]) -> list[tuple[str, int]]:
    return [(part.path, part.start_position) for task in tasks for part in task.ranges]


@pytest.mark.slow
def test_spark_shares_out_many_small_segments_by_their_number(tmp_path: Path) -> None:
    count = 1200
    segments(tmp_path / "t-0", count)
    tasks = tasks_of(tmp_path)
    sizes = [len(task.ranges) for task in tasks]
    assert 3 <= len(tasks) <= 12 and max(sizes) <= 300, "neither one task of all files nor one for each"
    assert planned(tasks) == [(str(path), 0) for path in sorted((tmp_path / "t-0").iterdir())]


@pytest.mark.slow
def test_spark_lets_many_small_partitions_share_tasks_and_few_keep_their_own(tmp_path: Path) -> None:
    for number in range(450):
        segments(tmp_path / f"t-{number}", 1)
    assert len(tasks_of(tmp_path / "t-7")) == 1
    few = tasks_of(tmp_path, assign='{"t": [1, 2, 3]}')
    assert [[part.partition for part in task.ranges] for task in few] == [[1], [2], [3]]
    tasks = tasks_of(tmp_path)
    assert 100 <= len(tasks) <= 300
    assert sorted(part.partition for task in tasks for part in task.ranges) == list(range(450))
    assert len(tasks_of(tmp_path, minPartitions=450)) == 450, "as many as asked"
    times = {"t": {str(number): log_records.NOW + number % 2 for number in range(450)}}
    strict = tasks_of(tmp_path, startingOffsetsByTimestamp=str(times).replace("'", '"'), strictTimeRange="true")
    for task in strict:
        for part in task.ranges:
            assert task.within == TimeRange(log_records.NOW + part.partition % 2, None, 3_600_000)


def test_spark_lists_a_partition_once_however_many_parts_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments(tmp_path / "t-0", 100)
    listed: list[str] = []

    def counted(real: Callable[[str], Any], path: str) -> Any:
        listed.append(path)
        return real(path)

    for name in ("walk_directory", "names_in"):
        monkeypatch.setattr(files, name, partial(counted, getattr(files, name)))
    for isolation in ("read_uncommitted", "read_committed"):
        listed.clear()
        assert len(tasks_of(tmp_path, maxRecordsPerPartition=10, isolation=isolation)) == 50
        assert len(listed) < 12, "not once for each of 50 parts"


# --- directories of many partitions ----------------------------------------------------------------------------


def log_directory(folder: Path, count: int) -> Path:
    for number in range(count):
        segments(folder / f"t-{number}", 1)
    for name in ("log-start-offset-checkpoint", "replication-offset-checkpoint"):
        text = "".join(f"t {number} {number % 3}\n" for number in range(count))
        (folder / name).write_text(f"0\n{count}\n{text}")
    return folder


def test_a_checkpoint_is_parsed_once_not_once_for_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, parsed = log_directory(tmp_path, 60), list[int]()
    real = checkpoints._offsets_of

    def counted(data: bytes) -> Any:
        parsed.append(len(data))
        return real(data)

    monkeypatch.setattr(checkpoints, "_offsets_of", counted)
    found = lines("ls", folder, "--json")
    assert [row["logStartOffset"] for row in found] == [row["partition"] % 3 for row in found]
    kts.scan(folder, ending_offsets="high_watermark").read_all()
    assert len(parsed) <= 3, "one for each file that is asked, when the directory is opened"


def test_a_checkpoint_that_changes_is_seen_at_once_whatever_its_time_and_length_say(tmp_path: Path) -> None:
    folder = log_directory(tmp_path, 3)
    path = folder / "log-start-offset-checkpoint"
    status = path.stat()
    log = kts.open(folder)["t", 1]  # type: ignore[index]
    for offset in (1, 2, 3, 1):
        path.write_text(f"0\n3\nt 0 0\nt 1 {offset}\nt 2 2\n")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert log.log_start_offset == offset
    path.write_text("0\n3\nt 0 0\n")
    assert log.log_start_offset == 0, "malformed: as if it were not there"
    path.unlink()
    assert log.log_start_offset == 0


@pytest.mark.parametrize("jobs", [1, 2])
def test_verify_starts_no_process_for_little_work(jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_by_processes", None)
    folder = log_directory(tmp_path, 40)
    assert "OK: 40 partitions, 40 segments" in run("verify", folder, "--jobs", jobs).stdout


@pytest.mark.slow
def test_verify_hands_out_pieces_and_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second: processes that check, on few partitions that are taken for much work."""
    folder = log_directory(tmp_path, 12)
    segments(folder / "t-12", 5)  # checked in parts
    for number in (3, 4, 11, 12):
        path = folder / f"t-{number}" / f"{0:020d}.log"
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    alone = lines("verify", folder, "--json", code=1)
    monkeypatch.setattr(verify, "SEGMENT_SECONDS", 0.5)
    monkeypatch.setattr(work, "LEAST_BYTES", 4 * planning.FILE_BYTES)
    started: list[tuple[int, list[int]]] = []
    real = work._by_processes

    def counted(count: int, job: Any, groups: Any) -> Any:
        started.append((count, [len(group) for group in groups]))
        return real(count, job, groups)

    monkeypatch.setattr(work, "_by_processes", counted)
    assert lines("verify", folder, "--jobs", 2, "--json", code=1) == alone
    assert started == [(2, [2, 2, 2, 2, 2, 2, 1, 1])]
