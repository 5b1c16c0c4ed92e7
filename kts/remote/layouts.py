"""Where the objects of a segment lie in tiered storage, in the two layouts.

Layout::

    local    <folder>/<topic>-<partition>-<topic id>/<base offset, 20 digits>-<segment id><suffix>
    aiven    <prefix><topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id><suffix>

``local`` is LocalTieredStorage of Kafka: byte copies of the files. ``aiven`` is Aiven's plugin: a log in chunks, one
object with all indexes, and a manifest. Ids have 22 characters and may contain dashes, as topics may.

Source: RemoteLogSegmentFileset, RemoteTopicPartitionDirectory (Kafka), ObjectKeyFactory (Aiven).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from kts.errors import LogStorageError
from kts.remote.metadata import Copy, PartitionId
from kts.segment.names import TOPIC_CHARACTERS, TOPIC_ID, parse_directory_name
from kts.store import addresses
from kts.store.source import Source, files

AUTO, LOCAL, AIVEN = "auto", "local", "aiven"
LAYOUTS = (AUTO, LOCAL, AIVEN)
FOLDER = "kafka-tiered-storage"  # what LocalTieredStorage makes in its directory
MANIFEST, INDEXES, EPOCHS, SNAPSHOT = ".rsm-manifest", ".indexes", ".leader_epoch_checkpoint", ".snapshot"

_TOPIC = re.compile(rf"(?P<name>{TOPIC_CHARACTERS}+)-(?P<id>{TOPIC_ID})")
_OBJECT = re.compile(rf"(?P<base>[0-9]{{20}})-(?P<id>{TOPIC_ID})(?P<suffix>\.[a-z_-]+)")


def _is_bucket(path: str) -> bool:
    return "/" not in path.partition("://")[2] and addresses.scheme_of(path) is not None


class PartitionObjects(NamedTuple):
    """The objects of one partition of a topic id."""

    of: PartitionId
    layout: str
    directory: str


class Objects(NamedTuple):
    """The objects of one segment id: the suffixes that are there."""

    base_offset: int
    segment_id: str
    stem: str
    suffixes: frozenset[str]

    def is_whole(self, layout: str) -> bool:
        """Whether the copy was finished: its last object is there."""
        # A plugin writes the manifest, and Kafka's own storage the epochs and then the snapshot, after all the rest.
        if layout == AIVEN:
            return MANIFEST in self.suffixes
        return SNAPSHOT in self.suffixes or {".log", EPOCHS} <= self.suffixes


class Root(NamedTuple):
    """The start of all keys: a folder, how names in it begin, and where it lies."""

    folder: str
    stem: str
    source: Source = files

    @classmethod
    def of(cls, remote: str, source: Source = files) -> Root:
        """The root that a user names: a directory, or a prefix as it is.

        Raises
        ------
        FileNotFoundError
            There is no such folder, or nothing in it begins with the prefix.
        """
        remote = os.path.abspath(remote) + "/" * remote.endswith("/") if source.is_here else remote
        folder, _, stem = remote.rpartition("/")
        if _is_bucket(remote) or (stem and source.directory_exists(remote)):
            folder, stem = remote, ""
        if not stem and source.directory_exists(inner := f"{folder}/{FOLDER}"):
            folder = inner
        if not source.directory_exists(folder or "/"):
            raise FileNotFoundError(errno.ENOENT, "there is no tiered storage", remote)
        if stem and not any(name.startswith(stem) for name in source.names_in(folder or "/")):
            raise FileNotFoundError(errno.ENOENT, "there is no tiered storage, and no name that begins so", remote)
        return cls(folder, stem, source)

    def key(self, name: str) -> str:
        """The path of an object or directory."""
        return f"{self.folder}/{self.stem}{name}"


def directory_of(root: Root, of: PartitionId, layout: str) -> str:
    """The directory of a partition's objects."""
    if layout == LOCAL:
        return root.key(f"{of.topic}-{of.partition}-{of.topic_id}")
    return root.key(f"{of.topic}-{of.topic_id}/{of.partition}")


def stem_of(root: Root, copy: Copy, layout: str) -> str:
    """The path of a copy's objects without their suffixes.

    Notes
    -----
    A plugin's own note goes first. Its prefix counts from the root of the store, which may be above what is given here;
    the objects are below that.
    """
    name = f"{copy.start_offset:020d}-{copy.segment_id}"
    if layout == LOCAL or (copy.object_prefix is None and copy.object_key is None):
        return f"{directory_of(root, copy.of, layout)}/{name}"
    key = copy.object_key or f"{copy.of.topic}-{copy.of.topic_id}/{copy.of.partition}/{name}"
    if copy.object_prefix is None or root.key("").endswith(f"/{copy.object_prefix}"):
        return root.key(key)
    folder = root.folder
    while True:
        found = f"{folder}/{copy.object_prefix}{key}"
        if found.startswith(root.key("")) and root.source.directory_exists(os.path.dirname(found)):
            return found
        above = os.path.dirname(folder)
        if above == folder or _is_bucket(folder):
            return root.key(key)
        folder = above


def places(root: Root, layout: str) -> Iterator[PartitionObjects]:
    """The partitions in a store, from listings of its directories."""
    named = []
    for entry in root.source.list_directory(root.folder):
        found = _TOPIC.fullmatch(entry.name[len(root.stem) :]) if entry.name.startswith(root.stem) else None
        if found is not None and root.source.is_directory(entry):
            named.append((entry.path, found["name"], found["id"]))

    def inside(one: tuple[str, str, str]) -> list[PartitionObjects]:
        path, name, topic_id = one
        own = parse_directory_name(name)
        local = None if own is None else PartitionObjects(PartitionId(own.topic, topic_id, own.partition), LOCAL, path)
        if layout == LOCAL:
            return [] if local is None else [local]
        entries = root.source.list_directory(path)
        numbers = [one for one in entries if re.fullmatch("[0-9]{1,10}", one.name) and root.source.is_directory(one)]
        if layout == AUTO and local is not None and not numbers:
            return [local]
        return [PartitionObjects(PartitionId(name, topic_id, int(one.name)), AIVEN, one.path) for one in numbers]

    for group in root.source.side_by_side(inside, named):
        yield from group


def place_of(root: Root, of: PartitionId, layout: str) -> PartitionObjects | None:
    """Where the objects of a partition are; None if there are none."""
    for one in (AIVEN, LOCAL) if layout == AUTO else (layout,):
        directory = directory_of(root, of, one)
        if root.source.directory_exists(directory):
            return PartitionObjects(of, one, directory)
    return None


def objects_in(directory: str, source: Source = files) -> list[Objects]:
    """The objects in a partition's directory, by base offset."""
    found: dict[tuple[int, str], set[str]] = {}
    try:
        entries = source.list_directory(directory)
    except LogStorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return []
    for entry in entries:
        name = _OBJECT.fullmatch(entry.name)
        if name is not None:
            found.setdefault((int(name["base"]), name["id"]), set()).add(name["suffix"])
    return [
        Objects(base, segment_id, f"{directory}/{base:020d}-{segment_id}", frozenset(suffixes))
        for (base, segment_id), suffixes in sorted(found.items())
    ]
