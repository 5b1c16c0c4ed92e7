"""SyncGroup (key 14), versions 0 to 5.

Gives a member its assignment; the answer comes when the leader has assigned.

Versions::

    1: throttle time, always 0
    2: as before
    3: group instance id (KIP-345)
    4: flexible
    5: the protocol and its type, which must be the group's (KIP-559)

Source: KafkaApis.handleSyncGroupRequest, GroupCoordinatorAdapter (3.9).
"""

from __future__ import annotations

import asyncio

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.groups.coordinator import Sync
from kts.broker.request import Body, Request


async def handle(broker: Broker, request: Request) -> Body:
    body = request.body
    if request.version >= 5 and (body["protocol_type"] is None or body["protocol_name"] is None):
        return {"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
    synced = Sync(
        body["group_id"],
        body["generation_id"],
        body["member_id"],
        body["group_instance_id"],
        body["protocol_type"],
        body["protocol_name"],
        {each["member_id"]: each["assignment"] for each in body["assignments"]},
    )
    found = await asyncio.shield(broker.coordinator.sync(synced))
    return {
        "error_code": found.error,
        "protocol_type": found.protocol_type,
        "protocol_name": found.protocol_name,
        "assignment": found.assignment,
    }
