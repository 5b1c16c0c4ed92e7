"""kts.scan with threads: the rows, errors and warnings of one thread, little memory, and no thread left behind."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.golden import PATIENCE_S, golden_partitions
from support.sets.partitions import flip, log_of, offsets
from support.waiting import wait_until

import kts
from kts.dataset import ahead
from kts.dataset import scan as scanning
from kts.dataset.ahead import Ahead
from kts.dataset.options import ScanOptions
from kts.dataset.plan import NO_END, plan
from kts.dataset.reader import DecodedSlice, RangeReader
from kts.errors import CorruptRecordError, LogStorageError

PARTITIONS = golden_partitions()


def outcome(path: Any, **options: Any) -> tuple[pa.Table, str | None, list[str]]:
    """The rows, what was raised after them, and the warnings."""
    batches, error = list[pa.RecordBatch](), None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            reader = kts.scan(path, **options)
            for batch in reader:
                batches.append(batch)
        except kts.KtsError as found:
            error = f"{type(found).__name__}: {found}"
    return pa.Table.from_batches(batches, reader.schema), error, sorted(str(one.message) for one in told)


def ours() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("kts-scan")]


@pytest.mark.slow
def test_threads_give_what_one_gives() -> None:
    scenarios = {scenario.log_dir for scenario, _ in PARTITIONS}
    compared = 0
    for directory in sorted(scenarios):
        for options in ({"batch_bytes": 700}, {"isolation": "read_committed", "views": True}):
            alone = outcome(directory, **options)
            assert outcome(directory, threads=3, **options) == alone
            compared += alone[0].num_rows
    assert compared > 1000


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_rows_before_damage_come_first(on_error: str, codec: str, tmp_path: Path) -> None:
    path = log_of(tmp_path, list(range(60)), per_segment=20, compression=codec)
    flip(path / f"{20:020}.log", 300)
    options: dict[str, Any] = {"batch_bytes": 200, "on_error": on_error, "columns": ["offset"]}
    alone, many = outcome(path, **options), outcome(path, threads=4, **options)
    assert many == alone
    lost = 60 - alone[0].num_rows
    assert (lost >= 36 and alone[1]) if on_error == "raise" else (lost == 1 and alone[2])


@pytest.mark.timeout(60)  # it once waited for ever
@pytest.mark.parametrize("damaged", [0, 20])
def test_a_reader_that_resumes_behind_damage_does_not_wait_for_room(
    damaged: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log_of(tmp_path, list(range(80)), per_segment=20)
    flip(path / f"{damaged:020}.log", 80)
    drop = Ahead._drop

    def filled(self: Ahead[RangeReader], source: Any) -> None:
        drop(self, source)
        if self._ranges:
            self._look_ahead()
            self._work()  # slices of the following segments take all room

    monkeypatch.setattr(Ahead, "_drop", filled)
    options: dict[str, Any] = {"batch_bytes": 80, "on_error": "skip", "columns": ["offset"]}
    many = outcome(path, threads=3, **options)
    assert many == outcome(path, **options) and many[0].num_rows == 79


def test_decoding_runs_side_by_side_also_across_small_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = log_of(tmp_path, list(range(9)), per_segment=1)
    together = threading.Barrier(3)
    decode, first, met = RangeReader.decode, threading.Event(), threading.Event()

    def meeting(self: RangeReader, start: int, data: memoryview) -> pa.RecordBatch:
        if first.is_set() and not met.is_set():
            together.wait(PATIENCE_S)  # three threads are in here, or it breaks
            met.set()
        first.set()
        return decode(self, start, data)

    monkeypatch.setattr(RangeReader, "decode", meeting)
    assert offsets(path, threads=3) == list(range(9))  # the first slice is decoded alone
    assert met.is_set()


@pytest.mark.slow
def test_a_reader_that_waits_holds_few_slices_and_one_that_is_closed_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log_of(tmp_path, list(range(300)), per_segment=100)
    decode, decoded, pools = RangeReader.decode, list[int](), list[ThreadPoolExecutor]()
    monkeypatch.setattr(RangeReader, "decode", lambda *a: (decoded.append(a[1]), decode(*a))[1])
    monkeypatch.setattr(ahead, "ThreadPoolExecutor", lambda *a: (pools.append(ThreadPoolExecutor(*a)), pools[-1])[1])
    reader = kts.scan(path, threads=2, batch_bytes=80)
    for taken in range(1, 40):
        reader.read_next_batch()
        for _ in range(2):  # as many threads have nothing left to do
            pools[0].submit(time.sleep, 0.001).result()
        assert len(decoded) <= taken + 1 + 3, "at most threads + 1 slices, and one that is joined"
    reader.close()
    del reader
    gc.collect()
    assert not ours()


def test_a_scan_that_ends_in_one_of_its_threads_does_not_wait_for_it(tmp_path: Path) -> None:
    """As when garbage collection there finds a reader that nobody has any more."""
    path, ended = log_of(tmp_path, list(range(60)), per_segment=20), threading.Event()
    threads = Ahead[RangeReader](2)
    parts = plan(kts.open_partition(path).listed(), 0, NO_END)
    turns = threads.in_turn(RangeReader(part, ScanOptions(), ahead=threads) for part in parts)
    slices = next(turns).batches()
    next(slices)
    threads._pool.submit(lambda: (slices.close(), turns.close(), ended.set()))
    assert ended.wait(PATIENCE_S)
    wait_until("no thread of the scan runs", lambda: not ours())


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ends", "is interrupted", "forks"])
def test_a_process_with_a_scan_that_is_not_read_to_its_end_ends_at_once(way: str, tmp_path: Path) -> None:
    """A second each: another Python."""
    path = log_of(tmp_path, list(range(300)), per_segment=20)
    program = f"""
import os, signal, kts
reader = kts.scan({str(path)!r}, threads=3, batch_bytes=80)
reader.read_next_batch()
if {way!r} == "is interrupted":
    signal.raise_signal(signal.SIGINT)
if {way!r} == "forks":
    child = os.fork()
    if not child:
        reader.close()
        del reader
        raise SystemExit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert reader.read_all().num_rows > 200
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        timeout=PATIENCE_S, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == (-signal.SIGINT if way == "is interrupted" else 0), done.stderr
    assert done.stderr.strip().endswith("KeyboardInterrupt" if way == "is interrupted" else ""), done.stderr


def test_the_memory_of_one_slice_is_known_before_others_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    rows = {"timestamp": list(range(1000)), "value": [bytes(1000)] * 1000}
    for base in range(0, 6000, 1000):
        data = kts.encode(rows, compression="zstd", base_offset=base, batch_bytes=1 << 20)
        (directory / f"{base:020}.log").write_bytes(data)
    told, together = list[str](), threading.Event()
    decode = RangeReader.decode

    def slow(self: RangeReader, start: int, data: memoryview) -> DecodedSlice:
        told.append("begins")
        begun = told.count("begins")
        if begun == 1:
            time.sleep(0.02)  # room for others to begin
        elif begun == 2:
            together.wait(PATIENCE_S)
        else:
            together.set()
        found = decode(self, start, data)
        told.append("ends")
        return found

    monkeypatch.setattr(RangeReader, "decode", slow)
    assert sum(batch.num_rows for batch in kts.scan(directory, threads=8, batch_bytes=1 << 20)) == 6000
    assert told[:2] == ["begins", "ends"] and told[2:4] == ["begins", "begins"]


def test_a_partition_that_cannot_be_planned_fails_after_the_rows_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        log_of(tmp_path, [1, 2, 3], name=f"t-{number}")
    planned = scanning._planned

    def failing(log: Any, *rest: Any) -> Any:
        if log.partition == 2:
            raise LogStorageError("gone", path=log.path)
        return planned(log, *rest)

    monkeypatch.setattr(scanning, "_planned", failing)
    table, error, _ = outcome(tmp_path, threads=3, columns=["partition", "offset"])
    found = [(row["partition"], row["offset"]) for row in table.to_pylist()]
    assert found == [(number, offset) for number in range(2) for offset in range(3)]
    assert error is not None and error.startswith("LogStorageError: gone")


def test_a_segment_deleted_before_its_turn_is_left_out_with_a_warning(tmp_path: Path) -> None:
    path = log_of(tmp_path, list(range(300)), per_segment=20)
    reader = kts.scan(path, threads=2, batch_bytes=80, columns=["offset"])
    found = reader.read_next_batch()["offset"].to_pylist()
    (path / f"{200:020}.log").unlink()
    with pytest.warns(kts.KtsWarning, match="was deleted while it was read"):
        for batch in reader:
            found += batch["offset"].to_pylist()
    assert found == [offset for offset in range(300) if not 200 <= offset < 220]


def test_errors_and_memory_errors_of_threads_come_out_at_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log_of(tmp_path, list(range(40)), per_segment=20)
    decode = RangeReader.decode

    def without_memory(self: RangeReader, start: int, data: memoryview) -> pa.RecordBatch:
        if self.part.base_offset == 20:
            raise MemoryError("no room")
        return decode(self, start, data)

    monkeypatch.setattr(RangeReader, "decode", without_memory)
    found = list[int]()
    with pytest.raises(MemoryError, match="no room"):
        for batch in kts.scan(path, threads=2, columns=["offset"]):
            found += batch["offset"].to_pylist()
    assert found == list(range(20))
    assert not ours()


@pytest.mark.parametrize("threads", [0, -1, 1000, "2", True])
def test_a_wrong_number_of_threads_is_named(threads: Any, tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError), match="threads"):
        kts.scan(log_of(tmp_path, [1]), threads=threads)


def test_damage_in_the_last_batch_leaves_no_thread(tmp_path: Path) -> None:
    path = log_of(tmp_path, list(range(20)), per_segment=20)
    flip(path / f"{0:020}.log", -20)
    with pytest.raises(CorruptRecordError):
        kts.scan(path, threads=2, batch_bytes=80).read_all()
    assert not ours()
