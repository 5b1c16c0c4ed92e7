"""All clients by their names."""

from __future__ import annotations

from support.clients.client_aiokafka import AioKafka
from support.clients.client_go import FranzGo, Sarama
from support.clients.client_java import GENERATIONS, JavaClient
from support.clients.client_kafka_python import KafkaPython
from support.clients.client_kafkajs import KafkaJs
from support.clients.client_kcat import Kcat
from support.clients.client_librdkafka import Confluent
from support.clients.clients import Client

OF_TODAY = (FranzGo, Sarama, KafkaJs)  # of one generation: they are asked alone, not with those of all others
OTHERS: dict[str, type[Client]] = {one.name: one for one in (KafkaPython, AioKafka, Confluent, Kcat, *OF_TODAY)}
CODECS = {name: one.codecs for name, one in OTHERS.items()}
CODECS |= {f"Java {version}": codecs for version, (_, codecs) in GENERATIONS.items()}
NAMES = tuple(name for name in CODECS if name not in {one.name for one in OF_TODAY})


class Clients:
    """Clients by their names, each made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Client] = {}

    def __getitem__(self, name: str) -> Client:
        if name not in self._made:
            self._made[name] = OTHERS[name]() if name in OTHERS else JavaClient(name.removeprefix("Java "))
        return self._made[name]
