"""Real clients against `kts serve` that follows Kafka 4.3: its versions of requests, and no more."""

from __future__ import annotations

from support.clients.client_places import newest_place
from support.clients.client_suite import ClientSuite


class TestClientsOfTheNewestRelease(ClientSuite):
    """Those that Kafka 4 still talks to: the oldest Java client is one of 2.8."""

    names = ("Java 2.8.2", "Java 4.3.1", "confluent-kafka", "kcat", "kafka-python", "aiokafka")
    idempotent = ("Java 2.8.2", "Java 4.3.1", "confluent-kafka", "kafka-python", "aiokafka")
    place = staticmethod(newest_place)


class TestGoAndNodeOfTheNewestRelease(ClientSuite):
    """franz-go and kafkajs as they choose the versions of requests, sarama with the newest that it knows."""

    names = ("franz-go", "sarama", "kafkajs")
    idempotent = names
    place = staticmethod(newest_place)
