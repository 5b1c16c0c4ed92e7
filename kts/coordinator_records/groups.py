"""The records of ``__consumer_offsets``: keys and values of committed offsets and of group metadata.

Versions 0 and 1 of a key are of an offset, 2 of a classic group; newer ones are in ``modern``. Values are flexible from
version 4 on; null is a tombstone.

Source: OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue (3.9, 4.3.1), ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kts.coordinator_records.layout import Layout, version_of
from kts.errors import KtsError

TOPIC = "__consumer_offsets"
CONSUMER = "consumer"  # the protocol type of consumer groups
OFFSET_KEYS, GROUP_KEY = (0, 1), 2
OFFSET_VALUE = GROUP_VALUE = 3  # written, as in Kafka: the newest that is not flexible
EXPIRING_VALUE = 1  # the only one with an expire timestamp
NEWEST_VALUE, FLEXIBLE = 4, 4

OFFSET_KEY_LAYOUT = Layout(
    "key of an offset",
    """
    group                       string 0+
    topic                       string 0+
    partition                   int32  0+
""",
    OFFSET_KEYS[-1],
)
GROUP_KEY_LAYOUT = Layout("key of a group", "    group string 0+", GROUP_KEY)
OFFSET_LAYOUT = Layout(
    "offset",
    """
    offset                      int64  0+
    leader_epoch                int32  3+  = -1
    metadata                    string 0+
    commit_timestamp            int64  0+
    expire_timestamp            int64  1   = -1
    topic_id                    uuid   4+  tag 0
""",
    NEWEST_VALUE,
    FLEXIBLE,
)
GROUP_LAYOUT = Layout(
    "group",
    """
    protocol_type               string 0+
    generation                  int32  0+
    protocol                    string 0+  null 0+
    leader                      string 0+  null 0+
    current_state_timestamp     int64  2+  = -1
    members                     []     0+
        member_id               string 0+
        group_instance_id       string 3+  null 3+ = null
        client_id               string 0+
        client_host             string 0+
        rebalance_timeout       int32  1+  = -1
        session_timeout         int32  0+
        subscription            bytes  0+
        assignment              bytes  0+
""",
    NEWEST_VALUE,
    FLEXIBLE,
)
SUBSCRIPTION_LAYOUT = Layout("subscription", "    topics []string 0+", 0)
ASSIGNMENT_LAYOUT = Layout(
    "assignment",
    """
    partitions                  []      0+
        topic                   string  0+
        partitions              []int32 0+
""",
    0,
)


class OffsetKey(NamedTuple):
    """The group and partition of a committed offset."""

    group_id: str
    topic: str
    partition: int


class Committed(NamedTuple):
    """A committed offset; times in ms. ``expire_ms`` is None if the broker's retention applies."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset."""
    return OFFSET_KEY_LAYOUT.write(OFFSET_KEYS[-1], {"group": group_id, "topic": topic, "partition": partition})


def group_key(group_id: str) -> bytes:
    """The key of a group's metadata."""
    return GROUP_KEY_LAYOUT.write(GROUP_KEY, {"group": group_id})


def offset_value(committed: Committed) -> bytes:
    """The value of a committed offset."""
    found = {
        "offset": committed.offset,
        "leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "commit_timestamp": committed.commit_ms,
        "expire_timestamp": committed.expire_ms,
    }
    return OFFSET_LAYOUT.write(OFFSET_VALUE if committed.expire_ms is None else EXPIRING_VALUE, found)


def group_value(group: Mapping[str, Any]) -> bytes:
    """The value of a group's metadata, with the fields of the table."""
    return GROUP_LAYOUT.write(GROUP_VALUE, group)


def read_key(key: bytes) -> OffsetKey | str | None:
    """The key of an offset, the id of a group, or None for other kinds of records.

    Raises
    ------
    InvalidRequestError
        The key does not match its version.
    """
    version = version_of(key, "key")
    if version in OFFSET_KEYS:
        found = OFFSET_KEY_LAYOUT.read(key)
        return OffsetKey(found["group"], found["topic"], found["partition"])
    return str(GROUP_KEY_LAYOUT.read(key)["group"]) if version == GROUP_KEY else None


def read_offset(value: bytes) -> Committed:
    """Read a committed offset.

    Raises
    ------
    InvalidRequestError, UnsupportedVersionError
    """
    found = OFFSET_LAYOUT.read(value)
    expire_ms = None if found["expire_timestamp"] == -1 else found["expire_timestamp"]
    return Committed(found["offset"], found["leader_epoch"], found["metadata"], found["commit_timestamp"], expire_ms)


def read_group(value: bytes) -> dict[str, Any]:
    """Read a group's metadata: the fields of the table.

    Raises
    ------
    InvalidRequestError, UnsupportedVersionError
    """
    found = GROUP_LAYOUT.read(value)
    if version_of(value, "group") == 0:
        for member in found["members"]:
            member["rebalance_timeout"] = member["session_timeout"]
    return found


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if it is malformed."""
    found = _of_oldest(SUBSCRIPTION_LAYOUT, subscription)
    return None if found is None else frozenset(found["topics"])


def assigned_partitions(assignment: bytes) -> list[dict[str, Any]] | None:
    """The ``topic`` and ``partitions`` of a consumer's assignment; None if it is malformed."""
    found = _of_oldest(ASSIGNMENT_LAYOUT, assignment)
    return None if found is None else list(found["partitions"])


def _of_oldest(layout: Layout, data: bytes) -> dict[str, Any] | None:
    """Read the fields of version 0, with which all versions of a consumer's protocol begin."""
    try:
        return layout.read(data, 0) if version_of(data, layout.what) >= 0 else None
    except KtsError:
        return None
