"""OffsetDelete."""

from __future__ import annotations

from support.broker.group_asking import ask, asked_topics, codes, member_of, told

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


def test_delete_offsets(broker: Broker) -> None:
    async def story() -> None:
        await member_of(broker)
        entry = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        await ask(broker, ApiKey.OFFSET_COMMIT, 2, group_id="s", topics=asked_topics(broker, 2, t=[entry], u=[entry]))
        topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("t", "gone")]
        topics.append({"name": "u", "partitions": [{"partition_index": 7}]})
        found = await ask(broker, ApiKey.OFFSET_DELETE, 0, group_id="s", topics=topics)
        assert codes(found["topics"]) == [[0], [3], [3]]
        assert list(broker.coordinator.fetch("s", None)) == [("u", 0)]
        found = await ask(broker, ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
        assert codes(found["topics"]) == [[ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC], [3], [3]]
        found = await ask(broker, ApiKey.OFFSET_DELETE, 0, group_id="nobody", topics=topics)
        assert found["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND

    told(story)
