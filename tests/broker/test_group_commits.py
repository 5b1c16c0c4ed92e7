"""Committed offsets: who may commit, what is kept over a restart, what is forgotten."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.broker.group_play import (
    SESSION_MS,
    Clock,
    Member,
    T,
    advance,
    make,
    members,
    open_topics,
    play,
    subscription,
)

import kts
from kts.broker.codes import ErrorCode
from kts.broker.groups import Coordinator, journal
from kts.broker.groups.group import State
from kts.broker.groups.journal import TOPIC, Loader, java_hash
from kts.broker.groups.records import (
    Committed,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group,
    read_key,
    read_offset,
    subscribed_topics,
)
from kts.broker.topics import Topics
from kts.errors import KtsError

DAY_MS = 24 * 3_600_000


class Broker:
    """A coordinator that can be started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.open()

    def open(self, **settings: Any) -> Coordinator:
        self.topics: Topics = open_topics(self.folder, self.clock)
        self.coordinator = make(self.topics, self.clock, **settings)
        return self.coordinator

    def restart(self, **settings: Any) -> Coordinator:
        self.coordinator.close()
        self.topics.close()
        return self.open(**settings)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    found = Broker(tmp_path / "data")
    yield found
    found.topics.close()


def commit(coordinator: Coordinator, group_id: str, offsets: dict[tuple[str, int], Committed]) -> set[ErrorCode]:
    """As an administrator, or a consumer that is in no group."""
    return set(coordinator.commit(group_id, "", None, -1, offsets).values())


def committed(offset: int, now_ms: int = T, metadata: str = "", expire_ms: int | None = None) -> Committed:
    return Committed(offset, 3, metadata, now_ms, expire_ms)


def test_a_consumer_without_a_group_commits_and_fetches(broker: Broker) -> None:
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


def test_only_members_of_the_current_generation_commit_to_a_group_that_has_members(broker: Broker) -> None:
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


def test_metadata_that_is_too_large_is_refused_alone(broker: Broker) -> None:
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


def test_a_commit_that_is_too_large_for_a_batch_is_refused_whole(broker: Broker) -> None:
    async def story() -> None:
        many = {("t", number): committed(1, metadata="x" * 4000) for number in range(300)}
        assert commit(broker.coordinator, "g", many) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert commit(broker.coordinator, "g", {("t", number): committed(1) for number in range(40_000)}) == {
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        }
        assert broker.coordinator.fetch("g", None) == {}

    play(story())


def test_offsets_and_groups_survive_a_restart(broker: Broker) -> None:
    async def story() -> None:
        first, second = await members(broker.coordinator, 2, instance_id=None)
        first.commit(11, 0, metadata="é")
        second.commit(12, 1)
        commit(broker.coordinator, "simple", {("u", 3): Committed(1, -1, "", T, T + DAY_MS)})
        before = {each.group_id: vars(each) | {"members": None, "_usage": None} for each in broker.coordinator.groups()}
        again = broker.restart()
        for group in again.groups():
            for name in ("state", "protocol_type", "protocol_name", "generation_id", "leader_id", "offsets", "topics"):
                assert getattr(group, name) == before[group.group_id][name], name
        first.coordinator = second.coordinator = again
        assert [first.heartbeat(), second.heartbeat()] == [ErrorCode.NONE] * 2
        assert (await second.ask_to_sync()).assignment == second.member_id.encode()
        await advance(SESSION_MS * 0.6)
        assert first.heartbeat() == ErrorCode.NONE
        await advance(SESSION_MS * 0.6)
        assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS  # the other one did not come back
        assert second.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    play(story())


def test_a_loop_that_ended_leaves_groups_to_the_next_one(broker: Broker) -> None:
    found: list[Member] = []

    async def one() -> None:
        found.extend(await members(broker.coordinator, 1))

    async def other() -> None:
        assert found[0].heartbeat() == ErrorCode.NONE
        await advance(SESSION_MS * 1.1)
        assert found[0].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    play(one())
    play(other())


def test_a_rebalance_that_a_loop_left_goes_on_in_the_next_one(broker: Broker) -> None:
    found: list[Member] = []

    async def one() -> None:
        found.extend(await members(broker.coordinator, 2))
        waiting = found[0].ask_to_join()
        late = await Member(broker.coordinator, "late").ask_to_join()
        assert late.error == ErrorCode.MEMBER_ID_REQUIRED
        assert not waiting.done()

    async def other() -> None:
        broker.coordinator.start()
        assert found[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        parts = await asyncio.gather(*(member.take_part() for member in found))  # the late one is waited for no more
        assert parts == [member.member_id.encode() for member in found]

    play(one())
    play(other())


def test_a_broker_full_of_offsets_still_takes_newer_ones(broker: Broker) -> None:
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


def test_deleted_groups_offsets_and_topics_stay_deleted(broker: Broker) -> None:
    async def story() -> None:
        found = broker.coordinator
        (member,) = await members(found, 1)
        member.commit(1)
        everywhere = {(topic, number): committed(1) for topic in ("t", "u") for number in range(2)}
        for group_id in ("a", "b", "c"):
            commit(found, group_id, everywhere)
        assert found.delete_group("g") == ErrorCode.NON_EMPTY_GROUP
        assert found.delete_group("nobody") == ErrorCode.GROUP_ID_NOT_FOUND
        assert found.delete_group("a") == ErrorCode.NONE
        assert found.delete_offsets("nobody", []) == (ErrorCode.GROUP_ID_NOT_FOUND, {})
        assert found.delete_offsets("", []) == (ErrorCode.INVALID_GROUP_ID, {})
        assert found.delete_offsets("b", [("t", 0), ("t", 7)]) == (
            ErrorCode.NONE,
            {("t", 0): ErrorCode.NONE, ("t", 7): ErrorCode.NONE},
        )
        used = found.delete_offsets("g", [("t", 0), ("u", 0)])
        assert used == (
            ErrorCode.NONE,
            {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): ErrorCode.NONE},
        )
        found.topics_deleted(["u"])
        for again in (found, broker.restart()):
            assert {group.group_id for group in again.groups()} == {"g", "b", "c"}
            assert set(again.fetch("b", None)) == {("t", 1)}
            assert set(again.fetch("c", None)) == {("t", 0), ("t", 1)}
            assert set(again.fetch("g", None)) == {("t", 0)}

    play(story())


def test_offsets_of_a_group_that_speaks_another_protocol_are_not_deleted_under_it(broker: Broker) -> None:
    async def story() -> None:
        await members(broker.coordinator, 1, protocol_type="connect")
        assert broker.coordinator.delete_offsets("g", [("t", 0)]) == (ErrorCode.NON_EMPTY_GROUP, {})

    play(story())


def test_offsets_expire_as_kafkas_do(broker: Broker) -> None:
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


def test_the_broker_looks_for_expired_offsets_at_the_interval_of_its_settings(broker: Broker) -> None:
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


def test_a_topic_that_is_mostly_outdated_is_written_anew_at_a_start(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "REWRITE_BYTES", 20_000)

    async def story() -> None:
        (member,) = await members(broker.coordinator, 1)
        for offset in range(300):
            assert not member.commit(offset, offset % 4)
        before = broker.coordinator.fetch("g", None)
        again = broker.restart()
        log = broker.topics.get(TOPIC).partitions[0].log  # type: ignore[union-attr]
        assert log.log_end_offset - log.log_start_offset == 5  # four offsets and the group
        assert log.size_bytes < 1000
        for _ in range(2):
            assert again.fetch("g", None) == before
            assert again.registry.groups["g"].leader_id == member.member_id
            again = broker.restart()

    play(story())


def test_a_topic_that_cannot_be_written_anew_stays_as_it_is_and_the_broker_starts(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        for offset in range(300):
            commit(broker.coordinator, "g", {("t", offset % 4): committed(offset)})
        before = broker.coordinator.fetch("g", None)
        broker.topics.alter(TOPIC, {"cleanup.policy": "compact", "max.message.bytes": "10"})
        monkeypatch.setattr(journal, "REWRITE_BYTES", 20_000)
        again = broker.restart()
        assert again.fetch("g", None) == before
        [problem] = again.journal.problems
        assert "cannot remove outdated records" in problem

    play(story())


@pytest.mark.parametrize("crash_after", ["roll", "append", "flush", "advance_log_start_offset"])
def test_a_crash_while_the_topic_is_written_anew_loses_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, crash_after: str
) -> None:
    monkeypatch.setattr(journal, "REWRITE_BYTES", 20_000)

    class Crash(Exception):
        pass

    async def story() -> None:
        for offset in range(300):
            commit(broker.coordinator, "g", {("t", offset % 4): committed(offset)})
        before = broker.coordinator.fetch("g", None)
        with monkeypatch.context() as patch:

            def crashing(log: kts.Log, *arguments: Any, **more: Any) -> Any:
                real(log, *arguments, **more)
                raise Crash

            real = getattr(kts.Log, crash_after)
            broker.coordinator.close()
            broker.topics.close()
            patch.setattr(kts.Log, crash_after, crashing)
            with pytest.raises(Crash):
                broker.open()
        broker.topics.close()
        assert broker.open().fetch("g", None) == before

    play(story())


def test_commits_of_transactions_count_when_they_are_committed(tmp_path: Path) -> None:
    def rows(offset: int, group_id: str, producer_id: int = -1, **more: Any) -> bytes:
        key, value = offset_key(group_id, "t", 0), offset_value(committed(offset))
        columns = {"timestamp": pa.array([T], pa.int64()), "key": [key], "value": [value]}
        if producer_id >= 0:
            more = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} | more
        return kts.encode({name: pa.array(each) for name, each in columns.items()}, **more)

    def end(producer_id: int, *, well: bool) -> bytes:
        key = b"\0\0\0\1" if well else b"\0\0\0\0"
        columns = {"timestamp": pa.array([T], pa.int64()), "key": pa.array([key]), "value": pa.array([bytes(6)])}
        about = {"producer_id": producer_id, "producer_epoch": 0, "transactional": True, "control": True}
        return kts.encode(columns, **about)

    with kts.Log(tmp_path / "__consumer_offsets-0") as log:
        for batch in (
            rows(1, "plain"),
            rows(2, "committed", 7, transactional=True),
            rows(3, "aborted", 8, transactional=True),
            rows(4, "open", 9, transactional=True),
            rows(5, "overtaken", 7, transactional=True, base_sequence=1),
            rows(6, "overtaken"),
        ):
            log.append(batch)
        assert log.log_end_offset == 6
        log.append(end(7, well=True), origin="coordinator")
        log.append(end(8, well=False), origin="coordinator")
        for piece_bytes in (1, 200, 2**20):
            loaded = Loader().read(kts.open(tmp_path / "__consumer_offsets-0"), piece_bytes)
            found = {read_key(key): read_offset(value).offset for key, value in loaded.newest.items()}
            assert {key.group_id: offset for key, offset in found.items() if hasattr(key, "group_id")} == {
                "plain": 1,
                "committed": 2,
                "overtaken": 6,
            }
            assert loaded.unfinished


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
    assert [Path(first.path).name in one and "the end of the segment is missing" in one for one in loaded.damage] == [
        True
    ]


def test_records_that_make_no_sense_are_reported_and_the_others_count(broker: Broker) -> None:
    async def story() -> None:
        commit(broker.coordinator, "g", {("t", 0): committed(1)})
        strange = {
            b"": b"",
            b"\0": b"x",
            b"\0\1\0\5ab": b"x",
            b"\0\2\0\1h": b"\0\3\0\1",
            b"\0\2\0\1i": b"\0\x09",
            offset_key("g", "t", 1): b"\0\3",
            b"\0\3\0\1k": b"\0\0\0",  # of the newer consumer protocol
        }
        times = pa.array([T] * len(strange), pa.int64())
        columns = {"timestamp": times, "key": pa.array(strange, pa.binary()), "value": pa.array(strange.values())}
        topic = broker.topics.get(TOPIC)
        assert topic is not None
        topic.partitions[0].append(kts.encode(columns))
        again = broker.restart()
        assert {group.group_id for group in again.groups()} >= {"g"}
        assert set(again.fetch("g", None)) == {("t", 0)}
        assert len(again.journal.problems) == 6

    play(story())


def test_records_are_kafkas_byte_for_byte() -> None:
    """Layouts from Kafka's message definitions, written out by hand."""
    assert offset_key("gé", "t", 258) == b"\0\1\0\3g\xc3\xa9\0\1t\0\0\1\2"
    assert group_key("g") == b"\0\2\0\1g"
    plain = b"\0\3" + b"\0\0\0\0\0\0\0\7" + b"\0\0\0\3" + b"\0\1m" + T.to_bytes(8, "big")
    assert offset_value(Committed(7, 3, "m", T)) == plain
    expiring = b"\0\1" + b"\0\0\0\0\0\0\0\7" + b"\0\1m" + T.to_bytes(8, "big") + (T + 1).to_bytes(8, "big")
    assert offset_value(Committed(7, -1, "m", T, T + 1)) == expiring
    assert read_offset(b"\0\0" + bytes(7) + b"\7\0\1m" + bytes(8)) == Committed(7, -1, "m", 0)
    flexible = b"\0\4" + bytes(7) + b"\7" + b"\xff\xff\xff\xff" + b"\2m" + bytes(8) + b"\1\0\x10" + bytes(16)
    assert read_offset(flexible) == Committed(7, -1, "m", 0)
    member = {
        "member_id": "m",
        "group_instance_id": None,
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout": 1,
        "session_timeout": 2,
        "subscription": b"s",
        "assignment": b"",
    }
    group = {
        "protocol_type": "consumer",
        "generation": 5,
        "protocol": "range",
        "leader": "m",
        "current_state_timestamp": 9,
        "members": [member],
    }
    head = b"\0\x08consumer\0\0\0\5\0\5range\0\1m"
    tail = b"\0\1c\0\2/h\0\0\0\1\0\0\0\2\0\0\0\1s\0\0\0\0"
    assert group_value(group) == b"\0\3" + head + bytes(7) + b"\x09\0\0\0\1\0\1m\xff\xff" + tail
    assert read_group(group_value(group)) == group
    oldest = b"\0\0" + head + b"\0\0\0\1\0\1m\0\1c\0\2/h\0\0\0\2\0\0\0\1s\0\0\0\0"
    older = group | {"current_state_timestamp": -1, "members": [member | {"rebalance_timeout": 2}]}
    assert read_group(oldest) == older


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1\0\5a", b"\0\0\x7f\xff\xff\xff"])
def test_what_is_no_subscription_names_no_topics(data: bytes) -> None:
    assert subscribed_topics(data) is None
    assert subscribed_topics(subscription("t", "u")) == {"t", "u"}


def test_cut_records_are_refused() -> None:
    for whole, read in (
        (offset_key("g", "t", 1), read_key),
        (group_key("g"), read_key),
        (offset_value(committed(1)), read_offset),
    ):
        for cut in range(len(whole)):
            with pytest.raises(KtsError):
                read(whole[:cut])


@pytest.mark.parametrize(
    ("text", "number"),
    [("", 0), ("a", 97), ("group", 98629247), ("polygenelubricants", 0), ("\N{SNAKE}", 1772400), ("zzzzzz", 685785664)],
)
def test_groups_are_spread_over_partitions_by_javas_hash(text: str, number: int) -> None:
    assert java_hash(text) == number


def test_two_loops_at_once_are_refused(broker: Broker) -> None:
    async def story() -> None:
        (member,) = await members(broker.coordinator, 1)

        async def elsewhere() -> None:
            with pytest.raises(KtsError, match="one event loop"):
                member.heartbeat()

        await asyncio.to_thread(lambda: play(elsewhere()))
        assert member.heartbeat() == ErrorCode.NONE

    play(story())
