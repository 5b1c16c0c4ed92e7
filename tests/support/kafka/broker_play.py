"""The story of one broker, told once for all tests about it.

It makes topics and stops; kts writes some partitions anew and goes on with others; the broker starts, serves and stops;
it is killed, kts recovers, and it goes on.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa
from support.golden import RECORD_COLUMNS, Row, row_from_json, rows
from support.kafka.broker_load import Files, epochs, partition_files
from support.kafka.broker_scenarios import SMALL, Scenario, T, batches, legacy, record_sets, shuffled
from support.kafka.brokers import Broker, Client

import kts

NOW = T + 10**9  # what the clock says when kts appends
TARGETS = 14  # questions a topic
Sent = tuple[Any, int, bytes | None, bytes | None]  # offset or error, timestamp, key, value
PLAIN = {"enable.idempotence": "false"}


@dataclass
class Forward:
    """A partition that kts wrote and the broker opened."""

    scenario: Scenario
    rows: list[Row] = field(default_factory=list)  # as kts.scan reads it
    ends: tuple[int, int, int] = (0, 0, 0)  # log start offset, log end offset, segments
    targets: list[int] = field(default_factory=list)
    answers: list[tuple[int, int] | None] = field(default_factory=list)
    written: Files = field(default_factory=dict)
    running: Files = field(default_factory=dict)
    stopped: Files = field(default_factory=dict)
    consumed: list[Row] = field(default_factory=list)
    broker_ends: tuple[int, int] = (0, 0)
    broker_answers: list[Any] = field(default_factory=list)


@dataclass
class Reverse:
    """A partition that the broker wrote, kts went on with, and the broker went on with."""

    name: str
    configs: dict[str, Any]
    settings: dict[str, str]  # the producer's
    kept: bool = False  # one producer from the first record to the last, over all restarts
    sent: list[Sent] = field(default_factory=list)
    open: list[Sent] = field(default_factory=list)  # in a transaction that has not ended
    aborted: list[Sent] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # records of each set that the broker appended first
    files: Files = field(default_factory=dict)  # as it closed them first
    opened: list[tuple[bool, Any]] = field(default_factory=list)  # whether kts.Log started clean, what it recovered
    consumed: list[Row] = field(default_factory=list)
    committed: list[Row] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    broker_answers: list[Any] = field(default_factory=list)
    end: int = 0
    rolled: bool = False


def reverses(version: str) -> list[Reverse]:
    """None for 4.x: of the newest only that it opens what kts wrote."""
    if version.startswith("4."):
        return []
    every = {**SMALL, "index.interval.bytes": 200}
    found = [
        Reverse("made-plain", every, PLAIN),
        Reverse("made-gzip", every, PLAIN | {"compression.type": "gzip"}),
        Reverse("made-append-time", every | {"message.timestamp.type": "LogAppendTime"}, PLAIN),
        Reverse("made-defaults", {}, PLAIN | {"compression.type": "lz4"}),
    ]
    if not version.startswith("0."):
        transactions = {"transactional.id": "t", "transaction.timeout.ms": "600000"}
        found.append(Reverse("made-idempotent", every, {"compression.type": "zstd"}, kept=True))
        found.append(Reverse("made-transactions", every, transactions, kept=True))
    return found


class Story:
    """What happened so far, and the hands that make more of it happen."""

    def __init__(self, broker: Broker, client: Client, rng: random.Random) -> None:
        self.broker = broker
        self.client = client
        self.rng = rng
        self.legacy = broker.version.startswith("0.")
        self.magic = 1 if self.legacy else 2
        self.forwards = [Forward(each) for each in (legacy if self.legacy else batches)(rng)]
        self.reverses = reverses(broker.version)
        self.said: dict[str, list[str]] = {}  # by what happened before the start
        self.locked = False

    def tell(self) -> None:
        self.broker.start()
        self.make_topics()
        self.broker.stop()
        for forward in self.forwards:
            self.write(forward)
        for reverse in self.reverses:
            reverse.files = partition_files(self.broker, reverse.name)
            self.go_on(reverse)
        with self.log(self.forwards[0].scenario):
            self.said["held by kts"] = self.broker.start_in_vain()
        self.start("written")
        self.locked = self.is_locked()
        for forward in self.forwards:
            self.serve(forward)
        for reverse in self.reverses:
            self.produce(reverse, 10, "commit abort open")
        self.broker.stop()
        for forward in self.forwards:
            forward.stopped = partition_files(self.broker, forward.scenario.name)
        if self.reverses:
            self.tell_of_the_killed_one()

    def tell_of_the_killed_one(self) -> None:
        self.start("untouched")
        for reverse in self.reverses:
            self.produce(reverse, 10, "commit abort open")
        self.broker.kill()
        self.recover_all()
        self.start("recovered")
        for reverse in self.reverses:
            self.produce(reverse, 10, "commit abort commit")
            reverse.consumed, _, reverse.end = self.consume(reverse.name)
            reverse.targets = self.targets(reverse.consumed)
            asked = self.client.ask("times", topic=reverse.name, targets=reverse.targets)
            reverse.broker_answers = asked["answers"]
            if not self.legacy:
                reverse.committed, _, _ = self.consume(reverse.name, "read_committed")
        self.broker.stop()

    def start(self, after: str) -> None:
        self.broker.start()
        self.said[after] = self.broker.said()

    # what the broker and its clients do

    def make_topics(self) -> None:
        topics: Iterable[Scenario | Reverse] = [*(each.scenario for each in self.forwards), *self.reverses]
        self.client.ask("create", topics={topic.name: self.configs(topic) for topic in topics})
        for reverse in self.reverses:
            self.produce(reverse, 30, "commit abort open")

    def configs(self, topic: Scenario | Reverse) -> dict[str, Any]:
        """As the broker calls them: 4.x keeps its own name for segments this small."""
        own = "internal.segment.bytes" if self.broker.version.startswith("4.") else "segment.bytes"
        return {own if key == "segment.bytes" else key: value for key, value in topic.configs.items()}

    def produce(self, topic: Reverse, sets: int, ends: str) -> None:
        """That many record sets; transactions end by turns as the first of `ends` say, the last as the last says."""
        groups = [self.group(number) for number in range(sets)]
        *first, last = ends.split()
        words = [self.rng.choice(first) for _ in groups[1:]] + [last]
        if "transactional.id" not in topic.settings:
            words = ["" for _ in groups]
        asked: dict[str, Any] = {"settings": topic.settings, "groups": groups, "ends": words}
        answer = self.client.ask("produce", topic=topic.name, **asked | ({"keep": topic.name} if topic.kept else {}))
        sends = iter(answer["sends"])
        for group, word in zip(groups, words, strict=True):
            sent = [sent_record(next(sends), record) for record in group]
            topic.sizes.append(len(sent))
            topic.sent += sent
            topic.open += sent
            if word != "open":
                topic.aborted += topic.open if word == "abort" else []
                topic.open = []

    def group(self, number: int) -> list[dict[str, Any]]:
        def text(size: int) -> str:
            return base64.b64encode(self.rng.randbytes(size)).decode()

        times = [shuffled(self.rng, number, record) for record in range(self.rng.randint(1, 6))]
        return [{"timestamp": time, "key": text(4), "value": text(self.rng.randint(0, 60))} for time in times]

    def consume(self, topic: str, isolation: str = "read_uncommitted") -> tuple[list[Row], int, int]:
        answer = self.client.ask("consume", topic=topic, settings={"isolation.level": isolation})
        return [row_from_json(line) for line in answer["records"]], answer["beginningOffset"], answer["endOffset"]

    def serve(self, topic: Forward) -> None:
        name = topic.scenario.name
        topic.consumed, *ends = self.consume(name)
        topic.running = partition_files(self.broker, name)
        topic.broker_ends = ends[0], ends[1]
        topic.broker_answers = self.client.ask("times", topic=name, targets=topic.targets)["answers"]

    # what kts does

    def log(self, topic: Scenario | Reverse, **more: Any) -> kts.Log:
        """kts at the topic's partition, with the topic's settings."""
        configs = {"retention.ms": -1, **topic.configs}
        generation = "0.10.2" if self.legacy else "3.9"
        times = count(NOW, 500)
        path = self.broker.partition(topic.name)
        return kts.Log(path, configs, generation=generation, clock=lambda: next(times), **more)

    def write(self, topic: Forward) -> None:
        """kts's own files in place of the partition's, with the topic's id."""
        directory = self.broker.partition(topic.scenario.name)
        metadata = directory / "partition.metadata"
        topic_id = metadata.read_text(encoding="utf-8").split()[-1] if metadata.exists() else None
        for path in directory.iterdir():
            path.unlink()
        directory.rmdir()
        with self.log(topic.scenario, topic_id=topic_id) as log:
            append(log, topic.scenario, self.rng)
            topic.ends = log.log_start_offset, log.log_end_offset, len(log.segments)
            topic.rows = self.rows(topic.scenario.name, log.log_start_offset)
            topic.targets = self.targets(topic.rows)
            topic.answers = [answer(log, target) for target in topic.targets]
        topic.written = partition_files(self.broker, topic.scenario.name)

    def rows(self, topic: str, log_start_offset: int = 0) -> list[Row]:
        path = self.broker.partition(topic)
        return rows(kts.scan(path, columns=RECORD_COLUMNS, log_start_offset=log_start_offset).read_all())

    def targets(self, read: list[Row]) -> list[int]:
        times = sorted({row.timestamp for row in read if row.timestamp >= 0} or {T})
        some = [self.rng.choice(times) + self.rng.randint(-1, 1) for _ in range(TARGETS - 4)]
        return [0, times[0], times[-1], times[-1] + 1, *some]

    def go_on(self, topic: Reverse) -> None:
        """kts opens what the broker left, appends, rolls, appends, closes."""
        with self.log(topic) as log:
            topic.opened.append((log.clean_start, log.recovered))
            segments = len(log.segments)
            for number, buf in enumerate(record_sets(self.rng, self.magic, shuffled, "none gzip", sets := 20)):
                if number == sets // 2:
                    log.roll()
                first = log.append(buf, leader_epoch=self.epoch(topic)).first_offset
                table = pa.table(kts.decode(buf, RECORD_COLUMNS))
                for place, row in enumerate(rows(table)):
                    topic.sent.append((first + place, row.timestamp, row.key, row.value))
            topic.rolled = len(log.segments) > segments

    def epoch(self, topic: Reverse) -> int:
        path = self.broker.partition(topic.name) / "leader-epoch-checkpoint"
        return epochs(path.read_bytes())[-1][0] if path.exists() else 0

    def recover_all(self) -> None:
        """kts opens everything that a killed broker left, and closes it."""
        with ExitStack() as stack:
            for topic in [*self.reverses, *(forward.scenario for forward in self.forwards)]:
                log = stack.enter_context(self.log(topic))
                if isinstance(topic, Reverse):
                    topic.opened.append((log.clean_start, log.recovered))
            for path in self.broker.data.glob("__*-*"):
                if path.name != "__cluster_metadata-0":  # which no clean stop covers
                    stack.enter_context(kts.Log(path, generation="0.10.2" if self.legacy else "3.9"))

    def is_locked(self) -> bool:
        """Whether kts leaves a running broker's partition alone."""
        try:
            self.log(self.forwards[0].scenario).close()
        except kts.LogLockedError:
            return True
        return False


def sent_record(answer: dict[str, Any], record: dict[str, Any]) -> Sent:
    key, value = (base64.b64decode(record[name]) for name in ("key", "value"))
    return answer.get("offset", answer.get("error")), record["timestamp"], key, value


def append(log: kts.Log, scenario: Scenario, rng: random.Random) -> None:
    """All of its sets, and what else the scenario wants."""
    for number, buf in enumerate(scenario.sets):
        log.append(buf)
        if scenario.then == "truncate" and number == len(scenario.sets) // 2:
            log.truncate_to(rng.randrange(log.log_end_offset // 2, log.log_end_offset))
    if scenario.then == "retain":
        log.delete_old_segments()
    elif scenario.then == "move start":
        log.advance_log_start_offset(log.log_end_offset // 2)
    elif scenario.then == "roll":
        log.roll()


def answer(log: kts.Log, target: int) -> tuple[int, int] | None:
    """What kts says as a broker would."""
    try:
        found = log.offset_for_timestamp(target, shipped_search=True)
    except kts.UnsupportedForMessageFormatError:
        return None  # as the Java client does
    return None if found is None else (found.timestamp_ms, found.offset)
