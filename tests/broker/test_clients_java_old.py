"""Kafka's Java clients 0.9.0.1, 0.10.2.2 and 2.8.2 against `kts serve`."""

from __future__ import annotations

from support.clients.client_suite import ClientSuite


class TestOldJavaClients(ClientSuite):
    names = ("Java 0.9.0.1", "Java 0.10.2.2", "Java 2.8.2")
    idempotent = ("Java 2.8.2",)
