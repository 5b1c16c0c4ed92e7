"""The columns of a table: times that do not fit, and days that are plausible."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import kts
from kts.codec.micros import MAX_MS
from kts.tables.rows import DAY_MS, READ, Days, Plausible, table_rows, table_schema

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


def test_a_commit_has_no_more_days_than_asked_and_keeps_those_with_the_most_rows() -> None:
    def rows(*days: int | None) -> pa.Table:
        each = [{"offset": offset, "day": day} for offset, day in enumerate(days)]
        return pa.Table.from_pylist(each, schema=pa.schema([("offset", pa.int64()), ("day", pa.int32())])).cast(
            pa.schema([("offset", pa.int64()), ("day", pa.date32())])
        )

    def bounded(days: Days, *given: int | None) -> list[int | None]:
        return days.bounded(rows(*given)).column("day").cast(pa.int32()).to_pylist()

    def number(day: datetime.date) -> int:
        return (day - datetime.date(1970, 1, 1)).days

    days = Days(2)
    assert bounded(days, 5, None, 5, 7) == [5, None, 5, 7] and days.left_out == set()
    assert bounded(days, 7, 8, 8, 8, 5) == [7, None, None, None, 5]
    assert {number(day) for day in days.left_out} == {8}
    assert bounded(Days(2), 1, 2, 2, 3, 4, 4, None) == [None, 2, 2, None, 4, 4, None]
    assert bounded(Days(1), 1, 2, 3) == [None, None, 3], "the newest of those with as many rows"
