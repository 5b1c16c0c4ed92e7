"""A broker behind a socket: ``Server`` in your event loop, ``ServerThread`` in its own thread and loop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import threading
from collections.abc import Coroutine
from typing import Any, Self

from kts.broker.broker import Broker
from kts.broker.handlers import handle
from kts.broker.request import Request
from kts.broker.settings.broker import BrokerConfig
from kts.errors import InvalidRequestError
from kts.server.background import tend
from kts.server.connection import ServerConnection, Shared
from kts.server.dispatch import Answering, frame_limit
from kts.server.event_loop import run_until
from kts.server.framing import SCRATCH_BYTES
from kts.server.limits import Memory, PipelineQueue, Places
from kts.store import descriptors

log = logging.getLogger("kts.broker")

DEFAULT_PORT = 9092
CONNECTIONS = 10_000  # if max.connections is not set
LOOK_S = 0.25  # interval of the checks for stalled connections
FINISH_S = 5.0  # for requests in progress when the server stops
OWN_DESCRIPTORS = 64  # for other files than connections and open logs, and for ranges being sent
BACKLOG = 1024  # connections that wait to be accepted
ACCEPTED_AT_ONCE = 8  # without free descriptors, asyncio fails this often per round


class Server:
    """Serve a broker on one address. An asynchronous context manager.

    Parameters
    ----------
    broker : Broker
        It stays open when the server stops.
    host, port : str, int
        Where to listen. Port 0 means any free port.
    insecure : bool
        Allow an address that other machines reach.

    Raises
    ------
    InvalidRequestError
        The address is not a loopback address.
    OSError
        The address is not available.
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
        """Listen; returns the address with the actual port."""
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
        """Listen on all addresses of the host, with one port."""
        host, port = self.address
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for address in dict.fromkeys(each[4] for each in found):
            self._listening.append(
                await loop.create_server(
                    lambda: ServerConnection(shared), str(address[0]), port, backlog=ACCEPTED_AT_ONCE
                )
            )
            with self._listening[-1].sockets[0].dup() as listening:
                listening.listen(BACKLOG)
            port = port or self._listening[0].sockets[0].getsockname()[1]
        return host, port

    async def stop(self) -> None:
        """Stop listening, answer the requests in progress, and close all connections."""
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
    """``max.connections``, at most as many as there are descriptors."""
    wanted: int = config.max_connections if "max.connections" in config.static else CONNECTIONS
    return min(wanted, allowed_descriptors())


def allowed_descriptors() -> int:
    """How many connections the process may have besides its files."""
    most = descriptors.most_descriptors()
    quarter = most // 4  # for logs
    return most - quarter - min(OWN_DESCRIPTORS, quarter)


class ServerThread:
    """A server in its own thread and event loop. A context manager.

    Parameters
    ----------
    broker, host, port, insecure
        As in ``Server``.
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
        """Listen; returns the address once clients can connect."""
        if self._thread is not None:
            raise RuntimeError("the server is running already")
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
        """Stop the server and wait for it. A second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stop is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop may have ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()

    def handle(self, request: Request, timeout_s: float | None = None) -> dict[str, Any] | None:
        """Answer a request from inside the process, in the server's event loop."""
        reply: dict[str, Any] | None = self.run(handle(self.broker, request), timeout_s)
        return reply

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        """Run a coroutine in the server's event loop and return its result."""
        if self._loop is None or self._thread is None:
            coroutine.close()
            raise RuntimeError("the server is not running")
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


def is_loopback(host: str) -> bool:
    """Whether a name or address reaches only this machine."""
    if not host:
        return False
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(str(each[4][0]).partition("%")[0]).is_loopback for each in found)


def check_address(host: str, insecure: bool, option: str = "insecure=True") -> None:
    """Refuse an address that other machines can reach: there is neither TLS nor SASL.

    Parameters
    ----------
    option : str
        What the caller calls ``insecure``.

    Raises
    ------
    InvalidRequestError
        The address is not a loopback address.
    """
    if not insecure and not is_loopback(host):
        raise InvalidRequestError(
            f"expected a loopback address such as 127.0.0.1, found {host or 'all addresses'}: everybody who reaches it"
            f" could read, write and delete, since there is neither encryption nor a password; {option} allows it"
        )
