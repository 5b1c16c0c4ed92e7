"""What partitions of one log directory share: lock, marker of a clean shutdown, checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.sets.log_records import NOW, Clock, batch, opened

import kts

MARKER = ".kafka_cleanshutdown"
SECOND = """
import sys, kts
try:
    kts.Log(sys.argv[1])
except kts.LogLockedError as error:
    print(error)
    raise SystemExit(7)
"""


def checkpoint(folder: Path, name: str) -> list[str]:
    lines = (folder / name).read_text().splitlines()
    assert lines[:2] == ["0", str(len(lines) - 2)]
    return lines[2:]


@pytest.mark.slow
def test_a_second_writer_is_refused_here_and_in_another_process(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        with pytest.raises(kts.LogLockedError, match="t-0"):
            opened(tmp_path)
        other = opened(tmp_path, name="t-1")
        done = subprocess.run([sys.executable, "-c", SECOND, tmp_path / "t-2"], capture_output=True, text=True)
        assert done.returncode == 7, done.stderr
        assert ".lock" in done.stdout and str(os.getpid()) in done.stdout
        other.close()
        done = subprocess.run([sys.executable, "-c", SECOND, tmp_path / "t-2"], capture_output=True, text=True)
        assert done.returncode == 7, "one of two partitions is still open"
        log.append(batch(NOW))
    done = subprocess.run([sys.executable, "-c", SECOND, tmp_path / "t-2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    opened(tmp_path).close()


def test_the_marker_goes_at_open_and_comes_back_with_its_bytes_when_all_is_clean(tmp_path: Path) -> None:
    for name in ("t-0", "u-1"):
        (tmp_path / name).mkdir()
    one, two = opened(tmp_path), opened(tmp_path, name="u-1")
    assert (one.clean_start, two.clean_start) == (False, False)
    one.close()
    assert not (tmp_path / MARKER).exists()
    two.close()
    assert (tmp_path / MARKER).read_bytes() == b""
    (tmp_path / MARKER).write_bytes(b'{"version":0,"brokerEpoch":6}')
    one = opened(tmp_path)
    assert one.clean_start
    assert not (tmp_path / MARKER).exists()
    two = opened(tmp_path, name="u-1")
    assert two.clean_start
    two.close()
    one.close()
    assert (tmp_path / MARKER).read_bytes() == b'{"version":0,"brokerEpoch":6}'


def test_no_marker_while_one_partition_is_in_doubt(tmp_path: Path) -> None:
    (tmp_path / "unknown-0").mkdir()
    opened(tmp_path).close()
    assert not (tmp_path / MARKER).exists()
    (tmp_path / "unknown-0").rmdir()
    one, two = opened(tmp_path), opened(tmp_path, name="u-1")
    one.abandon()
    two.close()
    assert not (tmp_path / MARKER).exists()
    with opened(tmp_path) as again:
        assert not again.clean_start


def test_checkpoints_have_a_line_each_and_those_of_others_stay(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\nother 3 77\nt 0 5\n")
    with opened(tmp_path, clock) as log:
        for _ in range(10):
            log.append(batch(NOW))
        log.advance_high_watermark(9)
        log.advance_log_start_offset(4)
        first = log.segments[0].base_offset
        assert first < 4
    assert checkpoint(tmp_path, "recovery-point-offset-checkpoint") == ["other 3 77", "t 0 10"]
    assert checkpoint(tmp_path, "replication-offset-checkpoint") == ["t 0 9"]
    assert checkpoint(tmp_path, "log-start-offset-checkpoint") == ["t 0 4"]
    with opened(tmp_path, clock) as log:
        assert log.log_start_offset == 4
        log.truncate_fully_and_start_at(20)
    assert checkpoint(tmp_path, "log-start-offset-checkpoint") == []
    with opened(tmp_path, clock, name="old-0", generation="0.10.2") as log:
        log.append(batch(NOW, magic=1))
    assert checkpoint(tmp_path, "recovery-point-offset-checkpoint") == ["other 3 77", "t 0 20", "old 0 1"]


def test_a_recovery_point_is_checkpointed_once_a_minute_and_before_a_cut(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock) as log:
        for _ in range(8):
            log.append(batch(NOW))
        log.flush()
        assert not (tmp_path / "recovery-point-offset-checkpoint").exists()
        clock.now += 60_000
        log.append(batch(NOW))
        log.flush()
        assert checkpoint(tmp_path, "recovery-point-offset-checkpoint") == ["t 0 9"]
        log.truncate_to(3)
        assert checkpoint(tmp_path, "recovery-point-offset-checkpoint") == ["t 0 3"]


def test_a_fork_of_the_writer_can_neither_append_nor_close(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append(batch(NOW))
        child = os.fork()
        if child == 0:  # no more than what must be tried: this is a copy of pytest
            outcome = 1
            try:
                log.close()
                log.append(batch(NOW))
            except kts.LogClosedError as error:
                outcome = 0 if f"process {os.getppid()} has open" in str(error) else 2
            finally:
                os._exit(outcome)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not (tmp_path / MARKER).exists()
        log.append(batch(NOW))
    with opened(tmp_path) as log:
        assert log.clean_start
        assert log.log_end_offset == 2
