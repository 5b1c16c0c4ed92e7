"""``kts-topics.json``: the settings of topics and of the broker, which have no other place in a log directory.

The file has lines of JSON; Kafka ignores it. The first line is a snapshot: the broker's settings, and the topics by
name with their id, partitions and own settings. Each further line is a change: the new state of some topics, null for
deleted ones. A line ends with the CRC-32C of the bytes before it::

    {"version": 1, "cluster_id": ..., "topics": {"a": {...}}, "crc32c": "1a2b3c4d"}
    {"topics": {"a": null, "b": {...}}, "crc32c": "5e6f7081"}

When the changes are longer than the snapshot, a new snapshot replaces the file; so do a start and a clean stop. A cut
last line comes from a crash before the sync: that change was never confirmed. A topic is marked as deleted before its
directories are renamed, so that the next start can finish what a crash interrupted.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kts._codec import crc32c
from kts.arguments import INT32_MAX
from kts.errors import InvalidTopicError, LogStorageError
from kts.model import uuid_bytes
from kts.segment.names import check_topic
from kts.store import publishing
from kts.store.local import WritableFile
from kts.store.source import files

FILE = "kts-topics.json"
LEAST_CHANGES = 1 << 16  # bytes; fewer never cause a new snapshot
_SEVERAL = re.compile(rb'"crc32c": "[0-9a-f]{8}"}[^\0]')  # a lost line feed, which no crash causes
_CHECKED = re.compile(rb'(.*), "crc32c": "([0-9a-f]{8})"}', re.DOTALL)

log = logging.getLogger("kts.broker")


@dataclass
class TopicEntry:
    """The entry of a topic.

    Attributes
    ----------
    topic_id : str
        22 characters of URL-safe base64.
    made : set of int
        Partitions whose directories kts created: ``partition.metadata`` gets the topic's id.
    """

    topic_id: str
    partitions: list[int]
    configs: dict[str, str]
    made: set[int] = field(default_factory=set)
    deleted: bool = False


@dataclass
class TopicFile:
    """The contents of the file.

    Attributes
    ----------
    node, cluster : dict of str to str
        Settings of this broker and of all brokers that were changed while it ran.
    """

    cluster_id: str = ""
    leader_epoch: int = -1
    node: dict[str, str] = field(default_factory=dict)
    cluster: dict[str, str] = field(default_factory=dict)
    topics: dict[str, TopicEntry] = field(default_factory=dict)


def path(directory: str) -> str:
    """Path of the file in a log directory."""
    return os.path.join(directory, FILE)


def read(directory: str) -> TopicFile:
    """The contents of the file; empty if there is none.

    Raises
    ------
    LogStorageError
        The file is damaged or was not written by kts.
    """
    return TopicStore(directory).content


class TopicStore:
    """The file of a locked log directory. The cost of a change does not depend on the number of topics.

    Attributes
    ----------
    content : TopicFile
        Change it, then write it.

    Raises
    ------
    LogStorageError
        The file is damaged or was not written by kts.
    """

    def __init__(self, directory: str) -> None:
        self.path = path(directory)
        self.content = TopicFile()
        self._whole_bytes = self._end = 0  # of the first line, of the file; 0: the next change replaces it
        self._gone: set[str] = set()
        if not files.exists(self.path):
            return
        try:
            self._read(files.read_bytes(self.path))
        except (ValueError, TypeError, KeyError, AttributeError, InvalidTopicError) as error:
            message = f"expected topic settings as kts writes them, found {type(error).__name__}: {error}"
            raise LogStorageError(message, path=self.path) from error

    def _read(self, data: bytes) -> None:
        if b'"crc32c"' not in data:  # written before change lines existed
            self.content = _checked(json.loads(data))
            return
        lines = data.removesuffix(b"\n").split(b"\n")
        self.content = _checked(_parsed(lines[0]))
        for number, line in enumerate(lines[1:], 2):
            try:
                change = _parsed(line)
            except ValueError:
                if number < len(lines) or _SEVERAL.search(line):
                    raise
                log.warning("%s: dropped the last change: a crash cut it before it was confirmed", self.path)
                return
            for name, one in change["topics"].items():
                self.content.topics.pop(name, None)
                if one is not None:
                    self.content.topics[name] = _entry(name, one)

    def replace(self) -> None:
        """Write a snapshot."""
        content = self.content
        line = _line(
            {
                "version": 1,
                "cluster_id": content.cluster_id,
                "leader_epoch": content.leader_epoch,
                "node": content.node,
                "cluster": content.cluster,
                "topics": {name: _shown(one) for name, one in sorted(content.topics.items())},
            }
        )
        self._end = 0
        publishing.publish(self.path, line)
        self._whole_bytes = self._end = len(line)
        self._gone.clear()

    def write(self, names: Iterable[str]) -> None:
        """Write the new state of some topics, all or none; those missing in the content are deleted."""
        topics = self.content.topics
        changed = {name: _shown(topics[name]) if name in topics else None for name in sorted({*names, *self._gone})}
        line = _line({"topics": changed})
        if not self._end or self._end - self._whole_bytes + len(line) > max(self._whole_bytes, LEAST_CHANGES):
            self.replace()
            return
        with WritableFile(self.path) as file:
            end, self._end = self._end, 0  # after a failure the file is in doubt
            try:
                file.write(line, end)
                file.sync()
            except LogStorageError:
                with suppress(LogStorageError):
                    file.truncate(end)
                raise
        self._end = end + len(line)
        self._gone.clear()

    def drop(self, names: Iterable[str]) -> None:
        """Remove topics that are marked as deleted; the next change writes it."""
        for name in names:
            if self.content.topics.pop(name, None) is not None:
                self._gone.add(name)

    def settle(self) -> None:
        """Write a snapshot if there are changes, as at a clean stop."""
        if self._gone or self._end != self._whole_bytes:
            self.replace()


def _parsed(line: bytes) -> dict[str, Any]:
    """The object of a line, if its checksum is right."""
    found = _CHECKED.fullmatch(line)
    if found is None:
        raise ValueError("a line without a checksum")
    if f"{crc32c(found[1]):08x}".encode() != found[2]:
        raise ValueError(f"the checksum {found[2].decode()} of a line that has {crc32c(found[1]):08x}")
    parsed: dict[str, Any] = json.loads(found[1] + b"}")
    return parsed


def _line(data: dict[str, Any]) -> bytes:
    text = json.dumps(data)[:-1].encode()  # indentation would take twenty times as long
    return b'%b, "crc32c": "%08x"}\n' % (text, crc32c(text))


def _checked(data: dict[str, Any]) -> TopicFile:
    if data["version"] != 1:
        raise ValueError(f"version {data['version']!r}, expected 1")
    topics = {name: _entry(name, one) for name, one in data["topics"].items()}
    return TopicFile(
        str(data["cluster_id"]), int(data["leader_epoch"]), _texts(data["node"]), _texts(data["cluster"]), topics
    )


def _entry(name: str, one: dict[str, Any]) -> TopicEntry:
    check_topic(name)
    partitions, made = [int(index) for index in one["partitions"]], {int(index) for index in one["made"]}
    if len(uuid_bytes(one["topic_id"])) != 16 or any(not 0 <= index <= INT32_MAX for index in (*partitions, *made)):
        raise ValueError(f"topic {name!r}: id {one['topic_id']!r}, partitions {partitions}")
    return TopicEntry(one["topic_id"], partitions, _texts(one["configs"]), made, bool(one["deleted"]))


def _texts(found: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in found.items()}


def _shown(entry: TopicEntry) -> dict[str, Any]:
    """A topic as in the file."""
    return {**vars(entry), "made": sorted(entry.made)}
