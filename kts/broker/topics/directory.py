"""The contents of a log directory: partitions to serve, directories to delete, and entries that are left alone.

Source: Topic, LogManager (3.9).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from kts.arguments import INT32_MAX
from kts.broker.settings.broker import BrokerConfig
from kts.codec.layout import HEADER_BYTES, read_header
from kts.config import FORMAT_OF_MAGIC
from kts.errors import CorruptRecordError, LogStorageError
from kts.log.directory import CONTROLLER
from kts.model import TimestampType
from kts.segment import checkpoints
from kts.segment.names import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    is_aside,
    parse_directory_name,
    parse_file_name,
)
from kts.segment.rereading import warn
from kts.store import local
from kts.store.local import File
from kts.store.source import files

LONGEST_NAME = 255
_RETENTION = frozenset(["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
_COMPACTED = frozenset(["__consumer_offsets", "__transaction_state", "__share_group_state"])


def metric_name(name: str) -> str:
    """The name as metrics show it: names that differ only in '.' and '_' collide."""
    return name.replace(".", "_")


@dataclass
class DirectoryScan:
    """The contents of a log directory.

    Attributes
    ----------
    partitions : dict of str to dict of int to (str or None)
        Topic to partition to the topic id in ``partition.metadata``.
    deleted : list of str
        Directories that were renamed to be removed.
    left_alone : list of (str, str)
        Entries that are not served, and why.
    leader_epoch : int
        The latest leader epoch of any partition, -1 if there is none.
    """

    partitions: dict[str, dict[int, str | None]] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    left_alone: list[tuple[str, str]] = field(default_factory=list)
    leader_epoch: int = -1


def scan_directory(directory: str) -> DirectoryScan:
    """Read a log directory, without following links.

    Raises
    ------
    LogStorageError
        A file of the directory is a symbolic link.
    """
    found = DirectoryScan()
    for entry in files.list_directory(directory):
        name = parse_directory_name(entry.name)
        if name is None:
            if entry.is_symlink() and not entry.is_dir():
                raise LogStorageError("expected a regular file, found a symbolic link", path=entry.path)
            continue
        whole = entry.name == f"{name.topic}-{name.partition}"
        if entry.is_symlink():
            found.left_alone.append((entry.name, "a symbolic link"))
        elif not entry.is_dir(follow_symlinks=False):
            found.left_alone.append((entry.name, "no directory"))
        elif name.topic == CONTROLLER:
            found.left_alone.append((entry.name, "the log of a controller"))
        elif name.state == "delete":
            found.deleted.append(entry.path)
        elif name.state:
            found.left_alone.append((entry.name, f"state {name.state}"))
        elif not whole or name.topic in (".", ".."):
            found.left_alone.append((entry.name, "no name of a partition"))
        else:
            _add(found, entry.path, name.topic, name.partition)
    return found


def _add(found: DirectoryScan, path: str, topic: str, partition: int) -> None:
    try:
        topic_id = checkpoints.read_topic_id(path)
        epochs = checkpoints.read_leader_epochs(os.path.join(path, LEADER_EPOCHS))
        for name in [PARTITION_METADATA] * (topic_id is None) + [LEADER_EPOCHS] * (epochs is None):
            place = os.path.join(path, name)
            if (fault := checkpoints.fault_of(place)) is not None:
                warn(f"{place}: {fault}; {checkpoints.MEANINGS[name]}", place)
    except LogStorageError as error:
        found.left_alone.append((f"{topic}-{partition}", str(error)))
        return
    found.partitions.setdefault(topic, {})[partition] = topic_id
    found.leader_epoch = max(found.leader_epoch, *(epoch for epoch, _ in epochs or () if epoch <= INT32_MAX), -1)


def newest_entry(path: str) -> tuple[int, bool] | None:
    """The first entry of the last segment that has one: its magic, and whether it has LogAppendTime.

    Raises
    ------
    LogStorageError
        A file cannot be read.
    """
    for entry in reversed(files.list_directory(path)):
        name = parse_file_name(entry.name)
        whole = name is not None and name.suffix == ".log" and not (name.transition or name.tier_id)
        if whole and entry.is_file(follow_symlinks=False):
            with File(entry.path) as file:
                head = file.read(0, HEADER_BYTES)
            with suppress(CorruptRecordError):
                header = read_header(head)
                if header is not None:
                    return header.magic, header.timestamp_type == TimestampType.LogAppendTime
    return None


def deleted_name(topic: str, partition: int, unique: str) -> str:
    """The name of a deleted partition's directory, shortened as in Kafka."""
    suffix = f"-{partition}.{unique}-delete"
    return topic[: LONGEST_NAME - len(suffix)] + suffix


def delete_directory(path: str) -> list[tuple[str, str]]:
    """Remove a partition's directory with its files. One that contains directories is kept and reported, unless kts
    made it to write into."""
    if is_aside(os.path.basename(path)):
        local.remove_tree(path)
        return []
    for entry in files.list_directory(path):
        if entry.is_dir(follow_symlinks=False):
            return [(os.path.basename(path), f"{entry.name} inside it is a directory")]
        files.remove(entry.path, missing_ok=True)
    local.remove_directory(path)
    return []


# --- adopting -------------------------------------------------------------------------------------


def adopted_configs(directory: str, topic: str, partitions: Iterable[int], config: BrokerConfig) -> dict[str, str]:
    """Settings for a topic that was found without any.

    Parameters
    ----------
    directory : str
        The log directory.
    partitions : iterable of int
        Its partitions in the directory.

    Notes
    -----
    The topic's own settings are unknown here, so no record may expire: retention is unlimited unless the broker has a
    default. Message format and timestamp type stay as they are, so that the previous broker can continue.
    Internal topics are compacted, as Kafka creates them.
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
        if magic < 2 and not given:
            configs["message.format.version"] = FORMAT_OF_MAGIC[magic]
    return configs


def _newest(directory: str, topic: str, partitions: Iterable[int]) -> tuple[int, bool] | None:
    found = []
    for index in partitions:
        try:
            found.append(newest_entry(os.path.join(directory, f"{topic}-{index}")))
        except LogStorageError:  # opening the partition reports it
            continue
    return max((one for one in found if one is not None), default=None)
