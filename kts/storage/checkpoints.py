"""The small text files of a log directory and its partitions, read and written as a broker does."""

from __future__ import annotations

import os
import re

from kts.storage import file_names, files

Offsets = dict[tuple[str, int], int]  # by topic and partition

_INT64 = re.compile(r"-?[0-9]{1,19}")


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
    if not files.exists(path):
        return None
    lines = files.read_bytes(path).decode("utf-8", "replace").split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    if len(lines) < 2 or lines[0] != "0" or not lines[1].isdigit() or int(lines[1]) != len(lines) - 2:
        return None
    return [line.split(" ") for line in lines[2:]]


def read_topic_id(directory: str) -> str | None:
    """Topic id of a partition.metadata file, 22 characters of URL-safe base64; None if there is none."""
    path = os.path.join(directory, file_names.PARTITION_METADATA)
    if not files.exists(path):
        return None
    for line in files.read_bytes(path).decode("utf-8", "replace").splitlines():
        if line.startswith("topic_id: "):
            return line.removeprefix("topic_id: ")
    return None


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
    path = os.path.join(directory, file_names.PARTITION_METADATA)
    files.write_atomically(path, f"version: 0\ntopic_id: {topic_id}".encode())
