"""The clients written in Python, kafka-python and aiokafka, against `kts serve`."""

from __future__ import annotations

from support.clients.client_suite import ClientSuite


class TestPythonClients(ClientSuite):
    names = ("kafka-python", "aiokafka")
    idempotent = names
