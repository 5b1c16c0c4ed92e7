"""A readers-writer lock: appends do not block readers; truncation, close and deletion do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadersWriterLock:
    """Entered by any number of readers at a time; ``excluded`` keeps them out.

    Notes
    -----
    Appends need no exclusion: they write after the published end. A waiting writer goes before readers that arrive
    later. A thread must not enter the lock twice.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reading = 0
        self._waiting = 0

    def __enter__(self) -> None:
        with self._changed:
            while self._waiting:
                self._changed.wait()
            self._reading += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._reading -= 1
            if self._waiting and not self._reading:
                self._changed.notify_all()

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Wait until no reader is left, and keep new ones out; one writer at a time."""
        with self._changed:
            self._waiting += 1
            while self._reading:
                self._changed.wait()
            try:
                yield
            finally:
                self._waiting -= 1
                self._changed.notify_all()
