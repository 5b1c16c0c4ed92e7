"""Real brokers open directories that kts wrote; 0.10.2.2 and 3.9.2 also go on with those that it went on with.

One broker's whole story is told before its tests; see broker_play.py.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka.broker_load import complaints, differing, load, stale_snapshots
from support.kafka.broker_play import Reverse, Story
from support.kafka.brokers import kafka

import kts

VERSIONS = ["0.10.2.2", "3.9.2", "4.3.1"]
BOTH_WAYS = pytest.mark.parametrize("story", VERSIONS[:2], indirect=True, scope="module")
ANSWERS = 200
SEED = int(os.environ["KTS_SEED"])


@pytest.fixture(scope="module", params=VERSIONS)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp(f"broker-{request.param}")
    failed = request.session.testsfailed
    with kafka(request.param, folder) as (broker, client):
        story = Story(broker, client, random.Random(SEED))
        story.tell()
        yield story
    if request.session.testsfailed > failed:
        print(f"replay with KTS_SEED={SEED}; the brokers' logs are in {folder}")


def test_a_broker_has_no_complaints_about_what_kts_wrote(story: Story) -> None:
    for each in story.forwards:
        stale = [f"/{each.scenario.name}-0/{name}" for name in stale_snapshots(each.written, *each.ends[:2])]
        heard = complaints(story.said["written"], each.scenario.name)
        assert [line for line in heard if not line.endswith(tuple(stale))] == []
        assert len(heard) == len(stale) <= (len(each.written) if each.scenario.then else 0), each.scenario.name


def test_a_broker_finds_the_offsets_and_the_segments_that_kts_knows(story: Story) -> None:
    for each in story.forwards:
        found = load(story.said["written"], each.scenario.name)
        start, end, segments = each.ends
        assert (found.segments, found.log_end_offset) == (segments, end), each.scenario
        assert each.broker_ends == (start, end), each.scenario
        if not story.legacy:
            assert (found.log_start_offset, found.high_watermark) == (start, end), each.scenario
            assert found.snapshot == (end or None), each.scenario


def test_a_broker_changes_no_byte_of_what_kts_wrote(story: Story) -> None:
    for each in story.forwards:
        stale = stale_snapshots(each.written, *each.ends[:2])
        assert differing(each.written, each.running, running=True) == stale, each.scenario.name
        assert differing(each.written, each.stopped) == stale, each.scenario.name


def test_a_java_consumer_reads_what_kts_reads(story: Story) -> None:
    for each in story.forwards:
        assert each.consumed == each.rows, each.scenario.name
        assert (len(each.rows) > 20) == bool(each.scenario.sets), each.scenario.name


def test_a_broker_finds_offsets_for_times_as_kts_does(story: Story) -> None:
    asked, hits = 0, 0
    for each in story.forwards:
        theirs = [None if found is None else tuple(found) for found in each.broker_answers]
        told = zip(each.targets, each.answers, theirs, strict=True)
        assert [(target, ours, broker) for target, ours, broker in told if ours != broker] == [], each.scenario.name
        asked, hits = asked + len(theirs), hits + len(theirs) - theirs.count(None)
    assert asked >= ANSWERS
    assert hits >= ANSWERS / 2


@BOTH_WAYS
def test_kts_finds_a_brokers_directory_clean_and_a_killed_ones_not(story: Story) -> None:
    for each in story.reverses:
        closed, killed = each.opened
        assert closed == (True, []), each.name
        assert not killed[0], each.name


@BOTH_WAYS
def test_a_broker_goes_on_where_kts_ended(story: Story) -> None:
    for each in story.reverses:
        assert complaints(story.said["written"], each.name, stale_snapshot=True) == [], each.name
        assert each.rolled
        offsets = [sent[0] for sent in each.sent]
        assert all(isinstance(offset, int) for offset in offsets), offsets  # else it is the producer's error
        assert offsets == sorted(set(offsets)), each.name
        if each.name != "made-transactions":  # whose markers have offsets too
            assert offsets == list(range(each.end)), each.name


@BOTH_WAYS
def test_a_java_consumer_reads_what_broker_and_kts_appended_by_turns(story: Story) -> None:
    for each in story.reverses:
        by_broker = "message.timestamp.type" in each.configs
        read = [(row.offset, row.timestamp, row.key, row.value) for row in each.consumed]
        sent = [(s[0], r[1] if by_broker else s[1], *s[2:]) for s, r in zip(each.sent, read, strict=True)]
        assert read == sent, each.name
        aborted = {sent[0] for sent in each.aborted}
        if not story.legacy:
            assert each.committed == [row for row in each.consumed if row.offset not in aborted], each.name
        assert bool(aborted) == (each.name == "made-transactions")


@BOTH_WAYS
def test_kts_finds_offsets_for_times_in_what_both_wrote_as_the_broker_does(story: Story) -> None:
    for each in story.reverses:
        log = kts.open(story.broker.partition(each.name))
        found = [log.offset_for_timestamp(target, shipped_search=True) for target in each.targets]
        assert [one and [one.timestamp_ms, one.offset] for one in found] == each.broker_answers, each.name


@BOTH_WAYS
def test_a_broker_that_was_killed_has_no_complaints_after_kts_recovered(story: Story) -> None:
    names = [each.name for each in story.reverses] + [each.scenario.name for each in story.forwards]
    heard = {name: complaints(story.said["recovered"], name, stale_snapshot=True) for name in names}
    assert {name: lines for name, lines in heard.items() if lines} == {}


def test_a_running_broker_and_kts_keep_each_other_out(story: Story) -> None:
    assert story.locked
    assert any("Failed to acquire lock on file .lock" in line for line in story.said["held by kts"])


@BOTH_WAYS
def test_kts_writes_the_brokers_own_files_from_the_same_appends(story: Story, tmp_path: Path) -> None:
    for each in story.reverses:
        sets = appended(each)
        for way in ways(story, each):
            directory = tmp_path / way / f"{each.name}-0"
            directory.parent.mkdir(exist_ok=True)
            metadata = each.files.get("partition.metadata")
            topic_id = metadata.split()[-1].decode() if metadata else None
            generation = "0.10.2" if story.legacy else "3.9"
            configs = {"retention.ms": -1, **each.configs}
            with kts.Log(directory, configs, generation=generation, topic_id=topic_id, clock=lambda: 0) as log:
                for buf in sets:
                    log.append_as_follower(buf) if way == "follower" else log.append(as_produced(buf))
            written = {path.name: path.read_bytes() for path in directory.iterdir()}
            assert differing(each.files, written) == [], f"{each.name} as {way}"


def ways(story: Story, topic: Reverse) -> list[str]:
    """How kts can come to the same files. What a broker stamped or a coordinator wrote is not for leaders, and the
    followers of 0.10.2.2 index a wrapper message by its last offset."""
    if topic.name in ("made-append-time", "made-transactions"):
        return ["follower"]
    wrapped = story.legacy and "compression.type" in topic.settings
    return ["leader"] if wrapped else ["leader", "follower"]


def appended(topic: Reverse) -> list[bytes]:
    """What the broker appended at once each time, cut out of its own files."""
    entries: list[bytes] = []
    for name in sorted(topic.files):
        if name.endswith(".log"):
            found = kts.scan_batches(topic.files[name]).select(["position", "sizeInBytes"]).to_pylist()
            entries += [topic.files[name][each["position"] :][: each["sizeInBytes"]] for each in found]
    sets, sizes = [], iter(topic.sizes)
    while entries:
        plain = entries[0][16] < 2 and entries[0][17] & 7 == 0  # messages, one for each record
        here = next(sizes) if plain else 1
        sets.append(b"".join(entries[:here]))
        del entries[:here]
    return sets


def as_produced(buf: bytes) -> bytes:
    """Entries with the offsets that a producer gives them."""
    out, position, number = bytearray(buf), 0, 0
    while position < len(out):
        struct.pack_into(">q", out, position, number)
        position += 12 + struct.unpack_from(">i", out, position + 8)[0]
        number += 1
    return bytes(out)
