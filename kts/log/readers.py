"""Many may read while one appends; who cuts, closes or deletes waits until none reads, and then is alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Readers:
    """Entered by readers, any number at a time; ``alone`` is for what they must not see half done.

    Notes
    -----
    An append is not among that: it only adds behind what readers were told of. Whoever waits to be alone goes before
    readers that come later. Not to be entered twice by one thread.
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
    def alone(self) -> Iterator[None]:
        """Wait for the readers and keep new ones out; one at a time."""
        with self._changed:
            self._waiting += 1
            while self._reading:
                self._changed.wait()
            try:
                yield
            finally:
                self._waiting -= 1
                self._changed.notify_all()
