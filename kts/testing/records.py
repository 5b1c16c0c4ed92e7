"""Records as tests write and read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kts.codec.columns import decode
from kts.codec.encode import encode
from kts.model import TimestampType

Data = bytes | bytearray | memoryview | str | None
Headers = Mapping[str, Data] | Iterable[tuple[str, Data]]
_COLUMNS = ("offset", "timestamp", "timestampType", "key", "value", "headers", "partitionLeaderEpoch", "control")


class RecordMetadata(NamedTuple):
    """The place and timestamp of a produced record (org.apache.kafka.clients.producer.RecordMetadata).

    Attributes
    ----------
    timestamp : int
        Ms: the broker's with LogAppendTime, else the record's; -1 if the message format has none.
    timestampType : TimestampType
        Who set it.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestampType: TimestampType


class ConsumerRecord(NamedTuple):
    """A record as consumers get it (org.apache.kafka.clients.consumer.ConsumerRecord).

    Attributes
    ----------
    timestamp : int
        Ms; -1 if there is none.
    headers : tuple of (str, bytes or None)
    leaderEpoch : int
        Of its batch; -1 below magic 2.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestampType: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leaderEpoch: int


class Expired(NamedTuple):
    """A segment that retention deleted, and why.

    Attributes
    ----------
    base_offset : int
        Of its first record.
    size_bytes : int
    largest_timestamp_ms : int
        The timestamp that decided its age.
    rule : str
        The rule that deleted it: "retention.ms", "retention.bytes" or "log start offset".
    """

    topic: str
    partition: int
    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    rule: str


def data_of(name: str, data: Data) -> bytes | None:
    """A key or value as bytes; text is encoded as UTF-8."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"{name}: expected bytes, str or None, found {data!r}")


def record_set(key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int, magic: int = 2) -> bytes:
    """A record set with one record, as a producer sends it."""
    columns: dict[str, list[object]] = {"timestamp": [timestamp_ms], "key": [key], "value": [value]}
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    named = [(name, data_of(f"header {name!r}", data)) for name, data in pairs]
    if named:
        columns["headers"] = [named]
    return encode(columns, magic=magic)


def consumer_records(topic: str, partition: int, records: bytes, offset: int) -> Iterator[ConsumerRecord]:
    """The records of a set from an offset on, without control records."""
    batch = decode(records, columns=_COLUMNS)
    columns = [batch.column(name) for name in _COLUMNS]
    columns[1] = columns[1].cast("int64")
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    for at, timestamp, kind, key, value, headers, epoch, control in rows:
        if at >= offset and not control:
            pairs = tuple((header["key"], header["value"]) for header in headers or ())
            yield ConsumerRecord(topic, partition, at, timestamp, TimestampType(kind), key, value, pairs, epoch)
