"""A table at one commit: its rows, whatever is committed or renamed meanwhile."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kts
from kts.model import TopicPartition
from kts.tables import sync
from kts.tables.reading import RowRange, TableAt, table_at

FIRST_DAY = 1_767_225_600_000  # 2026-01-01
HOUR_MS = 3_600_000
PLACE = ["topic", "partition", "offset"]


@pytest.fixture(params=[False, True])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Adds 50 records to each of two partitions, an hour apart, and gives the table at that commit."""
    table, catalog = ("lake.db.rows", str(tmp_path / "c.sqlite")) if request.param else (str(tmp_path / "rows"), None)

    def grown() -> TableAt:
        for partition in range(2):
            with kts.Log(tmp_path / "logs" / f"t-{partition}") as log:
                times = [FIRST_DAY + offset * HOUR_MS for offset in range(log.log_end_offset, log.log_end_offset + 50)]
                log.append_rows({"value": [b"v"] * 50, "timestamp": times})
        sync(tmp_path / "logs", table, catalog=catalog)
        return table_at(table, catalog, 60)

    return grown


def read(table: TableAt, wanted: RowRange, columns: list[str] = PLACE) -> pa.Table:
    batches = list(table.rows(columns, wanted))
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in columns})


def test_rows_are_those_of_the_commit_that_was_opened(at: Any) -> None:
    first = at()
    second = at()
    assert first.found.offsets == {TopicPartition("t", 0): 50, TopicPartition("t", 1): 50}
    assert read(first, RowRange()).num_rows == 100 and read(second, RowRange()).num_rows == 200


def test_only_wanted_rows_are_read_and_in_the_columns_that_are_asked_for(at: Any, rng: random.Random) -> None:
    table = at()
    whole = read(table, RowRange(), [*PLACE, "timestampMs", "day"]).to_pylist()
    assert {row["day"].day for row in whole} == {1, 2, 3}
    for _ in range(20):
        names = rng.choice([None, [], [TopicPartition("t", 1)], [TopicPartition("t", 0), TopicPartition("u", 1)]])
        start, end = (rng.choice([None, FIRST_DAY + rng.randrange(-9, 60) * HOUR_MS]) for _ in range(2))
        offsets = rng.choice([None, (rng.randrange(30), rng.randrange(60))])
        expected = [
            row["offset"]
            for row in whole
            if (names is None or TopicPartition(row["topic"], row["partition"]) in names)
            and (start is None or row["timestampMs"] >= start)
            and (end is None or row["timestampMs"] < end)
            and (offsets is None or offsets[0] <= row["offset"] < offsets[1])
        ]
        found = read(table, RowRange(names, start, end, offsets), ["offset"])
        assert sorted(found.column("offset").to_pylist()) == sorted(expected)
