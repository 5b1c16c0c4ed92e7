"""The small values that every layer speaks: partitions, offsets with times, Kafka's special numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NO_TIMESTAMP = -1  # a record without a timestamp (Record.NO_TIMESTAMP)
EARLIEST = -2  # ListOffsets: log start offset
LATEST = -1  # ListOffsets: log end offset, or high watermark for consumers
MAX_TIMESTAMP = -3  # ListOffsets: offset of the greatest timestamp (KIP-734)


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
    """A timestamp in ms since the epoch and the offset that belongs to it."""

    timestamp_ms: int
    offset: int


class MaxTimestamp(NamedTuple):
    """The greatest timestamp of a buffer, the record that reached it first, and its shallow entry's offset."""

    timestamp_ms: int
    offset: int
    shallow_offset: int
