"""Brokers serve what `kts convert` made of others' partitions: a new one of magic 0 and 1, an old one of magic 2.

What 3.9.2 does with a whole converted log directory is in test_converted.py.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.golden import RECORD_COLUMNS, Golden, Row, goldens, row_from_json, rows
from support.kafka.broker_load import complaints, load
from support.kafka.brokers import Broker, Client, kafka
from support.processes.cli_runs import run

import kts
from kts.segment import checkpoints

SETTINGS = {"enable.idempotence": "false"}


SEED = int(os.environ["KTS_SEED"])
SAMPLE = {"4.3.1": 16, "0.10.2.2": 8}  # so many partitions in each run, others with another seed
TO_MAGIC = {"4.3.1": 2, "0.10.2.2": 1}


def convertible(to_magic: int) -> dict[str, Golden]:
    """The scenarios of one partition whose records can all be had in that format, by topic."""
    found = {}
    for scenario in goldens():
        logs = [log for partition in scenario.partitions for log in scenario.logs(partition)]
        tables = [kts.scan_batches(log.read_bytes()).drop_columns(TIMES) for log in logs]
        entries = [entry for table in tables for entry in table.to_pylist()]
        if len(scenario.partitions) != 1 or not entries:
            continue
        if scenario.log_start_offset(scenario.partitions[0]) > int(logs[0].stem):
            continue  # 0.10.2.2 keeps no log start offset
        up = all(entry["magic"] < 2 for entry in entries)
        down = all(entry["magic"] == 2 and not entry["transactional"] and entry["codec"] < 4 for entry in entries)
        if up if to_magic == 2 else down and entries[-1]["count"] > 0:
            found[f"{scenario.version}-{scenario.name}"] = scenario
    return found


TIMES = ["baseTimestamp", "maxTimestamp"]


@dataclass
class Topic:
    """What was converted, and what the broker made of it."""

    rows: list[Row]
    ends: tuple[int, int, int]  # log start offset, log end offset, segments
    targets: list[int]
    answers: list[tuple[int, int] | None]
    consumed: list[Row] = field(default_factory=list)
    broker_answers: list[Any] = field(default_factory=list)


@dataclass
class Upgrade:
    """The partitions of other clusters, converted, in a broker."""

    scenarios: dict[str, Golden]
    to_magic: int
    broker: Broker
    client: Client
    converted: Path
    topics: dict[str, Topic] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def consume(self, topic: str) -> list[Row]:
        answer = self.client.ask("consume", topic=topic, settings={})
        return [row_from_json(line) for line in answer["records"]]

    def put(self, topic: str) -> None:
        """The converted files in place of the broker's own, but for the topic's id."""
        directory = self.broker.partition(topic)
        for path in directory.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in (self.converted / directory.name).iterdir():
            if path.name != "partition.metadata":
                shutil.copy2(path, directory / path.name)

    def look(self, topic: str, scenario: Golden) -> None:
        log = kts.open(self.converted / f"{topic}-0")
        read = rows(kts.scan(self.converted / f"{topic}-0", columns=RECORD_COLUMNS).read_all())
        queries = (scenario.offsets_for_times(scenario.partitions[0]) or {"queries": []})["queries"]
        targets = [query["query"] for query in queries if query["query"] >= 0] or [0, 2**40, 2**62]
        found = [log.offset_for_timestamp(target, shipped_search=True) for target in targets]
        answers = [None if one is None else (one.timestamp_ms, one.offset) for one in found]
        self.topics[topic] = Topic(
            read, (log.log_start_offset, log.log_end_offset, len(log.segments)), targets, answers
        )


@pytest.fixture(scope="module", params=list(SAMPLE))
def upgrade(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upgrade]:
    version = request.param
    folder = tmp_path_factory.mktemp(f"convert-{version}")
    every = convertible(TO_MAGIC[version])
    chosen = random.Random(SEED).sample(sorted(every), min(len(every), SAMPLE[version]))
    scenarios = {topic: every[topic] for topic in chosen}
    print(f"{len(scenarios)} of {len(every)} partitions in {version}; replay with KTS_SEED={SEED}")
    for topic, scenario in scenarios.items():
        copied = scenario.copy(folder / "copies")
        (folder / "old").mkdir(exist_ok=True)
        copied.partition_dir(scenario.partitions[0]).rename(folder / "old" / f"{topic}-0")
    run("convert", folder / "old", "--to-magic", TO_MAGIC[version], "--drop-headers", "--out", folder / "new")
    with kafka(version, folder / "broker") as (broker, client):
        story = Upgrade(scenarios, TO_MAGIC[version], broker, client, folder / "new")
        broker.start()
        client.ask("create", topics={topic: {} for topic in scenarios})
        broker.stop()
        for topic, scenario in scenarios.items():
            story.look(topic, scenario)
            story.put(topic)
        ends = {(topic, 0): story.topics[topic].ends[1] for topic in scenarios}
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            path = str(broker.data / name)
            checkpoints.write_checkpoint(path, (checkpoints.read_checkpoint(path) or {}) | ends)
        broker.start()
        story.said = broker.said()
        for topic, facts in story.topics.items():
            facts.consumed = story.consume(topic)
            facts.broker_answers = client.ask("times", topic=topic, targets=facts.targets)["answers"]
        yield story


def test_a_broker_loads_converted_partitions_without_complaint(upgrade: Upgrade) -> None:
    heard = {topic: complaints(upgrade.said, topic) for topic in upgrade.topics}
    assert {topic: lines for topic, lines in heard.items() if lines} == {}
    for topic, facts in upgrade.topics.items():
        start, end, segments = facts.ends
        found = load(upgrade.said, topic)
        assert (found.segments, found.log_end_offset) == (segments, end), topic
        assert found.log_start_offset in (start, None), topic  # None: its version does not say


def test_a_java_consumer_reads_every_converted_record(upgrade: Upgrade) -> None:
    for topic, facts in upgrade.topics.items():
        assert facts.consumed == facts.rows, topic
        scenario = upgrade.scenarios[topic]
        before = [
            row._replace(timestamp_type=max(row.timestamp_type, 0), headers=None)
            for row in scenario.expected(scenario.partitions[0])
        ]
        assert facts.consumed == before, topic


def test_a_broker_finds_offsets_for_times_in_converted_partitions_as_kts_does(upgrade: Upgrade) -> None:
    asked = 0
    for topic, facts in upgrade.topics.items():
        theirs = [None if found is None else tuple(found) for found in facts.broker_answers]
        told = zip(facts.targets, facts.answers, theirs, strict=True)
        assert [(target, ours, broker) for target, ours, broker in told if ours != broker] == [], topic
        asked += len(theirs)
    assert asked > 40


def test_a_broker_appends_to_converted_partitions(upgrade: Upgrade) -> None:
    names = sorted(upgrade.topics)[::4]
    record = {"timestamp": 1_600_000_000_000, "key": "aw==", "value": "dg=="}
    for topic in names:
        sent = upgrade.client.ask("produce", topic=topic, settings=SETTINGS, groups=[[record]], ends=[""])["sends"]
        assert [one.get("offset") for one in sent] == [upgrade.topics[topic].ends[1]], json.dumps(sent)
    upgrade.broker.stop()
    for topic in names:
        assert run("verify", "--deep", upgrade.broker.partition(topic)).stdout.startswith("OK")
