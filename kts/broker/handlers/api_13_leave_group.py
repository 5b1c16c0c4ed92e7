"""LeaveGroup (key 13), versions 0 to 5.

Removes members of a group.

Versions::

    0: one member, whose error is that of the answer
    1: throttle time, always 0
    2: as before
    3: many members, by id or group instance id (KIP-345)
    4: flexible
    5: a reason (KIP-800), without effect

Source: KafkaApis.handleLeaveGroupRequest, GroupCoordinatorAdapter, LeaveGroupResponse (3.9).
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.request import Body, Request


async def handle(broker: Broker, request: Request) -> Body:
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
