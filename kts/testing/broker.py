"""The broker for tests: create, write and read topics without a socket, while clients are connected."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Self

from kts.arguments import INT64_MAX, boolean, show_address
from kts.behaviour import one_release
from kts.broker.broker import Broker
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.extensions import BrokerExtension
from kts.broker.settings.topic import merged
from kts.broker.topics import Compacted, Topic
from kts.broker.topics.partition import Partition
from kts.codec.columns import scan_batches
from kts.codec.partitioner import partition_of
from kts.codec.validate import Validated
from kts.errors import InvalidRequestError, LogClosedError, UnknownTopicOrPartitionError
from kts.log.log import Log
from kts.model import NO_TIMESTAMP, TimestampOffset, TimestampType, TopicPartition
from kts.server.server import ServerThread, is_loopback
from kts.testing.clock import Clock, time_ms
from kts.testing.records import (
    ConsumerRecord,
    Data,
    Expired,
    Headers,
    RecordMetadata,
    consumer_records,
    data_of,
    record_set,
)

READ_BYTES = 1 << 20
# Retention and the cleaner run only when a test calls them, and groups start without a delay.
DEFAULTS = {
    "log.retention.check.interval.ms": INT64_MAX,
    "log.cleaner.backoff.ms": INT64_MAX,
    "group.initial.rebalance.delay.ms": 0,
}


class KtsBroker:
    """A Kafka broker in a thread of this process, on loopback unless asked otherwise. A context manager.

    Parameters
    ----------
    directory : path, optional
        The log directory, which is kept. None creates a temporary one, which ``close`` removes.
    config : mapping, optional
        A broker's settings by Kafka's names, topic defaults by their ``log.*`` names.
    release : str, optional
        The release of Kafka whose rules, settings and versions of requests apply: "0.10.2", "3.9" or "4.3". None is
        3.9, with every version that kts serves. ``generation`` means the same.
    time : int or datetime, optional
        Stops the broker's clock at this time, as ``set_time`` does; None follows the wall clock.
    host, port : str, int
        Where it listens: a loopback address, as ``::1``. Port 0 means any free port.
    insecure : bool
        Allow an address that other machines or containers reach; there is neither TLS nor a password. So does an
        ``advertised.listeners`` in ``config`` that names another host than this one.
    extensions : iterable
        They answer private versions of APIs (``kts.broker.extensions``), and stay open when the broker closes.

    Attributes
    ----------
    clock : Clock
    directory : str

    Notes
    -----
    Retention, rolling by time and LogAppendTime follow the broker's clock. Group sessions, long polls and other
    timeouts run in real time, so that moving the clock does not end them. Thread-safe, also while clients are
    connected.

    Examples
    --------
    >>> from kts.testing import KtsBroker
    >>> with KtsBroker(time=1_500_000_000_000) as broker:
    ...     broker.create_topic("orders")
    ...     broker.produce("orders", b"a").offset
    ...     [record.value for record in broker.consume("orders")]
    0
    [b'a']
    """

    def __init__(
        self,
        directory: str | PathLike[str] | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        release: str | None = None,
        generation: str | None = None,
        time: int | datetime | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        insecure: bool = False,
        extensions: Iterable[BrokerExtension] = (),
    ) -> None:
        self.clock = Clock(time)
        self._extensions = tuple(extensions)
        named = one_release(release, generation)
        self._config = {**DEFAULTS, **(config or {}), **({} if named is None else {"release": named})}
        self._process = os.getpid()
        self._temporary: weakref.finalize[[str, int], Any] | None = None
        if directory is None:
            directory = tempfile.mkdtemp(prefix="kts-broker-")
            self._temporary = weakref.finalize(self, _remove, directory, self._process)
        self.directory = str(directory)
        self._address, self._insecure = (host, port), boolean("insecure", insecure)
        self._closed = False
        self._broker: Broker | None = None
        self._server: ServerThread | None = None
        self._turns = itertools.count()  # the partition of the next record without a key

    # --- start and stop ---------------------------------------------------------------------------

    def start(self) -> Self:
        """Open the logs and listen. Clients can connect when this returns."""
        if self._broker is not None and not self._is_fork():
            raise InvalidRequestError(f"expected a stopped broker, found one that listens on {self.bootstrap_servers}")
        if self._closed or self._is_fork():
            raise LogClosedError(f"expected a stopped broker, found {self._found()}")
        broker = Broker(self.directory, self._config, clock=self.clock, extensions=self._extensions)
        try:
            server = ServerThread(broker, *self._address, insecure=self._is_open_to_others(broker))
            self._address = server.start()
        except BaseException:
            broker.close()
            raise
        self._broker, self._server = broker, server
        return self

    def _is_open_to_others(self, broker: Broker) -> bool:
        """Whether others may connect: it was asked for, or the address for them was given."""
        named = broker.config.advertised_listener
        return self._insecure or (named is not None and not is_loopback(self.host) and not is_loopback(named[0]))

    def stop(self) -> None:
        """Shut down cleanly; ``start`` opens the same logs again.

        In a forked process this and ``close`` do nothing, since the broker belongs to the parent.
        """
        if not self._is_fork():
            self._end(lambda broker: broker.close())

    def kill(self) -> None:
        """Stop as if the process was killed: nothing is closed or flushed. ``start`` recovers the logs."""
        if self._is_fork():
            raise LogClosedError(f"expected a broker of this process, found {self._found()}")
        self._end(lambda broker: broker.topics.abandon())

    def _end(self, end: Callable[[Broker], None]) -> None:
        server, broker = self._server, self._broker
        self._server = self._broker = None
        try:
            if server is not None:
                server.stop()
        finally:
            if broker is not None:
                end(broker)

    def restart(self, config: Mapping[str, Any] | None = None) -> None:
        """Stop and start on the same port. Leader epochs increase by one and group members must join again.

        Parameters
        ----------
        config : mapping, optional
            Settings to change.
        """
        self.stop()
        self._config |= config or {}
        self.start()

    def close(self) -> None:
        """Stop for good and remove a temporary directory."""
        if self._is_fork():
            return
        self._closed = True
        try:
            self.stop()
        finally:
            if self._temporary is not None:
                self._temporary()

    def __enter__(self) -> Self:
        if self._broker is None:
            try:
                self.start()
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = self.bootstrap_servers if self._broker is not None else "stopped"
        return f"<{type(self).__name__} {state}, {self.directory}>"

    @property
    def broker(self) -> Broker:
        """The broker itself, for what this class does not offer."""
        if self._broker is None or self._is_fork():
            raise LogClosedError(f"expected a running broker, found {self._found()}")
        return self._broker

    def _is_fork(self) -> bool:
        return self._process != os.getpid()

    def _found(self) -> str:
        if self._is_fork():
            return f"one of process {self._process}, of which this is a fork"
        return "a closed one" if self._closed else "a stopped one"

    @property
    def host(self) -> str:
        """The host it listens on."""
        return self._address[0]

    @property
    def port(self) -> int:
        """The port it listens on; 0 before the first start, unless one was given."""
        return self._address[1]

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` where it listens, for clients of this machine."""
        return show_address(*self._address)

    def _in_loop(self, call: Callable[[], object]) -> None:
        """Call a function in the server's event loop and wait for it."""

        async def there() -> None:
            call()

        if self._server is not None:
            self._server.run(there())

    # --- time -------------------------------------------------------------------------------------

    def set_time(self, time: int | datetime | None) -> None:
        """Stop the broker's clock at a time, which may be earlier.

        Parameters
        ----------
        time : int, datetime or None
            Ms since the epoch or a datetime with a time zone; None follows the wall clock again.
        """
        self.clock.set(time)

    def advance(self, by: int | timedelta) -> int:
        """Advance the broker's clock by ms or a timedelta, and stop it there.

        Returns
        -------
        int
            The broker's new time, in ms.
        """
        return self.clock.advance(by)

    def run_retention(self) -> list[Expired]:
        """Apply retention now, as a broker does every five minutes. Returns the deleted segments and the rules.

        Before that, idle logs roll that follow a proposal which says so.
        """
        return [Expired(one.topic, one.partition, *one.segment) for one in self.broker.run_retention()]

    def clean(self, *, force: bool = False) -> list[Compacted]:
        """Run the cleaner now, as a broker does every 15 seconds. Returns the partitions that it cleaned.

        Parameters
        ----------
        force : bool
            Also those that have not reached ``min.cleanable.dirty.ratio``. The active segment is never cleaned: see
            ``roll``.

        Raises
        ------
        KtsError
            A pass failed.
        """
        return self.broker.run_cleaner(force=force)

    # --- topics -----------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int | None = None, config: Mapping[str, Any] | None = None) -> None:
        """Create a topic.

        Parameters
        ----------
        partitions : int, optional
            None means the broker's ``num.partitions``.
        config : mapping, optional
            The topic's settings by Kafka's names.

        Raises
        ------
        KtsError
            The name is invalid or exists, or a setting is wrong; with Kafka's code.
        """
        settings = {name: _text(value) for name, value in (config or {}).items()}
        self.broker.topics.create(topic, -1 if partitions is None else partitions, settings)

    def alter_topic(self, topic: str, config: Mapping[str, Any]) -> None:
        """Change settings of a topic in use; None resets one to the broker's default."""
        kept = {name: value for name, value in self._topic(topic).configs.items() if name not in config}
        given = {name: _text(value) for name, value in config.items() if value is not None}
        self.broker.topics.alter(topic, merged(kept, given))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records and committed offsets."""
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
        """The log of a partition, with its offsets, segments, indexes and searches.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        return self._partition(topic, partition).log

    def roll(self, topic: str, partition: int = 0) -> int:
        """Roll the active segment of a partition; returns the base offset of the new one."""
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
        """Append one record as a producer does, with all checks. Waiting consumers get it at once.

        Parameters
        ----------
        topic : str
            Created if it is missing and ``auto.create.topics.enable`` is set.
        value, key : bytes, str or None
            Text is encoded as UTF-8. A value of None is a tombstone.
        partition : int, optional
            None: by the key as in Java's producer, or in turn without a key.
        timestamp_ms : int or datetime, optional
            None means the broker's time.
        headers : mapping or pairs
            Name to bytes, str or None.

        Returns
        -------
        RecordMetadata

        Raises
        ------
        KtsError
            The record was refused; with Kafka's code.
        """
        key, value = data_of("key", key), data_of("value", value)
        time = self.clock() if timestamp_ms is None else time_ms("timestamp_ms", timestamp_ms)
        home = self._topic(topic, create=True)
        if partition is None:
            count = len(home.partitions)
            partition = next(self._turns) % count if key is None else partition_of(key, count)
        config = home.config
        magic = config.behaviour().greatest_magic  # of such a broker's clients
        done = self.append(topic, record_set(key, value, headers, time, magic), partition)
        if config.magic == 0:
            return RecordMetadata(topic, partition, done.first_offset, NO_TIMESTAMP, TimestampType.NoTimestampType)
        if done.log_append_time_ms != NO_TIMESTAMP:
            time = done.log_append_time_ms
        kind = TimestampType[config.message_timestamp_type]
        return RecordMetadata(topic, partition, done.first_offset, time, kind)

    def append(self, topic: str, records: bytes, partition: int = 0) -> Validated:
        """Append a record set from ``kts.encode``, of any magic and codec, as one Produce request does."""
        return self._partition(topic, partition).append(records)

    def consume(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | None = None,
        max_records: int | None = None,
    ) -> list[ConsumerRecord]:
        """The existing records by partition and offset, with uncommitted ones. Does not wait for more.

        Parameters
        ----------
        partition : int, optional
            None means all partitions.
        offset : int, optional
            The first offset; None means the log start offset.
        max_records : int, optional
            Per partition.

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
        """The first record at or after a time for each partition; None if there is none.

        Parameters
        ----------
        times : mapping
            (topic, partition) to ms or a datetime with a time zone.
        """
        return {
            TopicPartition(*of): self.log(*of).offset_for_timestamp(time_ms("times", time), unit="ms")
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
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _remove(directory: str, process: int) -> None:
    """Remove a temporary directory, but not in a fork of the process that created it."""
    if process == os.getpid():
        shutil.rmtree(directory, ignore_errors=True)
