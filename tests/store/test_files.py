"""The door to the file system when calls fail: one error class, no descriptor left open, old or new."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.disk.faultfs import READING, WRITING, Fault, FaultyOs
from support.disk.lives import in_place_of_os

from kts.errors import LogStorageError
from kts.segment import checkpoints
from kts.store import files, local
from kts.store.local import WritableFile

Work = Callable[[str], object]


def rewrite(folder: str) -> object:
    return files.write_atomically(os.path.join(folder, "old"), b"new" * 400)


def work_on_a_file(folder: str) -> object:
    path = os.path.join(folder, "sub", "a")
    local.make_directory(os.path.dirname(path))
    with WritableFile(path, new=True) as file:
        file.write(b"abcdefgh" * 200, 0)
        file.write(b"xyz", 1600)
        file.truncate(1602)
        file.sync()
        found = file.read(0, 2000)
        buffer = bytearray(10)
        file.read_into(memoryview(buffer), 1596)
        size = file.size()
    local.sync_directory(os.path.dirname(path))
    local.set_modified_ms(path, 5_000)
    facts = found, bytes(buffer), size, files.modified_ms(path), files.size_of(path), files.read_bytes(path)
    names = [entry.name for entry in files.list_directory(os.path.dirname(path))]
    local.rename(path, path + ".deleted")
    files.remove(path + ".deleted")
    files.remove(path + ".deleted", missing_ok=True)
    local.remove_directory(os.path.dirname(path))
    return facts, names, files.exists(path), files.exists(folder)


def read_old(folder: str) -> object:
    return files.read_used(os.path.join(folder, "old"), 3), checkpoints.read_checkpoint(os.path.join(folder, "old"))


WORKS = (rewrite, work_on_a_file, read_old)
ERRNOS = (errno.EIO, errno.ENOSPC, errno.EINTR)


def attempt(folder: Path, work: Work, fault: Fault | None) -> tuple[FaultyOs, object]:
    """The result of some work in a fresh directory, or the error it raised."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "old").write_bytes(b"old" * 50)
    system = FaultyOs(str(folder), fault)
    with in_place_of_os(system):
        try:
            result = work(str(folder))
        except LogStorageError as error:
            result = error
    return system, result


def faults(system: FaultyOs) -> Iterator[Fault]:
    """Every fault at every call that a flawless run made."""
    for which in (WRITING, READING):
        count = sum(name in which for name in system.calls)
        for at in range(1, count + 1):
            for number in ERRNOS:
                yield Fault(at, which, number)
            yield Fault(at, which, errno.EIO, lasting=True)
    for name in ("pwrite", "pread", "preadv"):
        for at in range(1, system.calls.count(name) + 1):
            yield Fault(at, frozenset({name}), short=True)
            yield Fault(at, frozenset({name}), errno.ENOSPC, short=True)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_a_fault_at_any_call_is_a_storage_error_with_its_errno_or_nothing(tmp_path: Path, work: Work) -> None:
    system, flawless = attempt(tmp_path / "d", work, None)
    assert not isinstance(flawless, LogStorageError) and system.open_files() == []
    struck = 0
    for fault in faults(system):
        system, result = attempt(tmp_path / "d", work, fault)
        struck += bool(system.failed)
        assert system.open_files() == [], fault
        if isinstance(result, LogStorageError):
            assert (result.errno, result.path is None) == (fault.errno, False), fault
        else:
            assert result == flawless, fault
        if fault.errno == errno.EINTR and not fault.lasting or fault.errno is None:
            assert result == flawless, f"{fault}: nothing was wrong with the disk"
        assert system.unrecorded() == []
    assert struck > 20


def test_a_file_rewritten_whole_is_old_or_new_after_any_fault_and_any_crash(tmp_path: Path, rng: random.Random) -> None:
    old, new = b"old" * 50, b"new" * 400
    system, _ = attempt(tmp_path / "d", rewrite, None)
    disk, found = system.disk(), set()
    for done in range(len(system.trace) + 1):
        found |= {state.tree.get("old") for state in disk.states(rng, count=50)}
        if done < len(system.trace):
            disk.step(system.trace[done])
    assert found == {old, new}
    assert {state.tree["old"] for state in disk.states(rng, count=50)} == {new}, "it returned, so it is safe"
    for fault in faults(system):
        attempt(tmp_path / "d", rewrite, fault)
        assert (tmp_path / "d/old").read_bytes() in (old, new), fault
