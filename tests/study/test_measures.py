"""The figures: quantiles in bounded memory, and sums that do not depend on chunks."""

from __future__ import annotations

import numpy as np
import pytest

from kts.config import HOUR_MS
from kts.study.measures import Figures, Spread
from kts.study.rules import EARLIEST, LOG_APPEND_TIME
from kts.study.workloads import MessageStream, Settings, streams


def test_a_quantile_is_right_within_one_percent_at_any_size() -> None:
    rng = np.random.default_rng(5)
    lengths = np.concatenate([rng.integers(-(10**6), 10**6, 5000), rng.integers(0, 2**62, 5000), [0, -(2**62)]])
    spread = Spread()
    for part in np.array_split(lengths, 7):
        spread.add(part)
    ordered = np.sort(lengths)
    for share in (0.01, 0.2, 0.5, 0.77, 0.99):
        exact = int(ordered[int(np.ceil(share * len(ordered))) - 1])
        assert spread.quantile(share) == pytest.approx(exact, rel=0.011, abs=2)
    assert (spread.least, spread.greatest) == (ordered[0], ordered[-1])
    assert spread.below_zero() == pytest.approx((lengths < 0).mean())


def test_nothing_counted_has_no_quantile() -> None:
    assert Spread().as_object() == {"least": None, "median": None, "p90": None, "p99": None, "greatest": None}


def test_figures_are_those_of_a_stream_that_can_be_counted_by_hand() -> None:
    settings = Settings(duration_ms=10 * HOUR_MS, roll_ms=4 * HOUR_MS, retention_ms=24 * HOUR_MS)
    (empty,) = streams("pattern 1", Settings(partitions=1, duration_ms=10 * HOUR_MS))
    start = int(empty.arrival_ms.min() // HOUR_MS) * HOUR_MS
    arrival = start + np.array([[0, 1, 2, 5, 6]]) * HOUR_MS
    create = arrival - np.array([[0, 0, 3, 0, 0]]) * HOUR_MS
    figures = Figures(LOG_APPEND_TIME, settings)
    figures.add(MessageStream(create, create, create, arrival, np.zeros((1, 5), np.int8)))
    found = figures.as_object()
    assert (found["segments"], found["messages"], found["segmentsOfOneMessage"]) == (2, 5, 0)
    assert found["segmentsPerHour"] == 0.2 and found["closedEarly"] == 0 and found["lateMessages"] == 0
    assert found["openMs"]["greatest"] == 5 * HOUR_MS
    by_time = Figures(EARLIEST, settings)
    by_time.add(MessageStream(create, create, create, arrival, np.zeros((1, 5), np.int8)))
    found = by_time.as_object()
    assert found["lateMessages"] == 1 and found["latenessMs"]["greatest"] == 2 * HOUR_MS
    assert found["segments"] == 2 and found["deletedAfterCreationMs"]["early"] == 0


def test_chunks_add_up_to_the_whole() -> None:
    settings = Settings(partitions=8)
    (stream,) = streams("pattern 3", settings)
    whole, parts = Figures(EARLIEST, settings), Figures(EARLIEST, settings)
    whole.add(stream)
    for rows in (slice(0, 3), slice(3, 8)):
        parts.add(MessageStream(*(times[rows] for times in stream)))
    assert whole.as_object() == parts.as_object()
