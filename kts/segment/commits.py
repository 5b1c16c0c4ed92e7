"""The commit checkpoint of a log directory: segments that were written aside and are about to join the log.

A writer of whole segments (``kts.log.staging``) renames many files of many partitions. This file makes that one step:
it lists the renames before the first, and is replaced by one without them after the last. While it lists them, readers
see each partition as it was before; whoever opens the directory for writing after a crash does the rest. The file lies
beside the checkpoints, and brokers ignore it::

    0                           version
    1a2b3c4d                    CRC-32C of the line below, in hex
    {"streams": {query: batch}, "pending": [partition, ...]}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from kts._codec import crc32c
from kts.errors import LogStorageError
from kts.segment import files

FILE = "kts-commit-checkpoint"
ASIDE = "kts-commit-"  # begins the names of the files that wait beside it


@dataclass(frozen=True)
class PendingFile:
    """A file of the log directory and the name that it gets in the partition's directory."""

    source: str
    target: str
    size: int


@dataclass(frozen=True)
class PendingPartition:
    """The segments that join a partition.

    Attributes
    ----------
    first_offset : int
        The log end offset before; the new records begin there.
    is_new : bool
        There was no such partition.
    leader_epoch : int
        Of the new batches, -1 for a message format without epochs.
    last_segment : list of int
        Base offset and size of the last segment before; empty if the partition is new.
    files : list of PendingFile
        In the order in which they are renamed: the log of a segment after its indexes.
    """

    topic: str
    partition: int
    first_offset: int
    is_new: bool
    leader_epoch: int
    last_segment: list[int]
    files: list[PendingFile]


@dataclass(frozen=True)
class Commits:
    """The content of a commit checkpoint.

    Attributes
    ----------
    streams : dict of str to int
        The last batch of each streaming query that was committed.
    pending : list of PendingPartition
        The commit that is not complete.
    """

    streams: Mapping[str, int] = field(default_factory=dict)
    pending: list[PendingPartition] = field(default_factory=list)

    def pending_of(self, topic: str, partition: int) -> PendingPartition | None:
        """What is about to join a partition."""
        return next((one for one in self.pending if (one.topic, one.partition) == (topic, partition)), None)


NO_COMMITS = Commits()


def read_commits(directory: str) -> Commits:
    """The commit checkpoint of a log directory; empty if there is none.

    Raises
    ------
    LogStorageError
        It is damaged: nobody can tell whether a commit is complete.
    """
    path = os.path.join(directory, FILE)
    data = files.read_if_there(path)
    if data is None:
        return NO_COMMITS
    version, _, rest = data.partition(b"\n")
    crc, _, body = rest.partition(b"\n")
    if version != b"0" or crc != b"%08x" % crc32c(body):
        raise LogStorageError(
            "expected a commit checkpoint of version 0 with a right checksum, found something else; restore it, or "
            "delete it to give up the commit that it may hold",
            path=path,
        )
    found = json.loads(body)
    pending = [
        PendingPartition(**one | {"files": [PendingFile(**f) for f in one["files"]]}) for one in found["pending"]
    ]
    return Commits(found["streams"], pending)


def write_commits(directory: str, commits: Commits) -> None:
    """Replace the commit checkpoint atomically."""
    body = json.dumps(asdict(commits)).encode() + b"\n"
    files.write_atomically(os.path.join(directory, FILE), b"0\n%08x\n" % crc32c(body) + body)
