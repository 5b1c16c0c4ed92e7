"""OffsetFetch (key 9), versions 0 to 10.

Reads committed offsets, of all partitions that have one or of those asked for.

Versions::

    0: Kafka reads these from ZooKeeper, kts with the others
    1, 4: as before
    2: null means all partitions; an error of the group (KIP-88)
    3: throttle time, always 0
    5: leader epochs (KIP-320)
    6: flexible
    7: whether pending offsets are awaited (KIP-447), without effect: none is pending
    8: many groups (KIP-709)
    9: the member and its epoch (KIP-848), without effect
    10: topic ids instead of names (KIP-848)

Source: KafkaApis.handleOffsetFetchRequest, GroupCoordinatorAdapter (3.9); topic ids: the schemas of 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.leaders import find_topic
from kts.broker.request import Body, Request
from kts.coordinator_records.groups import Committed
from kts.model import ZERO_UUID

TOPIC_IDS_FROM = 10


async def handle(broker: Broker, request: Request) -> Body:
    body, version = request.body, request.version
    if version < 8:
        return _fetched(broker, body, version)
    every = {each["group_id"] for each in body["groups"] if each["topics"] is None}
    groups = []
    for each in body["groups"]:
        group_id = each["group_id"]
        if each["topics"] is not None or group_id in every:
            groups.append({"group_id": group_id} | _fetched(broker, each, version))
        if each["topics"] is None:
            every.discard(group_id)  # all of a group once, or a small request would have a huge answer
    return {"groups": groups}


def _fetched(broker: Broker, asked: Body, version: int) -> Body:
    by_id = version >= TOPIC_IDS_FROM
    topics = []
    if asked["topics"] is None:
        for name, found in _by_topic(broker.coordinator.fetch(asked["group_id"], None)).items():
            topic = broker.topics.get(name)
            if topic is not None or not by_id:  # a deleted topic has no id
                topic_id = ZERO_UUID if topic is None else topic.topic_id
                topics.append({"name": name, "topic_id": topic_id, "partitions": _entries(found)})
        return {"topics": topics, "error_code": ErrorCode.NONE}
    for each in asked["topics"]:
        indexes = each["partition_indexes"]
        if by_id:
            topic, error = find_topic(broker.topics, each, by_id)
            which = {"name": "" if topic is None else topic.name, "topic_id": each["topic_id"]}
        else:
            which, error = {"name": each["name"]}, ErrorCode.NONE
        partitions = _absent(indexes, error) if error else _wanted(broker, asked["group_id"], which["name"], indexes)
        topics.append(which | {"partitions": partitions})
    return {"topics": topics, "error_code": ErrorCode.NONE}


def _wanted(broker: Broker, group_id: str, name: str, indexes: Iterable[int]) -> list[Body]:
    found = broker.coordinator.fetch(group_id, [(name, index) for index in indexes])
    return _entries({index: committed for (_, index), committed in found.items()})


def _by_topic(offsets: Mapping[tuple[str, int], Committed]) -> dict[str, dict[int, Committed]]:
    topics: dict[str, dict[int, Committed]] = {}
    for (name, index), committed in offsets.items():
        topics.setdefault(name, {})[index] = committed
    return topics


def _entries(found: Mapping[int, Committed]) -> list[Body]:
    return [
        {
            "partition_index": index,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "metadata": committed.metadata,
            "error_code": ErrorCode.NONE,
        }
        for index, committed in found.items()
    ]


def _absent(indexes: Iterable[int], error: ErrorCode) -> list[Body]:
    absent = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": "", "error_code": error}
    return [{"partition_index": index} | absent for index in indexes]
