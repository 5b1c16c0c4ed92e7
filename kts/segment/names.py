"""Names of the files and directories in a log directory.

Layout::

    <log directory>/
      <topic>-<partition>/                 also <topic>-<partition>.<32 hex digits>-delete | -future | -stray
        <20 digits>.log .index .timeindex .txnindex .snapshot     suffixes .deleted .cleaned .swap: not live
        <20 digits>-<id>.log ...                                  a copy in tiered storage
        <20 digits>.log.gz .log.zst                               compressed by other programs: readers take them
        leader-epoch-checkpoint, partition.metadata
      kts-write-0.<32 hex digits>-delete   segments that kts makes aside, and kts-copy-0...: nobody reads them, and a
                                           broker that finds them at its start deletes them
      log-start-offset-checkpoint, replication-offset-checkpoint, ...
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from kts.arguments import INT32_MAX
from kts.errors import InvalidTopicError
from kts.store.expanded import without_compression

INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state", "__remote_log_metadata"}
)
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
LOG_DIRECTORY_FILES = frozenset(  # a broker writes these beside the partitions
    {META_PROPERTIES, CLEAN_SHUTDOWN, RECOVERY_POINTS, CLEANER_OFFSETS, LOG_START_OFFSETS, HIGH_WATERMARKS}
)

BOTH_INDEXES = (".index", ".timeindex")  # of a log that kts or a broker writes
INDEX_SUFFIXES = (*BOTH_INDEXES, ".txnindex")  # what can be rebuilt from the .log
SEGMENT_SUFFIXES = (".log", *INDEX_SUFFIXES)  # the files of a segment
FILE_SUFFIXES = (*SEGMENT_SUFFIXES, ".snapshot")  # and that of the producers at its start

REMOTE = "tier+"  # addresses of segments in tiered storage begin so
TOPIC_CHARACTERS = "[A-Za-z0-9._-]"
TOPIC_ID = "[A-Za-z0-9_-]{22}"  # URL-safe base64

_FILE = re.compile(
    r"(?P<base>[0-9]{20})(?P<id>-[A-Za-z0-9_-]+)?"
    rf"(?P<suffix>{'|'.join(map(re.escape, FILE_SUFFIXES))})"
    r"(?P<transition>\.deleted|\.cleaned|\.swap)?"
)
_TOPIC = TOPIC_CHARACTERS + "{1,249}"
_DIRECTORY = re.compile(rf"(?P<topic>{_TOPIC})-(?P<partition>[0-9]{{1,10}})")
_MOVED = re.compile(r"(?P<name>.+?)(\.[0-9a-f]{32})?-(?P<state>delete|future|stray)")
_ASIDE = re.compile(r"kts-(write|copy)-0\.[0-9a-f]{32}-delete")
_WITH_TOPIC_ID = re.compile(f"(?P<name>.+)-{TOPIC_ID}")


class FileName(NamedTuple):
    """The parts of a segment file's name."""

    base_offset: int
    suffix: str  # one of FILE_SUFFIXES
    tier_id: str  # what follows the base offset in tiered storage, else empty
    transition: str  # .deleted .cleaned .swap, or empty when live


class DirectoryName(NamedTuple):
    """The parts of a partition directory's name."""

    topic: str
    partition: int
    state: str  # delete, future, stray, or empty when live


def check_topic(name: str) -> str:
    """The name of a topic, if Kafka allows it.

    Raises
    ------
    InvalidTopicError

    Notes
    -----
    Source: Topic.validate.
    """
    if re.fullmatch(_TOPIC, name) is None or name in (".", ".."):
        raise InvalidTopicError(f"expected a topic of 1 to 249 characters of [a-zA-Z0-9._-], found {name!r}")
    return name


def parse_file_name(name: str) -> FileName | None:
    """The parts of a segment file's name, or None for any other file."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    digits, tier_id, suffix, transition = match.groups("")
    base = int(digits)
    return FileName(base, suffix, tier_id[1:], transition) if base < 2**63 else None


def parse_log_name(name: str) -> FileName | None:
    """The parts of the name of a log that readers take: ``.log``, also compressed, not on the move; else None."""
    parsed = parse_file_name(without_compression(name))
    return parsed if parsed is not None and parsed.suffix == ".log" and not parsed.transition else None


def is_partition_file(name: str) -> bool:
    """True for the names that only a partition directory has: its segments' files, and what is kept beside them."""
    return name in (LEADER_EPOCHS, PARTITION_METADATA) or parse_file_name(without_compression(name)) is not None


def parse_directory_name(name: str) -> DirectoryName | None:
    """The parts of a partition directory's name (split at the last dash), or None for any other directory."""
    state = ""
    moved = _MOVED.fullmatch(name)
    if moved is not None:
        name, state = moved["name"], moved["state"]
    match = _DIRECTORY.fullmatch(name)
    if match is None or int(match["partition"]) > INT32_MAX:
        return None
    return DirectoryName(match["topic"], int(match["partition"]), state)


def is_aside(name: str) -> bool:
    """True for a directory in which kts makes segments that join a log directory when they are whole."""
    return _ASIDE.fullmatch(name) is not None


def partition_of_file(path: str) -> tuple[str, int]:
    """Topic and partition of a segment file, from its own name or the directories around it.

    Recognized are ``<topic>-<p>/x.log``, tiered storage's ``<topic>-<p>-<topic id>/x.log`` and
    ``<topic>-<topic id>/<p>/x.log``, and a file called ``<topic>-<p>.log``.
    Any other path is partition 0 of a topic named after the directory.
    """
    path = path if "://" in path else os.path.abspath(path)
    parent = os.path.basename(os.path.dirname(path))
    stem = os.path.basename(path).split(".log")[0]
    own = None if parse_file_name(f"{stem}.log") else parse_directory_name(stem)
    known = own or parse_directory_name(parent)
    if known is not None and not (known.topic.isdigit() and own):
        return known.topic, known.partition
    tiered = _WITH_TOPIC_ID.fullmatch(parent)
    if tiered is not None and (known := parse_directory_name(tiered["name"])) is not None:
        return known.topic, known.partition
    if parent.isdigit():
        tiered = _WITH_TOPIC_ID.fullmatch(os.path.basename(os.path.dirname(os.path.dirname(path))))
        if tiered is not None:
            return tiered["name"], int(parent)
    return parent or "unnamed", 0
