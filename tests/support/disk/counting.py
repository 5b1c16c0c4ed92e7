"""What the file system is asked for: calls, names that are listed, bytes read and written, descriptors held."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from support.disk.scripted_lives import in_place_of_os


class CountingOs:
    """Stands in for ``kts.store.local.os``, and counts.

    Attributes
    ----------
    count : Counter
        Calls by name, and "names listed", "bytes read", "bytes written", "most descriptors".
    """

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self._open: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._counted(name, found) if callable(found) and not isinstance(found, type) else found

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.count[name] += 1
            result = function(*arguments, **keywords)
            if name == "scandir":
                with function(*arguments) as entries:
                    self.count["names listed"] += sum(1 for _ in entries)
            elif name == "listdir":
                self.count["names listed"] += len(result)
            elif name in ("open", "dup"):
                self._open.add(result)
                self.count["most descriptors"] = max(self.count["most descriptors"], len(self._open))
            elif name == "close":
                self._open.discard(arguments[0])
            elif name == "pread":
                self.count["bytes read"] += len(result)
            elif name == "preadv":
                self.count["bytes read"] += result
            elif name == "pwrite":
                self.count["bytes written"] += result
            return result

        return call


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Counts what is asked for meanwhile."""
    system = CountingOs()
    with in_place_of_os(system):
        yield system.count


def more_than_linear(small: Counter[str], large: Counter[str], times: int) -> dict[str, tuple[int, int]]:
    """What ``times`` as much took more than ``times`` as often, and a little."""
    return {what: (small[what], count) for what, count in large.items() if count > times * small[what] * 1.1 + 2}
