"""The requests to a group coordinator: about groups, their members, and the offsets that they commit.

Version 0 of OffsetCommit and OffsetFetch, which Kafka stores in ZooKeeper, are handled like the others.

Source: KafkaApis, GroupCoordinatorAdapter, JoinGroupResponse, LeaveGroupResponse (3.9); topic ids: the schemas of 4.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from kts.arguments import INT64_MAX
from kts.broker.broker import Broker, Handler
from kts.broker.codes import ApiKey, ErrorCode
from kts.broker.groups.coordinator import Join, Sync
from kts.broker.groups.group import Group, State
from kts.broker.request import Request
from kts.broker.topics import Topic
from kts.coordinator_records.groups import Committed
from kts.errors import KtsError
from kts.model import ZERO_UUID

GROUP, TRANSACTION = 0, 1  # coordinator types
CLASSIC = "classic"
READ, DELETE, DESCRIBE = 3, 6, 8
ALLOWED = 1 << READ | 1 << DELETE | 1 << DESCRIBE  # for every client: there are no ACLs
WITH_TOPIC_IDS = 10  # from this version on, commits and fetches of offsets have topic ids instead of names
Body = dict[str, Any]


# --- groups and members -----------------------------------------------------------------------------


async def handle_find_coordinator(broker: Broker, request: Request) -> Body:
    """This broker coordinates all groups. Transactions are refused later, by InitProducerId."""
    body = request.body
    keys = body["coordinator_keys"] if request.version >= 4 else [body["key"]]
    error, message = _coordinator_error(broker, body["key_type"])
    host, port = ("", -1) if error else broker.advertised(request)
    found = {
        "node_id": -1 if error else broker.node_id,
        "host": host,
        "port": port,
        "error_code": error,
        "error_message": message,
    }
    if request.version >= 4:
        return {"coordinators": [{"key": key} | found for key in keys]}
    return found | {"error_message": message or ErrorCode.NONE.name}


def _coordinator_error(broker: Broker, key_type: int) -> tuple[ErrorCode, str]:
    if key_type == TRANSACTION:
        return ErrorCode.NONE, ""
    if key_type != GROUP:
        return ErrorCode.INVALID_REQUEST, f"expected a coordinator type of {GROUP} or {TRANSACTION}, found {key_type}"
    try:
        broker.coordinator.journal.make_topic()
    except KtsError as error:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
    return ErrorCode.NONE, ""


async def handle_join_group(broker: Broker, request: Request) -> Body:
    """Answered when the rebalance is complete. A client that disconnects stays a member until it times out."""
    body, version = request.body, request.version
    client_id = request.client_id or ""
    protocols = {each["name"]: each["metadata"] for each in reversed(body["protocols"])}
    asked = Join(
        body["group_id"],
        body["member_id"],
        body["group_instance_id"],
        client_id,
        f"/{request.connection.host}",
        body["rebalance_timeout_ms"] if version >= 1 else body["session_timeout_ms"],
        body["session_timeout_ms"],
        body["protocol_type"],
        tuple(reversed(protocols.items())),
        needs_member_id=version >= 4,
        may_skip_assignment=version >= 9,
    )
    found = await asyncio.shield(broker.coordinator.join(asked))
    name = found.protocol_name or (None if version >= 7 else "")
    return {
        "error_code": found.error,
        "generation_id": found.generation_id,
        "protocol_type": found.protocol_type,
        "protocol_name": name,
        "leader": found.leader_id,
        "skip_assignment": found.skip_assignment,
        "member_id": found.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in found.members
        ],
    }


async def handle_sync_group(broker: Broker, request: Request) -> Body:
    """Answered when the leader has assigned."""
    body = request.body
    if request.version >= 5 and (body["protocol_type"] is None or body["protocol_name"] is None):
        return {"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
    asked = Sync(
        body["group_id"],
        body["generation_id"],
        body["member_id"],
        body["group_instance_id"],
        body["protocol_type"],
        body["protocol_name"],
        {each["member_id"]: each["assignment"] for each in body["assignments"]},
    )
    found = await asyncio.shield(broker.coordinator.sync(asked))
    return {
        "error_code": found.error,
        "protocol_type": found.protocol_type,
        "protocol_name": found.protocol_name,
        "assignment": found.assignment,
    }


async def handle_heartbeat(broker: Broker, request: Request) -> Body:
    """Restart a member's session timeout."""
    body = request.body
    who = (body["group_id"], body["member_id"], body["group_instance_id"])
    return {"error_code": broker.coordinator.heartbeat(*who, body["generation_id"])}


async def handle_leave_group(broker: Broker, request: Request) -> Body:
    """Remove members. Before version 3 it is one member, whose error is that of the response."""
    body, version = request.body, request.version
    leaving = [(each["member_id"], each["group_instance_id"]) for each in body["members"]]
    if version < 3:
        leaving = [(body["member_id"], None)]
    error, errors = broker.coordinator.leave(body["group_id"], leaving)
    if version < 3:
        return {"error_code": error or errors[0]}
    members = [
        {"member_id": member_id, "group_instance_id": instance_id, "error_code": each}
        for (member_id, instance_id), each in zip(leaving, errors, strict=not error)
    ]
    return {"error_code": error, "members": members}


async def handle_describe_groups(broker: Broker, request: Request) -> Body:
    """Groups and their members. An unknown group is dead, and an error from version 6 on."""
    operations = ALLOWED if request.body["include_authorized_operations"] else -(2**31)
    groups = []
    for group_id in dict.fromkeys(request.body["groups"]):  # once each, or a small request would have a huge answer
        group = broker.coordinator.group(group_id)
        if group is not None:
            found = _described(group)
        elif request.version >= 6:
            found = _dead(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        else:
            found = _dead(ErrorCode.NONE, None)
        allowed = operations if found["error_code"] == ErrorCode.NONE else -(2**31)
        groups.append({"group_id": group_id, "authorized_operations": allowed} | found)
    return {"groups": groups}


def _dead(error: ErrorCode, message: str | None) -> Body:
    return {"error_code": error, "error_message": message, "group_state": State.DEAD}


def _described(group: Group) -> Body:
    """Describe a group; only a stable one has a protocol and assignments."""
    stable = group.state is State.STABLE
    return {
        "error_code": ErrorCode.NONE,
        "group_state": group.state,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol_name or "") if stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol_name) if stable else b"",
                "member_assignment": member.assignment if stable else b"",
            }
            for member in group.members.values()
        ],
    }


async def handle_list_groups(broker: Broker, request: Request) -> Body:
    """The groups in the requested states; all have the classic type."""
    types = request.body["types_filter"]
    wanted = not types or CLASSIC in (each.lower() for each in types)
    groups = broker.coordinator.groups(request.body["states_filter"]) if wanted else []
    return {
        "error_code": ErrorCode.NONE,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state,
                "group_type": CLASSIC,
            }
            for group in groups
        ],
    }


async def handle_delete_groups(broker: Broker, request: Request) -> Body:
    """Delete groups without members, and their offsets."""
    names = dict.fromkeys(request.body["groups_names"])
    return {"results": [{"group_id": name, "error_code": broker.coordinator.delete_group(name)} for name in names]}


# --- committed offsets ------------------------------------------------------------------------------


def _find_topic(broker: Broker, asked: Body, by_id: bool) -> tuple[Topic | None, ErrorCode]:
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
        topic, error = _find_topic(broker, asked, by_id)
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
                topic_id = ZERO_UUID if topic is None else topic.topic_id
                topics.append({"name": name, "topic_id": topic_id, "partitions": _entries(found)})
        return {"topics": topics, "error_code": ErrorCode.NONE}
    for each in asked["topics"]:
        indexes = each["partition_indexes"]
        if by_id:
            topic, error = _find_topic(broker, each, by_id)
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


HANDLERS: dict[int, Handler] = {
    ApiKey.FIND_COORDINATOR: handle_find_coordinator,
    ApiKey.JOIN_GROUP: handle_join_group,
    ApiKey.SYNC_GROUP: handle_sync_group,
    ApiKey.HEARTBEAT: handle_heartbeat,
    ApiKey.LEAVE_GROUP: handle_leave_group,
    ApiKey.DESCRIBE_GROUPS: handle_describe_groups,
    ApiKey.LIST_GROUPS: handle_list_groups,
    ApiKey.DELETE_GROUPS: handle_delete_groups,
    ApiKey.OFFSET_COMMIT: handle_offset_commit,
    ApiKey.OFFSET_FETCH: handle_offset_fetch,
    ApiKey.OFFSET_DELETE: handle_offset_delete,
}
