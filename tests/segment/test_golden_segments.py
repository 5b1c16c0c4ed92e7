"""Segments of real brokers, appended to again set by set: the same bytes in both indexes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.golden import Golden, golden_partitions, goldens, json_lines
from support.sets.segments import Appended, appended, index_bytes, walk

import kts
from kts.segment.log_segment import LogSegment
from kts.segment.rebuild import IndexConfig, rebuild
from kts.store.local import File

GENERATIONS = {"0.10.2.2": "0.10.2", "3.9.2": "3.9", "4.3.1": "3.9"}
SETTINGS = ("index.interval.bytes", "segment.index.bytes")
PARTITIONS = [(scenario, name) for scenario, name in golden_partitions() if scenario.version in GENERATIONS]


def settings(scenario: Golden, partition: str) -> dict[str, int]:
    given = scenario.meta["topics"][partition.rpartition("-")[0]]["configs"]
    return {name: given[name] for name in SETTINGS if name in given}


def sets(scenario: Golden, partition: str) -> Iterator[tuple[int, int] | None]:
    """(first, last offset) of every set that was appended, and None where the broker was restarted."""
    topic, _, number = partition.rpartition("-")
    path = scenario._beside("produced", topic, ".jsonl")
    lines = [] if path is None else json_lines(path)
    for step in scenario.meta["steps"]:
        if step == "restart":
            yield None
        said = re.match(r"(p\d+): (\d+) records, flush", step)
        if said is None or not lines or lines[0]["producer"] != said[1]:
            continue  # a step of another topic
        sent, lines = lines[: int(said[2])], lines[int(said[2]) :]
        offsets = [line["offset"] for line in sent if line["partition"] == int(number) and "error" not in line]
        if offsets:
            yield min(offsets), max(offsets)
    assert not lines, f"{scenario}: {len(lines)} sends are in no step"


def ended(segment: LogSegment) -> None:
    """As closing does, but nobody waits for the disk."""
    segment.on_become_inactive_segment()
    segment.rest()


def replayed(scenario: Golden, partition: str, log: Path, folder: Path) -> LogSegment:
    """A segment made by the appends that made a broker's."""
    generation = GENERATIONS[scenario.version]
    config = kts.LogConfig.of(settings(scenario, partition), generation=generation)
    data, base = log.read_bytes(), int(log.stem)
    entries = walk(data)
    segment = LogSegment(str(folder), base, config, now_ms=0)
    at = done = 0
    for one in sets(scenario, partition):
        if one is None:
            ended(segment)
            segment = LogSegment(str(folder), base, config, now_ms=0)
            segment.resize_indexes()
            continue
        while at < len(entries) and entries[at].offset <= one[1]:
            at += 1
            if generation == "3.9" or entries[at - 1].offset == one[1]:
                end = entries[at - 1].position + entries[at - 1].size
                whole_set(scenario, appended(data[done:end]), one[0]).to(segment)
                done = end
    # Markers of transactions, which no producer sent.
    for entry in entries[at:] if generation == "3.9" else ():
        appended(data[entry.position : entry.position + entry.size]).to(segment)
    ended(segment)
    return segment


def whole_set(scenario: Golden, one: Appended, first: int) -> Appended:
    """A set as a log passes it on: 0.10.2.2 says (now, last) of messages that it made anew with its own time."""
    again = str(scenario) == "0.10.2.2/old-producer-lat-none"
    return one._replace(first=first, time_offset=one.last if again else one.time_offset)


def reason_to_differ(scenario: Golden, partition: str) -> str | None:
    """Why the appends of a segment cannot be told."""
    if scenario.name.startswith("restart") and not any(sets(scenario, partition)):
        return "no produced.jsonl here"
    if scenario.version != "0.10.2.2":
        return None
    if scenario.name.startswith("compact"):
        return "the cleaner took records of its sets"
    if scenario.name in ("fmt09-lat-gzip", "fmt09-lat-none", "fmt09-none"):
        return "the index has times that the conversion to magic 0 dropped"
    if scenario.name == "recode-gzip-uncompressed-lat":
        return "the index has the append time, which the decompressed messages did not get"
    if scenario.name == "killed":
        return "made by recovery"
    return None if any(sets(scenario, partition)) or scenario.name == "empty" else "no produced.jsonl here"


@pytest.mark.parametrize("version", GENERATIONS)
def test_the_appends_of_a_broker_give_its_index_files_byte_for_byte(version: str, tmp_path: Path) -> None:
    equal, reasons = 0, Counter[str]()
    for scenario, partition in PARTITIONS:
        if scenario.version != version:
            continue
        for log in scenario.logs(partition):
            reason = reason_to_differ(scenario, partition)
            if reason is not None:
                reasons[reason] += 1
                continue
            folder = tmp_path / scenario.name / partition / log.stem
            folder.mkdir(parents=True)
            segment = replayed(scenario, partition, log, folder)
            where = f"{scenario} {partition} {log.name}"
            assert Path(segment.path).read_bytes() == log.read_bytes(), where
            assert index_bytes(segment.path) == index_bytes(log), where
            equal += 1
    print(f"{version}: {equal} segments equal, {dict(reasons)}")
    full = len(goldens()) == 320  # the copies in tests/data are fewer
    expected = {"0.10.2.2": (114, 30), "3.9.2": (159, 0), "4.3.1": (151, 0)}[version]
    assert not full or (equal, sum(reasons.values())) == expected


@pytest.mark.parametrize("version", GENERATIONS)
def test_a_rebuild_is_what_brokers_made_in_recovery(version: str) -> None:
    found = 0
    for scenario, partition in PARTITIONS:
        if scenario.version != version or scenario.name != "killed":
            continue
        for log in scenario.logs(partition):
            named = kts.LogConfig.of(settings(scenario, partition), generation=GENERATIONS[version])
            config = IndexConfig.of(named, named.behaviour())
            with File(str(log)) as file:
                made = rebuild(file, file.size(), int(log.stem), config)
            assert (made.offset_index, made.time_index) == index_bytes(log), f"{scenario} {log.name}"
            assert (made.valid_bytes, made.reason) == (log.stat().st_size, None)
            found += 1
    assert found >= 4 or len(goldens()) < 320
