"""DescribeGroups, in every version."""

from __future__ import annotations

import pytest
from support.broker.asking import versions
from support.broker.group_asking import ask, asked_topics, member_of, told
from support.broker.group_play import subscription

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_describe(broker: Broker, version: int) -> None:
    async def story() -> None:
        joined = await member_of(broker, sync=False)
        (waiting,) = (await ask(broker, ApiKey.DESCRIBE_GROUPS, version, groups=["g"]))["groups"]
        assert (waiting["group_state"], waiting["protocol_data"]) == ("CompletingRebalance", "")
        assert waiting["members"][0]["member_metadata"] == b""
        parts = [{"member_id": joined["member_id"], "assignment": b"part"}]
        await ask(
            broker,
            ApiKey.SYNC_GROUP,
            0,
            **{"group_id": "g", "generation_id": 1, "member_id": joined["member_id"], "assignments": parts},
        )
        more = {"include_authorized_operations": True} if version >= 3 else {}
        stable, dead = (await ask(broker, ApiKey.DESCRIBE_GROUPS, version, groups=["g", "x"], **more))["groups"]
        assert stable["error_code"] == ErrorCode.NONE
        assert (stable["group_state"], stable["protocol_type"], stable["protocol_data"]) == (
            "Stable",
            "consumer",
            "range",
        )
        assert stable["authorized_operations"] == (328 if version >= 3 else -(2**31))
        (member,) = stable["members"]
        assert member == {
            "member_id": joined["member_id"],
            "group_instance_id": None,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "member_metadata": subscription("t"),
            "member_assignment": b"part",
        }
        assert (dead["group_id"], dead["group_state"], dead["members"]) == ("x", "Dead", [])
        assert dead["error_code"] == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)

    told(story)


def test_what_is_asked_for_twice_is_answered_once(broker: Broker) -> None:
    """Else a small request would have an answer that no memory holds."""

    async def story() -> None:
        entry = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        await ask(broker, ApiKey.OFFSET_COMMIT, 2, group_id="s", topics=asked_topics(broker, 2, t=[entry]))
        assert len((await ask(broker, ApiKey.DESCRIBE_GROUPS, 5, groups=["s"] * 1000))["groups"]) == 1

    told(story)
