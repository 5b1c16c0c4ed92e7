"""A broker behind a socket: ``Server`` in an event loop of yours, ``ServerThread`` in one of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from kts.broker.broker import Broker
from kts.broker.handlers import handle
from kts.broker.request import Request
from kts.broker.settings.broker import BrokerConfig
from kts.segment import files
from kts.server.background import tend
from kts.server.connection import Connection, Shared
from kts.server.dispatch import Answering, frame_limit
from kts.server.framing import SCRATCH_BYTES
from kts.server.limits import Memory, PipelineQueue, Places
from kts.server.listening import check_address

log = logging.getLogger("kts.broker")

THREADS = 8
CONNECTIONS = 10_000  # where nobody says how many
LOOK_S = 0.25  # how often connections that stall are looked for
STOOD_STILL_S = 1.0  # a loop that comes round so much too late heard nobody
FINISH_S = 5.0  # for requests in work when the server stops
OWN_DESCRIPTORS = 64  # for what is neither a connection nor an open log, and ranges of files that are being sent
BACKLOG = 1024  # connections that the system holds until they are accepted
ACCEPTED_AT_ONCE = 8  # asyncio asks, and complains, so many times also when no descriptor is left


class Server:
    """Serves a broker on one address; an asynchronous context manager.

    Parameters
    ----------
    broker : Broker
        Stays open when the server stops.
    host, port : str, int
        Where to listen; port 0 is any free one.
    insecure : bool
        Allow an address that other machines reach.

    Raises
    ------
    InvalidRequestError
        The address is not a loopback address.
    OSError
        It cannot be had.
    """

    def __init__(self, broker: Broker, host: str = "127.0.0.1", port: int = 0, *, insecure: bool = False) -> None:
        check_address(host, insecure)
        self.broker = broker
        self.address = (host, port)
        self._listening: list[asyncio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._shared: Shared | None = None
        self._answering: Answering | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> tuple[str, int]:
        """Listen; the address, with the port that was given."""
        loop = asyncio.get_running_loop()
        config = self.broker.config
        self._answering = answering = Answering(self.broker)
        self._shared = shared = Shared(
            answer=answering,
            limit=frame_limit(config.socket_request_max_bytes),
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
            places=Places(most_connections(config), config.max_connections_per_ip),
            memory=Memory(config.queued_max_request_bytes, loop.time),
            pipelined=PipelineQueue(),
            idle_s=config.connections_max_idle_ms / 1000,
            request_s=config.request_timeout_ms / 1000,
            connections={},
        )
        try:
            self.address = await self._listen(loop, shared)
        except BaseException:
            await self.stop()
            raise
        self.broker.listener = self.address
        self._tasks = [loop.create_task(tend(self.broker)), loop.create_task(self._look(shared))]
        return self.address

    async def _listen(self, loop: asyncio.AbstractEventLoop, shared: Shared) -> tuple[str, int]:
        """Listen on all addresses that the host's name has, with one port."""
        host, port = self.address
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for address in dict.fromkeys(each[4] for each in found):
            self._listening.append(
                await loop.create_server(lambda: Connection(shared), str(address[0]), port, backlog=ACCEPTED_AT_ONCE)
            )
            with self._listening[-1].sockets[0].dup() as listening:
                listening.listen(BACKLOG)
            port = port or self._listening[0].sockets[0].getsockname()[1]
        return host, port

    async def stop(self) -> None:
        """Take no more, answer what is in work, close all connections."""
        for listening in self._listening:
            listening.close()
        self._listening = []
        for chore in self._tasks:
            chore.cancel()
        connections = list(self._shared.connections) if self._shared is not None else []
        finishing = [task for connection in connections if (task := connection.finish()) is not None]
        if finishing:
            await asyncio.wait(finishing, timeout=FINISH_S)
        for connection in connections:
            connection.drop("the server stops")
        await asyncio.gather(*self._tasks, *finishing, return_exceptions=True)
        self._tasks = []
        if self._answering is not None:
            self._answering.close()

    async def _look(self, shared: Shared) -> None:
        loop = asyncio.get_running_loop()
        rounds = 0
        while True:
            await asyncio.sleep(LOOK_S)
            shared.memory.relieve()
            rounds += 1
            if rounds % 4 == 0:
                now = loop.time()
                for connection in list(shared.connections):
                    connection.look(now)


def most_connections(config: BrokerConfig) -> int:
    """``max.connections`` where it is set, but no more than there are descriptors."""
    wanted: int = config.max_connections if "max.connections" in config.static else CONNECTIONS
    return min(wanted, allowed_descriptors())


def allowed_descriptors() -> int:
    """How many connections the system lets this process have besides its files."""
    most = files.most_descriptors()
    quarter = most // 4  # is for logs
    return most - quarter - min(OWN_DESCRIPTORS, quarter)


class ServerThread:
    """A server with an event loop in a thread of its own; a context manager.

    Parameters
    ----------
    broker, host, port, insecure
        As for ``Server``.
    """

    def __init__(self, broker: Broker, host: str = "127.0.0.1", port: int = 0, *, insecure: bool = False) -> None:
        self.broker = broker
        self._server = Server(broker, host, port, insecure=insecure)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._server.address

    def start(self) -> tuple[str, int]:
        """Listen; the address, once clients can connect."""
        if self._thread is not None:
            raise RuntimeError("expected a server that is not running, found one that is")
        self._ready.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._work, name="kts-server", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            self._thread = None
            raise self._failure
        return self.address

    def stop(self) -> None:
        """Stop it and wait until it has; a second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stop is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop may have ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()

    def handle(self, request: Request, timeout_s: float | None = None) -> dict[str, Any] | None:
        """The broker's answer to a request from inside the process, handled in the server's loop."""
        reply: dict[str, Any] | None = self.run(handle(self.broker, request), timeout_s)
        return reply

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        """What a coroutine gives that runs in the server's loop."""
        if self._loop is None or self._thread is None:
            coroutine.close()
            raise RuntimeError("expected a server that runs, found one that does not")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout_s)

    def _work(self) -> None:
        try:
            run_until(self._until_stopped())
        except BaseException as error:
            self._failure = error
            if self._ready.is_set():
                log.exception("the server ended")
        finally:
            self._ready.set()

    async def _until_stopped(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self._server:
            self._ready.set()
            await self._stop.wait()


class _Watch(selectors.DefaultSelector):
    """What an event loop waits with; counts the time in which the process stood still."""

    def __init__(self) -> None:
        super().__init__()
        self.stood_still_s = 0.0
        self._since: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as the loop asks; what was too much of that, or of what the loop did before, was no time for clients."""
        before = time.monotonic()
        found = super().select(timeout)
        now = time.monotonic()
        busy_s = before - self._since if self._since is not None else 0.0
        late_s = now - before - timeout if timeout is not None else 0.0
        self.stood_still_s += sum(each for each in (busy_s, late_s) if each > STOOD_STILL_S)
        self._since = now
        return found


class Loop(asyncio.SelectorEventLoop):
    """An event loop that can send files, and whose time stands still while the process does.

    A stopped process (SIGSTOP, a debugger, a frozen container) hears nobody. Without this it would take all its clients
    for silent ones when it goes on, although what they sent lies in the sockets.
    """

    def __init__(self) -> None:
        self._watch = _Watch()
        super().__init__(self._watch)

    def time(self) -> float:
        """Seconds in which clients could be heard."""
        return super().time() - self._watch.stood_still_s


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody else heard of; connections that cannot be accepted are tried again each second, and told once."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in files.NO_DESCRIPTOR:
        files.tell_no_descriptor()
    else:
        loop.default_exception_handler(context)


def run_until(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in such a loop, with a bounded number of threads."""

    async def bounded() -> None:
        executor = ThreadPoolExecutor(THREADS, thread_name_prefix="kts-broker")
        loop = asyncio.get_running_loop()
        loop.set_default_executor(executor)
        loop.set_exception_handler(_tell)
        await main

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(bounded())
