"""Kafka's Java clients 3.9.2 and 4.3.1 against `kts serve`."""

from __future__ import annotations

from support.clients.client_suite import ClientSuite


class TestNewJavaClients(ClientSuite):
    names = ("Java 3.9.2", "Java 4.3.1")
    idempotent = names
