"""What a log directory holds: partitions to serve, directories to delete, and entries that are left alone.

Source: Topic, LogManager (3.9).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from kts.broker.settings.broker import BrokerConfig
from kts.codec.layout import HEADER_BYTES, read_header
from kts.errors import CorruptRecordError, InvalidTopicError, LogStorageError
from kts.log.directory import CONTROLLER
from kts.model import TimestampType
from kts.segment import checkpoints, files
from kts.segment.names import LEADER_EPOCHS, parse_directory_name, parse_file_name

LONGEST_NAME = 255
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
FORMATS = {0: "0.9.0", 1: "0.10.2"}
_RETENTION = frozenset(["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
_COMPACTED = frozenset(["__consumer_offsets", "__transaction_state", "__share_group_state"])


def check_name(name: str) -> str:
    """A topic's name, if Kafka allows it.

    Raises
    ------
    InvalidTopicError
    """
    if _LEGAL.fullmatch(name) is None or name in (".", ".."):
        raise InvalidTopicError(f"expected a topic of 1 to 249 characters of [a-zA-Z0-9._-], found {name!r}")
    return name


def metric_name(name: str) -> str:
    """What names have in common that differ by '.' and '_' alone: metrics could not tell them apart."""
    return name.replace(".", "_")


@dataclass
class Found:
    """A log directory as it was found.

    Attributes
    ----------
    partitions : dict of str to dict of int to (str or None)
        Topic -> partition -> the topic id of its ``partition.metadata``.
    doomed : list of str
        Directories that were renamed to be deleted.
    left_alone : list of (str, str)
        Names, and why they are not served.
    leader_epoch : int
        The newest that any partition knows, -1 if none does.
    """

    partitions: dict[str, dict[int, str | None]] = field(default_factory=dict)
    doomed: list[str] = field(default_factory=list)
    left_alone: list[tuple[str, str]] = field(default_factory=list)
    leader_epoch: int = -1


def scan_directory(directory: str) -> Found:
    """Look through a log directory, following no link.

    Raises
    ------
    LogStorageError
        A file of the directory itself is a link: writing it would change what lies elsewhere.
    """
    found = Found()
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
            found.doomed.append(entry.path)
        elif name.state:
            found.left_alone.append((entry.name, f"state {name.state}"))
        elif not whole or name.topic in (".", ".."):
            found.left_alone.append((entry.name, "no name of a partition"))
        else:
            _add(found, entry.path, name.topic, name.partition)
    return found


def _add(found: Found, path: str, topic: str, partition: int) -> None:
    try:
        topic_id = checkpoints.read_topic_id(path)
        epochs = checkpoints.read_leader_epochs(os.path.join(path, LEADER_EPOCHS)) or []
    except LogStorageError as error:
        found.left_alone.append((f"{topic}-{partition}", str(error)))
        return
    found.partitions.setdefault(topic, {})[partition] = topic_id
    found.leader_epoch = max(found.leader_epoch, *(epoch for epoch, _ in epochs if epoch < 2**31), -1)


def newest_entry(path: str) -> tuple[int, bool] | None:
    """Magic of the first entry of a partition's last segment that has one, and whether the leader stamped it.

    Raises
    ------
    LogStorageError
        A file cannot be read.
    """
    for entry in reversed(files.list_directory(path)):
        name = parse_file_name(entry.name)
        whole = name is not None and name.suffix == ".log" and not (name.transition or name.tier_id)
        if whole and entry.is_file(follow_symlinks=False):
            with files.File(entry.path) as file:
                head = file.read(0, HEADER_BYTES)
            with suppress(CorruptRecordError):
                header = read_header(head)
                if header is not None:
                    return header.magic, header.timestamp_type == TimestampType.LogAppendTime
    return None


def deleted_name(topic: str, partition: int, unique: str) -> str:
    """The name of a partition's directory that is to be deleted, cut as Kafka cuts it."""
    behind = f"-{partition}.{unique}-delete"
    return topic[: LONGEST_NAME - len(behind)] + behind


def delete_directory(path: str) -> list[tuple[str, str]]:
    """Remove a partition's directory with its files; what has other directories inside is left, and said."""
    for entry in files.list_directory(path):
        if entry.is_dir(follow_symlinks=False):
            return [(os.path.basename(path), f"{entry.name} inside it is a directory")]
        files.remove(entry.path, missing_ok=True)
    files.remove_directory(path)
    return []


# --- adopting -------------------------------------------------------------------------------------


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
