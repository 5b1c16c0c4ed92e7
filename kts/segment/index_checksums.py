"""The index checksums of a log directory: the state of each segment's indexes when ``kts.Log`` closed them.

The log confirms every index entry that an answer uses. That does not detect missing entries, as when an index was cut
between two of them. So its length, its checksum and its last entry are compared with the recorded ones, in lines of::

    topic partition base-offset log-bytes index-bytes index-crc32c timeindex-bytes timeindex-crc32c time offset

Time and offset are those of the last time-index entry. A line is valid while the log has the recorded length;
otherwise the segment was appended to or truncated. A line only adds distrust.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from kts._codec import crc32c
from kts.segment.segment_lines import SegmentLines


class Sealed(NamedTuple):
    """The state of a segment's indexes when it was closed.

    Attributes
    ----------
    log_bytes : int
        Length of the ``.log``; if it differs now, the other fields do not apply.
    last_timestamp_ms, last_offset : int
        The last entry of the time index; (-1, base offset) if it had none.
    """

    log_bytes: int
    index_bytes: int
    index_crc: int
    time_index_bytes: int
    time_index_crc: int
    last_timestamp_ms: int
    last_offset: int

    @classmethod
    def of(cls, log_bytes: int, index: bytes, time_index: bytes, last_entry: tuple[int, int]) -> Sealed:
        """Build it from the bytes of both files, without preallocated zeros."""
        return cls(log_bytes, len(index), crc32c(index), len(time_index), crc32c(time_index), *last_entry)

    def index_differs(self, index: bytes) -> bool:
        """True if an ``.index`` is not the one that was closed; trailing zeros are preallocated room."""
        return _differ(index, self.index_bytes, self.index_crc)

    def time_index_differs(self, time_index: bytes) -> bool:
        """True if a ``.timeindex`` is not the one that was closed."""
        return _differ(time_index, self.time_index_bytes, self.time_index_crc)

    def end_differs(self, time_index_bytes: int, last_entry: tuple[int, int]) -> bool:
        """True if a time index has another length, without preallocated zeros, or another last entry."""
        return (time_index_bytes, *last_entry) != (self.time_index_bytes, self.last_timestamp_ms, self.last_offset)


class IndexChecksums(SegmentLines):
    """The index checksum file of a log directory."""

    file = "kts-index-checksum-checkpoint"
    line = re.compile(r"(?am)^(\S+) (\d{1,10}) ((?:\d{1,19} ){6}-?\d{1,19} \d{1,19}\n)")
    line_bytes = 512
    expected = "a partition and eight numbers"

    def of(self, topic: str, partition: int) -> dict[int, Sealed]:
        """The segments of a partition by base offset."""
        numbers = [[int(one) for one in line.split(" ")] for line in self._lines(topic, partition)]
        return {line[0]: Sealed(*line[1:]) for line in numbers}

    def replace(self, topic: str, partition: int, segments: Mapping[int, Sealed]) -> None:
        """Replace the lines of a partition."""
        self._replace(topic, partition, {base: " ".join(map(str, sealed)) for base, sealed in segments.items()})


def _differ(data: bytes, count: int, crc: int) -> bool:
    used = memoryview(data)[:count]
    return len(used) < count or crc32c(used) != crc or any(data[count:])
