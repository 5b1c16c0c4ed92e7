"""A client that is nothing but a socket: it sends what it is told to, also what no client would."""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

import pyarrow as pa
from support.golden import PATIENCE_S

import kts
from kts.broker import wire
from kts.broker.wire.messages import ApiKey


class RawClient:
    """One connection to a broker."""

    def __init__(self, address: tuple[str, int], timeout_s: float = PATIENCE_S) -> None:
        self.socket = socket.create_connection(address, timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, count: int) -> bytes:
        """Exactly so many bytes; EOFError where the broker closes before."""
        parts = []
        while count:
            part = self.socket.recv(min(count, 1 << 20))
            if not part:
                raise EOFError(f"the broker closed the connection, {count} bytes before the end")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def frame(self) -> memoryview:
        """The next response without its size."""
        return memoryview(self.receive(*struct.unpack(">i", self.receive(4))))

    def request(self, api_key: int, version: int, body: dict[str, Any]) -> bytes:
        """A request with the next correlation id."""
        self.correlation_id += 1
        return wire.encode_request(api_key, version, self.correlation_id, "raw", body)

    def ask(self, api_key: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request; it has to be this request's."""
        self.send(self.request(api_key, version, body))
        correlation_id, answer = wire.decode_response(api_key, version, self.frame())
        if correlation_id != self.correlation_id:
            raise ValueError(f"expected the answer to {self.correlation_id}, found that to {correlation_id}")
        return answer

    def produce(self, topic: str, records: bytes) -> dict[str, Any]:
        """The partition's row of the answer."""
        one = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
        answer = self.ask(ApiKey.PRODUCE, 8, {"acks": -1, "timeout_ms": 10_000, "topic_data": [one]})
        found: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
        return found

    def fetch(self, topic: str, offset: int, max_bytes: int = 1 << 20) -> dict[str, Any]:
        """The partition's row of the answer, which does not wait."""
        answer = self.ask(ApiKey.FETCH, 10, fetch_body(topic, offset, max_bytes))
        found: dict[str, Any] = answer["responses"][0]["partitions"][0]
        return found

    def is_closed(self) -> bool:
        """Wait for what the broker says or does next: True if it closes the connection."""
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True


def fetch_body(topic: str, offset: int, max_bytes: int = 1 << 20, max_wait_ms: int = 0) -> dict[str, Any]:
    """A Fetch of version 4 to 12 for one partition."""
    one = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    wanted = [{"topic": topic, "partitions": [one]}]
    return {"max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": max_bytes, "topics": wanted}


def batch(values: list[bytes], compression: str = "none") -> bytes:
    """A record batch of magic 2."""
    records = pa.table(
        {"timestamp": pa.array([1_700_000_000_000] * len(values)), "value": pa.array(values, pa.binary())}
    )
    return kts.encode(records, magic=2, compression=compression)
