"""A broker inside the process, or a real one, asked by Kafka's bytes and answered by them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ApiKey
from kts.broker.following.client import Connection
from kts.broker.handlers import handle
from kts.broker.request import Request

Body = dict[str, Any]
Ask = Callable[[ApiKey, int, Body], Body]


class Asked:
    """A broker of ours; each question runs in an event loop of its own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topics = broker.topics

    def __call__(self, api: ApiKey, version: int, body: Body) -> Body:
        frame = wire.encode_request(api, version, 5, "test", body)
        header, decoded = wire.decode_request(memoryview(frame)[4:])
        request = Request(header.api_key, header.api_version, header.client_id, decoded)
        answer = asyncio.run(handle(self.broker, request))
        assert answer is not None
        chunks = wire.encode_response(api, version, 5, answer)
        data = b"".join(bytes(one) if isinstance(one, bytes | memoryview) else one.read() for one in chunks)
        correlation, found = wire.decode_response(api, version, memoryview(data)[4:])
        assert correlation == 5
        return found


def real(bootstrap: str) -> Connection:
    """A connection to a real broker; its `ask` is an Ask."""
    host, _, port = bootstrap.rpartition(":")
    return Connection(host, int(port), client_id="test", timeout_s=60.0)
