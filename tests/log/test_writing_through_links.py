"""Whatever writes to a partition, and whatever link it comes by: while another process has the log, it is refused."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.golden import PATIENCE_S
from support.processes.cli_runs import run
from support.sets import log_records

import kts

SEGMENTS, NAME = 3, "t-0"
HOLD = """
import sys, kts
log = kts.Log(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A partition that another process has open for writing, and an empty one beside it."""
    folder = tmp_path_factory.mktemp("there")
    with log_records.opened(folder, segment_bytes=150) as log:
        for number in range(SEGMENTS):
            log.append(log_records.batch(log_records.NOW + number))
        assert len(log.segments) == SEGMENTS
    (folder / "empty-1").mkdir()
    first = folder / NAME / f"{0:020d}.timeindex"
    first.write_bytes(b"")  # so that there is something to rebuild
    command = [sys.executable, "-c", HOLD, str(folder / NAME)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "open\n"
        first.write_bytes(b"")
        yield folder
        assert holder.stdin is not None
        holder.stdin.close()
        assert holder.wait(PATIENCE_S) == 0


def files_linked(here: Path, there: Path) -> Path:
    partition = here / "logs" / NAME
    partition.mkdir(parents=True)
    for path in (there / NAME).iterdir():
        (partition / path.name).symlink_to(path)
    return partition


def one_file_linked(here: Path, there: Path) -> Path:
    partition = here / "logs" / NAME
    partition.mkdir(parents=True)
    (partition / f"{0:020d}.log").symlink_to(there / NAME / f"{0:020d}.log")
    return partition


def linked(here: Path, name: str, target: Path) -> Path:
    here.mkdir(parents=True, exist_ok=True)
    (here / name).symlink_to(target)
    return here / name


# Ways to the partition from another place.
LINKS: dict[str, Callable[[Path, Path], Path]] = {
    "none": lambda here, there: there / NAME,
    "to the log directory": lambda here, there: linked(here, "logs", there) / NAME,
    "to the partition": lambda here, there: linked(here / "logs", NAME, there / NAME),
    "to the partition, by another name": lambda here, there: linked(here / "logs", "u-7", there / NAME),
    "beside the partition": lambda here, there: linked(there, f"v-{abs(hash(here)) % 10**6}", there / NAME),
    "to a link": lambda here, there: linked(here / "again", NAME, linked(here / "logs", NAME, there / NAME)),
    "to a link to the directory": lambda here, there: linked(here, "again", linked(here, "logs", there)) / NAME,
    "to its files": files_linked,
    "to one file": one_file_linked,
}


def log_opens(path: Path, here: Path) -> str:
    with pytest.raises(kts.LogLockedError) as refused:
        kts.Log(path)
    return str(refused.value)


def refused_by(*arguments: object) -> str:
    done = run(*arguments, code=3)
    assert done.stdout == ""
    return done.stderr


# Everything that writes to a partition of that path.
WRITERS: dict[str, Callable[[Path, Path], str]] = {
    "kts.Log": log_opens,
    "append": lambda path, here: refused_by("append", path),
    "truncate": lambda path, here: refused_by("truncate", path, "--to-offset", 1, "--in-place"),
    "reindex": lambda path, here: refused_by("reindex", path, "--in-place"),
    "reindex of a file": lambda path, here: refused_by("reindex", path / f"{0:020d}.log", "--in-place", "--all"),
    "reindex --out": lambda path, here: refused_by("reindex", lone(here), "--out", path),
}


def lone(here: Path) -> Path:
    """A segment of somebody else, whose indexes are to be written where the link leads to."""
    path = here / "alone" / f"{0:020d}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(log_records.batch(log_records.NOW))
    return path


def contents(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


@pytest.mark.slow
@pytest.mark.parametrize("way", LINKS)
@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_writes_to_a_log_that_another_process_has(writer: str, way: str, held: Path, tmp_path: Path) -> None:
    before = contents(held)
    path = LINKS[way](tmp_path / "here", held)
    said = WRITERS[writer](path, tmp_path / "here")
    assert "another process" in said and "holds the lock" in said
    assert contents(held) == before


@pytest.mark.parametrize("way", ["straight", "by a link to the log directory", "by a link to the place"])
def test_nothing_is_converted_into_a_log_directory_that_another_process_has(
    way: str, held: Path, tmp_path: Path
) -> None:
    with log_records.opened(tmp_path / "source") as log:
        log.append(log_records.batch(log_records.NOW))
    ways = {
        "straight": lambda: held / "empty-1",
        "by a link to the log directory": lambda: linked(tmp_path / "here", "logs", held) / "new-0",
        "by a link to the place": lambda: linked(tmp_path / "here", "place", held / "empty-1"),
    }
    before = sorted(held.rglob("*"))
    said = refused_by("convert", tmp_path / "source" / NAME, "--to-magic", 1, "--out", ways[way]())
    assert "another process" in said and sorted(held.rglob("*")) == before


@pytest.mark.parametrize("way", [way for way in LINKS if way not in ("to one file", "beside the partition")])
def test_a_log_that_nobody_has_is_rebuilt_through_any_link(way: str, tmp_path: Path) -> None:
    there = tmp_path / "there"
    with log_records.opened(there, segment_bytes=150) as log:
        for number in range(SEGMENTS):
            log.append(log_records.batch(log_records.NOW + number))
    whole = (there / NAME / f"{0:020d}.timeindex").read_bytes()
    (there / NAME / f"{0:020d}.timeindex").write_bytes(b"")
    path = LINKS[way](tmp_path / "here", there)
    run("reindex", path, "--in-place")
    assert (path / f"{0:020d}.timeindex").read_bytes() == whole
    with kts.Log(path) as again:
        assert log_records.offsets(again) == list(range(SEGMENTS))
