"""Heartbeat (key 12), versions 0 to 4.

Restarts a member's session timeout.

Versions::

    1: throttle time, always 0
    2: as before
    3: group instance id (KIP-345)
    4: flexible

Source: KafkaApis.handleHeartbeatRequest, GroupCoordinatorAdapter (3.9).
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.request import Body, Request


async def handle(broker: Broker, request: Request) -> Body:
    body = request.body
    who = (body["group_id"], body["member_id"], body["group_instance_id"])
    return {"error_code": broker.coordinator.heartbeat(*who, body["generation_id"])}
