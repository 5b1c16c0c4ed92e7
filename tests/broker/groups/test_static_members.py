"""Static members: who comes back under the name of his instance takes his own place (KIP-345, KIP-814)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.broker.group_play import (
    SESSION_MS,
    Clock,
    Member,
    advance,
    make,
    members,
    open_topics,
    play,
    settle,
    subscription,
)

from kts.broker.codes import ErrorCode
from kts.broker.groups import Coordinator
from kts.broker.groups.group import State


async def static_members(coordinator: Coordinator, count: int, **how: Any) -> list[Member]:
    """A stable group; the first one leads."""
    found = [Member(coordinator, f"c{number}", instance_id=f"i{number}", **how) for number in range(count)]
    for number in range(1, count + 1):
        await asyncio.gather(*(member.take_part() for member in found[number - 1 :: -1]))
    return found


@pytest.fixture
def coordinator(tmp_path):  # type: ignore[no-untyped-def]
    clock = Clock()
    topics = open_topics(tmp_path / "data", clock)
    yield make(topics, clock)
    topics.close()


def back(member: Member) -> Member:
    """The same instance, started anew: it has forgotten its member id."""
    found = Member(member.coordinator, member.name, instance_id=member.instance_id, version=member.version)
    found.protocols = member.protocols
    return found


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_member_comes_back_without_a_rebalance(coordinator: Coordinator, version: int) -> None:
    async def story() -> None:
        leader, follower = await static_members(coordinator, 2, version=version)
        generation = follower.generation_id
        new = back(follower)
        joined = await new.join()
        assert (joined.error, joined.generation_id) == (ErrorCode.NONE, generation)
        assert new.member_id not in ("", follower.member_id)
        assert (await new.ask_to_sync()).assignment == follower.member_id.encode()
        assert leader.heartbeat() == ErrorCode.NONE

    play(story())


@pytest.mark.parametrize("version", [8, 9])
def test_a_static_leader_that_comes_back_does_not_assign_anew(coordinator: Coordinator, version: int) -> None:
    async def story() -> None:
        leader, follower = await static_members(coordinator, 2, version=version)
        new = back(leader)
        joined = await new.join()
        if version >= 9:
            assert joined.skip_assignment
            assert joined.leader_id == new.member_id
            assert {member_id for member_id, _, _ in joined.members} == {new.member_id, follower.member_id}
        else:
            assert not joined.skip_assignment
            assert joined.leader_id == leader.member_id  # so that it does not take itself for the leader
            assert joined.members == ()
        assert (await new.ask_to_sync()).assignment == leader.member_id.encode()
        assert follower.heartbeat() == ErrorCode.NONE

    play(story())


def test_the_one_that_was_replaced_is_fenced_off(coordinator: Coordinator) -> None:
    async def story() -> None:
        (old,) = await static_members(coordinator, 1)
        new = back(old)
        await new.take_part()
        assert old.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
        assert old.commit(1) == ErrorCode.FENCED_INSTANCE_ID
        assert (await old.ask_to_sync()).error == ErrorCode.FENCED_INSTANCE_ID
        assert (await old.ask_to_join()).error == ErrorCode.FENCED_INSTANCE_ID
        assert old.leave() == ErrorCode.FENCED_INSTANCE_ID
        assert new.heartbeat() == ErrorCode.NONE
        stranger = Member(coordinator, "x", instance_id="nobody")
        stranger.member_id, stranger.generation_id = new.member_id, new.generation_id
        assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    play(story())


def test_requests_that_wait_are_fenced_off_too(coordinator: Coordinator) -> None:
    async def story() -> None:
        first, second = await static_members(coordinator, 2)
        waiting = second.ask_to_join()
        second.protocols = (("range", subscription("u")),)
        waiting = second.ask_to_join()
        await settle()
        new = asyncio.ensure_future(back(second).join())
        assert (await waiting).error == ErrorCode.FENCED_INSTANCE_ID
        await first.join()
        assert (await new).error == ErrorCode.NONE
        follows = first.ask_to_sync() if (await new).leader_id != first.member_id else None
        if follows is not None:
            again = asyncio.ensure_future(back(first).join())
            assert (await follows).error == ErrorCode.FENCED_INSTANCE_ID
            again.cancel()

    play(story())


def test_a_static_member_that_comes_back_during_the_assignment_begins_a_rebalance(coordinator: Coordinator) -> None:
    async def story() -> None:
        leader, follower = await static_members(coordinator, 2)
        await asyncio.gather(leader.join(), follower.join())
        waiting = follower.ask_to_sync()
        new = asyncio.ensure_future(back(leader).join())
        assert (await waiting).error == ErrorCode.REBALANCE_IN_PROGRESS
        await follower.join()
        assert (await new).generation_id == follower.generation_id

    play(story())


def test_a_static_member_that_comes_back_with_another_protocol_begins_a_rebalance(coordinator: Coordinator) -> None:
    async def story() -> None:
        both = (("range", subscription("t")), ("sticky", subscription("t")))
        leader, follower = await static_members(coordinator, 2, protocols=both)
        new = back(follower)
        new.protocols = both[1:]
        joining = asyncio.ensure_future(new.join())
        await settle()
        assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await leader.join()).protocol_name == "sticky"
        assert (await joining).generation_id == leader.generation_id

    play(story())


def test_a_static_member_that_does_not_join_again_keeps_its_place_for_one_generation(coordinator: Coordinator) -> None:
    async def story() -> None:
        lively, away = await static_members(coordinator, 2, session_ms=100_000)
        joining = asyncio.ensure_future(lively.take_part())
        await advance(61_000)  # the rebalance is over
        assert await joining == lively.member_id.encode()
        assert away.instance_id in coordinator.registry.groups["g"].static
        assert lively.heartbeat() == ErrorCode.NONE
        await advance(58_000)
        assert lively.heartbeat() == ErrorCode.NONE
        await advance(3_000)  # it has not asked for its part in the time of a rebalance
        assert away.instance_id not in coordinator.registry.groups["g"].static
        assert lively.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

    play(story())


def test_a_group_whose_static_members_all_stay_away_empties(coordinator: Coordinator) -> None:
    async def story() -> None:
        first, second = await static_members(coordinator, 2, rebalance_ms=0, session_ms=SESSION_MS)
        lost = first.ask_to_join()
        assert second.leave() == ErrorCode.NONE
        assert (await lost).error == ErrorCode.NONE
        await advance(SESSION_MS * 3)
        assert coordinator.registry.groups["g"].state is State.EMPTY

    play(story())


def test_an_administrator_takes_a_member_out_by_its_instance(coordinator: Coordinator) -> None:
    async def story() -> None:
        first, second = await static_members(coordinator, 2)
        leaving = [("", "i1"), ("", "i7"), ("", None), (first.member_id, "i1"), ("nobody", None)]
        error, errors = coordinator.leave("g", leaving)
        assert error == ErrorCode.NONE
        assert errors == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]
        assert second.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

    play(story())


def test_static_and_dynamic_members_share_a_group(coordinator: Coordinator) -> None:
    async def story() -> None:
        (dynamic,) = await members(coordinator, 1)
        static = Member(coordinator, "s", instance_id="i")
        parts = await asyncio.gather(static.take_part(), dynamic.take_part())
        assert parts == [static.member_id.encode(), dynamic.member_id.encode()]

    play(story())
