"""DescribeGroups (key 15), versions 0 to 6.

Describes groups and their members, each group once.

Versions::

    1: throttle time, always 0
    2: as before
    3: authorized operations (KIP-430)
    4: group instance ids (KIP-345)
    5: flexible
    6: an unknown group is an error; before, it is dead (KIP-1043)

Source: KafkaApis.handleDescribeGroupsRequest, GroupCoordinatorAdapter (3.9).
"""

from __future__ import annotations

from kts.broker.authorizer import GROUP_OPERATIONS, NOT_REQUESTED
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.groups.group import Group, State
from kts.broker.request import Body, Request


async def handle(broker: Broker, request: Request) -> Body:
    operations = GROUP_OPERATIONS if request.body["include_authorized_operations"] else NOT_REQUESTED
    groups = []
    for group_id in dict.fromkeys(request.body["groups"]):  # once each, or a small request would have a huge answer
        group = broker.coordinator.group(group_id)
        if group is not None:
            found = _described(group)
        elif request.version >= 6:
            found = _dead(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        else:
            found = _dead(ErrorCode.NONE, None)
        allowed = operations if found["error_code"] == ErrorCode.NONE else NOT_REQUESTED
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
