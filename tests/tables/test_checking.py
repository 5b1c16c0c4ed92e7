"""The check of a table: what is wrong with its files and offsets, and what comes next."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.tables import Filled, data_files

from kts.model import TopicPartition
from kts.tables.checking import CHUNK, RowPlaces, check
from kts.tables.compaction import compact
from kts.tables.expiry import expire
from kts.tables.state import OFFSETS
from kts.tables.upkeep import Upkeep
from kts.times import wall_clock


def test_a_sound_table_needs_compaction_then_expiry_and_then_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kts.tables.checking.MANY_SNAPSHOTS", 3)
    filled = Filled(tmp_path, runs=4)
    found = check(filled.open(), rows=True)
    assert (found.files, found.small_files, found.fewest_files, found.records) == (8, 8, 2, 80)
    assert (found.findings, found.doubled, found.advice) == ([], 0, ["compact", "expire"])
    assert (found.snapshots, found.manifests) == (4, 4) and found.planning_s < 5
    assert found.offsets == {TopicPartition("t", 0): 40, TopicPartition("t", 1): 40}
    compact(filled.open())
    expire(filled.open(), older_than_ms=0, now_ms=wall_clock() + 86_400_000)
    found = check(filled.open(), rows=True)
    assert (found.findings, found.advice, found.files, found.snapshots) == ([], [], 2, 1)


@pytest.mark.parametrize("which", ["*.parquet", "*-m0.avro", "snap-*.avro"])
def test_a_file_that_is_gone_is_named(tmp_path: Path, which: str) -> None:
    filled = Filled(tmp_path, runs=2)
    there = filled.open()
    gone = sorted((tmp_path / "warehouse").rglob(which))[0]
    moved = gone.rename(tmp_path / "moved")
    found = check(there, rows=True)
    assert found.missing == [f"file://{gone}"] and found.doubled is None and found.advice == []
    assert found.findings == [f"a file that a snapshot refers to is not there: file://{gone}"]
    moved.rename(gone)
    assert check(there).findings == []


def test_a_file_that_went_with_an_expiry_meanwhile_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = Filled(tmp_path, runs=3)
    compact(filled.open())
    there, expired = filled.open(), list[object]()
    real = Upkeep.listing

    def listing(table: Upkeep) -> object:
        if not expired:
            expired.append(expire(filled.open(), older_than_ms=0, now_ms=wall_clock() + 86_400_000))
        return real(table)

    monkeypatch.setattr(Upkeep, "listing", listing)
    found = check(there, rows=True)
    assert (found.findings, found.snapshots, found.doubled) == ([], 1, 0)


def test_rows_beyond_the_offsets_are_found_with_and_without_reading_them(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=2)
    with filled.table.transaction() as change:
        change.append(
            filled.table.scan().to_arrow(), snapshot_properties={OFFSETS: json.dumps({"t": {"0": 15, "1": 20}})}
        )
    found = check(filled.open(), rows=True)
    assert found.doubled == 40
    assert found.findings == [
        "40 rows have the topic, partition and offset of another row",
        "t-0: its files have offset 19, and its offsets end at 15: the next sync would add records again",
    ]
    with filled.table.transaction() as change:
        change.append(filled.table.scan().to_arrow(), snapshot_properties={OFFSETS: json.dumps({"t": {"0": 3}})})
    assert "its files have offset" in check(filled.open()).findings[0]


def test_lost_offsets_are_a_finding(tmp_path: Path) -> None:
    filled = Filled(tmp_path, runs=1)
    filled.table.overwrite(filled.table.scan().to_arrow())
    there = filled.table
    kept = there.current_snapshot().snapshot_id  # type: ignore[union-attr]
    there.maintenance.expire_snapshots().by_ids(
        [one.snapshot_id for one in there.snapshots() if one.snapshot_id != kept]
    ).commit()
    with filled.table.transaction() as change:
        change.remove_properties(OFFSETS)
    assert check(filled.open()).findings == [
        "the offsets up to which it has the logs are lost: see kts sync --from-offsets"
    ]
    assert len(data_files(filled.catalog)) > 0


def test_places_count_what_is_there_twice_over_any_offsets() -> None:
    generator = np.random.default_rng(3)
    places, expected = RowPlaces(), dict[tuple[int, int], int]()
    for _ in range(20):
        partition = generator.integers(0, 3, 500).astype(np.int32)
        offset = generator.choice([generator.integers(0, 3000, 500), generator.integers(0, 3 * CHUNK, 500)])
        for one in zip(partition.tolist(), offset.tolist(), strict=True):
            expected[one] = expected.get(one, 0) + 1
        places.add(pa.record_batch({"topic": ["t"] * 500, "partition": partition, "offset": offset}))
    assert places.doubled == sum(count - 1 for count in expected.values()) > 0
    for number in range(3):
        assert places.last[TopicPartition("t", number)] == max(at for one, at in expected if one == number)
