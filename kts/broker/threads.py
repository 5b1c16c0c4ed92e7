"""How handlers share the event loop: long work goes to a thread, long lists give way to other requests."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from kts.broker.topics.partition import Partition
from kts.errors import KtsError
from kts.segment.locks import new_in_children

TIME_SLICE_S = 0.005
P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a thread. A cancelled caller still waits for its end.

    Notes
    -----
    A thread cannot be stopped, and it may use a buffer that the caller releases when this returns.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as error:
            if work.cancelled():
                raise
            cancelled = error
        except Exception:
            if cancelled is None:
                raise
    if cancelled is not None:
        if not work.cancelled():
            work.exception()  # mark the exception as retrieved
        raise cancelled
    return work.result()


async def opened(partitions: Iterable[Partition]) -> None:
    """Open the logs of partitions on their first use, in a thread, since some have to be recovered.

    Notes
    -----
    A partition that cannot be opened is offline; its requests get the error.
    """
    closed = [one for one in partitions if not (one.is_open or one.is_offline)]
    if closed:
        await in_thread(_open, closed)


def _open(partitions: list[Partition]) -> None:
    for one in partitions:
        with suppress(KtsError):
            _ = one.log


class TimeSlice:
    """Lets other requests run when a loop over a request's elements has used its time.

    Notes
    -----
    A request may name 200,000 partitions. One of them needs no thread, all of them together would block the event loop
    for seconds.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + TIME_SLICE_S

    async def give_way(self) -> None:
        """Let others run if the time is used up; to be called before each element."""
        if self._loop.time() >= self._until:
            await asyncio.sleep(0)
            self._until = self._loop.time() + TIME_SLICE_S


class InFlight:
    """Counts the calls under way in threads, by the object that they work on."""

    def __init__(self) -> None:
        self._lock: threading.Lock
        new_in_children(self, _lock=threading.Lock)
        self._count: Counter[int] = Counter()

    def __contains__(self, thing: object) -> bool:
        return id(thing) in self._count

    @contextmanager
    def one(self, thing: object) -> Iterator[None]:
        """Count one call on ``thing`` while the block runs."""
        key = id(thing)
        with self._lock:
            self._count[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._count[key] -= 1
                if not self._count[key]:
                    del self._count[key]
