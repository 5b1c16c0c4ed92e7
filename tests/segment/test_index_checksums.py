"""The checksums of closed indexes: a file that is whole or says nothing, with lines of what is still there."""

from __future__ import annotations

import os
import random
import tracemalloc
from functools import partial
from pathlib import Path

import pytest

import kts
from kts.segment.index_checksums import IndexChecksums, Sealed


def sealed(rng: random.Random) -> Sealed:
    index, times = rng.randbytes(8 * rng.randrange(5)), rng.randbytes(12 * rng.randrange(5))
    last = (rng.choice([-1, 5, 2**62, -(2**63)]), rng.randrange(2**63)) if times else (-1, 7)
    return Sealed.of(rng.randrange(2**40), index, times, last)


def write(rng: random.Random, path: Path) -> dict[tuple[str, int], dict[int, Sealed]]:
    lines = {
        (topic, partition): {rng.randrange(2**63): sealed(rng) for _ in range(rng.randrange(1, 4))}
        for topic in ("a", "b.c-1")
        for partition in (0, 2**31 - 1)
    }
    checksums = IndexChecksums(str(path))
    for key, segments in lines.items():
        checksums.replace(*key, segments)
    checksums.write()
    return lines


def test_what_was_written_is_read_and_replaced(tmp_path: Path, rng: random.Random) -> None:
    lines = write(rng, tmp_path)
    read = IndexChecksums(str(tmp_path))
    assert read.fault is None and {key: read.of(*key) for key in lines} == lines and read.of("a", 1) == {}
    read.replace("a", 0, {})
    read.replace("a", 1, lines["a", 0])
    read.write()
    again = IndexChecksums(str(tmp_path))
    assert (again.of("a", 0), again.of("a", 1), again.of("b.c-1", 0)) == ({}, lines["a", 0], lines["b.c-1", 0])


@pytest.mark.parametrize("kind", ["directory", "FIFO", "loop", "zeros", "a claim and zeros"])
def test_a_file_that_cannot_be_read_costs_nothing(kind: str, tmp_path: Path) -> None:
    """It only adds distrust: a log opens, goes on and is closed cleanly, and zeros (128 MiB) take no memory."""
    path, partition = tmp_path / IndexChecksums.file, tmp_path / "t-0"
    with kts.Log(partition) as log:
        log.append(kts.encode({"timestamp": [1], "value": [b"v"]}))
    if kind.endswith("zeros"):
        if kind.startswith("a claim"):
            path.write_bytes(b"0\n" + b"9" * 40 + b"\n00000000\n")
        os.truncate(path, 2**27)
    else:
        path.unlink()
        {"directory": path.mkdir, "FIFO": partial(os.mkfifo, path), "loop": partial(path.symlink_to, path)}[kind]()
    tracemalloc.start()
    read = IndexChecksums(str(tmp_path))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read.fault is not None and read.of("t", 0) == {} and most < 2**20
    for end in (1, 2):
        with kts.Log(partition) as log:
            assert (log.log_end_offset, log.recovered, log.clean_start) == (end, [], True)
            log.append(kts.encode({"timestamp": [1], "value": [b"v"]}))


def test_an_index_differs_unless_zeros_of_its_room_are_all_that_came(rng: random.Random) -> None:
    index, times = rng.randbytes(80) + b"\1", rng.randbytes(120) + b"\1"
    known = Sealed.of(1000, index, times, (5, 6))
    assert not known.index_differs(index) and not known.index_differs(index + bytes(100))
    assert not known.time_index_differs(times + bytes(100)) and not known.end_differs(len(times), (5, 6))
    for other in (
        index[:-8],
        b"",
        index + b"\1",
        bytes(len(index)),
        index[:8] + index[16:24] + index[8:16] + index[24:],
    ):
        assert known.index_differs(other) or other == index
    assert known.time_index_differs(times[:-12]) and known.time_index_differs(times[1:] + b"\1")
    assert known.end_differs(len(times) - 12, (5, 6)) and known.end_differs(len(times), (5, 7))
    assert known.end_differs(len(times), (4, 6))
