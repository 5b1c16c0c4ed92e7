"""SyncGroup, in every version."""

from __future__ import annotations

import pytest
from support.broker.asking import versions
from support.broker.group_asking import Body, ask, member_of, told

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync(broker: Broker, version: int) -> None:
    async def story() -> None:
        joined = await member_of(broker, sync=False)
        body: Body = {"group_id": "g", "generation_id": 1, "member_id": joined["member_id"]}
        body["assignments"] = [{"member_id": joined["member_id"], "assignment": b"a"}]
        if version >= 5:
            for name, error in ((None, ErrorCode.INCONSISTENT_GROUP_PROTOCOL), ("x", 23)):
                wrong = {"protocol_type": "consumer", "protocol_name": name}
                assert (await ask(broker, ApiKey.SYNC_GROUP, version, **body, **wrong))["error_code"] == error
            body |= {"protocol_type": "consumer", "protocol_name": "range"}
        found = await ask(broker, ApiKey.SYNC_GROUP, version, **body)
        assert (found["error_code"], found["assignment"]) == (ErrorCode.NONE, b"a")
        names = ("consumer", "range") if version >= 5 else (None, None)
        assert (found["protocol_type"], found["protocol_name"]) == names
        wrong = body | {"generation_id": 9}
        assert (await ask(broker, ApiKey.SYNC_GROUP, version, **wrong))["error_code"] == ErrorCode.ILLEGAL_GENERATION

    told(story)
