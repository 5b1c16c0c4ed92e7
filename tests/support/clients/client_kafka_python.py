"""kafka-python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.clients.client_records import Record, Row, Sent
from support.clients.client_records_python import CODECS, record_rows
from support.clients.clients import Client, Consumer, Members, ThreadedMembers
from support.golden import PATIENCE_S


class KafkaPython(Client):
    name = "kafka-python"
    codecs = CODECS
    null_headers = False

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        partition: int = 0,
        idempotent: bool = False,
    ) -> list[Sent]:
        from kafka import KafkaProducer

        compression = None if codec == "none" else codec
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=compression,
            acks="all",
            retries=100,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            linger_ms=5,
            enable_idempotence=idempotent,
        )
        try:
            waiting = [
                producer.send(topic, one.value, one.key, list(one.headers), partition, one.timestamp) for one in records
            ]
            producer.flush(timeout=PATIENCE_S)
            answers = [future.get(timeout=PATIENCE_S) for future in waiting]
        finally:
            producer.close(timeout=PATIENCE_S)
        return [Sent(one.offset, one.timestamp) for one in answers]

    def _consumer(self, bootstrap: str, **settings: Any) -> Any:
        from kafka import KafkaConsumer

        return KafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=10,
            retry_backoff_ms=10,
            **settings,
        )

    def consume(self, bootstrap: str, topic: str, partition: int = 0) -> list[Row]:
        from kafka import TopicPartition

        one, rows = TopicPartition(topic, partition), []
        consumer = self._consumer(bootstrap)
        try:
            consumer.assign([one])
            consumer.seek_to_beginning(one)
            end = consumer.end_offsets([one])[one]
            while consumer.position(one) < end:
                rows += record_rows(consumer.poll(timeout_ms=1000))
        finally:
            consumer.close()
        return rows

    def ends(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        from kafka import TopicPartition

        one = TopicPartition(topic, partition)
        consumer = self._consumer(bootstrap)
        try:
            return consumer.beginning_offsets([one])[one], consumer.end_offsets([one])[one]
        finally:
            consumer.close()

    def times(self, bootstrap: str, topic: str, targets: Sequence[int]) -> list[tuple[int, int | None] | None]:
        from kafka import TopicPartition

        one = TopicPartition(topic, 0)
        consumer = self._consumer(bootstrap)
        try:
            found = [consumer.offsets_for_times({one: target})[one] for target in targets]
        finally:
            consumer.close()
        return [None if each is None else (each.offset, each.timestamp) for each in found]

    def join(self, bootstrap: str, topic: str, group: str, *, members: int, partitions: int) -> Members:
        def make() -> Consumer:
            settings = {"heartbeat_interval_ms": 100, "session_timeout_ms": 60_000}
            consumer = self._consumer(bootstrap, group_id=group, **settings)
            consumer.subscribe([topic])
            return KafkaPythonConsumer(consumer)

        return ThreadedMembers(make, members, partitions)

    def committed(self, bootstrap: str, topic: str, group: str, partitions: int) -> list[int | None]:
        from kafka import TopicPartition

        consumer = self._consumer(bootstrap, group_id=group)
        try:
            return [consumer.committed(TopicPartition(topic, number)) for number in range(partitions)]
        finally:
            consumer.close()

    def begin_transaction(self, bootstrap: str) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="one", max_block_ms=60_000)
        try:
            producer.init_transactions()
            producer.begin_transaction()
        finally:
            producer.close(timeout=0)


class KafkaPythonConsumer(Consumer):
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self) -> list[Row]:
        # A poll that ends during a rebalance may make kafka-python forget it.
        return record_rows(self._consumer.poll(timeout_ms=100 if self.formed else 2000))

    def assigned(self) -> int:
        return len(self._consumer.assignment())

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close(autocommit=False)
