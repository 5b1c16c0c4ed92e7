"""What upkeep sees of a table: what it uses, what is there, and which snapshots must stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tables import Filled

from kts.errors import LogStorageError
from kts.tables.upkeep import Upkeep, path_of


def test_paths_have_one_spelling() -> None:
    assert [path_of(one) for one in ("/a//b/", "//a/b", "bucket/a/./b", "/a/b")] == [
        "/a/b",
        "/a/b",
        "bucket/a/b",
        "/a/b",
    ]


def test_a_table_that_is_not_there_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such file of a catalog"):
        Upkeep("lake.db.rows", tmp_path / "c.sqlite")
    assert list(tmp_path.iterdir()) == []
    Filled(tmp_path, runs=1)
    with pytest.raises(FileNotFoundError, match="there is no such table in the catalog"):
        Upkeep("lake.db.others", tmp_path / "c.sqlite")
    with pytest.raises(ValueError, match="table: expected catalog, namespace and name"):
        Upkeep("rows", tmp_path / "c.sqlite")


def test_listed_files_are_those_that_are_there_and_what_is_removed_is_counted_once(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=2)
    there = filled.open()
    assert {*there.listing()} == filled.files()
    used = [path for path, _ in there.versions()]
    assert len(used) == 3 and all(there.is_there(path) and there.key(path) in there.listing() for path in used)
    extra = Path(tmp_path, "warehouse/db/rows/data/x")
    extra.touch()
    assert there.remove([str(extra), str(extra)]) == 1 and not extra.exists()


def test_an_earlier_metadata_file_that_cannot_be_read_is_an_error_and_one_that_is_gone_is_not(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=2)
    there = filled.open()
    first = Path(there.metadata.metadata_log[0].metadata_file.removeprefix("file://"))
    first.write_text("{")
    with pytest.raises(LogStorageError):
        list(there.versions())
    first.unlink()
    assert [metadata is None for _, metadata in there.versions()] == [False, False, True]
