"""Groups of every type, beside what the Admin client of Kafka said of the broker."""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.broker.group_play import T, committed
from support.coordinators import GROUPS, admin, broker, described
from support.golden import scaled

import kts
from kts.coordinator_records import modern, shares
from kts.coordinator_records.groups import group_key, group_value, offset_key, offset_value
from kts.coordinator_records.modern import RECORD_TYPES, TYPES
from kts.dataset.groups import Groups, read_groups

NUMBERS = {name: number for number, name in RECORD_TYPES.items()}
ID = bytes(range(16))
MEMBER = {"client_id": "c", "client_host": "/h", "subscribed_topic_names": ["t"], "classic_member_metadata": None}
MEMBER |= {"instance_id": None, "rack_id": None, "subscribed_topic_regex": None, "server_assignor": None}
Record = tuple[bytes, bytes | None]


def of_group(name: str, fields: dict[str, Any], member: str = "m", group: str = "g") -> Record:
    """A record of a group of a new protocol."""
    type_ = TYPES[NUMBERS[name]]
    key = type_.key.write(NUMBERS[name], {"group": group, "member_id": member})
    assert type_.value is not None
    return key, type_.value.write(0, fields)


def of_share(number: int, fields: dict[str, Any] | None, topic_id: bytes = ID) -> Record:
    key = shares.SHARE_KEY_LAYOUT.write(number, {"group": "g", "topic_id": topic_id, "partition": 0})
    layout = shares.SNAPSHOT_LAYOUT if number == shares.SNAPSHOT else shares.UPDATE_LAYOUT
    nothing = {"state_epoch": 0, "create_timestamp": 0, "write_timestamp": 0, "state_batches": []}
    return key, None if fields is None else layout.write(0, {"snapshot_epoch": 0, "leader_epoch": 0} | nothing | fields)


def write(folder: Path, topic: str, records: Sequence[Record]) -> Path:
    with kts.Log(folder / f"{topic}-0") as log:
        keys, values = zip(*records, strict=True)
        log.append(kts.encode({"timestamp": [T] * len(records), "key": [*keys], "value": [*values]}))
    return folder


def read(folder: Path, records: Sequence[Record], share: Sequence[Record] = ()) -> Groups:
    write(folder, "__consumer_offsets", records)
    if share:
        write(folder, shares.TOPIC, share)
    return read_groups(folder)


def placed(assignment: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{each['topic']}-{number}" for each in assignment for number in each["partitions"]]


def tasks(assignment: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{each['subtopologyId']}-{number}" for each in assignment for number in each["partitions"]]


def test_groups_and_members_are_those_that_kafka_describes() -> None:
    """Of a broker that stopped while they were there: classic, consumer, share and streams groups."""
    expected = admin()["groups"]
    rows = {row["group"]: row for row in read_groups(GROUPS).rows}
    assert rows.keys() == expected.keys()
    for group, said in expected.items():
        row = rows[group]
        assert [row[name] for name in ("type", "state", "protocolType")] == [
            said[name] for name in ("type", "state", "protocolType")
        ]
        if said["type"] == "Classic":
            assert (row["protocol"] or "") == said["assignor"]
        else:
            assert (row["epoch"], row["assignmentEpoch"]) == (said["epoch"], said["assignmentEpoch"])
        members = {member["memberId"]: member for member in row["members"]}
        assert members.keys() == {member["memberId"] for member in said["members"]}
        for member in said["members"]:
            found = members[member["memberId"]]
            for name in ("rackId", "clientId", "clientHost", "epoch", "groupInstanceId"):
                assert found[name] == member.get(name)
            shown = tasks if said["type"] == "Streams" else placed
            assert shown(found["assignment"]) == member.get("assigned", member.get("assignedTasks"))
            if "target" in member or "targetTasks" in member:
                assert shown(found["targetAssignment"]) == member.get("target", member.get("targetTasks"))


def test_offsets_of_committing_and_sharing_groups_are_those_that_kafka_lists() -> None:
    """The lag of share groups, too: without what is done behind the start offset."""
    names = ("group", "topic", "partition", "currentOffset", "lag")
    expected = sorted(tuple(each[name] for name in names) for each in admin()["offsets"])
    rows = read_groups(GROUPS).offsets
    assert [tuple(row[name] for name in names) for row in rows] == expected
    assert {row["type"] for row in rows} == {"Classic", "Consumer", "Share"}
    whole = kts.committed_offsets(GROUPS)
    committing = [row for row in rows if row["type"] != "Share"]
    assert [row["currentOffset"] for row in committing] == whole["currentOffset"].to_pylist()


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_offsets_of_other_brokers_are_those_that_kafka_describes(version: str) -> None:
    names = ("group", "topic", "partition", "currentOffset", "logEndOffset", "lag")
    found = read_groups(broker(version))
    assert [tuple(row[name] for name in names) for row in found.offsets] == described(version)
    assert {row["group"] for row in found.offsets} <= {row["group"] for row in found.rows}


@pytest.mark.parametrize(
    ("epoch", "current", "state"),
    [
        (3, {"member_epoch": 2, "state": 0}, "Assigning"),
        (2, {"member_epoch": 1, "state": 0}, "Reconciling"),
        (2, {"member_epoch": 2, "state": 1}, "Reconciling"),
        (2, {"member_epoch": 2, "state": 0}, "Stable"),
        (2, None, "Reconciling"),
    ],
)
def test_the_state_of_a_consumer_group_follows_from_its_epochs(
    epoch: int, current: dict[str, int] | None, state: str, tmp_path: Path
) -> None:
    records = [
        of_group("ConsumerGroupMetadata", {"epoch": epoch}),
        of_group("ConsumerGroupMemberMetadata", MEMBER | {"server_assignor": "range"}),
        of_group("ConsumerGroupTargetAssignmentMetadata", {"assignment_epoch": 2}),
    ]
    if current is not None:
        records.append(of_group("ConsumerGroupCurrentMemberAssignment", {"previous_member_epoch": 0} | current))
    [row] = read(tmp_path, records).rows
    assert (row["state"], row["protocol"]) == (state, "range")


def test_a_streams_group_without_its_validated_topology_is_not_ready(tmp_path: Path) -> None:
    member = MEMBER | {"topology_epoch": 4, "process_id": "p"}
    states = []
    for validated in (-1, 4):
        group = {"epoch": 2, "metadata_hash": 0, "validated_topology_epoch": validated}
        records = [
            of_group("StreamsGroupMetadata", group),
            of_group("StreamsGroupMemberMetadata", member),
            of_group("StreamsGroupTopology", {"epoch": 4}),
            of_group("StreamsGroupTargetAssignmentMetadata", {"assignment_epoch": 1}),
        ]
        states += [row["state"] for row in read(tmp_path / str(validated), records).rows]
    assert states == ["NotReady", "Assigning"]


def test_deleted_members_and_groups_are_gone_and_a_group_that_became_another_type_is_that(tmp_path: Path) -> None:
    key, value = of_group("ConsumerGroupMemberMetadata", MEMBER)
    classic = {"protocol_type": "consumer", "generation": 1, "protocol": "range", "leader": "m", "members": []}
    gone, _ = of_group("ShareGroupMetadata", {"epoch": 1, "metadata_hash": 0}, group="gone")
    records: list[Record] = [
        (group_key("g"), group_value(classic)),
        (group_key("g"), None),
        of_group("ConsumerGroupMetadata", {"epoch": 1}),
        (key, value),
        (key, None),
        of_group("ShareGroupMetadata", {"epoch": 1, "metadata_hash": 0}, group="gone"),
        (gone, None),
    ]
    [row] = read(tmp_path, records).rows
    assert (row["group"], row["type"], row["state"], row["members"]) == ("g", "Consumer", "Empty", [])


def test_an_update_of_a_share_partition_changes_what_it_has(tmp_path: Path) -> None:
    group = of_group("ShareGroupMetadata", {"epoch": 1, "metadata_hash": 0})
    steps: list[tuple[Record, tuple[int | None, int] | None]] = [
        (of_share(shares.SNAPSHOT, {"start_offset": -1}), (None, 0)),
        (of_share(shares.UPDATE, {"start_offset": 5, "leader_epoch": 3, "delivery_complete_count": 2}), (5, 3)),
        (of_share(shares.UPDATE, {"start_offset": -1, "leader_epoch": -1, "delivery_complete_count": 4}), (5, 3)),
        (of_share(shares.SNAPSHOT, {"start_offset": 7, "leader_epoch": 4}), (7, 4)),
        (of_share(shares.SNAPSHOT, None), None),
        (of_share(shares.UPDATE, {"start_offset": 9}), (9, 0)),
    ]
    for end, (_, expected) in enumerate(steps, 1):
        rows = read(tmp_path / str(end), [group], [record for record, _ in steps[:end]]).offsets
        assert [(row["currentOffset"], row["leaderEpoch"]) for row in rows] == ([] if expected is None else [expected])
        assert all(row["lag"] is row["logEndOffset"] is None for row in rows), "the topic is elsewhere"
        assert {row["topic"] for row in rows} <= {"AAECAwQFBgcICQoLDA0ODw"}


def test_a_share_group_names_topics_and_a_count_that_is_not_kept_has_no_lag(tmp_path: Path) -> None:
    topics = {"initialized_topics": [{"topic_id": ID, "topic_name": "t", "partitions": [0]}]}
    write(tmp_path, "t", [(b"k", b"v")] * 9)
    share = [of_share(shares.SNAPSHOT, {"start_offset": 4})]
    [row] = read(tmp_path, [of_group("ShareGroupStatePartitionMetadata", topics)], share).offsets
    assert (row["topic"], row["currentOffset"], row["logEndOffset"], row["lag"]) == ("t", 4, 9, None)
    write(tmp_path, shares.TOPIC, [of_share(shares.UPDATE, {"start_offset": 5, "delivery_complete_count": 1})])
    assert read_groups(tmp_path).offsets[0]["lag"] == 3


def test_a_damaged_record_is_an_error_that_says_where_or_is_left_out(tmp_path: Path) -> None:
    key, _ = of_group("ConsumerGroupMetadata", {"epoch": 1})
    records = [(key, b"\0\0\0"), (offset_key("g", "t", 0), offset_value(committed(5)))]
    with pytest.raises(kts.CorruptRecordError, match="offset 0 of __consumer_offsets-0 is not a record of") as caught:
        read(tmp_path, records)
    assert (caught.value.path, caught.value.offset) == (str(tmp_path / "__consumer_offsets-0"), 0)
    with pytest.warns(kts.KtsWarning, match="offset 0 of __consumer_offsets-0 .* is left out"):
        found = read_groups(tmp_path, on_error="skip")
    assert [(row["currentOffset"], row["type"]) for row in found.offsets] == [(5, "Classic")]
    share = of_share(shares.SNAPSHOT, {"start_offset": 4})
    write(tmp_path, shares.TOPIC, [(share[0], b"\0\0\0"), share])
    with pytest.warns(kts.KtsWarning, match="is left out") as told:
        assert len(read_groups(tmp_path, on_error="skip").offsets) == 2
    assert [f"offset 0 of {shares.TOPIC}-0" in str(one.message) for one in told] == [False, True]


def test_a_type_that_is_unknown_is_no_group(tmp_path: Path) -> None:
    records = [(b"\0\x63\0\1g", b"\0\0\1"), of_group("ConsumerGroupMetadata", {"epoch": 1})]
    assert [row["group"] for row in read(tmp_path, records, [(b"\0\7", b"\0\0")]).rows] == ["g"]


def test_mutated_records_of_a_real_broker_are_read_or_left_out(tmp_path: Path, rng: random.Random) -> None:
    """Nothing but a warning, whatever the bytes are."""
    raw = {
        topic: kts.scan(GROUPS, topics=[topic], columns=["key", "value"], include_control=False).read_all().to_pylist()
        for topic in ("__consumer_offsets", shares.TOPIC)
    }
    told = 0
    for number in range(scaled(8, 400)):
        folder = tmp_path / str(number)
        for topic, rows in raw.items():
            records = []
            for row in rows:
                data = {name: row[name] for name in ("key", "value")}
                name = rng.choice(["key", "value"])
                if data[name] and rng.random() < 0.3:
                    at = rng.randrange(len(data[name]))
                    hostile = rng.choice([rng.randbytes(1), b"\x7f\xff\xff\xff", b"\xff\xff", b""])
                    data[name] = data[name][:at] + hostile + data[name][at + rng.choice([0, len(hostile)]) :]
                records.append((data["key"], data["value"]))
            write(folder, topic, records)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = read_groups(folder, on_error="skip")
        told += len(caught)
        assert all(isinstance(one.message, kts.KtsWarning) for one in caught)
        assert {row["type"] for row in found.rows} <= {modern.CLASSIC, modern.CONSUMER, modern.SHARE, modern.STREAMS}
        shutil.rmtree(folder)
    assert told > 8


def test_share_groups_are_read_without_the_offsets_of_others() -> None:
    whole = read_groups(GROUPS).offsets
    alone = read_groups(sorted(GROUPS.glob("__share_group_state-*"))).offsets
    assert {row["group"] for row in alone} == {row["group"] for row in whole if row["type"] == "Share"}
