"""What kts writes, Kafka's own classes read; what they write, kts reads. Record for record, batch for batch."""

from __future__ import annotations

import base64
import random
from typing import Any

import pyarrow as pa
import pytest
from jvm import JAVA, Kafka, record_sets
from support import Row, rows

import kts

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def kafka() -> Kafka:
    """Runs the Java program and gives the lines that it prints."""
    return record_sets(JAVA / "target")


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


def test_sets_that_kafka_builds_decode_to_the_same_records(kafka: Kafka, seed: int) -> None:
    for described in kafka("write", seed, 400):
        record_set = base64.b64decode(described["set"])
        decoded = kts.decode(record_set, kts.ALL_COLUMNS)
        assert rows(decoded) == kafka_rows(described)
        assert decoded.column("sequence").to_pylist() == [record[6] for record in described["records"]]
        assert scanned_batches(record_set) == kafka_batches(described)


def random_records(rng: random.Random, *, headers: bool) -> pa.RecordBatch:
    """Records of many shapes: nulls, empties, large values, gaps between offsets, extreme timestamps."""
    count = rng.choice([1, 2, 3, 10, 50, rng.randrange(1, 400)])

    def data(most: int) -> bytes | None:
        kind = rng.randrange(10)
        if kind == 0:
            return None
        return b"" if kind == 1 else rng.randbytes(rng.randrange(most)) if kind < 6 else b"v" * rng.randrange(most)

    offset, offsets = rng.choice([0, 0, 7, 2**40]), []
    for _ in range(count):
        offsets.append(offset)
        offset += 1 if rng.random() < 0.9 else rng.randrange(1, 1000)
    now = 1_600_000_000_000
    timestamps = [rng.choice([now, -1, 0, 2**62]) if rng.random() < 0.1 else now + rng.randrange(9999) for _ in offsets]
    most = rng.choice([10, 100, 1000])
    columns: dict[str, pa.Array] = {
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array(timestamps, pa.int64()).cast(pa.timestamp("ms", "UTC")),
        "key": pa.array([data(20) for _ in offsets], pa.binary()),
        "value": pa.array([data(most) for _ in offsets], pa.binary()),
    }
    if headers:
        pairs = [
            [{"key": rng.choice(["trace", "größe", ""]), "value": data(30)} for _ in range(rng.randrange(1, 4))]
            if rng.random() < 0.3
            else None
            for _ in offsets
        ]
        columns["headers"] = pa.array(pairs, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    return pa.RecordBatch.from_pydict(columns)


def as_encoded(batch: pa.RecordBatch, magic: int, log_append_time_ms: int | None) -> list[Row]:
    """What a reader must see of these records in that format."""
    missing = pa.nulls(batch.num_rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    headers = batch.column("headers") if "headers" in batch.schema.names else missing
    timestamp_type = -1 if magic == 0 else 0 if log_append_time_ms is None else 1
    columns = {name: batch.column(name) for name in ["offset", "timestamp", "key", "value"]}
    columns |= {"timestampType": pa.array([timestamp_type] * batch.num_rows), "headers": headers}
    seen = rows(pa.RecordBatch.from_pydict(columns))
    if magic == 0:
        return [row._replace(timestamp=-1) for row in seen]
    return seen if log_append_time_ms is None else [row._replace(timestamp=log_append_time_ms) for row in seen]


def test_random_sets_of_every_format_are_read_back_by_kafka(kafka: Kafka, rng: random.Random) -> None:
    sets, wanted = [], []
    for magic in (0, 1, 2):
        for codec in CODECS[: 5 if magic == 2 else 4]:
            for log_append_time_ms in [None] if magic == 0 else [None, 1_700_000_000_000]:
                for _ in range(20):
                    records = random_records(rng, headers=magic == 2 and rng.random() < 0.5)
                    sets.append(
                        kts.encode(
                            records,
                            magic=magic,
                            compression=codec,
                            timestamp_type="CreateTime" if log_append_time_ms is None else "LogAppendTime",
                            log_append_time_ms=log_append_time_ms,
                            batch_bytes=rng.choice([200, 2000, 16384]),
                        )
                    )
                    wanted.append(as_encoded(records, magic, log_append_time_ms))
    for record_set, rows_wanted, described in zip(sets, wanted, kafka("read", sets=sets), strict=True):
        assert kafka_rows(described) == rows_wanted
        assert rows(kts.decode(record_set)) == rows_wanted
        assert scanned_batches(record_set) == kafka_batches(described)


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
