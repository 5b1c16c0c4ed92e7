"""One client connection: its requests in order, and its limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from kts.broker.request import ConnectionClose, Peer
from kts.broker.wire import Chunk, api_key_of
from kts.broker.wire.messages import ApiKey
from kts.errors import KtsError
from kts.server.framing import LEAST_BUFFER, Framing
from kts.server.limits import Memory, PipelineQueue, Places
from kts.server.sending import Sender

log = logging.getLogger("kts.broker")

# These may wait long for others; they are cancelled when the client disconnects or the server stops.
WAITING = frozenset((ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))
SLOWEST_BYTES = 1 << 20  # each time this many bytes of a request have arrived, its timeout is extended

Answer = Callable[[memoryview, Peer], Awaitable[list[Chunk] | None]]


class Shared(NamedTuple):
    """The objects and limits that all connections of a server share."""

    answer: Answer
    limit: Callable[[int], int]
    scratch: memoryview
    places: Places
    memory: Memory
    pipelined: PipelineQueue
    idle_s: float
    request_s: float  # to receive the rest of a request, and to send an answer
    connections: dict[ServerConnection, None]


class ServerConnection(asyncio.BufferedProtocol):
    """The protocol of one connection.

    While a request is in progress, at most one more is received; then reading pauses.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._framing = Framing(shared.scratch, shared.limit)
        self._transport: asyncio.Transport | None = None
        self._sender: Sender | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._doing: int | None = None  # the API key of the request in progress
        self._frame_bytes = 0  # of the large request in progress
        self._paused = False
        self._closing = False
        self._gone = False  # the client disconnected; its whole requests are still handled
        self._spoken = False
        self._active = self._loop.time()
        self._unfinished_since: float | None = None
        self.peer = Peer()

    # --- callbacks of asyncio -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, or close the connection."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"expected a stream, found {type(transport).__name__}")
        self._transport = transport
        remote, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if remote is None or local is None:  # it disconnected already
            transport.abort()
            return
        self.peer = Peer(str(remote[0]), (str(local[0]), int(local[1])))
        refused = self._shared.places.enter(self, self.peer.host)
        if refused is not None:
            log.info("connection from %s refused: %s", self.peer.host, refused)
            transport.abort()
            return
        self._sender = Sender(transport, self._loop)
        self._shared.connections[self] = None
        self._task = self._loop.create_task(self._serve(self._sender))

    def connection_lost(self, error: Exception | None) -> None:
        """Release everything. Requests that wait for others are cancelled; the rest is finished.

        Notes
        -----
        A producer with acks 0 may disconnect as soon as it has sent. Source: Selector, CloseMode.GRACEFUL.
        """
        shared = self._shared
        self._gone = True
        if self in shared.connections:
            del shared.connections[self]
            shared.places.leave(self, self.peer.host)
            shared.memory.release(self)
        if self._sender is not None:
            self._sender.lost()
        self._rouse()
        idle = self._doing is None and (self._closing or not self._framing.whole)
        if self._task is not None and (idle or self._doing in WAITING):
            self._task.cancel()
            self._task = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer to receive into."""
        buffer = self._framing.buffer()
        return buffer[:LEAST_BUFFER] if self._shared.memory.is_short else buffer

    def buffer_updated(self, count: int) -> None:
        """``count`` bytes were received."""
        framing = self._framing
        framing.received(count)
        self._active = self._loop.time()
        if self._wake is not None:
            self._rouse()
        elif framing.whole:
            self._pause()
        if framing.held_bytes:
            self._account()

    def eof_received(self) -> bool:
        """The client sends no more, and waits for no answers."""
        return False

    def pause_writing(self) -> None:
        """The send buffer is full."""
        if self._sender is not None:
            self._sender.pause()

    def resume_writing(self) -> None:
        """The send buffer has room."""
        if self._sender is not None:
            self._sender.resume()

    # --- one request after the other --------------------------------------------------------------

    async def _serve(self, sender: Sender) -> None:
        try:
            await self._answer_all(sender)
        except ConnectionClose as wish:
            log.info("connection from %s closed: %s", self.peer.host, wish)
        except KtsError as error:
            log.info("connection from %s closed, error %d: %s", self.peer.host, error.code, error)
        except (ConnectionError, TimeoutError):
            pass
        except Exception:  # a bug closes this connection only
            log.exception("connection from %s closed", self.peer.host)
        finally:
            self._closing = True
            self._task = None  # a reference to the task would keep its frames and the answer alive
            if self._gone:
                self._shared.memory.release(self)
            if self._transport is not None:
                self._transport.close()

    async def _answer_all(self, sender: Sender) -> None:
        framing, shared = self._framing, self._shared
        while not self._closing:
            frame = framing.frame()
            if frame is None:
                if self._gone:
                    return
                await self._more()
                continue
            self._unfinished_since = None
            if not self._spoken:
                self._spoken = True
                shared.places.spoke(self)
            self._doing = api_key_of(frame)
            large = len(frame) > len(shared.scratch)
            if large:
                self._frame_bytes = len(frame)
                self._account()
            try:
                chunks = await shared.answer(frame, self.peer)
            finally:
                self._doing = None
                frame = None
                if large:
                    self._frame_bytes = 0
                    self._account()
            if chunks and not sender.is_lost:
                with suppress(ConnectionError):  # it may have sent more before it disconnected
                    await sender.send(chunks)
            chunks = None  # ranges hold files open
            self._active = self._loop.time()
            if framing.waiting and framing.whole:
                await shared.pipelined.wait()

    async def _more(self) -> None:
        """Wait until more bytes arrive."""
        if self._framing.waiting:
            if self._unfinished_since is None:
                self._unfinished_since = self._loop.time()
            if not self._account():
                self._pause()
            else:
                self._resume()
        else:
            self._resume()
        self._wake = self._loop.create_future()
        await self._wake

    def _rouse(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)

    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # --- limits ----------------------------------------------------------------------------

    def _account(self) -> bool:
        held = self._framing.held_bytes
        enough = self._shared.memory.hold(self, held + self._frame_bytes, finished=not held)
        if not enough:
            self._pause()
        return enough

    def resume(self) -> None:
        """Memory may be available again."""
        if not self._framing.whole:
            self._resume()

    def drop(self, reason: str) -> None:
        """Close the connection at once; unsent data is lost."""
        log.info("connection from %s dropped: %s", self.peer.host, reason)
        self._abort()

    def _abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
        if self._task is not None:
            self._task.cancel()

    def look(self, now: float) -> None:
        """Drop the connection if it was idle, stalled or unread for too long."""
        shared, since = self._shared, self._unfinished_since
        if self._sender is not None and self._sender.stalled_s(now) > shared.request_s:
            self.drop("the client does not read its answers")
        elif since is not None and self._framing.waiting and not self._paused:
            allowed = shared.request_s * (1 + self._framing.filled_bytes / SLOWEST_BYTES)
            if now - since > allowed:
                self.drop(f"the rest of a request did not arrive within {allowed:.0f} s")
        elif now - self._active > shared.idle_s and (self._doing is None or self._doing in WAITING):
            self.drop("connections.max.idle.ms")

    def finish(self) -> asyncio.Task[None] | None:
        """Close the connection after the request in progress; returns the task to wait for."""
        self._closing = True
        if self._task is None or self._task.done():
            return None
        with suppress(RuntimeError):  # the transport may be closing
            self._pause()
        if self._doing is None or self._doing in WAITING:
            self._task.cancel()
        return self._task
