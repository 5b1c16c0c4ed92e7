"""Long lists of a request, worked on in turns with everybody else's."""

from __future__ import annotations

import asyncio

TURN_S = 0.005


class Turns:
    """Gives the event loop to others now and then.

    Notes
    -----
    A request may name 200,000 partitions; what it asks takes no thread, but together it would take seconds.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + TURN_S

    async def next(self) -> None:
        """To be called before each element."""
        if self._loop.time() >= self._until:
            await asyncio.sleep(0)
            self._until = self._loop.time() + TURN_S
