"""Files that get their place: old or new after any fault and any crash."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from support.disk.fault_attempts import Work, attempt, faults

from kts.errors import LogStorageError
from kts.store import local, publishing

OLD, NEW = b"old" * 50, b"new" * 400  # what `attempt` leaves in the file `old`, and what replaces it


def published(folder: str) -> None:
    publishing.publish(os.path.join(folder, "old"), NEW)


def published_in_steps(folder: str) -> None:
    """As a truncation does, in pieces and with a step between."""
    path = os.path.join(folder, "old")
    with publishing.unfinished(path, ".cleaned") as made:
        assert publishing.write_synced(made, [NEW[:700], b"", NEW[700:]]) == len(NEW)
        local.copy_mode(path, made)


WAYS = pytest.mark.parametrize("work", [published, published_in_steps], ids=lambda work: work.__name__)


@WAYS
def test_a_file_is_old_or_new_after_any_fault_and_any_crash(tmp_path: Path, rng: random.Random, work: Work) -> None:
    system, _ = attempt(tmp_path / "d", work, None)
    disk, found = system.disk(), set()
    for done in range(len(system.trace) + 1):
        found |= {state.tree.get("old") for state in disk.states(rng, count=50)}
        if done < len(system.trace):
            disk.step(system.trace[done])
    assert found == {OLD, NEW}
    assert {state.tree["old"] for state in disk.states(rng, count=50)} == {NEW}, "it returned, so it is safe"
    struck = 0
    for fault in faults(system):
        system, result = attempt(tmp_path / "d", work, fault)
        struck += bool(system.failed)
        assert (tmp_path / "d/old").read_bytes() in (OLD, NEW), fault
        assert system.open_files() == [] and system.unrecorded() == [], fault
        if isinstance(result, LogStorageError):
            assert (result.errno, result.path is None) == (fault.errno, False), fault
        else:
            assert (tmp_path / "d/old").read_bytes() == NEW, fault
    assert struck > 20


@WAYS
def test_a_failure_leaves_no_file_aside(tmp_path: Path, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").write_bytes(OLD)

    def fails(source: str, target: str) -> None:
        raise LogStorageError("no room", path=source)

    monkeypatch.setattr(local, "rename", fails)
    with pytest.raises(LogStorageError, match="no room"):
        work(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_new_file_replaces_none(tmp_path: Path) -> None:
    publishing.write_new(str(tmp_path / "a"), b"first")
    with pytest.raises(LogStorageError, match="opening failed: File exists"):
        publishing.write_new(str(tmp_path / "a"), b"second")
    assert (tmp_path / "a").read_bytes() == b"first"


def test_a_directory_is_whole_or_not_there_after_any_crash(tmp_path: Path, rng: random.Random) -> None:
    def work(folder: str) -> None:
        publishing.make_directories(folder, [made := os.path.join(folder, "made")])
        for name in "ab":
            publishing.write_new(os.path.join(made, name), name.encode())
        publishing.publish_directory(made, os.path.join(folder, "there"))

    system, _ = attempt(tmp_path / "d", work, None)
    disk = system.disk()
    for op in [*system.trace, None]:
        for state in disk.states(rng, count=50):
            names = sorted(name for name in state.tree if name.startswith("there"))
            assert names in ([], ["there", "there/a", "there/b"])
            assert [state.tree[name] for name in names[1:]] in ([], [b"a", b"b"])
        if op is not None:
            disk.step(op)
    assert names
