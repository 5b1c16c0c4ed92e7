"""A group: its members, its generation, its leader, and the form in which it is stored."""

from __future__ import annotations

import asyncio

from support.broker.group_play import Member, Tell, members

from kts.broker.codes import ErrorCode
from kts.broker.groups import Coordinator


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
