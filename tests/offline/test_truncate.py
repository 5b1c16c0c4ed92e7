"""A partition cut off in place: whatever stops it, the old log is there, the cut one, or one that ends in between."""

from __future__ import annotations

import errno
import gc
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.disk.crashdisk import Tree, read_tree, write_tree
from support.disk.faultfs import WRITING, Fault, FaultyOs
from support.disk.scripted_lives import in_place_of_os, quick_directory
from support.golden import PATIENCE_S, scaled
from support.reference import reference

import kts
from kts.errors import LogStorageError
from kts.offline.truncate import plan_truncation, truncate_in_place
from kts.offline.verify import verify

T = 1_500_000_000_000
STEP = scaled(4, 1)  # of the operations that fail
FORMATS = {1: "0.10.2", 2: "3.9"}


def config(magic: int) -> dict[str, Any]:
    return {"message.format.version": FORMATS[magic], "segment.bytes": 700, "index.interval.bytes": 200}


def grown(root: Path, magic: int) -> Path:
    """A closed log of five segments in batches of three records, and another partition beside it."""
    with kts.Log(root / "other-0"):
        pass
    path = root / "t-0"
    with kts.Log(path, config(magic), clock=lambda: T) as log:
        for i in range(30):
            rows = {"timestamp": np.arange(3) + T + i, "value": [b"x" * 10] * 3}
            log.append(kts.encode(rows, magic=magic, compression=["none", "gzip"][i % 2], batch_bytes=2**20))
        assert len(log.segments) >= 4
    return path


def offsets(path: str | Path) -> list[int]:
    """The offsets of all records, read slowly."""
    return [row["offset"] for log in sorted(Path(path).glob("*.log")) for row in reference.decode(log.read_bytes())]


def allowed(path: Path, target: int) -> list[list[int]]:
    """The old log, those that lack its newest segments, and the cut one."""
    before = offsets(path)
    plan = plan_truncation(open_log(path), target)
    ends = [before[-1] + 1, *(cut.base_offset for cut in plan.cuts if cut.whole), plan.next_offset]
    return [[offset for offset in before if offset < end] for end in ends]


def open_log(path: str | Path) -> kts.PartitionLog:
    log = kts.open(path)
    assert isinstance(log, kts.PartitionLog)
    return log


def check_found(root: str, may_be: list[list[int]], magic: int, label: object) -> list[int]:
    """Whoever opens the log next finds one of them, and recovers it to a sound one that stays as it is."""
    path = os.path.join(root, "t-0")
    with kts.Log(os.path.join(root, "other-0")), kts.Log(path, config(magic), clock=lambda: T) as log:
        end = log.log_end_offset
    found = offsets(path)
    assert found in may_be, (label, found[-3:], [one[-1:] for one in may_be])
    assert end == (found[-1] + 1 if found else 0), label
    assert list(verify(path)) == [], label
    with kts.Log(path, config(magic), clock=lambda: T) as log:
        assert log.clean_start and log.recovered == [], label
    return found


@pytest.mark.parametrize("magic", [1, 2])
def test_a_crash_at_any_operation_leaves_a_whole_log(magic: int, tmp_path: Path, rng: random.Random) -> None:
    path = grown(tmp_path / "made", magic)
    target = 25  # inside of a batch of the second segment or so
    may_be = allowed(path, target)
    system = FaultyOs(str(path.parent))
    with in_place_of_os(system):
        truncate_in_place(str(path), target, config(magic), clock=lambda: T)
    assert system.unrecorded() == []
    disk, seen, states, outcomes = system.disk(), set(), 0, set()
    for number, op in enumerate([None, *system.trace]):
        if op is not None:
            disk.step(op)
        for state in disk.states(rng, count=scaled(3, 6)):
            if state.digest() in seen:
                continue
            seen.add(state.digest())
            states += 1
            with quick_directory() as folder:
                root = os.path.join(folder, "root")
                write_tree(root, state.tree)
                outcomes.add(len(check_found(root, may_be, magic, (number, op and op.call, state.label))))
    assert outcomes == set(map(len, may_be)) and states > scaled(40, 50)
    print(f"{states} states after {len(system.trace)} operations")


@pytest.mark.parametrize("magic, code", [(1, errno.EIO), (2, errno.EIO), (2, errno.ENOSPC)])
def test_a_failure_of_any_operation_leaves_a_whole_log(
    magic: int, code: int, tmp_path: Path, rng: random.Random
) -> None:
    path = grown(tmp_path / "made", magic)
    may_be = allowed(path, 25)
    tree: Tree = read_tree(str(path.parent))
    at, failures = rng.randint(1, STEP), 0
    gc.collect()
    gc.freeze()  # what is there by now stays: later collections need not look at it
    while True:
        with quick_directory() as folder:
            root = os.path.join(folder, "root")
            write_tree(root, tree)
            system = FaultyOs(root, Fault(at, WRITING, code))
            with in_place_of_os(system):
                try:
                    truncate_in_place(os.path.join(root, "t-0"), 25, config(magic), clock=lambda: T)
                except LogStorageError as error:
                    assert error.errno == code
                    failures += 1
                gc.collect()  # what start-up had opened when it failed
            if not system.failed:
                break
            assert system.open_files() == []
            check_found(root, may_be, magic, (at, system.failed))
        at += STEP
    assert failures > 50 / STEP


def test_a_kill_leaves_a_whole_log(tmp_path: Path, rng: random.Random) -> None:
    path = grown(tmp_path / "made", 2)
    may_be = allowed(path, 25)
    tree = read_tree(str(path.parent))
    program = (
        "import sys\nfrom kts.offline.truncate import truncate_in_place\n"
        "print('ready', flush=True)\nsys.stdin.readline()\ntruncate_in_place(sys.argv[1], 25)\n"
    )
    for number in range(scaled(3, 8)):
        root = tmp_path / str(number)
        write_tree(str(root), tree)
        command = [sys.executable, "-c", program, str(root / "t-0")]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdin is not None and child.stdout is not None and child.stdout.readline() == "ready\n"
        child.stdin.write("\n")
        child.stdin.flush()
        time.sleep(rng.random() * 0.04)
        child.send_signal(signal.SIGKILL)
        child.wait(PATIENCE_S)
        child.stdin.close()
        child.stdout.close()
        check_found(str(root), may_be, 2, number)


def test_the_cut_segment_keeps_its_mode_and_time_and_nothing_is_left_over(tmp_path: Path) -> None:
    path = grown(tmp_path, 2)
    first = sorted(path.glob("*.log"))[0]
    first.chmod(0o640)
    os.utime(first, ns=(0, T * 1_000_000))
    data = first.read_bytes()
    plan = truncate_in_place(str(path), 4, config(2))
    assert (first.stat().st_mode & 0o777, first.stat().st_mtime_ns) == (0o640, T * 1_000_000)
    assert first.read_bytes() == data[: plan.cuts[0].position]
    names = {file.name for file in path.iterdir()}
    assert not [name for name in names if name.endswith((".cleaned", ".deleted"))]
    assert {int(name[:20]) for name in names if name[:20].isdigit()} == {0, plan.next_offset}


def test_the_marker_of_the_other_partitions_stays(tmp_path: Path) -> None:
    path = grown(tmp_path, 2)
    truncate_in_place(str(path), 4, config(2))
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with kts.Log(tmp_path / "other-0") as log:
        assert log.clean_start
    (tmp_path / ".kafka_cleanshutdown").unlink()  # the other one's last writer was killed
    truncate_in_place(str(path), 2, config(2))
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_log_that_begins_behind_the_offset_goes_as_a_whole_and_goes_on_there(tmp_path: Path) -> None:
    path = grown(tmp_path, 2)
    with kts.Log(path, config(2) | {"retention.bytes": 0, "file.delete.delay.ms": 0}, clock=lambda: T) as log:
        log.roll()
        log.delete_old_segments()
        start = log.log_start_offset
        assert start > 50
        log.append(kts.encode({"value": [b"x"]}))
    plan = truncate_in_place(str(path), 50, config(2))
    assert plan.next_offset == 50 and plan.records == 1
    with kts.Log(path, config(2)) as log:
        assert (log.log_start_offset, log.log_end_offset, log.clean_start) == (50, 50, True)
        assert [segment.base_offset for segment in log.segments] == [50]
    assert list(verify(str(path))) == []


def test_a_log_in_use_by_this_process_is_refused(tmp_path: Path) -> None:
    path = grown(tmp_path, 2)
    before = offsets(path)
    with kts.Log(path, config(2)), pytest.raises(kts.LogLockedError):
        truncate_in_place(str(path), 4, config(2))
    assert offsets(path) == before
