"""The parts of ``kts.testing`` that need no broker: its clock, Java's choice of a partition, rows and record sets."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

import kts
from kts.testing import Clock
from kts.testing.records import consumer_records, data_of, murmur2, partition_of, record_set


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_clock_goes_with_the_wall_clock_until_it_is_set_or_advanced() -> None:
    clock = Clock()
    before = wall_ms()
    assert before <= clock() <= wall_ms()
    assert not clock.stands_still
    there = clock.advance(timedelta(seconds=2))
    assert clock.stands_still
    assert before + 2000 <= there <= wall_ms() + 2000
    assert clock() == there == clock.advance(0)
    assert clock.advance(5) == clock() == there + 5
    clock.set(None)
    assert not clock.stands_still
    assert before <= clock() <= wall_ms()


def test_a_clock_takes_milliseconds_and_times_with_a_zone() -> None:
    clock = Clock(1_500_000_000_000)
    assert clock() == 1_500_000_000_000
    clock.set(datetime(2020, 1, 1, tzinfo=UTC))
    assert clock() == 1_577_836_800_000
    clock.set(datetime(2020, 1, 1, 2, microsecond=999_999, tzinfo=timezone(timedelta(hours=2))))
    assert clock() == 1_577_836_800_999
    assert Clock(datetime(2020, 1, 1, tzinfo=UTC)).advance(timedelta(days=1)) == 1_577_923_200_000


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda clock: clock.set(datetime(2020, 1, 1)), ValueError, "time zone"),
        (lambda clock: clock.set("2020"), TypeError, "time: expected an int"),
        (lambda clock: clock.set(-1), ValueError, "since 1970"),
        (lambda clock: clock.set(2**63), ValueError, "time: expected"),
        (lambda clock: clock.advance(-1), ValueError, "by: expected 0 or more"),
        (lambda clock: clock.advance(timedelta(days=-1)), ValueError, "by: expected 0 or more"),
        (lambda clock: clock.advance(1.5), TypeError, "by: expected an int"),
        (lambda clock: clock.advance(2**63 - 1), ValueError, "below 2\\^63"),
    ],
)
def test_a_clock_refuses_what_is_no_time_and_keeps_its_own(call, error, says) -> None:
    clock = Clock(7)
    with pytest.raises(error, match=says):
        call(clock)
    assert clock() == 7


def test_murmur2_is_that_of_kafkas_own_tests_and_of_another_client(rng: random.Random) -> None:
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert {key: murmur2(key) - 2**32 * (murmur2(key) >= 2**31) for key in known} == known
    for length in range(200):
        key = rng.randbytes(length)
        assert murmur2(key) == murmur2_of_kafka_python(key) % 2**32
        assert 0 <= partition_of(key, 7) < 7


def test_a_record_becomes_a_batch_and_a_row_again() -> None:
    headers = [("trace", b"\x00\xff"), ("none", None), ("trace", "text")]
    batch = record_set(b"k", None, headers, 1_500_000_000_000)
    [row] = consumer_records("t", 3, batch, 0)
    assert row == (
        *("t", 3, 0, 1_500_000_000_000, kts.TimestampType.CreateTime, b"k", None),
        *((("trace", b"\x00\xff"), ("none", None), ("trace", b"text")), -1),
    )
    assert [row.headers for row in consumer_records("t", 0, record_set(None, b"", {"a": "b"}, -1), 0)] == [
        (("a", b"b"),)
    ]
    assert list(consumer_records("t", 0, batch, 1)) == []


def test_keys_and_values_are_bytes_or_text() -> None:
    assert [data_of("key", data) for data in (None, b"a", "\u00e4", bytearray(b"c"), memoryview(b"d"))] == [
        *(None, b"a", b"\xc3\xa4", b"c", b"d")
    ]
    with pytest.raises(TypeError, match="value: expected bytes, str or None, found 5"):
        data_of("value", 5)
