"""Files that wait for their deletion: renamed at once, removed when ``file.delete.delay.ms`` is over."""

from __future__ import annotations

from collections.abc import Callable

NEVER = 2**63 - 1


class Doomed:
    """What is to be removed, and when; whatever is left when the process ends goes at the next start.

    Attributes
    ----------
    due_ms : int
        When the next of it is due.

    Notes
    -----
    There is no thread: the log asks with each call.
    """

    def __init__(self) -> None:
        self.due_ms = NEVER
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def add(self, due_ms: int, remove: Callable[[], None]) -> None:
        """Have something removed from a time on."""
        self._waiting.append((due_ms, remove))
        self.due_ms = min(self.due_ms, due_ms)

    def sweep(self, now_ms: int) -> None:
        """Remove what is due."""
        due = [remove for when, remove in self._waiting if when <= now_ms]
        self._waiting = [one for one in self._waiting if one[0] > now_ms]
        self.due_ms = min((when for when, _ in self._waiting), default=NEVER)
        for remove in due:
            remove()
