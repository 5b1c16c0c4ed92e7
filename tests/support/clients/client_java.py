"""Kafka's Java clients 0.9.0.1 to 4.3.1, each as one process that runs java/clients/ClientLoop.java."""

from __future__ import annotations

from functools import cache
from typing import Any

from support.clients.client_loop import LoopClient
from support.kafka.java_loop import JavaLoop
from support.kafka.jvm import JAVA, Jvm

FOLDER = JAVA / "clients"
GENERATIONS = {  # what compiles against each, and the codecs of its producer
    "0.9.0.1": ("Since0_9", ("none", "gzip", "snappy", "lz4")),
    "0.10.2.2": ("Since0_10", ("none", "gzip", "snappy", "lz4")),
    "2.8.2": ("Since2_4", ("none", "gzip", "snappy", "lz4", "zstd")),
    "3.9.2": ("Since2_4", ("none", "gzip", "snappy", "lz4", "zstd")),
    "4.3.1": ("Since2_4", ("none", "gzip", "snappy", "lz4", "zstd")),
}
CONSUMER = {"enable.auto.commit": "false", "auto.offset.reset": "earliest", "fetch.max.wait.ms": 10}
CONSUMER |= {"retry.backoff.ms": 10}  # each consumer waits so long for what it first learns of a topic
CONSUMER |= {"max.partition.fetch.bytes": 100_000}  # so that it takes several requests
MEMBER = {"heartbeat.interval.ms": 100, "session.timeout.ms": 10_000}  # the first learns of the second by a heartbeat


@cache
def loop(version: str) -> JavaLoop:
    """Kafka's own client of one release, for all tests of this process."""
    generation, _ = GENERATIONS[version]
    sources = [FOLDER / f"{name}.java" for name in ("ClientLoop", "Generation", "GroupOfMembers", generation)]
    java = Jvm(FOLDER / f"clients-{version}.xml", *sources)
    return JavaLoop(java, "ClientLoop", generation, options=["-Xmx384m"])


class JavaClient(LoopClient):
    """Kafka's own client of one release; its process starts when it is first asked."""

    consumer = CONSUMER
    member = MEMBER

    def __init__(self, version: str) -> None:
        self.name = f"Java {version}"
        self.version = version
        generation, self.codecs = GENERATIONS[version]
        self.sends_times = self.sees_times = self.searches = generation != "Since0_9"
        self.sends_headers = self.sees_headers = self.idempotent = generation == "Since2_4"

    def loop(self) -> JavaLoop:
        return loop(self.version)

    def producer(self, codec: str, idempotent: bool) -> dict[str, Any]:
        settings: dict[str, Any] = {"compression.type": codec, "acks": "all", "retries": 100, "linger.ms": 5}
        settings["retry.backoff.ms"] = 20
        if self.idempotent:
            settings["enable.idempotence"] = str(idempotent).lower()
        return settings

    def begin_transaction(self, bootstrap: str) -> None:
        self.ask("transaction", bootstrap, {"transactional.id": "one", "max.block.ms": 60_000})
