"""The entries of one segment's file, in the form that all revisions of KIP-33 share.

Layout, 12 bytes an entry, big-endian::

    timestamp int64 | relative offset int32
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from kts.errors import CorruptIndexError
from kts.proposals.answers import ENTRY_BYTES

LAYOUT = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
GREATEST_RELATIVE_OFFSET = 2**31 - 1


class Entries:
    """(timestamp, offset) pairs of one segment, in the order in which they were added."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("q")  # absolute

    def __len__(self) -> int:
        return len(self.timestamps)

    def pairs(self) -> list[tuple[int, int]]:
        """All entries, offsets absolute."""
        return list(zip(self.timestamps, self.offsets, strict=True))

    def extend(self, timestamps: Iterable[int], offsets: Iterable[int]) -> None:
        """Add entries at the end.

        Raises
        ------
        CorruptIndexError
            An offset that is not in this segment, or before the last entry's.
        """
        times, places = array("q", timestamps), array("q", offsets)
        last = self.offsets[-1] if self.offsets else self.base_offset
        for before, after in pairwise([last, *places]):
            if not before <= after <= self.base_offset + GREATEST_RELATIVE_OFFSET:
                raise CorruptIndexError(
                    f"entry for offset {after}: expected {before} to {self.base_offset + GREATEST_RELATIVE_OFFSET}"
                )
        self.timestamps += times
        self.offsets += places

    def truncate(self, offset: int) -> bool:
        """Drop the entries at or behind an offset, as Kafka's indexes do. True if any went."""
        kept = int(np.searchsorted(np.array(self.offsets, np.int64), offset))
        changed = kept < len(self)
        del self.timestamps[kept:], self.offsets[kept:]
        return changed

    def to_bytes(self, first: int = 0) -> bytes:
        """The entries from the first-th on, as they lie in a file."""
        table = np.empty(len(self) - first, LAYOUT)
        table["timestamp"] = self.timestamps[first:]
        table["offset"] = np.array(self.offsets[first:], np.int64) - self.base_offset
        return table.tobytes()

    @classmethod
    def of_bytes(cls, data: bytes, base_offset: int) -> Entries:
        """The entries of a file.

        Raises
        ------
        CorruptIndexError
            Not whole entries; a relative offset below 0 or below the one before it.
        """
        if len(data) % ENTRY_BYTES:
            raise CorruptIndexError(f"expected entries of {ENTRY_BYTES} bytes, found {len(data)} bytes")
        table = np.frombuffer(data, LAYOUT)
        entries = cls(base_offset)
        entries.extend(table["timestamp"].tolist(), (table["offset"].astype(np.int64) + base_offset).tolist())
        return entries
