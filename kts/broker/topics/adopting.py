"""What a topic is set to that another broker left, whose settings lie elsewhere: nothing of it may get lost."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kts.broker.topics.directories import newest_entry
from kts.broker.topics.settings import BrokerConfig
from kts.errors import LogStorageError

FORMATS = {0: "0.9.0", 1: "0.10.2"}
_RETENTION = frozenset(["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
_COMPACTED = frozenset(["__consumer_offsets", "__transaction_state", "__share_group_state"])


def adopted_configs(directory: str, topic: str, partitions: Iterable[int], config: BrokerConfig) -> dict[str, str]:
    """The own settings of a topic that was found without any.

    Parameters
    ----------
    directory : str
        The log directory.
    partitions : iterable of int
        Those that lie there.

    Notes
    -----
    Kept without limits of time and size, unless the broker was given one; in the message format and with the timestamp
    type it has, so that the broker which left it can go on with it; Kafka's own topics compacted, as Kafka makes them.
    """
    configs = {}
    if topic in _COMPACTED:
        configs["cleanup.policy"] = "compact"
    if not _RETENTION & config.topic_defaults.keys():
        configs["retention.ms"] = "-1"
    if "log.retention.bytes" not in config.topic_defaults:
        configs["retention.bytes"] = "-1"
    newest = _newest(directory, topic, partitions)
    if newest is not None:
        magic, stamped = newest
        if stamped and "log.message.timestamp.type" not in config.topic_defaults:
            configs["message.timestamp.type"] = "LogAppendTime"
        given = "log.message.format.version" in config.topic_defaults or config.implied_format is not None
        if magic in FORMATS and not given:
            configs["message.format.version"] = FORMATS[magic]
    return configs


def _newest(directory: str, topic: str, partitions: Iterable[int]) -> tuple[int, bool] | None:
    found = []
    for index in partitions:
        try:
            found.append(newest_entry(os.path.join(directory, f"{topic}-{index}")))
        except LogStorageError:  # it is told when the partition is opened
            continue
    return max((one for one in found if one is not None), default=None)
