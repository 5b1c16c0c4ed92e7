"""A broker's clock that a test can stop and move."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from kts.arguments import INT64_MAX, INT64_MIN, integer
from kts.segment.locks import new_in_children
from kts.times import wall_clock

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def time_ms(name: str, time: int | datetime) -> int:
    """A time in ms since the epoch.

    Raises
    ------
    TypeError, ValueError
        Neither an int nor a datetime; a datetime without a time zone.
    """
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError(f"{name}: expected ms since the epoch or a datetime with a time zone, found {time!r}")
        return (time - _EPOCH) // _MS
    return integer(name, time, INT64_MIN, INT64_MAX)


class Clock:
    """Returns ms since the epoch: the wall clock until it is set or advanced, then a fixed time.

    Parameters
    ----------
    time : int or datetime, optional
        Ms since the epoch or a datetime with a time zone; None follows the wall clock.
    """

    def __init__(self, time: int | datetime | None = None) -> None:
        self._lock: threading.Lock
        new_in_children(self, _lock=threading.Lock)
        self._time: int | None = None
        self.set(time)

    def __call__(self) -> int:
        time = self._time
        return wall_clock() if time is None else time

    @property
    def stands_still(self) -> bool:
        """Whether it was set or advanced, and so is fixed."""
        return self._time is not None

    def set(self, time: int | datetime | None) -> None:
        """Stop at a time, which may be earlier; None follows the wall clock again."""
        stopped = None if time is None else time_ms("time", time)
        if stopped is not None and stopped < 0:
            raise ValueError(f"time: expected a time since 1970, found {time!r}")
        with self._lock:
            self._time = stopped

    def advance(self, by: int | timedelta) -> int:
        """Advance, from the current time if the clock follows the wall clock.

        Parameters
        ----------
        by : int or timedelta
            At least 0 ms.

        Returns
        -------
        int
            The new time.
        """
        step = by // _MS if isinstance(by, timedelta) else integer("by", by, -INT64_MAX, INT64_MAX)
        if step < 0:
            raise ValueError(f"by: expected 0 or more, found {by!r}; set() goes back")
        with self._lock:
            now = self()
            if now + step > INT64_MAX:
                raise ValueError(f"by: expected a time below 2^63 ms, found {now} + {step}")
            self._time = now + step
            return self._time
