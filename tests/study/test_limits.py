"""Limits of CreateTime: the least that accept nearly all messages, and what given ones refuse."""

from __future__ import annotations

import numpy as np

from kts.config import DAY_MS, HOUR_MS
from kts.study.limits import Limits

ARRIVAL = np.arange(1000) * HOUR_MS
NOTHING = np.zeros(1000, np.int64)


def test_one_message_in_a_hundred_may_be_refused() -> None:
    for wrong, expected in ((10, HOUR_MS), (11, 5 * DAY_MS)):
        limits = Limits()
        late = np.where(np.arange(1000) < wrong, 5 * DAY_MS, 0)
        limits.add(ARRIVAL - late, ARRIVAL, NOTHING)
        assert limits.before_ms() == expected
        assert limits.refused(expected, None) == (wrong if expected == HOUR_MS else 0)
        assert limits.after_ms() == HOUR_MS and limits.refused(None, HOUR_MS) == 0


def test_what_a_file_is_later_than_its_messages_counts_as_their_lateness() -> None:
    limits = Limits()
    limits.add(ARRIVAL, ARRIVAL, NOTHING + DAY_MS + 1)
    assert (limits.before_ms(), limits.before_in_order_ms()) == (25 * HOUR_MS, HOUR_MS)
    assert limits.refused(24 * HOUR_MS, None) == 1000 and limits.refused(25 * HOUR_MS, None) == 0


def test_a_file_earlier_than_its_messages_shows_that_they_were_early() -> None:
    limits = Limits()
    limits.add(ARRIVAL, ARRIVAL, NOTHING - 5 * HOUR_MS)
    assert (limits.before_ms(), limits.after_ms()) == (HOUR_MS, 5 * HOUR_MS)


def test_beyond_a_year_there_is_no_limit() -> None:
    limits = Limits()
    limits.add(ARRIVAL - 400 * DAY_MS, ARRIVAL, NOTHING)
    limits.add(ARRIVAL + 400 * DAY_MS, ARRIVAL, NOTHING)
    assert limits.before_ms() is None and limits.after_ms() is None
    assert limits.refused(366 * DAY_MS, 366 * DAY_MS) == 2000
