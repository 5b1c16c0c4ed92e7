"""Records of the broker for tests: rows and record sets."""

from __future__ import annotations

import pytest

import kts
from kts.testing.records import consumer_records, data_of, record_set


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
