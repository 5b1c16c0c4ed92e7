"""OffsetDelete (key 47), version 0.

Deletes committed offsets of existing partitions whose topics no member subscribes to.

Source: KafkaApis.handleOffsetDeleteRequest, GroupCoordinatorAdapter (3.9); KIP-496.
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.request import Body, Request


async def handle(broker: Broker, request: Request) -> Body:
    asked = [(each["name"], [one["partition_index"] for one in each["partitions"]]) for each in request.body["topics"]]
    known = {
        (name, index): broker.topics.partition(name, index) is not None for name, indexes in asked for index in indexes
    }
    wanted = [each for each, there in known.items() if there]
    error, errors = broker.coordinator.delete_offsets(request.body["group_id"], wanted)
    if error:
        return {"error_code": error}
    topics = []
    for name, indexes in asked:
        codes = [errors.get((name, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in indexes]
        entries = [{"partition_index": i, "error_code": code} for i, code in zip(indexes, codes, strict=True)]
        topics.append({"name": name, "partitions": entries})
    return {"error_code": ErrorCode.NONE, "topics": topics}
