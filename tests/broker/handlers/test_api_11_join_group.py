"""JoinGroup, in every version."""

from __future__ import annotations

import asyncio

import pytest
from support.broker.asking import versions
from support.broker.group_asking import Body, ask, join, member_of, told
from support.broker.group_play import SESSION_MS, advance, settle, subscription

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join(broker: Broker, version: int) -> None:
    async def story() -> None:
        found = await join(broker, version)
        if version >= 4:
            assert found["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
            assert found["protocol_name"] == (None if version >= 7 else "")
            assert found["generation_id"] == -1
            found = await join(broker, version, found["member_id"])
        assert found["error_code"] == ErrorCode.NONE
        assert found["generation_id"] == 1
        assert found["protocol_name"] == "range"
        assert found["protocol_type"] == ("consumer" if version >= 7 else None)
        assert found["leader"] == found["member_id"]
        assert found["member_id"].startswith("c-")
        assert found["members"] == [
            {"member_id": found["member_id"], "group_instance_id": None, "metadata": subscription("t")}
        ]
        group = broker.coordinator.group("g")
        assert group is not None
        (member,) = group.members.values()
        assert member.rebalance_timeout_ms == (60_000 if version else SESSION_MS)
        assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")

    told(story)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP)[5:])
def test_a_static_member_needs_no_second_request(broker: Broker, version: int) -> None:
    async def story() -> None:
        found = await join(broker, version, group_instance_id="i")
        assert found["error_code"] == ErrorCode.NONE
        assert found["member_id"].startswith("i-")
        assert found["members"][0]["group_instance_id"] == "i"

    told(story)


def test_a_client_that_goes_away_while_it_waits_leaves_nothing_behind(broker: Broker) -> None:
    async def story() -> None:
        first = await member_of(broker)
        late = asyncio.ensure_future(join(broker, 3, "", "late"))
        await settle()
        late.cancel()
        await settle()
        assert late.cancelled()
        body: Body = {"group_id": "g", "generation_id": 1, "member_id": first["member_id"]}
        assert (await ask(broker, ApiKey.HEARTBEAT, 3, **body))["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
        again = await join(broker, 3, first["member_id"])
        assert len(again["members"]) == 2  # as in Kafka it counts until it has been silent for long enough
        await advance(SESSION_MS * 0.7)
        body["generation_id"] = again["generation_id"]
        assert (await ask(broker, ApiKey.HEARTBEAT, 3, **body))["error_code"] == ErrorCode.NONE
        await advance(SESSION_MS * 0.4)
        assert len((await join(broker, 3, first["member_id"]))["members"]) == 1

    told(story)


def test_a_protocol_that_is_named_twice_counts_once(broker: Broker) -> None:
    async def story() -> None:
        twice = [{"name": name, "metadata": name.encode()} for name in ("a", "b", "a")]
        found = await join(broker, 3, protocols=twice)
        assert (found["error_code"], found["protocol_name"]) == (ErrorCode.NONE, "b")

    told(story)


def test_a_client_with_an_endless_name_becomes_a_member(broker: Broker) -> None:
    async def story() -> None:
        name = "\N{SNAKE}" * 8191
        first = await join(broker, 9, "", name)
        assert first["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
        assert (await join(broker, 9, first["member_id"], name))["error_code"] == ErrorCode.NONE

    told(story)
