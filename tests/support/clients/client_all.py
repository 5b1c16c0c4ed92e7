"""All clients by their names."""

from __future__ import annotations

from collections.abc import Mapping

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
Clients = Mapping[str, Client]
CLIENTS: Clients = {name: one() for name, one in OTHERS.items()} | {
    f"Java {version}": JavaClient(version) for version in GENERATIONS
}
