"""Which aborted transactions a read_committed consumer has to know of, by the ``.txnindex`` files of a log."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from kts.errors import CorruptIndexError, LogStorageError
from kts.segment import files
from kts.segment.transactions import AbortedTransaction, read_txn_index

if TYPE_CHECKING:
    from kts import Log
    from kts.segment.log_segment import LogSegment

# Only the active segment's file changes.
_known: WeakKeyDictionary[LogSegment, tuple[int, list[AbortedTransaction]]] = WeakKeyDictionary()


def aborted_transactions(log: Log, fetch_offset: int, base_offset: int) -> list[dict[str, int]]:
    """Aborted transactions with records from an offset on to the end of a segment, in the order of first offsets.

    Parameters
    ----------
    fetch_offset : int
        What was asked for.
    base_offset : int
        Of the segment that the answer comes from: only what lies in it can be in the answer.

    Notes
    -----
    A file that is missing or damaged says nothing; ``kts verify`` finds it. Source: LocalLog.collectAbortedTransactions
    (3.9), which bounds the list by the answer's end.
    """
    segments = log.segments
    number = max(bisect_right([segment.base_offset for segment in segments], base_offset) - 1, 0)
    end = segments[number + 1].base_offset if number + 1 < len(segments) else log.log_end_offset
    found = {one for at in range(number, len(segments)) for one in _listed(segments[at], at + 1 < len(segments))}
    hit = [one for one in found if one.last_offset >= fetch_offset and one.first_offset < end]
    return [
        {"producer_id": one.producer_id, "first_offset": one.first_offset}
        for one in sorted(hit, key=lambda one: (one.first_offset, one.last_offset, one.producer_id))
    ]


def _listed(segment: LogSegment, closed: bool) -> list[AbortedTransaction]:
    """The entries of a segment's file, kept once it is closed."""
    size = segment.size
    known = _known.get(segment) if closed else None
    if known is not None and known[0] == size:
        return known[1]
    try:
        listed = read_txn_index(segment.txn_index_path) if files.exists(segment.txn_index_path) else []
    except (CorruptIndexError, LogStorageError):
        listed = []
    if closed:
        _known[segment] = (size, listed)
    return listed
