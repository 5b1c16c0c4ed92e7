"""KIP-32: "if no message is appended in log.roll.ms [...], a new log segment will be rolled out"."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sets.log_records import NOW, Clock, bases, batch, opened

from kts.testing import KtsBroker

HOUR = 3_600_000
DAY = 24 * HOUR
ALL = ["", "wall-clock", "largest-timestamp", "earliest-timestamp", "bucket-index", "minute-map"]


@pytest.mark.parametrize("name", ALL)
def test_an_idle_log_rolls_in_the_modes_where_the_paper_says_it(name: str, tmp_path: Path) -> None:
    clock = Clock()
    named = (name,) if name else ()
    counted = {"largest-timestamp": NOW + 50, "earliest-timestamp": NOW + 10}.get(name)
    with opened(tmp_path, clock, segment_ms=HOUR, proposals=named) as log:
        assert log.roll_if_due() is None  # an empty log has nothing to roll
        log.append(batch(NOW + 50, NOW + 10, NOW + 20))
        clock.now = (counted or NOW) + HOUR
        assert log.roll_if_due() is None
        clock.now += 1
        assert log.roll_if_due() == (None if counted is None else 3)
        clock.now += 1000 * HOUR
        assert log.roll_if_due() is None  # the new segment is empty
        assert bases(log) == ([0] if counted is None else [0, 3])


@pytest.mark.parametrize("name", ["largest-timestamp", "earliest-timestamp"])
def test_a_restart_does_not_lose_when_an_idle_log_is_due(name: str, tmp_path: Path) -> None:
    clock = Clock()
    for _ in range(2):
        with opened(tmp_path, clock, segment_ms=HOUR, proposals=(name,)) as log:
            if not log.log_end_offset:
                log.append(batch(NOW))
            clock.now = NOW + HOUR
            assert log.roll_if_due() is None
    clock.now += 1
    with opened(tmp_path, clock, segment_ms=HOUR, proposals=(name,)) as log:
        assert log.roll_if_due() == 1
    with opened(tmp_path, clock, segment_ms=HOUR, proposals=(name,)) as log:  # as a broker leaves it
        assert (bases(log), log.clean_start, log.recovered) == ([0, 1], True, [])


def test_the_brokers_housekeeping_rolls_an_idle_log_and_retention_then_removes_its_old_segment() -> None:
    config = {"log.proposals": "largest-timestamp", "log.roll.ms": HOUR, "log.retention.ms": DAY}
    with KtsBroker(config=config, time=NOW) as broker:
        broker.create_topic("idle")
        broker.create_topic("kafkas", config={"proposals": ""})
        for topic in ("idle", "kafkas"):
            broker.produce(topic, b"x")
            broker.produce(topic, b"y")
        broker.advance(HOUR)
        assert broker.run_retention() == []
        assert bases(broker.log("idle")) == [0]
        broker.advance(1)
        assert broker.run_retention() == []
        assert bases(broker.log("idle")) == [0, 2]
        assert bases(broker.log("kafkas")) == [0]
        broker.advance(10_000_000)
        assert broker.run_retention() == []
        assert bases(broker.log("idle")) == [0, 2]
        assert bases(broker.log("kafkas")) == [0]  # Kafka asks only when it appends
        broker.set_time(NOW + DAY + 1)
        gone = broker.run_retention()
        assert [(one.topic, one.base_offset, one.rule) for one in gone] == [
            ("idle", 0, "retention.ms"),
            ("kafkas", 0, "retention.ms"),
        ]
        assert bases(broker.log("idle")) == [2]
        assert broker.produce("idle", b"z").offset == 2


def test_the_setting_of_a_topic_in_use_starts_and_ends_it() -> None:
    with KtsBroker(time=NOW) as broker:
        broker.create_topic("t", config={"segment.ms": HOUR})
        broker.produce("t", b"x")
        broker.advance(2 * HOUR)
        broker.run_retention()
        assert bases(broker.log("t")) == [0]
        broker.alter_topic("t", {"proposals": ["largest-timestamp", "minute-map"]})
        broker.run_retention()
        assert bases(broker.log("t")) == [0, 1]
        broker.alter_topic("t", {"proposals": None})
        broker.produce("t", b"y")
        broker.advance(2 * HOUR)
        broker.run_retention()
        assert bases(broker.log("t")) == [0, 1]
