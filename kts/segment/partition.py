"""The interface of a partition that searches, transactions and plans use; ``kts.PartitionLog`` implements it."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

from kts.segment.index_checksums import Sealed
from kts.segment.segment import Segment
from kts.store.source import Source


@runtime_checkable
class ListsSegments(Protocol):
    """A source that knows the segments of its log: not all of them lie in one directory."""

    def listed(self) -> list[Segment]:
        """The segments, as they were last asked for."""


class ReadablePartition(Protocol):
    """A partition to read; ``kts.PartitionLog`` documents each name."""

    @property
    def path(self) -> str:
        """The directory, or one of the segment files."""

    @property
    def source(self) -> Source:
        """Where its files lie."""

    @property
    def topic(self) -> str:
        """The topic's name."""

    @property
    def partition(self) -> int:
        """The partition's number."""

    @property
    def lone(self) -> bool:
        """True if it consists of segment files given by name."""

    @property
    def segments(self) -> list[Segment]:
        """The live segments in order of base offset."""

    @property
    def following_offset(self) -> int | None:
        """The offset behind the last segment, if that is closed: in a part of a partition, or in tiered storage."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers see."""

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch."""

    @property
    def high_watermark(self) -> int | None:
        """The high watermark in the broker's last checkpoint."""

    @property
    def first_dirty_offset(self) -> int | None:
        """The first offset that the cleaner has not cleaned, by its checkpoint."""

    def sealed_indexes(self) -> dict[int, Sealed]:
        """The index checksums that ``kts.Log`` recorded, by base offset."""

    def listed(self, *, skip_damage: bool = False) -> Self:
        """The same partition with its current segments."""

    def next_base(self, base_offset: int) -> int | None:
        """The base offset of the next segment on this machine by now; None if there is none."""

    def afresh(self) -> Self:
        """The same partition without a fixed list of its segments."""
