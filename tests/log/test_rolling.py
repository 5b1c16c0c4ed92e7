"""When a new segment is due: each rule at its border."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from support.sets.log_records import NOW, Clock, batch, opened

from kts.config import LogConfig
from kts.log import policies

QUIET = {
    "size": 100,
    "incoming": 50,
    "segment_bytes": 1000,
    "waited_ms": 0,
    "limit_ms": 1000,
    "indexes_full": False,
    "relative_offset": 10,
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, None),
        ({"size": 950}, None),
        ({"size": 951}, "size"),
        ({"waited_ms": 1000}, None),
        ({"waited_ms": 1001}, "time"),
        ({"waited_ms": 1001, "size": 0}, None),
        ({"waited_ms": -(2**62)}, None),
        ({"limit_ms": -1}, "time"),
        ({"indexes_full": True}, "index"),
        ({"indexes_full": True, "size": 0}, "index"),
        ({"relative_offset": 2**31 - 1}, None),
        ({"relative_offset": 2**31}, "offset"),
    ],
)
def test_each_rule_holds_from_its_border_on(changed: dict[str, int], expected: str | None) -> None:
    assert policies.roll_reason(**{**QUIET, **changed}) == expected


def test_jitter_is_below_the_smaller_of_its_setting_and_the_limit(rng: random.Random) -> None:
    config = LogConfig.of({"segment.jitter.ms": 700, "segment.ms": 500})
    numbers = [rng.randrange(-(2**31), 2**31) for _ in range(1000)]
    found = [policies.roll_jitter_ms(config, number) for number in numbers]
    assert [abs(number) % 500 for number in numbers] == found
    assert policies.roll_jitter_ms(config, -(2**31)) == 0
    assert policies.roll_jitter_ms(LogConfig.of({}), 12345) == 0


def test_a_new_segment_starts_at_the_log_end_or_where_a_set_behind_a_gap_fits() -> None:
    assert policies.new_base_offset(10, 20, 10) == 10
    assert policies.new_base_offset(-1, 20, 10) == 10
    assert policies.new_base_offset(2**40, 2**40 + 5, 10) == 2**40
    assert policies.new_base_offset(-1, 2**40, 10) == 2**40 - (2**31 - 1)


def test_an_append_that_would_wait_is_known_before(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, segment_bytes=400, segment_ms=1000) as log:
        assert log.appends_at_once(400)
        log.append(batch(NOW))
        size = log.size_bytes
        assert log.appends_at_once(400 - size)
        assert not log.appends_at_once(401 - size)
        clock.now += 1000
        assert log.appends_at_once(1)
        clock.now += 1
        assert not log.appends_at_once(1)
        assert log.appends_at_once(1, NOW + 1000)
        assert not log.appends_at_once(1, NOW + 1001)
        log.reconfigure({"flush.messages": 10})
        assert not log.appends_at_once(1)
        log.reconfigure({})
        assert log.appends_at_once(1)
        told = []
        with log._lock:
            asking = threading.Thread(target=lambda: told.append(log.appends_at_once(1)))
            asking.start()
            asking.join()
        assert told == [False]
