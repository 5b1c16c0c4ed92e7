"""The door to the file system when calls fail: one error class, no descriptor left open, old or new."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.disk.fault_attempts import Work, attempt, faults
from support.disk.faultfs import INTERRUPTED_CLOSES

from kts.errors import LogStorageError
from kts.segment import checkpoints
from kts.store import files, local
from kts.store.local import WritableFile


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


WORKS = (work_on_a_file, read_old)


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
        if fault == INTERRUPTED_CLOSES or fault.errno is None:
            assert result == flawless, f"{fault}: nothing was wrong with the disk"
        assert system.unrecorded() == []
    assert struck > 20
