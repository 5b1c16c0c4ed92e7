"""Many segments cost as much each as few do: what the file system is asked for at two sizes, and descriptors at all."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.disk.counting import counting, more_than_linear
from support.disk.scripted_lives import quick_directory
from support.sets.log_records import NOW, Clock, batch, opened

import kts
from kts.store import descriptors
from kts.store.local import Bytes, WritableFile

pytestmark = pytest.mark.slow

SMALL, TIMES = 12, 4
DATA = batch(*[NOW] * 10)


def of_a_producer(base_sequence: int) -> bytes:
    table = {"timestamp": [NOW] * 10, "value": [b"v"] * 10}
    return bytes(kts.encode(table, producer_id=7, producer_epoch=0, base_sequence=base_sequence))


def filled(folder: Path, count: int, clock: Clock | None = None, *, epochs: int = 1, **more: str) -> kts.Log:
    """A log of so many segments, a producer in each other one."""
    log = opened(folder, clock, **more)
    for number in range(count):
        log.append(of_a_producer(10 * (number // 2)) if number % 2 else DATA, leader_epoch=number % epochs)
        if number + 1 < count:
            log.roll()
    return log


def left(folder: Path, count: int, *, clean: bool) -> None:
    log = filled(folder, count, epochs=count)
    log.close() if clean else log.abandon()


def unclean_open(folder: Path, count: int) -> Counter[str]:
    left(folder, count, clean=False)
    with counting() as counted:
        log = opened(folder)
    assert log.log_end_offset == 10 * count and len(log.segments) == count
    log.close()
    return counted


def clean_open(folder: Path, count: int) -> Counter[str]:
    left(folder, count, clean=True)
    with counting() as counted:
        log = opened(folder)
    assert log.clean_start and log.log_end_offset == 10 * count
    log.close()
    return counted


def open_without_indexes(folder: Path, count: int) -> Counter[str]:
    left(folder, count, clean=True)
    for path in (folder / "t-0").glob("*.index"):
        path.unlink()
    with counting() as counted:
        log = opened(folder)
    assert len(log.recovered) == count
    log.close()
    return counted


def closing(folder: Path, count: int) -> Counter[str]:
    log = filled(folder, count)
    with counting() as counted:
        log.close()
    return counted


def rolling(folder: Path, count: int) -> Counter[str]:
    with counting() as counted:
        log = filled(folder, count)
    log.close()
    return counted


def retention(folder: Path, count: int) -> Counter[str]:
    clock = Clock()
    log = filled(folder, count, clock, retention_ms="1000", file_delete_delay_ms="10")
    clock.now += 10_000
    with counting() as counted:
        assert len(log.delete_old_segments()) == count
        clock.now += 10
        log.delete_due_files()
    log.close()
    assert len(list((folder / "t-0").glob("*.log"))) == 1
    return counted


def truncation(folder: Path, count: int) -> Counter[str]:
    log = filled(folder, count)
    with counting() as counted:
        log.truncate_to(10)
    assert log.log_end_offset == 10
    log.close()
    return counted


def cut_at_the_beginning(folder: Path, count: int) -> Counter[str]:
    left(folder, count, clean=False)
    path = folder / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    with counting() as counted:
        log = opened(folder)
    assert len(log.recovered) == count and log.log_end_offset == 0
    log.close()
    return counted


@pytest.mark.parametrize(
    "work",
    [unclean_open, clean_open, open_without_indexes, closing, rolling, retention, truncation, cut_at_the_beginning],
)
def test_a_segment_costs_the_same_among_few_and_many(work: Callable[[Path, int], Counter[str]]) -> None:
    with quick_directory() as folder:
        small, large = work(Path(folder, "small"), SMALL), work(Path(folder, "large"), TIMES * SMALL)
    assert sum(small.values()) > SMALL
    assert more_than_linear(small, large, TIMES) == {}
    assert large["most descriptors"] <= small["most descriptors"] + 1 <= 12


# --- descriptors ----------------------------------------------------------------------------------


def held() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(descriptors, "most_holders", lambda: 2)
    return 2


def test_many_logs_that_are_written_to_keep_the_files_of_few_open(tmp_path: Path, few: int) -> None:
    gc.collect()
    before = held()
    logs = [opened(tmp_path, name=f"t-{number}") for number in range(10)]
    for turn in range(3):
        for log in logs:
            log.append(DATA)
            log.append(DATA)
            assert log.read(20 * turn, 1 << 20).records
            assert held() <= before + 3 * few + 2  # the lock, the log that is read
    lent = logs[0].slice(0, 1 << 20).records
    bytes_before = lent.read()
    for log in logs:
        log.roll()
        log.append(DATA)
    assert lent.read() == bytes_before
    assert logs[0].truncate_to(0)
    with pytest.raises(kts.LogStorageError, match="cut"):
        lent.read()
    del lent
    for log in logs[1:]:
        assert log.log_end_offset == 70
        log.close()
    logs[0].close()
    assert [opened(tmp_path, name=f"t-{number}").recovered for number in range(1, 10)] == [[]] * 9


def test_a_segment_that_rests_while_it_is_appended_to_loses_nothing(tmp_path: Path) -> None:
    """Each time that a file is opened for writing, all others that are kept open rest: as with a pool of none."""
    with opened(tmp_path) as log:
        write = WritableFile.write

        def resting(self: WritableFile, data: Bytes, position: int) -> None:
            log.segments[-1].rest()
            write(self, data, position)
            log.segments[-1].rest()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(WritableFile, "write", resting)
            for _ in range(20):
                log.append(DATA)
        assert log.log_end_offset == 200 and len(log.segments) > 5
    with opened(tmp_path) as log:
        assert log.recovered == [] and log.log_end_offset == 200
