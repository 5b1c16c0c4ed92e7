"""A broker inside the process, or a real one, asked by Kafka's bytes and answered by them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from support.broker.asking import answer

from kts.broker.broker import Broker
from kts.broker.wire.messages import ApiKey
from kts.replica.client import Connection

Body = dict[str, Any]
Ask = Callable[[ApiKey, int, Body], Body]


class Asked:
    """A broker of ours; each question runs in an event loop of its own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topics = broker.topics

    def __call__(self, api: ApiKey, version: int, body: Body) -> Body:
        found = asyncio.run(answer(self.broker, api, version, body))
        assert found is not None
        return found


def codes(found: list[Body]) -> dict[str, int]:
    """The error codes of an answer's topics by their names."""
    return {one["name"]: one["error_code"] for one in found}


def real(bootstrap: str) -> Connection:
    """A connection to a real broker; its `ask` is an Ask."""
    host, _, port = bootstrap.rpartition(":")
    return Connection(host, int(port), client_id="test", timeout_s=60.0)
