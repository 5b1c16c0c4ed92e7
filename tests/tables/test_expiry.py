"""Expiry: old snapshots and what only they use; never what a branch, a tag or the next sync needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.tables import Filled, query

from kts.errors import LogStorageError
from kts.tables import expiry
from kts.tables.compaction import compact
from kts.tables.expiry import expire
from kts.tables.state import OFFSETS
from kts.times import wall_clock

HOUR_MS = 3_600_000


def all_old(filled: Filled, **more: Any) -> expiry.ExpiredSnapshots:
    return expire(filled.open(), older_than_ms=0, now_ms=wall_clock() + HOUR_MS, **more)


def test_old_snapshots_go_with_the_files_that_only_they_use(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=4)
    compact(filled.open())
    before = filled.files()
    planned = all_old(filled, dry_run=True)
    assert (len(planned.snapshots), planned.kept, planned.removed) == (4, 1, 0) and filled.files() == before
    done = all_old(filled)
    assert done.files == planned.files and done.removed == len(done.files) > 8
    gone = {file.removeprefix("file://") for file in done.files}
    assert before - filled.files() == gone and len(filled.table.snapshots()) == 1
    filled.check_each_once()
    assert filled.sync() == 0 and all_old(filled).snapshots == []
    filled.run()
    filled.check_each_once()


def test_the_young_and_the_newest_stay(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=4)
    assert expire(filled.open()).snapshots == []
    assert len(all_old(filled, keep=3, dry_run=True).snapshots) == 1
    assert expire(filled.open(), older_than_ms=2 * HOUR_MS, now_ms=wall_clock() + HOUR_MS).snapshots == []
    assert len(all_old(filled).snapshots) == 3


def test_what_a_branch_or_a_tag_shows_stays_readable(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=2)
    first, second = filled.table.snapshots()
    with filled.table.manage_snapshots() as change:
        change.create_tag(first.snapshot_id, "audit").create_branch(second.snapshot_id, "work")
    filled.run()
    filled.run()
    compact(filled.open())
    assert len(all_old(filled).snapshots) == 2
    assert filled.table.scan(snapshot_id=first.snapshot_id).to_arrow().num_rows == 20
    assert filled.table.scan(snapshot_id=second.snapshot_id).to_arrow().num_rows == 40
    filled.check_each_once()


@pytest.mark.parametrize("what", ["tag", "sync"])
def test_a_tag_or_a_commit_of_the_same_moment_makes_the_choice_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    filled = Filled(tmp_path, runs=3)
    first = filled.table.snapshots()[0].snapshot_id
    real = expiry._commit

    def commit(*given: Any) -> None:
        monkeypatch.setattr(expiry, "_commit", real)
        if what == "tag":
            with filled.table.manage_snapshots() as change:
                change.create_tag(first, "audit")
        else:
            filled.run()
        real(*given)

    monkeypatch.setattr(expiry, "_commit", commit)
    assert len(all_old(filled).snapshots) == (1 if what == "tag" else 3)
    assert what == "sync" or filled.table.scan(snapshot_id=first).to_arrow().num_rows == 20
    filled.check_each_once()


def test_a_server_is_asked_to_check_each_branch_and_tag(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=1)
    snapshot = filled.table.snapshots()[0].snapshot_id
    with filled.table.manage_snapshots() as change:
        change.create_tag(snapshot, "audit")
    metadata = filled.table.metadata
    sent = [json.loads(one.model_dump_json()) for one in expiry.requirements(metadata, checked_here=False)]
    assert sent == [
        {"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": snapshot},
        {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": snapshot},
    ]
    assert len(expiry.requirements(metadata, checked_here=True)) == 4


def test_the_snapshot_that_has_the_offsets_stays_and_those_between(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=3)
    for offset in (1, 2, 3):
        filled.table.delete(f"offset == {offset}")
    with filled.table.transaction() as change:
        change.remove_properties(OFFSETS, "kts.snapshot")
    assert len(all_old(filled).snapshots) == 2
    assert not filled.open().lost and filled.sync() == 0
    assert query([f for f in filled.files() if f.endswith(".parquet")], "SELECT count(*) > 0 FROM rows") == [(True,)]


def test_a_commit_of_unknown_outcome_removes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = Filled(tmp_path, runs=3)
    before = filled.files()

    def commit(*_: Any) -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr(expiry, "_commit", commit)
    with pytest.raises(LogStorageError, match="no answer"):
        all_old(filled)
    assert filled.files() == before
