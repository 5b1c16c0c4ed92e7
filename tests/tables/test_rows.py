"""The columns of a table: times that do not fit, and days that are plausible."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import kts
from kts.codec.micros import MAX_MS
from kts.tables.rows import DAY_MS, READ, Plausible, table_rows, table_schema

FROM_MS, TO_MS = 946_684_800_000, 1_800_000_000_000
EDGES = [FROM_MS - 1, FROM_MS, FROM_MS + DAY_MS - 1, FROM_MS + DAY_MS, TO_MS - 1, TO_MS, -1, 0]
BEYOND = [MAX_MS, MAX_MS + 1, -MAX_MS, -MAX_MS - 1, 2**63 - 1, -(2**63)]


def scanned(times: list[int]) -> pa.RecordBatch:
    batch = kts.decode(kts.encode({"timestamp": times, "value": [b"v"] * len(times)}))
    whose = {"topic": pa.array(["t"] * len(times)), "partition": pa.array([0] * len(times), pa.int32())}
    return pa.RecordBatch.from_arrays([whose.get(name) or batch.column(name) for name in READ], names=list(READ))


def test_every_value_is_kept_in_milliseconds_and_in_microseconds_where_they_hold_it() -> None:
    times = EDGES + BEYOND
    rows = table_rows(scanned(times), Plausible(FROM_MS, TO_MS))
    assert rows.schema.equals(table_schema())
    assert rows.column("timestampMs").to_pylist() == times
    expected = [ms * 1000 if abs(ms) <= MAX_MS else None for ms in times]
    assert rows.column("timestamp").cast(pa.int64()).to_pylist() == expected


def test_only_plausible_times_have_a_day() -> None:
    days = table_rows(scanned(EDGES + BEYOND), Plausible(FROM_MS, TO_MS)).column("day").to_pylist()
    first, second = datetime.date(2000, 1, 1), datetime.date(2000, 1, 2)
    assert days == [None, first, first, second, datetime.date(2027, 1, 15), None, None, None, *[None] * len(BEYOND)]


@pytest.mark.parametrize("ms", [-1, -DAY_MS, -DAY_MS - 1])
def test_a_time_before_1970_lies_in_the_day_that_it_is_in(ms: int) -> None:
    day = table_rows(scanned([ms]), Plausible(-10 * DAY_MS, 0)).column("day")[0].as_py()
    assert day == datetime.date(1969, 12, 31 if ms >= -DAY_MS else 30)
