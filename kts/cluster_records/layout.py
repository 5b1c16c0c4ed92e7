"""The record types of the metadata log: a table of their fields, and a reader and a writer for each version.

A value is a frame version, the type (Kafka's apiKey) and its version, as unsigned varints, then the fields; all
versions are flexible. A type, version or tagged field that is newer than the table is no damage: it is told as
``unknown``.

Source: the message definitions of Kafka 3.9.2 and 4.3.1 (common/metadata; SnapshotHeaderRecord, KRaftVersionRecord,
VotersRecord), MetadataRecordSerde.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from kts.errors import InvalidRequestError
from kts.protocol.fields import Field, fields_of
from kts.protocol.reading import Cursor, read_uvarint, struct_reader
from kts.protocol.writing import REFUSED, Output, refused, struct_writer, uvarint

TOPIC = "__cluster_metadata"
FRAME = 1  # the version of the frame
SNAPSHOT_HEADER, SNAPSHOT_FOOTER = b"\0\0\0\3", b"\0\0\0\4"  # keys of control records
NO_OP = bytes([FRAME, 20, 0, 0])  # twice a second, when nothing else is written
MAX_ELEMENTS = 1_000_000  # of the arrays of one record

# A type, its name and its newest version; then its fields, as in ``kts.protocol.fields``.
TABLE = """\
0 RegisterBroker 4
    brokerId                    int32    0+
    isMigratingZkBroker         bool     2+
    incarnationId               uuid     0+
    brokerEpoch                 int64    0+
    endPoints                   []       0+
        name                    string   0+
        host                    string   0+
        port                    uint16   0+
        securityProtocol        int16    0+
    features                    []       0+
        name                    string   0+
        minSupportedVersion     int16    0+
        maxSupportedVersion     int16    0+
    rack                        string   0+  null 0+
    fenced                      bool     0+  = true
    inControlledShutdown        bool     1+
    logDirs                     []uuid   3+  tag 0
    cordonedLogDirs             []uuid   4+  null 4+ = null tag 1
1 UnregisterBroker 0
    brokerId                    int32    0+
    brokerEpoch                 int64    0+
2 Topic 0
    name                        string   0+
    topicId                     uuid     0+
3 Partition 2
    partitionId                 int32    0+  = -1
    topicId                     uuid     0+
    replicas                    []int32  0+
    isr                         []int32  0+
    removingReplicas            []int32  0+
    addingReplicas              []int32  0+
    leader                      int32    0+  = -1
    leaderRecoveryState         int8     0+  = 0 tag 0
    leaderEpoch                 int32    0+  = -1
    partitionEpoch              int32    0+  = -1
    directories                 []uuid   1+
    eligibleLeaderReplicas      []int32  2+  null 2+ = null tag 1
    lastKnownElr                []int32  2+  null 2+ = null tag 2
4 Config 0
    resourceType                int8     0+
    resourceName                string   0+
    name                        string   0+
    value                       string   0+  null 0+
5 PartitionChange 2
    partitionId                 int32    0+  = -1
    topicId                     uuid     0+
    isr                         []int32  0+  null 0+ = null tag 0
    leader                      int32    0+  = -2 tag 1
    replicas                    []int32  0+  null 0+ = null tag 2
    removingReplicas            []int32  0+  null 0+ = null tag 3
    addingReplicas              []int32  0+  null 0+ = null tag 4
    leaderRecoveryState         int8     0+  = -1 tag 5
    eligibleLeaderReplicas      []int32  2+  null 2+ = null tag 6
    lastKnownElr                []int32  2+  null 2+ = null tag 7
    directories                 []uuid   1+  null 1+ = null tag 8
7 FenceBroker 0
    id                          int32    0+
    epoch                       int64    0+
8 UnfenceBroker 0
    id                          int32    0+
    epoch                       int64    0+
9 RemoveTopic 0
    topicId                     uuid     0+
10 DelegationToken 0
    owner                       string   0+
    requester                   string   0+
    renewers                    []string 0+
    issueTimestamp              int64    0+
    maxTimestamp                int64    0+
    expirationTimestamp         int64    0+
    tokenId                     string   0+
11 UserScramCredential 0
    name                        string   0+
    mechanism                   int8     0+
    salt                        bytes    0+
    storedKey                   bytes    0+
    serverKey                   bytes    0+
    iterations                  int32    0+
12 FeatureLevel 0
    name                        string   0+
    featureLevel                int16    0+
14 ClientQuota 0
    entity                      []       0+
        entityType              string   0+
        entityName              string   0+  null 0+
    key                         string   0+
    value                       float64  0+
    remove                      bool     0+
15 ProducerIds 0
    brokerId                    int32    0+
    brokerEpoch                 int64    0+  = -1
    nextProducerId              int64    0+
17 BrokerRegistrationChange 3
    brokerId                    int32    0+
    brokerEpoch                 int64    0+
    fenced                      int8     0+  tag 0
    inControlledShutdown        int8     1+  tag 1
    logDirs                     []uuid   2+  tag 2
    cordonedLogDirs             []uuid   3+  null 3+ = null tag 3
18 AccessControlEntry 0
    id                          uuid     0+
    resourceType                int8     0+
    resourceName                string   0+
    patternType                 int8     0+
    principal                   string   0+
    host                        string   0+
    operation                   int8     0+
    permissionType              int8     0+
19 RemoveAccessControlEntry 0
    id                          uuid     0+
20 NoOp 0
21 ZkMigrationState 0
    zkMigrationState            int8     0+
22 RemoveUserScramCredential 0
    name                        string   0+
    mechanism                   int8     0+
23 BeginTransaction 0
    name                        string   0+  null 0+ = null tag 0
24 EndTransaction 0
25 AbortTransaction 0
    reason                      string   0+  null 0+ = null tag 0
26 RemoveDelegationToken 0
    tokenId                     string   0+
27 RegisterController 0
    controllerId                int32    0+
    incarnationId               uuid     0+
    zkMigrationReady            bool     0+
    endPoints                   []       0+
        name                    string   0+
        host                    string   0+
        port                    uint16   0+
        securityProtocol        int16    0+
    features                    []       0+
        name                    string   0+
        minSupportedVersion     int16    0+
        maxSupportedVersion     int16    0+
28 ClearElr 0
    topicName                   string   0+
"""
# Likewise of control records, and their key.
CONTROL_KEY = """\
    version                     int16    0
    type                        int16    0
"""
CONTROL_TABLE = """\
3 SnapshotHeader 0
    version                     int16    0+
    lastContainedLogTimestamp   int64    0+
5 KRaftVersion 0
    version                     int16    0+
    kRaftVersion                int16    0+
6 KRaftVoters 0
    version                     int16    0+
    voters                      []       0+
        voterId                 int32    0+
        voterDirectoryId        uuid     0+
        endpoints               []       0+
            name                string   0+
            host                string   0+
            port                uint16   0+
        kRaftVersionFeature     {}       0+
            minSupportedVersion int16    0+
            maxSupportedVersion int16    0+
"""


class MetadataRecordType(NamedTuple):
    """A type of record: its number and name, its newest version, and its fields."""

    api_key: int
    name: str
    newest: int
    fields: tuple[Field, ...]


class DecodedRecord(NamedTuple):
    """A record: its number, name and version, its fields, and what of it is newer than the table.

    Attributes
    ----------
    name, fields
        None where the type, or the version, is unknown.
    unknown : str or None
        What was passed over.
    """

    api_key: int
    name: str | None
    version: int
    fields: dict[str, Any] | None
    unknown: str | None


@cache
def record_types() -> dict[int, MetadataRecordType]:
    """The types of records by their numbers; the table is read at first use."""
    return _types_of(TABLE)


@cache
def control_types() -> dict[int, MetadataRecordType]:
    """The types of control records by their numbers."""
    return _types_of(CONTROL_TABLE)


def _types_of(table: str) -> dict[int, MetadataRecordType]:
    found = {}
    for head, text in re.findall(r"^(\d+ .*)\n((?: .*\n)*)", table, re.MULTILINE):
        number, name, newest = head.split()
        found[int(number)] = MetadataRecordType(int(number), name, int(newest), fields_of(text, int(newest)))
    return found


@cache
def number_of(name: str) -> int:
    """The number of a type of records."""
    return next(known.api_key for known in record_types().values() if known.name == name)


_reader = cache(lambda number, version: struct_reader(record_types()[number].fields, version, True)[0])
_writer = cache(lambda number, version: struct_writer(record_types()[number].fields, version, True))


def read_record(value: bytes) -> DecodedRecord:
    """Read the value of a record.

    Raises
    ------
    InvalidRequestError
        The bytes do not match their type and version, or have another frame.
    """
    cursor = Cursor(memoryview(value), MAX_ELEMENTS)
    frame = read_uvarint(cursor)
    if frame != FRAME:
        cursor.position = 0
        cursor.fail(f"frame version {FRAME}", f"{frame}")
    number, version = read_uvarint(cursor), read_uvarint(cursor)
    for word, read in (("type", number), ("version", version)):
        if read > 0x7FFF:
            cursor.fail(f"a {word} of at most 32767", f"{read}")
    known = record_types().get(number)
    if known is None:
        return DecodedRecord(number, None, version, None, f"type {number}")
    if version > known.newest:
        return DecodedRecord(number, known.name, version, None, f"version {version} of {known.name}")
    try:
        fields: dict[str, Any] = _reader(number, version)(cursor)
        if cursor.position != cursor.end:
            cursor.fail("the end of the record", f"{cursor.end - cursor.position} more bytes")
    except InvalidRequestError as error:
        trail = "".join(f", {name}" for name in reversed(cursor.trail))
        message = f"{known.name} version {version}{trail}: {error.message}"
        raise InvalidRequestError(message, position=error.position) from error
    tags = ", ".join(f"tagged field {tag}" for tag in cursor.unknown_tags)
    return DecodedRecord(number, known.name, version, fields, f"{tags} of {known.name}" if tags else None)


def read_control(key: bytes, value: bytes) -> DecodedRecord | None:
    """Read a control record; None for a type that says nothing of the cluster.

    Raises
    ------
    InvalidRequestError
        The bytes do not match their type.
    """
    read_key, _ = struct_reader(fields_of(CONTROL_KEY, 0), 0, False)
    known = control_types().get(read_key(Cursor(memoryview(key), MAX_ELEMENTS))["type"])
    if known is None:
        return None
    read, _ = struct_reader(known.fields, 0, True)
    return DecodedRecord(known.api_key, known.name, 0, read(Cursor(memoryview(value), MAX_ELEMENTS)), None)


def write_record(name: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """The value of a record."""
    number = number_of(name)
    output = Output()
    output.buffer += bytes([FRAME]) + uvarint(number) + uvarint(version)
    try:
        _writer(number, version)(output, fields)
    except REFUSED as error:
        raise refused(output, error, name) from error
    return b"".join(output.flush())
