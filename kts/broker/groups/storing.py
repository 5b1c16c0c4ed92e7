"""A group as its metadata record tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kts.broker.groups.group import Group, State
from kts.broker.groups.member import Member


def stored(group: Group, assignments: Mapping[str, bytes]) -> dict[str, Any]:
    """What of a group outlives the process, with the part of each member."""
    members = [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "rebalance_timeout": member.rebalance_timeout_ms,
            "session_timeout": member.session_timeout_ms,
            "subscription": member.metadata(group.protocol_name),
            "assignment": assignments.get(member.member_id, b""),
        }
        for member in group.members.values()
    ]
    return {
        "protocol_type": group.protocol_type or "",
        "generation": group.generation_id,
        "protocol": group.protocol_name,
        "leader": group.leader_id,
        "current_state_timestamp": group.state_ms,
        "members": members,
    }


def restore(group: Group, found: Mapping[str, Any]) -> None:
    """Make a new group what was stored."""
    group.protocol_type = found["protocol_type"] or None
    group.protocol_name = found["protocol"]
    group.generation_id = found["generation"]
    group.state_ms = found["current_state_timestamp"]
    for each in found["members"]:
        group.add(
            Member(
                each["member_id"],
                each["group_instance_id"],
                each["client_id"],
                each["client_host"],
                each["rebalance_timeout"],
                each["session_timeout"],
                found["protocol_type"],
                ((found["protocol"] or "", each["subscription"]),),
                each["assignment"],
            )
        )
    if found["leader"] in group.members:
        group.leader_id = found["leader"]
    group.state = State.STABLE if group.members else State.EMPTY
    group.topics = group.subscriptions()
