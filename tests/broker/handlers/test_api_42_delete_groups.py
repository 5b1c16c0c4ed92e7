"""DeleteGroups, in every version."""

from __future__ import annotations

import pytest
from support.broker.asking import versions
from support.broker.group_asking import ask, asked_topics, member_of, told

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_delete_groups(broker: Broker, version: int) -> None:
    async def story() -> None:
        await member_of(broker)
        entry = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        await ask(broker, ApiKey.OFFSET_COMMIT, 2, group_id="s", topics=asked_topics(broker, 2, t=[entry]))
        found = await ask(broker, ApiKey.DELETE_GROUPS, version, groups_names=["g", "s", "x", "s"])
        assert {each["group_id"]: each["error_code"] for each in found["results"]} == {
            "g": ErrorCode.NON_EMPTY_GROUP,
            "s": ErrorCode.NONE,
            "x": ErrorCode.GROUP_ID_NOT_FOUND,
        }

    told(story)
