"""Shallow entries: what the proposals see of appended bytes."""

from __future__ import annotations

import numpy as np
import pytest
from support.sets.shallow_entries import MINUTE, T

import kts
from kts.arguments import INT64_MAX, INT64_MIN
from kts.proposals.shallow import floored, record_timestamps, shallow_entries


def test_shallow_entries_are_the_batches_and_wrappers_of_the_bytes() -> None:
    plain = kts.encode({"timestamp": np.array([T, T + 7])}, magic=1, base_offset=10)
    wrapper = kts.encode({"timestamp": np.array([T + 9, T + 3])}, magic=1, base_offset=12, compression="gzip")
    batch = kts.encode({"timestamp": np.array([T + 1, T + 8, T])}, magic=2, base_offset=14)
    none = kts.encode({"value": [b"x"]}, magic=0, base_offset=17)
    shallow = shallow_entries(plain + wrapper + batch + none, 10)
    assert shallow.first_offsets.tolist() == [10, 11, 12, 14, 17]
    assert shallow.last_offsets.tolist() == [10, 11, 13, 16, 17]
    assert shallow.timestamps.tolist() == [T, T + 7, T + 9, T + 8, -1]


def test_the_first_offset_of_a_leading_wrapper_is_the_one_that_is_given() -> None:
    wrapper = kts.encode({"timestamp": np.array([T, T])}, magic=1, base_offset=5, compression="gzip")
    assert shallow_entries(wrapper, 5).first_offsets.tolist() == [5]
    assert [len(column) for column in shallow_entries(b"", 5)] == [0, 0, 0]


@pytest.mark.parametrize("step", [1, 7, MINUTE, INT64_MAX])
def test_times_are_rounded_down_as_python_does_within_64_bits(step: int) -> None:
    times = [INT64_MIN, INT64_MIN + 1, -MINUTE - 1, -MINUTE, -1, 0, 1, MINUTE - 1, MINUTE, INT64_MAX]
    expected = [max(time // step * step, INT64_MIN) for time in times]
    assert floored(np.array(times), step).tolist() == expected


def test_times_that_a_header_hides_count_where_negative_ones_are_allowed() -> None:
    data = kts.encode({"timestamp": np.array([-9, -5, -7])}) + kts.encode({"timestamp": np.array([-1])}, base_offset=3)
    assert shallow_entries(data, 0).timestamps.tolist() == [-1, -1]
    assert shallow_entries(data, 0, allow_negative=True).timestamps.tolist() == [-5, -1]


def test_the_timestamps_of_records_are_read_through_compression_and_log_append_time() -> None:
    times = {"timestamp": np.array([T, T - 5])}
    assert record_timestamps(kts.encode(times, compression="gzip")).tolist() == [T, T - 5]
    stamped = kts.encode(times, timestamp_type="LogAppendTime", log_append_time_ms=T + 9)
    assert record_timestamps(stamped).tolist() == [T + 9, T + 9]
