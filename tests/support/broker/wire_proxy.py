"""A proxy between a client and a broker that does to the broker's answers what a test wants."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from kts.broker import wire

Answer = Callable[[int, int, bytes], bytes | None]  # API key, version, frame -> what to send, None to hang up
_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hh")


def as_it_is(api: int, version: int, frame: bytes) -> bytes | None:
    """The answer with its size, as a broker sends it."""
    return _SIZE.pack(len(frame)) + frame


class Proxy:
    """Listens at `address`; every connection goes on to `target`, answer by answer through `answer`.

    Parameters
    ----------
    answer : callable, may be replaced at any time
    budget : callable
        Gives for each connection how many bytes of answers it lives; then it is closed, wherever that is.
    """

    def __init__(self, target: str, answer: Answer = as_it_is, budget: Callable[[], int] = lambda: 1 << 60) -> None:
        host, _, port = target.rpartition(":")
        self.target = host, int(port)
        self.answer = answer
        self.budget = budget
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def cut(self) -> None:
        """Close every connection."""
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(client, self.budget()), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket, budget: int) -> None:
        with client, suppress(OSError, EOFError), socket.create_connection(self.target, 10) as broker:
            self._open |= {client, broker}
            try:
                while True:
                    request = receive_frame(client)
                    broker.sendall(_SIZE.pack(len(request)) + request)
                    answer = self.answer(*_REQUEST.unpack_from(request), receive_frame(broker))
                    if answer is None:
                        return
                    client.sendall(answer[:budget])
                    budget -= len(answer)
                    if budget < 0:
                        return
            finally:
                self._open -= {client, broker}


def receive_frame(connection: socket.socket) -> bytes:
    """What one size announces."""
    return receive(connection, _SIZE.unpack(receive(connection, 4))[0])


def receive(connection: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        piece = connection.recv(count - len(found))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)


def joined(api: int, version: int, correlation: int, body: dict[str, Any]) -> bytes:
    chunks = wire.encode_response(api, version, correlation, body)
    return b"".join(bytes(chunk) if isinstance(chunk, bytes | memoryview) else chunk.read() for chunk in chunks)
