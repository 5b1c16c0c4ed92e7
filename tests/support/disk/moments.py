"""Acts between the calls of a reader to the operating system."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


class Moments:
    """Stands in for ``os`` where kts comes to the operating system, and acts before one of its calls, or several."""

    def __init__(self, moment: int, *acts: Callable[[], None]) -> None:
        self.calls, self.moment, self.acts, self.acting = 0, moment, acts, False

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("open", "stat", "scandir", "pread", "fstat") or self.acting:
            return real

        def call(*arguments: Any, **more: Any) -> Any:
            if 0 <= self.calls - self.moment < len(self.acts):
                self.acting = True
                self.acts[self.calls - self.moment]()
                self.acting = False
            self.calls += 1
            return real(*arguments, **more)

        return call
