"""Limits for all connections: their number, memory for large requests, turns of pipelined requests."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

STALLED_S = 0.25  # an incomplete request of this age is dropped if memory is short
TURNS_AT_ONCE = 16  # pipelined requests in each round of the event loop


class LimitedConnection(Protocol):
    """The methods of a connection that the limits call."""

    def drop(self, reason: str) -> None:
        """Close the connection at once."""

    def resume(self) -> None:
        """Memory may be available again."""


class Places:
    """The number of connections, in total and per address.

    If there are too many, the oldest connection that never sent a request is dropped for a new one.
    """

    def __init__(self, most: int, most_of_one_address: int) -> None:
        self.most = most
        self.most_of_one_address = most_of_one_address
        self._of_address: Counter[str] = Counter()
        self._silent: dict[LimitedConnection, None] = {}
        self._count = 0

    def enter(self, connection: LimitedConnection, address: str) -> str | None:
        """Take a place; returns the reason if there is none."""
        if self._of_address[address] >= self.most_of_one_address:
            return f"max.connections.per.ip = {self.most_of_one_address} connections are open from {address}"
        if self._count >= self.most:
            if not self._silent:
                return f"max.connections = {self.most} connections are open"
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.drop("another connection needs its place, and it never sent a request")
        self._count += 1
        self._of_address[address] += 1
        self._silent[connection] = None
        return None

    def spoke(self, connection: LimitedConnection) -> None:
        """The connection sent a request."""
        self._silent.pop(connection, None)

    def leave(self, connection: LimitedConnection, address: str) -> None:
        """The connection is closed."""
        self._silent.pop(connection, None)
        self._count -= 1
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]


class Memory:
    """The bytes of large requests of all connections, from the first byte until the answer.

    Above the limit, stalled incomplete requests are dropped, the oldest first, and connections that need more wait.
    As in Kafka, 0 and -1 are no limit.
    """

    def __init__(self, most: int, now: Callable[[], float]) -> None:
        self.most = most if most > 0 else math.inf
        self.used = 0
        self._now = now
        self._held: dict[LimitedConnection, int] = {}
        self._unfinished: dict[LimitedConnection, float] = {}  # since when, oldest first
        self._waiting: dict[LimitedConnection, None] = {}

    @property
    def is_short(self) -> bool:
        """Whether the limit is reached."""
        return self.used >= self.most

    def hold(self, holder: LimitedConnection, count: int, finished: bool) -> bool:
        """Set the bytes that a connection holds; False if it has to wait for more."""
        self.used += count - self._held.get(holder, 0)
        if count:
            self._held[holder] = count
        else:
            self._held.pop(holder, None)
        if finished or not count:
            self._unfinished.pop(holder, None)
        else:
            self._unfinished.setdefault(holder, self._now())
        if self.used <= self.most:
            self._wake()
            return True
        if finished or self.relieve():
            return True
        self._waiting[holder] = None
        return False

    def relieve(self) -> bool:
        """Drop stalled requests until there is enough memory; returns whether there is."""
        now = self._now()
        while self.used > self.most and self._unfinished:
            oldest, since = next(iter(self._unfinished.items()))
            if now - since < STALLED_S:
                break
            self.release(oldest)
            oldest.drop("its request stalled while memory was short (queued.max.request.bytes)")
        if self.used <= self.most:
            self._wake()
        return self.used <= self.most

    def release(self, holder: LimitedConnection) -> None:
        """The connection holds nothing any more."""
        self._waiting.pop(holder, None)
        if holder in self._held:
            self.hold(holder, 0, True)

    def _wake(self) -> None:
        while self._waiting and self.used <= self.most:
            holder = next(iter(self._waiting))
            del self._waiting[holder]
            holder.resume()


class PipelineQueue:
    """A queue of connections that pipeline requests, so that other connections are served in between."""

    def __init__(self) -> None:
        self._queue: deque[asyncio.Future[None]] = deque()
        self._running = False

    async def wait(self) -> None:
        """Wait for the caller's turn: the next round of the event loop if no other connection waits."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._queue.append(turn)
        if not self._running:
            self._running = True
            loop.call_soon(self._go_round)
        await turn

    def _go_round(self) -> None:
        given = 0
        while self._queue and given < TURNS_AT_ONCE:
            turn = self._queue.popleft()
            if not turn.done():  # its connection may be closed
                turn.set_result(None)
                given += 1
        if self._queue:
            asyncio.get_running_loop().call_soon(self._go_round)
        else:
            self._running = False
