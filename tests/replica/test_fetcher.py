"""Fetch rounds: all partitions at once, over restarts and connections that are cut, until patience ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.broker.follow_play import files, log_bytes
from support.broker.follow_serving import SMALL, KtsLeader, T, copying
from support.broker.wire_proxy import as_it_is, joined
from support.processes.cli_runs import lines

import kts
from kts.broker import wire
from kts.broker.wire.messages import ApiKey
from kts.replica.follower import Follower


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[KtsLeader]:
    with KtsLeader(tmp_path / "leader") as leader:
        yield leader


@pytest.mark.slow
def test_all_partitions_are_followed_in_one_round(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    leader.create("t", 5)
    for partition in range(5):
        leader.produce("t", rng, 5 * partition, partition=partition)
    command = ["follow", "--bootstrap-server", leader.address, "--topic", "t", "--once", "--json", tmp_path / "copy"]
    said = lines(*command)
    assert [each["partition"] for each in said] == [0, 1, 2, 3, 4]
    assert [each["logEndOffset"] for each in said] == [leader.log("t", each).log_end_offset for each in range(5)]
    for partition in range(5):
        assert log_bytes(files(tmp_path / "copy" / f"t-{partition}")) == log_bytes(leader.files("t", partition))
    (one,) = lines(*command, "--partition", 3)
    assert one["partition"] == 3 and one["copiedBatches"] == 0


def test_a_leader_may_be_restarted_again_and_again(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    leader.create("t")
    with copying(leader.address, tmp_path / "copy", "t") as copy:
        for _ in range(5):
            leader.produce("t", rng, 20)
            for _ in range(rng.randrange(4)):
                copy.fetcher.step()
            leader.stop()
            for _ in range(rng.randrange(3)):
                copy.fetcher.step()
            leader.start()
        copy.fetcher.catch_up()
        assert copy.bytes == log_bytes(leader.files("t"))
        assert copy.follower.truncations == 0


@pytest.mark.slow
def test_connections_may_be_cut_at_any_byte(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    leader.create("t")
    leader.produce("t", rng, 200)
    leader.proxy.budget = lambda: rng.randrange(8000)
    with copying(leader.address, tmp_path / "copy", "t") as copy:
        copy.fetcher.catch_up()
        assert copy.bytes == log_bytes(leader.files("t"))
        assert leader.proxy.connections > 10
        assert copy.follower.truncations == 0 and not copy.fetcher.failed
        assert copy.follower.copied_bytes == len(copy.bytes)


def test_patience_ends(leader: KtsLeader, tmp_path: Path) -> None:
    leader.create("t")
    leader.proxy.budget = lambda: 0
    with copying(leader.address, tmp_path / "copy", "t", patience_s=60.0) as copy:
        with pytest.raises(kts.KtsError, match="closed the connection"):
            copy.fetcher.catch_up()
        assert len(copy.said) == 1  # not each time


def test_a_follower_runs_its_own_retention_every_five_minutes(
    leader: KtsLeader, tmp_path: Path, rng: random.Random
) -> None:
    leader.create("t")
    now = [T]
    settings = {"retention.ms": 86_400_000, "file.delete.delay.ms": 0}
    with copying(leader.address, tmp_path / "copy", "t", settings=settings, clock=lambda: now[0]) as copy:
        for day in range(3):
            times = pa.array([T + day * 86_400_000], pa.int64())
            leader.append("t", kts.encode({"timestamp": times, "value": pa.array([b"x"])}))
            leader.log("t").roll()
        copy.fetcher.catch_up()
        assert [segment.base_offset for segment in copy.log.segments] == [0, 1, 2]
        now[0] += 86_400_000 + 1
        copy.fetcher.step()  # not yet: half a minute after the start is the first time
        assert len(copy.log.segments) == 3
        copy.fetcher._sleep(30)
        copy.fetcher.step()
        assert [segment.base_offset for segment in copy.log.segments] == [1, 2]
        now[0] += 86_400_000
        copy.fetcher._sleep(299)
        copy.fetcher.step()
        assert len(copy.log.segments) == 2
        copy.fetcher._sleep(1)
        copy.fetcher.step()
        assert [segment.base_offset for segment in copy.log.segments] == [2]


@pytest.mark.parametrize("retention", [True, False])
def test_a_follower_rolls_an_idle_copy_if_a_proposal_says_so(
    retention: bool, leader: KtsLeader, tmp_path: Path
) -> None:
    leader.create("t")
    times = pa.array([T], pa.int64())
    leader.append("t", kts.encode({"timestamp": times, "value": pa.array([b"x"])}))
    now = [T]
    settings = {"segment.ms": 60_000, "proposals": "largest-timestamp"}
    named = {"settings": settings, "clock": lambda: now[0], "retention": retention}
    with copying(leader.address, tmp_path / "copy", "t", **named) as copy:
        copy.fetcher.catch_up()
        for now_ms, expected in ((T + 60_000, [0]), (T + 60_001, [0, 1]), (T + 10**7, [0, 1])):
            now[0] = now_ms
            copy.fetcher._sleep(300)
            copy.fetcher.step()
            assert [segment.base_offset for segment in copy.log.segments] == expected
        leader.append("t", kts.encode({"timestamp": times, "value": pa.array([b"y"])}))
        copy.fetcher.catch_up()  # the leader's segment goes on, the copy's began before
        assert [segment.base_offset for segment in copy.log.segments] == [0, 1]
        assert copy.bytes == log_bytes(leader.files("t"))


def test_a_partition_in_trouble_keeps_the_others_neither_waiting_nor_busy(
    leader: KtsLeader, tmp_path: Path, rng: random.Random
) -> None:
    leader.create("t", 2)
    leader.produce("t", rng, 5)
    waits: list[int] = []

    def answer(api: int, version: int, frame: bytes) -> bytes | None:
        if api == ApiKey.METADATA:
            correlation, body = wire.decode_response(api, version, memoryview(frame))
            for partition in body["topics"][0]["partitions"]:
                if partition["partition_index"] == 1:
                    partition["leader_id"] = -1
            return joined(api, version, correlation, body)
        return as_it_is(api, version, frame)

    leader.proxy.answer = answer
    with (
        copying(leader.address, tmp_path / "copy", "t", max_wait_ms=500) as copy,
        kts.Log(tmp_path / "copy" / "t-1", SMALL) as other,
    ):
        fetch = copy.client.fetch

        def noting(*asked: Any, **named: Any) -> Any:
            waits.append(named["max_wait_ms"])
            copy.ticking.sleep(waits[-1] / 1000)
            return fetch(*asked, **named | {"max_wait_ms": 1})

        copy.client.fetch = noting  # type: ignore[method-assign]
        copy.fetcher.followers.append(Follower(other, copy.client))
        for _ in range(30):
            copy.fetcher.step()
        assert copy.bytes == log_bytes(leader.files("t"))
        assert set(waits[1:]) <= set(range(501)) and sum(waits) > 5000  # never longer than until the other's turn
        leader.proxy.answer = as_it_is
        leader.produce("t", rng, 5, partition=1)
        copy.fetcher.catch_up()
        assert other.log_end_offset == leader.log("t", 1).log_end_offset


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["", "wall-clock", "largest-timestamp", "earliest-timestamp"])
@pytest.mark.parametrize("times", ["in order", "late", "old"])
def test_a_copy_has_the_leaders_segments_whatever_rule_the_leader_rolls_by(
    rule: str, times: str, tmp_path: Path, rng: random.Random
) -> None:
    """KIP-32, motivation 2: a new replica must not roll by the time of its copying. The rules of KIP-33's drafts and of
    option 4 compare with the clock, which is another one when an old log is copied."""
    hour, now = 3_600_000, [T]
    settings = {"log.roll.ms": str(4 * hour)} | ({"log.proposals": rule} if rule else {})
    ages = {"in order": lambda: 0, "late": lambda: rng.randrange(6 * hour), "old": lambda: 100 * hour}
    with KtsLeader(tmp_path / "leader", lambda: now[0], **settings) as leader:
        leader.create("t")
        for _ in range(60):
            now[0] += hour // 2
            leader.append("t", kts.encode({"timestamp": [now[0] - ages[times]()], "value": [b"x"]}))
        expected = [segment.base_offset for segment in leader.log("t").segments]
        own = {"segment.ms": 4 * hour, "segment.bytes": 200} | ({"proposals": rule} if rule else {})
        for one, clock in (("later", now[0] + 1000 * hour), ("then", now[0])):
            named: dict[str, Any] = {"settings": own, "clock": lambda clock=clock: clock}
            with copying(leader.address, tmp_path / one, "t", **named) as copy:
                copy.fetcher.catch_up()
                assert [segment.base_offset for segment in copy.log.segments] == expected
                assert copy.bytes == log_bytes(leader.files("t"))
        assert len(expected) > 1 or times == "late"
