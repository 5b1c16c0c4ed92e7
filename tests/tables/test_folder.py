"""Parquet folders: a commit that is interrupted anywhere is done later or not at all."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from kts.errors import InvalidRequestError, LogLockedError, LogStorageError
from kts.model import TopicPartition
from kts.segment import files
from kts.tables.folder import Aside, FolderTable, write_aside
from kts.tables.rows import table_schema

NAME = TopicPartition("t", 0)
DAYS = [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2), None]


def rows(*offsets: int) -> pa.Table:
    """Each in another day than the one before."""
    each = {"topic": "t", "partition": 0, "value": b"v"}
    return pa.Table.from_pylist([each | {"offset": n, "day": DAYS[n % 3]} for n in offsets], schema=table_schema())


def found(folder: Path) -> list[tuple[Any, ...]]:
    """What DuckDB sees: offset and day."""
    if not list(folder.glob("*/*.parquet")):
        return []
    return duckdb.sql(f"""SELECT "offset", day FROM '{folder}/*/*.parquet' ORDER BY "offset" """).fetchall()


def test_days_are_folders_and_offsets_are_kept(tmp_path: Path) -> None:
    one = FolderTable(str(tmp_path / "t"), table_schema())
    one.append(rows(0, 1), {NAME: 2})
    one.append(rows(2, 3), {NAME: 4})
    assert found(tmp_path / "t") == [(number, DAYS[number % 3]) for number in range(4)]
    assert FolderTable(str(tmp_path / "t"), table_schema()).offsets == {NAME: 4}
    assert sorted(os.listdir(tmp_path / "t" / "_kts")) == ["ledger.json", "lock"]


class Crash(BaseException):
    pass


def counted_down(left: list[int], real: Callable[..., Any], *given: Any, **more: Any) -> Any:
    """The call, unless there were as many before as may be."""
    left[0] -= 1
    if left[0] < 0:
        raise Crash
    return real(*given, **more)


def test_a_commit_that_ends_before_any_change_of_the_folder_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rename, sync and write of a commit is the last thing that a process does, once."""
    calls = ["rename", "sync_directory", "write_atomically", "make_directory", "remove"]
    places = 0
    for place in range(100):
        folder = tmp_path / str(place)
        FolderTable(str(folder), table_schema()).append(rows(0, 1), {NAME: 2})
        one, left = FolderTable(str(folder), table_schema()), [place]
        with monkeypatch.context() as crashing:
            for name in calls:
                crashing.setattr(files, name, partial(counted_down, left, getattr(files, name)))
            try:
                one.append(rows(2, 3, 4), {NAME: 5})
            except Crash:
                places += 1
        seen = [offset for offset, _ in found(folder)]
        assert len(seen) == len(set(seen))
        again = FolderTable(str(folder), table_schema())
        expected = list(range(again.offsets[NAME]))
        assert [offset for offset, _ in found(folder)] == expected and expected in ([0, 1], [0, 1, 2, 3, 4])
        if left[0] >= 0:
            break
    assert places > 6, "the last one ran to its end"


def test_of_two_programs_that_add_at_the_same_time_one_is_refused(tmp_path: Path) -> None:
    one, other = (FolderTable(str(tmp_path / "t"), table_schema()) for _ in range(2))
    one.append(rows(0), {NAME: 1})
    with pytest.raises(LogLockedError, match="another program has added records meanwhile"):
        other.append(rows(0), {NAME: 1})
    assert [offset for offset, _ in found(tmp_path / "t")] == [0]


def test_what_attempts_that_failed_wrote_aside_is_never_seen(tmp_path: Path) -> None:
    one = FolderTable(str(tmp_path / "t"), table_schema())

    def write(own: str) -> list[Aside]:
        write_aside(own, rows(0, 1))
        assert found(tmp_path / "t") == []
        return write_aside(own, rows(0, 1, 3))

    assert [given[1:] for given in one.commit(write, {NAME: 4})] == [(DAYS[0], 2, 2), (DAYS[1], 1, 1)]
    assert [offset for offset, _ in found(tmp_path / "t")] == [0, 1, 3]
    assert sorted(os.listdir(tmp_path / "t" / "_kts")) == ["ledger.json", "lock"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_write_that_does_not_end_leaves_nothing_aside(tmp_path: Path, error: type[BaseException]) -> None:
    one = FolderTable(str(tmp_path / "t"), table_schema())

    def write(own: str) -> list[Aside]:
        write_aside(own, rows(0))
        raise error

    with pytest.raises(error):
        one.commit(write, {NAME: 1})
    assert os.listdir(tmp_path / "t" / "_kts") == ["lock"]


def test_a_file_of_another_process_that_is_not_there_makes_no_commit(tmp_path: Path) -> None:
    one = FolderTable(str(tmp_path / "t"), table_schema())
    with pytest.raises(LogStorageError, match="expected a file that another process wrote, found none.* shared mount"):
        one.commit(lambda own: [*write_aside(own, rows(0)), Aside("0" * 32, None, 1, 0)], {NAME: 2})
    assert FolderTable(str(tmp_path / "t"), table_schema()).offsets == {} and found(tmp_path / "t") == []
    assert sorted(os.listdir(tmp_path / "t" / "_kts")) == ["lock"]


def test_nobody_else_opens_the_folder_while_files_are_written_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = FolderTable(str(tmp_path / "t"), table_schema())
    (tmp_path / "link").symlink_to("t")
    monkeypatch.chdir(tmp_path)

    def write(own: str) -> list[Aside]:
        written = write_aside(own, rows(0))
        for name in ("t", "./link", str(tmp_path / "t")):
            with pytest.raises(LogLockedError):
                FolderTable(name, table_schema())
        return written

    one.commit(write, {NAME: 1})
    assert [offset for offset, _ in found(tmp_path / "t")] == [0]


def test_a_folder_whose_ledger_is_lost_is_refused(tmp_path: Path) -> None:
    """Else all records would be added again, into files of the same names."""
    FolderTable(str(tmp_path / "t"), table_schema()).append(rows(0), {NAME: 1})
    (tmp_path / "t" / "_kts" / "ledger.json").unlink()
    with pytest.raises(LogStorageError, match="expected the ledger of the days that are there, found none"):
        FolderTable(str(tmp_path / "t"), table_schema())


def test_a_folder_has_an_address_and_a_bucket_is_refused(tmp_path: Path) -> None:
    FolderTable(f"file://{tmp_path}/t", table_schema()).append(rows(0), {NAME: 1})
    assert [offset for offset, _ in found(tmp_path / "t")] == [0]
    with pytest.raises(ValueError, match="a Parquet folder lies on a disk, .* found s3://lake/t: name an Iceberg"):
        FolderTable("s3://lake/t", table_schema())


def test_other_columns_and_a_malformed_ledger_are_refused(tmp_path: Path) -> None:
    one = FolderTable(str(tmp_path / "t"), table_schema())
    one.append(rows(0), {NAME: 1})
    with pytest.raises(InvalidRequestError, match="expected the column value of type string, found .* of type binary"):
        FolderTable(str(tmp_path / "t"), table_schema(pa.string()))
    whole = '{"number":1,"offsets":%s,"files":{}}'
    for wrong in ("{", "[]", "{}", whole % "[]", whole % "{}"):
        (tmp_path / "t" / "_kts" / "ledger.json").write_text(wrong)
        with pytest.raises(LogStorageError, match="expected the ledger of a table"):
            FolderTable(str(tmp_path / "t"), table_schema())
