"""Orphans: what nothing uses, and never a file that a snapshot, a ref or a running commit uses."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.tables import Filled

from kts.errors import LogStorageError
from kts.tables import sync
from kts.tables.compaction import compact
from kts.tables.expiry import expire
from kts.tables.orphans import YOUNGEST_MS, orphans
from kts.times import wall_clock

DAY_MS = 86_400_000


def age(filled: Filled, days: float) -> None:
    """Let the table's files be of that age."""
    then = time.time() - days * 86_400
    for file in filled.files():
        os.utime(file, (then, then))


def left_behind(filled: Filled, days: float) -> set[str]:
    """Files as killed runs leave them."""
    found = set()
    for name in ("data/day=2026-01-01/00000-0-x.parquet", "metadata/x-m0.avro", "metadata/snap-1-0-x.avro"):
        path = filled.folder / "warehouse/db/rows" / name
        path.write_bytes(b"x" * 10)
        os.utime(path, (time.time() - days * 86_400,) * 2)
        found.add(str(path))
    return found


def test_what_killed_runs_left_goes_and_nothing_else(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=3)
    used = filled.files()
    age(filled, 9)
    left = left_behind(filled, 4)
    planned = orphans(filled.open(), dry_run=True)
    assert {one.path for one in planned.files} == left and planned.removed == 0 and left < filled.files()
    done = orphans(filled.open())
    assert (done.removed, done.used, done.too_young) == (3, len(used), 0) and filled.files() == used
    filled.check_each_once()
    assert sum(one.bytes for one in done.files) == 30


def test_younger_files_are_never_orphans(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=1)
    left_behind(filled, 2.9)
    done = orphans(filled.open())
    assert (done.files, done.too_young) == ([], 3)
    with pytest.raises(ValueError, match="older_than: expected at least 3d"):
        orphans(filled.open(), older_than_ms=YOUNGEST_MS - 1)


def test_files_of_expired_snapshots_stay_while_a_listed_metadata_version_names_them(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=3)
    there = filled.table
    others = [one.snapshot_id for one in there.snapshots()[:-1]]
    compact(filled.open())
    there = filled.table
    there.maintenance.expire_snapshots().by_ids(others).commit()  # as other programs do: the files stay
    age(filled, 9)
    assert orphans(filled.open()).files == []
    with filled.table.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "1"})
    with filled.table.transaction() as change:
        change.set_properties({"n": "1"})
    age(filled, 9)
    used = filled.files()
    done = orphans(filled.open())
    assert done.removed > 5 and filled.files() == used - {one.path for one in done.files}
    filled.check_each_once()
    assert filled.sync() == 0


def test_what_tags_branches_and_expiry_leave_is_used(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=2)
    first = filled.table.snapshots()[0].snapshot_id
    with filled.table.manage_snapshots() as change:
        change.create_tag(first, "audit")
    filled.run()
    compact(filled.open())
    expire(filled.open(), older_than_ms=0, now_ms=wall_clock() + DAY_MS)
    age(filled, 9)
    left = left_behind(filled, 9)
    assert {one.path for one in orphans(filled.open()).files} == left
    assert filled.table.scan(snapshot_id=first).to_arrow().num_rows == 20
    filled.check_each_once()


def test_a_table_in_the_location_of_another_is_refused(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=1)
    sync(tmp_path / "logs", "lake.db.other", catalog=filled.catalog)
    assert orphans(filled.open()).files == []
    inside = f"{filled.table.location()}/data/inner"
    there = filled.open()
    there.catalog.create_table("db.inner", filled.table.schema(), location=inside)
    with pytest.raises(LogStorageError, match="and that of the table db.inner, .* lie in each other"):
        orphans(filled.open())


def test_a_listing_that_lacks_used_files_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = Filled(tmp_path, runs=1)
    age(filled, 9)
    before = filled.files()
    there = filled.open()
    real = there.listing()
    monkeypatch.setattr(there, "listing", lambda: {path.replace("/db/", "/DB/"): one for path, one in real.items()})
    with pytest.raises(LogStorageError, match="what is used cannot be told; nothing was removed"):
        orphans(there)
    assert filled.files() == before
