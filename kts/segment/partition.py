"""What searches, transactions and plans ask of a partition; ``kts.PartitionLog`` is one."""

from __future__ import annotations

from typing import Protocol, Self

from kts.segment.index_checksums import Sealed
from kts.segment.segment import Segment


class Partition(Protocol):
    """A partition that is read; see ``kts.PartitionLog`` for what each name means."""

    @property
    def path(self) -> str:
        """The directory, or one of the segment files."""

    @property
    def topic(self) -> str:
        """The topic's name."""

    @property
    def partition(self) -> int:
        """The partition's number."""

    @property
    def lone(self) -> bool:
        """True if it is made of segment files given by name."""

    @property
    def segments(self) -> list[Segment]:
        """The live segments by base offset."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that counts."""

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch."""

    @property
    def high_watermark(self) -> int | None:
        """The broker's last checkpoint of it."""

    def sealed_indexes(self) -> dict[int, Sealed]:
        """What ``kts.Log`` noted about indexes, by base offset."""

    def listed(self) -> Self:
        """The same partition with the segments of this moment."""
