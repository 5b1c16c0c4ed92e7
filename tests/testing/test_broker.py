"""``kts.testing.KtsBroker``: written, read and aged without a socket, while Kafka's clients are connected."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.errors import KafkaError
from support.golden import PATIENCE_S

import kts
from kts.testing import ConsumerRecord, Expired, KtsBroker, RecordMetadata

T = 1_500_000_000_000
DAY_MS = 86_400_000
CREATE, APPEND, NONE = kts.TimestampType.CreateTime, kts.TimestampType.LogAppendTime, kts.TimestampType.NoTimestampType


@pytest.fixture
def broker() -> Iterator[KtsBroker]:
    with KtsBroker(time=T) as running:
        yield running


def polled(consumer: KafkaConsumer, enough: Callable[[list[ConsumerRecord]], bool]) -> list[ConsumerRecord]:
    """What a consumer gets until that is enough."""
    found: list[ConsumerRecord] = []
    until = time.monotonic() + PATIENCE_S
    while not enough(found) and time.monotonic() < until:
        # kafka-python 3.0 may forget a rebalance that it is in when a shorter poll ends
        for records in consumer.poll(5000).values():
            found += records
    assert enough(found), f"after {PATIENCE_S} s there is only {found}"
    return found


# --- records --------------------------------------------------------------------------------------


def test_a_record_has_its_own_time_under_create_time(broker: KtsBroker) -> None:
    broker.create_topic("orders", 2)
    first = broker.produce("orders", "paid", "k", partition=1, timestamp_ms=T - 5, headers={"trace": b"1"})
    second = broker.produce("orders", None, b"k", partition=1)
    third = broker.produce("orders", b"", partition=1, timestamp_ms=datetime(2020, 1, 1, tzinfo=UTC))
    assert first == RecordMetadata("orders", 1, 0, T - 5, CREATE)
    assert second == RecordMetadata("orders", 1, 1, T, CREATE)
    assert third == RecordMetadata("orders", 1, 2, 1_577_836_800_000, CREATE)
    assert broker.consume("orders") == [
        ConsumerRecord("orders", 1, 0, T - 5, CREATE, b"k", b"paid", (("trace", b"1"),), 0),
        ConsumerRecord("orders", 1, 1, T, CREATE, b"k", None, (), 0),
        ConsumerRecord("orders", 1, 2, 1_577_836_800_000, CREATE, None, b"", (), 0),
    ]


def test_a_record_has_the_brokers_time_under_log_append_time(broker: KtsBroker) -> None:
    broker.create_topic("orders", config={"message.timestamp.type": "LogAppendTime"})
    assert broker.produce("orders", "a", timestamp_ms=5) == RecordMetadata("orders", 0, 0, T, APPEND)
    broker.advance(1000)
    assert broker.produce("orders", "b", timestamp_ms=5) == RecordMetadata("orders", 0, 1, T + 1000, APPEND)
    broker.set_time(T - 7)
    assert broker.produce("orders", "c") == RecordMetadata("orders", 0, 2, T - 7, APPEND)
    assert [(row.timestamp, row.timestampType) for row in broker.consume("orders")] == [
        *((T, APPEND), (T + 1000, APPEND), (T - 7, APPEND))
    ]
    broker.alter_topic("orders", {"message.timestamp.type": "CreateTime"})
    assert broker.produce("orders", "d", timestamp_ms=5) == RecordMetadata("orders", 0, 3, 5, CREATE)
    broker.alter_topic("orders", {"message.timestamp.type": None})
    assert broker.produce("orders", "e", timestamp_ms=6) == RecordMetadata("orders", 0, 4, 6, CREATE)


def test_a_topic_of_the_first_message_format_has_no_times(broker: KtsBroker) -> None:
    broker.create_topic("old", config={"message.format.version": "0.9.0"})
    assert broker.produce("old", "a", timestamp_ms=5) == RecordMetadata("old", 0, 0, -1, NONE)
    [row] = broker.consume("old")
    assert (row.timestamp, row.timestampType, row.leaderEpoch) == (-1, NONE, -1)


def test_keys_go_where_javas_producer_sends_them_and_the_rest_in_turn(broker: KtsBroker) -> None:
    broker.create_topic("orders", 7)
    # Utils.murmur2 of these keys: -973932308, -790332482, 479470107
    found = {key: broker.produce("orders", "v", key).partition for key in ("21", "foobar", "abc")}
    assert found == {"21": 1173551340 % 7, "foobar": 1357151166 % 7, "abc": 479470107 % 7}
    assert {broker.produce("orders", "v").partition for _ in range(7)} == set(range(7))


def test_consume_begins_anywhere_and_inside_a_batch(broker: KtsBroker, rng) -> None:
    broker.create_topic("orders")
    values = [b"%d" % number for number in range(1000)]
    for start in range(0, 1000, 100):
        columns = {"timestamp": [T] * 100, "value": values[start : start + 100]}
        done = broker.append("orders", kts.encode(columns, compression="gzip"))
        assert (done.first_offset, done.last_offset) == (start, start + 99)
    assert [row.value for row in broker.consume("orders")] == values
    for _ in range(20):
        start, count = rng.randrange(1001), rng.randrange(1100)
        rows = broker.consume("orders", 0, offset=start, max_records=count)
        assert [row.value for row in rows] == values[start : start + count]
    assert broker.consume("orders", offset=1000) == []
    with pytest.raises(kts.OffsetOutOfRangeError):
        broker.consume("orders", offset=1001)


def test_what_is_refused_has_kafkas_code_and_leaves_nothing(broker: KtsBroker) -> None:
    broker.create_topic("near", config={"message.timestamp.difference.max.ms": 1000, "max.message.bytes": 200})
    broker.produce("near", "in time", timestamp_ms=T - 1000)
    with pytest.raises(kts.InvalidTimestampError):
        broker.produce("near", "late", timestamp_ms=T - 1001)
    with pytest.raises(kts.RecordTooLargeError):
        broker.produce("near", "x" * 300)
    with pytest.raises(kts.UnknownTopicOrPartitionError, match="expected a partition of \\[0\\], found 1"):
        broker.produce("near", "x", partition=1)
    broker.advance(1)
    with pytest.raises(kts.InvalidTimestampError):
        broker.produce("near", "late now", timestamp_ms=T - 1000)
    assert [row.value for row in broker.consume("near")] == [b"in time"]


def test_topics_are_made_as_clients_would_make_them(broker: KtsBroker) -> None:
    broker.produce("made", "a")
    broker.create_topic("given", 3)
    assert broker.topics() == ["given", "made"]
    assert broker.partitions("given") == [0, 1, 2]
    with pytest.raises(kts.KtsError) as taken:
        broker.create_topic("given")
    assert taken.value.code == 36
    for name in ("", "..", "a/b", "a" * 250):
        with pytest.raises(kts.KtsError) as bad:
            broker.produce(name, "a")
        assert bad.value.code == 17, name
    with pytest.raises(kts.KtsError) as wrong:
        broker.create_topic("wrong", config={"retention.ms": "soon"})
    assert wrong.value.code == 40
    broker.delete_topic("given")
    assert broker.topics() == ["made"]
    with pytest.raises(kts.UnknownTopicOrPartitionError, match="given.*made"):
        broker.consume("given")
    with KtsBroker(config={"auto.create.topics.enable": False}) as strict:
        with pytest.raises(kts.UnknownTopicOrPartitionError):
            strict.produce("nowhere", "a")
        assert strict.topics() == []


# --- time -----------------------------------------------------------------------------------------


def test_retention_goes_by_the_brokers_clock_and_says_what_went_and_why(broker: KtsBroker) -> None:
    broker.create_topic("orders", config={"retention.ms": DAY_MS, "segment.bytes": 1000})
    broker.create_topic("clicks", config={"retention.bytes": 0, "retention.ms": -1})
    for hour in range(4):
        broker.produce("orders", "x", timestamp_ms=T + hour)
        assert broker.roll("orders") == hour + 1
    broker.produce("clicks", "x" * 100)
    log = broker.log("orders")
    sizes = [segment.size for segment in log.segments]
    size = broker.log("clicks").size_bytes
    assert size > 100
    assert broker.run_retention() == [Expired("clicks", 0, 0, size, T, "retention.bytes")]
    broker.advance(timedelta(days=1))
    assert broker.run_retention() == []
    assert broker.advance(2) == T + DAY_MS + 2
    assert broker.run_retention() == [
        Expired("orders", 0, 0, sizes[0], T, "retention.ms"),
        Expired("orders", 0, 1, sizes[1], T + 1, "retention.ms"),
    ]
    assert log.log_start_offset == 2
    assert [row.offset for row in broker.consume("orders")] == [2, 3]
    broker.advance(DAY_MS)
    assert [gone.base_offset for gone in broker.run_retention()] == [2, 3]
    assert broker.consume("orders") == []
    assert broker.produce("orders", "y").offset == 4


def test_the_cleaner_goes_by_the_brokers_clock_and_says_what_it_cleaned(broker: KtsBroker) -> None:
    settings = {"cleanup.policy": "compact", "min.compaction.lag.ms": 1000, "delete.retention.ms": DAY_MS}
    broker.create_topic("state", config=settings)
    broker.create_topic("events")
    for topic in ("state", "events"):
        for value in ("1", "2"):
            broker.produce(topic, value, key="a")
        broker.produce(topic, None, key="b")
        broker.roll(topic)
    assert broker.clean() == []
    broker.advance(1000)
    [done] = broker.clean()
    assert (done.topic, done.partition) == ("state", 0)
    assert (done.cleaned.records_before, done.cleaned.records_after) == (3, 2)
    assert [(row.offset, row.value) for row in broker.consume("state")] == [(1, b"2"), (2, None)]
    assert len(broker.consume("events")) == 3
    broker.produce("state", "3", key="c")
    broker.roll("state")
    broker.advance(DAY_MS)
    assert broker.clean() == []  # below min.cleanable.dirty.ratio
    [done] = broker.clean(force=True)
    assert done.cleaned.removed["tombstones"] == 1
    assert [row.value for row in broker.consume("state")] == [b"2", b"3"]


def test_a_pass_that_fails_is_told_and_leaves_the_partition_to_the_next_start(broker: KtsBroker) -> None:
    broker.create_topic("state", 2, config={"cleanup.policy": "compact"})
    for partition in (0, 1):
        for value in ("1", "2"):
            broker.produce("state", value, key="a", partition=partition)
        broker.roll("state", partition)
    path = Path(broker.log("state").segments[0].path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(kts.CorruptRecordError, match="CRC"):
        broker.clean()
    assert [row.value for row in broker.consume("state", partition=1)] == [b"2"]
    broker.produce("state", "3", key="a", partition=0)
    broker.roll("state", 0)
    assert broker.clean() == []
    assert broker.log("state").log_end_offset == 3


def test_nothing_expires_by_itself(broker: KtsBroker) -> None:
    broker.create_topic("orders", config={"retention.ms": 1})
    broker.produce("orders", "x")
    broker.advance(timedelta(days=365))
    assert len(broker.consume("orders")) == 1
    assert len(broker.run_retention()) == 1
    assert broker.consume("orders") == []


def test_segments_roll_by_the_brokers_clock_for_records_without_a_time(broker: KtsBroker) -> None:
    broker.create_topic("orders", config={"segment.ms": 1000, "message.timestamp.type": "LogAppendTime"})
    for step in (0, 1000, 1, 1000, 1):
        broker.advance(step)
        broker.produce("orders", "x")
    assert [segment.base_offset for segment in broker.log("orders").segments] == [0, 2, 4]


def test_offsets_for_times_are_those_of_the_log(broker: KtsBroker) -> None:
    broker.create_topic("orders", 2)
    for number, late in enumerate((0, 10, 5, 20, 15)):
        assert broker.produce("orders", "x", partition=0, timestamp_ms=T + late).offset == number
    asked = {("orders", 0): T + 6, ("orders", 1): T}
    assert broker.offsets_for_times(asked) == {("orders", 0): kts.TimestampOffset(T + 10, 1), ("orders", 1): None}
    assert broker.offsets_for_times({("orders", 0): datetime(2100, 1, 1, tzinfo=UTC)}) == {("orders", 0): None}
    assert broker.log("orders").max_timestamp() == kts.TimestampOffset(T + 20, 3)


# --- start and stop -------------------------------------------------------------------------------


def test_a_restart_keeps_the_port_the_records_and_the_time(broker: KtsBroker) -> None:
    broker.create_topic("orders", 2, {"retention.ms": 1000})
    broker.produce("orders", "before", partition=1)
    where = broker.bootstrap_servers
    broker.restart()
    assert broker.bootstrap_servers == where
    assert broker.clock() == T
    broker.produce("orders", "after", partition=1)
    rows = broker.consume("orders")
    assert [(row.offset, row.value) for row in rows] == [(0, b"before"), (1, b"after")]
    assert rows[0].leaderEpoch < rows[1].leaderEpoch
    broker.advance(1001)
    assert len(broker.run_retention()) == 1


def test_a_killed_broker_recovers_what_was_written(broker: KtsBroker) -> None:
    for number in range(20):
        broker.produce("orders", f"{number}")
    broker.kill()
    broker.start()
    assert not broker.log("orders").clean_start
    assert [row.value for row in broker.consume("orders")] == [b"%d" % number for number in range(20)]
    assert broker.produce("orders", "after").offset == 20
    broker.restart()
    assert broker.log("orders").clean_start
    assert len(broker.consume("orders")) == 21


def test_a_stopped_broker_says_so_and_starts_again(broker: KtsBroker) -> None:
    broker.produce("orders", "a")
    broker.stop()
    for call in (broker.run_retention, broker.topics, lambda: broker.consume("orders"), lambda: broker.produce("t")):
        with pytest.raises(kts.LogClosedError, match="expected a running broker"):
            call()
    assert "stopped" in repr(broker)
    broker.start()
    assert broker.bootstrap_servers in repr(broker)
    with pytest.raises(kts.InvalidRequestError, match="expected a stopped broker"):
        broker.start()
    assert [row.value for row in broker.consume("orders")] == [b"a"]


def test_a_chosen_directory_is_kept_and_a_temporary_one_goes(tmp_path: Path) -> None:
    with KtsBroker() as broker:
        broker.produce("orders", "a")
        temporary = Path(broker.directory)
        assert (temporary / "orders-0").is_dir()
    assert not temporary.exists()
    with pytest.raises(kts.LogClosedError, match="found a closed one"):
        broker.start()
    broker.close()
    with KtsBroker(tmp_path / "kept", time=T) as broker:
        broker.produce("orders", "a")
        with pytest.raises(kts.LogLockedError):
            KtsBroker(tmp_path / "kept").start()
    assert kts.scan(tmp_path / "kept").read_all()["value"].to_pylist() == [b"a"]
    with KtsBroker(tmp_path / "kept") as broker:
        assert [(row.timestamp, row.value) for row in broker.consume("orders")] == [(T, b"a")]


def test_a_broker_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    broker = KtsBroker(host="0.0.0.0")
    with pytest.raises(kts.InvalidRequestError, match="loopback"), broker:
        pass
    assert not Path(broker.directory).exists()
    with KtsBroker(tmp_path) as running:
        with pytest.raises(OSError, match="in use"):
            KtsBroker(port=running.port).start()
        with pytest.raises(ValueError, match="num.partition.*num.partitions"):
            KtsBroker(config={"num.partition": 3}).start()
    with KtsBroker(tmp_path, port=running.port) as again:
        assert again.port == running.port


def test_several_brokers_live_beside_each_other() -> None:
    with KtsBroker(time=T) as one, KtsBroker(time=T + 1) as other:
        assert one.port != other.port
        assert one.directory != other.directory
        one.produce("orders", "one")
        other.produce("orders", "other")
        assert [row.value for row in one.consume("orders")] == [b"one"]
        assert [(row.value, row.timestamp) for row in other.consume("orders")] == [(b"other", T + 1)]


# --- with clients ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_clients_and_the_test_read_each_others_records(broker: KtsBroker) -> None:
    broker.create_topic("orders", config={"message.timestamp.type": "LogAppendTime"})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    sent = producer.send("orders", b"theirs", key=b"k", headers=[("a", b"b")]).get(PATIENCE_S)
    producer.close()
    assert (sent.offset, sent.timestamp) == (0, T)
    assert broker.produce("orders", "ours").offset == 1
    assert broker.consume("orders")[0][2:8] == (0, T, APPEND, b"k", b"theirs", (("a", b"b"),))
    consumer = KafkaConsumer("orders", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    found = polled(consumer, lambda rows: len(rows) == 2)
    where = TopicPartition("orders", 0)
    assert consumer.offsets_for_times({where: T})[where].offset == 0
    consumer.close()
    assert [(row.value, row.timestamp, row.timestamp_type) for row in found] == [(b"theirs", T, 1), (b"ours", T, 1)]


@pytest.mark.slow
def test_a_consumer_that_waits_gets_a_record_at_once(broker: KtsBroker) -> None:
    """Its fetch would wait half an hour, ten times the patience of this test."""
    broker.create_topic("orders")
    long_ms = 1_800_000
    waits = {"fetch_max_wait_ms": long_ms, "request_timeout_ms": long_ms + 1, "connections_max_idle_ms": long_ms + 2}
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, **waits)
    consumer.assign([TopicPartition("orders", 0)])
    consumer.seek(TopicPartition("orders", 0), 0)
    assert consumer.poll(300) == {}
    for number in range(5):
        broker.produce("orders", b"%d" % number)
        assert [row.value for row in polled(consumer, bool)] == [b"%d" % number]
        broker.advance(timedelta(days=100))
    consumer.close()


class Rebalances(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_partitions_revoked(self, revoked: object) -> None:
        self.seen.append("revoked")

    def on_partitions_assigned(self, assigned: object) -> None:
        self.seen.append("assigned")


def test_moving_the_clock_ends_no_session(broker: KtsBroker) -> None:
    broker.create_topic("orders")
    group = {"group_id": "g", "auto_offset_reset": "earliest", "session_timeout_ms": 60_000}
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, **group)
    rebalances = Rebalances()
    consumer.subscribe(["orders"], listener=rebalances)
    for number, move in enumerate((timedelta(0), timedelta(days=1000), timedelta(hours=1))):
        broker.advance(move)
        broker.produce("orders", "x")
        assert [row.offset for row in polled(consumer, bool)] == [number]
        consumer.commit()
        if number == 0:
            before = list(rebalances.seen)
    broker.set_time(T)
    broker.produce("orders", "x")
    assert [row.offset for row in polled(consumer, bool)] == [3]
    consumer.commit()
    assert rebalances.seen == before
    assert consumer.committed(TopicPartition("orders", 0)) == 4
    consumer.close()


def test_threads_and_clients_may_write_at_once(broker: KtsBroker) -> None:
    broker.create_topic("orders")
    failed: list[BaseException] = []

    def write(name: str) -> None:
        try:
            for number in range(200):
                broker.produce("orders", f"{number}", name)
        except BaseException as error:
            failed.append(error)

    def send(name: str) -> None:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=1)
        futures = [producer.send("orders", b"%d" % number, name.encode()) for number in range(200)]
        try:
            for future in futures:
                future.get(PATIENCE_S)
        except BaseException as error:
            failed.append(error)
        producer.close()

    threads = [threading.Thread(target=write, args=(f"w{number}",)) for number in range(3)]
    threads += [threading.Thread(target=send, args=(f"s{number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    rows = broker.consume("orders")
    assert [row.offset for row in rows] == list(range(1000))
    for name in (b"w0", b"w1", b"w2", b"s0", b"s1"):
        assert [row.value for row in rows if row.key == name] == [b"%d" % number for number in range(200)]


def test_what_groups_committed_goes_with_a_topic(broker: KtsBroker) -> None:
    topic = TopicPartition("orders", 0)
    for number in range(2):
        broker.produce("orders", b"first")
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing")
        consumer.assign([topic])
        assert consumer.committed(topic) is None, f"topic {number}"
        consumer.seek_to_end(topic)
        assert consumer.position(topic) == 1
        consumer.commit()
        assert consumer.committed(topic) == 1
        consumer.close()
        broker.delete_topic("orders")


# --- where it listens -----------------------------------------------------------------------------


def test_an_ipv6_address_is_given_to_clients_in_brackets() -> None:
    with KtsBroker(host="::1") as broker:
        assert broker.bootstrap_servers == f"[::1]:{broker.port}"
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        try:
            producer.send("orders", b"v").get(PATIENCE_S)
        finally:
            producer.close()
        assert [record.value for record in broker.consume("orders")] == [b"v"]


@pytest.mark.parametrize(
    "asked",
    [
        {"insecure": True},
        {"insecure": True, "config": {"advertised.listeners": "PLAINTEXT://localhost:19092"}},
        {"config": {"advertised.listeners": "PLAINTEXT://host.docker.internal:19092"}},
    ],
    ids=["asked for", "asked for, with a name", "a name for others"],
)
def test_containers_reach_a_broker_that_listens_for_them(asked: dict[str, Any]) -> None:
    with KtsBroker(host="0.0.0.0", **asked) as broker:
        [node] = (
            AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
            .list_topics(timeout=PATIENCE_S)
            .brokers.values()
        )
        advertised = asked.get("config", {}).get("advertised.listeners", f"x://127.0.0.1:{broker.port}")
        assert f"{node.host}:{node.port}" == advertised.partition("://")[2]


@pytest.mark.parametrize("config", [{}, {"advertised.listeners": "PLAINTEXT://localhost:19092"}])
def test_without_being_asked_it_is_open_to_no_other_machine(config: dict[str, str]) -> None:
    with pytest.raises(kts.InvalidRequestError, match=r"found 0\.0\.0\.0: .*; insecure=True allows it"):
        KtsBroker(host="0.0.0.0", config=config).start()


def test_settings_without_an_effect_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:19094",
        "advertised.listeners": "PLAINTEXT://localhost:19094,IN://host.docker.internal:19095",
        "num.io.threads": 8,  # as Kafka's default has it
        "num.network.threads": 5,
        "log.retention.ms": 1000,
    }
    with KtsBroker(config=given) as broker:
        broker.create_topic("orders")
    said = [record.getMessage() for record in caplog.records if "without an effect" in record.getMessage()]
    assert said == [
        "settings without an effect here: listeners, num.network.threads, 1 of advertised.listeners"
        " (only the first counts)"
    ]


def test_a_transactional_producer_is_told_what_is_missing(broker: KtsBroker, caplog: pytest.LogCaptureFixture) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x")
    try:
        with pytest.raises(KafkaError):
            producer.init_transactions()
    finally:
        producer.close(timeout=5)
    assert "a producer was refused: kts has no transactions yet: leave transactional.id out" in caplog.text
