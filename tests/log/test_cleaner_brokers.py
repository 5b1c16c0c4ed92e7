"""Real brokers open what the cleaner left, read the same from it, and clean on from its checkpoint."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from support.golden import scaled
from support.kafka.broker_load import complaints, errors
from support.kafka.brokers import Broker
from support.waiting import wait_until

import kts
from kts.offline.verify import verify
from kts.segment import checkpoints

SIZE = {"3.9.2": "segment.bytes", "4.3.1": "internal.segment.bytes"}
TOPIC = "state"


@pytest.mark.slow
def test_real_brokers_open_a_cleaned_log_and_clean_on(tmp_path: Path) -> None:
    """Two starts of each broker, one of them in `make test`: the other version is drawn at full length."""
    for version in [*SIZE][-scaled(1, 2) :]:
        play(version, tmp_path / version)


def play(version: str, folder: Path) -> None:
    folder.mkdir()
    with Broker(version, folder, {"log.cleaner.backoff.ms": 200}) as broker:
        broker.start()
        settings = {
            "cleanup.policy": "compact",
            SIZE[version]: "2000",
            "min.cleanable.dirty.ratio": "1",  # no ratio is above it: this broker does not clean yet
            "delete.retention.ms": "1",
            "index.interval.bytes": "100",
        }
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)]).values():
            future.result()
        produce(broker, range(120))
        broker.stop()
        before = state(broker)
        config = {"cleanup.policy": "compact", "segment.bytes": 2000, "delete.retention.ms": 1}
        with kts.Log(broker.partition(TOPIC), config, release="3.9") as log:
            assert log.recovered == []
            first = log.clean(force=True)
            assert first.reason is None and first.records_after < first.records_before / 2
            assert first.removed["aborted"] and first.removed["superseded"]
        assert state(broker) == before
        assert [str(one) for one in verify(broker.data, deep=True)] == []
        broker.start()
        said = broker.said()
        assert errors(said) == []
        assert complaints(said, TOPIC) == []
        assert consumed(broker) == before
        change = ConfigEntry("min.cleanable.dirty.ratio", "0.001", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[change])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result()
        produce(broker, range(120, 240))
        wait_until("the broker cleans on", lambda: checkpoint(broker) > first.next_dirty_offset)
        after = consumed(broker)
        broker.stop()
        assert state(broker) == after
        assert not [line for line in broker.said() if "uncleanable" in line or "LogCleaner" in line and "ERROR" in line]
        assert [str(one) for one in verify(broker.data, deep=True)] == []
        with kts.Log(broker.partition(TOPIC), config, release="3.9") as log:
            again = log.clean(force=True)  # and kts where the broker left off
            assert first.next_dirty_offset < again.first_dirty_offset <= log.log_end_offset
        assert state(broker) == after


def produce(broker: Broker, numbers: range) -> None:
    """Ten transactions, every third of them aborted, over a few keys, with some tombstones."""
    common = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "compression.type": "zstd"}
    producer = confluent_kafka.Producer(common | {"transactional.id": "cleaning"})
    producer.init_transactions()
    for first in numbers[::12]:
        producer.begin_transaction()
        for number in range(first, first + 12):
            value = None if number % 17 == 0 else b"%d " % number * 20
            producer.produce(TOPIC, key=b"k%d" % (number * 7 % 13), value=value)
            producer.flush()
        if first // 12 % 3 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()


def checkpoint(broker: Broker) -> int:
    found = checkpoints.read_checkpoint(str(broker.data / "cleaner-offset-checkpoint")) or {}
    return found.get((TOPIC, 0), 0)


def latest(rows: list[tuple[int, bytes, bytes | None]]) -> dict[bytes, tuple[int, bytes]]:
    """What a reader of the whole topic knows at the end."""
    known: dict[bytes, tuple[int, bytes]] = {}
    for offset, key, value in rows:
        known.pop(key, None)
        if value is not None:
            known[key] = offset, value
    return known


def state(broker: Broker) -> dict[bytes, tuple[int, bytes]]:
    """By kts, from the files."""
    found = kts.scan(broker.partition(TOPIC), columns=["offset", "key", "value"], isolation="read_committed")
    return latest([tuple(row.values()) for row in found.read_all().to_pylist()])


def consumed(broker: Broker) -> dict[bytes, tuple[int, bytes]]:
    """By a consumer of librdkafka, from the broker."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reading",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    rows: list[tuple[int, bytes, bytes | None]] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                return latest(rows)
            rows.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()
