"""What many connections share, and how much of it one may have: places, memory for unfinished requests, pipelined."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

STALLED_S = 0.25  # an unfinished request of this age gives way where memory is short
TURNS_AT_ONCE = 16  # requests that clients sent before they had read their answers, each time the loop comes round


class Holder(Protocol):
    """A connection, as far as its place and its memory go."""

    def drop(self, reason: str) -> None:
        """Close it at once."""

    def resume(self) -> None:
        """Memory may be there again."""


class Places:
    """How many connections there may be, in all and from one address.

    A connection that has not sent a single request gives its place to a new one, the oldest first.
    """

    def __init__(self, most: int, most_of_one_address: int) -> None:
        self.most = most
        self.most_of_one_address = most_of_one_address
        self._of_address: Counter[str] = Counter()
        self._silent: dict[Holder, None] = {}
        self._count = 0

    def enter(self, connection: Holder, address: str) -> str | None:
        """Give it a place, or say why there is none."""
        if self._of_address[address] >= self.most_of_one_address:
            return f"max.connections.per.ip = {self.most_of_one_address} connections are open from {address}"
        if self._count >= self.most:
            if not self._silent:
                return f"max.connections = {self.most} connections are open"
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.drop("its place is needed, and it never sent a request")
        self._count += 1
        self._of_address[address] += 1
        self._silent[connection] = None
        return None

    def spoke(self, connection: Holder) -> None:
        """It sent a request."""
        self._silent.pop(connection, None)

    def leave(self, connection: Holder, address: str) -> None:
        """It is closed."""
        self._silent.pop(connection, None)
        self._count -= 1
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]


class Memory:
    """Bytes in large requests, from their first byte until they are answered, over all connections.

    Where they are more than allowed, the oldest of the unfinished ones that stall are dropped, and whoever wants more
    waits.
    """

    def __init__(self, most: int, now: Callable[[], float]) -> None:
        self.most = most
        self.used = 0
        self._now = now
        self._held: dict[Holder, int] = {}
        self._unfinished: dict[Holder, float] = {}  # since when, oldest first
        self._waiting: dict[Holder, None] = {}

    @property
    def is_short(self) -> bool:
        """Whether no more should be taken than must be."""
        return self.used >= self.most

    def hold(self, holder: Holder, count: int, finished: bool) -> bool:
        """Note how much it holds now; False if it has to wait for more."""
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
        """Drop what stalls until there is enough; whether there is."""
        now = self._now()
        while self.used > self.most and self._unfinished:
            oldest, since = next(iter(self._unfinished.items()))
            if now - since < STALLED_S:
                break
            self.release(oldest)
            oldest.drop("its request stalls, and memory is short (queued.max.request.bytes)")
        if self.used <= self.most:
            self._wake()
        return self.used <= self.most

    def release(self, holder: Holder) -> None:
        """It holds nothing any more."""
        self._waiting.pop(holder, None)
        if holder in self._held:
            self.hold(holder, 0, True)

    def _wake(self) -> None:
        while self._waiting and self.used <= self.most:
            holder = next(iter(self._waiting))
            del self._waiting[holder]
            holder.resume()


class PipelineQueue:
    """A queue for those who send requests without waiting for answers: others are served in between."""

    def __init__(self) -> None:
        self._queue: deque[asyncio.Future[None]] = deque()
        self._running = False

    async def wait(self) -> None:
        """Until it is the caller's turn; at once, if nobody else waits, the next time the loop comes round."""
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
