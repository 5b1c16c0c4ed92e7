"""``examples/migration.py`` runs and checks itself; what it plays on kts, a real broker 0.10.2.2 answers the same."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.producer.future import RecordMetadata
from migration_parts import Client, MigrationError, fetch
from support import ROOT
from support.clients.client_java import JavaClient
from support.clients.client_records import APPEND, CREATE, NONE, Record, Row
from support.golden import PATIENCE_S
from support.kafka.brokers import Broker, write_properties

import kts
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey
from kts.replica.client import Connection
from kts.testing import KtsBroker

pytestmark = pytest.mark.slow

OLD, NEW = "0.9.0", "0.10.0"
# log.message.format.version and inter.broker.protocol.version: phase 1, canary or phase 2, rollback
STEPS = [(OLD, OLD), (NEW, NEW), (OLD, NEW)]
ROLLED_BACK = 2
TOPICS = {"clicks": "CreateTime", "orders": "LogAppendTime"}
COLUMNS = ["offset", "timestamp", "timestampType", "key", "value", "magic", "codec"]
T = 1_460_000_000_000


ROW = re.compile(r"    (0\.\S+) (client|follower) +(Produce|Fetch) (\d): (v\d) -> (v\d) +(nothing|\d+) converted")


def test_the_example_runs_and_what_converts_where_is_what_the_kip_says() -> None:
    command = [sys.executable, ROOT / "examples/migration.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    print(done.stdout)
    steps = re.split(r"^== ", done.stdout, flags=re.MULTILINE)[1:]
    formats = [{"clicks": OLD, "orders": OLD}, {"clicks": OLD, "orders": OLD}, {"clicks": NEW, "orders": OLD}]
    formats += [{"clicks": OLD}, {"clicks": NEW}, {"clicks": NEW, "orders": NEW}]
    for step, on_disk in zip(steps[:-1], formats, strict=True):
        topics = re.split(r"^  (clicks|orders): broker [12], format (\S+), \w+$", step, flags=re.MULTILINE)[1:]
        assert dict(zip(topics[::3], topics[1::3], strict=True)) == on_disk
        for version, lines in zip(topics[1::3], topics[2::3], strict=True):
            disk = "v1" if version == NEW else "v0"
            found = [ROW.match(line) for line in lines.splitlines() if re.match("    0", line)]
            rows = [row.groups() for row in found if row is not None]
            assert len(rows) == len(found) == (5 if step is steps[0] else 6)
            for release, who, api, spoken, before, after, converted in rows:
                old = spoken == "1"
                assert old == (release in ("0.9", OLD)), (release, who)
                if api == "Produce":
                    assert (before, after) == ("v0" if old else "v1", disk)
                    # Kept as it is: only what comes with relative offsets and stays v1.
                    assert converted == ("nothing" if (before, after) == ("v1", "v1") else "1000")
                else:
                    assert (before, after) == (disk, "v0" if old else disk)
                    assert converted == ("2000" if (before, after) == ("v1", "v0") else "nothing")
        [sent] = re.findall(
            r"^  sent to all of them: (\d+) KiB by sendfile, (\d+) KiB read, (\d+) KiB converted$", step, re.M
        )
        by_sendfile, read, converted = map(int, sent)
        assert by_sendfile > 2 * read, "zero copy for all that is not converted, but for answers below 32 KiB"
        assert (converted > 0) == (NEW in on_disk.values())
    assert "the copy that came by Fetch 1 has v0\n  the copy that came by Fetch 2 has v0 + v1\n" in steps[4]
    for topic, count, timed in (("clicks", 12_000, (3000, 1000)), ("orders", 8000, (2000, 2000))):
        lines = [line for line in steps[-1].splitlines() if line.startswith(f"  {topic}: ")]
        assert sum(f" {count} messages in order; times: " in line for line in lines) == 4 and len(lines) == 6
        assert sum(f"times: {count} without" in line for line in lines) == 3, "0.9 clients and followers see no time"
        with_time = [int(found[1]) for line in lines if (found := re.search(r"times: (\d+) with, ", line))]
        assert with_time == [timed[0], timed[1], timed[1]]  # who read along has seen times that the rollback lost


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Broker]:
    with Broker("0.10.2.2", tmp_path) as broker:
        yield broker


class Address:
    """Where a real broker listens, as the example's clients take it."""

    def __init__(self, bootstrap: str) -> None:
        self.host, port = bootstrap.split(":")
        self.port = int(port)


def create(address: Address, topic: str, configs: dict[str, str]) -> None:
    """Make a topic; a broker that starts does not know for a moment that there is one, itself (38)."""
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": []}
    wanted["configs"] = [{"name": name, "value": value} for name, value in configs.items()]
    until = time.monotonic() + PATIENCE_S
    with Connection(address.host, address.port) as connection:
        while True:
            answer = connection.ask(ApiKey.CREATE_TOPICS, 0, {"topics": [wanted], "timeout_ms": 10_000})
            error = answer["topics"][0]["error_code"]
            if error != ErrorCode.INVALID_REPLICATION_FACTOR or time.monotonic() > until:
                break
            time.sleep(0.05)
    assert error == 0


def wait_for(address: Address, topic: str) -> None:
    """A broker that starts leads nothing until it was told."""
    until = time.monotonic() + PATIENCE_S
    with Connection(address.host, address.port) as connection:
        while True:
            try:
                fetch(connection, 2, topic, 0)
                return
            except MigrationError:
                assert time.monotonic() < until, f"the broker does not lead {topic}"
                time.sleep(0.05)


def seen(address: Address | KtsBroker, version: int, topic: str) -> list[dict[str, object]]:
    """All records as a fetcher of that version gets them; LogAppendTime's own values are the clock's and left out."""
    found: list[dict[str, object]] = []
    with Connection(address.host, address.port) as connection:
        while records := fetch(connection, version, topic, len(found)):
            rows = kts.decode(records, columns=COLUMNS).to_pylist()
            found += [row for row in rows if row["offset"] >= len(found)]
    for row in found:
        row["timestamp"] = row["timestamp"].timestamp() if row["timestampType"] == 0 else row["timestampType"]
    return found


def play(address: Address | KtsBroker, clients: list[Client], number: int) -> dict[tuple[str, int], list]:
    """A step: every client sends, then everything is read again by fetchers of both versions."""
    for topic in TOPICS:
        for client in clients:
            client.produce(address, topic, T + number * 60_000)
    return {(topic, version): seen(address, version, topic) for topic in TOPICS for version in (1, 2)}


def test_a_real_broker_converts_the_same_in_every_step(real: Broker, tmp_path: Path) -> None:
    """The one difference is known: after a rollback 0.10.2.2 sends v1 to fetchers that know only v0, by its setting."""
    settings = dict(line.split("=", 1) for line in real.properties.read_text(encoding="utf-8").splitlines())
    ours, theirs = ([Client("0.9 client", 1, 0), Client("0.10 client", 2, 1)] for _ in range(2))
    with KtsBroker(tmp_path / "ours") as broker:
        for number, (disk, protocol) in enumerate(STEPS):
            changed = {"log.message.format.version": disk, "inter.broker.protocol.version": protocol}
            broker.restart(changed)
            write_properties(real.properties, settings | changed)
            real.start()
            address = Address(real.bootstrap)
            if number == 0:
                for topic, kind in TOPICS.items():
                    broker.create_topic(topic, 1, {"message.timestamp.type": kind})
                    create(address, topic, {"message.timestamp.type": kind})
            for topic in TOPICS:
                wait_for(address, topic)
            mine, real_ones = play(broker, ours, number), play(address, theirs, number)
            real.stop()
            for what, rows in real_ones.items():
                if number == ROLLED_BACK and what[1] == 1:
                    assert {row["magic"] for row in rows} == {0, 1}, "a real broker looks at the setting"
                    assert {row["magic"] for row in mine[what]} == {0}, "kts looks at the data"
                    rows = [row | {"magic": 0, "timestamp": -1, "timestampType": -1} for row in rows]
                assert mine[what] == rows, (number, what)


class KafkaPython:
    """kafka-python as it speaks to brokers of a release."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.api_version = tuple(map(int, version.split(".")))

    def produce(self, bootstrap: str, topic: str, records: list[Record], *, codec: str) -> list[RecordMetadata]:
        settings = {"api_version": self.api_version, "compression_type": None if codec == "none" else codec}
        producer = KafkaProducer(bootstrap_servers=bootstrap, **settings)
        futures = [producer.send(topic, one.value, one.key, timestamp_ms=one.timestamp) for one in records]
        answers = [future.get(PATIENCE_S) for future in futures]
        producer.close()
        return answers

    def consume(self, bootstrap: str, topic: str) -> list[Row]:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, api_version=self.api_version)
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek(partition, 0)
        seen = [next(consumer) for _ in range(end)]
        consumer.close()
        kinds = {None: None, 0: CREATE, 1: APPEND}
        return [Row(0, one.offset, one.key, one.value, one.timestamp, kinds[one.timestamp_type], None) for one in seen]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_java_clients_of_both_generations_live_through_it(codec: str) -> None:
    live_through(JavaClient("0.9.0.1"), JavaClient("0.10.2.2"), codec)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_kafka_python_lives_through_it_as_a_client_of_both_generations(codec: str) -> None:
    live_through(KafkaPython("0.9.0"), KafkaPython("0.10.0"), codec)


def live_through(old: Any, new: Any, codec: str) -> None:
    """Both read everything in every step, with the times that their generation can see."""
    sent: dict[str, list[Row]] = {topic: [] for topic in TOPICS}
    settings = {"inter.broker.protocol.version": NEW, "log.message.format.version": OLD}
    with KtsBroker(config=settings, time=T) as broker:
        for topic, kind in TOPICS.items():
            broker.create_topic(topic, 1, {"message.timestamp.type": kind})
        for disk, _ in STEPS:
            broker.restart({"log.message.format.version": disk})
            broker.advance(1000)
            for topic, kind in TOPICS.items():
                for client in (old, new):
                    records = [Record(b"k", b"%s %d" % (client.version.encode(), each), T - each) for each in range(50)]
                    answers = client.produce(broker.bootstrap_servers, topic, records, codec=codec)
                    start = len(sent[topic])
                    assert [answer.offset for answer in answers] == list(range(start, start + 50))
                    for offset, one in enumerate(records, start):
                        when = broker.clock() if kind == APPEND else one.timestamp if client is new else -1
                        seen_as = (when, kind) if disk == NEW else (None, None)
                        sent[topic].append(Row(0, offset, one.key, one.value, *seen_as, None))
                seen = new.consume(broker.bootstrap_servers, topic)
                assert [timeless(row) if row.timestamp_type == NONE else row for row in seen] == sent[topic]
                assert old.consume(broker.bootstrap_servers, topic) == [timeless(row) for row in sent[topic]]


def timeless(row: Row) -> Row:
    return row._replace(timestamp=None, timestamp_type=None)
