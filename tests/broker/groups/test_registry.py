"""The groups of a broker share one event loop and one memory."""

from __future__ import annotations

import asyncio

import pytest
from support.broker.group_play import SESSION_MS, Member, Restartable, Tell, advance, members, play

from kts.broker.codes import ErrorCode
from kts.broker.groups import Coordinator
from kts.errors import KtsError


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


def test_a_loop_that_ended_leaves_groups_to_the_next_one(broker: Restartable) -> None:
    found: list[Member] = []

    async def one() -> None:
        found.extend(await members(broker.coordinator, 1))

    async def other() -> None:
        assert found[0].heartbeat() == ErrorCode.NONE
        await advance(SESSION_MS * 1.1)
        assert found[0].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    play(one())
    play(other())


def test_a_rebalance_that_a_loop_left_goes_on_in_the_next_one(broker: Restartable) -> None:
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


def test_two_loops_at_once_are_refused(broker: Restartable) -> None:
    async def story() -> None:
        (member,) = await members(broker.coordinator, 1)

        async def elsewhere() -> None:
            with pytest.raises(KtsError, match="one event loop"):
                member.heartbeat()

        await asyncio.to_thread(lambda: play(elsewhere()))
        assert member.heartbeat() == ErrorCode.NONE

    play(story())
