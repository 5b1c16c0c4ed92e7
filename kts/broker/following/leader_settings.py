"""What a copy's log is set to: the leader's topic settings, as far as a log asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kts.broker.following.client import EARLIEST, LATEST, Client, FetchPartition
from kts.broker.topics import meta_properties, topic_file
from kts.config import LogConfig

FORMATS = ("0.9.0", "0.10.2", "3.9")  # a message format version for each magic
_MAGIC_AT, _ENOUGH_BYTES = 16, 1000
_OF_A_LOG = frozenset(LogConfig().to_properties())


def log_settings(
    described: Mapping[str, str], newest_magic: int | None, tell: Callable[[str], None] = lambda message: None
) -> dict[str, str]:
    """Settings for ``LogConfig.of``.

    Parameters
    ----------
    described : mapping
        What the leader says of the topic, empty where it is too old for that: then nothing is deleted by time or size.
    newest_magic : int, optional
        Of the newest entry, for a leader that does not tell the format; None where there is no entry.
    tell : callable
        Gets a sentence for each value that is left out because no log can have it.
    """
    found = {name: value for name, value in described.items() if name in _OF_A_LOG}
    if not described:  # nobody knows how long the leader keeps what it has
        found |= {"retention.ms": "-1", "retention.bytes": "-1"}
    if "internal.segment.bytes" in described:  # what Kafka 4 goes by, where it is set
        found["segment.bytes"] = described["internal.segment.bytes"]
    for name, value in list(found.items()):
        try:
            LogConfig.of({name: value}, generation="3.9")
        except ValueError as error:
            tell(f"the leader's {error}; the default is taken")
            del found[name]
    if "message.format.version" not in found and newest_magic is not None:
        found["message.format.version"] = FORMATS[newest_magic]
    return found


def keep_settings(
    directory: str, topic: str, topic_id: str | None, partitions: Iterable[int], config: LogConfig
) -> None:
    """Note a copy's settings where ``kts serve`` looks for them, should the copy be served one day.

    Parameters
    ----------
    topic_id : str, optional
        Where the leader has none, the copy gets one of its own.

    Raises
    ------
    LogStorageError
        The file cannot be read or written.
    """
    store = topic_file.TopicStore(directory)
    known = store.content.topics.get(topic)
    kept = topic_id or (known.topic_id if known is not None else meta_properties.random_id())
    ours, default = config.to_properties(), LogConfig().to_properties()
    settings = {name: value for name, value in ours.items() if value != default[name]}
    if config.magic == 2:
        settings.pop("message.format.version", None)
    numbers = sorted({*partitions, *(known.partitions if known is not None else ())})
    entry = topic_file.TopicEntry(kept, numbers, settings, known.made if known is not None else set())
    if entry != known:
        store.content.topics[topic] = entry
        store.write([topic])


def newest_magic(client: Client, topic: str) -> int | None:
    """Magic of the newest entry that a partition of the topic has; None if there is none.

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
        if records and len(records) > _MAGIC_AT:
            return int(records[_MAGIC_AT])
    return None
