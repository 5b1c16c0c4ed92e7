"""The small text files of a log directory and its partitions, read and written as a broker does."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar, cast

from kts.arguments import INT32_MAX, INT64_MAX, INT64_MIN
from kts.errors import LogStorageError
from kts.segment.commits import FILE as COMMITS
from kts.segment.commits import NO_COMMITS, Commits, read_commits
from kts.segment.index_checksums import IndexChecksums, Sealed
from kts.segment.magic_checkpoint import MagicCheckpoint, NotedMagics
from kts.segment.names import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    TOPIC_ID,
)
from kts.segment.rereading import warn
from kts.segment.segment_lines import SegmentLines
from kts.store.source import Source, files

Offsets = dict[tuple[str, int], int]  # by topic and partition
Own = TypeVar("Own", bound=SegmentLines)

_INT32 = re.compile(r"[0-9]{1,10}")
_OFFSET = r"[^ \n]+ [0-9]{1,10} -?[0-9]{1,19}\n"
_EPOCH = r"[0-9]{1,10} [0-9]{1,19}\n"
_TOPIC_ID = re.compile(rf"version: 0\r?\ntopic_id: ({TOPIC_ID})(?:\r?\n)?")
_SHOWN = 60  # characters of what a fault shows
_UNREADABLE = (None, errno.ELOOP, errno.EACCES, errno.EPERM)  # None: no regular file
MEANINGS = {  # what it means that a file says nothing
    LOG_START_OFFSETS: "no log start offset is known: records that DeleteRecords removed are read again",
    HIGH_WATERMARKS: "no high watermark is known: the last records may not be on all replicas",
    RECOVERY_POINTS: "no recovery point is known: a start checks whole logs",
    CLEANER_OFFSETS: "no cleaner offset is known: a broker cleans its topics from the start",
    LEADER_EPOCHS: "no leader epochs are known",
    PARTITION_METADATA: "no topic id is known: whether the topic was made again cannot be told",
}


class Checkpoints:
    """The checkpoint files of a log directory, for readers.

    Notes
    -----
    Each call reads the checkpoint but parses it only if its bytes changed: the file has a line for every partition of
    the directory, and a reader of the directory asks once for each.
    """

    def __init__(self, directory: str, source: Source = files) -> None:
        self.directory, self.source = directory, source
        self._parsed: dict[str, tuple[bytes, Mapping[tuple[str, int], int] | str]] = {}  # name -> (bytes, offsets)
        self._told: set[tuple[str, str]] = set()  # files whose faults were told, and these
        self._own: dict[type[SegmentLines], tuple[tuple[int, ...], SegmentLines]] = {}  # with the file's identity
        self._commits: tuple[tuple[int, ...] | None, Commits] = None, NO_COMMITS  # likewise

    def offset(self, name: str, topic: str, partition: int) -> int | None:
        """A partition's offset in a checkpoint; None if there is no file or line, and with a warning if it is unknown.

        Warns
        -----
        KtsWarning
            The file or the line is malformed.
        """
        if (fault := self.fault(name, topic, partition)) is not None:
            self.tell(os.path.join(self.directory, name), fault)
            return None
        found = self._content(name)
        return found.get((topic, partition)) if isinstance(found, Mapping) else None

    def fault(self, name: str, topic: str, partition: int) -> str | None:
        """Why a partition's offset in a checkpoint is unknown, though it may have one; None if it is known."""
        found = self._content(name)
        if isinstance(found, str):
            return found
        offset = 0 if found is None else found.get((topic, partition), 0)
        return None if offset >= 0 else f"expected an offset of 0 or more for {topic}-{partition}, found {offset}"

    def fault_of_file(self, name: str) -> str | None:
        """What is wrong with a checkpoint; of several negative offsets, the first."""
        found = self._content(name)
        if isinstance(found, Mapping):
            return next((self.fault(name, *key) for key, offset in found.items() if offset < 0), None)
        return found

    def tell(self, path: str, fault: str, meaning: str | None = None) -> None:
        """Warn, once, that a small file says nothing, and what that means."""
        if (path, fault) not in self._told:
            self._told.add((path, fault))
            warn(f"{path}: {fault}; {meaning or MEANINGS[os.path.basename(path)]}", path)

    def _content(self, name: str) -> Mapping[tuple[str, int], int] | str | None:
        """The offsets of a checkpoint, or what is wrong with it; None if there is none."""
        path = os.path.join(self.directory, name)
        try:
            data = self.source.read_if_there(path)
        except LogStorageError as error:
            if not self.source.is_here or error.errno not in _UNREADABLE:
                raise
            return error.message
        if data is None:
            return None
        known = self._parsed.get(name)
        if known is None or known[0] != data:
            known = self._parsed[name] = data, _offsets_of(data)
        if not data and name in (LOG_START_OFFSETS, HIGH_WATERMARKS) and self._content(RECOVERY_POINTS):
            # A broker makes each file empty, and writes these two at the latest when it writes the recovery points.
            return f"expected lines, as {RECOVERY_POINTS} has, found an empty file"
        return known[1]

    def sealed_indexes(self, topic: str, partition: int) -> dict[int, Sealed]:
        """The index checksums that ``kts.Log`` recorded for a partition, by base offset."""
        with suppress(LogStorageError):
            if (known := self._read(IndexChecksums)) is not None:
                return known.of(topic, partition)
        return {}

    def noted_magics(self, topic: str, partition: int) -> dict[int, NotedMagics]:
        """The magics that ``kts.Log`` noted for a partition, by base offset."""
        with suppress(LogStorageError):
            if (known := self._read(MagicCheckpoint)) is not None:
                return known.of(topic, partition)
        return {}

    def _read(self, kind: type[Own]) -> Own | None:
        """A file that only kts has; None if it is missing."""
        identity = self.source.identity(os.path.join(self.directory, kind.file))
        if identity is None:
            return None
        known = self._own.get(kind)
        if known is None or known[0] != identity:  # a write replaces the file, so its identity changes
            known = self._own[kind] = identity, kind(self.directory, self.source)
        return cast("Own", known[1])

    def commits(self) -> Commits:
        """The commits of segments that were written aside: the same object as before unless the file changed.

        A bucket has none: nobody commits there.
        """
        if not self.source.is_here:
            return NO_COMMITS
        identity = files.identity(os.path.join(self.directory, COMMITS))
        if identity != self._commits[0]:
            self._commits = identity, read_commits(self.directory)
        return self._commits[1]


def read_checkpoint(path: str, source: Source = files) -> Mapping[tuple[str, int], int] | None:
    """Offsets of a checkpoint file by topic and partition; None if missing or malformed: see ``fault_of``."""
    data = source.read_if_there(path)
    found = None if data is None else _offsets_of(data)
    return None if isinstance(found, str) else found


def fault_of(path: str, source: Source = files) -> str | None:
    """What is wrong with a small file, by its name; None if it is sound or missing. An empty checkpoint is sound."""
    data = source.read_if_there(path)
    if data is None:
        return None
    name = os.path.basename(path)
    if name == PARTITION_METADATA:
        sound = _TOPIC_ID.fullmatch(data.decode("utf-8", "replace")) is not None
        return None if sound else f"expected `version: 0` and a topic id of 22 characters, found {_shown(data)}"
    found = _epochs_of(data) if name == LEADER_EPOCHS else _offsets_of(data)
    return found if isinstance(found, str) else None


def _offsets_of(data: bytes) -> Mapping[tuple[str, int], int] | str:
    """The offsets in the bytes of a checkpoint, or what is wrong with them."""
    body = _body_of(data, _OFFSET, "`<topic> <partition> <offset>`")
    if isinstance(body, list):
        return body[0]
    fields = body[:-1].replace("\n", " ").split(" ") if body else []
    offsets = [int(field) for field in fields[2::3]]
    if offsets and not (min(offsets) >= INT64_MIN and max(offsets) <= INT64_MAX):
        return "expected offsets of 64 bits, found a larger number"
    return dict(zip(zip(fields[::3], map(int, fields[1::3]), strict=True), offsets, strict=True))


def read_leader_epochs(path: str, source: Source = files) -> list[tuple[int, int]] | None:
    """(epoch, start offset) of a leader-epoch-checkpoint; None if missing, empty or malformed: see ``fault_of``."""
    data = source.read_if_there(path)
    return None if data is None else leader_epochs_of(data)


def leader_epochs_of(data: bytes) -> list[tuple[int, int]] | None:
    """(epoch, start offset) in the bytes of a leader-epoch-checkpoint; None if malformed or empty."""
    found = _epochs_of(data)
    return None if isinstance(found, str) or not data else found


def _epochs_of(data: bytes) -> list[tuple[int, int]] | str:
    """(epoch, start offset) in the bytes of a leader-epoch-checkpoint, or what is wrong with them."""
    body = _body_of(data, _EPOCH, "`<epoch> <offset>`")
    if isinstance(body, list):
        return body[0]
    numbers = [int(field) for field in body.split()]
    epochs = list(zip(numbers[::2], numbers[1::2], strict=True))
    if all(epoch <= INT32_MAX and start <= INT64_MAX for epoch, start in epochs):
        return epochs
    return "expected epochs of 32 bits and offsets of 64, found a larger number"


def _body_of(data: bytes, line: str, expected: str) -> str | list[str]:
    """The lines after the version and the count, each with its line feed; or in a list, what is wrong.

    An empty file has no lines: a broker makes it so before it first writes it. Kafka's readers take any line end.
    """
    if not data:
        return ""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    version, _, rest = text.partition("\n")
    count, _, body = rest.partition("\n")
    if body and not body.endswith("\n"):
        body += "\n"
    if version != "0":
        return [f"line 1: expected the version 0, found {_shown(data)}"]
    if not _INT32.fullmatch(count):
        return [f"line 2: expected the number of lines, found {count[:_SHOWN]!r}"]
    if not re.fullmatch(f"(?:{line})*", body):
        found = body.splitlines()
        wrong = next(number for number, each in enumerate(found) if not re.fullmatch(line, f"{each}\n"))
        return [f"line {wrong + 3}: expected {expected}, found {found[wrong][:_SHOWN]!r}"]
    if int(count) != body.count("\n"):
        return [f"line 2: expected {count} lines, found {body.count(chr(10))}"]
    return body


def _shown(data: bytes) -> str:
    """The beginning of a damaged file."""
    if not data.strip(b"\0"):
        return f"{len(data)} bytes of zeros" if data else "an empty file"
    return repr(data.decode("utf-8", "replace").split("\n")[0][:_SHOWN])


def read_topic_id(directory: str, source: Source = files) -> str | None:
    """Topic id of a partition.metadata file, 22 characters of URL-safe base64; None if missing or malformed."""
    path = os.path.join(directory, PARTITION_METADATA)
    data = source.read_if_there(path)
    found = None if data is None else _TOPIC_ID.fullmatch(data.decode("utf-8", "replace"))
    return None if found is None else found[1]


def write_checkpoint(path: str, offsets: dict[tuple[str, int], int], source: Source = files) -> None:
    """Write a checkpoint file atomically."""
    _write(path, [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()], source)


def write_leader_epochs(path: str, epochs: list[tuple[int, int]], source: Source = files) -> None:
    """Write a leader-epoch-checkpoint of (epoch, start offset) atomically."""
    _write(path, [f"{epoch} {start}" for epoch, start in epochs], source)


def _write(path: str, lines: list[str], source: Source) -> None:
    source.put(path, ["".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]).encode()])


def write_topic_id(directory: str, topic_id: str, source: Source = files) -> None:
    """Write a partition.metadata file, without a line feed after the id."""
    path = os.path.join(directory, PARTITION_METADATA)
    source.put(path, [f"version: 0\ntopic_id: {topic_id}".encode()])
