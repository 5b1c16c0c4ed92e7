"""Values that all rooms share: partitions, timestamps with offsets, Kafka's special numbers, ids."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

NO_TIMESTAMP = -1  # a record without a timestamp (Record.NO_TIMESTAMP)
EARLIEST = -2  # ListOffsets: log start offset
LATEST = -1  # ListOffsets: log end offset, or high watermark for consumers
MAX_TIMESTAMP = -3  # ListOffsets: offset of the greatest timestamp (KIP-734)
EARLIEST_LOCAL = -4  # ListOffsets: first offset on the broker's own disk (KIP-405)
LATEST_TIERED = -5  # ListOffsets: last offset in tiered storage (KIP-1005)
EARLIEST_PENDING_UPLOAD = -6  # ListOffsets: first offset that is not in tiered storage yet (KIP-1023)
ZERO_UUID = bytes(16)  # no topic id (Uuid.ZERO_UUID)


class TimestampType(IntEnum):
    """Who set a timestamp (org.apache.kafka.common.record.TimestampType)."""

    NoTimestampType = -1
    CreateTime = 0
    LogAppendTime = 1


class TopicPartition(NamedTuple):
    """A topic and one of its partitions."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampOffset(NamedTuple):
    """A timestamp in ms since the epoch, and its offset."""

    timestamp_ms: int
    offset: int


class MaxTimestamp(NamedTuple):
    """The greatest timestamp, the offset of the first record that has it, and the shallow offset of its entry."""

    timestamp_ms: int
    offset: int
    shallow_offset: int


class Appended(NamedTuple):
    """Rows that were appended.

    Attributes
    ----------
    first_offset, last_offset : int
        Of the first and the last row.
    entries : int
        Batches, or outermost messages, that were written.
    max_timestamp_ms : int
        The greatest timestamp, -1 if there is none; under LogAppendTime the time of the append.
    """

    first_offset: int
    last_offset: int
    entries: int
    max_timestamp_ms: int


@dataclass(frozen=True)
class Cleaned:
    """What a pass of the cleaner did, or why there was none.

    Attributes
    ----------
    reason : str or None
        Why nothing, or not everything, was cleaned; None after a whole pass.
    first_dirty_offset : int
        Where the part began that was not cleaned before.
    next_dirty_offset : int
        Where it begins now.
    keys : int
        Keys of the offset map.
    segments_before, segments_after, bytes_before, bytes_after : int
        Of the segments that were cleaned.
    records_before, records_after : int
        Records in them, markers of transactions included.
    removed : dict
        Records that went: ``superseded`` by a later one of their key, ``tombstones`` after their delete horizon,
        ``aborted`` with their transaction, ``markers`` of transactions, and those ``without_key``.
    kept : dict
        What stays though it could go one day: ``tombstones`` and ``markers`` until their delete horizon, records
        ``unmapped`` because the offset map was full, and batches ``emptied`` that hold a producer's last sequence, or
        the end of what was cleaned.
    map_bytes : int
        Memory that the offset map took at last.
    """

    reason: str | None
    first_dirty_offset: int
    next_dirty_offset: int
    keys: int = 0
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    map_bytes: int = 0


def uuid_text(uuid: bytes) -> str:
    """A uuid as Kafka prints it: 22 characters of URL-safe base64.

    Source: Uuid.toString.
    """
    return urlsafe_b64encode(uuid).decode().rstrip("=")


def uuid_bytes(text: str) -> bytes:
    """A printed uuid as 16 bytes."""
    return urlsafe_b64decode(text + "==")


def topic_id_text(topic_id: bytes) -> str | None:
    """A topic id as Kafka prints it; None if there is none."""
    return None if topic_id == ZERO_UUID else uuid_text(topic_id)
