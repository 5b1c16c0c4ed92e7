"""Members that do what they like, when they like: what a group promises holds, and nobody is forgotten."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from support.broker.group_play import GROUP, Clock, Member, advance, make, open_topics, play, settle, subscription

from kts.broker.codes import ErrorCode
from kts.broker.groups import Coordinator
from kts.broker.groups.group import JoinResult, State, SyncResult
from kts.broker.topics import Topics

STEPS = 400
PROTOCOLS = [
    (("range", subscription("t")),),
    (("range", subscription("t")), ("sticky", subscription("t"))),
    (("sticky", subscription("t")), ("range", b"no subscription")),
]
EXPECTED = {
    ErrorCode.NONE,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
}


class Witness:
    """Sees all answers, and knows which of them fit together."""

    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}  # by generation
        self.assigned: dict[int, dict[str, bytes]] = {}
        self.waiting: list[asyncio.Future[JoinResult] | asyncio.Future[SyncResult]] = []
        self.agreed = 0

    def restarted(self, coordinator: Coordinator) -> None:
        """A generation that nobody had assigned was not written: Kafka, too, gives its number again."""
        group = coordinator.registry.groups.get(GROUP)
        known = group.generation_id if group is not None else 0
        self.leaders = {each: leader for each, leader in self.leaders.items() if each <= known}
        self.assigned = {each: parts for each, parts in self.assigned.items() if each <= known}

    def join(self, member: Member) -> None:
        answer = member.ask_to_join()
        self.waiting.append(answer)
        answer.add_done_callback(lambda done: self.joined(member, done.result()))

    def joined(self, member: Member, found: JoinResult) -> None:
        assert found.error in EXPECTED
        if found.error == ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id = found.member_id
        elif found.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            member.member_id = ""
        if found.error:
            return
        member.member_id, member.generation_id = found.member_id, found.generation_id
        if found.members and not found.skip_assignment:
            assert found.leader_id == found.member_id
            assert found.member_id in {member_id for member_id, _, _ in found.members}
            before = self.leaders.setdefault(found.generation_id, found.member_id)
            assert before == found.member_id, f"generation {found.generation_id} has two leaders"

    def sync(self, member: Member) -> None:
        generation = member.generation_id
        mine = {f"{member.member_id}": f"{generation}".encode()}
        group = member.coordinator.registry.groups.get(GROUP)
        if group is not None:
            mine = {member_id: f"{generation}:{member_id}".encode() for member_id in group.members}
        answer = member.ask_to_sync(mine)
        self.waiting.append(answer)
        answer.add_done_callback(lambda done: self.synced(member, generation, done.result()))

    def synced(self, member: Member, generation: int, found: SyncResult) -> None:
        assert found.error in EXPECTED
        if found.error == ErrorCode.UNKNOWN_MEMBER_ID:
            member.member_id = ""
        if not found.error and found.assignment:
            self.agreed += 1
            assert found.assignment.startswith(f"{generation}:".encode()), "a part of another generation"
            known = self.assigned.setdefault(generation, {})
            who = member.instance_id or found.assignment.decode()
            assert known.setdefault(who, found.assignment) == found.assignment, "two parts in one generation"


def restart(coordinator: Coordinator, topics: Topics, clock: Clock, directory: Path) -> tuple[Coordinator, Topics]:
    """What is stable comes back as it was."""
    group = coordinator.registry.groups.get(GROUP)
    before = None
    if group is not None and group.state is State.STABLE:
        before = group.generation_id, {key: each.assignment for key, each in group.members.items()}, dict(group.static)
    for each in list(coordinator.registry.groups.values()):
        for member in each.members.values():
            member.answer_join(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
            member.answer_sync(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
    coordinator.close()
    topics.close()
    topics = open_topics(directory, clock)
    coordinator = make(topics, clock)
    assert coordinator.journal.problems == []
    if before is not None:
        again = coordinator.registry.groups[GROUP]
        found = again.generation_id, {key: each.assignment for key, each in again.members.items()}, again.static
        assert found == before
    return coordinator, topics


@pytest.mark.parametrize("number", range(3))
def test_whatever_members_do_a_generation_has_one_leader_and_one_assignment(
    tmp_path: Path, seed: int, number: int
) -> None:
    rng = random.Random(seed + number)
    clock = Clock()

    async def story() -> None:
        directory = tmp_path / "data"
        topics = open_topics(directory, clock)
        coordinator = make(topics, clock, initial_rebalance_delay_ms=rng.choice([0, 3000]))
        witness = Witness()
        found = [
            Member(
                coordinator, f"c{each}", instance_id=rng.choice([None, None, f"i{each}"]), version=rng.choice([3, 9])
            )
            for each in range(5)
        ]
        found.append(Member(coordinator, "twin", instance_id="i0"))
        for step in range(20 * STEPS):
            if step >= STEPS and witness.agreed > 5:
                break
            member = rng.choice(found)
            do = rng.choices(
                ["join", "sync", "together", "heartbeat", "leave", "forget", "protocols", "wait", "commit", "restart"],
                [30, 30, 10, 20, 3, 3, 3, 20, 10, 0.5],
            )[0]
            if do == "join":
                witness.join(member)
            elif do == "sync" and member.generation_id > 0:
                witness.sync(member)
            elif do == "together":  # as clients do; what others of them do meanwhile may still be in the way
                witness.join(member)
                for each in found:
                    if each is not member and each.member_id:
                        witness.join(each)
                await settle()
                for each in found:
                    if each.generation_id > 0:
                        witness.sync(each)
            elif do == "heartbeat":
                assert member.heartbeat() in EXPECTED
            elif do == "leave":
                assert member.leave() in EXPECTED
            elif do == "forget":
                member.member_id = ""
            elif do == "protocols":
                member.protocols = rng.choice(PROTOCOLS)
            elif do == "wait":
                await advance(rng.choice([0, 10, 1000, 4000, 9000, 30_000]))
                clock.now_ms += 1000
            elif do == "commit":
                assert member.commit(1) in EXPECTED
            elif do == "restart":
                await settle()  # whoever has an answer knows it
                coordinator, topics = restart(coordinator, topics, clock, directory)
                witness.restarted(coordinator)
                for each in found:
                    each.coordinator = coordinator
            if rng.random() < 0.5:
                await settle()
        for _ in range(40):
            await advance(60_000)
        assert all(each.done() for each in witness.waiting), "a request was never answered"
        for group in coordinator.groups():
            assert group.state is State.EMPTY
            assert coordinator.delete_group(group.group_id) == ErrorCode.NONE
        assert coordinator.registry.usage.bytes == 0
        assert witness.agreed > 5
        topics.close()

    play(story())
