"""KIP-33's revisions, statement by statement: those that no other test is named after (docs/statements.md has all)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kts

MINUTE = 60_000
T = 1_500_000_000_000 // MINUTE * MINUTE
HOUR = 60 * MINUTE


def pairs(log: kts.Log, name: str) -> list[tuple[int, int]]:
    """(timestamp, offset) of each entry of the first segment, in a proposal's index."""
    mode: Any = (log.proposals or {})[name]
    return [(int(time), int(offset)) for time, offset in mode.rule.segments[0].pairs()]


def messages(*times: int) -> bytes:
    return kts.encode({"timestamp": list(times), "value": [b"v"] * len(times)})


@pytest.mark.parametrize(("kind", "expected"), [("CreateTime", [(T - HOUR, 0)]), ("LogAppendTime", [(T, 0)])])
def test_the_timestamp_of_the_index_is_log_append_time_or_create_time_as_configured(
    kind: str, expected: list[tuple[int, int]], tmp_path: Path
) -> None:
    settings = {"message.timestamp.type": kind}
    with kts.Log(tmp_path / "t-0", settings, clock=lambda: T + 5, proposals=("bucket-index",)) as log:
        log.append(messages(T - HOUR + 1))
        assert pairs(log, "bucket-index") == expected


def test_a_message_that_is_rejected_due_to_the_threshold_is_not_in_the_index(tmp_path: Path) -> None:
    settings = {"max.message.time.difference.ms": MINUTE}
    with kts.Log(tmp_path / "t-0", settings, clock=lambda: T, proposals=("bucket-index",)) as log:
        log.append(messages(T))
        with pytest.raises(kts.InvalidTimestampError):
            log.append(messages(T + HOUR))
        assert pairs(log, "bucket-index") == [(T, 0)]


@pytest.mark.parametrize(("within", "segments"), [(2**63 - 1, 4), (HOUR // 2, 1)])
def test_the_difference_should_be_set_together_with_log_roll_ms_to_avoid_frequent_rolls(
    within: int, segments: int, tmp_path: Path
) -> None:
    """By the rule of the largest timestamp: without a limit, each append of an old message rolls."""
    settings = {"segment.ms": HOUR, "max.message.time.difference.ms": within}
    with kts.Log(tmp_path / "t-0", settings, clock=lambda: T, proposals=("largest-timestamp",)) as log:
        for minute in range(4):
            try:
                log.append(messages(T - 24 * HOUR + minute * MINUTE))
            except kts.InvalidTimestampError:
                assert within < HOUR
                log.append(messages(T - within + minute * MINUTE))
        assert len(log.segments) == segments


def test_a_new_segment_gets_an_entry_with_the_first_message_that_falls_into_a_new_bucket(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", {"segment.ms": 2**62}, clock=lambda: T, proposals=("bucket-index",)) as log:
        log.append(messages(T + MINUTE + 5))
        base = log.roll()
        entries: Any = (log.proposals or {})["bucket-index"].rule.segments
        for older in (T + MINUTE + 59_999, T - HOUR):
            log.append(messages(older))
            assert entries[base].pairs() == []
        for newer in (T + 2 * MINUTE + 7, T + 2 * MINUTE + 9):
            log.append(messages(newer))
            assert entries[base].pairs() == [(T + 2 * MINUTE, 3)]


def test_the_minute_map_is_kept_by_leader_and_follower_alike(tmp_path: Path) -> None:
    leader = kts.Log(tmp_path / "a" / "t-0", clock=lambda: T, proposals=("minute-map",))
    follower = kts.Log(tmp_path / "b" / "t-0", clock=lambda: T, proposals=("minute-map",))
    with leader, follower:
        for time in (T, T + 2 * MINUTE, T + MINUTE, T + 2 * MINUTE + 5):
            leader.append(messages(time))
        follower.append_as_follower(leader.read(0, 1 << 20).records)
        kept = [pairs(log, "minute-map") for log in (leader, follower)]
    assert kept[0] == kept[1]
    assert kept[0] == [(T, 0), (T + 2 * MINUTE, 1), (T + MINUTE, 2)]
