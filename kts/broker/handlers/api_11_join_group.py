"""JoinGroup (key 11), versions 0 to 9.

Makes the client a member of a group; the answer comes when the rebalance is complete.

Versions::

    1: rebalance timeout (KIP-62); before, it is the session timeout
    2: throttle time, always 0
    3: as before
    4: a new member gets its id first, and joins with it (KIP-394)
    5: group instance ids, of static members (KIP-345)
    6: flexible
    7: the protocol's type, and null for no protocol (KIP-559)
    8: a reason (KIP-800), without effect
    9: whether the leader skips the assignment (KIP-814)

A client that disconnects stays a member until it times out.

Source: KafkaApis.handleJoinGroupRequest, GroupCoordinatorAdapter, JoinGroupResponse (3.9).
"""

from __future__ import annotations

import asyncio

from kts.broker.broker import Broker
from kts.broker.groups.coordinator import Join
from kts.broker.request import Body, Request


async def handle(broker: Broker, request: Request) -> Body:
    body, version = request.body, request.version
    client_id = request.client_id or ""
    protocols = {each["name"]: each["metadata"] for each in reversed(body["protocols"])}
    joining = Join(
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
    found = await asyncio.shield(broker.coordinator.join(joining))
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
