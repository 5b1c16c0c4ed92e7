"""A group: its members, its generation, its leader, and the form in which it is stored."""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest
from support.broker.group_play import Member, Tell, members, subscription

from kts.broker.codes import ErrorCode
from kts.broker.groups import Coordinator
from kts.broker.groups import group as group_module
from kts.broker.groups.group import GROUP_BYTES, Group, State, Usage, check_generation, check_member
from kts.coordinator_records.groups import Committed
from kts.errors import KtsError

NOW = 1_700_000_000_000


def member(name: str, *protocols: str, instance_id: str | None = None) -> group_module.Member:
    reads = tuple((protocol, subscription(name)) for protocol in protocols or ("range",))
    return group_module.Member(name, instance_id, f"client-{name}", "/h", 300, 100, "consumer", reads)


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


def test_the_first_member_leads_and_then_the_next_one() -> None:
    group = Group("g", NOW, Usage())
    for name in ("a", "b", "c"):
        group.add(member(name))
    assert group.leader_id == "a"
    group.remove("b")
    assert group.leader_id == "a"
    group.remove("a")
    assert group.leader_id == "c"
    group.remove("c")
    assert group.leader_id is None and not group.elect_joined_leader()


def test_a_protocol_must_be_common_to_all_whoever_comes_and_goes() -> None:
    group = Group("g", NOW, Usage())
    assert group.supports("consumer", (("x", b""),)) and not group.supports("consumer", ())
    for name, protocols in (("a", "xy"), ("b", "yz"), ("c", "zy")):
        group.add(member(name, *protocols))
    group.move_to(State.PREPARING_REBALANCE, NOW)
    assert group.select_protocol() == "y"
    common = {name for name in "xyz" if group.supports("consumer", ((name, b""),))}
    assert common == {"y"} and not group.supports("connect", (("y", b""),))
    group.remove("a")
    assert group.select_protocol() == "y"  # each has a vote, and the first of equals wins
    group.update(group.members["b"], (("z", b""),), 300, 100)
    assert group.select_protocol() == "z"


def test_states_follow_each_other_as_in_kafka() -> None:
    allowed = {
        (before, after)
        for before, after in permutations(State, 2)
        if before != State.DEAD and (after == State.DEAD or (before, after) in FOLLOWING)
    }
    for before, after in permutations(State, 2):
        group = Group("g", NOW, Usage())
        group.state = before
        if (before, after) in allowed:
            group.move_to(after, NOW + 1)
            assert (group.state, group.state_ms) == (after, NOW + 1)
        elif (before, after) != (State.DEAD, State.DEAD):
            with pytest.raises(KtsError, match="^group 'g': expected one of "):
                group.move_to(after, NOW + 1)
            assert (group.state, group.state_ms) == (before, NOW)


FOLLOWING = {
    (State.EMPTY, State.PREPARING_REBALANCE),
    (State.STABLE, State.PREPARING_REBALANCE),
    (State.COMPLETING_REBALANCE, State.PREPARING_REBALANCE),
    (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE),
    (State.PREPARING_REBALANCE, State.EMPTY),
    (State.COMPLETING_REBALANCE, State.STABLE),
}


def test_what_is_stored_of_a_group_makes_it_again_and_its_memory_is_counted() -> None:
    usage, again_usage = Usage(), Usage()
    group, again = Group("g", NOW, usage), Group("g", NOW, again_usage)
    for name, instance_id in (("a", None), ("b", "i")):
        group.add(member(name, instance_id=instance_id))
    group.leader_id = "b"
    group.move_to(State.PREPARING_REBALANCE, NOW + 1)
    group.next_generation(NOW + 2)
    parts = {"a": b"1", "b": b"23"}
    for name, part in parts.items():
        group.assign(group.members[name], part)
    group.move_to(State.STABLE, NOW + 3)
    again.restore(group.stored(parts))
    assert again.stored(parts) == group.stored(parts)
    assert (again.state, again.generation_id, again.leader_id, again.static) == (State.STABLE, 1, "b", {"i": "b"})
    assert again.topics == group.topics == {"a", "b"}
    assert again.is_subscribed("a") and not again.is_subscribed("c")
    assert again_usage.bytes == usage.bytes > GROUP_BYTES
    again.put_offset("a", 0, Committed(1, -1, "m" * 100, NOW))
    again.put_offset("a", 0, Committed(2, -1, "m", NOW))
    assert again.remove_offsets([("a", 1)]) == []
    for name in list(again.members):
        again.remove(name)
    again.forget()
    assert (again_usage.bytes, again_usage.member_bytes) == (0, 0)


def test_a_member_is_known_by_its_id_and_a_static_one_by_its_newest() -> None:
    group = Group("g", NOW, Usage())
    group.add(member("a"))
    group.add(member("b", instance_id="i"))
    group.leader_id = "b"
    replaced = group.replace_static("i", "c")
    assert (replaced.member_id, group.leader_id, list(group.members)) == ("c", "c", ["a", "c"])
    for member_id, instance_id, error in (
        ("a", None, ErrorCode.NONE),
        ("c", "i", ErrorCode.NONE),
        ("b", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("b", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", "j", ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert check_member(group, member_id, instance_id) == error
    assert [check_generation(group, number) for number in (0, 1)] == [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION]
