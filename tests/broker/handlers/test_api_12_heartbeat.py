"""Heartbeat, in every version."""

from __future__ import annotations

import pytest
from support.broker.asking import versions
from support.broker.group_asking import Body, ask, member_of, told

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat(broker: Broker, version: int) -> None:
    async def story() -> None:
        joined = await member_of(broker)
        body: Body = {"group_id": "g", "generation_id": 1, "member_id": joined["member_id"]}
        assert (await ask(broker, ApiKey.HEARTBEAT, version, **body))["error_code"] == ErrorCode.NONE
        for name, value, error in (
            ("generation_id", 2, ErrorCode.ILLEGAL_GENERATION),
            ("member_id", "x", ErrorCode.UNKNOWN_MEMBER_ID),
            ("group_id", "x", ErrorCode.UNKNOWN_MEMBER_ID),
            ("group_id", "", ErrorCode.INVALID_GROUP_ID),
        ):
            assert (await ask(broker, ApiKey.HEARTBEAT, version, **body | {name: value}))["error_code"] == error

    told(story)
