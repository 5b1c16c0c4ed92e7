"""Files that only kts has: whole, or silent with a reason."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kts.offline.verify import verify_checkpoints
from kts.segment.index_checksums import IndexChecksums, Sealed
from kts.segment.magic_checkpoint import MagicCheckpoint, NotedMagics
from kts.segment.segment_lines import SegmentLines

SEALED = Sealed.of(100, b"12345678", b"123456789012", (5, 6))
NOTED = NotedMagics((7, 100, 1), ((0, 0), (40, 1)))
KINDS: list[Any] = [(IndexChecksums, SEALED), (MagicCheckpoint, NOTED)]


@pytest.mark.parametrize(("kind", "line"), KINDS)
def test_a_file_that_is_damaged_anywhere_says_nothing_and_why(
    tmp_path: Path, rng: random.Random, kind: Any, line: Any
) -> None:
    keys, file = [(topic, partition) for topic in ("a", "b.c-1") for partition in (0, 2**31 - 1)], kind(str(tmp_path))
    for key in keys:
        file.replace(*key, {0: line, 2**63 - 1: line})
    file.write()
    assert [kind(str(tmp_path)).of(*key) for key in keys] == [{0: line, 2**63 - 1: line}] * 4
    data = Path(file.path).read_bytes()
    for _ in range(200):
        at = rng.randrange(len(data))
        flipped = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        for damaged in (flipped, data[:at], data[:at] + bytes(len(data) - at), data + data[at:]):
            Path(file.path).write_bytes(damaged)
            read = kind(str(tmp_path))
            assert [read.of(*key) for key in keys] == [{}] * 4 and read.fault is not None, (at, damaged)
    assert [(one.kind, one.path) for one in verify_checkpoints(str(tmp_path))] == [("checkpoint", file.path)]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        *((MagicCheckpoint, line) for line in ("0 1 2 3 1:0", "0 1 2 3 0:4", "0 1 2 3", "0 1 2 0:1", "0 1 2 3 0:1 5")),
        *((IndexChecksums, line) for line in ("0 1 2 3 4 5 6", "0 1 2 3 4 5 6 7 8", "x 1 2 3 4 5 6 7")),
    ],
)
def test_a_line_of_another_form_is_a_fault(
    tmp_path: Path, kind: type[SegmentLines], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = kind(str(tmp_path))
    monkeypatch.setattr(file, "_blocks", {("t", 0): f"{line}\n"})
    monkeypatch.setattr(file, "_changed", True)
    file.write()
    assert kind.expected in str(kind(str(tmp_path)).fault)


@pytest.mark.parametrize(("kind", "line"), KINDS)
def test_partitions_that_were_forgotten_or_replaced_by_nothing_leave_no_line(
    tmp_path: Path, kind: Any, line: Any
) -> None:
    file = kind(str(tmp_path))
    for partition in range(3):
        file.replace("t", partition, {0: line})
    file.write()
    file.forget("t", 0)
    file.replace("t", 1, {})
    file.forget("not there", 0)
    file.write()
    assert [kind(str(tmp_path)).of("t", partition) for partition in range(3)] == [{}, {}, {0: line}]
    before = Path(file.path).stat().st_ino
    file.write()
    assert Path(file.path).stat().st_ino == before, "nothing changed"
