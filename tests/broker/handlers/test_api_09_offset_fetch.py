"""OffsetFetch, in every version."""

from __future__ import annotations

import pytest
from support.broker.asking import versions
from support.broker.group_asking import ask, asked_topics, codes, told

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_fetch(broker: Broker, version: int) -> None:
    async def story() -> None:
        entry = {"partition_index": 1, "committed_offset": 5, "committed_leader_epoch": 2, "committed_metadata": "m"}
        for group_id in ("a", "b"):
            topics = asked_topics(broker, 6, t=[entry], u=[entry | {"partition_index": 0}])
            await ask(broker, ApiKey.OFFSET_COMMIT, 6, group_id=group_id, topics=topics)
        asked = asked_topics(broker, version, t=[1, 0, 77], gone=[3])
        if version < 8:
            groups = [await ask(broker, ApiKey.OFFSET_FETCH, version, group_id="a", topics=asked)]
        else:
            wanted = [{"group_id": name, "topics": asked} for name in ("a", "b", "nobody")]
            found = await ask(broker, ApiKey.OFFSET_FETCH, version, groups=wanted, require_stable=True)
            groups = found["groups"]
            assert [each["group_id"] for each in groups] == ["a", "b", "nobody"]
        gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else 0
        for number, group in enumerate(groups):
            known = number < 2
            assert group["error_code"] == ErrorCode.NONE
            first, second, third = group["topics"][0]["partitions"]
            assert first["committed_offset"] == (5 if known else -1)
            assert first["metadata"] == ("m" if known else "")
            assert first["committed_leader_epoch"] == (2 if known and version >= 5 else -1)
            assert [each["partition_index"] for each in (second, third)] == [0, 77]
            assert [each["committed_offset"] for each in (second, third)] == [-1, -1]
            assert codes(group["topics"]) == [[0, 0, 0], [gone]]
        if version >= 2:
            if version < 8:
                found = await ask(broker, ApiKey.OFFSET_FETCH, version, group_id="a", topics=None)
            else:
                wanted = [{"group_id": "a", "topics": None}]
                found = (await ask(broker, ApiKey.OFFSET_FETCH, version, groups=wanted))["groups"][0]
            ids = {broker.topics.get(name).topic_id: name for name in ("t", "u")}  # type: ignore[union-attr]
            names = [each["name"] if version < 10 else ids[each["topic_id"]] for each in found["topics"]]
            assert sorted(names) == ["t", "u"]

    told(story)


def test_what_is_asked_for_twice_is_answered_once(broker: Broker) -> None:
    """Else a small request would have an answer that no memory holds."""

    async def story() -> None:
        entry = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        await ask(broker, ApiKey.OFFSET_COMMIT, 2, group_id="s", topics=asked_topics(broker, 2, t=[entry]))
        wanted = [{"group_id": "s", "topics": None}] * 3 + [{"group_id": "s", "topics": []}]
        found = await ask(broker, ApiKey.OFFSET_FETCH, 8, groups=wanted)
        assert [len(each["topics"]) for each in found["groups"]] == [1, 0]

    told(story)
