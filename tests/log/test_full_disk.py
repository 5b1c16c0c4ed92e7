"""A disk that is really full: 20 times filled and freed, on a small tmpfs and with a limit to the length of files."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support import TESTS
from support.golden import PATIENCE_S

pytestmark = pytest.mark.slow

SCRIPT = TESTS / "support/disk/full_disk.py"


def mounting() -> list[str] | None:
    """What runs a command where it may mount, without anyone outside seeing it; None if nothing does."""
    for way in (["unshare", "-rm"], ["unshare", "-m"], ["sudo", "-n", "unshare", "-m"]):
        try:
            tried = subprocess.run(
                [*way, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, timeout=PATIENCE_S
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if tried.returncode == 0:
            return way
    return None


def check(done: subprocess.CompletedProcess[str]) -> None:
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("full 20 times")


def test_twenty_times_full_and_freed_no_acknowledged_record_is_lost(tmp_path: Path, seed: int) -> None:
    way = mounting()
    if way is None:
        pytest.skip("no way to mount a tmpfs: neither `unshare -rm` nor `unshare -m` nor `sudo unshare -m` may")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    run = [f"PYTHONPATH={TESTS}", f"KTS_SEED={seed}", sys.executable, str(SCRIPT), str(tmp_path)]
    check(subprocess.run([*way, "sh", "-c", f"{shlex.join(mount)} && env {shlex.join(run)}"], **_PIPES))


def test_files_that_may_not_grow_fail_the_append_and_nothing_else(tmp_path: Path, seed: int) -> None:
    run = ["env", f"PYTHONPATH={TESTS}", f"KTS_SEED={seed}", sys.executable, str(SCRIPT), str(tmp_path), "70000"]
    check(subprocess.run(run, **_PIPES))


_PIPES: dict[str, object] = {"capture_output": True, "text": True}
