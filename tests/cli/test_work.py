"""The work of a command by processes; by executors of Spark, see ``tests/spark/test_jobs.py``."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.golden import golden
from support.processes.cli_runs import lines
from support.tiered import session

import kts
from kts.cli import verify, work
from kts.dataset.partition import PartitionLog
from kts.spark import planning


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece of work has so little room that partitions are cut between segments, and small ones share one."""
    monkeypatch.setattr(work, "LEAST_BYTES", 100 << 10)
    monkeypatch.setattr(planning, "FILE_BYTES", 1 << 10)
    monkeypatch.setattr(verify, "PROCESS_SECONDS", 1e-9)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with two topics, and a partition with transactions."""
    for source in (golden("demo", "orders"), golden("demo", "clicks")):
        for name in source.partitions:
            shutil.copytree(source.partition_dir(name), tmp_path / name)
    shutil.copytree(session("aiven-zstd-encrypted").data / "txn-0", tmp_path / "txn-0")
    return tmp_path


@pytest.mark.slow
def test_verify_with_jobs_says_the_same_in_the_same_order(logs: Path) -> None:
    """Two seconds: processes, twice."""
    assert lines("verify", logs, "--jobs", 2, "--json") == lines("verify", logs, "--json")
    for name in ("clicks-0", "orders-1", "txn-0"):
        log = min((logs / name).glob("*.log"))
        log.write_bytes(log.read_bytes()[:-1] + b"!")
    assert lines("verify", logs, "--jobs", 2, "--json", code=1) == lines("verify", logs, "--json", code=1)


def played(log: PartitionLog, advance: Callable[[int], None], *, parent: int) -> Iterator[str]:
    """Work that warns, and fails in a partition."""
    advance(1)
    warnings.warn(kts.KtsWarning(f"of {log.topic}-{log.partition}", log.path), stacklevel=2)
    yield f"{log.topic}-{log.partition} {os.getpid() == parent} {len(log.segments)}"
    if log.topic == "orders" and log.partition == 1:
        raise kts.CorruptRecordError("torn", path=log.path)


def numbered(log: PartitionLog, facts: Iterable[str]) -> Iterator[str]:
    """The fold: what all parts of a partition gave, counted through."""
    for number, fact in enumerate(facts):
        yield f"{fact} {number}"


@pytest.mark.slow  # processes
@pytest.mark.parametrize("parts", [False, True])
def test_results_warnings_and_errors_come_in_the_order_of_the_partitions(logs: Path, parts: bool) -> None:
    there = sorted(kts.open_log_dirs(logs).values(), key=lambda log: log.topic != "txn")
    doing, read, told = partial(played, parent=os.getpid()), list[int](), list[str]()
    with warnings.catch_warnings(record=True) as warned, pytest.raises(kts.CorruptRecordError, match="torn"):
        warnings.simplefilter("always")
        for log, results in work.on_each(there, doing, numbered, read.append, jobs=2, parts=parts):
            for one in results:
                told.append(one)
                assert str(warned[-1].message) == f"of {log.topic}-{log.partition}"
    names, here, counts, numbers = zip(*(one.split() for one in told), strict=True)
    assert set(here) == {"False"} and sum(read) >= len(names)
    assert list(dict.fromkeys(names)) == ["txn-0", "clicks-0", "orders-0", "orders-1"]
    assert (len(names) > 4) == parts
    for name in names:
        own = [int(number) for number, other in zip(numbers, names, strict=True) if other == name]
        assert own == list(range(len(own)))
    by_name = {name: sum(int(c) for n, c in zip(names, counts, strict=True) if n == name) for name in names}
    for log in there[:3]:
        assert by_name[f"{log.topic}-{log.partition}"] == len(log.segments)
