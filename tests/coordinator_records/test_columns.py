"""Columns of decoders beside what Kafka's own tools and classes read."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.broker.group_play import subscription
from support.coordinators import GROUPS, VERSIONS, broker, dumped, dumped_transactions, written
from support.golden import scaled

import kts
from kts.coordinator_records import groups
from kts.coordinator_records.columns import DECODERS, column_types, decode_records
from kts.coordinator_records.groups import OFFSET_LAYOUT, Committed, group_key, offset_key, offset_value
from kts.coordinator_records.modern import RECORD_TYPES
from kts.coordinator_records.transactions import STATES, TRANSACTION_KEY_LAYOUT
from kts.errors import KtsError

GROUP_NAMES = {
    "protocolType": "protocolType",
    "generation": "generation",
    "protocol": "protocol",
    "leader": "leader",
    "currentStateTimestamp": "currentStateTimestamp",
}
OFFSET_NAMES = {
    "offset": "committedOffset",
    "leaderEpoch": "committedLeaderEpoch",
    "metadata": "committedMetadata",
    "topicId": "committedTopicId",
    "commitTimestamp": "commitTimestamp",
    "expireTimestamp": "expireTimestamp",
}
TRANSACTION_NAMES = {
    "producerId": "transactionProducerId",
    "producerEpoch": "transactionProducerEpoch",
    "previousProducerId": "previousProducerId",
    "nextProducerId": "nextProducerId",
    "nextProducerEpoch": "nextProducerEpoch",
    "transactionTimeoutMs": "transactionTimeoutMs",
    "transactionLastUpdateTimestampMs": "transactionLastUpdateTimestamp",
    "transactionStartTimestampMs": "transactionStartTimestamp",
    "clientTransactionVersion": "clientTransactionVersion",
}
NONE_IS_NULL = ("expireTimestamp", "currentStateTimestamp", "transactionStartTimestamp")
Row = dict[str, Any]


def plain(table: pa.Table | pa.RecordBatch) -> list[Row]:
    """The rows, times in ms."""
    columns = {
        name: table[name].cast(pa.int64()) if pa.types.is_timestamp(table[name].type) else table[name]
        for name in table.schema.names
    }
    return pa.table(columns).to_pylist()


def decoded(decoder: str, keys: list[bytes | None], values: list[bytes | None]) -> tuple[list[Row], dict[int, str]]:
    columns, refused = decode_records(
        decoder, DECODERS[decoder].columns, pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    )
    assert {name: column.type for name, column in columns.items()} == {name: column_types()[name] for name in columns}
    return plain(pa.table(columns)), {each.row: each.reason for each in refused}


def check_fields(row: Row, found: Row, names: dict[str, str]) -> None:
    """A row beside the JSON of Kafka, which leaves out what a version lacks and tagged fields with their default."""
    for name in found.keys() & names.keys():
        column = names[name]
        absent = -1 if column in NONE_IS_NULL else "AAAAAAAAAAAAAAAAAAAAAA" if name == "topicId" else object()
        assert row[column] == (None if found[name] == absent else found[name]), name
    for name in names.keys() - found.keys():
        assert row[names[name]] in (None, -1, 0), name


def check_members(row: Row, found: list[Row]) -> None:
    assert len(row["members"]) == len(found)
    for member, expected in zip(row["members"], found, strict=True):
        for name in ("memberId", "clientId", "clientHost"):
            assert member[name] == expected[name]
        assert member["sessionTimeoutMs"] == expected["sessionTimeout"]
        assert member["rebalanceTimeoutMs"] == expected.get("rebalanceTimeout", expected["sessionTimeout"])
        assert member["groupInstanceId"] == expected.get("groupInstanceId")
        if isinstance(expected["subscription"], dict):  # the tool reads what it is
            assert member["subscribedTopics"] == sorted(expected["subscription"]["topics"])
            assert member["assignedPartitions"] == expected["assignment"]["assignedPartitions"]
        else:
            assert member["subscription"] == base64.b64decode(expected["subscription"])


def check_transaction(row: Row, found: Row) -> None:
    check_fields(row, found, TRANSACTION_NAMES)
    assert row["transactionState"] == STATES[found["transactionStatus"]]
    where = found["transactionPartitions"]
    names = None if where is None else [{"topic": w["topic"], "partitions": w["partitionIds"]} for w in where]
    assert row["transactionPartitions"] == names


@pytest.mark.parametrize("version", VERSIONS)
def test_group_records_of_real_brokers_are_what_kafkas_dump_says(version: str) -> None:
    kinds: set[str] = set()
    for partition in sorted(broker(version).glob("__consumer_offsets-[0-9]")):
        expected = dumped(partition)
        rows = plain(kts.scan(partition, decoder="offsets").read_all())
        assert [row["offset"] for row in rows] == list(expected)
        for row in rows:
            key, value = expected[row["offset"]]
            assert row["keyVersion"] == int(key["type"])
            assert row["group"] == key["data"].get("group", key["data"].get("groupId"))
            assert row["tombstone"] == (value is None)
            assert row["valueVersion"] == (None if value is None else int(value["version"]))
            assert row["recordType"] == RECORD_TYPES[row["keyVersion"]]
            kinds.add(f"{row['recordType']}{'' if value else ' deleted'}")
            if row["recordType"] == "OffsetCommit":
                assert row["committedTopic"] == key["data"]["topic"]
                assert row["committedPartition"] == key["data"]["partition"]
            if value is not None and row["recordType"] == "OffsetCommit":
                check_fields(row, value["data"], OFFSET_NAMES)
            elif value is not None and row["recordType"] == "GroupMetadata":
                check_fields(row, value["data"], GROUP_NAMES)
                check_members(row, value["data"]["members"])
            else:
                assert row["committedOffset"] is row["generation"] is row["members"] is None
                details = json.loads(row["details"] or "{}")
                said = {} if value is None else value["data"]
                assert {name: details[name] for name in said} == said
                assert row["groupType"] == {1: None, 2: "Classic"}.get(row["keyVersion"], "Consumer")
    assert {"OffsetCommit", "GroupMetadata"} <= kinds
    assert ("OffsetCommit deleted" in kinds) == (version != "0.10.2.2")
    assert ("ConsumerGroupMemberMetadata" in kinds) == (version == "4.3.1")


def test_transactions_of_real_brokers_are_what_kafkas_dump_says() -> None:
    partition = broker("4.3.1") / "__transaction_state-0"
    expected = dumped(partition)
    rows = plain(kts.scan(partition, decoder="transactions").read_all())
    assert [row["offset"] for row in rows] == list(expected)
    for row in rows:
        key, value = expected[row["offset"]]
        assert value is not None
        assert (row["recordType"], row["keyVersion"], row["valueVersion"]) == ("TransactionLog", 0, 1)
        assert row["transactionalId"] == key["data"]["transactionalId"]
        check_transaction(row, value["data"])

    partition = broker("3.9.2") / "__transaction_state-0"
    rows = plain(kts.scan(partition, decoder="transactions").read_all())
    assert {row["valueVersion"] for row in rows} == {0}
    names = ["transactionalId", "transactionProducerId", "transactionProducerEpoch", "transactionState"]
    names += ["transactionPartitions", "transactionLastUpdateTimestamp", "transactionTimeoutMs"]
    assert {
        row["offset"]: tuple(
            {f"{each['topic']}-{number}" for each in row[name] or () for number in each["partitions"]}
            if name == "transactionPartitions"
            else row[name]
            for name in names
        )
        for row in rows
    } == dumped_transactions(partition)


def test_every_version_of_a_value_is_what_kafkas_classes_wrote() -> None:
    cases = written()
    kinds = {
        "OffsetCommitValue": ("offsets", offset_key("g", "t", 0)),
        "GroupMetadataValue": ("offsets", group_key("g")),
        "TransactionLogValue": ("transactions", TRANSACTION_KEY_LAYOUT.write(0, {"transactional_id": "i"})),
    }
    for kind, (decoder, key) in kinds.items():
        chosen = [case for case in cases if case["kind"] == kind]
        values = [base64.b64decode(case["bytes"]) for case in chosen]
        rows, refused = decoded(decoder, [key] * len(values), list(values))
        assert not refused
        assert {case["version"] for case in chosen} == set(range(2 if decoder == "transactions" else 5))
        for row, case in zip(rows, chosen, strict=True):
            assert row["valueVersion"] == case["version"]
            if kind == "OffsetCommitValue":
                check_fields(row, case["json"], OFFSET_NAMES)
            elif kind == "GroupMetadataValue":
                check_fields(row, case["json"], GROUP_NAMES)
                check_members(row, case["json"]["members"])
            else:
                check_transaction(row, case["json"])


def test_offsets_read_by_the_column_are_those_read_one_by_one(rng: random.Random) -> None:
    """Whole and cut values of every version, with every kind of metadata, in any order."""
    values: list[bytes] = []
    for _ in range(400):
        metadata = rng.choice(["", "m", "é" * rng.randrange(90), "x" * rng.randrange(300)])
        fields = {
            "offset": rng.randrange(-5, 2**63),
            "leader_epoch": rng.randrange(-1, 9),
            "metadata": metadata,
            "commit_timestamp": rng.randrange(2**41),
            "expire_timestamp": rng.choice([-1, 7]),
            "topic_id": rng.choice([bytes(16), bytes(range(16))]),
        }
        value = OFFSET_LAYOUT.write(rng.randrange(5), fields)
        if rng.random() < 0.2:
            value = value[: rng.randrange(len(value) + 1)]
        elif rng.random() < 0.2:
            at = rng.randrange(len(value))
            value = value[:at] + rng.randbytes(1) + value[at + 1 :]
        values.append(value)
    rows, refused = decoded("offsets", [offset_key("g", "t", 1)] * len(values), list(values))
    assert len(refused) > 40
    for number, (row, value) in enumerate(zip(rows, values, strict=True)):
        try:
            found = OFFSET_LAYOUT.read(value)
        except KtsError as error:
            assert refused[number] == error.message
            assert row["committedOffset"] is None
        else:
            assert number not in refused
            names = ("committedOffset", "committedLeaderEpoch", "committedMetadata", "commitTimestamp")
            fields = [found[name] for name in ("offset", "leader_epoch", "metadata", "commit_timestamp")]
            assert [row[name] for name in names] == fields


def test_records_of_unknown_kinds_keep_what_is_known_and_damage_has_a_reason() -> None:
    sound = offset_value(Committed(5, -1, "", 9))
    keys = [
        b"\0\x63\0\1g",
        b"\0\x03\0\1g",
        b"\0\1\0\1g",
        None,
        b"",
        b"\0\1\0\1g\0\1t\0\0\0\2",
        b"\0\2\0\1g",
        b"\0\2\0\1g",
    ]
    values = [b"\0\0\1", b"\0\0\0\0\0\7\0", sound, sound, sound, b"\0\x09", b"\0\3\0", None]
    rows, refused = decoded("offsets", keys, values)
    assert [row["recordType"] for row in rows[:2]] == ["Unknown", "ConsumerGroupMetadata"]
    assert [row["keyVersion"] for row in rows[:2]] == [99, 3]
    assert (rows[0]["details"], rows[1]["epoch"]) == (None, 7)
    assert [row["group"] for row in rows] == [None, "g", None, None, None, "g", "g", "g"]
    assert (rows[5]["committedTopic"], rows[5]["committedPartition"]) == ("t", 2)
    assert [row["tombstone"] for row in rows] == [False] * 7 + [True]
    assert refused.keys() == {2, 3, 4, 5, 6}
    assert "expected 2 bytes" in refused[2]
    assert refused[3] == "key: expected a key, found null"
    assert refused[4] == "key: expected a version of 2 bytes, found 0"
    assert refused[5] == "offset: expected a version from 0 to 4, found 9"


def test_only_a_damaged_group_of_a_new_protocol_is_refused_and_only_where_its_columns_are_asked_for() -> None:
    keys = pa.array([offset_key("g", "t", 0), b"\0\3\0\1g", b"\0\3\0\1h"], pa.binary())
    values = pa.array([offset_value(Committed(5, -1, "", 9)), b"\0\0\0", b"\0\0\0\0\0\7\0"], pa.binary())
    columns, refused = decode_records("offsets", ["group", "committedOffset"], keys, values)
    assert (columns["committedOffset"].to_pylist(), refused) == ([5, None, None], [])
    columns, refused = decode_records("offsets", ["group", "epoch"], keys, values)
    assert columns["epoch"].to_pylist() == [None, None, 7]
    assert [(each.row, each.reason) for each in refused] == [(1, "expected 4 bytes for int32, found 1 left")]


def test_share_group_state_of_a_real_broker_has_a_row_for_each_record() -> None:
    rows = plain(kts.scan(GROUPS, decoder="share").read_all())
    assert {row["recordType"] for row in rows} == {"ShareSnapshot", "ShareUpdate"}
    orders = [row for row in rows if row["group"] == "share-open" and row["sharePartition"] == 1]
    names = ["shareStartOffset", "deliveryCompleteCount", "snapshotEpoch", "stateEpoch"]
    assert [[row[name] for name in names] for row in orders] == [[-1, -1, 0, 2], [0, 10, 0, None], [10, 1, 0, None]]
    [batch] = orders[1]["stateBatches"][-1:]
    assert batch == {"firstOffset": 5, "lastOffset": 9, "deliveryState": 2, "deliveryCount": 1}
    [gone] = [row for row in rows if row["tombstone"]]
    assert (gone["group"], gone["shareStartOffset"], gone["stateBatches"]) == ("share-gone", None, None)


def test_an_unknown_type_of_share_or_transaction_record_is_named_so() -> None:
    for decoder in ("share", "transactions"):
        [row], refused = decoded(decoder, [b"\0\7\0\1g"], [b"\0\0\1"])
        assert (row["recordType"], row["keyVersion"], row["tombstone"], refused) == ("Unknown", 7, False, {})


def test_members_of_other_protocols_keep_their_bytes() -> None:
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "session_timeout": 1}
    member |= {"subscription": subscription("t"), "assignment": b"\0\1"}
    group = {"generation": 1, "protocol": None, "leader": None, "members": [member]}
    values: list[bytes | None] = [
        groups.group_value(group | {"protocol_type": type_}) for type_ in ("consumer", "connect")
    ]
    rows, _ = decoded("offsets", [group_key("g")] * 2, values)
    found = [row["members"][0] for row in rows]
    assert [each["subscribedTopics"] for each in found] == [["t"], None]
    assert [each["assignedPartitions"] for each in found] == [None, None]
    assert [each["subscription"] for each in found] == [member["subscription"]] * 2


def test_control_records_have_no_columns() -> None:
    keys, values = pa.array([b"\0\0\0\1"], pa.binary()), pa.array([bytes(6)], pa.binary())
    names = DECODERS["offsets"].columns
    columns, refused = decode_records("offsets", names, keys, values, np.array([True]))
    assert not refused
    assert {column.to_pylist()[0] for column in columns.values()} == {None}


@pytest.mark.parametrize("decoder", sorted(DECODERS))
def test_no_records_are_no_rows(decoder: str) -> None:
    assert decoded(decoder, [], []) == ([], {})


def test_decoders_share_no_name_with_columns_of_records() -> None:
    for decoder in DECODERS.values():
        assert not {*decoder.columns} & {"topic", "partition", *kts.ALL_COLUMNS}
    assert {name for decoder in DECODERS.values() for name in decoder.columns} == {*column_types()}
    assert DECODERS["offsets"].topic == groups.TOPIC


def test_mutated_records_of_real_brokers_are_decoded_or_refused(rng: random.Random) -> None:
    """Nothing but a refusal, whatever the bytes are."""
    for decoder, found in DECODERS.items():
        raw = kts.scan(GROUPS, topics=[found.topic], columns=["key", "value"]).read_all().to_pylist()
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for _ in range(scaled(500, 20_000)):
            row = rng.choice(raw)
            for into, data in ((keys, row["key"]), (values, row["value"])):
                if data and rng.random() < 0.5:
                    at = rng.randrange(len(data))
                    hostile = rng.choice([rng.randbytes(1), b"\x7f\xff\xff\xff", b"\xff\xff", b""])
                    data = data[:at] + hostile + data[at + rng.choice([0, len(hostile)]) :]
                into.append(data)
        rows, refused = decoded(decoder, keys, values)
        assert len(rows) == len(keys)
        assert 50 < len(refused) < len(keys)
