"""Clients in other languages, each a program that takes the commands of java/clients/ClientLoop.java."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from support.clients.client_records import Record, Row, Sent, from_json, to_json
from support.clients.clients import Client, Members
from support.processes.json_loop import JsonLoop


class ClientFailed(Exception):
    """What such a client has thrown or returned, by its own words."""


class LoopClient(Client):
    """Settings have the names of Java's; `consumer` and `member` are those of this client."""

    consumer: dict[str, Any] = {}
    member: dict[str, Any] = {}

    @abstractmethod
    def loop(self) -> JsonLoop:
        """The program."""

    def producer(self, codec: str, idempotent: bool) -> dict[str, Any]:
        """The producer's settings."""
        return {"compression.type": codec, "enable.idempotence": idempotent}

    def ask(self, do: str, bootstrap: str, settings: dict[str, Any], **asked: object) -> dict[str, Any]:
        """Its answer to one command; a failure there is a ClientFailed here."""
        answer = self.loop().ask(do, settings={"bootstrap.servers": bootstrap} | settings, **asked)
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
        settings, data = self.producer(codec, idempotent), to_json(records)
        answer = self.ask("produce", bootstrap, settings, topic=topic, partition=partition, records=data)
        if refused := [one for one in answer["sends"] if isinstance(one, str)]:
            raise ClientFailed(f"{len(refused)} of {len(data)} records: {refused[0]}")
        return [Sent(*one) for one in answer["sends"]]

    def consume(self, bootstrap: str, topic: str, partition: int = 0) -> list[Row]:
        answer = self.ask("consume", bootstrap, self.consumer, topic=topic, partition=partition)
        return [from_json(one) for one in answer["rows"]]

    def ends(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        answer = self.ask("ends", bootstrap, self.consumer, topic=topic, partition=partition)
        return answer["beginning"], answer["end"]

    def times(self, bootstrap: str, topic: str, targets: Sequence[int]) -> list[tuple[int, int | None] | None]:
        answer = self.ask("times", bootstrap, self.consumer, topic=topic, partition=0, targets=list(targets))
        return [None if one is None else (one[0], one[1]) for one in answer["answers"]]

    def join(self, bootstrap: str, topic: str, group: str, *, members: int, partitions: int) -> Members:
        settings = self.consumer | self.member | {"group.id": group}
        self.ask("join", bootstrap, settings, topic=topic, members=members, partitions=partitions)
        return LoopMembers(self)

    def committed(self, bootstrap: str, topic: str, group: str, partitions: int) -> list[int | None]:
        settings = self.consumer | {"group.id": group}
        answer = self.ask("committed", bootstrap, settings, topic=topic, partitions=partitions)
        found: list[int | None] = answer["offsets"]
        return found

    def begin_transaction(self, bootstrap: str) -> None:
        self.ask("transaction", bootstrap, {"transactional.id": "one"})


class LoopMembers(Members):
    """Consumers that the client's process has in the background."""

    def __init__(self, client: LoopClient) -> None:
        self.client = client

    def __exit__(self, *_: object) -> None:
        """They end when they are gathered, and with the process at the latest."""

    def gather(self, count: int) -> list[list[Row]]:
        answer = self.client.ask("gather", "", {}, count=count)
        return [[from_json(one) for one in member] for member in answer["members"]]
