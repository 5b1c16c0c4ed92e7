"""What every way to find a record by its time can be asked, so that one table can compare them.

Each has a name and its source, says what it costs (``cost``), where reading must begin (``start``), and finds
the first record at or after a time (``search``) with an account of what it read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from kts.model import TimestampOffset

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog

ENTRY_BYTES = 12  # timestamp int64, relative offset int32: the same in all of KIP-33's revisions


class Cost(NamedTuple):
    """What a lookup structure needs now.

    Attributes
    ----------
    entries : int
        Entries of all segments.
    file_bytes : int
        Bytes of its files.
    memory_bytes : int
        Bytes of entries that are kept in memory or mapped, 12 each, as KIP-33's table of memory counts them.
    """

    entries: int
    file_bytes: int
    memory_bytes: int


class Start(NamedTuple):
    """Where reading begins: at the shallow entry that holds an offset; what is before it is older than the target."""

    base_offset: int  # of the segment
    offset: int


class Answer(NamedTuple):
    """The first record at or after a target, and what was read for it.

    Attributes
    ----------
    found : TimestampOffset or None
        None when there is no such record (or the search gave up before it).
    start : Start or None
        Where the lookup sent the reader; None when the lookup alone knew that there is nothing.
    segments_skipped, segments_read : int
        Segments before the answer that were left out, and that were read.
    bytes_read : int
        Bytes of ``.log`` files from where reading began to the end of the batch with the answer.
    batches_read, records_read : int
        Headers looked at, and records decoded because their header promised a hit.
    """

    found: TimestampOffset | None
    start: Start | None = None
    segments_skipped: int = 0
    segments_read: int = 0
    bytes_read: int = 0
    batches_read: int = 0
    records_read: int = 0


class Lookup(Protocol):
    """One row of the table."""

    name: str

    def cost(self, log: PartitionLog) -> Cost:
        """What it needs, of memory and on disk."""

    def search(self, log: PartitionLog, target_ms: int) -> Answer:
        """The first record at or after the target."""
