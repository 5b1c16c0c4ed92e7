"""``meta.properties``: the cluster and node that a log directory belongs to.

A Java properties file with lines ``key=value``. Version 1 (KRaft) has ``cluster.id``, ``node.id`` and, since 3.7,
``directory.id``; version 0 (ZooKeeper) has ``broker.id`` and, since 0.10.1, ``cluster.id``.

Source: MetaProperties, PropertiesUtils (3.9).
"""

from __future__ import annotations

import os
import re
import uuid
from typing import NamedTuple

from kts.errors import LogStorageError
from kts.model import uuid_text
from kts.segment.names import META_PROPERTIES
from kts.store import publishing
from kts.store.source import Source, files

_ENTRY = re.compile(r"([^#!=:\s][^=:\s]*)\s*[=:\s]\s*(.*)")  # of Java's properties
_NODE = re.compile(r"[0-9]{1,10}")


class MetaProperties(NamedTuple):
    """The contents of the file; None for missing values."""

    node_id: int | None
    cluster_id: str | None
    directory_id: str | None = None
    version: int = 1


def random_id() -> str:
    """A random id as Kafka makes it: 22 characters of URL-safe base64 that do not begin with a dash."""
    while True:
        made = uuid_text(uuid.uuid4().bytes)
        if not made.startswith("-"):
            return made


def read(directory: str, source: Source = files) -> MetaProperties | None:
    """The file of a log directory; None if there is none.

    Raises
    ------
    LogStorageError
        The file is malformed.
    """
    path = os.path.join(directory, META_PROPERTIES)
    data = source.read_if_there(path)
    if data is None:
        return None
    found: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        entry = _ENTRY.fullmatch(line.strip())
        if entry is not None:
            found[entry[1]] = entry[2].replace("\\", "")
    node = found.get("node.id", found.get("broker.id"))
    if found.get("version") not in ("0", "1") or (node is not None and not _NODE.fullmatch(node)):
        raise LogStorageError("expected version 0 or 1 and a node.id or broker.id that is a number", path=path)
    cluster_id, directory_id = (found.get(name) or None for name in ("cluster.id", "directory.id"))
    return MetaProperties(None if node is None else int(node), cluster_id, directory_id, int(found["version"]))


def write(directory: str, node_id: int, cluster_id: str) -> None:
    """Write the file as Kafka 3.7 and later do."""
    lines = [f"cluster.id={cluster_id}", f"directory.id={random_id()}", f"node.id={node_id}", "version=1"]
    publishing.publish(
        os.path.join(directory, META_PROPERTIES), "".join(f"{line}\n" for line in ["#", *lines]).encode()
    )
