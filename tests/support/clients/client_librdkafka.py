"""librdkafka through its Python package confluent-kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.clients.client_records import APPEND, CREATE, NONE, Record, Row, Sent
from support.clients.clients import Client, Consumer, Members, ThreadedMembers
from support.golden import PATIENCE_S

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TYPES = {0: NONE, 1: CREATE, 2: APPEND}
PRODUCER = {"acks": "all", "retries": 100, "retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "linger.ms": 5}
PRODUCER |= {"batch.size": 16_384}  # as Java's
CONSUMER = {"enable.auto.commit": "false", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
MEMBER = {"heartbeat.interval.ms": 100, "session.timeout.ms": 10_000}


class Confluent(Client):
    name = "confluent-kafka"
    codecs = CODECS

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
        from confluent_kafka import KafkaException, Producer

        settings = {"bootstrap.servers": bootstrap, "compression.codec": codec, "enable.idempotence": idempotent}
        producer = Producer(settings | PRODUCER)
        answers: list[Sent | None] = [None] * len(records)

        def answered(number: int, error: Any, message: Any) -> None:
            if error is not None:
                raise KafkaException(error)
            answers[number] = Sent(message.offset(), message.timestamp()[1])

        for number, one in enumerate(records):

            def call(error: Any, message: Any, number: int = number) -> None:
                answered(number, error, message)

            given = {} if one.timestamp is None else {"timestamp": one.timestamp}
            headers = list(one.headers)
            producer.produce(topic, one.value, one.key, partition, on_delivery=call, headers=headers, **given)
        left = producer.flush(PATIENCE_S)
        sent = [one for one in answers if one is not None]
        if left or len(sent) != len(records):
            raise TimeoutError(f"{left} of {len(records)} records were never answered")
        return sent

    def _consumer(self, bootstrap: str, **settings: object) -> Any:
        from confluent_kafka import Consumer as LibrdkafkaConsumer

        group = {"bootstrap.servers": bootstrap, "group.id": "nobody", "check.crcs": True}
        return LibrdkafkaConsumer(group | CONSUMER | {key.replace("_", "."): value for key, value in settings.items()})

    def consume(self, bootstrap: str, topic: str, partition: int = 0) -> list[Row]:
        from confluent_kafka import TopicPartition

        consumer, rows = self._consumer(bootstrap, enable_partition_eof=True), []
        try:
            consumer.assign([TopicPartition(topic, partition, 0)])
            begin, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), PATIENCE_S)
            position = begin
            while position < end:
                for message in consumer.consume(5000, 0.01):
                    if (row := _row(message)) is not None:
                        rows.append(row)
                        position = row.offset + 1
        finally:
            consumer.close()
        return rows

    def ends(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        from confluent_kafka import TopicPartition

        consumer = self._consumer(bootstrap)
        try:
            begin, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), PATIENCE_S, cached=False)
            return begin, end
        finally:
            consumer.close()

    def times(self, bootstrap: str, topic: str, targets: Sequence[int]) -> list[tuple[int, int | None] | None]:
        """librdkafka names the offset only, and the end (-1) where nothing is found."""
        from confluent_kafka import TopicPartition

        consumer = self._consumer(bootstrap)
        try:
            asked = [[TopicPartition(topic, 0, target)] for target in targets]
            found = [consumer.offsets_for_times(one, PATIENCE_S)[0].offset for one in asked]
        finally:
            consumer.close()
        return [None if offset < 0 else (offset, None) for offset in found]

    def join(self, bootstrap: str, topic: str, group: str, *, members: int, partitions: int) -> Members:
        def make() -> Consumer:
            consumer = self._consumer(bootstrap, group_id=group, **MEMBER)
            consumer.subscribe([topic])
            return ConfluentConsumer(consumer)

        return ThreadedMembers(make, members, partitions)

    def committed(self, bootstrap: str, topic: str, group: str, partitions: int) -> list[int | None]:
        from confluent_kafka import TopicPartition

        consumer = self._consumer(bootstrap, group_id=group)
        try:
            asked = [TopicPartition(topic, number) for number in range(partitions)]
            found = [one.offset for one in consumer.committed(asked, PATIENCE_S)]
        finally:
            consumer.close()
        return [None if offset < 0 else offset for offset in found]

    def begin_transaction(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "one"})
        producer.init_transactions(60)
        producer.begin_transaction()


def _row(message: Any) -> Row | None:
    """None for the end of the partition."""
    from confluent_kafka import KafkaError, KafkaException

    if message.error() is not None:
        if message.error().code() == KafkaError._PARTITION_EOF:
            return None
        raise KafkaException(message.error())
    kind, timestamp = message.timestamp()
    headers = tuple(message.headers() or ())
    timestamp = -1 if kind == 0 else timestamp
    return Row(message.partition(), message.offset(), message.key(), message.value(), timestamp, TYPES[kind], headers)


class ConfluentConsumer(Consumer):
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self) -> list[Row]:
        return [row for row in map(_row, self._consumer.consume(5000, 0.1)) if row is not None]

    def assigned(self) -> int:
        return len(self._consumer.assignment())

    def commit(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as none:  # nothing new to commit
            if none.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def close(self) -> None:
        self._consumer.close()
