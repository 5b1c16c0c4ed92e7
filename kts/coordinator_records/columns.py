"""Records of ``__consumer_offsets``, ``__transaction_state`` and ``__share_group_state`` as Arrow columns.

A decoder names the columns; it fills those of a record's kind, and the others are null. Each different key is read once
per batch. Committed offsets are read by the column, all other values one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts.coordinator_records import groups, modern, shares, transactions
from kts.coordinator_records.layout import VERSION, Layout, as_json, version_of
from kts.errors import InvalidRequestError, KtsError
from kts.model import topic_id_text, uuid_text
from kts.protocol.vectors import read_numbers, read_structs, readable

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Places = npt.NDArray[np.int64]

UNKNOWN = "Unknown"  # the type of a record, or a state, that Kafka 4.3 does not have
_MODERN_COLUMNS = ("epoch", "clientId", "clientHost", "subscribedTopics", "assignedPartitions", "details")
OFFSET_COLUMNS = (
    "recordType",
    "keyVersion",
    "valueVersion",
    "tombstone",
    "group",
    "committedTopic",
    "committedPartition",
    "committedOffset",
    "committedLeaderEpoch",
    "committedMetadata",
    "committedTopicId",
    "commitTimestamp",
    "expireTimestamp",
    "protocolType",
    "generation",
    "protocol",
    "leader",
    "currentStateTimestamp",
    "members",
    "groupType",
    "memberId",
    "regularExpression",
    *_MODERN_COLUMNS,
)
TRANSACTION_COLUMNS = (
    "recordType",
    "keyVersion",
    "valueVersion",
    "tombstone",
    "transactionalId",
    "transactionProducerId",
    "transactionProducerEpoch",
    "previousProducerId",
    "nextProducerId",
    "nextProducerEpoch",
    "transactionTimeoutMs",
    "transactionState",
    "transactionPartitions",
    "transactionLastUpdateTimestamp",
    "transactionStartTimestamp",
    "clientTransactionVersion",
)
SHARE_COLUMNS = (
    "recordType",
    "keyVersion",
    "valueVersion",
    "tombstone",
    "group",
    "shareTopicId",
    "sharePartition",
    "snapshotEpoch",
    "stateEpoch",
    "shareLeaderEpoch",
    "shareStartOffset",
    "deliveryCompleteCount",
    "snapshotCreateTimestamp",
    "snapshotWriteTimestamp",
    "stateBatches",
)


class DecodedTopic(NamedTuple):
    """The topic whose records are decoded, and the columns."""

    topic: str
    columns: tuple[str, ...]


DECODERS = {
    "offsets": DecodedTopic(groups.TOPIC, OFFSET_COLUMNS),
    "transactions": DecodedTopic(transactions.TOPIC, TRANSACTION_COLUMNS),
    "share": DecodedTopic(shares.TOPIC, SHARE_COLUMNS),
}
DECODED_COLUMNS = tuple(dict.fromkeys(name for decoder in DECODERS.values() for name in decoder.columns))


class Refused(NamedTuple):
    """A record that cannot be decoded: its row, and why."""

    row: int
    reason: str


@cache
def column_types() -> dict[str, pa.DataType]:
    """The Arrow type of each column."""
    import pyarrow as pa

    time = pa.timestamp("ms", tz="UTC")
    partitions = pa.list_(pa.struct([("topic", pa.string()), ("partitions", pa.list_(pa.int32()))]))
    member = [
        ("memberId", pa.string()),
        ("groupInstanceId", pa.string()),
        ("clientId", pa.string()),
        ("clientHost", pa.string()),
        ("rebalanceTimeoutMs", pa.int32()),
        ("sessionTimeoutMs", pa.int32()),
        ("subscribedTopics", pa.list_(pa.string())),
        ("assignedPartitions", partitions),
        ("subscription", pa.binary()),
        ("assignment", pa.binary()),
    ]
    batch = [
        ("firstOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("deliveryState", pa.int8()),
        ("deliveryCount", pa.int16()),
    ]
    return {
        "recordType": pa.string(),
        "keyVersion": pa.int16(),
        "valueVersion": pa.int16(),
        "tombstone": pa.bool_(),
        "group": pa.string(),
        "committedTopic": pa.string(),
        "committedPartition": pa.int32(),
        "committedOffset": pa.int64(),
        "committedLeaderEpoch": pa.int32(),
        "committedMetadata": pa.string(),
        "committedTopicId": pa.string(),
        "commitTimestamp": time,
        "expireTimestamp": time,
        "protocolType": pa.string(),
        "generation": pa.int32(),
        "protocol": pa.string(),
        "leader": pa.string(),
        "currentStateTimestamp": time,
        "members": pa.list_(pa.struct(member)),
        "groupType": pa.string(),
        "memberId": pa.string(),
        "regularExpression": pa.string(),
        "epoch": pa.int32(),
        "clientId": pa.string(),
        "clientHost": pa.string(),
        "subscribedTopics": pa.list_(pa.string()),
        "assignedPartitions": pa.list_(pa.struct([("topicId", pa.string()), ("partitions", pa.list_(pa.int32()))])),
        "details": pa.string(),
        "transactionalId": pa.string(),
        "transactionProducerId": pa.int64(),
        "transactionProducerEpoch": pa.int16(),
        "previousProducerId": pa.int64(),
        "nextProducerId": pa.int64(),
        "nextProducerEpoch": pa.int16(),
        "transactionTimeoutMs": pa.int32(),
        "transactionState": pa.string(),
        "transactionPartitions": partitions,
        "transactionLastUpdateTimestamp": time,
        "transactionStartTimestamp": time,
        "clientTransactionVersion": pa.int16(),
        "shareTopicId": pa.string(),
        "sharePartition": pa.int32(),
        "snapshotEpoch": pa.int32(),
        "stateEpoch": pa.int32(),
        "shareLeaderEpoch": pa.int32(),
        "shareStartOffset": pa.int64(),
        "deliveryCompleteCount": pa.int32(),
        "snapshotCreateTimestamp": time,
        "snapshotWriteTimestamp": time,
        "stateBatches": pa.list_(pa.struct(batch)),
    }


def decode_records(
    decoder: str, names: Iterable[str], keys: pa.Array, values: pa.Array, control: npt.NDArray[np.bool_] | None = None
) -> tuple[dict[str, pa.Array], list[Refused]]:
    """Columns of a decoder, and the records that cannot be decoded, of which only the sound half is filled in.

    Parameters
    ----------
    decoder : str
        A name of ``DECODERS``.
    names : iterable of str
        Columns of the decoder.
    keys, values : pyarrow.Array
        Binary or binary views.
    control : array of bool, optional
        Control records, whose columns are null.
    """
    import pyarrow as pa

    names = tuple(names)
    table = _Table(keys.cast(pa.binary()), values.cast(pa.binary()), control)
    {"offsets": _offsets, "transactions": _transactions, "share": _shares}[decoder](table)
    if not {*_MODERN_COLUMNS}.isdisjoint(names):
        _modern_groups(table)
    return {name: table.column(name) for name in names}, sorted(table.refused)


class _Table:
    """The columns of a batch while they are filled, part by part."""

    def __init__(self, keys: pa.Array, values: pa.Array, control: npt.NDArray[np.bool_] | None) -> None:
        self.keys, self.values = keys, values
        self.data = np.ones(len(keys), bool) if control is None else ~control
        self.parts: dict[str, list[tuple[Places, pa.Array]]] = {}
        self.refused: list[Refused] = []
        self.has_value = np.asarray(values.is_valid()) & self.data
        rows = np.flatnonzero(self.data)
        self.add(rows, {"tombstone": ~self.has_value[rows]})
        rows = np.flatnonzero(self.has_value)
        versions, whole = read_numbers(values.take(rows), "int16", 0)
        self.add(rows[whole], {"valueVersion": versions[whole]})
        self.versions = np.full(len(keys), -1, np.int64)
        self.versions[rows[whole]] = versions[whole]

    def add(self, rows: Places, columns: Mapping[str, Any]) -> None:
        """Fill rows of columns."""
        import pyarrow as pa

        for name, values in columns.items():
            known = isinstance(values, pa.Array)
            array = values.cast(_raw_type(name)) if known else pa.array(values, _raw_type(name))
            self.parts.setdefault(name, []).append((rows, array))

    def column(self, name: str) -> pa.Array:
        """A whole column; null where nothing was filled in."""
        import pyarrow as pa

        type_ = column_types()[name]
        parts = self.parts.get(name)
        if not parts:
            return pa.nulls(len(self.keys), type_)
        places = np.full(len(self.keys), -1, np.int64)
        filled = np.concatenate([rows for rows, _ in parts])
        places[filled] = np.arange(len(filled))
        array = _shown(name, pa.concat_arrays([array for _, array in parts]))
        return array.cast(type_).take(pa.array(places, mask=places < 0))

    def read_keys(self, read: Callable[[bytes], dict[str, Any]]) -> None:
        """Read each different key once."""
        import pyarrow as pa

        rows = np.flatnonzero(self.data)
        coded = self.keys.take(rows).dictionary_encode(null_encoding="encode")
        found: list[dict[str, Any] | None] = []
        reasons: dict[int, str] = {}
        for number, key in enumerate(coded.dictionary.to_pylist()):
            try:
                if key is None:
                    raise InvalidRequestError("key: expected a key, found null")
                found.append(read(key))
            except KtsError as error:
                reasons[number] = error.message
                found.append(None)
        indices = coded.indices.to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(np.isin(indices, list(reasons))).tolist() if reasons else ():
            self.refused.append(Refused(int(rows[row]), reasons[int(indices[row])]))
        names = dict.fromkeys(name for each in found if each is not None for name in each)
        columns = {
            name: pa.array([None if each is None else each.get(name) for each in found], _raw_type(name)).take(
                coded.indices
            )
            for name in names
        }
        self.add(rows, columns)
        self.types = self.column("recordType").dictionary_encode()

    def rows_of(self, name: str) -> Places:
        """The rows of a type of record that have a value."""
        number = self.types.dictionary.index(name).as_py()
        return np.flatnonzero(self.has_value & (np.asarray(self.types.indices.fill_null(-1)) == number) & (number >= 0))

    def read_values(
        self, rows: Places, layout: Layout, read: Callable[[bytes], dict[str, Any]], columns: Mapping[str, str]
    ) -> None:
        """Read the values of rows; ``columns`` are the fields that become columns."""
        left = np.ones(len(rows), bool)
        versions = self.versions[rows]
        for version in range(layout.newest + 1):
            if not readable(layout.fields, version):
                continue
            chosen = np.flatnonzero(versions == version)
            if not len(chosen):
                continue
            part = self.values.take(rows[chosen])
            found, fits = read_structs(layout.fields, version, version >= layout.flexible, part, VERSION.size)
            fitting = np.flatnonzero(fits)
            left[chosen[fitting]] = False
            self.add(rows[chosen[fitting]], {columns[name]: found[name].take(fitting) for name in columns})
        self.read_each(rows[left], read, columns)

    def read_each(self, rows: Places, read: Callable[[bytes], dict[str, Any]], columns: Mapping[str, str]) -> None:
        """Read the values of rows one by one, as ``read_values``."""
        done, several = [], []
        for row, value in zip(rows.tolist(), self.values.take(rows).to_pylist(), strict=True):
            try:
                several.append(read(value))
                done.append(row)
            except KtsError as error:
                self.refused.append(Refused(row, error.message))
        if done:
            listed = {columns[name]: [each[name] for each in several] for name in columns}
            self.add(np.array(done, np.int64), listed)


# --- the topics -------------------------------------------------------------------------------------


def _offsets(table: _Table) -> None:
    table.read_keys(_group_key)
    for name, layout, read, columns in (
        ("OffsetCommit", groups.OFFSET_LAYOUT, groups.OFFSET_LAYOUT.read, _OFFSET_FIELDS),
        ("GroupMetadata", groups.GROUP_LAYOUT, _group, _GROUP_FIELDS),
    ):
        table.read_values(table.rows_of(name), layout, read, columns)


def _modern_groups(table: _Table) -> None:
    for each in modern.TYPES.values():
        rows = table.rows_of(each.name)
        if each.value is not None and len(rows):
            table.read_each(rows, partial(_modern, each.value), {name: name for name in _MODERN_COLUMNS})


def _transactions(table: _Table) -> None:
    table.read_keys(_transaction_key)
    layout = transactions.TRANSACTION_LAYOUT
    table.read_values(table.rows_of(_TRANSACTION_LOG), layout, layout.read, _TRANSACTION_FIELDS)


def _shares(table: _Table) -> None:
    table.read_keys(_share_key)
    for number, layout in ((shares.SNAPSHOT, shares.SNAPSHOT_LAYOUT), (shares.UPDATE, shares.UPDATE_LAYOUT)):
        there = {field.name for field in layout.fields}
        columns = {name: column for name, column in _SHARE_FIELDS.items() if name in there}
        table.read_each(table.rows_of(shares.RECORD_TYPES[number]), partial(_share, layout), columns)


_TRANSACTION_LOG = "TransactionLog"
_OFFSET_FIELDS = {
    "offset": "committedOffset",
    "leader_epoch": "committedLeaderEpoch",
    "metadata": "committedMetadata",
    "topic_id": "committedTopicId",
    "commit_timestamp": "commitTimestamp",
    "expire_timestamp": "expireTimestamp",
}
_GROUP_FIELDS = {
    "protocol_type": "protocolType",
    "generation": "generation",
    "protocol": "protocol",
    "leader": "leader",
    "current_state_timestamp": "currentStateTimestamp",
    "members": "members",
}
_TRANSACTION_FIELDS = {
    "producer_id": "transactionProducerId",
    "producer_epoch": "transactionProducerEpoch",
    "previous_producer_id": "previousProducerId",
    "next_producer_id": "nextProducerId",
    "next_producer_epoch": "nextProducerEpoch",
    "timeout_ms": "transactionTimeoutMs",
    "state": "transactionState",
    "partitions": "transactionPartitions",
    "last_update_timestamp": "transactionLastUpdateTimestamp",
    "start_timestamp": "transactionStartTimestamp",
    "client_transaction_version": "clientTransactionVersion",
}
_SHARE_FIELDS = {
    "snapshot_epoch": "snapshotEpoch",
    "state_epoch": "stateEpoch",
    "leader_epoch": "shareLeaderEpoch",
    "start_offset": "shareStartOffset",
    "delivery_complete_count": "deliveryCompleteCount",
    "create_timestamp": "snapshotCreateTimestamp",
    "write_timestamp": "snapshotWriteTimestamp",
    "state_batches": "stateBatches",
}


def _group_key(key: bytes) -> dict[str, Any]:
    version = version_of(key, "key")
    found = {"recordType": modern.RECORD_TYPES.get(version, UNKNOWN), "keyVersion": version}
    if version in groups.OFFSET_KEYS:
        offset = groups.OFFSET_KEY_LAYOUT.read(key)
        more = {"committedTopic": offset["topic"], "committedPartition": offset["partition"]}
        return found | more | {"group": offset["group"]}
    if version == groups.GROUP_KEY:
        return found | {"group": groups.GROUP_KEY_LAYOUT.read(key)["group"], "groupType": modern.CLASSIC}
    type_ = modern.TYPES.get(version)
    if type_ is None:
        return found
    read = type_.key.read(key)
    more = {"memberId": read.get("member_id"), "regularExpression": read.get("regular_expression")}
    return found | more | {"group": read["group"], "groupType": type_.group_type}


def _modern(layout: Layout, value: bytes) -> dict[str, Any]:
    found = layout.read(value)
    assigned = found.get("topic_partitions", found.get("assigned_partitions"))
    return {
        "epoch": next((found[name] for name in ("epoch", "assignment_epoch", "member_epoch") if name in found), None),
        "clientId": found.get("client_id"),
        "clientHost": found.get("client_host"),
        "subscribedTopics": found.get("subscribed_topic_names"),
        "assignedPartitions": assigned
        and [{"topicId": uuid_text(each["topic_id"]), "partitions": each["partitions"]} for each in assigned],
        "details": json.dumps(as_json(layout.fields, found), ensure_ascii=False),
    }


def _group(value: bytes) -> dict[str, Any]:
    found = groups.read_group(value)
    consumers = found["protocol_type"] == groups.CONSUMER  # Connect and others have their own bytes
    return found | {"members": [_member(each, consumers) for each in found["members"]]}


def _member(found: Mapping[str, Any], consumer: bool) -> dict[str, Any]:
    subscribed = groups.subscribed_topics(found["subscription"]) if consumer else None
    return {
        "memberId": found["member_id"],
        "groupInstanceId": found["group_instance_id"],
        "clientId": found["client_id"],
        "clientHost": found["client_host"],
        "rebalanceTimeoutMs": found["rebalance_timeout"],
        "sessionTimeoutMs": found["session_timeout"],
        "subscribedTopics": None if subscribed is None else sorted(subscribed),
        "assignedPartitions": groups.assigned_partitions(found["assignment"]) if consumer else None,
        "subscription": found["subscription"],
        "assignment": found["assignment"],
    }


def _transaction_key(key: bytes) -> dict[str, Any]:
    version = version_of(key, "key")
    if version != 0:
        return {"recordType": UNKNOWN, "keyVersion": version}
    named = transactions.TRANSACTION_KEY_LAYOUT.read(key)["transactional_id"]
    return {"recordType": _TRANSACTION_LOG, "keyVersion": version, "transactionalId": named}


def _share_key(key: bytes) -> dict[str, Any]:
    version = version_of(key, "key")
    found = {"recordType": shares.RECORD_TYPES.get(version, UNKNOWN), "keyVersion": version}
    if version not in shares.RECORD_TYPES:
        return found
    read = shares.SHARE_KEY_LAYOUT.read(key)
    more = {"shareTopicId": uuid_text(read["topic_id"]), "sharePartition": read["partition"]}
    return found | more | {"group": read["group"]}


def _share(layout: Layout, value: bytes) -> dict[str, Any]:
    found = layout.read(value)
    return found | {"state_batches": as_json(layout.fields, found)["stateBatches"]}


# --- values -----------------------------------------------------------------------------------------

_NONE_IS_NULL = {"expireTimestamp", "currentStateTimestamp", "transactionStartTimestamp"}  # -1 is none


def _raw_type(name: str) -> pa.DataType:
    """The type of a column's parts: as the field is stored."""
    import pyarrow as pa

    if name == "committedTopicId":
        return pa.binary()
    type_ = column_types()[name]
    return pa.int64() if name == "transactionState" or pa.types.is_timestamp(type_) else type_


def _shown(name: str, array: pa.Array) -> pa.Array:
    """A column as users see it."""
    import pyarrow.compute as pc

    if name in _NONE_IS_NULL:
        return pc.if_else(pc.equal(array, -1), None, array)
    if name == "transactionState":
        names = dict(enumerate(transactions.STATES))
        return _mapped(array, lambda state: names.get(state, UNKNOWN))
    if name == "committedTopicId":
        return _mapped(array, topic_id_text)
    return array


def _mapped(array: pa.Array, spell: Callable[[Any], str | None]) -> pa.Array:
    import pyarrow as pa

    coded = array.dictionary_encode()
    return pa.array([spell(value) for value in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)
