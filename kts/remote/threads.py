"""Threads for requests: nobody waits for one of them longer than a limit, and no program at its end."""

from __future__ import annotations

import atexit
import concurrent.futures
import errno
import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from kts.store.protocol import Result

SLOWEST_BYTES = 2**16  # a second: what is sent slower than this is an error, too
END_S = 5.0  # a program that ends waits no longer for calls under way

_under_way = set[Future[Any]]()


class Threads:
    """Runs calls in daemon threads, which are made when there is no idle one.

    Parameters
    ----------
    most : int, optional
        How many there are at most. None is one for each call under way.
    """

    def __init__(self, name: str, most: int | None = None) -> None:
        self._name, self._most = name, most
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._count = 0

    def submit(self, work: Callable[..., Result], *given: Any) -> Future[Result]:
        """Call a function in a thread."""
        future: Future[Result] = Future()
        self._calls.put((future, work, given))
        if not self._idle.acquire(blocking=False):
            with self._lock:
                if self._most is not None and self._count >= self._most:
                    return future
                self._count += 1
            threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            future, work, given = self._calls.get()
            if future.set_running_or_notify_cancel():
                _under_way.add(future)
                try:
                    future.set_result(work(*given))
                except BaseException as error:
                    future.set_exception(error)
                _under_way.discard(future)
            del future, work, given  # else they live until the next call
            self._idle.release()


class Limit:
    """Waits for calls of a library no longer than a limit, whatever it does itself.

    A call that takes longer is left to its thread: no library can be made to give up.

    Parameters
    ----------
    seconds : float
        For each call, with all that the library tries again; and one more for each ``SLOWEST_BYTES`` that are sent.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def wait(self, call: Future[Result], sent: Callable[[], int] = lambda: 0) -> Result:
        """The result of a call that is under way, or about to be.

        Parameters
        ----------
        sent : callable
            The bytes that were sent so far.

        Raises
        ------
        TimeoutError
            It takes too long.
        """
        began = time.monotonic()
        while True:
            left = began + self._seconds + sent() / SLOWEST_BYTES - time.monotonic()
            try:
                return call.result(max(left, 0))
            except TimeoutError:
                if call.done():  # just now, or it is the library's own
                    return call.result()
                if left <= 0:
                    raise TimeoutError(
                        errno.ETIMEDOUT, f"no answer within {self._seconds:g} s (storage option time_limit)"
                    ) from None


@functools.cache
def leave_at_end(finish: Callable[[], None]) -> None:
    """Let no program wait at its end for a library that waits there, in ``finish``, for all calls under way.

    Parameters
    ----------
    finish : callable
        What the library registered with ``atexit``.
    """

    def leave() -> None:
        if concurrent.futures.wait(tuple(_under_way), END_S).not_done:
            atexit.unregister(finish)

    atexit.register(leave)
