"""Recovery of one segment: both indexes made anew from its log, and the log cut where it is not sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kts.storage.rebuilding import Rebuilt, Rules, Visit, rebuild
from kts.storage.shallow import Slices

if TYPE_CHECKING:
    from kts.storage.log_segment import LogSegment

__all__ = ["Rebuilt", "Recovered", "Rules", "rebuild", "recover", "tail_fault"]


class Recovered(NamedTuple):
    """What the recovery of a segment did: which file was cut where, by how much, and why."""

    path: str
    position: int
    bytes_cut: int
    reason: str | None
    batches: int


def recover(segment: LogSegment, visit: Visit | None = None, before_cut: Callable[[], None] | None = None) -> Recovered:
    """Rebuild both indexes of a segment and cut off what is not sound.

    Parameters
    ----------
    segment : LogSegment
        Changed in place, its files as well.
    visit : callable, optional
        Called with the sound entries of each slice in order: producer state and leader epochs are kept there.
    before_cut : callable, optional
        Called before the first byte is cut off: what has to go with it goes first.

    Raises
    ------
    KtsError
        Only as shipped: what Kafka raises, the indexes left as it leaves them.
    """
    rebuilt = rebuild(segment.log_file(), segment.size, segment.base_offset, segment.rules(), segment.path, visit)
    cut = rebuilt.size - rebuilt.valid_bytes
    if cut and before_cut is not None and rebuilt.error is None:
        before_cut()
    segment.adopt(rebuilt)
    if rebuilt.error is not None:
        raise rebuilt.error
    return Recovered(segment.path, rebuilt.valid_bytes, cut, rebuilt.reason, rebuilt.batches)


def tail_fault(segment: LogSegment) -> str | None:
    """What is wrong from the last entry of the offset index on, None if all is sound up to the end of the log."""
    index, times = segment.offset_index, segment.time_index
    offset, position = index.lookup(2**63 - 1)
    slices = Slices(segment.log_file(), position, segment.size)
    reached, last = index.entries == 0, segment.base_offset - 1
    for batches in slices:
        if not batches.all_sound():
            return "the CRC of a batch in the tail is wrong"
        lasts = batches.column("lastOffset")
        if not reached and not (position > 0 and batches.column("baseOffset")[0] <= offset <= lasts[0]):
            break
        reached, last = True, int(lasts[-1])
    if not reached:
        return slices.reason or "the offset index ends with an entry that is not the log's"
    if slices.reason is None and times.entries and times.last_entry[1] > last:
        return f"the time index ends with offset {times.last_entry[1]}, the log with {last}"
    return slices.reason
