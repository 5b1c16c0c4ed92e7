"""The records of ``__consumer_offsets``: keys and values of committed offsets and of group metadata.

A key has an int16 version and fields: versions 0 and 1 are of an offset, 2 of a group; newer ones are ignored. A value
has an int16 version and fields and is flexible from version 4 on; null is a tombstone. ``kts.broker.wire.messages``
explains the tables.

Source: OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue (3.9), ConsumerProtocol.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from kts.broker.wire.messages import fields_of
from kts.broker.wire.reading import Cursor, struct_reader
from kts.broker.wire.writing import REFUSED, Output, refused, struct_writer
from kts.errors import InvalidRequestError, KtsError, UnsupportedVersionError

OFFSET_KEYS, GROUP_KEY = (0, 1), 2
OFFSET_VALUE = GROUP_VALUE = 3  # written, as in Kafka: the newest that is not flexible
EXPIRING_VALUE = 1  # the only one with an expire timestamp
NEWEST_VALUE, FLEXIBLE = 4, 4
MAX_ELEMENTS = 1_000_000  # of the arrays of one record
_VERSION = struct.Struct(">h")


class Layout:
    """The fields of a record, with a reader and a writer for each version."""

    def __init__(self, text: str, newest: int) -> None:
        fields = fields_of(text, newest)
        self.readers = [struct_reader(fields, each, each >= FLEXIBLE)[0] for each in range(newest + 1)]
        self.writers = [struct_writer(fields, each, each >= FLEXIBLE) for each in range(newest + 1)]

    def read(self, version: int, data: bytes) -> dict[str, Any]:
        """Read the fields after the version."""
        found: dict[str, Any] = self.readers[version](Cursor(memoryview(data)[_VERSION.size :], MAX_ELEMENTS))
        return found

    def write(self, version: int, found: Mapping[str, Any]) -> bytes:
        """Write a version and its fields."""
        output = Output()
        output.buffer += _VERSION.pack(version)
        try:
            self.writers[version](output, found)
        except REFUSED as error:
            raise refused(output, error, "record of a group") from error
        return b"".join(output.flush())


OFFSET_KEY_LAYOUT = Layout(
    """
    group                       string 0+
    topic                       string 0+
    partition                   int32  0+
""",
    OFFSET_KEYS[-1],
)
GROUP_KEY_LAYOUT = Layout("    group string 0+", GROUP_KEY)
OFFSET_LAYOUT = Layout(
    """
    offset                      int64  0+
    leader_epoch                int32  3+  = -1
    metadata                    string 0+
    commit_timestamp            int64  0+
    expire_timestamp            int64  1   = -1
""",
    NEWEST_VALUE,
)
GROUP_LAYOUT = Layout(
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
)
SUBSCRIPTION_LAYOUT = Layout("    topics []string 0+", 0)


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
    version = _version(key, "key")
    if version in OFFSET_KEYS:
        found = OFFSET_KEY_LAYOUT.read(version, key)
        return OffsetKey(found["group"], found["topic"], found["partition"])
    return str(GROUP_KEY_LAYOUT.read(version, key)["group"]) if version == GROUP_KEY else None


def read_offset(value: bytes) -> Committed:
    """Read a committed offset.

    Raises
    ------
    InvalidRequestError, UnsupportedVersionError
    """
    found = OFFSET_LAYOUT.read(_value_version(value, "offset"), value)
    expire_ms = None if found["expire_timestamp"] == -1 else found["expire_timestamp"]
    return Committed(found["offset"], found["leader_epoch"], found["metadata"], found["commit_timestamp"], expire_ms)


def read_group(value: bytes) -> dict[str, Any]:
    """Read a group's metadata: the fields of the table.

    Raises
    ------
    InvalidRequestError, UnsupportedVersionError
    """
    version = _value_version(value, "group")
    found = GROUP_LAYOUT.read(version, value)
    if version == 0:
        for member in found["members"]:
            member["rebalance_timeout"] = member["session_timeout"]
    return found


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if it is malformed. All versions begin with version 0."""
    try:
        if _version(subscription, "subscription") < 0:
            return None
        return frozenset(SUBSCRIPTION_LAYOUT.read(0, subscription)["topics"])
    except KtsError:
        return None


def _version(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise InvalidRequestError(f"{what}: expected a version of {_VERSION.size} bytes, found {len(data)}")
    return int(_VERSION.unpack_from(data)[0])


def _value_version(value: bytes, what: str) -> int:
    version = _version(value, what)
    if not 0 <= version <= NEWEST_VALUE:
        raise UnsupportedVersionError(f"{what}: expected a version from 0 to {NEWEST_VALUE}, found {version}")
    return version
