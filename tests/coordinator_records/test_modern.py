"""The records of consumer, share and streams groups. ``test_kafkas_classes`` has all their bytes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kts.coordinator_records.columns import DECODERS, decode_records
from kts.coordinator_records.layout import Layout
from kts.coordinator_records.modern import RECORD_TYPES, TYPES
from kts.errors import KtsError

MEMBER = {
    "instance_id": None,
    "rack_id": "r",
    "client_id": "c",
    "client_host": "/h",
    "subscribed_topic_names": ["t"],
    "subscribed_topic_regex": None,
    "rebalance_timeout_ms": 5,
    "server_assignor": None,
    "classic_member_metadata": None,
}
ID = bytes(range(16))


def value_of(number: int) -> Layout:
    layout = TYPES[number].value
    assert layout is not None
    return layout


def row_of(number: int, key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """The columns of a record."""
    type_ = TYPES[number]
    given = [pa.array([each], pa.binary()) for each in (type_.key.write(number, key), value_of(number).write(0, value))]
    columns, refused = decode_records("offsets", DECODERS["offsets"].columns, *given)
    assert refused == []
    return {name: column.to_pylist()[0] for name, column in columns.items()}


def test_records_are_kafkas_byte_for_byte() -> None:
    """Layouts from Kafka's message definitions, written out by hand."""
    member = TYPES[5]
    assert member.key.write(5, {"group": "g", "member_id": "m"}) == b"\0\5\0\1g\0\1m"
    data = b"\0\0" + b"\0\2r\2c\3/h" + b"\2\2t" + b"\0" + b"\0\0\0\5" + b"\0" + b"\1\0\1\0"
    assert value_of(5).write(0, MEMBER) == data
    assert value_of(5).read(data) == MEMBER
    classic = {"session_timeout_ms": 7, "supported_protocols": [{"name": "p", "metadata": b"b"}]}
    data = data[:-4] + b"\1\0\x0c\1" + b"\0\0\0\7" + b"\2\2p\2b\0" + b"\0"
    assert value_of(5).write(0, MEMBER | {"classic_member_metadata": classic}) == data
    assert value_of(3).write(0, {"epoch": 2}) == b"\0\0\0\0\0\2\0"


def test_a_type_names_its_group_and_the_kind_of_it() -> None:
    assert {number: each.name for number, each in TYPES.items()}.items() <= RECORD_TYPES.items()
    for each in TYPES.values():
        assert each.name.startswith(f"{each.group_type}Group")


def test_columns_have_what_a_record_says_of_its_group_and_member() -> None:
    row = row_of(5, {"group": "g", "member_id": "m"}, MEMBER)
    assert (row["recordType"], row["groupType"], row["group"]) == ("ConsumerGroupMemberMetadata", "Consumer", "g")
    assert (row["memberId"], row["clientId"], row["clientHost"], row["subscribedTopics"]) == ("m", "c", "/h", ["t"])
    assert json.loads(row["details"])["rebalanceTimeoutMs"] == 5
    partitions = [{"topic_id": ID, "partitions": [0, 2]}]
    row = row_of(13, {"group": "g", "member_id": "m"}, {"topic_partitions": partitions})
    assert row["assignedPartitions"] == [{"topicId": "AAECAwQFBgcICQoLDA0ODw", "partitions": [0, 2]}]
    row = row_of(16, {"group": "g", "regular_expression": "a.*"}, {"topics": ["a1"], "version": 1, "timestamp": 2})
    assert (row["regularExpression"], row["assignedPartitions"], row["epoch"]) == ("a.*", None, None)
    assert json.loads(row["details"]) == {"topics": ["a1"], "version": 1, "timestamp": 2}


@pytest.mark.parametrize(
    ("number", "value", "epoch"),
    [
        (17, {"epoch": 4, "metadata_hash": 1}, 4),
        (20, {"assignment_epoch": 5}, 5),
        (22, {"member_epoch": 6, "previous_member_epoch": 5, "state": 0}, 6),
        (23, {"epoch": 7}, 7),
    ],
)
def test_each_epoch_is_in_one_column(number: int, value: dict[str, Any], epoch: int) -> None:
    row = row_of(number, {"group": "g", "member_id": "m"}, value)
    assert (row["groupType"], row["epoch"]) == ("Streams", epoch)


def test_of_the_early_access_of_share_groups_the_group_and_the_type_are_known() -> None:
    """In 3.9 and 4.0 they wrote a type whose fields changed between these."""
    given = [pa.array([each], pa.binary()) for each in (b"\0\x09\0\2sg", b"\0\0\1\1\0")]
    columns, refused = decode_records("offsets", ["recordType", "groupType", "group", "details"], *given)
    assert [column.to_pylist() for column in columns.values()] == [
        ["ShareGroupPartitionMetadata"],
        ["Share"],
        ["sg"],
        [None],
    ]
    assert refused == []


def test_cut_records_are_refused() -> None:
    whole = value_of(5).write(0, MEMBER)
    for cut in range(len(whole)):
        with pytest.raises(KtsError):
            value_of(5).read(whole[:cut])
