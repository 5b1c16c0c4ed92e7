"""The descriptors of this process: who keeps files open, and what happens when none is left."""

from __future__ import annotations

import errno
import logging
import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol


class Holder(Protocol):
    """An object that keeps files open between uses; any thread may call ``rest`` at any time."""

    def rest(self) -> None:
        """Release all descriptors until they are needed again."""


NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
DESCRIPTORS_OF_A_HOLDER = 3  # a log and its two indexes
_holders: deque[weakref.ref[Holder]] = deque()  # no lock: a fork could happen while another thread holds it
_told: list[bool] = []


def most_descriptors() -> int:
    """How many descriptors this process may open."""
    if sys.platform == "win32":
        return 1 << 14
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def most_holders() -> int:
    """How many holders in this process may keep their files open: together they use a quarter of the descriptors."""
    return max(most_descriptors() // (4 * DESCRIPTORS_OF_A_HOLDER), 1)


def keep_open(holder: Holder) -> None:
    """Register a holder that keeps files open; above the limit, the oldest holders close theirs."""
    _holders.append(weakref.ref(holder))
    most = most_holders()
    while len(_holders) > most and _rest_first():
        pass


def _rest_first() -> bool:
    try:
        holder = _holders.popleft()()
    except IndexError:
        return False
    if holder is not None:
        holder.rest()
    return True


def more_descriptors() -> str:
    """What to do when no descriptor is left."""
    return f"the limit is {most_descriptors()} open files, `ulimit -n` raises it"


def tell_no_descriptor() -> None:
    """Log once that no descriptor is left: the error itself may reach only a client."""
    if not _told:
        _told.append(True)
        logging.getLogger("kts").warning("no file or connection can be opened: %s", more_descriptors())


def with_descriptor(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that needs a descriptor; if none is left, close the holders' files and retry."""
    try:
        return call(*arguments)
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
    while _rest_first():
        pass
    return call(*arguments)
