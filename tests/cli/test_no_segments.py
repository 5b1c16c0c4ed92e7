"""Every command over a partition without segments, as a broker has it that just made the topic."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.processes.cli_runs import lines, run
from support.sets import log_records

import kts
from kts.cli.app import COMMANDS

# Two run on and make such partitions themselves; one makes its own messages; two read no partition.
TIMELESS = ("serve", "follow", "study", "cluster", "tables")


def partition(folder: Path, others: bool) -> Path:
    """An empty partition, beside one with records if asked."""
    (folder / "new-0").mkdir(parents=True)
    (folder / "new-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    if others:
        with kts.Log(folder / "old-0") as log:
            log.append(log_records.batch(log_records.NOW))
    return folder


# What each command says of it alone, in its JSON lines.
SAID: dict[str, tuple[list[object], list[dict[str, object]]]] = {
    "ls": (["DIR", "--json"], [{"topic": "new", "segments": 0, "logEndOffset": 0, "sizeInBytes": 0}]),
    "ls --segments": (["DIR", "--segments", "--json"], []),
    "dump": (["DIR", "--json"], []),
    "batches": (["DIR", "--json"], []),
    "stats": (["DIR", "--json"], []),
    "doctor": (["DIR", "--json"], []),
    "offset-for": (["DIR", "--time", 1, "--json"], [{"topic": "new", "offset": None}]),
    "offset-for --explain": (["DIR", "--time", 1, "--explain", "--json"], [{"topic": "new", "offset": None}]),
    "verify": (["DIR", "--json"], [{"ok": True, "partitions": 1, "segments": 0}]),
    "verify --deep": (["DIR", "--deep", "--jobs", 2, "--json"], [{"ok": True, "partitions": 1, "segments": 0}]),
    "append": (["DIR/new-0", "--json"], [{"topic": "new", "baseOffset": None}]),
    "truncate": (["DIR/new-0", "--to-offset", 0, "--json"], [{"segmentsRemoved": 0, "logEndOffset": 0}]),
    "truncate --in-place": (["DIR/new-0", "--to-offset", 0, "--in-place", "--json"], [{"segmentsRemoved": 0}]),
    "reindex": (["DIR", "--json"], [{"segments": 0, "written": 0}]),
    "reindex --in-place": (["DIR", "--in-place", "--json"], [{"segments": 0, "written": 0}]),
    "convert": (["DIR", "--to-magic", 2, "--out", "OUT", "--json"], [{"segments": 0}]),
    "copy": (["DIR", "OUT", "--json"], [{"segments": 0, "copied": 0, "partitions": 1}]),
    "plot": (["DIR", "-o", "OUT.svg", "--json"], [{"segments": 0, "batches": 0}]),
    "retention": (["DIR", "--json"], []),
    "clean": (["DIR", "--json"], [{"topic": "new", "segmentsBefore": 0, "recordsAfter": 0}]),
    "groups": (["DIR/new-0", "--json"], []),
    "sync": (["DIR", "OUT", "--json"], [{"records": 0, "commits": 1}]),
}


def test_every_command_is_asked() -> None:
    assert {name.split(" ")[0] for name in SAID} | set(TIMELESS) == set(COMMANDS)


@pytest.mark.parametrize("name", SAID)
def test_a_partition_without_segments_is_a_partition_like_others(name: str, tmp_path: Path) -> None:
    given, expected = SAID[name]
    folder = partition(tmp_path / "logs", others=False)
    arguments = [str(one).replace("DIR", str(folder)).replace("OUT", str(tmp_path / "out")) for one in given]
    found = lines(name.split(" ")[0], *arguments)
    assert len(found) == len(expected), found
    for line, wanted in zip(found, expected, strict=True):
        assert {key: line[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    "name", ["ls", "ls --segments", "dump", "batches", "stats", "offset-for", "verify", "retention"]
)
@pytest.mark.parametrize("others", [True, False])
def test_a_partition_without_segments_hides_no_other(name: str, others: bool, tmp_path: Path) -> None:
    folder = partition(tmp_path / "logs", others)
    command, *options = name.split(" ")
    if command == "offset-for":
        options = ["--time", "1"]
    shown = run(command, *options, folder).stdout
    assert ("old" in shown) is others or command in ("verify", "stats"), shown
    assert os.listdir(folder / "new-0") == ["partition.metadata"], "reading changes nothing"
