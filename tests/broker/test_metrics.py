"""The counters of conversions add up, by topic and from many threads."""

from __future__ import annotations

import threading

import pytest

from kts.broker.metrics import FETCH, PRODUCE, Conversions, Metrics


def test_a_topic_and_all_topics_add_up() -> None:
    metrics = Metrics()
    assert metrics.conversions(PRODUCE) == metrics.conversions(FETCH, "a") == Conversions()
    metrics.add(PRODUCE, "a", messages=3, bytes_in=100, bytes_out=90, cpu_ns=5)
    metrics.add(PRODUCE, "b", messages=2, bytes_in=10, bytes_out=20)
    metrics.add(PRODUCE, "a", messages=1, bytes_in=7, bytes_out=8, cpu_ns=1)
    metrics.add(FETCH, "a", messages=9, bytes_in=1, bytes_out=2)
    assert metrics.conversions(PRODUCE, "a") == Conversions(4, 2, 107, 98, 6)
    assert metrics.conversions(PRODUCE) == Conversions(6, 3, 117, 118, 6)
    assert metrics.conversions(FETCH) == Conversions(9, 1, 1, 2, 0)
    assert metrics.conversions(FETCH, "b") == Conversions()


def test_an_unknown_meter_is_refused() -> None:
    with pytest.raises(ValueError, match="meter: expected one of ProduceMessageConversionsPerSec"):
        Metrics().add("BytesInPerSec", "a", messages=1, bytes_in=1, bytes_out=1)


def test_no_count_is_lost_between_threads() -> None:
    metrics = Metrics()

    def count() -> None:
        for _ in range(2000):
            metrics.add(FETCH, "a", messages=1, bytes_in=2, bytes_out=3)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.conversions(FETCH, "a") == Conversions(8000, 8000, 16000, 24000, 0)
