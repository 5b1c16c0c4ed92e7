"""Values that all rooms share, with Kafka's numbers."""

from __future__ import annotations

import pickle

import kts
from kts import model


def test_the_special_timestamps_are_those_of_kafkas_requests() -> None:
    """Record.NO_TIMESTAMP, and ListOffsetsRequest's LATEST, EARLIEST and MAX_TIMESTAMP."""
    assert (model.NO_TIMESTAMP, model.LATEST, model.EARLIEST, model.MAX_TIMESTAMP) == (-1, -1, -2, -3)


def test_timestamp_types_have_kafkas_numbers_and_names() -> None:
    assert {kind.name: kind.value for kind in kts.TimestampType} == {
        "NoTimestampType": -1,
        "CreateTime": 0,
        "LogAppendTime": 1,
    }
    data = kts.encode({"value": [b"v"]}, timestamp_type="LogAppendTime", log_append_time_ms=5)
    [kind] = kts.decode(data, ["timestampType"]).column(0).to_pylist()
    assert kind == kts.TimestampType.LogAppendTime


def test_a_partition_is_written_as_its_directory_is_named() -> None:
    partition = kts.TopicPartition("orders-of-2026", 12)
    assert str(partition) == "orders-of-2026-12"
    assert partition == ("orders-of-2026", 12)


def test_answers_are_tuples_with_names_and_travel_between_processes() -> None:
    data = kts.encode({"timestamp": [3, 9, 9]}, base_offset=100)
    found = kts.max_timestamp(data)
    assert found == model.MaxTimestamp(timestamp_ms=9, offset=101, shallow_offset=102)
    assert pickle.loads(pickle.dumps(found)).offset == 101
    assert kts.TimestampOffset(5, 7)._asdict() == {"timestamp_ms": 5, "offset": 7}


def test_uuids_are_printed_as_kafka_prints_them() -> None:
    """METADATA_TOPIC_ID and ZERO_UUID of org.apache.kafka.common.Uuid."""
    assert model.uuid_text(bytes(15) + b"\1") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert model.uuid_bytes("AAAAAAAAAAAAAAAAAAAAAQ") == bytes(15) + b"\1"
    assert model.uuid_bytes(model.uuid_text(bytes(range(240, 256)))) == bytes(range(240, 256))
    assert model.topic_id_text(bytes(range(240, 256))) == "8PHy8_T19vf4-fr7_P3-_w"
    assert model.topic_id_text(model.ZERO_UUID) is None
