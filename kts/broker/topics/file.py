"""The small file in which kts keeps what a log directory has no other place for: topics' settings, and the broker's.

Layout: JSON, replaced as a whole; brokers leave it alone. Topics by name with their id, partitions and own settings; a
topic is marked before its directories go, so that a stop in between is finished at the next start.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, field
from typing import Any

from kts.broker.topics.names import check_name
from kts.errors import InvalidTopicError, LogStorageError
from kts.storage import files

FILE = "kts-topics.json"


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
    """The whole file.

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
    """The file, empty if there is none.

    Raises
    ------
    LogStorageError
        It is there, and not as kts writes it.
    """
    where = path(directory)
    if not files.exists(where):
        return TopicFile()
    try:
        data = json.loads(files.read_bytes(where))
        return _checked(data)
    except (ValueError, TypeError, KeyError, AttributeError, InvalidTopicError) as error:
        message = f"expected the settings of topics as kts writes them, found {type(error).__name__}: {error}"
        raise LogStorageError(message, path=where) from error


def _checked(data: dict[str, Any]) -> TopicFile:
    if data["version"] != 1:
        raise ValueError(f"version {data['version']!r}, expected 1")
    topics = {}
    for name, one in data["topics"].items():
        check_name(name)
        partitions, made = [int(index) for index in one["partitions"]], {int(index) for index in one["made"]}
        if len(id_bytes(one["topic_id"])) != 16 or any(not 0 <= index < 2**31 for index in (*partitions, *made)):
            raise ValueError(f"topic {name!r}: id {one['topic_id']!r}, partitions {partitions}")
        topics[name] = TopicEntry(one["topic_id"], partitions, _texts(one["configs"]), made, bool(one["deleted"]))
    return TopicFile(
        str(data["cluster_id"]), int(data["leader_epoch"]), _texts(data["node"]), _texts(data["cluster"]), topics
    )


def _texts(found: dict[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in found.items()}


def write(directory: str, content: TopicFile) -> None:
    """Replace the file."""
    topics = {
        name: {
            "topic_id": one.topic_id,
            "partitions": one.partitions,
            "configs": one.configs,
            "made": sorted(one.made),
            "deleted": one.deleted,
        }
        for name, one in sorted(content.topics.items())
    }
    data = {
        "version": 1,
        "cluster_id": content.cluster_id,
        "leader_epoch": content.leader_epoch,
        "node": content.node,
        "cluster": content.cluster,
        "topics": topics,
    }
    # One line: with an indentation it takes twenty times as long, for each of thousands of topics that are made.
    files.write_atomically(path(directory), (json.dumps(data) + "\n").encode())
