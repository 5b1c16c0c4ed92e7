"""The control: the same tests against Apache Kafka 3.9.2 and 4.3.1, so that what `kts serve` has to do is what Kafka
does."""

from __future__ import annotations

import random

from support.clients import client_checks as checks
from support.clients.client_all import Clients
from support.clients.client_places import Place, newest_broker, real_broker
from support.clients.client_records import CREATE
from support.clients.client_suite import ClientSuite


class TestKafka(ClientSuite):
    names = ("confluent-kafka", "Java 4.3.1")
    idempotent = names
    place = staticmethod(real_broker)

    def test_without_idempotence_the_same_losses_store_records_twice(
        self, served: Place, clients: Clients, rng: random.Random
    ) -> None:
        assert not checks.check_cut(served, clients["Java 4.3.1"], CREATE, rng, idempotent=False)


class TestNewestKafka(ClientSuite):
    names = ("confluent-kafka", "Java 4.3.1")
    idempotent = names
    place = staticmethod(newest_broker)
