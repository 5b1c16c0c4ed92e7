"""Milliseconds as microseconds, and what does not fit."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kts.codec.micros import MAX_MS, TimestampOverflow, to_micros

INT64_MAX = (1 << 63) - 1
MS = pa.timestamp("ms", tz="UTC")


def test_milliseconds_become_microseconds() -> None:
    values = [0, -1, 1, None, MAX_MS, -MAX_MS, 253402300799999]
    converted = to_micros(pa.array(values, MS), "timestamp", "error")
    assert converted.type == pa.timestamp("us", tz="UTC")
    assert converted.cast(pa.int64()).to_pylist() == [None if v is None else v * 1000 for v in values]


def test_what_does_not_fit_follows_the_policy() -> None:
    values = pa.array([5, None, MAX_MS + 1, 1 << 62, -MAX_MS - 1, -(1 << 63), INT64_MAX], MS)
    with pytest.raises(TimestampOverflow) as caught:
        to_micros(values, "timestamp", "error")
    assert (caught.value.column, caught.value.row, caught.value.timestamp_ms) == ("timestamp", 2, MAX_MS + 1)
    as_null = to_micros(values, "timestamp", "null").cast(pa.int64()).to_pylist()
    assert as_null == [5000, None, None, None, None, None, None]
    clamped = to_micros(values, "timestamp", "clamp").cast(pa.int64()).to_pylist()
    assert clamped == [5000, None, INT64_MAX, INT64_MAX, -INT64_MAX - 1, -INT64_MAX - 1, INT64_MAX]
