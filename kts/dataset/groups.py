"""Groups of every type, with their members and offsets, from the topics that Kafka's coordinators write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kts.arguments import choice
from kts.coordinator_records import groups, modern, shares
from kts.coordinator_records.layout import version_of
from kts.coordinator_records.modern import CLASSIC, CONSUMER, SHARE, STREAMS
from kts.dataset.committed import Current, committed_of, current_records, log_end_offsets, refuse
from kts.dataset.options import BATCH_BYTES, ON_ERROR, Path
from kts.dataset.partition import LogDirs, PartitionLog
from kts.dataset.paths import open_path, select
from kts.errors import KtsError
from kts.model import uuid_text

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
Values = dict[tuple[str, str], Row]  # of one group: by record type and member id, or ""
NO_OFFSET = -1  # of a share partition that nobody has read, and of a count that is not kept
STABLE_MEMBER = {CONSUMER: 0, STREAMS: 1}  # MemberState of both


class SharePartition(NamedTuple):
    """How far a share group is in a partition; the log of the topic id may be elsewhere."""

    group: str
    topic_id: bytes
    partition: int
    start_offset: int
    delivery_complete_count: int
    leader_epoch: int
    timestamp_ms: int


class Groups(NamedTuple):
    """What coordinators would load.

    Attributes
    ----------
    rows : list of dict
        A group each: group, type, state, epoch, assignmentEpoch, protocolType, protocol, and members, of which each has
        memberId, groupInstanceId, rackId, clientId, clientHost, epoch, subscribedTopics, subscribedTopicRegex,
        assignment and targetAssignment. What a type of group does not have is None. Assignments are lists of topic,
        topicId and partitions; those of a streams group, of tasks (active, standby, warmup), subtopologyId and
        partitions.
    offsets : list of dict
        The rows of ``committed_offsets``, with times in ms and the group's type, and those of share groups, whose
        ``currentOffset`` is the start offset of the share partition.
    """

    rows: list[Row]
    offsets: list[Row]


def read_groups(path: Path | Sequence[Path], *, on_error: str = "raise") -> Groups:
    """The groups of ``__consumer_offsets`` and ``__share_group_state``, as brokers would load them.

    Parameters
    ----------
    path, on_error
        As for ``committed_offsets``.

    Notes
    -----
    A state is what follows of the records: classic groups with members are loaded as Stable; whether the topics of a
    streams group exist is not in them. The lag of a share group leaves out the records behind the start offset that are
    done. A topic of which neither a log nor a share group's record has the name is named by its id.

    Source: GroupMetadataManager, ConsumerGroup, ShareGroup, StreamsGroup (maybeUpdateGroupState), ShareCoordinatorShard
    (handleShareSnapshot, handleShareUpdate), GroupCoordinatorService (computeShareGroupLagAndBuildResponse) (4.3.1).
    """
    choice("on_error", on_error, ON_ERROR)
    skip = on_error == "skip"
    opened = open_path(path)
    logs = opened if isinstance(opened, LogDirs) else {}
    own = [log for log in select(opened, path, decoder="offsets") if log.topic != shares.TOPIC]
    records = [(log, current_records(log, skip)) for log in own]
    found: dict[str, Values] = {}
    for log, current in records:
        for group, of, fields in _values(log, current, skip):
            found.setdefault(group, {})[of] = fields
    shared = [each for log in logs.values() if log.topic == shares.TOPIC for each in _shared(log, skip)]
    names = _topic_names(logs.values(), found.values()) if shared or any(map(_is_modern, found.values())) else {}
    rows = {group: _row(group, values, names) for group, values in found.items()}
    offsets = _committed(committed_of(records, logs, skip)) if records else []
    for row in offsets:  # a group that only commits has no record of its own
        if row["group"] not in rows:
            rows[row["group"]] = _row(row["group"], {}, names)
        row["type"] = rows[row["group"]]["type"]
    offsets += _share_offsets(shared, names, logs, skip)
    offsets.sort(key=lambda row: (row["group"], row["topic"], row["partition"]))
    return Groups([rows[group] for group in sorted(rows)], offsets)


# --- records --------------------------------------------------------------------------------------


def _values(log: PartitionLog, current: Sequence[Current], skip: bool) -> Iterator[tuple[str, tuple[str, str], Row]]:
    """The group, type, member and value of each record of a group; not those of offsets.

    Keys, and values of classic groups, that cannot be read are told where offsets are read.
    """
    for key, offset, value in current:
        try:
            version = version_of(key, "key")
            if version == groups.GROUP_KEY:
                group = groups.GROUP_KEY_LAYOUT.read(key)["group"]
                yield group, (modern.RECORD_TYPES[version], ""), groups.read_group(value)
            if version not in modern.TYPES:
                continue
            type_ = modern.TYPES[version]
            of = type_.key.read(key)
        except KtsError:
            continue
        member = of.get("member_id", of.get("regular_expression", ""))
        if type_.value is None:
            continue
        try:
            yield of["group"], (type_.name, member), type_.value.read(value)
        except KtsError as error:
            refuse(log, offset, error.message, skip)


def _shared(log: PartitionLog, skip: bool) -> Iterator[SharePartition]:
    """How far share groups are, of one partition of their topic."""
    found: dict[tuple[str, bytes, int], SharePartition] = {}
    names = ["offset", "timestamp", "key", "value"]
    for rows in log.scan(columns=names, on_error="skip" if skip else "raise", batch_bytes=BATCH_BYTES):
        times = rows.column("timestamp").cast("int64").to_pylist()
        columns = (rows.column(name).to_pylist() for name in ("offset", "key", "value"))
        for timestamp_ms, offset, key, value in zip(times, *columns, strict=True):
            try:
                _apply(found, key or b"", value, timestamp_ms)
            except KtsError as error:
                refuse(log, offset, error.message, skip)
    yield from found.values()


def _apply(
    found: dict[tuple[str, bytes, int], SharePartition], key: bytes, value: bytes | None, timestamp_ms: int
) -> None:
    """Take the next record in: a snapshot is whole, an update has -1 for what stays as it is."""
    version = version_of(key, "key")
    if version not in shares.RECORD_TYPES:
        return
    of = shares.SHARE_KEY_LAYOUT.read(key)
    place = (of["group"], of["topic_id"], of["partition"])
    if value is None:
        found.pop(place, None)
        return
    read = (shares.SNAPSHOT_LAYOUT if version == shares.SNAPSHOT else shares.UPDATE_LAYOUT).read(value)
    start, epoch = read["start_offset"], read["leader_epoch"]
    before = found.get(place)
    if version == shares.UPDATE and before is not None:
        start = before.start_offset if start == NO_OFFSET else start
        epoch = before.leader_epoch if epoch == -1 else epoch
    found[place] = SharePartition(*place, start, read["delivery_complete_count"], epoch, timestamp_ms)


def _topic_names(logs: Iterable[PartitionLog], found: Iterable[Values]) -> dict[str, str]:
    """The names of topics by their ids: of logs, and of what share groups say."""
    names = {}
    for values in found:
        for (type_, _), fields in values.items():
            if type_ == "ShareGroupStatePartitionMetadata":
                listed = [each for topics in fields.values() for each in topics]
                names.update({uuid_text(each["topic_id"]): each["topic_name"] for each in listed})
    return names | {log.topic_id: log.topic for log in logs if log.topic_id is not None}


# --- groups -----------------------------------------------------------------------------------------


def _is_modern(values: Values) -> bool:
    return any(name != modern.RECORD_TYPES[groups.GROUP_KEY] for name, _ in values)


def _row(group: str, values: Values, names: Mapping[str, str]) -> Row:
    types = {name.partition("Group")[0] for name, _ in values} & {CONSUMER, SHARE, STREAMS}
    if not types:
        return _classic(group, values.get((modern.RECORD_TYPES[groups.GROUP_KEY], ""), {}))
    type_ = min(types)
    of = {(name.removeprefix(f"{type_}Group"), member): fields for (name, member), fields in values.items()}
    epoch = of.get(("Metadata", ""), {}).get("epoch", 0)
    assignment_epoch = of.get(("TargetAssignmentMetadata", ""), {}).get("assignment_epoch", 0)
    members = sorted(member for name, member in of if name == "MemberMetadata")
    assignors = [of["MemberMetadata", member].get("server_assignor") for member in members]
    return {
        "group": group,
        "type": type_,
        "state": _state(type_, of, members, epoch, assignment_epoch),
        "epoch": epoch,
        "assignmentEpoch": assignment_epoch,
        "protocolType": type_.lower(),
        "protocol": max(filter(None, assignors), key=assignors.count, default=None),
        "members": [_member(member, of, names) for member in members],
    }


def _state(type_: str, of: Values, members: Sequence[str], epoch: int, assignment_epoch: int) -> str:
    if not members:
        return "Empty"
    if type_ == SHARE:
        return "Stable"
    if type_ == STREAMS:
        topology = of.get(("Topology", ""), {}).get("epoch")
        if topology is None or topology != of.get(("Metadata", ""), {}).get("validated_topology_epoch"):
            return "NotReady"
    if epoch > assignment_epoch:
        return "Assigning"
    current = [of.get(("CurrentMemberAssignment", member), {}) for member in members]
    done = (each.get("state") == STABLE_MEMBER[type_] and each["member_epoch"] == assignment_epoch for each in current)
    return "Stable" if all(done) else "Reconciling"


def _member(member: str, of: Values, names: Mapping[str, str]) -> Row:
    told = of["MemberMetadata", member]
    current = of.get(("CurrentMemberAssignment", member), {})
    target = of.get(("TargetAssignmentMember", member), {})
    return {
        "memberId": member,
        "groupInstanceId": told.get("instance_id"),
        "rackId": told["rack_id"],
        "clientId": told["client_id"],
        "clientHost": told["client_host"],
        "epoch": current.get("member_epoch"),
        "subscribedTopics": told.get("subscribed_topic_names"),
        "subscribedTopicRegex": told.get("subscribed_topic_regex") or None,
        "assignment": _assignment(current, names),
        "targetAssignment": _assignment(target, names),
    }


def _assignment(fields: Row, names: Mapping[str, str]) -> list[Row]:
    assigned: list[Row] = []
    for each in fields.get("assigned_partitions") or fields.get("topic_partitions") or ():
        topic_id = uuid_text(each["topic_id"])
        topic = names.get(topic_id, topic_id)
        assigned.append({"topic": topic, "topicId": topic_id, "partitions": sorted(each["partitions"])})
    assigned.sort(key=lambda one: str(one["topic"]))
    for name in modern.TASKS:
        for each in fields.get(name, ()):
            of = {"subtopologyId": each["subtopology_id"], "partitions": sorted(each["partitions"])}
            assigned.append({"tasks": name.partition("_")[0], **of})
    return assigned


def _classic(group: str, fields: Row) -> Row:
    """A group of the classic protocol, or one that only commits, of which nothing else is known."""
    is_consumer = fields.get("protocol_type") == groups.CONSUMER
    members = []
    for each in sorted(fields.get("members", ()), key=lambda member: str(member["member_id"])):
        subscribed = groups.subscribed_topics(each["subscription"]) if is_consumer else None
        assigned = groups.assigned_partitions(each["assignment"]) if is_consumer else None
        members.append(
            {
                "memberId": each["member_id"],
                "groupInstanceId": each["group_instance_id"],
                "rackId": None,
                "clientId": each["client_id"],
                "clientHost": each["client_host"],
                "epoch": None,
                "subscribedTopics": None if subscribed is None else sorted(subscribed),
                "subscribedTopicRegex": None,
                "assignment": [
                    {"topic": one["topic"], "topicId": None, "partitions": sorted(one["partitions"])}
                    for one in assigned or ()
                ],
                "targetAssignment": None,
            }
        )
    return {
        "group": group,
        "type": CLASSIC,
        "state": "Stable" if members else "Empty",
        "epoch": fields.get("generation"),
        "assignmentEpoch": None,
        "protocolType": fields.get("protocol_type", ""),
        "protocol": fields.get("protocol"),
        "members": members,
    }


# --- offsets ----------------------------------------------------------------------------------------


def _committed(found: pa.Table) -> list[Row]:
    for name in ("commitTimestamp", "expireTimestamp"):
        found = found.set_column(found.column_names.index(name), name, found[name].cast("int64"))
    rows: list[Row] = found.to_pylist()
    return rows


def _share_offsets(
    shared: Sequence[SharePartition], names: Mapping[str, str], logs: Mapping[Any, PartitionLog], skip: bool
) -> list[Row]:
    ids = [uuid_text(each.topic_id) for each in shared]
    places = [(names.get(topic_id, topic_id), each.partition) for topic_id, each in zip(ids, shared, strict=True)]
    rows = []
    for each, (topic, partition), end in zip(shared, places, log_end_offsets(logs, places, skip), strict=True):
        start, done, lag = each.start_offset, each.delivery_complete_count, None
        if end is not None and NO_OFFSET not in (start, done):
            lag = end - start - done
        rows.append(
            {
                "group": each.group,
                "topic": topic,
                "partition": partition,
                "currentOffset": None if start == NO_OFFSET else start,
                "logEndOffset": end,
                "lag": lag,
                "leaderEpoch": each.leader_epoch,
                "metadata": None,
                "commitTimestamp": each.timestamp_ms,
                "expireTimestamp": None,
                "type": SHARE,
            }
        )
    return rows
