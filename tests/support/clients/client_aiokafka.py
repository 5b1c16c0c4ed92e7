"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from support.clients.client_records import NONE, Record, Row, Sent
from support.clients.client_records_python import CODECS, record_rows
from support.clients.clients import Client, Consumer, Members, ThreadedMembers
from support.golden import PATIENCE_S


class AioKafka(Client):
    name = "aiokafka"
    codecs = CODECS
    tells_first_time = True

    def seen(self, row: Row, magic: int = 2) -> Row:
        """To its reader of magic 1 a record without a time has no type either."""
        return row._replace(timestamp_type=NONE) if magic == 1 and row.timestamp == -1 else row

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
        async def produce() -> list[Sent]:
            from aiokafka import AIOKafkaProducer

            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                acks="all",
                retry_backoff_ms=20,
                linger_ms=5,
                enable_idempotence=idempotent,
            )
            await producer.start()
            try:
                waiting = [
                    await producer.send(topic, one.value, one.key, partition, one.timestamp, list(one.headers))
                    for one in records
                ]
                answers = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE_S)
            finally:
                await producer.stop()
            return [Sent(one.offset, one.timestamp) for one in answers]

        return asyncio.run(produce())

    def _with_consumer(self, bootstrap: str, work: Callable[[Any], Coroutine[Any, Any, Any]], **settings: Any) -> Any:
        async def run() -> Any:
            consumer = _aiokafka_consumer(bootstrap, **settings)
            await consumer.start()
            try:
                return await asyncio.wait_for(work(consumer), PATIENCE_S)
            finally:
                with suppress(asyncio.CancelledError):  # from 3.12 on, of its own task that had no time to begin
                    await consumer.stop()

        return asyncio.run(run())

    def consume(self, bootstrap: str, topic: str, partition: int = 0) -> list[Row]:
        from aiokafka import TopicPartition

        one = TopicPartition(topic, partition)

        async def work(consumer: Any) -> list[Row]:
            rows = []
            consumer.assign([one])
            await consumer.seek_to_beginning(one)
            end = (await consumer.end_offsets([one]))[one]
            while await consumer.position(one) < end:
                rows += record_rows(await consumer.getmany(one, timeout_ms=1000))
            return rows

        rows: list[Row] = self._with_consumer(bootstrap, work)
        return rows

    def ends(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        from aiokafka import TopicPartition

        one = TopicPartition(topic, partition)

        async def work(consumer: Any) -> tuple[int, int]:
            return (await consumer.beginning_offsets([one]))[one], (await consumer.end_offsets([one]))[one]

        ends: tuple[int, int] = self._with_consumer(bootstrap, work)
        return ends

    def times(self, bootstrap: str, topic: str, targets: Sequence[int]) -> list[tuple[int, int | None] | None]:
        from aiokafka import TopicPartition

        one = TopicPartition(topic, 0)

        async def work(consumer: Any) -> list[Any]:
            return [(await consumer.offsets_for_times({one: target}))[one] for target in targets]

        found = self._with_consumer(bootstrap, work)
        return [None if each is None else (each.offset, each.timestamp) for each in found]

    def join(self, bootstrap: str, topic: str, group: str, *, members: int, partitions: int) -> Members:
        return ThreadedMembers(lambda: AioKafkaConsumer(bootstrap, topic, group), members, partitions)

    def committed(self, bootstrap: str, topic: str, group: str, partitions: int) -> list[int | None]:
        from aiokafka import TopicPartition

        async def work(consumer: Any) -> list[int | None]:
            return [await consumer.committed(TopicPartition(topic, number)) for number in range(partitions)]

        found: list[int | None] = self._with_consumer(bootstrap, work, group_id=group)
        return found

    def begin_transaction(self, bootstrap: str) -> None:
        async def begin() -> None:
            from aiokafka import AIOKafkaProducer

            producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="one")
            try:
                await asyncio.wait_for(producer.start(), PATIENCE_S)
                await producer.begin_transaction()
            finally:
                await producer.stop()

        asyncio.run(begin())


def _aiokafka_consumer(bootstrap: str, **settings: Any) -> Any:
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=10,
        **settings,
    )


class AioKafkaConsumer(Consumer):
    """With a loop of its own in its thread, which stands still between two polls."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start(bootstrap, topic, group))

    async def _start(self, bootstrap: str, topic: str, group: str) -> None:
        settings = {"heartbeat_interval_ms": 100, "session_timeout_ms": 10_000}
        self._consumer = _aiokafka_consumer(bootstrap, group_id=group, **settings)
        self._consumer.subscribe([topic])
        await self._consumer.start()

    def poll(self) -> list[Row]:
        return record_rows(self._runner.run(self._consumer.getmany(timeout_ms=100)))

    def assigned(self) -> int:
        return len(self._consumer.assignment())

    def commit(self) -> None:
        self._runner.run(self._consumer.commit())

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()
