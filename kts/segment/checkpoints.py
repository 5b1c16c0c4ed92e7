"""The small text files of a log directory and its partitions, read and written as a broker does."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from kts.segment import files
from kts.segment.names import PARTITION_METADATA

Offsets = dict[tuple[str, int], int]  # by topic and partition

_INT64 = re.compile(r"-?[0-9]{1,19}")
_INT32 = re.compile(r"[0-9]{1,10}")
_TOPIC_ID = re.compile(r"version: 0\r?\ntopic_id: ([A-Za-z0-9_-]{22})(?:\r?\n)?")
_KEPT, _KEPT_BYTES = 12, 2**24  # parsed checkpoints, and the longest one: a log directory has four
_parsed: dict[str, tuple[bytes, Mapping[tuple[str, int], int] | None]] = {}  # by path: its bytes, and what they say


def read_checkpoint(path: str) -> Mapping[tuple[str, int], int] | None:
    """Offsets of a checkpoint file by topic and partition; None if missing or malformed, as a broker treats it.

    Notes
    -----
    The file is read at each call. It is parsed only if its bytes changed: it has a line for every partition of the
    directory, and a reader of the directory asks once for each of them.
    """
    data = files.read_if_there(path)
    if data is None:
        return None
    known = _parsed.get(path)
    if known is not None and known[0] == data:
        return known[1]
    offsets = _offsets_of(data)
    if len(data) <= _KEPT_BYTES:
        for oldest in list(_parsed)[: 1 - _KEPT]:
            _parsed.pop(oldest, None)
        _parsed[path] = data, offsets
    return offsets


def _offsets_of(data: bytes) -> Mapping[tuple[str, int], int] | None:
    lines = _lines_of(data)
    if lines is None:
        return None
    offsets: dict[tuple[str, int], int] = {}
    for fields in lines:
        if len(fields) != 3 or not _INT32.fullmatch(fields[1]) or not _INT64.fullmatch(fields[2]):
            return None
        offsets[fields[0], int(fields[1])] = int(fields[2])
        if not -(2**63) <= offsets[fields[0], int(fields[1])] < 2**63:
            return None
    return offsets


def read_leader_epochs(path: str) -> list[tuple[int, int]] | None:
    """(epoch, start offset) of a leader-epoch-checkpoint; None if missing or malformed."""
    data = files.read_if_there(path)
    lines = None if data is None else _lines_of(data)
    if lines is None:
        return None
    epochs = []
    for fields in lines:
        if len(fields) != 2 or not all(_INT64.fullmatch(field) for field in fields):
            return None
        epochs.append((int(fields[0]), int(fields[1])))
        if not (-(2**31) <= epochs[-1][0] < 2**31 and -(2**63) <= epochs[-1][1] < 2**63):
            return None
    return epochs


def _lines_of(data: bytes) -> list[list[str]] | None:
    lines = data.decode("utf-8", "replace").split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if len(lines) < 2 or lines[0] != "0" or not _INT32.fullmatch(lines[1]) or int(lines[1]) != len(lines) - 2:
        return None
    return [line.split(" ") for line in lines[2:]]


def read_topic_id(directory: str) -> str | None:
    """Topic id of a partition.metadata file, 22 characters of URL-safe base64; None if missing or malformed."""
    path = os.path.join(directory, PARTITION_METADATA)
    data = files.read_if_there(path)
    found = None if data is None else _TOPIC_ID.fullmatch(data.decode("utf-8", "replace"))
    return None if found is None else found[1]


def write_checkpoint(path: str, offsets: dict[tuple[str, int], int]) -> None:
    """A checkpoint file, replaced as a whole."""
    _write(path, [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def write_leader_epochs(path: str, epochs: list[tuple[int, int]]) -> None:
    """A leader-epoch-checkpoint of (epoch, start offset), replaced as a whole."""
    _write(path, [f"{epoch} {start}" for epoch, start in epochs])


def _write(path: str, lines: list[str]) -> None:
    files.write_atomically(path, "".join(f"{line}\n" for line in ["0", str(len(lines)), *lines]).encode())


def write_topic_id(directory: str, topic_id: str) -> None:
    """A partition.metadata file: no line feed behind the id."""
    path = os.path.join(directory, PARTITION_METADATA)
    files.write_atomically(path, f"version: 0\ntopic_id: {topic_id}".encode())
