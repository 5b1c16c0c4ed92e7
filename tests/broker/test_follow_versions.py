"""Followers of leaders that speak less than kts does, of several nodes; large entries, and the copy's own retention."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.broker.follow_play import log_bytes
from support.broker.follow_serving import SMALL, KtsLeader, T, copying
from support.broker.wire_proxy import Proxy, as_it_is

import kts
from kts.broker import wire
from kts.broker.codes import ApiKey
from kts.broker.following.follower import Follower
from kts.broker.following.topic_copy import log_settings

# The newest versions that releases serve, of what a follower asks for; what is not there was not served.
RELEASES: dict[str, dict[ApiKey, int]] = {
    "0.10.0": {ApiKey.FETCH: 2, ApiKey.LIST_OFFSETS: 0, ApiKey.METADATA: 1},
    "0.10.2": {ApiKey.FETCH: 3, ApiKey.LIST_OFFSETS: 1, ApiKey.METADATA: 2},
    "0.11.0": {ApiKey.FETCH: 5, ApiKey.LIST_OFFSETS: 2, ApiKey.METADATA: 4, ApiKey.OFFSET_FOR_LEADER_EPOCH: 0},
    "1.1": {ApiKey.FETCH: 7, ApiKey.LIST_OFFSETS: 2, ApiKey.METADATA: 5, ApiKey.OFFSET_FOR_LEADER_EPOCH: 0},
    "2.0": {ApiKey.FETCH: 8, ApiKey.LIST_OFFSETS: 3, ApiKey.METADATA: 6, ApiKey.OFFSET_FOR_LEADER_EPOCH: 1},
    "2.3": {ApiKey.FETCH: 11, ApiKey.LIST_OFFSETS: 5, ApiKey.METADATA: 8, ApiKey.OFFSET_FOR_LEADER_EPOCH: 3},
    "2.8": {ApiKey.FETCH: 12, ApiKey.LIST_OFFSETS: 6, ApiKey.METADATA: 11, ApiKey.OFFSET_FOR_LEADER_EPOCH: 4},
}


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[KtsLeader]:
    with KtsLeader(tmp_path / "leader") as leader:
        yield leader


class Release:
    """Lets a leader tell only what a release serves, and counts what it is asked."""

    def __init__(self, most: dict[ApiKey, int]) -> None:
        self.most = most
        self.asked: Counter[tuple[int, int]] = Counter()

    def __call__(self, api: int, version: int, frame: bytes) -> bytes | None:
        self.asked[api, version] += 1
        if api != ApiKey.API_VERSIONS:
            return as_it_is(api, version, frame)
        correlation, body = wire.decode_response(api, version, memoryview(frame))
        body["api_keys"] = [{"api_key": key, "min_version": 0, "max_version": most} for key, most in self.most.items()]
        return joined(api, version, correlation, body)


def joined(api: int, version: int, correlation: int, body: dict[str, Any]) -> bytes:
    chunks = wire.encode_response(api, version, correlation, body)
    return b"".join(bytes(chunk) if isinstance(chunk, bytes | memoryview) else chunk.read() for chunk in chunks)


@pytest.mark.parametrize("release", RELEASES)
def test_older_leaders_are_asked_what_they_understand(
    release: str, leader: KtsLeader, tmp_path: Path, rng: random.Random
) -> None:
    magic = 1 if release.startswith("0.10") else 2
    settings = {"message.format.version": "0.10.2" if magic == 1 else "3.9"}
    leader.create("t", message_format_version=settings["message.format.version"])
    leader.produce("t", rng, 30, magic=magic)
    speaks = leader.proxy.answer = Release(RELEASES[release])
    with copying(leader.address, tmp_path / "copy", "t", settings=settings, max_bytes=100) as copy:
        copy.fetcher.catch_up()
        assert copy.bytes == log_bytes(leader.files("t"))
        end = copy.log.log_end_offset
        leader.stop()
        with kts.Log(leader.folder / "t-0", SMALL | settings, generation="3.9") as log:
            log.truncate_to(rng.randrange(end // 2, end))
        leader.start()
        leader.produce("t", rng, rng.randrange(1, 20), magic=magic)
        copy.fetcher.catch_up()
        assert copy.bytes == log_bytes(leader.files("t"))
        assert copy.follower.truncations >= 1
    assert speaks.asked[ApiKey.FETCH, RELEASES[release][ApiKey.FETCH]] > 10
    assert {key for key, _ in speaks.asked} <= {ApiKey.API_VERSIONS, *RELEASES[release]}


def test_an_entry_that_is_larger_than_a_fetch_is_fetched_whole(
    leader: KtsLeader, tmp_path: Path, rng: random.Random
) -> None:
    leader.create("t", segment_bytes="1000000", message_format_version="0.10.2")
    large = pa.array([rng.randbytes(50_000)])
    for _ in range(3):
        leader.append("t", kts.encode({"timestamp": pa.array([T]), "value": large}, magic=1))
    for most in (2, 3, 12):
        leader.proxy.answer = Release({ApiKey.FETCH: most, ApiKey.LIST_OFFSETS: 1, ApiKey.METADATA: 5})
        settings = {"segment.bytes": 1_000_000, "message.format.version": "0.10.2"}
        with copying(leader.address, tmp_path / f"copy-{most}", "t", settings=settings, max_bytes=100) as copy:
            copy.fetcher.catch_up()
            assert copy.bytes == log_bytes(leader.files("t"))
            assert copy.follower.max_bytes == (51_200 if most == 2 else 100)
    leader.proxy.answer = Release({ApiKey.FETCH: 2, ApiKey.LIST_OFFSETS: 1, ApiKey.METADATA: 5})
    with copying(
        leader.address, tmp_path / "small", "t", settings=settings, max_bytes=100, max_frame_bytes=40_000
    ) as copy:
        with pytest.raises(kts.RecordTooLargeError, match="the entry at offset 0 is larger than 20000 bytes"):
            copy.fetcher.catch_up()
        assert copy.bytes == b""


def test_the_leader_is_whom_metadata_names(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    """Two addresses of one broker stand for two; the leader moves from the one to the other and back."""
    leader.create("t")
    leader.produce("t", rng, 20)
    leads, asked = [7], Counter[tuple[int, int]]()
    with Proxy(":".join(map(str, leader.proxy.target))) as second:

        def answering(node: int) -> Any:
            def answer(api: int, version: int, frame: bytes) -> bytes | None:
                asked[node, api] += 1
                if api == ApiKey.FETCH and node != leads[0]:
                    correlation, body = wire.decode_response(api, version, memoryview(frame))
                    for topic in body["responses"]:
                        for partition in topic["partitions"]:
                            partition |= {"error_code": 6, "records": b"", "high_watermark": -1}
                    return joined(api, version, correlation, body)
                if api != ApiKey.METADATA:
                    return as_it_is(api, version, frame)
                correlation, body = wire.decode_response(api, version, memoryview(frame))
                body["brokers"] = [
                    {"node_id": each, "host": "127.0.0.1", "port": int(proxy.address.split(":")[1])}
                    for each, proxy in ((7, second), (1, leader.proxy))
                ]
                body["topics"][0]["partitions"][0]["leader_id"] = leads[0]
                return joined(api, version, correlation, body)

            return answer

        leader.proxy.answer, second.answer = answering(1), answering(7)
        with copying(leader.address, tmp_path / "copy", "t") as copy:
            copy.fetcher.catch_up()
            assert asked[7, ApiKey.FETCH] > 1 and asked[1, ApiKey.FETCH] == 0
            leads[0] = 1
            leader.produce("t", rng, 20)
            copy.fetcher.catch_up()
            assert asked[1, ApiKey.FETCH] > 1
            leads[0] = -1
            copy.fetcher.step()
            for _ in range(3):
                copy.fetcher.step()
            assert "LEADER_NOT_AVAILABLE" in str(copy.fetcher.troubles[copy.follower].error)
            leads[0] = 7
            copy.fetcher.catch_up()
            assert copy.bytes == log_bytes(leader.files("t"))


def test_nothing_is_copied_from_an_empty_topic(leader: KtsLeader, tmp_path: Path) -> None:
    leader.create("t")
    with copying(leader.address, tmp_path / "copy", "t") as copy:
        copy.fetcher.catch_up()
        assert (copy.follower.caught_up, copy.log.log_end_offset, copy.bytes) == (True, 0, b"")
        assert copy.fetcher.step() == 0 and copy.said == []


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


def test_the_leaders_settings_as_far_as_a_log_has_them() -> None:
    told: list[str] = []
    described = {"retention.ms": "5", "internal.segment.bytes": "300", "segment.bytes": "1073741824"}
    described |= {
        "message.format.version": "3.0-IV1",
        "min.cleanable.dirty.ratio": "0.5",
        "cleanup.policy": "later,delete",
    }
    found = log_settings(described, None, told.append)
    assert found == {"retention.ms": "5", "segment.bytes": "300", "message.format.version": "3.0-IV1"}
    assert told == [
        "the leader's cleanup.policy: expected compact, delete or both, found 'later,delete'; the default is taken"
    ]
    for magic, version in ((0, "0.9.0"), (1, "0.10.2"), (2, "3.9")):  # a leader that tells nothing deletes nothing here
        forever = {"retention.ms": "-1", "retention.bytes": "-1"}
        assert log_settings({}, magic) == forever | {"message.format.version": version}


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
