"""`kts follow` copies from a real broker 0.9, which knows no ApiVersions, no timestamps and no settings to tell."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.broker.follow_play import files, log_bytes, logs
from support.broker.follow_serving import KtsLeader
from support.golden import PATIENCE_S
from support.kafka.brokers import Broker
from support.processes.cli_runs import lines, run
from support.waiting import wait_until

import kts
from kts.arguments import parse_address
from kts.broker.wire.messages import ApiKey
from kts.replica import client as client_module
from kts.replica.client import Client, Connection, DisconnectedError

SETTINGS = {"auto.create.topics.enable": "true", "log.segment.bytes": 8000, "log.index.interval.bytes": 200}
GIVEN = {"segment.bytes": 8000, "index.interval.bytes": 200, "retention.ms": -1}

STARTING = (3, 5, 6)  # what it answers while it takes its partitions over


class Old:
    """The broker, and a producer as old as it is."""

    def __init__(self, broker: Broker, rng: random.Random) -> None:
        self.broker = broker
        self.rng = rng
        self.wire = Connection(*parse_address(broker.bootstrap))

    def start(self) -> None:
        self.broker.start()
        wait_until("the topic has a leader", self.knows_the_topic)

    def knows_the_topic(self) -> bool:
        (topic,) = self.wire.ask(ApiKey.METADATA, 0, {"topics": [{"name": "t"}]})["topics"]
        return any(each["leader_id"] >= 0 for each in topic["partitions"])

    def stop(self) -> None:
        self.wire.close()
        self.broker.stop()

    def produce(self, sets: int) -> None:
        for _ in range(sets):
            values = [self.rng.randbytes(self.rng.randrange(200)) for _ in range(self.rng.randint(1, 8))]
            codec = self.rng.choice(["none", "gzip", "snappy"])
            data = kts.encode({"value": pa.array(values)}, magic=0, compression=codec)
            topic = {"name": "t", "partition_data": [{"index": 0, "records": data}]}
            body = {"acks": 1, "timeout_ms": 10_000, "topic_data": [topic]}
            until = time.monotonic() + PATIENCE_S
            while code := self.answer(body):
                assert code in STARTING and time.monotonic() < until, code
                time.sleep(0.1)

    def answer(self, body: dict[str, Any]) -> int:
        (topic,) = self.wire.ask(ApiKey.PRODUCE, 1, body)["responses"]
        return int(topic["partition_responses"][0]["error_code"])


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Old]:
    with Broker("0.9.0.1", tmp_path_factory.mktemp("broker")) as broker:
        with broker.properties.open("a", encoding="utf-8") as file:
            file.writelines(f"{key}={value}\n" for key, value in SETTINGS.items())
        old = Old(broker, random.Random(int(os.environ["KTS_SEED"])))
        old.start()
        yield old


def test_a_copy_follows_a_0_9_through_another_history(
    old: Old, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_FIRST_PROBE_S", 1.0)  # what it never answers need not be waited for
    monkeypatch.setattr(client_module, "_PROBE_S", 0.3)
    given = [f"--config={key}={value}" for key, value in GIVEN.items()]
    command = ["follow", "--bootstrap-server", old.broker.bootstrap, "--topic", "t", "--once", *given, tmp_path]
    old.produce(40)
    done = run(*command, "--json")
    assert done.stderr == f"{old.broker.bootstrap} answers as Kafka 0.9 does, and is treated as Kafka 0.9\n"
    old.produce(40)
    (said,) = lines(*command, "--json")
    assert said["truncations"] == 0 and said["copiedBatches"] > 0
    copy, theirs = tmp_path / "t-0", old.broker.partition("t")
    assert logs(files(copy)) == logs(files(theirs)) and len(logs(files(copy))) > 2
    old.stop()
    with kts.Log(theirs, GIVEN | {"message.format.version": "0.9.0"}) as log:
        log.truncate_to(log.log_end_offset // 2)
    for path in theirs.glob("*.timeindex"):  # which it does not know
        path.unlink()
    old.start()
    old.produce(30)
    (said,) = lines(*command, "--json")
    assert said["truncations"] == 1
    assert log_bytes(files(copy)) == log_bytes(files(theirs))
    assert set(kts.scan_batches(log_bytes(files(copy)))["magic"].to_pylist()) == {0}
    assert run("verify", copy).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("silent", [{ApiKey.API_VERSIONS}, {ApiKey.API_VERSIONS, ApiKey.METADATA}], ids=str)
def test_a_newer_broker_that_does_not_answer_is_not_taken_for_a_0_9(
    silent: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would tell its converted messages from those that it has."""
    monkeypatch.setattr(client_module, "_FIRST_PROBE_S", 0.3)
    with KtsLeader(tmp_path / "leader") as leader:
        leader.create("t")
        truth = leader.proxy.answer
        leader.proxy.answer = lambda api, version, frame: None if api in silent else truth(api, version, frame)
        with Client(leader.address) as client, pytest.raises(DisconnectedError):
            client.metadata("t")
        leader.proxy.answer = truth
        with Client(leader.address) as client:
            assert not client.any_broker().is_0_9
