"""Names and bytes of the files in a log directory: the only place that opens anything.

Layout::

    <log directory>/
      <topic>-<partition>/                 also <topic>-<partition>.<32 hex digits>-delete | -future | -stray
        <20 digits>.log .index .timeindex .txnindex .snapshot     suffixes .deleted .cleaned .swap: not live
        <20 digits>-<id>.log ...                                  a copy in tiered storage
        leader-epoch-checkpoint, partition.metadata
      log-start-offset-checkpoint, replication-offset-checkpoint, ...

Everything is opened for reading only, and read with pread: a broker may append, truncate or delete meanwhile, and a
mapped file that shrinks would kill the process.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Self

from kts.errors import LogStorageError

INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state", "__remote_log_metadata"}
)
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"

_FILE = re.compile(
    r"(?P<base>[0-9]{20})(?P<id>-[A-Za-z0-9_-]+)?"
    r"(?P<suffix>\.log|\.index|\.timeindex|\.txnindex|\.snapshot)"
    r"(?P<transition>\.deleted|\.cleaned|\.swap)?"
)
_DIRECTORY = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})")
_MOVED = re.compile(r"(?P<name>.+?)(\.[0-9a-f]{32})?-(?P<state>delete|future|stray)")
_INT64 = re.compile(r"-?[0-9]{1,19}")
_TOPIC_ID = re.compile(r"(?P<name>.+)-[A-Za-z0-9_-]{22}")


class FileName(NamedTuple):
    """The parts of a segment file's name."""

    base_offset: int
    suffix: str  # .log .index .timeindex .txnindex .snapshot
    tier_id: str  # what follows the base offset in tiered storage, else empty
    transition: str  # .deleted .cleaned .swap, or empty when live


class DirectoryName(NamedTuple):
    """The parts of a partition directory's name."""

    topic: str
    partition: int
    state: str  # delete, future, stray, or empty when live


def parse_file_name(name: str) -> FileName | None:
    """The parts of a segment file's name, or None for any other file."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    base = int(match["base"])
    if base >= 2**63:
        return None
    return FileName(base, match["suffix"], (match["id"] or "")[1:], match["transition"] or "")


def parse_directory_name(name: str) -> DirectoryName | None:
    """The parts of a partition directory's name (split at the last dash), or None for any other directory."""
    state = ""
    moved = _MOVED.fullmatch(name)
    if moved is not None:
        name, state = moved["name"], moved["state"]
    match = _DIRECTORY.fullmatch(name)
    if match is None or int(match["partition"]) >= 2**31:
        return None
    return DirectoryName(match["topic"], int(match["partition"]), state)


def partition_of_file(path: str) -> tuple[str, int]:
    """Topic and partition of a segment file, from its own name or the directories around it.

    Known are ``<topic>-<p>/x.log``, tiered storage's ``<topic>-<p>-<topic id>/x.log`` and
    ``<topic>-<topic id>/<p>/x.log``, and a file called ``<topic>-<p>.log``.
    Anything else is partition 0 of a topic named like the directory.
    """
    path = os.path.abspath(path)
    parent = os.path.basename(os.path.dirname(path))
    stem = os.path.basename(path).split(".log")[0]
    own = None if parse_file_name(f"{stem}.log") else parse_directory_name(stem)
    known = own or parse_directory_name(parent)
    if known is not None and not (known.topic.isdigit() and own):
        return known.topic, known.partition
    tiered = _TOPIC_ID.fullmatch(parent)
    if tiered is not None and (known := parse_directory_name(tiered["name"])) is not None:
        return known.topic, known.partition
    if parent.isdigit():
        tiered = _TOPIC_ID.fullmatch(os.path.basename(os.path.dirname(os.path.dirname(path))))
        if tiered is not None:
            return tiered["name"], int(parent)
    return parent or "unnamed", 0


@contextmanager
def storage_errors(path: str, doing: str) -> Iterator[None]:
    """Turn an operating system's error into LogStorageError with its errno."""
    try:
        yield
    except OSError as error:
        raise LogStorageError(f"{doing} failed: {error.strerror or error}", path=path, errno=error.errno) from error


class File:
    """A file opened for reading at positions; a context manager.

    Raises
    ------
    LogStorageError
        It cannot be opened, is not a regular file, or a read failed.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = -1
        with storage_errors(path, "opening"):
            # Without O_NONBLOCK a FIFO with a segment's name would hang the program.
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                self.close()
                raise LogStorageError("expected a regular file, found something else", path=path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def size(self) -> int:
        """Length now, in bytes."""
        with storage_errors(self.path, "reading the size"):
            return os.fstat(self._fd).st_size

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer from a position; fewer bytes only where the file ends."""
        done = 0
        with storage_errors(self.path, "reading"):
            while done < len(buffer):
                count = os.preadv(self._fd, [buffer[done:]], position + done)
                if count == 0:
                    break
                done += count
        return done

    def read(self, position: int, count: int) -> bytes:
        """Up to count bytes from a position; fewer only where the file ends."""
        with storage_errors(self.path, "reading"):
            data = os.pread(self._fd, count, position)
        if len(data) == count or not data:
            return data
        rest = bytearray(count)
        rest[: len(data)] = data
        done = len(data) + self.read_into(memoryview(rest)[len(data) :], position + len(data))
        return bytes(memoryview(rest)[:done])


def read_bytes(path: str) -> bytes:
    """A whole file, as long as it is now."""
    with File(path) as file:
        return file.read(0, file.size())


def read_used(path: str, entry_bytes: int) -> bytes:
    """An index file without the zeros of its preallocated part: an open one is 10 MiB, most of it unused."""
    with File(path) as file:
        size, count = file.size(), 4096 * entry_bytes
        while count < size:
            last = file.read(count - entry_bytes, entry_bytes)
            if not any(last):
                break
            count *= 4
        return file.read(0, min(count, size))


def modified_ms(path: str) -> int:
    """Modification time in ms since the epoch, cut as Java does."""
    with storage_errors(path, "reading the modification time"):
        return os.stat(path).st_mtime_ns // 1_000_000


def size_of(path: str) -> int:
    """Length now, in bytes."""
    with storage_errors(path, "reading the size"):
        status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise LogStorageError("expected a regular file, found something else", path=path)
    return status.st_size


def list_directory(path: str) -> list[os.DirEntry[str]]:
    """Entries of a directory in name order."""
    with storage_errors(path, "listing"), os.scandir(path) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def exists(path: str) -> bool:
    """True if something lies there."""
    return os.path.exists(path)


# --- small text files -----------------------------------------------------------------------------


def read_checkpoint(path: str) -> dict[tuple[str, int], int] | None:
    """Offsets of a checkpoint file by topic and partition; None if missing or malformed, as a broker treats it."""
    lines = _checkpoint_lines(path)
    if lines is None:
        return None
    offsets: dict[tuple[str, int], int] = {}
    for fields in lines:
        if len(fields) != 3 or not fields[1].isdigit() or not _INT64.fullmatch(fields[2]):
            return None
        offsets[fields[0], int(fields[1])] = int(fields[2])
        if not -(2**63) <= offsets[fields[0], int(fields[1])] < 2**63:
            return None
    return offsets


def read_leader_epochs(path: str) -> list[tuple[int, int]] | None:
    """(epoch, start offset) of a leader-epoch-checkpoint; None if missing or malformed."""
    lines = _checkpoint_lines(path)
    if lines is None:
        return None
    epochs = []
    for fields in lines:
        if len(fields) != 2 or not all(_INT64.fullmatch(field) and int(field) < 2**63 for field in fields):
            return None
        epochs.append((int(fields[0]), int(fields[1])))
    return epochs


def _checkpoint_lines(path: str) -> list[list[str]] | None:
    if not exists(path):
        return None
    lines = read_bytes(path).decode("utf-8", "replace").split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if len(lines) < 2 or lines[0] != "0" or not lines[1].isdigit() or int(lines[1]) != len(lines) - 2:
        return None
    return [line.split(" ") for line in lines[2:]]


def read_topic_id(directory: str) -> str | None:
    """Topic id of a partition.metadata file, 22 characters of URL-safe base64; None if there is none."""
    path = os.path.join(directory, PARTITION_METADATA)
    if not exists(path):
        return None
    for line in read_bytes(path).decode("utf-8", "replace").splitlines():
        if line.startswith("topic_id: "):
            return line.removeprefix("topic_id: ")
    return None
