"""The small text files of a log directory and its partitions, read and written as a broker does."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar, cast

from kts.arguments import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from kts.errors import LogStorageError
from kts.segment import files
from kts.segment.commits import FILE as COMMITS
from kts.segment.commits import NO_COMMITS, Commits, read_commits
from kts.segment.index_checksums import IndexChecksums, Sealed
from kts.segment.magic_checkpoint import MagicCheckpoint, NotedMagics
from kts.segment.names import PARTITION_METADATA
from kts.segment.segment_lines import SegmentLines

Offsets = dict[tuple[str, int], int]  # by topic and partition
Own = TypeVar("Own", bound=SegmentLines)

_INT32 = re.compile(r"[0-9]{1,10}")
_OFFSETS = re.compile(r"(?:[^ \n]* [0-9]{1,10} -?[0-9]{1,19}\n)*")
_EPOCHS = re.compile(r"(?:-?[0-9]{1,19} -?[0-9]{1,19}\n)*")
_TOPIC_ID = re.compile(r"version: 0\r?\ntopic_id: ([A-Za-z0-9_-]{22})(?:\r?\n)?")


class Checkpoints:
    """The checkpoint files of a log directory, for readers.

    Notes
    -----
    Each call reads the checkpoint but parses it only if its bytes changed: the file has a line for every partition of
    the directory, and a reader of the directory asks once for each.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._parsed: dict[str, tuple[bytes, Mapping[tuple[str, int], int] | None]] = {}  # name -> (bytes, offsets)
        self._own: dict[type[SegmentLines], tuple[tuple[int, ...], SegmentLines]] = {}  # with the file's identity
        self._commits: tuple[tuple[int, ...] | None, Commits] = None, NO_COMMITS  # likewise

    def offset(self, name: str, topic: str, partition: int) -> int | None:
        """A partition's offset in a checkpoint; None if it has no line, or the file is missing or malformed."""
        data = files.read_if_there(os.path.join(self.directory, name))
        if data is None:
            return None
        known = self._parsed.get(name)
        if known is None or known[0] != data:
            known = self._parsed[name] = data, _offsets_of(data)
        return None if known[1] is None else known[1].get((topic, partition))

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
        identity = files.identity(os.path.join(self.directory, kind.file))
        if identity is None:
            return None
        known = self._own.get(kind)
        if known is None or known[0] != identity:  # a write replaces the file, so its identity changes
            known = self._own[kind] = identity, kind(self.directory)
        return cast("Own", known[1])

    def commits(self) -> Commits:
        """The commits of segments that were written aside: the same object as before unless the file changed.

        A bucket has none: nobody commits there.
        """
        if files.scheme_of(self.directory) is not None:
            return NO_COMMITS
        identity = files.identity(os.path.join(self.directory, COMMITS))
        if identity != self._commits[0]:
            self._commits = identity, read_commits(self.directory)
        return self._commits[1]


def read_checkpoint(path: str) -> Mapping[tuple[str, int], int] | None:
    """Offsets of a checkpoint file by topic and partition; None if missing or malformed, as a broker treats it."""
    data = files.read_if_there(path)
    return None if data is None else _offsets_of(data)


def _offsets_of(data: bytes) -> Mapping[tuple[str, int], int] | None:
    body = _body_of(data, _OFFSETS)
    if body is None:
        return None
    fields = body[:-1].replace("\n", " ").split(" ") if body else []
    offsets = [int(field) for field in fields[2::3]]
    if offsets and not (min(offsets) >= INT64_MIN and max(offsets) <= INT64_MAX):
        return None
    return dict(zip(zip(fields[::3], map(int, fields[1::3]), strict=True), offsets, strict=True))


def read_leader_epochs(path: str) -> list[tuple[int, int]] | None:
    """(epoch, start offset) of a leader-epoch-checkpoint; None if missing or malformed."""
    data = files.read_if_there(path)
    return None if data is None else leader_epochs_of(data)


def leader_epochs_of(data: bytes) -> list[tuple[int, int]] | None:
    """(epoch, start offset) in the bytes of a leader-epoch-checkpoint; None if malformed."""
    body = _body_of(data, _EPOCHS)
    if body is None:
        return None
    numbers = [int(field) for field in body.split()]
    epochs = list(zip(numbers[::2], numbers[1::2], strict=True))
    fit = all(INT32_MIN <= epoch <= INT32_MAX and INT64_MIN <= start <= INT64_MAX for epoch, start in epochs)
    return epochs if fit else None


def _body_of(data: bytes, lines: re.Pattern[str]) -> str | None:
    """The lines after the version and the count, each with its line feed; None if malformed."""
    version, _, rest = data.decode("utf-8", "replace").partition("\n")
    count, _, body = rest.partition("\n")
    if body and not body.endswith("\n"):
        body += "\n"
    if version != "0" or not _INT32.fullmatch(count) or int(count) != body.count("\n") or not lines.fullmatch(body):
        return None
    return body


def read_topic_id(directory: str) -> str | None:
    """Topic id of a partition.metadata file, 22 characters of URL-safe base64; None if missing or malformed."""
    path = os.path.join(directory, PARTITION_METADATA)
    data = files.read_if_there(path)
    found = None if data is None else _TOPIC_ID.fullmatch(data.decode("utf-8", "replace"))
    return None if found is None else found[1]


def write_checkpoint(path: str, offsets: dict[tuple[str, int], int]) -> None:
    """Write a checkpoint file atomically."""
    _write(path, [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def write_leader_epochs(path: str, epochs: list[tuple[int, int]]) -> None:
    """Write a leader-epoch-checkpoint of (epoch, start offset) atomically."""
    _write(path, [f"{epoch} {start}" for epoch, start in epochs])


def _write(path: str, lines: list[str]) -> None:
    files.write_atomically(path, "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]).encode())


def write_topic_id(directory: str, topic_id: str) -> None:
    """Write a partition.metadata file, without a line feed after the id."""
    path = os.path.join(directory, PARTITION_METADATA)
    files.write_atomically(path, f"version: 0\ntopic_id: {topic_id}".encode())
