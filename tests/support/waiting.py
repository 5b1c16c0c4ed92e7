"""Waiting for an event, with a limit that no busy machine reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from support.golden import PATIENCE_S


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    """Poll until it holds; a test that waits in vain says for what."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {PATIENCE_S:.0f} s in vain: {what}")
        time.sleep(0.01)


def wait_for_later_changes(path: Path) -> None:
    """Wait until what is written now has a later time of change than the file: a file system's clock ticks slowly."""
    beside = path.with_name(path.name + ".clock")

    def is_later() -> bool:
        beside.write_bytes(b"")
        return beside.stat().st_ctime_ns > path.stat().st_ctime_ns

    wait_until("the file system's clock moves on", is_later)
    beside.unlink()
