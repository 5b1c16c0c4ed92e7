"""Recovery of one segment: both indexes are rebuilt from its log, and the log is cut where it is not sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.segment.rebuilding import Rebuilt, Rules, Visit, rebuild
from kts.segment.shallow import Slices

if TYPE_CHECKING:
    from kts.segment.log_segment import LogSegment

__all__ = ["Rebuilt", "Recovered", "Rules", "rebuild", "recover", "tail_fault"]


class Recovered(NamedTuple):
    """What the recovery of a segment did: which file was cut where, by how much, and why."""

    path: str
    position: int
    bytes_cut: int
    reason: str | None
    batches: int
    aside: str | None = None  # the file that keeps what was cut, where that had reached the disk before

    def __str__(self) -> str:
        cut = f", {self.bytes_cut:,} bytes at position {self.position}" if self.bytes_cut else ""
        kept = f", kept as {self.aside}" if self.aside is not None else ""
        return f"{self.path}: {self.reason}{cut}{kept}"


def recover(
    segment: LogSegment, visit: Visit | None = None, before_cut: Callable[[int], None] | None = None
) -> Recovered:
    """Rebuild both indexes of a segment and cut off what is not sound.

    Parameters
    ----------
    segment : LogSegment
        Changed in place, its files as well.
    visit : callable, optional
        Called with the sound entries of each slice in order: producer state and leader epochs are kept there.
    before_cut : callable, optional
        Called with the position before the first byte is cut off: what has to go with it, or to be kept, goes first.

    Raises
    ------
    KtsError
        Only as shipped: what Kafka raises, the indexes left as it leaves them.
    """
    rebuilt = rebuild(segment.log_file(), segment.size, segment.base_offset, segment.rules(), segment.path, visit)
    cut = rebuilt.size - rebuilt.valid_bytes
    if cut and before_cut is not None and rebuilt.error is None:
        before_cut(rebuilt.valid_bytes)
    segment.adopt(rebuilt)
    if rebuilt.error is not None:
        raise rebuilt.error
    return Recovered(segment.path, rebuilt.valid_bytes, cut, rebuilt.reason, rebuilt.batches)


def tail_fault(segment: LogSegment) -> str | None:
    """What is wrong from the last entry of the offset index on, None if all is sound up to the end of the log."""
    index, times = segment.offset_index, segment.time_index
    position = segment.start_of(2**63 - 1)
    slices, last = Slices(segment.log_file(), position, segment.size), segment.base_offset - 1
    for batches in slices:
        if not batches.all_sound():
            return "the CRC of a batch in the tail is wrong"
        offsets = batches.column("lastOffset")  # which no CRC covers
        if offsets[0] <= last or (np.diff(offsets) <= 0).any():
            return "an offset in the tail is not above the one before it"
        last = int(offsets[-1])
        if not segment.fits(last):
            return f"offset {last} does not fit into the segment"
    if slices.reason is not None:
        return slices.reason
    if index.entries and (index.last_offset > last or not index.trusts(index.entries - 1)):
        return "the offset index ends with an entry that is not the log's"
    if times.entries and times.last_entry[1] > last:
        return f"the time index ends with offset {times.last_entry[1]}, the log with {last}"
    return None
