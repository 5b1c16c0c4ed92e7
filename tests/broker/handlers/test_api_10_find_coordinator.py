"""FindCoordinator, in every version."""

from __future__ import annotations

import pytest
from support.broker.asking import versions
from support.broker.group_asking import ask, told

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_the_coordinator_is_this_broker_and_of_transactions_nobody(broker: Broker, version: int) -> None:
    async def story() -> None:
        batched = version >= 4
        names = {"coordinator_keys": ["g", "h"]} if batched else {"key": "g"}
        found = await ask(broker, ApiKey.FIND_COORDINATOR, version, **names)
        for each in found["coordinators"] if batched else [found]:
            where = (each["error_code"], each["node_id"], each["host"], each["port"])
            assert where == (ErrorCode.NONE, 5, "127.0.0.1", 9092)
        topic = broker.topics.get("__consumer_offsets")
        assert topic is not None
        assert topic.is_internal
        assert topic.config.cleanup_policy == "compact"
        if batched:
            assert [each["key"] for each in found["coordinators"]] == ["g", "h"]
        refused, nowhere = ErrorCode.INVALID_REQUEST, (-1, "", -1)
        for key_type, code, place in ((1, ErrorCode.NONE, (5, "127.0.0.1", 9092)), (2, refused, nowhere)):
            if version >= 1:
                found = await ask(broker, ApiKey.FIND_COORDINATOR, version, key_type=key_type, **names)
                for each in found["coordinators"] if batched else [found]:
                    assert (each["error_code"], each["node_id"], each["host"], each["port"]) == (code, *place)

    told(story)
