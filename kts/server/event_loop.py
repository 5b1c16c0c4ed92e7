"""The event loop of a server. Its clock stops while the process is stopped."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kts.store import descriptors

THREADS = 8
STOOD_STILL_S = 1.0  # a longer pause counts as stopped time


class _Watch(selectors.DefaultSelector):
    """The selector of an event loop. It counts the time in which the process was stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.stood_still_s = 0.0
        self._since: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events. A wait that is far too long, or such a pause before it, counts as stopped time."""
        before = time.monotonic()
        found = super().select(timeout)
        now = time.monotonic()
        busy_s = before - self._since if self._since is not None else 0.0
        late_s = now - before - timeout if timeout is not None else 0.0
        self.stood_still_s += sum(each for each in (busy_s, late_s) if each > STOOD_STILL_S)
        self._since = now
        return found


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock stops while the process is stopped.

    A stopped process (SIGSTOP, a debugger, a frozen container) reads nothing. With a normal clock it would treat all
    clients as silent when it continues, although their requests wait in the sockets.
    """

    def __init__(self) -> None:
        self._watch = _Watch()
        super().__init__(self._watch)

    def time(self) -> float:
        """Seconds in which the process was running."""
        return super().time() - self._watch.stood_still_s


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report unhandled errors. A connection that cannot be accepted is retried each second, and reported once."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in descriptors.NO_DESCRIPTOR:
        descriptors.tell_no_descriptor()
    else:
        loop.default_exception_handler(context)


def run_until(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a ``Loop`` with a bounded number of threads."""

    async def bounded() -> None:
        executor = ThreadPoolExecutor(THREADS, thread_name_prefix="kts-broker")
        loop = asyncio.get_running_loop()
        loop.set_default_executor(executor)
        loop.set_exception_handler(_tell)
        await main

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(bounded())
