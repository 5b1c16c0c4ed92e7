"""The copy of a topic in a log directory: its partitions and settings, which follow the leader's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Self

from kts.behaviour import DEFAULT
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.settings.topic import merged
from kts.broker.topics import topic_file
from kts.codec.layout import read_header
from kts.config import FORMAT_OF_MAGIC, LogConfig
from kts.errors import InvalidRequestError, KtsError, UnknownTopicOrPartitionError
from kts.log.log import Log
from kts.model import EARLIEST, LATEST, topic_id_text
from kts.replica.client import Client, FetchPartition, TopicMetadata
from kts.replica.follower import Follower
from kts.segment import meta_properties
from kts.store.addresses import require_local

_ENOUGH_BYTES = 1000
_OF_A_LOG = frozenset(LogConfig().to_properties())


class TopicCopy:
    """The followers of a topic's partitions. A context manager that closes their logs.

    Parameters
    ----------
    client : Client
    directory : str
        The log directory, created if it is missing.
    topic : str
    partitions : sequence of int
        The partitions to copy; empty means all.
    settings : mapping
        Settings that replace the leader's.
    shipped : bool
        The logs behave exactly as the Kafka release does.
    tell : callable
        Gets a message about everything but plain copying.

    Attributes
    ----------
    followers : list of Follower
    config : LogConfig
    """

    def __init__(
        self,
        client: Client,
        directory: str,
        topic: str,
        *,
        partitions: Sequence[int] = (),
        settings: Mapping[str, str] | None = None,
        shipped: bool = False,
        tell: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.topic = topic
        self.followers: list[Follower] = []
        self.config = LogConfig()
        self._client = client
        require_local(directory, "following")
        self._directory = directory
        self._partitions = partitions
        self._settings = settings or {}
        self._shipped = shipped
        self._tell = tell
        self._told: set[str] = set()
        self._metadata: TopicMetadata | None = None
        self._stack = ExitStack()

    def find(self) -> None:
        """Look up the topic's partitions and settings; can be repeated after an error.

        Raises
        ------
        UnknownTopicOrPartitionError
            The topic or a partition does not exist.
        ApiError
            The leader refuses.
        ValueError
            A given setting is wrong.
        """
        metadata = self._known_topic()
        described = self._client.topic_configs(self.topic)
        magic = None if described else newest_magic(self._client, self.topic)
        found = log_settings(described, magic, self._tell_once)
        # A broker that describes settings is 0.11 or later: its indexes follow the rules of 3.9 in every format.
        self.config = LogConfig.of(merged(found, self._settings), generation=DEFAULT.release if described else None)
        self._metadata = metadata

    def _known_topic(self) -> TopicMetadata:
        try:
            found = self._client.metadata(self.topic)
        except ApiError as error:
            if error.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopicOrPartitionError(str(error)) from error
            raise
        missing = sorted(set(self._partitions) - set(found.partitions))
        if missing or not found.partitions:
            count = len(found.partitions)
            raise UnknownTopicOrPartitionError(f"topic {self.topic} has {count} partitions, no {missing}")
        return found

    def _tell_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self._tell(message)

    def open(self) -> list[Follower]:
        """Open the logs that are not open yet.

        Returns
        -------
        list of Follower
            The new followers.

        Raises
        ------
        InvalidRequestError
            The copy belongs to another topic with that name.
        LogLockedError, LogStorageError
            As from ``Log``.
        """
        if self._metadata is None:
            raise ValueError("find first")
        wanted = sorted(set(self._partitions) or self._metadata.partitions)
        topic_id = topic_id_text(self._metadata.topic_id)
        known = {each.log.topic_id for each in self.followers} - {None}
        if topic_id is not None and known - {topic_id}:
            raise InvalidRequestError(f"{self.topic}: expected topic id {known.pop()}, found {topic_id}")
        new = []
        for partition in wanted:
            if all(each.partition != partition for each in self.followers):
                path = os.path.join(self._directory, f"{self.topic}-{partition}")
                log = self._stack.enter_context(Log(path, self.config, topic_id=topic_id, shipped=self._shipped))
                new.append(Follower(log, self._client, tell=self._tell))
                self.followers.append(new[-1])
        keep_settings(self._directory, self.topic, topic_id, wanted, self.config)
        return new

    def refresh(self) -> list[Follower]:
        """Follow new partitions and settings, if the leader answers; returns the new followers."""
        before = self.config
        try:
            self.find()
            new = self.open()
            if self.config != before:
                for follower in self.followers:
                    follower.log.reconfigure(self.config)
                self._tell(f"{self.topic}: the copy has the leader's new settings")
        except (KtsError, ValueError):  # the next refresh asks again, and fetches report the problem
            return []
        for follower in new:
            self._tell(f"{follower}: the topic has a new partition")
        return new

    def close(self) -> None:
        """Close all logs cleanly."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# --- settings -------------------------------------------------------------------------------------


def log_settings(
    described: Mapping[str, str], newest_magic: int | None, tell: Callable[[str], None] = lambda message: None
) -> dict[str, str]:
    """The settings of a copy, for ``LogConfig.of``.

    Parameters
    ----------
    described : mapping
        The leader's settings of the topic. Empty if it is too old to describe them: then nothing expires.
    newest_magic : int, optional
        The magic of the newest entry, if the leader does not describe the format; None if there is no entry.
    tell : callable
        Gets a message for each value that is left out because no log accepts it.
    """
    found = {name: value for name, value in described.items() if name in _OF_A_LOG}
    if not described:  # the leader's retention is unknown
        found |= {"retention.ms": "-1", "retention.bytes": "-1"}
    if "internal.segment.bytes" in described:  # Kafka 4 uses it if it is set
        found["segment.bytes"] = described["internal.segment.bytes"]
    for name, value in list(found.items()):
        try:
            LogConfig.of({name: value}, generation=DEFAULT.release)
        except ValueError as error:
            tell(f"the leader's {error}; the default is taken")
            del found[name]
    if "message.format.version" not in found and newest_magic is not None:
        found["message.format.version"] = FORMAT_OF_MAGIC[newest_magic]
    return found


def keep_settings(
    directory: str, topic: str, topic_id: str | None, partitions: Iterable[int], config: LogConfig
) -> None:
    """Store a copy's settings where ``kts serve`` reads them.

    Parameters
    ----------
    topic_id : str, optional
        If the leader has none, the copy gets a new one.

    Raises
    ------
    LogStorageError
        The file cannot be read or written.
    """
    store = topic_file.TopicStore(directory)
    known = store.content.topics.get(topic)
    kept = topic_id or (known.topic_id if known is not None else meta_properties.random_id())
    ours, default = config.to_properties(), LogConfig().to_properties()
    settings = {name: value for name, value in ours.items() if value != default.get(name)}
    if config.magic == 2:
        settings.pop("message.format.version", None)
    numbers = sorted({*partitions, *(known.partitions if known is not None else ())})
    entry = topic_file.TopicEntry(kept, numbers, settings, known.made if known is not None else set())
    if entry != known:
        store.content.topics[topic] = entry
        store.write([topic])


def newest_magic(client: Client, topic: str) -> int | None:
    """The magic of the newest entry of a topic; None if it is empty.

    Raises
    ------
    ApiError
        The leader cannot say.
    """
    metadata = client.metadata(topic)
    for partition, found in sorted(metadata.partitions.items()):
        leader = client.node(found.leader)
        end = client.list_offsets(leader, topic, partition, LATEST).offset
        if end <= client.list_offsets(leader, topic, partition, EARLIEST).offset:
            continue
        wanted = FetchPartition(topic, metadata.topic_id, partition, end - 1, _ENOUGH_BYTES)
        records = client.fetch(leader, [wanted], max_wait_ms=0)[topic, partition]["records"]
        header = read_header(records or b"")
        if header is not None:
            return header.magic
    return None
