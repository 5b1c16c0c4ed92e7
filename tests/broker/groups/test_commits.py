"""Committed offsets: who may commit, what is kept over a restart, what is forgotten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.broker.asking import Asking
from support.broker.group_play import DAY_MS, Restartable, T, advance, commit, committed, members, play

import kts
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.groups.group import State
from kts.broker.wire.messages import ApiKey
from kts.coordinator_records.groups import TOPIC, Committed
from kts.dataset.newest import Loader


def test_a_consumer_without_a_group_commits_and_fetches(broker: Restartable) -> None:
    async def story() -> None:
        found = broker.coordinator
        assert found.fetch("simple", [("t", 0)]) == {("t", 0): Committed(-1, -1, "", -1)}
        assert commit(found, "simple", {("t", 0): committed(5), ("t", 1): committed(6)}) == {ErrorCode.NONE}
        assert commit(found, "simple", {("t", 1): committed(7, metadata="m")}) == {ErrorCode.NONE}
        assert found.fetch("simple", None) == {("t", 0): committed(5), ("t", 1): committed(7, metadata="m")}
        assert found.fetch("simple", [("t", 1), ("t", 2)]) == {
            ("t", 1): committed(7, metadata="m"),
            ("t", 2): Committed(-1, -1, "", -1),
        }
        assert commit(found, "", {("t", 0): committed(1)}) == {ErrorCode.NONE}  # old clients have groups without names
        group = found.group("simple")
        assert group is not None
        assert (group.state, group.protocol_type, group.generation_id) == (State.EMPTY, None, 0)

    play(story())


def test_only_members_of_the_current_generation_commit_to_a_group_that_has_members(broker: Restartable) -> None:
    async def story() -> None:
        (member,) = await members(broker.coordinator, 1)
        assert member.commit(3) == ErrorCode.NONE
        assert commit(broker.coordinator, "g", {("t", 0): committed(9)}) == {ErrorCode.UNKNOWN_MEMBER_ID}
        assert set(broker.coordinator.commit("g", member.member_id, None, -1, {("t", 0): committed(9)}).values()) == {
            ErrorCode.ILLEGAL_GENERATION
        }
        assert broker.coordinator.fetch("g", None)["t", 0].offset == 3
        assert member.leave() == ErrorCode.NONE
        assert member.commit(4) == ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(broker.coordinator, "g", {("t", 0): committed(9)}) == {ErrorCode.NONE}

    play(story())


def test_metadata_that_is_too_large_is_refused_alone(broker: Restartable) -> None:
    async def story() -> None:
        large = {("t", 0): committed(1, metadata="x" * 4097), ("t", 1): committed(2, metadata="x" * 4096)}
        large[("t", 2)] = committed(3, metadata="\N{SNAKE}" * 2049)  # two each, as Java counts
        errors = broker.coordinator.commit("g", "", None, -1, large)
        assert errors == {
            ("t", 0): ErrorCode.OFFSET_METADATA_TOO_LARGE,
            ("t", 1): ErrorCode.NONE,
            ("t", 2): ErrorCode.OFFSET_METADATA_TOO_LARGE,
        }
        assert list(broker.coordinator.fetch("g", None)) == [("t", 1)]

    play(story())


@pytest.mark.slow
def test_a_commit_that_is_too_large_for_a_batch_is_refused_whole(broker: Restartable) -> None:
    async def story() -> None:
        many = {("t", number): committed(1, metadata="x" * 4000) for number in range(300)}
        assert commit(broker.coordinator, "g", many) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert commit(broker.coordinator, "g", {("t", number): committed(1) for number in range(40_000)}) == {
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        }
        assert broker.coordinator.fetch("g", None) == {}

    play(story())


def test_a_broker_full_of_offsets_still_takes_newer_ones(broker: Restartable) -> None:
    async def story() -> None:
        found = broker.restart(max_bytes=20_000)
        errors = [commit(found, "g", {("t", number): committed(1)}) for number in range(60)]
        assert errors[0] == {ErrorCode.NONE}
        assert errors[-1] == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert commit(found, "g", {("t", 0): committed(2)}) == {ErrorCode.NONE}
        assert commit(found, "h", {("t", 0): committed(2)}) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        again = broker.restart(max_bytes=1000)
        assert commit(again, "g", {("t", 0): committed(3)}) == {ErrorCode.NONE}
        assert again.fetch("g", None)["t", 0].offset == 3

    play(story())


def test_offsets_of_a_group_that_speaks_another_protocol_are_not_deleted_under_it(broker: Restartable) -> None:
    async def story() -> None:
        await members(broker.coordinator, 1, protocol_type="connect")
        assert broker.coordinator.delete_offsets("g", [("t", 0)]) == (ErrorCode.NON_EMPTY_GROUP, {})

    play(story())


@pytest.mark.parametrize("release", ["3.9", "4.3"])
def test_what_a_release_does_with_groups_that_do_not_exist_or_lose_their_offsets(tmp_path: Path, release: str) -> None:
    """As a random script saw it at brokers of 3.9.2 and 4.3.1: 4.x has a coordinator of its own."""
    newer = release == "4.3"

    def committing(version: int, generation: int) -> int:
        each = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        body = {"group_id": "g", "generation_id_or_member_epoch": generation, "member_id": "m" * (generation >= 0)}
        topics = [{"name": "t", "partitions": [each]}]
        [topic] = asking.ask(ApiKey.OFFSET_COMMIT, version, {**body, "topics": topics})["topics"]
        return int(topic["partitions"][0]["error_code"])

    with Asking(Broker(tmp_path / "data", {"release": release})) as asking:
        asking.create()
        assert committing(8, 1) == ErrorCode.ILLEGAL_GENERATION
        assert committing(9, 1) == (ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION)
        for lose in (
            lambda groups: groups.delete_offsets("g", [("t", 0)]),
            lambda groups: groups.topics_deleted(["t"]),
        ):
            assert committing(9, -1) == ErrorCode.NONE
            lose(asking.broker.coordinator)
            assert (asking.broker.coordinator.group("g") is not None) == newer
        if newer:  # it ends with the next look for expired offsets
            asking.broker.coordinator.commits.expire()
            assert asking.broker.coordinator.group("g") is None


def test_offsets_expire_as_kafkas_do(broker: Restartable) -> None:
    async def story() -> None:
        found, clock = broker.coordinator, broker.clock
        week = found.settings.retention_ms
        assert week == 7 * DAY_MS
        commit(found, "simple", {("t", 0): committed(1), ("t", 1): committed(1, T + DAY_MS)})
        commit(found, "own-time", {("t", 0): committed(1, expire_ms=T + 1000), ("t", 1): committed(1)})
        (reader,) = await members(found, 1, group_id="reads")
        reader.commit(1)
        reader.commit(1, topic="u")
        (left,) = await members(found, 1, group_id="empties")
        left.commit(1)
        clock.now_ms = T + 1000
        assert found.commits.expire() == 1
        assert set(found.fetch("own-time", None)) == {("t", 1)}
        clock.now_ms = T + 6 * DAY_MS
        left.leave()
        clock.now_ms = T + week - 1
        assert found.commits.expire() == 0
        clock.now_ms = T + week
        assert found.commits.expire() == 3  # simple's first, what reads does not read, own-time's last
        assert set(found.fetch("simple", None)) == {("t", 1)}
        assert set(found.fetch("reads", None)) == {("t", 0)}
        assert found.group("own-time") is None
        clock.now_ms = T + 6 * DAY_MS + week - 1
        assert found.commits.expire() == 1  # the other one of simple
        assert set(found.fetch("empties", None)) == {("t", 0)}
        clock.now_ms += 1
        assert found.commits.expire() == 1
        for again in (found, broker.restart()):
            assert {group.group_id for group in again.groups()} == {"reads"}

    play(story())


def test_the_broker_looks_for_expired_offsets_at_the_interval_of_its_settings(broker: Restartable) -> None:
    async def story() -> None:
        commit(broker.coordinator, "simple", {("t", 0): committed(1)})
        broker.coordinator.tick()
        broker.clock.now_ms += 8 * DAY_MS
        await advance(599_000)
        broker.coordinator.tick()
        assert broker.coordinator.groups()
        await advance(2_000)
        broker.coordinator.tick()
        assert not broker.coordinator.groups()

    play(story())


def test_a_missing_end_is_damage_though_its_warning_begins_with_other_words(tmp_path: Path) -> None:
    config = kts.LogConfig(segment_bytes=300, index_interval_bytes=0)
    with kts.Log(tmp_path / f"{TOPIC}-0", config) as log:
        for number in range(9):
            log.append(kts.encode({"key": [b"%d" % number], "value": [bytes(60)]}))
    log = kts.open(tmp_path / f"{TOPIC}-0")
    first = log.segments[0]
    last = kts.scan_batches(Path(first.path).read_bytes())["position"][-1].as_py()
    assert last
    os.truncate(first.path, last)
    loaded = Loader().read(log, 1000)
    assert loaded.records == 8
    [said] = map(str, loaded.damage)
    assert Path(first.path).name in said
    assert "the end of the segment is missing" in said
