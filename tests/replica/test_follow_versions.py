"""Followers of leaders that speak less than kts does; entries larger than a fetch, and topics without any."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.broker.follow_play import log_bytes
from support.broker.follow_serving import SMALL, KtsLeader, T, copying
from support.broker.wire_proxy import as_it_is, joined

import kts
from kts.broker import wire
from kts.broker.wire.messages import ApiKey

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


@pytest.mark.slow
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


def test_nothing_is_copied_from_an_empty_topic(leader: KtsLeader, tmp_path: Path) -> None:
    leader.create("t")
    with copying(leader.address, tmp_path / "copy", "t") as copy:
        copy.fetcher.catch_up()
        assert (copy.follower.caught_up, copy.log.log_end_offset, copy.bytes) == (True, 0, b"")
        assert copy.fetcher.step() == 0 and copy.said == []
