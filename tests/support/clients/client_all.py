"""All clients by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from support.clients.client_aiokafka import AioKafka
from support.clients.client_java import GENERATIONS, JavaClient
from support.clients.client_kafka_python import KafkaPython
from support.clients.client_kcat import Kcat
from support.clients.client_librdkafka import Confluent
from support.clients.clients import Client

OTHERS: dict[str, type[Client]] = {one.name: one for one in (KafkaPython, AioKafka, Confluent, Kcat)}
CODECS = {name: one.codecs for name, one in OTHERS.items()}
CODECS |= {f"Java {version}": codecs for version, (_, codecs) in GENERATIONS.items()}
NAMES = tuple(CODECS)


class Clients:
    """Clients that are made when they are asked for, and end together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Client] = {}

    def __getitem__(self, name: str) -> Client:
        if name not in self._made:
            version = name.removeprefix("Java ")
            log = self._folder / f"java-{version}.log"
            self._made[name] = OTHERS[name]() if name in OTHERS else JavaClient(version, log)
        return self._made[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._made.values():
            client.close()


def with_codecs(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Each client with each codec that it has."""
    return [(name, codec) for name in names for codec in CODECS[name]]
