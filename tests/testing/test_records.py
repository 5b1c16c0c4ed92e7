"""Records of the broker for tests: Java's choice of a partition, rows and record sets."""

from __future__ import annotations

import random

import pytest
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

import kts
from kts.testing.records import consumer_records, data_of, murmur2, partition_of, record_set


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
