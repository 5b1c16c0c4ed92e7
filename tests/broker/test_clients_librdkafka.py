"""librdkafka, through confluent-kafka and kcat, against `kts serve`."""

from __future__ import annotations

from support.clients.client_suite import ClientSuite


class TestLibrdkafka(ClientSuite):
    names = ("confluent-kafka", "kcat")
    idempotent = ("confluent-kafka",)
