"""Long polls: requests that wait for changes of partitions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Self

from kts.broker.topics.partition import Partition


class Watch:
    """Waits until one of some partitions changes: an append, a new high watermark, a deletion. A context manager.

    Notes
    -----
    Any thread may change a partition; the watch belongs to the event loop that created it. After a change between two
    calls of ``wait`` the second one returns at once.

    Source: DelayedOperationPurgatory, DelayedFetch (3.9).
    """

    def __init__(self, partitions: Iterable[Partition]) -> None:
        self._partitions = list(partitions)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._changed = asyncio.Event()
        self._woken = False

    def __enter__(self) -> Self:
        for partition in self._partitions:
            partition.on_change.add(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for partition in self._partitions:
            partition.on_change.discard(self._note)

    def _note(self) -> None:
        """Called by a partition, in any thread, possibly after the event loop has ended."""
        if self._woken:
            return
        self._woken = True
        if threading.get_ident() == self._thread:
            self._changed.set()
        elif not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._changed.set)
            except RuntimeError:  # closed meanwhile
                return

    async def wait(self, seconds: float) -> bool:
        """Wait for a change; returns False after a timeout."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        self._woken = False
        return True
