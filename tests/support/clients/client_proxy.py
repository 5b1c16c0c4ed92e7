"""A proxy before a broker that cuts connections where it hurts: what was asked is done, and nobody hears the answer."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Self

PRODUCE = 0


class CuttingProxy:
    """Forwards whole requests and answers, and names itself where an answer names the broker.

    Parameters
    ----------
    bootstrap : the broker, which calls itself by this address
    cuts : how many answers to Produce requests are thrown away, each with its connection
    apart : Produce requests from one such to the next, the first is the second of all; those that a connection gets
        while it is to be cut do not count
    """

    def __init__(self, bootstrap: str, cuts: int, apart: int = 8) -> None:
        host, port = bootstrap.split(":")
        self._broker = host, int(port)
        self._cuts, self._apart = cuts, apart
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.bootstrap = f"{host}:{self.port}"
        self.produced = 0
        self.cuts = 0
        # Every answer with an address has the host and, right behind it, the port as an int32.
        self._theirs, self._ours = (host.encode() + struct.pack(">i", one) for one in (int(port), self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in [self._listener, *self._sockets]:
            _close(one)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                _Connection(self, client, socket.create_connection(self._broker))

    def keep(self, *sockets: socket.socket) -> None:
        self._sockets += sockets

    def shall_cut(self) -> bool:
        """Called for each Produce request of a connection that is not to be cut yet."""
        with self._lock:
            self.produced += 1
            number, left_over = divmod(self.produced - 2, self._apart)
            return left_over == 0 and 0 <= number < self._cuts

    def renamed(self, answer: bytes) -> bytes:
        return answer.replace(self._theirs, self._ours)


class _Connection:
    def __init__(self, proxy: CuttingProxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy, self._client, self._broker = proxy, client, broker
        self._unanswered: set[bytes] = set()  # correlation ids whose answer is for nobody
        proxy.keep(client, broker)
        for work in (self._requests, self._answers):
            threading.Thread(target=self._until_closed, args=(work,), daemon=True).start()

    def _until_closed(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                work()
        _close(self._client)
        _close(self._broker)

    def _requests(self) -> None:
        frame = _frame(self._client)
        (api_key,) = struct.unpack_from(">h", frame, 4)
        if api_key == PRODUCE and not self._unanswered and self._proxy.shall_cut():
            self._unanswered.add(frame[8:12])
        self._broker.sendall(frame)

    def _answers(self) -> None:
        frame = _frame(self._broker)
        if frame[4:8] in self._unanswered:
            self._proxy.cuts += 1
            raise EOFError
        self._client.sendall(self._proxy.renamed(frame))


def _frame(source: socket.socket) -> bytes:
    size = _exactly(source, 4)
    return size + _exactly(source, struct.unpack(">i", size)[0])


def _exactly(source: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = source.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
