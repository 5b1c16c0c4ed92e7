"""Reading a log bit by bit: how far its offsets reach, which of them are new, and which are gone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kts.dataset.partition import PartitionLog
from kts.errors import CorruptRecordError, LogStorageError, OffsetOutOfRangeError
from kts.model import TopicPartition
from kts.segment import transactions
from kts.segment.names import LOG_START_OFFSETS
from kts.segment.rereading import settled, warn
from kts.store import addresses

Json = dict[str, dict[str, int]]  # as in Spark's checkpoints: {"orders": {"0": 23}}
Offsets = dict[TopicPartition, int]
TopicIds = dict[str, str]  # by topic


@dataclass(frozen=True)
class Reach:
    """How far a partition's offsets reach: from ``first`` to ``end``, and up to ``stable`` they stay what they are."""

    first: int
    stable: int
    end: int


def reach_of(
    log: PartitionLog, isolation: str, *, above_high_watermark: bool = False, skip_damage: bool = False
) -> Reach:
    """The reach of a partition: stable up to the high watermark, where a checkpoint tells it, else to the log's end.

    With ``read_committed`` only up to the last stable offset.

    Parameters
    ----------
    above_high_watermark : bool
        Take the high watermark for the log's end.
    skip_damage : bool
        Look for the end behind damage.

    Raises
    ------
    LogStorageError
        A checkpoint does not say what is stable, or where the log starts, and may have said it before it was damaged.

    Warns
    -----
    KtsWarning
        The high watermark lies beyond the end of the files: records are missing there.
    """

    def reach() -> Reach:
        listed = log.listed(skip_damage=skip_damage)
        if (unknown := listed.unknown_start) is not None:
            raise LogStorageError(
                f"{unknown}; records that DeleteRecords removed might be read: restore the file, or delete it if none"
                " were removed",
                path=os.path.join(os.path.dirname(addresses.absolute(log.path)), LOG_START_OFFSETS),
            )
        first, high_watermark = listed.log_start_offset, None if above_high_watermark else listed.high_watermark
        found = transactions.log_end_offset(listed, skip_damage=skip_damage)
        if found < first and (behind := listed.end_before(first)) is not None:
            raise CorruptRecordError(
                f"expected {name_of(log)} to end at offset {first}, where its log start offset is, or later, found"
                f" {behind}: records are missing, or the checkpoint is wrong",
                path=log.path,
                offset=behind,
            )
        end = max(found, first)
        if (high_watermark or 0) > end and (behind := listed.end_before(high_watermark or 0)) is not None:
            warn(
                f"{log.path}: the high watermark is {high_watermark}, and the files end at offset {behind}: the records"
                " between are missing",
                log.path,
            )
        stable = end if high_watermark is None else min(end, high_watermark)
        if isolation == "read_committed":
            stable = min(stable, transactions.last_stable_offset(listed, skip_damage=skip_damage))
        return Reach(first, max(stable, first), end)

    return settled(reach)


@dataclass(frozen=True)
class Losses:
    """Tells which records are gone before they were read: as an error, or where that is allowed as a warning.

    Attributes
    ----------
    fails : bool
        Whether it is an error, as ``failOnDataLoss`` of Spark's Kafka source says.
    advice : str
        How to go on with what is there.
    """

    fails: bool
    advice: str

    def check_gone(self, known: Mapping[TopicPartition, int], there: Iterable[TopicPartition]) -> None:
        """Partitions that were read, and are no longer there."""
        for name in sorted(known.keys() - {*there}):
            self.tell(f"{name}, which was read up to offset {known[name]}, is gone")

    def check_end(self, name: TopicPartition, begun: int, end: int) -> None:
        """A partition that ends before what was read of it: it was truncated, or created again."""
        if begun > end:
            self.tell(f"{name} was read up to offset {begun}, and ends now at offset {end}")

    def check_start(self, name: TopicPartition, start: int, end: int, first: int) -> None:
        """Offsets from ``start`` on, of which the log has only those from ``first`` on."""
        if start < first:
            self.tell(
                f"offsets {start} to {min(first, end)} (not included) of {name} were deleted before they were read"
            )

    def tell(self, what: str) -> None:
        """Raise OffsetOutOfRangeError, or warn."""
        if self.fails:
            raise OffsetOutOfRangeError(f"{what}: some records may have been missed; {self.advice}")
        warn(f"{what}: some records may have been missed", None)


def name_of(log: PartitionLog) -> TopicPartition:
    """The topic and partition of a log."""
    return TopicPartition(log.topic, log.partition)


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """Offsets as Spark's checkpoints have them; sorted, because Spark compares the text."""
    found: Json = {}
    for name, offset in sorted(offsets.items()):
        found.setdefault(name.topic, {})[str(name.partition)] = offset
    return found


def from_json(offsets: Json) -> Offsets:
    """The inverse of ``to_json``."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }
