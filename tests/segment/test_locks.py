"""Locks on files, as Java takes them, and locks in forked processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kts.errors import LogLockedError
from kts.segment.locks import FileLock, new_in_children
from kts.store.source import files

OTHER = """
import sys
from kts.errors import LogLockedError
from kts.segment.locks import FileLock
try:
    FileLock(sys.argv[1], "other")
except LogLockedError as error:
    print(error)
else:
    print("got it")
"""


def from_another_process(path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", OTHER, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.slow
def test_a_lock_keeps_other_processes_away_until_its_last_owner_gives_it_back(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    one, two = FileLock(str(path), "t-0"), FileLock(str(path), "t-1")
    with pytest.raises(LogLockedError, match="t-0 is already open for writing in this process"):
        FileLock(str(path), "t-0")
    assert re.search("another process.* holds the lock", from_another_process(path))
    one.release()
    one.release()
    assert re.search("another process.* holds the lock", from_another_process(path))
    two.release()
    assert from_another_process(path) == "got it"
    with FileLock(str(path), "t-0"):
        pass


def test_a_lock_that_a_dead_process_had_is_free(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    holder = "from kts.segment.locks import FileLock; import sys; FileLock(sys.argv[1], 'x'); print(1, flush=True)"
    command = [sys.executable, "-c", f"{holder}; sys.stdin.read()", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            with pytest.raises(LogLockedError):
                FileLock(str(path), "t-0")
        finally:
            process.kill()
    with FileLock(str(path), "t-0"):
        assert files.size_of(str(path)) == 0


def test_a_forked_child_has_new_locks_whatever_its_parent_held() -> None:
    """No thread of the parent lives on in the child to release them."""

    class Owner:
        lock: threading.Lock

    owner = Owner()
    new_in_children(owner, lock=threading.Lock)
    with owner.lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if owner.lock.acquire(blocking=False) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not owner.lock.acquire(blocking=False)  # the parent's own is as it was


def test_a_forked_child_does_not_have_its_parents_file_lock(tmp_path: Path) -> None:
    with FileLock(str(tmp_path / ".lock"), "t-0"):
        child = os.fork()
        if child == 0:
            try:
                FileLock(str(tmp_path / ".lock"), "t-1")
            except LogLockedError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
