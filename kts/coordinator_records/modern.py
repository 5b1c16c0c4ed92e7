"""The records of consumer groups of KIP-848, share groups (KIP-932) and streams groups (KIP-1071).

They lie in ``__consumer_offsets`` beside those of ``groups``; the version of a key is the record's type. Values have
version 0, which is flexible; null is a tombstone. Type 18 was never used. The early access of share groups, in 3.9 and
4.0, wrote other fields under the same version, which 4.1 and newer cannot read either; of its type 9 only the name is
known here.

Source: the message definitions of the group coordinator (4.3.1; 4.1 and 4.2 have fewer tagged fields), of
ShareGroupPartitionMetadata (3.9, 4.0); CoordinatorRecordType, GroupType (4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

from kts.coordinator_records.groups import GROUP_KEY, OFFSET_KEYS
from kts.coordinator_records.layout import Layout

CLASSIC, CONSUMER, SHARE, STREAMS = "Classic", "Consumer", "Share", "Streams"  # GroupType, as Kafka prints it


class RecordType(NamedTuple):
    """A type of record: its name in Kafka, the type of its group, and its layouts; no value's if that is not known."""

    name: str
    group_type: str
    key: Layout
    value: Layout | None


def _key(number: int, more: str = "") -> Layout:
    return Layout("key of a group", f"    group string 0+\n{more}", number)


def _value(what: str, text: str | None) -> Layout | None:
    return None if text is None else Layout(what, text, 0, 0)


_MEMBER = "    member_id string 0+"
_EXPRESSION = "    regular_expression string 0+"
_TARGET = """
    assignment_epoch            int32    0+
    assignment_timestamp        int64    0+  tag 0
"""
_TARGET_MEMBER = """
    topic_partitions            []       0+
        topic_id                uuid     0+
        partitions              []int32  0+
"""
_CONSUMER_ASSIGNMENT = """
    member_epoch                int32    0+
    previous_member_epoch       int32    0+
    state                       int8     0+
    assigned_partitions         []       0+
        topic_id                uuid     0+
        partitions              []int32  0+
        assignment_epochs       []int32  0+  null 0+  tag 0
    partitions_pending_revocation []     0+
        topic_id                uuid     0+
        partitions              []int32  0+
        assignment_epochs       []int32  0+  null 0+  tag 0
"""
_CONSUMER_MEMBER = """
    instance_id                 string   0+  null 0+
    rack_id                     string   0+  null 0+
    client_id                   string   0+
    client_host                 string   0+
    subscribed_topic_names      []string 0+
    subscribed_topic_regex      string   0+  null 0+
    rebalance_timeout_ms        int32    0+  = -1
    server_assignor             string   0+  null 0+
    classic_member_metadata     {}       0+  null 0+  tag 0
        session_timeout_ms      int32    0+
        supported_protocols     []       0+
            name                string   0+
            metadata            bytes    0+
"""
_CONSUMER_PARTITIONS = """
    topics                      []       0+
        topic_id                uuid     0+
        topic_name              string   0+
        num_partitions          int32    0+
        partition_metadata      []       0+
            partition           int32    0+
            racks               []string 0+
"""
_CONSUMER_EXPRESSION = """
    topics                      []string 0+
    version                     int64    0+
    timestamp                   int64    0+
"""
_SHARE_MEMBER = """
    rack_id                     string   0+  null 0+
    client_id                   string   0+
    client_host                 string   0+
    subscribed_topic_names      []string 0+
"""
_SHARE_ASSIGNMENT = """
    member_epoch                int32    0+
    previous_member_epoch       int32    0+
    state                       int8     0+
    assigned_partitions         []       0+
        topic_id                uuid     0+
        partitions              []int32  0+
"""
_STATE_PARTITIONS = """
    initializing_topics         []       0+
        topic_id                uuid     0+
        topic_name              string   0+
        partitions              []int32  0+
    initialized_topics          []       0+
        topic_id                uuid     0+
        topic_name              string   0+
        partitions              []int32  0+
    deleting_topics             []       0+
        topic_id                uuid     0+
        topic_name              string   0+
"""
_STREAMS_GROUP = """
    epoch                       int32    0+
    metadata_hash               int64    0+
    validated_topology_epoch    int32    0+  = -1 tag 0
    last_assignment_configs     []       0+  null 0+  tag 1
        key                     string   0+
        value                   string   0+
"""
_STREAMS_MEMBER = """
    instance_id                 string   0+  null 0+
    rack_id                     string   0+  null 0+
    client_id                   string   0+
    client_host                 string   0+
    rebalance_timeout_ms        int32    0+  = -1
    topology_epoch              int32    0+
    process_id                  string   0+
    user_endpoint               {}       0+  null 0+ = null
        host                    string   0+
        port                    uint16   0+
    client_tags                 []       0+
        key                     string   0+
        value                   string   0+
"""
TASKS = ("active_tasks", "standby_tasks", "warmup_tasks")
_TASKS = "".join(
    f"""
    {name}                      []       0+
        subtopology_id          string   0+
        partitions              []int32  0+
"""
    for name in TASKS
)
_STREAMS_ASSIGNMENT = """
    member_epoch                int32    0+
    previous_member_epoch       int32    0+
    state                       int8     0+
""" + "".join(
    f"""
    {name}                      []       0+
        subtopology_id          string   0+
        partitions              []int32  0+
        assignment_epochs       []int32  0+  null 0+  tag 0
"""
    for name in (*TASKS, *(f"{name}_pending_revocation" for name in TASKS))
)
_INTERNAL_TOPICS = """
        {name}                  []       0+
            name                string   0+
            partitions          int32    0+
            replication_factor  int16    0+
            topic_configs       []       0+
                key             string   0+
                value           string   0+
"""
_TOPOLOGY = f"""
    epoch                       int32    0+
    subtopologies               []       0+
        subtopology_id          string   0+
        source_topics           []string 0+
        source_topic_regex      []string 0+
{_INTERNAL_TOPICS.format(name="state_changelog_topics")}
        repartition_sink_topics []string 0+
{_INTERNAL_TOPICS.format(name="repartition_source_topics")}
        copartition_groups      []       0+
            source_topics       []int16  0+
            source_topic_regex  []int16  0+
            repartition_source_topics []int16 0+
"""


def _types() -> dict[int, RecordType]:
    epoch = "    epoch int32 0+\n"
    found = {}
    for number, name, group_type, of, what, text in (
        (3, "Metadata", CONSUMER, "", "consumer group", f"{epoch}    metadata_hash int64 0+ tag 0"),
        (4, "PartitionMetadata", CONSUMER, "", "partitions of a group", _CONSUMER_PARTITIONS),
        (5, "MemberMetadata", CONSUMER, _MEMBER, "member", _CONSUMER_MEMBER),
        (6, "TargetAssignmentMetadata", CONSUMER, "", "target assignment", _TARGET),
        (7, "TargetAssignmentMember", CONSUMER, _MEMBER, "target of a member", _TARGET_MEMBER),
        (8, "CurrentMemberAssignment", CONSUMER, _MEMBER, "assignment of a member", _CONSUMER_ASSIGNMENT),
        (9, "PartitionMetadata", SHARE, "", "partitions of a group", None),
        (10, "MemberMetadata", SHARE, _MEMBER, "member", _SHARE_MEMBER),
        (11, "Metadata", SHARE, "", "share group", f"{epoch}    metadata_hash int64 0+"),
        (12, "TargetAssignmentMetadata", SHARE, "", "target assignment", _TARGET),
        (13, "TargetAssignmentMember", SHARE, _MEMBER, "target of a member", _TARGET_MEMBER),
        (14, "CurrentMemberAssignment", SHARE, _MEMBER, "assignment of a member", _SHARE_ASSIGNMENT),
        (15, "StatePartitionMetadata", SHARE, "", "partitions of a group", _STATE_PARTITIONS),
        (16, "RegularExpression", CONSUMER, _EXPRESSION, "regular expression", _CONSUMER_EXPRESSION),
        (17, "Metadata", STREAMS, "", "streams group", _STREAMS_GROUP),
        (19, "MemberMetadata", STREAMS, _MEMBER, "member", _STREAMS_MEMBER),
        (20, "TargetAssignmentMetadata", STREAMS, "", "target assignment", _TARGET),
        (21, "TargetAssignmentMember", STREAMS, _MEMBER, "target of a member", _TASKS),
        (22, "CurrentMemberAssignment", STREAMS, _MEMBER, "assignment of a member", _STREAMS_ASSIGNMENT),
        (23, "Topology", STREAMS, "", "topology", _TOPOLOGY),
    ):
        full = f"{group_type}Group{name}"
        found[number] = RecordType(full, group_type, _key(number, of), _value(what, text))
    return found


TYPES = _types()
RECORD_TYPES = {
    **dict.fromkeys(OFFSET_KEYS, "OffsetCommit"),
    GROUP_KEY: "GroupMetadata",
    **{number: each.name for number, each in TYPES.items()},
}
