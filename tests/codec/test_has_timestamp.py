"""The mark "hasTimestamp" of KIP-228's rejected alternative: bit 7 of a batch's attributes, which Kafka leaves unused.

It says that each record of the batch has a timestamp: a -1 is 1969-12-31T23:59:59.999Z. Kafka's own classes read such
batches as any other, and an append by its leader keeps them byte for byte.
"""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.kafka.jvm import record_sets
from support.kafka.kafkas_classes import verdicts
from support.reference import reference
from support.sets.appending import NOW, append, topic

import kts
from kts.codec.validate import validate

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MARK = 0x80
OLD = -386_380_800_000  # 1957-10-04, the KIP's example
TIMES = [5, None, -1, OLD, None, None, -5, 9]
HAS = [time is not None for time in TIMES]


def rows(data: bytes, *names: str) -> list[tuple[Any, ...]]:
    """Columns of all records, read slowly."""
    return [tuple(row[name] for name in names) for row in reference.decode(data)]


def encoded(codec: str = "none", **more: Any) -> bytes:
    columns = {"timestamp": pa.array(TIMES, pa.int64()), "value": [b"%d" % i for i in range(len(TIMES))]}
    return kts.encode(columns, compression=codec, has_timestamp=True, **more)


def unmarked(*timestamps: int, codec: str = "none", magic: int = 2, **more: Any) -> bytes:
    values = [b"%d" % i for i in range(len(timestamps))]
    columns = {"timestamp": np.array(timestamps, np.int64), "value": values}
    return kts.encode(columns, compression=codec, magic=magic, batch_bytes=2**20, **more)


@pytest.mark.parametrize("codec", CODECS)
def test_encode_marks_the_rows_that_have_a_timestamp_and_decode_says_which(codec: str) -> None:
    data = encoded(codec, producer_id=7, producer_epoch=1, base_sequence=2**31 - 3, base_offset=10)
    expected = [(10 + i, -1, 0) if time is None else (10 + i, time, MARK) for i, time in enumerate(TIMES)]
    found = rows(data, "offset", "timestamp", "attributes")
    assert [(offset, time, attributes & MARK) for offset, time, attributes in found] == expected
    assert kts.decode(data, ["hasTimestamp"])["hasTimestamp"].to_pylist() == HAS
    assert kts.decode(data, ["sequence"])["sequence"].to_pylist() == [(2**31 - 3 + i) % 2**31 for i in range(8)]
    batches = kts.scan_batches(data)
    assert batches["count"].to_pylist() == [1, 1, 2, 2, 2] and all(batches["crcOk"].to_pylist())
    again = kts.decode(data, kts.ALL_COLUMNS)
    assert kts.encode(again, preserve_batches=True) == data
    kept = again.select(["offset", "timestamp", "value", "hasTimestamp"])  # -1 with and without a timestamp
    more = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 2**31 - 3}
    assert kts.encode(kept, compression=codec, has_timestamp=True, **more) == data


def test_the_column_of_batches_without_the_mark_says_no_to_minus_one_alone() -> None:
    data = unmarked(-1, -2, 0) + unmarked(-1, 3, magic=1, codec="gzip") + unmarked(-1, magic=0)
    data += kts.encode({"timestamp": [-1]}, timestamp_type="LogAppendTime", log_append_time_ms=-1)
    assert (
        kts.decode(data, ["hasTimestamp"])["hasTimestamp"].to_pylist() == [False, True, True, False, True] + [False] * 2
    )
    assert kts.decode(b"", ["hasTimestamp"]).num_rows == 0
    pieces = list(kts.iter_decode(encoded("lz4"), ["value", "hasTimestamp", "offset"], slice_bytes=1, views=True))
    assert len(pieces) == 5 and pieces[0].schema.names == ["value", "hasTimestamp", "offset"]
    assert [one for piece in pieces for one in piece["hasTimestamp"].to_pylist()] == HAS


def test_rows_without_a_timestamp_column_have_none_and_without_the_option_nothing_is_marked() -> None:
    assert kts.encode({"value": [b"a", b"b"]}, has_timestamp=True) == kts.encode({"value": [b"a", b"b"]})
    assert kts.encode({}, has_timestamp=True) == b""
    plain = {"timestamp": [1, -1], "value": [b"a", b"b"]}
    assert not any(row[0] & MARK for row in rows(kts.encode(plain), "attributes"))
    for magic in (0, 1):
        with pytest.raises(kts.UnsupportedForMessageFormatError, match=f"has_timestamp: messages of magic {magic} "):
            kts.encode(plain, magic=magic, has_timestamp=True)


# --- kts.convert: the KIP's migration tool --------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_migration_marks_records_before_1970_and_changes_no_other_batch(codec: str, magic: int) -> None:
    if magic < 2 and codec == "zstd":
        return
    later = unmarked(7, -1, 3, codec=codec, magic=magic)
    mixed = unmarked(OLD, -1, -1, 4, codec=codec, magic=magic, base_offset=3)
    early = unmarked(-2, OLD, codec=codec, magic=magic, base_offset=7)
    data = later + mixed + early
    made = kts.convert(data, 2, has_timestamp=True, allow_negative_timestamps=True)
    plain = kts.convert(data, 2, allow_negative_timestamps=True)
    assert rows(made, "offset", "timestamp", "value") == rows(plain, "offset", "timestamp", "value")
    marks = [bool(row[0] & MARK) for row in rows(made, "attributes")]
    single = magic < 2 and codec == "none"  # then all messages become one batch
    if magic == 0:
        assert made == plain and not any(marks)
    elif single:
        assert marks == [True, False, True, True, False, False, True, True, True]
    else:
        assert marks == [False] * 3 + [True, False, False, True] + [True] * 2
        assert made.startswith(kts.convert(later, 2)) and kts.scan_batches(made).num_rows == 5
    if magic:
        times = [row[0] for row in rows(made, "timestamp")]
        assert kts.decode(made, ["hasTimestamp"])["hasTimestamp"].to_pylist() == [time != -1 for time in times]
        assert kts.convert(made, 2, has_timestamp=True) == made  # nothing is left to do


@pytest.mark.parametrize("codec", CODECS)
def test_where_minus_one_is_a_time_no_batch_is_split(codec: str) -> None:
    batches = [(7, 3), (-1, 3), (OLD, -1), (-1,)]
    data = b"".join(unmarked(*times, codec=codec, base_offset=10 * i) for i, times in enumerate(batches))
    made = kts.convert(data, 2, has_timestamp=True, minus_one_is_a_time=True)
    assert kts.scan_batches(made)["count"].to_pylist() == [2, 2, 2, 1]
    assert [bool(row[0] & MARK) for row in rows(made, "attributes")] == [False] * 2 + [True] * 5
    assert all(kts.decode(made, ["hasTimestamp"])["hasTimestamp"].to_pylist())
    assert rows(made, "offset", "timestamp") == rows(data, "offset", "timestamp")


def test_a_split_batch_keeps_its_producer_s_sequences_offsets_and_gaps(rng: random.Random) -> None:
    for _ in range(20):
        times = [rng.choice([-1, -1, OLD, -7, 3]) for _ in range(rng.randrange(1, 30))] + [OLD]
        who = {"producer_id": 5, "producer_epoch": 2, "base_sequence": 2**31 - 9, "transactional": rng.random() < 0.5}
        table = kts.decode(unmarked(*times, codec=rng.choice(CODECS), base_offset=100, **who), kts.ALL_COLUMNS)
        kept = sorted(rng.sample(range(len(times)), rng.randrange(1, len(times) + 1)))
        data = kts.encode(table.take(pa.array(kept)), preserve_batches=True)  # as the cleaner leaves it
        made = kts.convert(data, 2, has_timestamp=True)
        names = ("offset", "timestamp", "value", "sequence", "producerId", "producerEpoch", "transactional", "codec")
        assert rows(made, *names) == rows(data, *names)
        before, after = kts.scan_batches(data), kts.scan_batches(made)
        assert after["baseOffset"][0] == before["baseOffset"][0] and after["lastOffset"][-1] == before["lastOffset"][-1]
        starts, ends = after["baseOffset"].to_pylist(), after["lastOffset"].to_pylist()
        assert all(end < start for end, start in zip(ends, starts[1:], strict=False))
        if any(times[i] not in (-1, 3) for i in kept):
            marks = [bool(row[0] & MARK) for row in rows(made, "attributes")]
            assert marks == [times[i] != -1 for i in kept]
            for row in reference.decode(made):
                assert row["maxTimestamp"] >= row["timestamp"]
        else:
            assert made == data


def test_batches_under_log_append_time_control_batches_and_old_formats_get_no_mark() -> None:
    stamped = kts.encode({"timestamp": [OLD]}, timestamp_type="LogAppendTime", log_append_time_ms=5)
    marker = kts.encode(
        {"timestamp": [OLD], "key": [b"\0\0\0\1"], "value": [b"\0\0\0\0\0\0"]}, control=True, producer_id=1
    )
    assert kts.convert(stamped + marker, 2, has_timestamp=True) == stamped + marker
    with pytest.raises(ValueError, match="has_timestamp: only batches of magic 2 have the mark, found to_magic 1"):
        kts.convert(stamped, 1, has_timestamp=True)
    with pytest.raises(ValueError, match="minus_one_is_a_time: goes with has_timestamp"):
        kts.convert(stamped, 2, minus_one_is_a_time=True)
    damaged = bytearray(unmarked(OLD, -1))
    damaged[-1] ^= 1
    with pytest.raises(kts.CorruptRecordError, match="CRC"):
        kts.convert(bytes(damaged), 2, has_timestamp=True)


# --- append ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_leader_that_allows_such_times_keeps_the_mark_where_it_writes_the_header_or_the_batch(codec: str) -> None:
    data = kts.encode({"timestamp": [OLD, -1], "value": [b"a", b"b"]}, compression=codec, has_timestamp=True)
    for target in ("producer", "uncompressed", "lz4"):
        for missing in ("accept", "-1", "now"):
            config = topic(
                2, compression_type=target, allow_negative_timestamps=True, message_timestamp_missing=missing
            )
            done = append(data, config)
            assert all(row[0] & MARK for row in rows(bytes(done.records), "attributes")), (target, missing)


# --- Kafka's own classes --------------------------------------------------------------------------


def test_released_kafka_reads_marked_batches_as_any_other() -> None:
    """Record by record, all codecs; the JVM starts once."""
    kafka = record_sets()
    sets = [encoded(codec, producer_id=3, producer_epoch=0, base_sequence=0) for codec in CODECS]
    sets += [kts.convert(unmarked(OLD, -1, 4, codec=codec), 2, has_timestamp=True) for codec in CODECS]
    for data, described in zip(sets, kafka("read", sets=sets), strict=True):
        assert "error" not in described
        found = rows(data, "offset", "timestamp", "timestampType")
        assert [tuple(record[:3]) for record in described["records"]] == found
        assert len(described["batches"]) == kts.scan_batches(data).num_rows


def test_a_leader_of_released_kafka_keeps_the_mark_as_kts_does_without_the_setting() -> None:
    """LogValidator of 3.9.2: in place the bytes stay; where it writes the header or the batch, the mark is lost."""
    cases = []
    for codec in CODECS:
        for times in ([7, 8], [-1, 8], [-1, -1]):
            data = kts.encode({"timestamp": times, "value": [b"a", b"b"]}, compression=codec, has_timestamp=True)
            wrong = kts.decode(data, kts.ALL_COLUMNS)
            at = wrong.schema.get_field_index("maxTimestamp")
            wrong = wrong.set_column(at, wrong.schema.field(at), pa.array([99, 99], pa.int64()))
            for sent in (data, kts.encode(wrong, preserve_batches=True)):
                for target in ("producer", "gzip"):
                    cases.append((sent, target))
    settings = {"start_offset": 5, "now": NOW, "compacted": False, "magic": 2, "ts_type": "CreateTime"}
    settings |= {"before_max_ms": 2**63 - 1, "after_max_ms": 2**63 - 1, "leader_epoch": 0}
    asked = [
        {"family": "validator", "in": settings | {"bytes": base64.b64encode(sent).decode(), "compression_type": target}}
        for sent, target in cases
    ]
    kept = 0
    for (sent, target), answer in zip(cases, verdicts("3.9", asked), strict=True):
        done = validate(sent, offset=5, now_ms=NOW, config=topic(2, compression_type=target))
        theirs = base64.b64decode(answer["bytes"])
        names = ("offset", "timestamp", "attributes", "maxTimestamp")
        assert rows(bytes(done.records), *names) == rows(theirs, *names)
        kept += bool(rows(theirs, "attributes")[0][0] & MARK)
    assert 0 < kept < len(cases)
