"""The streams that the study plays have the latencies of KIP-32's patterns."""

from __future__ import annotations

import numpy as np
import pytest

from kts.config import DAY_MS, HOUR_MS
from kts.study.workloads import PATTERNS, START_MS, Settings, streams

SETTINGS = Settings(partitions=20)


def test_each_pattern_has_the_latencies_that_the_paper_gives_it() -> None:
    latencies = {}
    for pattern in PATTERNS:
        (stream,) = streams(pattern, SETTINGS)
        assert stream.arrival_ms.shape == (20, 336)
        assert (np.diff(stream.arrival_ms, axis=1) >= 0).all() and (stream.source_ms <= stream.arrival_ms).all()
        assert stream.arrival_ms.min() >= START_MS and stream.arrival_ms.max() < START_MS + SETTINGS.duration_ms
        latencies[pattern] = stream.arrival_ms - stream.created_ms
    assert latencies["pattern 1"].max() < 2000 and 90 < latencies["pattern 1"].mean() < 110
    assert latencies["pattern 2"].min() >= DAY_MS and latencies["pattern 2"].max() < DAY_MS + 60_000
    large = latencies["pattern 3"] >= DAY_MS
    assert (large.sum(axis=1) == 168).all() and latencies["pattern 3"][~large].max() < 2000


def test_a_wrong_client_sends_times_from_the_future_zero_and_seconds() -> None:
    (stream,) = streams("robustness", Settings(partitions=20, wrong=0.5))
    wrong = stream.create_ms != stream.created_ms
    assert 0.45 < wrong.mean() < 0.55
    kinds = [
        stream.create_ms == 0,
        stream.create_ms == stream.created_ms // 1000,
        stream.create_ms > START_MS + 9 * 365 * DAY_MS,
    ]
    assert [0.3 < kind[wrong].mean() < 0.37 for kind in kinds] == [True] * 3


def test_the_same_seed_gives_the_same_streams_and_more_partitions_come_in_chunks() -> None:
    many = Settings(partitions=1501, messages_per_hour=2)
    chunks = list(streams("pattern 3", many))
    assert [len(chunk.arrival_ms) for chunk in chunks] == [1488, 13]
    again = list(streams("pattern 3", many))
    other = next(streams("pattern 3", Settings(partitions=1501, seed=7)))
    assert (again[1].arrival_ms == chunks[1].arrival_ms).all()
    assert (other.arrival_ms != chunks[0].arrival_ms).any()


@pytest.mark.parametrize(
    "given", [{"partitions": 0}, {"roll_ms": 0}, {"wrong": 1.5}, {"seed": -1}, {"duration_ms": HOUR_MS // 2}]
)
def test_settings_that_make_no_stream_are_refused_by_name(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        Settings(**given)  # type: ignore[arg-type]
