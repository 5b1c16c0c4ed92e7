"""Records of ``__consumer_offsets`` and ``__transaction_state`` as Arrow columns.

A decoder names the columns; it fills those of a record's kind, and the others are null. Each different key is read once
per batch. Committed offsets are read by the column, group metadata and transactions one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts.coordinator_records import groups, transactions
from kts.coordinator_records.layout import VERSION, Layout, version_of
from kts.errors import InvalidRequestError, KtsError
from kts.model import topic_id_text
from kts.protocol.vectors import read_numbers, read_structs, readable

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Places = npt.NDArray[np.int64]

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


class DecodedTopic(NamedTuple):
    """The topic whose records are decoded, and the columns."""

    topic: str
    columns: tuple[str, ...]


DECODERS = {
    "offsets": DecodedTopic(groups.TOPIC, OFFSET_COLUMNS),
    "transactions": DecodedTopic(transactions.TOPIC, TRANSACTION_COLUMNS),
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

    table = _Table(keys.cast(pa.binary()), values.cast(pa.binary()), control)
    (_offsets if decoder == "offsets" else _transactions)(table)
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

    def read_keys(self, read: Callable[[bytes], dict[str, Any]]) -> pa.Array:
        """Read each different key once; returns the ``recordType`` of each row."""
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
        return self.column("recordType")

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
        rest, several = [], []
        for row, value in zip(rows[left].tolist(), self.values.take(rows[left]).to_pylist(), strict=True):
            try:
                several.append(read(value))
                rest.append(row)
            except KtsError as error:
                self.refused.append(Refused(row, error.message))
        if rest:
            listed = {columns[name]: [each[name] for each in several] for name in columns}
            self.add(np.array(rest, np.int64), listed)


# --- the two topics -------------------------------------------------------------------------------


def _offsets(table: _Table) -> None:
    import pyarrow.compute as pc

    types = table.read_keys(_group_key)
    for name, layout, read, columns in (
        ("OffsetCommit", groups.OFFSET_LAYOUT, groups.OFFSET_LAYOUT.read, _OFFSET_FIELDS),
        ("GroupMetadata", groups.GROUP_LAYOUT, _group, _GROUP_FIELDS),
    ):
        chosen = np.asarray(pc.fill_null(pc.equal(types, name), False)) & table.has_value
        table.read_values(np.flatnonzero(chosen), layout, read, columns)


def _transactions(table: _Table) -> None:
    import pyarrow.compute as pc

    known = np.asarray(pc.is_valid(table.read_keys(_transaction_key)))
    layout = transactions.TRANSACTION_LAYOUT
    table.read_values(np.flatnonzero(known & table.has_value), layout, layout.read, _TRANSACTION_FIELDS)


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


def _group_key(key: bytes) -> dict[str, Any]:
    version = version_of(key, "key")
    found = {"recordType": groups.RECORD_TYPES.get(version), "keyVersion": version}
    if version in groups.OFFSET_KEYS:
        offset = groups.OFFSET_KEY_LAYOUT.read(key)
        more = {"committedTopic": offset["topic"], "committedPartition": offset["partition"]}
        return found | more | {"group": offset["group"]}
    return found | {"group": groups.GROUP_KEY_LAYOUT.read(key)["group"]} if version in groups.RECORD_TYPES else found


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
        return {"recordType": None, "keyVersion": version}
    named = transactions.TRANSACTION_KEY_LAYOUT.read(key)["transactional_id"]
    return {"recordType": "TransactionLog", "keyVersion": version, "transactionalId": named}


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
        return _mapped(array, lambda state: names.get(state, "Unknown"))
    if name == "committedTopicId":
        return _mapped(array, topic_id_text)
    return array


def _mapped(array: pa.Array, spell: Callable[[Any], str | None]) -> pa.Array:
    import pyarrow as pa

    coded = array.dictionary_encode()
    return pa.array([spell(value) for value in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)
