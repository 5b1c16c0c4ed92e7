"""The commit checkpoint: what is written is read, damage is refused, readers see what it hides."""

from __future__ import annotations

from pathlib import Path

import pytest

import kts
from kts.segment.checkpoints import Checkpoints
from kts.segment.commits import FILE, Commits, PendingFile, PendingPartition, read_commits, write_commits

PENDING = PendingPartition("a", 3, 20, False, 4, [12, 900], [PendingFile("kts-commit-00000000-x", "x", 17)])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_commits(str(tmp_path)) == Commits()
    commits = Commits({"query": 7}, [PENDING])
    write_commits(str(tmp_path), commits)
    assert read_commits(str(tmp_path)) == commits
    assert commits.pending_of("a", 3) == PENDING
    assert commits.pending_of("a", 2) is None


def test_a_damaged_checkpoint_is_refused_whichever_byte_it_is(tmp_path: Path) -> None:
    write_commits(str(tmp_path), Commits({"query": 7}, [PENDING]))
    path = tmp_path / FILE
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(kts.LogStorageError, match="expected a commit checkpoint"):
            read_commits(str(tmp_path))


def test_a_reader_knows_the_checkpoint_again_until_it_changes(tmp_path: Path) -> None:
    reader = Checkpoints(str(tmp_path))
    none = reader.commits()
    assert reader.commits() is none
    write_commits(str(tmp_path), Commits({}, [PENDING]))
    pending = reader.commits()
    assert pending.pending == [PENDING]
    assert reader.commits() is pending
    write_commits(str(tmp_path), Commits())
    assert reader.commits() == Commits()
