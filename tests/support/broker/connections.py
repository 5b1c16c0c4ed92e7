"""Connections of one listening socket, with an answer of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

from support.golden import PATIENCE_S

from kts.broker.request import Peer
from kts.server.connection import ServerConnection, Shared
from kts.server.framing import SCRATCH_BYTES
from kts.server.limits import Memory, PipelineQueue, Places
from kts.server.sending import Chunk

PRODUCE, FETCH, METADATA = 0, 1, 3
Answer = Callable[[memoryview, Peer], Awaitable[list[Chunk] | None]]


def framed(api_key: int, body: bytes = b"") -> bytes:
    return struct.pack(">ih", len(body) + 2, api_key) + body


async def echo(frame: memoryview, peer: Peer) -> list[Chunk]:
    return [struct.pack(">i", len(frame)), frame]


class Served:
    """Connections of one listening socket, in a thread."""

    def __init__(self, answer: Answer, request_s: float, idle_s: float) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: self.complaints.append(str(context)))
        self.complaints: list[str] = []
        self.shared = Shared(
            answer=answer,
            limit=lambda api_key: 1 << 26,
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
            places=Places(1000, 1000),
            memory=Memory(1 << 27, self.loop.time),
            pipelined=PipelineQueue(),
            idle_s=idle_s,
            request_s=request_s,
            connections={},
        )
        ready = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(ready,))
        self.thread.start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        async def listen() -> None:
            server = await self.loop.create_server(lambda: ServerConnection(self.shared), "127.0.0.1", 0)
            self.address = server.sockets[0].getsockname()
            self.stopped = asyncio.Event()
            looking = self.loop.create_task(self._look())
            ready.set()
            await self.stopped.wait()
            looking.cancel()
            server.close()
            for connection in list(self.shared.connections):
                connection.drop("the test is over")
            await asyncio.sleep(0)

        self.loop.run_until_complete(listen())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            for connection in list(self.shared.connections):
                connection.look(self.loop.time())

    def wait_until(self, true: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < until
            time.sleep(0.005)


@contextlib.contextmanager
def served(answer: Answer = echo, *, request_s: float = PATIENCE_S, idle_s: float = 3600) -> Iterator[Served]:
    found = Served(answer, request_s, idle_s)
    try:
        yield found
        assert found.complaints == []
    finally:
        found.loop.call_soon_threadsafe(found.stopped.set)
        found.thread.join()
