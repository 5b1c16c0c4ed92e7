"""LeaveGroup, in every version."""

from __future__ import annotations

import pytest
from support.broker.asking import versions
from support.broker.group_asking import ask, member_of, told

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave(broker: Broker, version: int) -> None:
    async def story() -> None:
        joined = await member_of(broker)
        leaving = [joined["member_id"], "nobody"]
        if version < 3:
            errors = [
                (await ask(broker, ApiKey.LEAVE_GROUP, version, group_id="g", member_id=each))["error_code"]
                for each in leaving
            ]
        else:
            members = [{"member_id": each} for each in leaving]
            found = await ask(broker, ApiKey.LEAVE_GROUP, version, group_id="g", members=members)
            assert found["error_code"] == ErrorCode.NONE
            assert [each["member_id"] for each in found["members"]] == leaving
            errors = [each["error_code"] for each in found["members"]]
        assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
        found = await ask(broker, ApiKey.LEAVE_GROUP, version, group_id="", member_id="x", members=[])
        assert found["error_code"] == ErrorCode.INVALID_GROUP_ID

    told(story)
