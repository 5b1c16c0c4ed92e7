"""`kts convert` as its help says, for an upgrade: a log directory full of magic 0 and 1 becomes one of magic 2, in the
old one's place, and the broker starts as after a clean stop."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.golden import Golden, Row, goldens, row_from_json
from support.kafka.broker_load import Files, complaints, differing, load, partition_files, stale_snapshots
from support.kafka.brokers import Broker, Client, kafka
from support.processes.cli_runs import run

import kts

OLD = ("0.9.0.1", "0.10.0.1", "0.10.2.2")
NEW = "3.9.2"
SEED = int(os.environ["KTS_SEED"])
LOG_FILES = (".log", ".index", ".timeindex")


@dataclass
class Converted:
    """A partition of magic 0 or 1, and what a broker made of it when kts had converted it."""

    topic: str
    expected: list[Row]  # as the consumer of the old broker read it
    start: int
    end: int
    written: Files = field(default_factory=dict)
    stopped: Files = field(default_factory=dict)
    consumed: list[Row] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    broker_answers: list[Any] = field(default_factory=list)


def partitions(target: Path) -> dict[str, tuple[Golden, str]]:
    """All old partitions, each with the name of the topic that it becomes; file times as they were."""
    found = {}
    for scenario in [each.copy(target) for each in goldens() if each.version in OLD]:
        for partition in scenario.partitions:
            found[f"old-{scenario.version.replace('.', '-')}-{partition}"] = scenario, partition
    return found


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Converted], list[str]]]:
    folder = tmp_path_factory.mktemp("converted")
    old = partitions(folder / "old")
    with kafka(NEW, folder / "broker") as (broker, client):
        broker.start()
        client.ask("create", topics=dict.fromkeys(old, {}))
        broker.stop()
        for topic, (scenario, partition) in old.items():
            put_in_place(scenario.partition_dir(partition), broker.partition(topic))
        run("convert", broker.data, "--to-magic", 2, "--out", folder / "converted")
        broker.data.rename(folder / "replaced")
        (folder / "converted").rename(broker.data)
        found = [converted(broker, topic, *where) for topic, where in old.items()]
        broker.start()
        for each in found:
            serve(each, client)
        broker.stop()
        for each in found:
            each.stopped = partition_files(broker, each.topic)
        yield found, broker.said()


def put_in_place(old: Path, new: Path) -> None:
    """The old segments instead of the empty one."""
    for path in new.iterdir():
        if path.suffix in LOG_FILES:
            path.unlink()
    for path in old.iterdir():
        if path.suffix in LOG_FILES:
            shutil.copy2(path, new)


def converted(broker: Broker, topic: str, scenario: Golden, partition: str) -> Converted:
    log = kts.open(broker.partition(topic))
    ends = log.log_start_offset, log.log_end_offset
    each = Converted(topic, scenario.expected(partition), *ends, partition_files(broker, topic))
    times = [row.timestamp for row in each.expected if row.timestamp >= 0] or [0]
    rng = random.Random(SEED)
    each.targets = [max(rng.choice(times) + rng.randint(-1, 1), 0) for _ in range(5)]
    each.answers = [log.offset_for_timestamp(target, shipped_search=True) for target in each.targets]
    return each


def serve(each: Converted, client: Client) -> None:
    each.consumed = [row_from_json(line) for line in client.ask("consume", topic=each.topic)["records"]]
    each.broker_answers = client.ask("times", topic=each.topic, targets=each.targets)["answers"]


Story = tuple[list[Converted], list[str]]


def test_a_broker_has_no_complaints_about_what_kts_converted(story: Story) -> None:
    found, said = story
    assert len(found) > 50
    for each in found:
        stale = stale_snapshots(each.written, each.start, each.end)  # of a log that retention emptied
        heard = complaints(said, each.topic)
        assert [line for line in heard if not line.endswith(tuple(stale))] == []
        assert len(heard) == len(stale) <= (each.start == each.end), each.topic
        assert load(said, each.topic).log_end_offset == each.end
        assert differing(each.written, each.stopped) == stale, each.topic


def test_a_consumer_reads_all_that_the_old_brokers_consumer_read(story: Story) -> None:
    for each in story[0]:
        expected = [row._replace(timestamp_type=0) for row in each.expected]
        assert [row._replace(timestamp_type=0) for row in each.consumed] == expected, each.topic
        pairs = zip(each.expected, each.consumed, strict=True)
        types = {(old.timestamp_type, new.timestamp_type) for old, new in pairs}
        assert types <= {(-1, 0), (0, 0), (1, 1)}, each.topic  # magic 2 has no "none"


def test_a_broker_finds_offsets_for_times_as_kts_does(story: Story) -> None:
    for each in story[0]:
        ours = [None if found is None else [found.timestamp_ms, found.offset] for found in each.answers]
        assert ours == each.broker_answers, each.topic
