"""The broker that tests use: its topics are made, written and read without a socket, while clients are connected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from kts.broker.codes import ApiError, ErrorCode
from kts.broker.topics import Topic
from kts.broker.topics.partition import Partition
from kts.codec.columns import scan_batches
from kts.codec.validate import Validated
from kts.errors import UnknownTopicOrPartitionError
from kts.log.log import Log
from kts.model import NO_TIMESTAMP, TimestampOffset, TimestampType, TopicPartition
from kts.testing.clock import time_ms
from kts.testing.partitioner import partition_of
from kts.testing.records import (
    ConsumerRecord,
    Data,
    Headers,
    RecordMetadata,
    consumer_records,
    data_of,
    record_set,
)
from kts.testing.running import RunningBroker

READ_BYTES = 1 << 20


class KtsBroker(RunningBroker):
    """A Kafka broker in this process, in a thread of its own, on loopback. A context manager.

    Parameters
    ----------
    directory : path, optional
        The log directory, kept afterwards; None is a new one, which goes when the broker is closed.
    config : mapping, optional
        A broker's settings by Kafka's names, topic defaults by their ``log.*`` names.
    time : int or datetime, optional
        Where the broker's clock stands still, as by ``set_time``; None lets it go with the wall clock.
    port : int
        0 is a free one.

    Attributes
    ----------
    clock : Clock
    directory : str

    Notes
    -----
    Retention, rolling by time and LogAppendTime follow the broker's clock. Sessions of groups, long polls and other
    waiting go by real time, so that moving the clock does not end them. Any thread may call, while clients are
    connected.
    """

    # --- topics -----------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int | None = None, config: Mapping[str, Any] | None = None) -> None:
        """Make a topic.

        Parameters
        ----------
        partitions : int, optional
            None is the broker's ``num.partitions``.
        config : mapping, optional
            A topic's settings by Kafka's names.

        Raises
        ------
        KtsError
            The name is bad or taken, a setting is wrong; with Kafka's code.
        """
        settings = {name: _text(value) for name, value in (config or {}).items()}
        self.broker.topics.create(topic, -1 if partitions is None else partitions, settings)

    def alter_topic(self, topic: str, config: Mapping[str, Any]) -> None:
        """Change settings of a topic while it is used; None takes one back to the broker's."""
        changed = dict(self._topic(topic).configs)
        for name, value in config.items():
            if value is None:
                changed.pop(name, None)
            else:
                changed[name] = _text(value)
        self.broker.topics.alter(topic, changed)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with all it holds, and what groups committed for it."""
        self.broker.topics.delete(topic)
        self._in_loop(partial(self.broker.coordinator.topics_deleted, [topic]))

    def topics(self) -> list[str]:
        """The names of all topics, without internal ones."""
        topics = self.broker.topics
        return [name for name in topics.names() if not topics.is_internal(name)]

    def partitions(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions."""
        return sorted(self._topic(topic).partitions)

    def log(self, topic: str, partition: int = 0) -> Log:
        """The log of a partition: its offsets, segments, indexes, searches.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        return self._partition(topic, partition).log

    def roll(self, topic: str, partition: int = 0) -> int:
        """Close the active segment of a partition; the new one's base offset."""
        return self.log(topic, partition).roll()

    # --- records ----------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | datetime | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Append one record as a producer would, with all the broker's checks; consumers that wait get it at once.

        Parameters
        ----------
        topic : str
            Made if it is missing, where ``auto.create.topics.enable`` is on.
        value, key : bytes, str or None
            Text becomes UTF-8; a value of None is a tombstone.
        partition : int, optional
            None: by the key as Java's producer does it, or in turn where there is no key.
        timestamp_ms : int or datetime, optional
            None is the broker's time.
        headers : mapping or pairs
            Name to bytes, str or None.

        Returns
        -------
        RecordMetadata

        Raises
        ------
        KtsError
            The record was refused, with Kafka's code.
        """
        key, value = data_of("key", key), data_of("value", value)
        time = self.clock() if timestamp_ms is None else time_ms("timestamp_ms", timestamp_ms)
        home = self._topic(topic, create=True)
        if partition is None:
            count = len(home.partitions)
            partition = next(self._turns) % count if key is None else partition_of(key, count)
        config = home.config
        magic = 1 if config.generation == "0.10.2" else 2  # that of its clients
        done = self.append(topic, record_set(key, value, headers, time, magic), partition)
        if config.magic == 0:
            return RecordMetadata(topic, partition, done.first_offset, NO_TIMESTAMP, TimestampType.NoTimestampType)
        if done.log_append_time_ms != NO_TIMESTAMP:
            time = done.log_append_time_ms
        kind = TimestampType[config.message_timestamp_type]
        return RecordMetadata(topic, partition, done.first_offset, time, kind)

    def append(self, topic: str, records: bytes, partition: int = 0) -> Validated:
        """Append a record set, as ``kts.encode`` makes it, as one produce request: any magic, any codec."""
        return self._partition(topic, partition).append(records)

    def consume(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | None = None,
        max_records: int | None = None,
    ) -> list[ConsumerRecord]:
        """The records that are there, in order of partition and offset, uncommitted ones too; it waits for nothing.

        Parameters
        ----------
        partition : int, optional
            None is all of them.
        offset : int, optional
            Where to begin; None is the log start offset.
        max_records : int, optional
            Of each partition.

        Raises
        ------
        UnknownTopicOrPartitionError, OffsetOutOfRangeError
        """
        numbers = self.partitions(topic) if partition is None else [partition]
        return [record for number in numbers for record in self._records(topic, number, offset, max_records)]

    def _records(self, topic: str, partition: int, offset: int | None, count: int | None) -> Iterable[ConsumerRecord]:
        log = self.log(topic, partition)
        at = log.log_start_offset if offset is None else offset
        found: list[ConsumerRecord] = []
        while count is None or len(found) < count:
            read = log.read(at, READ_BYTES, min_one_message=True, up_to="high_watermark").records
            if not read:
                break
            found += consumer_records(topic, partition, read, at)
            at = scan_batches(read).column("lastOffset")[-1].as_py() + 1
        return found[:count]

    def offsets_for_times(
        self, times: Mapping[tuple[str, int], int | datetime]
    ) -> dict[TopicPartition, TimestampOffset | None]:
        """The first record at or after a time, for each partition; None where there is none.

        Parameters
        ----------
        times : mapping
            (topic, partition) to ms or an aware datetime.
        """
        return {
            TopicPartition(*of): self.log(*of).offset_for_timestamp(time_ms("times", time))
            for of, time in times.items()
        }

    # --- inside -----------------------------------------------------------------------------------

    def _topic(self, name: str, *, create: bool = False) -> Topic:
        topics = self.broker.topics
        topic = topics.get(name)
        if topic is None and create and self.broker.config.auto_create_topics_enable:
            try:
                return topics.create(name)
            except ApiError as error:
                if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            topic = topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"topic {name!r}: expected one of {self.topics()}")
        return topic

    def _partition(self, topic: str, partition: int) -> Partition:
        partitions = self._topic(topic).partitions
        found = partitions.get(partition)
        if found is None:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r}: expected a partition of {sorted(partitions)}, found {partition!r}"
            )
        return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
