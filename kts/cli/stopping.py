"""Ctrl-C and SIGTERM for a command that runs until it is stopped, and closes what it has open cleanly."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .codes import INTERRUPTED, TERMINATED


class Stop:
    """Keeps the signal until all is whole; a second one interrupts at once.

    Parameters
    ----------
    interruptible : callable
        Whether nothing is lost if the signal interrupts what is done right now.

    Attributes
    ----------
    code : int or None
        The exit code that the signal asks for; None until it came.
    """

    def __init__(self, interruptible: Callable[[], bool]) -> None:
        self.code: int | None = None
        self._interruptible = interruptible

    def _came(self, number: int, frame: object) -> None:
        again = self.code is not None
        self.code = INTERRUPTED if number == signal.SIGINT else TERMINATED
        if again or self._interruptible():
            raise SystemExit(self.code)

    @contextmanager
    def instead_of_interrupting(self) -> Iterator[None]:
        """Take both signals while in here."""
        before: dict[int, Any] = {}
        try:
            for number in (int(signal.SIGINT), int(signal.SIGTERM)):
                try:
                    before[number] = signal.signal(number, self._came)
                except ValueError:  # not the main thread
                    break
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def sleep(self, seconds: float) -> None:
        """Sleep, but not through a signal."""
        until = time.monotonic() + seconds
        while self.code is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
