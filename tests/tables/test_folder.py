"""Parquet folders: a commit that is interrupted anywhere is done later or not at all."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kts.errors import InvalidRequestError, KtsWarning, LogLockedError, LogStorageError
from kts.model import TopicPartition
from kts.store import local, publishing
from kts.store.source import files
from kts.tables.folder import Aside, FolderTable, write_aside
from kts.tables.rows import fitted, table_schema

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


@pytest.mark.slow
def test_a_commit_that_ends_before_any_change_of_the_folder_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rename, sync and write of a commit is the last thing that a process does, once."""
    calls = [(local, name) for name in ("rename", "sync_directory", "make_directory")]
    calls += [(publishing, "publish"), (files, "remove")]
    places = 0
    for place in range(100):
        folder = tmp_path / str(place)
        FolderTable(str(folder), table_schema()).append(rows(0, 1), {NAME: 2})
        one, left = FolderTable(str(folder), table_schema()), [place]
        with monkeypatch.context() as crashing:
            for module, name in calls:
                crashing.setattr(module, name, partial(counted_down, left, getattr(module, name)))
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
    ledger = tmp_path / "t" / "_kts" / "ledger.json"
    sound = json.loads(ledger.read_text())
    texts = ["", "{", "[]", "{}", "[" * 100_000, '{"number": 1, "number": 1}']
    for wrong in [*texts, *(json.dumps(sound | one) for one in WRONG)]:
        ledger.write_text(wrong)
        with pytest.raises(LogStorageError, match="expected the ledger of the table, found another: .*ledger.json"):
            FolderTable(str(tmp_path / "t"), table_schema())
    ledger.write_text(json.dumps({name: value for name, value in sound.items() if name != "version"}))
    assert FolderTable(str(tmp_path / "t"), table_schema()).offsets == {NAME: 1}, "as earlier releases wrote it"


HEX, OTHER = "0" * 32, "1" * 32
PART = "day=2026-01-01/part-00000001-0000.parquet"
WRONG: list[dict[str, Any]] = [
    {"version": 2}, {"version": "1"}, {"version": True}, {"number": -1}, {"number": 2**63}, {"number": "1"},
    {"number": 1.0}, {"number": None}, {"offsets": []}, {"offsets": {"t": {"0": -1}}}, {"offsets": {"a/b": {"0": 1}}},
    {"topicIds": []}, {"topicIds": {"t": "x"}}, {"columns": []}, {"columns": {"topic": 1}}, {"columns": None},
    {"files": []}, {"files": {"../../x": PART}}, {"files": {"ledger.json": PART}}, {"files": {HEX.upper() + "A": PART}},
    {"files": {HEX: "../x"}}, {"files": {HEX: 5}}, {"files": {HEX: "/etc/x"}}, {"files": {HEX: PART, OTHER: PART}},
    *({"files": {HEX: PART.replace("2026-01-01", day)}} for day in ("..", ".", "", "2026-13-01", "2026-01-01/..", "x")),
    *({"files": {HEX: PART.replace("00000001", number)}} for number in ("1", "00000002", "0000000a", "")),
    *({"files": {HEX: PART + end}} for end in ("/../../x", "\n", ".x")),
]  # fmt: skip


def test_a_ledger_moves_and_removes_no_file_of_others(tmp_path: Path) -> None:
    """Whoever gives a folder away may have written into its ledger whatever they like, and left links."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "part-00000001-0000.parquet").write_text("precious")
    (home / HEX).write_text("mine")
    before = {path.name: path.read_text() for path in home.iterdir()}

    def folder(name: str, **told: Any) -> Path:
        made = tmp_path / name
        FolderTable(str(made), table_schema()).append(rows(1), {NAME: 2})
        ledger = made / "_kts" / "ledger.json"
        ledger.write_text(json.dumps(json.loads(ledger.read_text()) | told))
        return made

    pending = {"files": {HEX: PART}}
    made = folder("day", **pending)
    (made / "_kts" / HEX).write_text("theirs")
    (made / "day=2026-01-01").symlink_to(home)
    loops = folder("loops", **pending)
    (loops / "_kts" / HEX).write_text("theirs")
    (loops / "day=2026-01-01").symlink_to("day=2026-01-01")
    own = folder("own")
    shutil.rmtree(own / "_kts")
    (own / "_kts").symlink_to(home)
    links = []
    for name in ("ledger.json", "ledger.json.tmp", "lock", HEX):
        links.append(folder(f"link {name}", **pending))
        (links[-1] / "_kts" / name).unlink(missing_ok=True)
        (links[-1] / "_kts" / name).symlink_to(home / HEX)
    over = folder("over", number=1, files={HEX: "day=2026-01-02/part-00000001-0000.parquet"})
    (over / "_kts" / HEX).write_text("theirs")
    for table in (made, loops, own, *links, over):
        with pytest.raises(
            LogStorageError,
            match="expected a (directory|file), found |expected no file of this name yet|Too many levels",
        ):
            FolderTable(str(table), table_schema())
        assert {path.name: path.read_text() for path in home.iterdir()} == before
    assert found(over) == [(1, DAYS[1])]
    with pytest.raises(LogStorageError, match="expected a directory, found a link that leads out of the table"):
        FolderTable(str(own), table_schema(), stated=True)


def test_files_in_kts_of_other_names_are_left_alone(tmp_path: Path) -> None:
    FolderTable(str(tmp_path / "t"), table_schema()).append(rows(0), {NAME: 1})
    (tmp_path / "t" / "_kts" / "notes.txt").write_text("mine")
    (tmp_path / "t" / "_kts" / HEX).write_text("of an attempt that was killed")
    FolderTable(str(tmp_path / "t"), table_schema()).append(rows(1), {NAME: 2})
    assert sorted(os.listdir(tmp_path / "t" / "_kts")) == ["ledger.json", "lock", "notes.txt"]


def test_a_ledger_older_than_the_files_is_refused(tmp_path: Path) -> None:
    """By its offsets the same records would come again, whatever days they go to."""
    table, ledger = tmp_path / "t", tmp_path / "t" / "_kts" / "ledger.json"
    FolderTable(str(table), table_schema()).append(rows(0), {NAME: 1})
    old = ledger.read_bytes()
    FolderTable(str(table), table_schema()).append(rows(1, 3), {NAME: 4})
    new = json.loads(ledger.read_text())
    ledger.write_bytes(old)
    with pytest.raises(LogStorageError, match="found another: it is of commit 1, and there are files of commit 2: put"):
        FolderTable(str(table), table_schema())
    ledger.write_text(json.dumps(new | {"offsets": {}}))
    with pytest.raises(LogStorageError, match="found another: it has no offsets, and there are files of commit 2: put"):
        FolderTable(str(table), table_schema())
    ledger.write_text(json.dumps(new))
    FolderTable(str(table), table_schema()).append(rows(6), {NAME: 7})
    assert [offset for offset, _ in found(table)] == [0, 1, 3, 6]


def test_offsets_that_are_stated_go_on_without_replacing_files(tmp_path: Path) -> None:
    table, ledger = tmp_path / "t", tmp_path / "t" / "_kts" / "ledger.json"
    for number in range(3):
        FolderTable(str(table), table_schema()).append(rows(3 * number), {NAME: number + 1})
    ledger.unlink()
    one = FolderTable(str(table), table_schema(), stated=True)
    assert one.lost and one.offsets == {}
    one.append(rows(9), {NAME: 10})
    assert [offset for offset, _ in found(table)] == [0, 3, 6, 9]
    assert FolderTable(str(table), table_schema()).offsets == {NAME: 10}
    ledger.unlink()
    (table / "_kts" / HEX).write_text("perhaps rows of the last commit")
    lost = FolderTable(str(table), table_schema(), stated=True)
    with pytest.raises(LogStorageError, match="the ledger would say whether its rows belong to the table"):
        lost.append(rows(12), {NAME: 13})
    assert (table / "_kts" / HEX).exists()


def test_a_later_version_of_the_values_schema_goes_into_the_columns_that_are_there(tmp_path: Path) -> None:
    first = table_schema(pa.struct([("id", pa.int32())]))
    later = table_schema(pa.struct([("note", pa.string()), ("id", pa.int32())]))

    def added(schema: pa.Schema, offset: int, value: dict[str, Any]) -> None:
        one = FolderTable(str(tmp_path / "t"), schema)
        each = {"topic": "t", "partition": 0, "offset": offset, "day": DAYS[0], "value": value}
        batches = pa.Table.from_pylist([each], schema=schema).to_batches()
        one.append(pa.Table.from_batches([fitted(batch, one.schema) for batch in batches]), {NAME: offset + 1})

    added(first, 0, {"id": 1})
    with pytest.warns(KtsWarning, match="without them: value.note"):
        added(later, 1, {"id": 2, "note": "x"})
    asked = f"""SELECT value FROM '{tmp_path}/t/*/*.parquet' ORDER BY "offset" """
    assert duckdb.sql(asked).fetchall() == [({"id": 1},), ({"id": 2},)]
    assert len({str(pq.read_schema(path)) for path in (tmp_path / "t").glob("*/*.parquet")}) == 1
