"""Limits of CreateTime, checked by playing them against the messages before they are advised."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from kts.config import HOUR_MS

if TYPE_CHECKING:
    from .workloads import Times

ACCEPTED = 0.99  # of the messages, by an advised limit
MOST_HOURS = 366 * 24  # a limit above a year limits nothing


class Limits:
    """How late and how early messages were when a broker got them, in whole hours.

    Notes
    -----
    The clock of the broker is not known: it is taken as the log's latest CreateTime so far, and what the segment's file
    is later than its last message.
    """

    def __init__(self) -> None:
        self._late: Counter[int] = Counter()
        self._in_order: Counter[int] = Counter()  # late by the log's order alone
        self._early: Counter[int] = Counter()
        self.count = 0

    def add(self, create_ms: Times, arrival_ms: Times, apart_ms: Times) -> None:
        """Count messages: how much later than its last ones the segment's file changed; below 0, earlier."""
        for found, apart in (
            (self._late, arrival_ms + np.maximum(apart_ms, 0) - create_ms),
            (self._in_order, arrival_ms - create_ms),
            (self._early, np.maximum(create_ms - arrival_ms, -apart_ms)),
        ):
            hours, counts = np.unique(np.maximum(-(-apart // HOUR_MS), 0), return_counts=True)
            found.update(dict(zip(hours.tolist(), counts.tolist(), strict=True)))
        self.count += len(create_ms)

    def before_ms(self) -> int | None:
        """The least whole hours that accept nearly all late messages; None if that is more than a year."""
        return self._least(self._late)

    def before_in_order_ms(self) -> int | None:
        """The same without what files' times say."""
        return self._least(self._in_order)

    def after_ms(self) -> int | None:
        """The same for early messages."""
        return self._least(self._early)

    def _least(self, found: Counter[int]) -> int | None:
        hours, beyond = 1, self.count - sum(found[hour] for hour in (0, 1))
        for hour in sorted(found):
            if beyond <= self.count * (1 - ACCEPTED):
                break
            if hour > 1:
                hours, beyond = hour, beyond - found[hour]
        return hours * HOUR_MS if hours <= MOST_HOURS else None

    def refused(self, before_ms: int | None, after_ms: int | None) -> int:
        """How many of the messages these limits refuse; None is no limit."""
        limits = ((self._late, before_ms), (self._early, after_ms))
        return sum(
            count for found, limit in limits if limit is not None
            for hour, count in found.items() if hour * HOUR_MS > limit
        )  # fmt: skip
