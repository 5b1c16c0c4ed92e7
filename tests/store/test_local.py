"""Files of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kts.errors import LogStorageError
from kts.store import local


def test_a_directory_that_another_process_makes_meanwhile_is_fine_and_a_file_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, mkdir = tmp_path / "made", os.mkdir

    def late(path: str) -> None:
        made.mkdir() if path == str(made) else Path(path).write_bytes(b"")
        mkdir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", lambda path, *given: mkdir(path, *given) if given else late(path))
        local.make_directory(str(made))
        with pytest.raises(LogStorageError, match="making the directory failed: expected a directory, found a file"):
            local.make_directory(str(tmp_path / "file"))
    assert made.is_dir()


def test_a_file_that_keeps_what_it_read_answers_as_one_that_does_not(tmp_path: Path) -> None:
    path, data = tmp_path / "a", os.urandom(3 * local.KEPT_BYTES)
    path.write_bytes(data)
    with local.RereadFile(str(path)) as file:
        for position in (0, 5, local.KEPT_BYTES - 10, 7, 2 * local.KEPT_BYTES, len(data) - 3, len(data)):
            for count in (1, 100, local.KEPT_BYTES, local.KEPT_BYTES + 1):
                buffer = bytearray(count)
                found = file.read_into(memoryview(buffer), position)
                assert file.read(position, count) == data[position : position + count] == buffer[:found]


def test_a_range_that_was_revoked_sends_and_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    lent = local.FileRange(local.File(str(tmp_path / "a")), 2, 5)
    assert lent.read() == b"23456" and lent.read(3, 9) == b"56"
    lent.revoke()
    assert os.pread(lent.fileno(), 10, 0) == b""
    with pytest.raises(LogStorageError, match="expected 5 bytes at 2, found a file that was cut meanwhile"):
        lent.read()
    lent.close()
