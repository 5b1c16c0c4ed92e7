"""One writer, six readers, in threads and in processes; and never two writers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.golden import PATIENCE_S
from support.processes import live_readers

import kts
from kts.log import view

pytestmark = pytest.mark.slow

WRITE = "import sys, kts\nkts.Log(sys.argv[1])"


def batch() -> bytes:
    return kts.encode({"timestamp": [1], "value": [b"v"]})


def test_threads_see_only_whole_published_sets(tmp_path: Path, seed: int) -> None:
    rounds, failures = live_readers.run_threads(tmp_path / "t-0", seed, 300, 6)
    print(f"{rounds} rounds of reading", *failures, sep="\n")
    assert failures == [] and rounds >= 30


def test_processes_see_only_whole_batches_in_order(tmp_path: Path, seed: int) -> None:
    readers = ["scan", "scan", "scan", "scan", "time", "time"]
    rounds, failures = live_readers.run_processes(tmp_path / "t-0", seed, 1200, readers)
    print(f"{rounds} rounds of reading", *failures, sep="\n")
    assert failures == [] and rounds >= 6


def test_the_greatest_timestamp_is_one_that_is_published(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", {"segment.bytes": 80}) as log:
        for number in (5, 6, 7, 8):
            published = log._view
            log.append(kts.encode({"timestamp": [number], "value": [b"v"]}))
            if number > 5:  # an append that is on the disk, and not published yet
                assert view.max_timestamp(published) == (number - 1, number - 6)
                assert view.offset_for_timestamp(published, number) is None


def other_process(path: Path) -> str:
    """The last line of what another process says that opens a log for writing."""
    done = subprocess.run([sys.executable, "-c", WRITE, path], capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stderr.strip().splitlines()[-1] if done.returncode else "opened"


def test_a_second_writer_is_refused_and_the_first_one_goes_on(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0") as log:
        log.append(batch())
        with pytest.raises(kts.LogLockedError):
            kts.Log(tmp_path / "t-0")
        for name in ("t-0", "u-7"):  # the lock is the log directory's, as a broker's
            said = other_process(tmp_path / name)
            assert said.startswith("kts.errors.LogLockedError") and ".lock" in said
        with kts.Log(tmp_path / "u-1") as other:
            other.append(batch())
        assert log.append(batch()).first_offset == 1
    assert other_process(tmp_path / "t-0") == "opened"
    with kts.Log(tmp_path / "t-0") as log:
        assert log.log_end_offset == 2


def test_readers_need_no_lock(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0") as log:
        log.append(batch())
        assert kts.scan(tmp_path / "t-0", columns=["offset"]).read_all().column(0).to_pylist() == [0]
        done = subprocess.run(
            [sys.executable, "-m", "kts.cli", "verify", tmp_path], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0 and done.stdout.startswith("OK")
