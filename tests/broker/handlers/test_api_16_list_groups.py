"""ListGroups, in every version."""

from __future__ import annotations

from typing import Any

import pytest
from support.broker.asking import versions
from support.broker.group_asking import ask, asked_topics, member_of, told

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list(broker: Broker, version: int) -> None:
    async def story() -> None:
        await member_of(broker)
        entry = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        await ask(broker, ApiKey.OFFSET_COMMIT, 2, group_id="s", topics=asked_topics(broker, 2, t=[entry]))

        async def listed(**filters: Any) -> list[tuple[str, str, str, str]]:
            found = await ask(broker, ApiKey.LIST_GROUPS, version, **filters)
            assert found["error_code"] == ErrorCode.NONE
            names = ("group_id", "protocol_type", "group_state", "group_type")
            return sorted(tuple(each[name] for name in names) for each in found["groups"])

        state = ["Empty", "Stable"] if version >= 4 else ["", ""]
        kind = "classic" if version >= 5 else ""
        assert await listed() == [("g", "consumer", state[1], kind), ("s", "", state[0], kind)]
        if version >= 4:
            assert [each[0] for each in await listed(states_filter=["sTABLE"])] == ["g"]
            assert [each[0] for each in await listed(states_filter=["Empty", "Stable"])] == ["g", "s"]
            assert await listed(states_filter=["Dead"]) == []
        if version >= 5:
            assert [each[0] for each in await listed(types_filter=["Classic", "share"])] == ["g", "s"]
            assert await listed(types_filter=["consumer"]) == []

    told(story)
