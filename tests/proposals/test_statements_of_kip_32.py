"""KIP-32, statement by statement: what broker, follower, producer and consumer do with the timestamp.

docs/statements.md lists all statements; these are those that no other test is named after.
"""

from __future__ import annotations

import gzip
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from support.broker.asking import Asking
from support.reference import reference

import kts
from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey
from kts.testing import KtsBroker

NOW = 1_460_000_000_000
DAY = 86_400_000
APPEND = kts.TimestampType.LogAppendTime
TO_TYPE = 17  # of a message: where its attributes are, behind offset, size, CRC and magic
TO_TIME = 18
TO_PAYLOAD = 34  # of a wrapper: behind its time, its key's length (-1) and its value's


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    settings = {"inter.broker.protocol.version": "0.10.0", "log.message.format.version": "0.10.0"}
    with Asking(Broker(tmp_path / "data", settings, clock=lambda: NOW)) as found:
        yield found


def messages(*times: int, magic: int = 1, compression: str = "none") -> bytes:
    return kts.encode(
        {"timestamp": list(times), "value": [b"%d" % at for at in range(len(times))]},
        magic=magic,
        compression=compression,
    )


def wrapper(*times: int, magic: int = 1) -> bytes:
    return messages(*times, magic=magic, compression="gzip")


def time_of(data: bytes) -> int:
    """The timestamp of the first message, which may be a wrapper."""
    return int(struct.unpack_from(">q", data, TO_TIME)[0])


def inner(data: bytes, magic: int = 1) -> list[tuple[int, int]]:
    """(offset, magic) of each message inside of the first wrapper, as they lie there."""
    at = data.index(b"\x1f\x8b")
    [size] = struct.unpack_from(">i", data, 8)
    plain = gzip.decompress(data[at : 12 + size])
    found, at = [], 0
    while at < len(plain):
        offset, size = struct.unpack_from(">qi", plain, at)
        found.append((offset, plain[at + 16]))
        at += 12 + size
    return found


def records(log: kts.Log, start: int = 0) -> bytes:
    return bytes(log.read(start, 1 << 20).records)


def consumed(data: bytes) -> list[tuple[int, int]]:
    """(offset, timestamp) of each record, as a consumer sees them: by the slow decoder that shares no code."""
    return [(row["offset"], row["timestamp"]) for row in reference.decode(data)]


def entries(path: Path) -> list[tuple[int, int]]:
    """(timestamp, offset) of each entry of the first segment's time index."""
    data = (path / f"{0:020}.timeindex").read_bytes()
    found = list(struct.iter_unpack(">qi", data))
    return [entry for at, entry in enumerate(found) if not at or entry != (0, 0)]


# --- the message --------------------------------------------------------------------------------------


def test_the_message_has_a_new_timestamp_field_and_its_magic_byte_is_1() -> None:
    old, new = messages(NOW, magic=0), messages(NOW)
    assert (old[16], new[16]) == (0, 1)
    assert time_of(new) == NOW
    assert new[TO_TIME + 8 :] == old[TO_TIME:]  # and nothing else is new, but size and CRC


def test_the_fourth_least_significant_bit_is_the_timestamp_type() -> None:
    by_append = kts.encode({"value": [b"0"]}, magic=1, timestamp_type="LogAppendTime", log_append_time_ms=NOW)
    assert (messages(NOW)[TO_TYPE], by_append[TO_TYPE]) == (0b0000, 0b1000)
    assert kts.decode(by_append, ["timestampType"])["timestampType"].to_pylist() == [int(APPEND)]


def test_magic_byte_1_also_means_that_the_relative_offset_is_used(asking: Asking) -> None:
    log = asking.create().partitions[0].log
    for _ in range(2):
        asking.produce("t", wrapper(NOW, NOW, NOW), version=2)
    second = records(log, 3)
    assert struct.unpack_from(">q", second)[0] == 5  # the wrapper has the offset of its last message
    assert inner(second) == [(0, 1), (1, 1), (2, 1)]


# --- the leader ---------------------------------------------------------------------------------------


def test_type_and_difference_are_per_topic_configurations(asking: Asking) -> None:
    append = {"message.timestamp.type": "LogAppendTime"}
    near = {"max.message.time.difference.ms": "1000"}
    for name, settings in (("append", append), ("near", near), ("default", {})):
        asking.broker.topics.create(name, 1, settings)
    rows = {name: asking.produce(name, messages(5), version=2) for name in ("append", "near", "default")}
    assert {name: row["error_code"] for name, row in rows.items()} == {"append": 0, "near": 32, "default": 0}
    assert {name: row["log_append_time_ms"] for name, row in rows.items()} == {"append": NOW, "near": -1, "default": -1}


def test_with_log_append_time_a_message_is_overwritten_with_the_current_time_of_the_leader(asking: Asking) -> None:
    log = asking.create(message_timestamp_type="LogAppendTime").partitions[0].log
    asking.produce("t", messages(5, NOW + DAY), version=2)
    assert consumed(records(log)) == [(0, NOW), (1, NOW)]
    assert {row["timestampType"] for row in kts.decode(records(log), ["timestampType"]).to_pylist()} == {int(APPEND)}


def test_with_log_append_time_a_wrapper_gets_time_and_type_and_is_not_recompressed(asking: Asking) -> None:
    log = asking.create(message_timestamp_type="LogAppendTime").partitions[0].log
    sent = wrapper(5, NOW + DAY, 7)
    asking.produce("t", sent, version=2)
    stored = records(log)
    assert (time_of(stored), stored[TO_TYPE]) == (NOW, 0b1001)
    assert stored[TO_PAYLOAD:] == sent[TO_PAYLOAD:]  # the inner messages and their times, byte for byte
    assert consumed(stored) == [(0, NOW), (1, NOW), (2, NOW)]


@pytest.mark.parametrize("make", [messages, wrapper])
def test_a_message_within_the_difference_is_accepted_and_one_beyond_it_rejects_the_entire_batch(
    asking: Asking, make: Any
) -> None:
    log = asking.create(max_message_time_difference_ms="1000").partitions[0].log
    assert asking.produce("t", make(NOW - 1000, NOW + 1000), version=2)["error_code"] == 0
    assert log.log_end_offset == 2
    for beyond in (NOW - 1001, NOW + 1001):
        row = asking.produce("t", make(NOW, beyond, NOW), version=2)
        assert row["error_code"] == ErrorCode.INVALID_TIMESTAMP  # the paper's TimestampExceededThreshold
        assert log.log_end_offset == 2


def test_the_difference_only_works_with_create_time(asking: Asking) -> None:
    asking.create(message_timestamp_type="LogAppendTime", max_message_time_difference_ms="1000")
    assert asking.produce("t", messages(5), version=2)["error_code"] == 0


def test_with_create_time_a_wrapper_gets_the_largest_timestamp_of_its_inner_messages(asking: Asking) -> None:
    log = asking.create().partitions[0].log
    sent = bytearray(wrapper(NOW - 5, NOW + 9, NOW + 2))
    assert time_of(sent) == NOW + 9
    struct.pack_into(">q", sent, TO_TIME, NOW - 5)  # a producer that does not care
    struct.pack_into(">I", sent, 12, zlib.crc32(sent[16:]))
    asking.produce("t", bytes(sent), version=2)
    assert time_of(records(log)) == NOW + 9


def test_with_create_time_the_timestamp_is_immutable_and_might_not_be_monotonically_increasing(
    asking: Asking, tmp_path: Path
) -> None:
    log = asking.create().partitions[0].log
    times = [NOW, NOW - DAY, NOW + DAY, 0]
    asking.produce("t", messages(*times), version=2)
    assert [time for _, time in consumed(records(log))] == times
    with kts.Log(tmp_path / "t-0", {"message.format.version": "0.10.0"}) as follower:
        follower.append_as_follower(records(log))
        assert records(follower) == records(log)


def test_a_difference_of_long_max_accepts_any_create_time_and_a_smaller_one_keeps_all_within_a_range(
    asking: Asking,
) -> None:
    any_time = asking.create().partitions[0].log
    near = asking.create("near", max_message_time_difference_ms=str(DAY)).partitions[0].log
    for at in (0, NOW - DAY - 1, NOW - DAY, NOW, NOW + DAY, NOW + DAY + 1, 2**63 - 1):
        asking.produce("t", messages(at), version=2)
        asking.produce("near", messages(at), version=2)
    assert any_time.log_end_offset == 7
    assert [time for _, time in consumed(records(near))] == [NOW - DAY, NOW, NOW + DAY]


def test_by_default_the_server_does_not_override_any_user_timestamp(asking: Asking) -> None:
    config = asking.create().partitions[0].log.config
    assert (config.message_timestamp_type, config.message_timestamp_difference_max_ms) == ("CreateTime", 2**63 - 1)


# --- followers and the time index ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_follower_builds_the_time_index_from_the_timestamp_of_the_wrapper(kind: str, tmp_path: Path) -> None:
    settings = {"message.timestamp.type": kind, "index.interval.bytes": 0, "message.format.version": "0.10.0"}
    expected = [(NOW + 190, 5), (NOW + 290, 8)] if kind == "CreateTime" else [(NOW + 107, 5), (NOW + 207, 8)]
    with kts.Log(tmp_path / "t-0", settings) as follower:
        for at in (NOW, NOW + 100, NOW + 200):
            appended: dict[str, Any] = {"timestamp_type": kind, "log_append_time_ms": at + 7}
            one = kts.encode(
                {"timestamp": [at, at + 90, at + 50], "value": [b"v"] * 3},
                magic=1,
                compression="gzip",
                base_offset=follower.log_end_offset,
                **(appended if kind == "LogAppendTime" else {}),
            )
            follower.append_as_follower(one)
    assert entries(tmp_path / "t-0") == expected  # Kafka gives the first set of a segment no entry


def test_a_follower_builds_the_time_index_from_the_timestamp_of_a_plain_message(tmp_path: Path) -> None:
    settings = {"index.interval.bytes": 0, "message.format.version": "0.10.0"}
    with kts.Log(tmp_path / "t-0", settings) as follower:
        for offset, at in enumerate((NOW, NOW + 5, NOW + 2, NOW + 9)):
            one = kts.encode({"timestamp": [at], "value": [b"v"]}, magic=1, base_offset=offset)
            follower.append_as_follower(one)
    assert entries(tmp_path / "t-0") == [(NOW + 5, 1), (NOW + 9, 3)]


def test_the_last_entry_of_the_time_index_is_the_latest_timestamp_and_when_it_expires_the_segment_is_deleted(
    tmp_path: Path,
) -> None:
    now = [NOW]
    path = tmp_path / "t-0"
    with kts.Log(path, {"retention.ms": DAY, "index.interval.bytes": 0}, clock=lambda: now[0]) as log:
        for at in (NOW - 5, NOW + 70, NOW - 9):
            log.append(messages(at, magic=2))
        log.roll()
        assert entries(path)[-1] == (NOW + 70, 1)
        log.append(messages(NOW + 2 * DAY, magic=2))
        log.advance_high_watermark(log.log_end_offset)
        now[0] = NOW + 70 + DAY
        log.delete_old_segments()
        assert log.log_start_offset == 0
        now[0] += 1
        log.delete_old_segments()
        assert log.log_start_offset == 3


def test_when_a_message_is_deleted_depends_on_the_timestamps_of_the_others_in_its_segment(tmp_path: Path) -> None:
    gone = {}
    for name, other in (("alone", NOW), ("beside", NOW + 5 * DAY)):
        now = [NOW]
        with kts.Log(tmp_path / f"{name}-0", {"retention.ms": DAY}, clock=lambda: now[0]) as log:  # noqa: B023
            log.append(messages(NOW, other, magic=2))
            log.roll()
            log.append(messages(NOW + 99 * DAY, magic=2))
            log.advance_high_watermark(log.log_end_offset)
            while not log.log_start_offset:
                now[0] += DAY // 2
                log.delete_old_segments()
        gone[name] = (now[0] - NOW) / DAY
    assert gone == {"alone": 1.5, "beside": 6.5}


def test_with_log_append_time_rolling_and_retention_are_deterministic(tmp_path: Path) -> None:
    """The times that producers send change neither where segments begin nor when they go."""
    lives = []
    for name, times in (("right", range(10)), ("wrong", (0, 2**62, -1, 7, 5, 3, 2**40, 1, 0, 9))):
        now, life = [NOW], []
        settings = {"message.timestamp.type": "LogAppendTime", "segment.ms": 1000, "retention.ms": 1500}
        with kts.Log(tmp_path / f"{name}-0", settings, clock=lambda: now[0]) as log:  # noqa: B023
            for at in times:
                log.append(messages(at, magic=2))
                log.advance_high_watermark(log.log_end_offset)
                log.delete_old_segments()
                life.append([segment.base_offset for segment in log.segments])
                now[0] += 400
        lives.append(life)
    assert lives[0] == lives[1]
    assert lives[0][-1][0] > 0  # something rolled, and something went


# --- consumers ----------------------------------------------------------------------------------------


def test_a_consumer_uses_inner_timestamps_where_the_bit_of_the_wrapper_is_0_and_those_of_the_wrapper_where_it_is_1(
    asking: Asking,
) -> None:
    asking.create("create")
    asking.create("append", message_timestamp_type="LogAppendTime")
    seen = {}
    for name in ("create", "append"):
        asking.produce(name, wrapper(7, 3, 5), version=2)
        got = bytes(asking.fetch(name, version=2)["records"])
        rows = kts.decode(got, ["timestamp"])["timestamp"].cast("int64").to_pylist()
        assert rows == [time for _, time in consumed(got)]  # and so does the slow decoder
        seen[name] = rows
    assert seen == {"create": [7, 3, 5], "append": [NOW, NOW, NOW]}


def test_a_consumer_uses_the_timestamp_of_a_message_that_is_not_compressed(asking: Asking) -> None:
    asking.create()
    asking.produce("t", messages(7, 3), version=2)
    got = bytes(asking.fetch("t", version=2)["records"])
    assert kts.decode(got, ["timestamp"])["timestamp"].cast("int64").to_pylist() == [7, 3]


# --- producers ----------------------------------------------------------------------------------------


def test_metadata_and_callback_have_the_append_time_of_the_answer_or_else_the_time_that_the_producer_set() -> None:
    """A real client. Costs a second: two topics, a producer and its connection."""
    with KtsBroker(time=NOW) as broker:
        broker.create_topic("create")
        broker.create_topic("append", config={"message.timestamp.type": "LogAppendTime"})
        told: dict[str, int] = {}
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        for topic in ("create", "append"):
            future = producer.send(topic, b"v", timestamp_ms=5)
            future.add_callback(lambda done: told.__setitem__(done.topic, done.timestamp))
            assert future.get(30).timestamp == {"create": 5, "append": NOW}[topic]
        producer.close()
        assert told == {"create": 5, "append": NOW}  # so that the producer can tell which one it is
        assert [row.timestamp for row in broker.consume("append")] == [NOW]


def test_a_record_is_sent_with_its_timestamp_and_without_one_the_producer_stamps_it_with_the_current_time() -> None:
    """A real client, whose clock is not the broker's."""
    with KtsBroker(time=NOW) as broker:
        broker.create_topic("t")
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        producer.send("t", b"v", timestamp_ms=5).get(30)
        before = int(time.time() * 1000)
        producer.send("t", b"v").get(30)
        after = int(time.time() * 1000)
        producer.close()
        first, second = (row.timestamp for row in broker.consume("t"))
    assert first == 5
    assert before <= second <= after


# --- requests -----------------------------------------------------------------------------------------


def body_of(api: ApiKey, version: int, body: dict[str, Any]) -> bytes:
    frame = wire.encode_request(api, version, 7, "c", body)
    return bytes(frame)[4 + 2 + 2 + 4 + 2 + 1 :]


def test_produce_request_2_and_fetch_request_2_have_the_fields_of_version_1() -> None:
    data = [{"name": "t", "partition_data": [{"index": 0, "records": messages(NOW)}]}]
    produce = {"acks": 1, "timeout_ms": 5, "topic_data": data}
    parts = [{"partition": 0, "fetch_offset": 3, "partition_max_bytes": 9}]
    fetch = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "topics": [{"topic": "t", "partitions": parts}]}
    for api, body in ((ApiKey.PRODUCE, produce), (ApiKey.FETCH, fetch)):
        assert body_of(api, 1, body) == body_of(api, 2, body)


def test_produce_response_2_has_a_timestamp_for_each_partition() -> None:
    """Its throttle time is an int32; the paper draws 64 bits, which no Kafka has."""
    row = {"index": 3, "error_code": 0, "base_offset": 9, "log_append_time_ms": NOW}
    body = {"responses": [{"name": "t", "partition_responses": [row, row | {"index": 4}]}], "throttle_time_ms": 77}
    sent = {version: b"".join(bytes(part) for part in wire.encode_response(ApiKey.PRODUCE, version, 7, body))
            for version in (1, 2)}  # fmt: skip
    start = struct.pack(">ii", 7, 1) + struct.pack(">h", 1) + b"t" + struct.pack(">i", 2)
    rows = b"".join(struct.pack(">ihqq", index, 0, 9, NOW) for index in (3, 4))
    assert sent[2][4:] == start + rows + struct.pack(">i", 77)
    assert len(sent[2]) == len(sent[1]) + 2 * 8


def test_the_timestamp_of_the_answer_is_log_append_time_or_no_timestamp(asking: Asking) -> None:
    asking.create("create")
    asking.create("append", message_timestamp_type="LogAppendTime")
    for name, expected in (("create", kts.NO_TIMESTAMP), ("append", NOW)):
        assert asking.produce(name, messages(5), version=2)["log_append_time_ms"] == expected


# --- migration ----------------------------------------------------------------------------------------


@pytest.fixture
def phase_1(asking: Asking) -> kts.Log:
    """Six messages in two wrappers, by Produce 1 and by Produce 2, in the format of 0.9."""
    log = asking.create(message_format_version="0.9.0").partitions[0].log
    asking.produce("t", wrapper(5, 5, 5, magic=0), version=1)
    asking.produce("t", wrapper(5, 6, 7), version=2)
    return log


def test_in_phase_1_a_produce_request_1_is_stored_with_absolute_offsets(asking: Asking, phase_1: kts.Log) -> None:
    asking.produce("t", wrapper(5, 5, magic=0), version=1)
    assert inner(records(phase_1, 6)) == [(6, 0), (7, 0)]


def test_in_phase_1_a_produce_request_2_is_down_converted_and_its_time_ignored(phase_1: kts.Log) -> None:
    assert inner(records(phase_1, 3)) == [(3, 0), (4, 0), (5, 0)]
    assert [time for _, time in consumed(records(phase_1))] == [-1] * 6


@pytest.mark.parametrize("version", [1, 2])
def test_in_phase_1_fetch_requests_1_and_2_get_the_bytes_of_the_disk(
    asking: Asking, phase_1: kts.Log, version: int
) -> None:
    assert bytes(asking.fetch("t", version=version)["records"]) == records(phase_1)


@pytest.mark.parametrize(("kind", "expected"), [("CreateTime", -1), ("LogAppendTime", NOW)])
def test_in_phase_2_a_produce_request_1_is_up_converted_with_minus_1_or_the_servers_time(
    asking: Asking, kind: str, expected: int
) -> None:
    log = asking.create(message_timestamp_type=kind).partitions[0].log
    asking.produce("t", messages(5), version=2)
    asking.produce("t", wrapper(5, 6, magic=0), version=1)
    stored = records(log, 1)
    assert (stored[16], inner(stored)) == (1, [(0, 1), (1, 1)])
    assert consumed(stored) == [(1, expected), (2, expected)]


def test_in_phase_2_a_produce_request_2_gets_relative_offsets_and_is_not_recompressed(asking: Asking) -> None:
    log = asking.create().partitions[0].log
    asking.produce("t", messages(5), version=2)
    sent = wrapper(5, 6, 7)
    asking.produce("t", sent, version=2)
    assert records(log, 1)[TO_PAYLOAD:] == sent[TO_PAYLOAD:]
    assert struct.unpack_from(">q", records(log, 1))[0] == 3


def test_in_phase_2_a_fetch_request_1_is_down_converted_and_a_fetch_request_2_gets_the_bytes_of_the_disk(
    asking: Asking,
) -> None:
    log = asking.create().partitions[0].log
    asking.produce("t", wrapper(5, 6, 7), version=2)
    one, two = (bytes(asking.fetch("t", version=version)["records"]) for version in (1, 2))
    assert consumed(one) == [(0, -1), (1, -1), (2, -1)]
    assert {magic for _, magic in inner(one)} == {0}
    assert two == records(log)


def test_while_a_segment_has_both_formats_fetch_1_is_always_down_converted_and_fetch_2_never(
    asking: Asking, phase_1: kts.Log
) -> None:
    phase_1.reconfigure({"message.format.version": "0.10.0"})
    asking.produce("t", messages(5), version=2)
    assert len(phase_1.segments) == 1
    assert {row[1] for row in consumed(records(phase_1))} == {-1, 5}
    assert bytes(asking.fetch("t", version=2)["records"]) == records(phase_1)
    one = bytes(asking.fetch("t", version=1)["records"])
    assert [time for _, time in consumed(one)] == [-1] * 7


# --- the discussion -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("proposals", "alike"), [(("wall-clock",), False), ((), True)], ids=["creation", "timestamps"])
def test_log_rolling_by_creation_breaks_for_a_newly_created_replica_and_by_timestamps_it_does_not(
    proposals: tuple[str, ...], alike: bool, tmp_path: Path
) -> None:
    """The copy takes a moment for what the old replica got in a week. Each set comes alone, as from small fetches."""
    now = [NOW]
    with kts.Log(tmp_path / "old" / "t-0", {"segment.ms": DAY}, clock=lambda: now[0], proposals=proposals) as old:
        for _ in range(7):
            old.append(messages(now[0], magic=2))
            now[0] += DAY + 1
        with kts.Log(tmp_path / "new" / "t-0", {"segment.ms": DAY}, clock=lambda: now[0], proposals=proposals) as new:
            for offset in range(7):
                new.append_as_follower(old.read(offset, 1 << 20).records)
            assert new.log_end_offset == 7
            bases = [[segment.base_offset for segment in log.segments] for log in (old, new)]
    assert bases == [list(range(7)), list(range(7)) if alike else [0]]


def test_a_low_volume_topic_gets_another_segment_by_time_only(tmp_path: Path) -> None:
    """The main purpose of time based rolling; here with Kafka's own rule."""
    bases = {}
    for name, segment_ms in (("never", 2**62), ("daily", DAY)):
        with kts.Log(tmp_path / f"{name}-0", {"segment.ms": segment_ms}) as log:
            for day in range(5):
                log.append(messages(NOW + day * (DAY + 1), magic=2))
            bases[name] = [segment.base_offset for segment in log.segments]
    assert bases == {"never": [0], "daily": [0, 1, 2, 3, 4]}


def test_a_message_from_the_future_keeps_its_log_for_very_long(tmp_path: Path) -> None:
    now = [NOW]
    with kts.Log(tmp_path / "t-0", {"retention.ms": DAY}, clock=lambda: now[0]) as log:
        log.append(messages(NOW, NOW + 3650 * DAY, magic=2))
        log.roll()
        log.append(messages(NOW, magic=2))
        log.roll()
        log.advance_high_watermark(log.log_end_offset)
        now[0] += 3000 * DAY
        log.delete_old_segments()
        assert log.log_start_offset == 0
        log.reconfigure({"retention.ms": str(DAY), "message.timestamp.difference.max.ms": str(DAY)})
        with pytest.raises(kts.InvalidTimestampError):  # what the broker's check is for
            log.append(messages(now[0] + 3650 * DAY, magic=2))
