"""What members ask of a coordinator, and what it answers."""

from __future__ import annotations

import asyncio

import pytest
from support.broker.group_play import (
    DAY_MS,
    SESSION_MS,
    Member,
    Restartable,
    T,
    Tell,
    advance,
    commit,
    committed,
    members,
    play,
    settle,
    subscription,
)

from kts.broker.codes import ErrorCode
from kts.broker.groups import Coordinator
from kts.broker.groups.group import State
from kts.coordinator_records.groups import Committed


def test_a_new_member_is_given_an_id_then_a_generation_then_its_part(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        member = Member(coordinator, "c")
        first = await member.ask_to_join()
        assert first.error == ErrorCode.MEMBER_ID_REQUIRED
        assert first.member_id.startswith("c-")
        assert first.generation_id == -1
        member.member_id = first.member_id
        joined = await member.join()
        assert joined.error == ErrorCode.NONE
        assert (joined.generation_id, joined.leader_id, joined.protocol_name) == (1, member.member_id, "range")
        assert joined.members == ((member.member_id, None, subscription("t")),)
        group = coordinator.group("g")
        assert group is not None
        assert group.state is State.COMPLETING_REBALANCE
        synced = await member.ask_to_sync({member.member_id: b"all"})
        assert (synced.error, synced.assignment, synced.protocol_type) == (ErrorCode.NONE, b"all", "consumer")
        assert group.state is State.STABLE
        assert member.heartbeat() == ErrorCode.NONE
        assert member.leave() == ErrorCode.NONE
        assert group.state is State.EMPTY
        assert group.generation_id == 2
        assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    tell(story)


def test_before_version_4_a_member_joins_at_once(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        member = Member(coordinator, "c", version=3)
        joined = await member.ask_to_join()
        assert joined.error == ErrorCode.NONE
        assert joined.generation_id == 1

    tell(story)


def test_a_join_that_is_asked_twice_is_answered_twice(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        leader, follower = await members(coordinator, 2)
        await asyncio.gather(leader.join(), follower.join())
        again = await follower.ask_to_join()  # the answer may have been lost on the way
        assert (again.error, again.generation_id) == (ErrorCode.NONE, follower.generation_id)
        assert (await leader.ask_to_join()).members
        follower.protocols = (("range", subscription("t", "u")),)
        changed = follower.ask_to_join()
        await settle()
        assert not changed.done()
        assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        older = leader.ask_to_join()
        assert (await changed).generation_id == follower.generation_id + 1
        assert (await older).generation_id == follower.generation_id + 1

    tell(story)


def test_a_request_of_a_member_that_waits_no_more_is_answered(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        first, second = await members(coordinator, 2)
        older = first.ask_to_join()
        newer = first.ask_to_join()
        assert (await older).error == ErrorCode.REBALANCE_IN_PROGRESS
        await second.join()
        assert not (await newer).error
        first.generation_id = second.generation_id
        leads, follows = (second, first) if (await newer).leader_id == second.member_id else (first, second)
        waiting = follows.ask_to_sync()
        follows_again = follows.ask_to_sync()
        assert (await waiting).error == ErrorCode.REBALANCE_IN_PROGRESS
        await leads.ask_to_sync({})
        assert not (await follows_again).error

    tell(story)


def test_a_full_group_takes_nobody(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        await members(coordinator, 2)
        late = await Member(coordinator, "late").ask_to_join()
        assert (late.error, late.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")

    tell(story, max_size=2)


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001, 2**31 - 1])
def test_session_timeouts_outside_of_the_settings_are_refused(tell: Tell, session_ms: int) -> None:
    async def story(coordinator: Coordinator) -> None:
        found = await Member(coordinator, "c", session_ms=session_ms).ask_to_join()
        assert found.error == ErrorCode.INVALID_SESSION_TIMEOUT
        assert not coordinator.groups()

    tell(story)


def test_what_is_asked_of_nobody_is_answered_as_kafka_does(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        (known,) = await members(coordinator, 1)
        ghost = Member(coordinator, "ghost")
        ghost.member_id, ghost.generation_id = "ghost-1", 1
        for group_id in ("g", "nobody"):
            ghost.group_id = group_id
            assert (await ghost.ask_to_join()).error == ErrorCode.UNKNOWN_MEMBER_ID
            assert (await ghost.ask_to_sync()).error == ErrorCode.UNKNOWN_MEMBER_ID
            assert ghost.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
            assert ghost.leave() == ErrorCode.UNKNOWN_MEMBER_ID
        assert ghost.commit(1) == ErrorCode.ILLEGAL_GENERATION  # of a group that is not there
        ghost.group_id = "g"
        assert ghost.commit(1) == ErrorCode.UNKNOWN_MEMBER_ID
        ghost.group_id = ""
        assert (await ghost.ask_to_join()).error == ErrorCode.INVALID_GROUP_ID
        assert (await ghost.ask_to_sync()).error == ErrorCode.INVALID_GROUP_ID
        assert ghost.heartbeat() == ErrorCode.INVALID_GROUP_ID
        assert coordinator.leave("", [("a", None)]) == (ErrorCode.INVALID_GROUP_ID, [])
        known.generation_id += 1
        assert known.heartbeat() == ErrorCode.ILLEGAL_GENERATION
        assert (await known.ask_to_sync()).error == ErrorCode.ILLEGAL_GENERATION
        assert known.commit(1) == ErrorCode.ILLEGAL_GENERATION
        stranger = Member(coordinator, "stranger", protocols=())
        assert (await stranger.ask_to_join()).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    tell(story)


def test_offsets_and_groups_survive_a_restart(broker: Restartable) -> None:
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


def test_deleted_groups_offsets_and_topics_stay_deleted(broker: Restartable) -> None:
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
