"""A raw client: one socket, any request of the wire table in any version, and the answer as it came."""

from __future__ import annotations

import socket
from typing import Any, Self, cast

from support.broker.wire_bodies import plain
from support.golden import PATIENCE_S

from kts.broker import wire

CLOSED = "the connection was closed"


class Peer:
    """A connection to a broker that is made again after the broker has closed it.

    Parameters
    ----------
    host, port : of the broker
    """

    def __init__(self, host: str, port: int | str) -> None:
        self.address = (host, int(port))
        self.correlation_id = 0
        self.socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def send(self, frame: bytes) -> None:
        """Bytes as they are, the size among them."""
        if self.socket is None:
            self.socket = socket.create_connection(self.address, PATIENCE_S)
        self.socket.sendall(frame)

    def receive(self) -> bytes | str:
        """A frame without its size, or that the connection was closed."""
        try:
            size = self._exactly(4)
            return CLOSED if size is None else (self._exactly(int.from_bytes(size)) or CLOSED)
        except ConnectionError:
            self.close()
            return CLOSED

    def _exactly(self, count: int) -> bytes | None:
        if self.socket is None:
            raise RuntimeError("nothing was sent")
        found = bytearray()
        while len(found) < count:
            piece = self.socket.recv(count - len(found))
            if not piece:
                self.close()
                return None
            found += piece
        return bytes(found)

    def ask(self, key: int, version: int, body: dict[str, Any], answers: bool = True) -> dict[str, Any] | str | None:
        """The answer to a request; CLOSED if the broker hung up; None if none is to come."""
        self.correlation_id += 1
        self.send(wire.encode_request(key, version, self.correlation_id, "script", body))
        return self._answer(key, version) if answers else None

    def ask_raw(self, key: int, version: int, frame: bytes) -> dict[str, Any] | str:
        """The answer to a frame (with its size) that was made by hand, correlation id 0."""
        self.correlation_id = 0
        self.send(frame)
        return self._answer(key, version)

    def _answer(self, key: int, version: int) -> dict[str, Any] | str:
        frame = self.receive()
        if isinstance(frame, str):
            return frame
        correlation_id, body = wire.decode_response(key, version, memoryview(frame))
        assert correlation_id == self.correlation_id
        return cast(dict[str, Any], plain(body))
