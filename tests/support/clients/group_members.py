"""Members of consumer groups: the consumers of three client libraries, each in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import kafka
from support.golden import PATIENCE_S

SESSION_MS, HEARTBEAT_MS = 30_000, 150  # nobody is to be struck because a machine is busy
Record = tuple[int, int, bytes]  # partition, offset, value


class GroupMember:
    """A consumer that subscribes to one topic, polls in a thread of its own, and commits what it has read."""

    def __init__(self, bootstrap: str, group: str, topic: str, instance: str | None = None) -> None:
        self.bootstrap, self.group, self.topic, self.instance = bootstrap, group, topic, instance
        self.records: list[Record] = []
        self.assigned: frozenset[int] = frozenset()
        self.failure: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=f"{type(self).__name__} of {group}", daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.failure = error
            raise

    def run(self) -> None:
        """Poll until it is to leave; then commit and leave."""
        raise RuntimeError("a client library says how")

    @property
    def going(self) -> bool:
        return not self._ended.is_set()

    def leave(self) -> None:
        """Commit, leave the group, and end."""
        self._ended.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"
        assert self.failure is None, self.failure


class KafkaPython(GroupMember):
    def run(self) -> None:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=self.instance,
            auto_offset_reset="earliest",
            enable_auto_commit=True,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        try:
            while self.going:
                # kafka-python 3.0 may forget a rebalance that it is in when a shorter poll ends
                for partition, found in consumer.poll(timeout_ms=1000).items():
                    self.records += [(partition.partition, each.offset, each.value) for each in found]
                self.assigned = frozenset(each.partition for each in consumer.assignment())
            if self.assigned:
                consumer.commit()
        finally:
            consumer.close(timeout_ms=10_000)


class AioKafka(GroupMember):
    def run(self) -> None:
        asyncio.run(self.poll())

    async def poll(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=self.instance,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        await consumer.start()
        try:
            while self.going:
                for partition, found in (await consumer.getmany(timeout_ms=50)).items():
                    self.records += [(partition.partition, each.offset, each.value) for each in found]
                self.assigned = frozenset(each.partition for each in consumer.assignment())
            if self.assigned:
                await consumer.commit()
        finally:
            await consumer.stop()


class Confluent(GroupMember):
    def run(self) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "log_level": 0,
        }
        if self.instance is not None:
            settings["group.instance.id"] = self.instance
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe([self.topic])
        try:
            while self.going:
                for each in consumer.consume(500, timeout=0.05):
                    if each.error() is not None:
                        raise confluent_kafka.KafkaException(each.error())
                    self.records.append((each.partition(), each.offset(), each.value()))
                self.assigned = frozenset(each.partition for each in consumer.assignment())
            with contextlib.suppress(confluent_kafka.KafkaException):  # nothing new to commit
                consumer.commit(asynchronous=False)
        finally:
            consumer.close()


LIBRARIES: dict[str, type[GroupMember]] = {
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "confluent-kafka": Confluent,
}


@contextlib.contextmanager
def joined(*members: GroupMember) -> Iterator[None]:
    """Leaves when the block is left, however that happens."""
    try:
        yield
    finally:
        for member in members:
            member._ended.set()
        for member in members:
            member._thread.join(PATIENCE_S)
