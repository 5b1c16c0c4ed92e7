"""Waiting for an event, with a limit that no busy machine reaches."""

from __future__ import annotations

import time
from collections.abc import Callable

from support.golden import PATIENCE_S


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    """Poll until it holds; a test that waits in vain says for what."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {PATIENCE_S:.0f} s in vain: {what}")
        time.sleep(0.01)
