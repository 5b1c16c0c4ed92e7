"""What a real broker wrote of its groups is what ours goes on with, and the other way round."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.clients.group_members import LIBRARIES, joined
from support.golden import PATIENCE_S
from support.kafka.brokers import STEADY
from support.kafka.brokers import Broker as RealBroker
from support.waiting import wait_until

import kts
from kts.broker.broker import Broker
from kts.broker.groups import journal
from kts.broker.groups.group import State
from kts.server.server import ServerThread

PARTITIONS = 50  # of the offsets topic, as Kafka has it
Offsets = dict[int, tuple[int, str]]


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


LOADING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
Found = TypeVar("Found")


def patiently(ask: Callable[[], Found]) -> Found:
    """Again and again while a real broker that has just started is not a coordinator yet: librdkafka does not."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in LOADING or time.monotonic() > until:
                raise
        time.sleep(0.1)


def commit(bootstrap: str, group: str, offsets: Offsets) -> None:
    """As an administrator."""
    wanted = [TopicPartition("t", index, offset, metadata=text) for index, (offset, text) in offsets.items()]
    asked = ConsumerGroupTopicPartitions(group, wanted)
    client = admin(bootstrap)

    def once() -> None:
        for future in client.alter_consumer_group_offsets([asked], request_timeout=PATIENCE_S).values():
            for each in future.result().topic_partitions:
                if each.error is not None:
                    raise KafkaException(each.error)

    patiently(once)


def commit_with_metadata(bootstrap: str, group: str, offsets: Offsets) -> None:
    """As a consumer that is in no group."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    wanted = [TopicPartition("t", index, offset, metadata=text) for index, (offset, text) in offsets.items()]
    patiently(lambda: consumer.commit(offsets=wanted, asynchronous=False))
    consumer.close()


def delete(bootstrap: str, group: str) -> None:
    client = admin(bootstrap)  # which has to live until the answer is there
    patiently(lambda: client.delete_consumer_groups([group], request_timeout=PATIENCE_S)[group].result())


def committed(bootstrap: str, group: str) -> Offsets:
    asked = ConsumerGroupTopicPartitions(group)
    client = admin(bootstrap)

    def once() -> list[TopicPartition]:
        (future,) = client.list_consumer_group_offsets([asked], request_timeout=PATIENCE_S).values()
        found = future.result().topic_partitions
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        return found

    found = patiently(once)
    assert all(each.topic == "t" for each in found)
    return {each.partition: (each.offset, plain(each.metadata)) for each in found}


def plain(metadata: str | None) -> str:
    """Without the NUL that confluent-kafka sends behind the text."""
    return (metadata or "").rstrip("\0")


def groups(bootstrap: str) -> dict[str, str]:
    """Each group's state, of those that are loaded."""
    client = admin(bootstrap)
    found = client.list_consumer_groups(request_timeout=PATIENCE_S).result()
    return {each.group_id: each.state.name.capitalize() for each in found.valid}


def test_offsets_go_from_a_real_broker_to_ours_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "REWRITE_BYTES", 0)  # partitions that are mostly outdated are written anew
    folder = tmp_path / "real"
    folder.mkdir()
    simple = {0: (5, "m"), 1: (6, "é" * 100)}
    own = {"offsets.topic.num.partitions": PARTITIONS, "group.initial.rebalance.delay.ms": 0}
    with RealBroker("3.9.2", folder, STEADY | own) as real:
        real.start()
        topic = NewTopic("t", 2, 1)
        client = admin(real.bootstrap)
        client.create_topics([topic], operation_timeout=PATIENCE_S)["t"].result()
        commit_with_metadata(real.bootstrap, "simple", simple)
        for offset in range(10):
            commit(real.bootstrap, "often", {0: (offset, "")})
        commit(real.bootstrap, "gone", {0: (1, "")})
        commit(real.bootstrap, "deleted", {0: (1, "")})
        delete(real.bootstrap, "deleted")
        member = LIBRARIES["confluent-kafka"](real.bootstrap, "members", "t")
        static = LIBRARIES["confluent-kafka"](real.bootstrap, "members", "t", "one")
        with joined(member, static):
            wait_until("both have their part", lambda: len(member.assigned) == len(static.assigned) == 1)
            real.stop()

        with Broker(real.data) as ours:
            offsets = ours.topics.get("__consumer_offsets")
            assert offsets is not None
            assert len(offsets.partitions) == PARTITIONS
            coordinator = ours.coordinator
            assert coordinator.journal.problems == []
            assert {group.group_id: group.state for group in coordinator.groups()} == {
                "simple": State.EMPTY,
                "often": State.EMPTY,
                "gone": State.EMPTY,
                "members": State.STABLE,
            }
            found = coordinator.fetch("simple", None)
            assert {index: (each.offset, plain(each.metadata)) for (_, index), each in found.items()} == simple
            assert coordinator.fetch("often", None)["t", 0].offset == 9
            assert offsets.partitions[coordinator.journal.partition_for("often")].log.log_start_offset >= 10
            group = coordinator.registry.groups["members"]
            assert set(group.static) == {"one"}
            assert {len(each.assignment) > 0 for each in group.members.values()} == {True}
            assert group.topics == {"t"}
            with_thread = ServerThread(ours)
            host, port = with_thread.start()
            try:
                bootstrap = f"{host}:{port}"
                assert committed(bootstrap, "simple") == simple
                commit_with_metadata(bootstrap, "simple", {1: (7, "ours")})
                commit(bootstrap, "new", {0: (3, ""), 1: (4, "")})
                delete(bootstrap, "gone")
                topic_t = ours.topics.get("t")
                assert topic_t is not None
                for partition in topic_t.partitions.values():
                    partition.append(kts.encode({"value": pa.array([b"v"], pa.binary())}))
                reader = LIBRARIES["kafka-python"](bootstrap, "readers", "t")
                with joined(reader):
                    wait_until("all is read", lambda: len(reader.records) == 2)
                    reader.leave()
            finally:
                with_thread.stop()

        real.start()
        expected = {"simple", "often", "new", "members", "readers"}
        wait_until("the real broker has loaded its groups", lambda: set(groups(real.bootstrap)) == expected)
        assert committed(real.bootstrap, "simple") == simple | {1: (7, "ours")}
        assert committed(real.bootstrap, "new") == {0: (3, ""), 1: (4, "")}
        assert committed(real.bootstrap, "readers") == {0: (1, ""), 1: (1, "")}
        assert committed(real.bootstrap, "often") == {0: (9, "")}
        assert committed(real.bootstrap, "gone") == {}
