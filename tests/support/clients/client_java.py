"""Kafka's Java clients 0.9.0.1 to 4.3.1, each as one process that runs java/clients/ClientLoop.java."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from support.clients.client_records import Record, Row, Sent, from_json, to_json
from support.clients.clients import Client, Members
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


class ClientFailed(Exception):
    """What a Java client has thrown, its class and its message."""


@cache
def loop(version: str) -> JavaLoop:
    """Kafka's own client of one release, for all tests of this process."""
    generation, _ = GENERATIONS[version]
    sources = [FOLDER / f"{name}.java" for name in ("ClientLoop", "Generation", "GroupOfMembers", generation)]
    java = Jvm(FOLDER / f"clients-{version}.xml", *sources)
    return JavaLoop(java, "ClientLoop", generation, options=["-Xmx384m"])


class JavaClient(Client):
    """Kafka's own client of one release; its process starts when it is first asked."""

    def __init__(self, version: str) -> None:
        self.name = f"Java {version}"
        self.version = version
        generation, self.codecs = GENERATIONS[version]
        self.sends_times = self.sees_times = self.searches = generation != "Since0_9"
        self.sends_headers = self.sees_headers = self.idempotent = generation == "Since2_4"

    def ask(self, do: str, bootstrap: str, settings: dict[str, Any], **asked: object) -> dict[str, Any]:
        """Its answer to one command; a failure there is a ClientFailed here."""
        answer = loop(self.version).ask(do, settings={"bootstrap.servers": bootstrap} | settings, **asked)
        if "error" in answer:
            raise ClientFailed(answer["error"])
        return answer

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        partition: int = 0,
        idempotent: bool = False,
    ) -> list[Sent]:
        settings: dict[str, Any] = {"compression.type": codec, "acks": "all", "retries": 100, "linger.ms": 5}
        settings["retry.backoff.ms"] = 20
        if self.idempotent:
            settings["enable.idempotence"] = str(idempotent).lower()
        data = to_json(records)
        answer = self.ask("produce", bootstrap, settings, topic=topic, partition=partition, records=data)
        if refused := [one for one in answer["sends"] if isinstance(one, str)]:
            raise ClientFailed(f"{len(refused)} of {len(data)} records: {refused[0]}")
        return [Sent(*one) for one in answer["sends"]]

    def consume(self, bootstrap: str, topic: str, partition: int = 0) -> list[Row]:
        answer = self.ask("consume", bootstrap, CONSUMER, topic=topic, partition=partition)
        return [from_json(one) for one in answer["rows"]]

    def ends(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        answer = self.ask("ends", bootstrap, CONSUMER, topic=topic, partition=partition)
        return answer["beginning"], answer["end"]

    def times(self, bootstrap: str, topic: str, targets: Sequence[int]) -> list[tuple[int, int | None] | None]:
        answer = self.ask("times", bootstrap, CONSUMER, topic=topic, partition=0, targets=list(targets))
        return [None if one is None else (one[0], one[1]) for one in answer["answers"]]

    def join(self, bootstrap: str, topic: str, group: str, *, members: int, partitions: int) -> Members:
        settings = CONSUMER | MEMBER | {"group.id": group}
        self.ask("join", bootstrap, settings, topic=topic, members=members, partitions=partitions)
        return JavaMembers(self)

    def committed(self, bootstrap: str, topic: str, group: str, partitions: int) -> list[int | None]:
        settings = CONSUMER | {"group.id": group}
        found: list[int | None] = self.ask("committed", bootstrap, settings, topic=topic, partitions=partitions)[
            "offsets"
        ]
        return found

    def begin_transaction(self, bootstrap: str) -> None:
        self.ask("transaction", bootstrap, {"transactional.id": "one", "max.block.ms": 60_000})


class JavaMembers(Members):
    """Threads of the client's process."""

    def __init__(self, client: JavaClient) -> None:
        self.client = client

    def __exit__(self, *_: object) -> None:
        """They end when they are gathered, and with the process at the latest."""

    def gather(self, count: int) -> list[list[Row]]:
        answer = self.client.ask("gather", "", {}, count=count)
        return [[from_json(one) for one in member] for member in answer["members"]]
