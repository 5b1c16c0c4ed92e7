"""Members of groups come, agree, go and fall silent; time is moved, not waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.group_play import (
    REBALANCE_MS,
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

Story = Callable[[Coordinator], Coroutine[Any, Any, None]]
Tell = Callable[..., None]


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Tell]:
    """Plays a story with a coordinator, whose memory is free again when all groups are deleted."""
    clock = Clock()
    topics = open_topics(tmp_path / "data", clock)

    def play_story(story: Story, **settings: Any) -> None:
        coordinator = make(topics, clock, **settings)

        async def whole() -> None:
            await story(coordinator)
            for _ in range(8):
                await advance(SESSION_MS + REBALANCE_MS)
            for group in coordinator.groups():
                assert group.state is State.EMPTY, f"{group.group_id} has members that were never heard of again"
                assert not coordinator.delete_group(group.group_id)
            assert coordinator.registry.usage.bytes == 0

        play(whole())

    yield play_story
    topics.close()


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


def test_the_protocol_that_all_support_and_most_prefer_is_chosen(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        said = [("a", "b", "c"), ("b", "a"), ("b", "a", "d")]
        found = await members(coordinator, 3, protocols=(("a", b""), ("b", b"")))
        for member, names in zip(found, said, strict=True):
            member.protocols = tuple((name, b"") for name in names)
        answers = await asyncio.gather(*(member.join() for member in found))
        assert {answer.protocol_name for answer in answers} == {"b"}
        assert (await Member(coordinator, "x", protocols=(("d", b""),)).ask_to_join()).error == (
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        )
        strange = Member(coordinator, "x", protocol_type="connect", protocols=(("a", b""),))
        assert (await strange.ask_to_join()).error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

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


def test_groups_take_no_more_memory_than_they_may(tell: Tell) -> None:
    async def story(coordinator: Coordinator) -> None:
        errors = []
        for number in range(200):
            joining = Member(coordinator, "c", group_id=f"g{number}", protocols=(("p", bytes(10_000)),)).join()
            errors.append((await joining).error)
        assert set(errors) == {ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED}
        assert coordinator.registry.usage.bytes <= 1_000_000
        pending = [await Member(coordinator, "c", group_id="more").ask_to_join() for _ in range(1000)]
        assert pending[-1].error == ErrorCode.GROUP_MAX_SIZE_REACHED
        simple = Member(coordinator, "c", group_id="simple")
        found = {simple.commit(1, partition, metadata="x" * 4000) for partition in range(1000)}
        assert found == {ErrorCode.NONE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE} or found == {
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        }
        assert coordinator.registry.usage.bytes <= 1_000_000

    tell(story, max_bytes=1_000_000, max_member_bytes=900_000)
