"""OffsetCommit, OffsetFetch, OffsetDelete.

Version 0 of OffsetCommit and OffsetFetch, which Kafka stores in ZooKeeper, are handled like the others.

Source: KafkaApis, GroupCoordinatorAdapter (3.9); topic ids: the schemas of 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kts.arguments import INT64_MAX
from kts.broker.broker import Broker, Handler
from kts.broker.codes import ApiKey, ErrorCode
from kts.broker.groups.records import Committed
from kts.broker.request import Request
from kts.broker.topics import Topic

Body = dict[str, Any]
WITH_TOPIC_IDS = 10


def _find(broker: Broker, asked: Body, by_id: bool) -> tuple[Topic | None, ErrorCode]:
    topic = broker.topics.by_id(asked["topic_id"]) if by_id else broker.topics.get(asked["name"])
    if topic is not None:
        return topic, ErrorCode.NONE
    return None, ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def handle_offset_commit(broker: Broker, request: Request) -> Body:
    """Commit offsets of existing partitions."""
    body, by_id = request.body, request.version >= WITH_TOPIC_IDS
    now = broker.clock()
    kept = body["retention_time_ms"]
    expire_ms = None if kept == -1 else max(min(now + kept, INT64_MAX), 0)
    offsets: dict[tuple[str, int], Committed] = {}
    answers: list[Body] = []
    places: list[tuple[Body, tuple[str, int]]] = []
    for asked in body["topics"]:
        topic, error = _find(broker, asked, by_id)
        entries = []
        for each in asked["partitions"]:
            index = each["partition_index"]
            entries.append({"partition_index": index, "error_code": error})
            if topic is None:
                continue
            if index not in topic.partitions:
                entries[-1]["error_code"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            commit_ms = now if each["commit_timestamp"] == -1 else each["commit_timestamp"]
            metadata = each["committed_metadata"] or ""
            about = (each["committed_offset"], each["committed_leader_epoch"], metadata, commit_ms, expire_ms)
            offsets[topic.name, index] = Committed(*about)
            places.append((entries[-1], (topic.name, index)))
        answers.append({"name": asked["name"], "topic_id": asked["topic_id"], "partitions": entries})
    if offsets:
        who = (body["group_id"], body["member_id"], body["group_instance_id"], body["generation_id_or_member_epoch"])
        errors = broker.coordinator.commit(*who, offsets)
        for entry, place in places:
            entry["error_code"] = errors[place]
    return {"topics": answers}


async def handle_offset_fetch(broker: Broker, request: Request) -> Body:
    """Committed offsets, of all partitions that have one or of those asked for; offsets are never unstable here."""
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
    by_id = version >= WITH_TOPIC_IDS
    topics = []
    if asked["topics"] is None:
        for name, found in _by_topic(broker.coordinator.fetch(asked["group_id"], None)).items():
            topic = broker.topics.get(name)
            if topic is not None or not by_id:  # a deleted topic has no id
                topic_id = bytes(16) if topic is None else topic.topic_id
                topics.append({"name": name, "topic_id": topic_id, "partitions": _entries(found)})
        return {"topics": topics, "error_code": ErrorCode.NONE}
    for each in asked["topics"]:
        indexes = each["partition_indexes"]
        if by_id:
            topic, error = _find(broker, each, by_id)
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


async def handle_offset_delete(broker: Broker, request: Request) -> Body:
    """Delete committed offsets of existing partitions whose topics no member subscribes to."""
    asked = [(each["name"], [one["partition_index"] for one in each["partitions"]]) for each in request.body["topics"]]
    known = {
        (name, index): (topic := broker.topics.get(name)) is not None and index in topic.partitions
        for name, indexes in asked
        for index in indexes
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


HANDLERS: dict[int, Handler] = {
    ApiKey.OFFSET_COMMIT: handle_offset_commit,
    ApiKey.OFFSET_FETCH: handle_offset_fetch,
    ApiKey.OFFSET_DELETE: handle_offset_delete,
}
