"""The small file in which kts keeps what a log directory has no other place for: topics' settings, and the broker's.

Layout: lines of JSON; brokers leave the file alone. The first line is the whole: the broker's settings, and topics by
name with their id, partitions and own settings. Each further line is a change: the topics that it touched, as they are
since, and null for those that are gone. A line ends with the CRC-32C of what comes before it in the line::

    {"version": 1, "cluster_id": ..., "topics": {"a": {...}}, "crc32c": "1a2b3c4d"}
    {"topics": {"a": null, "b": {...}}, "crc32c": "5e6f7081"}

Changes are added until they are longer than the whole, which is then replaced; a start and a clean stop leave one line.
A last line that is not whole is of a process that died before it was synced: nobody was told of that change.
A topic is marked before its directories go, so that a stop in between is finished at the next start.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kts._codec import crc32c
from kts.broker.topics.directory import check_name
from kts.errors import InvalidTopicError, LogStorageError
from kts.segment import files

FILE = "kts-topics.json"
LEAST_CHANGES = 1 << 16  # bytes of them that are kept however small the whole is
_SEVERAL = re.compile(rb'"crc32c": "[0-9a-f]{8}"}[^\0]')  # lines without the line feed between them: no crash did that
_CHECKED = re.compile(rb'(.*), "crc32c": "([0-9a-f]{8})"}', re.DOTALL)

log = logging.getLogger("kts.broker")


@dataclass
class TopicEntry:
    """A topic in the file.

    Attributes
    ----------
    topic_id : str
        22 characters of URL-safe base64.
    made : set of int
        Partitions whose directories were made by kts: they get the topic's id in ``partition.metadata``.
    """

    topic_id: str
    partitions: list[int]
    configs: dict[str, str]
    made: set[int] = field(default_factory=set)
    deleted: bool = False


@dataclass
class TopicFile:
    """What the file says.

    Attributes
    ----------
    node, cluster : dict of str to str
        Settings of this broker, and of all, that were changed while it ran.
    """

    cluster_id: str = ""
    leader_epoch: int = -1
    node: dict[str, str] = field(default_factory=dict)
    cluster: dict[str, str] = field(default_factory=dict)
    topics: dict[str, TopicEntry] = field(default_factory=dict)


def path(directory: str) -> str:
    """Of the file."""
    return os.path.join(directory, FILE)


def id_bytes(topic_id: str) -> bytes:
    """A topic id as the wire has it."""
    return base64.urlsafe_b64decode(topic_id + "==")


def id_text(topic_id: bytes) -> str:
    """A topic id as files have it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def read(directory: str) -> TopicFile:
    """What the file says, nothing if there is none.

    Raises
    ------
    LogStorageError
        It is there, and not as kts writes it.
    """
    return TopicStore(directory).content


class TopicStore:
    """The file of a log directory, which is held; a change costs what changed, however many topics there are.

    Attributes
    ----------
    content : TopicFile
        To be changed and then written.

    Raises
    ------
    LogStorageError
        The file is there, and not as kts writes it.
    """

    def __init__(self, directory: str) -> None:
        self.path = path(directory)
        self.content = TopicFile()
        self._whole_bytes = self._end = 0  # of the first line, of all; 0 has the next change replace the file
        self._gone: set[str] = set()
        if not files.exists(self.path):
            return
        try:
            self._read(files.read_bytes(self.path))
        except (ValueError, TypeError, KeyError, AttributeError, InvalidTopicError) as error:
            message = f"expected the settings of topics as kts writes them, found {type(error).__name__}: {error}"
            raise LogStorageError(message, path=self.path) from error

    def _read(self, data: bytes) -> None:
        if b'"crc32c"' not in data:  # as it was written before there were changes
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
                log.warning("%s: the last change is cut, as by a crash; it was never confirmed: dropped", self.path)
                return
            for name, one in change["topics"].items():
                self.content.topics.pop(name, None)
                if one is not None:
                    self.content.topics[name] = _entry(name, one)

    def replace(self) -> None:
        """Write the whole."""
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
        files.write_atomically(self.path, line)
        self._whole_bytes = self._end = len(line)
        self._gone.clear()

    def write(self, names: Iterable[str]) -> None:
        """Write what some topics are now, all of them or none; those that are no longer in the content are gone."""
        topics = self.content.topics
        changed = {name: _shown(topics[name]) if name in topics else None for name in sorted({*names, *self._gone})}
        line = _line({"topics": changed})
        if not self._end or self._end - self._whole_bytes + len(line) > max(self._whole_bytes, LEAST_CHANGES):
            self.replace()
            return
        with files.WritableFile(self.path) as file:
            end, self._end = self._end, 0  # what fails leaves the file in doubt
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
        """Have topics that are marked as deleted gone, on the disk with the next change."""
        for name in names:
            if self.content.topics.pop(name, None) is not None:
                self._gone.add(name)

    def settle(self) -> None:
        """Leave one line, as for a clean stop."""
        if self._gone or self._end != self._whole_bytes:
            self.replace()


def _parsed(line: bytes) -> dict[str, Any]:
    """The object of a line whose checksum holds."""
    found = _CHECKED.fullmatch(line)
    if found is None:
        raise ValueError("a line without a checksum")
    if f"{crc32c(found[1]):08x}".encode() != found[2]:
        raise ValueError(f"the checksum {found[2].decode()} of a line that has {crc32c(found[1]):08x}")
    parsed: dict[str, Any] = json.loads(found[1] + b"}")
    return parsed


def _line(data: dict[str, Any]) -> bytes:
    text = json.dumps(data)[:-1].encode()  # no indentation: with one it takes twenty times as long
    return b'%b, "crc32c": "%08x"}\n' % (text, crc32c(text))


def _checked(data: dict[str, Any]) -> TopicFile:
    if data["version"] != 1:
        raise ValueError(f"version {data['version']!r}, expected 1")
    topics = {name: _entry(name, one) for name, one in data["topics"].items()}
    return TopicFile(
        str(data["cluster_id"]), int(data["leader_epoch"]), _texts(data["node"]), _texts(data["cluster"]), topics
    )


def _entry(name: str, one: dict[str, Any]) -> TopicEntry:
    check_name(name)
    partitions, made = [int(index) for index in one["partitions"]], {int(index) for index in one["made"]}
    if len(id_bytes(one["topic_id"])) != 16 or any(not 0 <= index < 2**31 for index in (*partitions, *made)):
        raise ValueError(f"topic {name!r}: id {one['topic_id']!r}, partitions {partitions}")
    return TopicEntry(one["topic_id"], partitions, _texts(one["configs"]), made, bool(one["deleted"]))


def _texts(found: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in found.items()}


def _shown(entry: TopicEntry) -> dict[str, Any]:
    """A topic as the file has it."""
    return {**vars(entry), "made": sorted(entry.made)}
