"""What kts writes, Kafka's own classes read; what they write, kts reads. Record for record, batch for batch."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest
from support.golden import Row
from support.kafka.jvm import Kafka, record_sets

import kts

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def kafka() -> Kafka:
    """Runs the Java program and gives the lines that it prints."""
    return record_sets()


def unpack(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def kafka_rows(described: dict[str, Any]) -> list[Row]:
    """The records that Kafka read, in the form of comparison."""
    if "error" in described:
        pytest.fail(f"Kafka refused the set: {base64.b64decode(described['error']).decode()}")
    found = []
    for offset, timestamp, timestamp_type, key, value, headers, _ in described["records"]:
        pairs = tuple((base64.b64decode(name).decode(), unpack(data)) for name, data in headers)
        found.append(Row(offset, timestamp, timestamp_type, unpack(key), unpack(value), pairs or None))
    return found


def kafka_batches(described: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What Kafka read in the headers of batches, as far as `scan_batches` promises the same."""
    facts = []
    for magic, _, last, _, codec, kind, maximum, *producer_and_flags in described["batches"]:
        facts.append((magic, last, codec, kind, maximum, *producer_and_flags))
    return facts


def scanned_batches(record_set: bytes) -> list[tuple[Any, ...]]:
    """The same facts from `scan_batches`."""
    table = kts.scan_batches(record_set)
    assert all(table.column("crcOk").to_pylist())
    names = ["magic", "lastOffset", "codec", "timestampType", "maxTimestamp", "producerId", "producerEpoch"]
    names += ["baseSequence", "partitionLeaderEpoch", "transactional", "control"]
    columns = [table.column(name) for name in names]
    columns[4] = columns[4].cast(pa.int64())
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def test_offsets_count_from_the_base_offset_when_none_are_given(kafka: Kafka) -> None:
    values = pa.array([b"%d" % i for i in range(1000)])
    sets = [
        kts.encode({"value": values}, magic=magic, compression="gzip", base_offset=2**33, batch_bytes=700)
        for magic in (0, 1, 2)
    ]
    for described in kafka("read", sets=sets):
        read = kafka_rows(described)
        assert [row.offset for row in read] == list(range(2**33, 2**33 + 1000))
        assert {row.timestamp for row in read} == {-1}
        assert [row.value for row in read] == values.to_pylist()


@pytest.mark.parametrize("codec", CODECS)
def test_producer_fields_and_control_records_are_read_back_by_kafka(kafka: Kafka, codec: str) -> None:
    records = pa.RecordBatch.from_pydict({"timestamp": pa.array([5, 6, 7], pa.int64()), "value": [b"a", b"b", b"c"]})
    producer = {"producer_id": 4242, "producer_epoch": 7, "partition_leader_epoch": 3, "transactional": True}
    data = kts.encode(records, compression=codec, base_sequence=2**31 - 2, **producer)
    # An end-of-transaction marker: key = version 0, type 1 (commit); value = version 0, coordinator epoch 9.
    marker = {"timestamp": pa.array([8], pa.int64()), "key": [b"\0\0\0\1"], "value": [b"\0\0\0\0\0\x09"]}
    commit = kts.encode(marker, base_offset=3, control=True, **producer)
    [described] = kafka("read", sets=[data + commit])
    assert [row.value for row in kafka_rows(described)] == [b"a", b"b", b"c", b"\0\0\0\0\0\x09"]
    assert [record[6] for record in described["records"]][:3] == [2**31 - 2, 2**31 - 1, 0]
    assert scanned_batches(data + commit) == kafka_batches(described)
    assert [batch[-2:] for batch in described["batches"]] == [[True, False], [True, True]]
