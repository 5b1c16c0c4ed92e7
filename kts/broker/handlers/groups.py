"""Requests about groups and their members.

Source: KafkaApis, GroupCoordinatorAdapter, JoinGroupResponse, LeaveGroupResponse (3.9).
"""

from __future__ import annotations

import asyncio
from typing import Any

from kts.broker.broker import Broker, Handler
from kts.broker.codes import ApiKey, ErrorCode
from kts.broker.groups.coordinator import Join, Sync
from kts.broker.groups.group import Group, State
from kts.broker.request import Request
from kts.errors import KtsError

GROUP, TRANSACTION = 0, 1  # coordinator types
CLASSIC = "classic"
READ, DELETE, DESCRIBE = 3, 6, 8
ALLOWED = 1 << READ | 1 << DELETE | 1 << DESCRIBE  # for every client: there are no ACLs
Body = dict[str, Any]


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


HANDLERS: dict[int, Handler] = {
    ApiKey.FIND_COORDINATOR: handle_find_coordinator,
    ApiKey.JOIN_GROUP: handle_join_group,
    ApiKey.SYNC_GROUP: handle_sync_group,
    ApiKey.HEARTBEAT: handle_heartbeat,
    ApiKey.LEAVE_GROUP: handle_leave_group,
    ApiKey.DESCRIBE_GROUPS: handle_describe_groups,
    ApiKey.LIST_GROUPS: handle_list_groups,
    ApiKey.DELETE_GROUPS: handle_delete_groups,
}
