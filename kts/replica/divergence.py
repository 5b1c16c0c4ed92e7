"""The offset where a copy and its leader diverge: by leader epochs (KIP-101, KIP-279), or by comparing records.

Source: AbstractFetcherThread.getOffsetTruncationState (3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kts.codec.columns import decode
from kts.errors import InvalidRequestError
from kts.log.epochs import UNDEFINED, end_offset_for

_RECORD = ["offset", "timestamp", "timestampType", "key", "value", "headers"]

Record = tuple[Any, ...]
Reader = Callable[[int], bytes | memoryview]  # entries from the one that holds an offset on


class Truncation(NamedTuple):
    """Where to truncate, and whether that completes it. Otherwise the leader is asked for an earlier epoch."""

    offset: int
    completed: bool


def truncation(
    entries: Sequence[tuple[int, int]], asked: int, leader_epoch: int, leader_end_offset: int, end_offset: int
) -> Truncation | None:
    """Where to truncate a copy, from the leader's answer about an epoch; None if the leader does not know the epoch.

    Parameters
    ----------
    entries : sequence of (epoch, start offset)
        The epochs of the copy.
    asked, leader_epoch, leader_end_offset : int
        The question and the answer.
    end_offset : int
        The log end offset of the copy.

    Raises
    ------
    InvalidRequestError
        The answer is impossible.
    """
    if leader_end_offset == UNDEFINED:
        return None
    if leader_end_offset < 0 or leader_epoch > asked:
        raise InvalidRequestError(
            f"OffsetForLeaderEpoch: expected an epoch up to {asked} and where it ends, "
            f"found epoch {leader_epoch} that ends at {leader_end_offset}"
        )
    if leader_epoch == UNDEFINED:  # Kafka before 2.0 does not say which
        return Truncation(min(leader_end_offset, end_offset), True)
    epoch, end = end_offset_for(entries, leader_epoch, end_offset)
    if epoch != leader_epoch:
        return Truncation(min(end, end_offset), False)
    return Truncation(min(end, leader_end_offset, end_offset), True)


def first_difference(ours: Reader, theirs: Reader, start_offset: int, end_offset: int) -> int | None:
    """The offset where two logs diverge, after their last equal record; None if no common record differs.

    Parameters
    ----------
    ours, theirs : callable
        Return whole entries, from the one that contains an offset on.
    start_offset, end_offset : int
        The range that both logs have.

    Notes
    -----
    Logs that diverged stay different, so a binary search finds the place with O(log n) reads. Offsets without a record
    on one side, as after compaction, are skipped.
    """

    def same(offset: int) -> bool | None:
        """Whether the first common record at or after an offset is equal; None if there is none."""
        while offset < end_offset:
            mine = record_from(ours(offset), offset)
            other = record_from(theirs(mine[0]), mine[0]) if mine is not None else None
            if mine is None or other is None or other[0] >= end_offset:
                return None
            if other[0] == mine[0]:
                return mine == other
            offset = other[0]
        return None

    if end_offset <= start_offset or same(end_offset - 1):
        return None
    low, high = start_offset, end_offset - 1
    while low < high:
        middle = (low + high) // 2
        if same(middle):
            low = middle + 1
        else:
            high = middle
    return high if same(high) is False else None


def record_from(entries: bytes | memoryview, offset: int) -> Record | None:
    """The first record at or after an offset, with all its fields; None if there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pa.table(decode(entries, _RECORD))
    found = found.filter(pc.greater_equal(found["offset"], offset)).slice(0, 1)
    if not found.num_rows:
        return None
    columns = found.set_column(1, "timestamp", found["timestamp"].cast(pa.int64()))
    return tuple(column[0].as_py() for column in columns.columns)
