"""Delta tables: rows and offsets in one commit, whatever other programs do to the table."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from support.golden import scaled
from support.tables import query

import kts
from kts.errors import InvalidRequestError, LogLockedError, LogStorageError
from kts.tables import Added, delta, sync
from kts.tables.state import OFFSETS


def append(folder: Path, count: int, unit: str | None = None, **columns: list[Any]) -> None:
    with kts.Log(folder / "logs" / "t-0") as log:
        end = log.log_end_offset
        log.append_rows({"value": [b"%d" % offset for offset in range(end, end + count)]} | columns, unit=unit)


def synced(folder: Path, **more: Any) -> Added:
    return sync(folder / "logs", f"delta:{folder / 'rows'}", to_end=True, **more).tables[0]


def offsets(folder: Path) -> list[int]:
    """Those that DuckDB sees in the files of the newest version."""
    uris = [uri.removeprefix("file://") for uri in DeltaTable(folder / "rows").file_uris()]
    return [found for (found,) in query(uris, 'SELECT "offset" FROM rows ORDER BY ALL')] if uris else []


def test_rows_and_offsets_are_one_commit_and_days_are_partitions(tmp_path: Path) -> None:
    append(tmp_path, 3, timestamp=[1_767_225_600_000, 1_767_312_000_000, 10**15], unit="ms")
    added = synced(tmp_path)
    assert (added.records, added.without_day, added.created) == (3, 1, str(tmp_path / "rows"))
    table = DeltaTable(tmp_path / "rows")
    assert table.metadata().partition_columns == ["day"] and table.version() == 1
    assert json.loads(table.history(1)[0][OFFSETS]) == {"t": {"0": 3}}
    assert {part["day"] for part in table.partitions()} == {"2026-01-01", "2026-01-02", None}
    assert synced(tmp_path).commits == 0
    append(tmp_path, 2)
    assert (synced(tmp_path).records, offsets(tmp_path)) == (2, [*range(5)])


def test_of_two_programs_that_add_at_the_same_time_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path, 2)
    synced(tmp_path)
    append(tmp_path, 2)
    real = delta.Delta._append

    def late(*given: Any) -> None:
        monkeypatch.setattr(delta.Delta, "_append", real)
        synced(tmp_path)
        real(*given)

    monkeypatch.setattr(delta.Delta, "_append", late)
    with pytest.raises(LogLockedError, match="another program has added records meanwhile"):
        synced(tmp_path)
    assert offsets(tmp_path) == [*range(4)]


@pytest.mark.slow
def test_what_others_commit_meanwhile_is_neither_lost_nor_undone(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds: each of the commits races with one of another kind."""
    append(tmp_path, 4)
    synced(tmp_path)
    real, deleted = delta.Delta._append, set[int]()

    def beside(*given: Any) -> None:
        if rng.random() < 0.7:
            there = DeltaTable(tmp_path / "rows")
            match rng.randrange(3):
                case 0:
                    deleted.add(gone := rng.choice(offsets(tmp_path)))
                    there.delete(f"`offset` = {gone}")
                case 1:
                    there.optimize.compact()
                case 2:
                    there.alter.set_table_properties({"delta.dataSkippingNumIndexedCols": str(rng.randrange(1, 30))})
        real(*given)

    monkeypatch.setattr(delta.Delta, "_append", beside)
    for turn in range(scaled(10, 60)):
        append(tmp_path, 3)
        synced(tmp_path)
        assert offsets(tmp_path) == [one for one in range(4 + 3 * (turn + 1)) if one not in deleted]


def test_a_table_that_was_restored_goes_on_where_it_was_then(tmp_path: Path) -> None:
    for _ in range(3):
        append(tmp_path, 2)
        synced(tmp_path)
    DeltaTable(tmp_path / "rows").restore(1)
    assert offsets(tmp_path) == [0, 1]
    assert synced(tmp_path).records == 4
    assert offsets(tmp_path) == [*range(6)]


@pytest.mark.parametrize("version", [0, 1], ids=["before all commits", "after one"])
def test_a_table_that_was_restored_to_a_time_goes_on_where_it_was_then(tmp_path: Path, version: int) -> None:
    for _ in range(2):
        append(tmp_path, 2)
        synced(tmp_path)
    log = tmp_path / "rows" / "_delta_log"
    for number, path in enumerate(sorted(log.glob("*.json"))):
        os.utime(path, (1_800_000_000 + 10 * number,) * 2)
    DeltaTable(tmp_path / "rows").restore(datetime.fromtimestamp(1_800_000_005 + 10 * version, UTC))
    assert offsets(tmp_path) == [*range(2 * version)]
    assert synced(tmp_path).records == 4 - 2 * version
    assert offsets(tmp_path) == [*range(4)]


def test_columns_of_the_owner_are_null_in_new_rows(tmp_path: Path) -> None:
    append(tmp_path, 2)
    synced(tmp_path)
    DeltaTable(tmp_path / "rows").alter.add_columns([Field("own", PrimitiveType("string"))])
    append(tmp_path, 2)
    assert (synced(tmp_path).records, offsets(tmp_path)) == (2, [*range(4)])


def test_buckets_of_a_delta_table_are_refused(tmp_path: Path) -> None:
    append(tmp_path, 1)
    with pytest.raises(ValueError, match="buckets: a Delta table has none"):
        synced(tmp_path, mode="latest", buckets=5)


def test_a_table_that_lost_its_offsets_is_refused_until_they_are_stated(tmp_path: Path) -> None:
    append(tmp_path, 2)
    synced(tmp_path)
    table = DeltaTable(tmp_path / "rows")
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 day"})
    table.create_checkpoint()
    for old in sorted((tmp_path / "rows" / "_delta_log").glob("*.json"))[:2]:
        old.unlink()
    append(tmp_path, 1)
    with pytest.raises(LogStorageError, match="the offsets up to which it has the logs are lost"):
        synced(tmp_path)
    assert synced(tmp_path, from_offsets={"t": {0: 2}}).records == 1
    assert offsets(tmp_path) == [0, 1, 2] and synced(tmp_path).records == 0


def test_tables_of_others_are_refused_unless_they_have_the_columns(tmp_path: Path) -> None:
    append(tmp_path, 1)
    import pyarrow as pa

    write_deltalake(tmp_path / "rows", pa.table({"day": pa.array([1], pa.int32()).cast(pa.date32())}))
    with pytest.raises(InvalidRequestError, match="expected the column"):
        synced(tmp_path)
    shutil.rmtree(tmp_path / "rows")
    synced(tmp_path)
    with pytest.raises(InvalidRequestError, match="found one with a row for each record"):
        synced(tmp_path, mode="latest")
    with pytest.raises(ValueError, match="catalog: it is for Iceberg tables"):
        synced(tmp_path, catalog=tmp_path / "c.sqlite")


def test_without_delta_rs_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, 1)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'kafka-timestamps\[delta\]'"):
        synced(tmp_path)
