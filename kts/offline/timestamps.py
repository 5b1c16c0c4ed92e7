"""Counts the timestamps of a partition that Kafka cannot tell apart: -1, those before 1970, ListOffsets' numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kts.codec.encode import int64s
from kts.codec.layout import HAS_TIMESTAMP
from kts.dataset.partition import PartitionLog
from kts.model import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
)

SPECIAL = {  # ListOffsets' numbers that a record's time before 1970 may be; -1 is both LATEST and "no timestamp"
    EARLIEST: "EARLIEST",
    MAX_TIMESTAMP: "MAX_TIMESTAMP",
    EARLIEST_LOCAL: "EARLIEST_LOCAL",
    LATEST_TIERED: "LATEST_TIERED",
    EARLIEST_PENDING_UPLOAD: "EARLIEST_PENDING_UPLOAD",
}
COLUMNS = ("offset", "timestamp", "magic", "attributes")


@dataclass
class Timestamps:
    """Counts of records, control records included.

    Attributes
    ----------
    records : int
    marked : int
        In batches that are marked as having timestamps (``hasTimestamp``).
    minus_one : int
        With -1, all of them: Kafka's number for "no timestamp", and the time 1969-12-31T23:59:59.999Z.
    minus_one_marked, minus_one_of_magic_0 : int
        Those of them that are a time, because their batch is marked; and those whose format has no timestamps.
    before_1970 : int
        Below -1.
    special : dict of int to int
        Those of them that ListOffsets takes for something else, by number.
    first : dict of int to (topic, partition, offset)
        Where the first record with -1 that is not marked is, and with each special number.
    """

    records: int = 0
    marked: int = 0
    minus_one: int = 0
    minus_one_marked: int = 0
    minus_one_of_magic_0: int = 0
    before_1970: int = 0
    special: dict[int, int] = field(default_factory=lambda: dict.fromkeys(SPECIAL, 0))
    first: dict[int, tuple[str, int, int]] = field(default_factory=dict)

    @property
    def ambiguous(self) -> int:
        """Records with -1 that would be taken for 1969-12-31T23:59:59.999Z if -1 were a time."""
        return self.minus_one - self.minus_one_marked

    def add(self, other: Timestamps) -> None:
        """Add the counts of another partition."""
        for name, count in vars(other).items():
            if isinstance(count, int):
                setattr(self, name, getattr(self, name) + count)
        for number, count in other.special.items():
            self.special[number] += count
        self.first = other.first | self.first


def count_timestamps(log: PartitionLog, progress: Callable[[int], None] | None = None) -> Timestamps:
    """Read all timestamps of a partition, or of a part of one, and count them.

    Parameters
    ----------
    progress : callable, optional
        Called with the number of ``.log`` bytes that were just read, segment by segment.

    Raises
    ------
    CorruptRecordError
        The log is damaged.

    Notes
    -----
    Source: KIP-228, "NO_TIMESTAMP (-1) problem".
    """
    made = Timestamps()
    for batch in log.scan(columns=COLUMNS, include_control=True):
        offsets, times, magic, attributes = (int64s(batch.column(at), one) for at, one in enumerate(COLUMNS))
        marked = (magic == 2) & (attributes & HAS_TIMESTAMP != 0)
        none = times == NO_TIMESTAMP
        made.records += len(times)
        made.marked += int(marked.sum())
        made.minus_one += int(none.sum())
        made.minus_one_marked += int((none & marked).sum())
        made.minus_one_of_magic_0 += int((none & (magic == 0)).sum())
        made.before_1970 += int((times < NO_TIMESTAMP).sum())
        found = {NO_TIMESTAMP: none & ~marked} | {number: times == number for number in SPECIAL}
        for number, those in found.items():
            count = int(those.sum())
            if number in SPECIAL:
                made.special[number] += count
            if count and number not in made.first:
                made.first[number] = log.topic, log.partition, int(offsets[those.argmax()])
    if progress is not None:
        progress(sum(segment.size_bytes for segment in log.segments))
    return made
