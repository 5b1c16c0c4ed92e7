"""Members of groups come, agree, go and fall silent; time is moved, not waited for."""

from __future__ import annotations

import asyncio

import pytest
from support.broker.group_play import SESSION_MS, Member, Tell, advance, members, settle

from kts.broker.codes import ErrorCode
from kts.broker.groups import Coordinator


@pytest.mark.parametrize("count", [2, 5])
def test_members_share_a_generation_and_only_the_leader_is_told_of_all(tell: Tell, count: int) -> None:
    async def story(coordinator: Coordinator) -> None:
        found = await members(coordinator, count)
        waiting = [asyncio.ensure_future(member.ask_to_join()) for member in found]
        answers = await asyncio.gather(*waiting)
        assert len({answer.generation_id for answer in answers}) == 1
        assert {answer.leader_id for answer in answers} == {found[0].member_id}
        assert [len(answer.members) for answer in answers] == [count] + [0] * (count - 1)

    tell(story)


def test_a_second_member_makes_the_first_join_again(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        (first,) = await members(coordinator, 1)
        second = Member(coordinator, "new")
        coming = asyncio.ensure_future(second.take_part())
        await settle()
        assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert not coming.done()
        assert first.commit(7) == ErrorCode.NONE  # until it joins it may still commit
        assert await first.take_part() == first.member_id.encode()
        assert await coming == second.member_id.encode()
        assert first.generation_id == second.generation_id == 2

    tell(story)


def test_followers_wait_for_the_leaders_assignment(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        leader, follower = await members(coordinator, 2)
        await asyncio.gather(leader.join(), follower.join())
        waiting = follower.ask_to_sync()
        await settle()
        assert not waiting.done()
        assert follower.heartbeat() == ErrorCode.NONE
        assert follower.commit(1) == ErrorCode.REBALANCE_IN_PROGRESS
        assert (await leader.ask_to_sync({follower.member_id: b"yours"})).assignment == b""
        assert (await waiting).assignment == b"yours"
        assert (await follower.ask_to_sync()).assignment == b"yours"  # it may ask again

    tell(story)


def test_heartbeats_keep_a_member_and_silence_ends_it(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        lively, silent = await members(coordinator, 2)
        for _ in range(9):
            await advance(SESSION_MS * 0.11)
            assert lively.heartbeat() == ErrorCode.NONE
        await advance(SESSION_MS * 0.11)
        assert lively.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert await lively.take_part() == lively.member_id.encode()

    tell(story)


def test_a_commit_is_a_sign_of_life(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        (member,) = await members(coordinator, 1)
        for offset in range(5):
            await advance(SESSION_MS * 0.8)
            assert member.commit(offset) == ErrorCode.NONE

    tell(story)


def test_to_ask_for_its_part_again_is_a_sign_of_life(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        (member,) = await members(coordinator, 1)
        for _ in range(5):
            await advance(SESSION_MS * 0.8)
            assert (await member.ask_to_sync()).assignment == member.member_id.encode()

    tell(story)


def test_when_the_leader_dies_another_one_leads(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        _, *others = await members(coordinator, 3)
        await advance(SESSION_MS * 0.6)
        assert [member.heartbeat() for member in others] == [ErrorCode.NONE] * 2
        await advance(SESSION_MS * 0.6)
        assert [member.heartbeat() for member in others] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
        parts = await asyncio.gather(*(member.take_part() for member in others))
        assert parts == [member.member_id.encode() for member in others]
        group = coordinator.group("g")
        assert group is not None
        assert group.leader_id in {member.member_id for member in others}

    tell(story)


def test_who_does_not_join_again_in_time_is_left_behind(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        first, stubborn = await members(coordinator, 2, rebalance_ms=20_000)
        joining = asyncio.ensure_future(first.take_part())
        for _ in range(4):
            await advance(4_000)
            assert stubborn.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert not joining.done()
        await advance(5_000)
        assert await joining == first.member_id.encode()
        assert stubborn.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    tell(story)


def test_a_leader_that_never_assigns_is_struck_and_the_others_begin_anew(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        leader, follower = await members(coordinator, 2, rebalance_ms=5_000)
        await asyncio.gather(leader.join(), follower.join())
        waiting = follower.ask_to_sync()
        await advance(6_000)
        assert (await waiting).error == ErrorCode.REBALANCE_IN_PROGRESS
        assert leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert await follower.take_part() == follower.member_id.encode()

    tell(story)


def test_a_member_that_waits_for_its_part_needs_no_heartbeats(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        leader, follower = await members(coordinator, 2)
        await asyncio.gather(leader.join(), follower.join())
        waiting = follower.ask_to_sync()
        for _ in range(4):
            await advance(SESSION_MS * 0.7)
            assert leader.heartbeat() == ErrorCode.NONE
        await leader.ask_to_sync({})
        assert not (await waiting).error

    tell(story)


def test_members_that_come_during_the_initial_delay_share_the_first_generation(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        first, second = Member(coordinator, "a"), Member(coordinator, "b")
        joining = [asyncio.ensure_future(first.join())]
        await advance(2_000)
        joining.append(asyncio.ensure_future(second.join()))
        await advance(2_000)
        assert not any(each.done() for each in joining)  # a new member prolongs the wait
        await advance(4_000)
        assert [(await each).generation_id for each in joining] == [1, 1]

    tell(story, initial_rebalance_delay_ms=3_000)


def test_only_the_first_generation_is_waited_for_longer(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        first = Member(coordinator, "first", version=3)
        joining = first.ask_to_join()
        await advance(4_000)
        first.member_id = (await joining).member_id
        assert first.leave() == ErrorCode.NONE
        again = Member(coordinator, "again", version=3).ask_to_join()
        await advance(2_000)
        late = Member(coordinator, "late", version=3).ask_to_join()
        await advance(2_000)
        assert again.done()
        assert (await again).generation_id == (await late).generation_id == 3

    tell(story, initial_rebalance_delay_ms=3_000)


def test_members_that_keep_coming_prolong_the_wait_up_to_the_rebalance_timeout(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        first = asyncio.ensure_future(Member(coordinator, "first", rebalance_ms=10_000).join())
        late = []
        for number in range(8):
            await advance(2_000)
            assert number >= 4 or not first.done()
            late.append(Member(coordinator, f"c{number}", rebalance_ms=10_000, version=3).ask_to_join())
        assert first.done()
        assert len((await first).members) >= 5

    tell(story, initial_rebalance_delay_ms=3_000)


def test_an_id_that_is_never_used_holds_nobody_up_for_longer_than_a_session(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        (first,) = await members(coordinator, 1)
        pending = await Member(coordinator, "late").ask_to_join()
        joining = asyncio.ensure_future(first.take_part())
        await advance(SESSION_MS * 0.9)
        assert not joining.done()
        await advance(SESSION_MS * 0.2)
        assert await joining == first.member_id.encode()
        late = Member(coordinator, "late")
        late.member_id = pending.member_id
        assert (await late.ask_to_join()).error == ErrorCode.UNKNOWN_MEMBER_ID

    tell(story)


def test_an_id_that_is_given_back_holds_nobody_up(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        (first,) = await members(coordinator, 1)
        late = Member(coordinator, "late")
        late.member_id = (await late.ask_to_join()).member_id
        joining = asyncio.ensure_future(first.take_part())
        await settle()
        assert not joining.done()
        assert late.leave() == ErrorCode.NONE
        assert await joining == first.member_id.encode()

    tell(story)


def test_a_member_that_waits_to_join_and_was_never_heard_of_again_goes_in_the_end(tell: Tell) -> None:
    """It cannot send heartbeats: it does not know its id. Kafka gives it 5 minutes."""

    async def story(coordinator: Coordinator) -> None:
        (first,) = await members(coordinator, 1, rebalance_ms=1_000_000, session_ms=1_000_000)
        lost = Member(coordinator, "lost", version=3).ask_to_join()
        await advance(299_000)
        assert not lost.done()
        await advance(2_000)
        assert lost.done()
        assert (await lost).error == ErrorCode.UNKNOWN_MEMBER_ID
        assert first.leave() == ErrorCode.NONE

    tell(story)
