"""The partition of a key: Java's choice, for one key and for a column."""

from __future__ import annotations

import random

import pyarrow as pa
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from kts import _codec
from kts.codec.partitioner import partition_of, partitions_of


def test_murmur2_is_that_of_kafkas_own_tests_and_of_another_client(rng: random.Random) -> None:
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert {key: _codec.murmur2(key) - 2**32 * (_codec.murmur2(key) >= 2**31) for key in known} == known
    for length in range(200):
        key = rng.randbytes(length)
        assert _codec.murmur2(key) == murmur2_of_kafka_python(key) % 2**32
        assert 0 <= partition_of(key, 7) < 7


def test_a_column_of_keys_gets_the_partitions_of_its_keys(rng: random.Random) -> None:
    keys = [rng.randbytes(rng.randrange(20)) for _ in range(500)]
    expected = [(murmur2_of_kafka_python(key) & 0x7FFFFFFF) % 12 for key in keys]
    column = pa.array([b"before", *keys, b"after"]).slice(1, 500)
    assert partitions_of(column, 12).tolist() == expected
    assert partitions_of(column.cast(pa.large_binary()), 12).tolist() == expected
    assert partitions_of(pa.array(["abc", None]), 12).tolist()[0] == partition_of(b"abc", 12)
    assert partitions_of(pa.array([], pa.binary()), 12).tolist() == []
    assert partitions_of(pa.array([None], pa.binary()), 12).tolist() != []
