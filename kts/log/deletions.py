"""Files that wait for their deletion: renamed at once, removed after ``file.delete.delay.ms``."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class DeletionQueue:
    """Files to remove, and when. Files that are left when the process ends are removed at the next start.

    Notes
    -----
    The queue has no thread: the log calls it. If the clock is put back, nothing waits longer than its delay.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._number = count()
        self._latest_ms = -(2**63)  # when something was last added or removed
        self._put_back_ms = 0  # the sum of all steps back of the clock

    def add(self, now_ms: int, delay_ms: int, remove: Callable[[], None]) -> None:
        """Call ``remove`` when a delay is over."""
        heappush(self._waiting, (self._passed_ms(now_ms) + delay_ms, next(self._number), remove))

    def is_due(self, now_ms: int) -> bool:
        """Whether ``sweep`` has something to do."""
        waiting = self._waiting
        return bool(waiting) and (waiting[0][0] <= now_ms + self._put_back_ms or now_ms < self._latest_ms)

    def sweep(self, now_ms: int) -> None:
        """Remove what is due."""
        passed_ms = self._passed_ms(now_ms)
        due = []
        while self._waiting and self._waiting[0][0] <= passed_ms:
            due.append(heappop(self._waiting)[2])
        for remove in due:
            remove()

    def _passed_ms(self, now_ms: int) -> int:
        """A time that never goes back."""
        self._put_back_ms += max(self._latest_ms - now_ms, 0)
        self._latest_ms = now_ms
        return now_ms + self._put_back_ms
