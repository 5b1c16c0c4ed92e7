"""All clients by their names."""

from __future__ import annotations

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
    """Clients by their names, each made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Client] = {}

    def __getitem__(self, name: str) -> Client:
        if name not in self._made:
            self._made[name] = OTHERS[name]() if name in OTHERS else JavaClient(name.removeprefix("Java "))
        return self._made[name]
