"""What truncating a log would take away, found out without changing anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kts.codec.columns import decode
from kts.segment import files
from kts.segment.rereading import settled
from kts.segment.segment import Segment, int64

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog


@dataclass(frozen=True)
class SegmentCut:
    """What one segment would lose.

    Attributes
    ----------
    path : str
        Its ``.log``.
    base_offset : int
        Its base offset.
    whole : bool
        True if the segment goes with its files.
    position : int
        Where its ``.log`` would end; 0 if it goes.
    size_bytes, batches, records : int
        What would go.
    """

    path: str
    base_offset: int
    whole: bool
    position: int
    size_bytes: int
    batches: int
    records: int


@dataclass(frozen=True)
class TruncationPlan:
    """What would go, and what would be left.

    Attributes
    ----------
    to_offset : int
        What was asked for: records at it and behind it go.
    log_start_offset, log_end_offset : int
        As they are.
    next_offset : int
        The log's end when it is opened again: behind the last record that is left. A log that stays open goes on at
        ``to_offset``.
    cuts : tuple of SegmentCut
        The segments that lose something, oldest first.
    earlier : tuple of (first, last offset), or None
        Records before ``to_offset`` that go too, because a batch is cut as a whole.
    """

    to_offset: int
    log_start_offset: int
    log_end_offset: int
    next_offset: int
    cuts: tuple[SegmentCut, ...]
    earlier: tuple[int, int] | None

    @property
    def size_bytes(self) -> int:
        """Bytes of ``.log`` files that would go."""
        return sum(cut.size_bytes for cut in self.cuts)

    @property
    def batches(self) -> int:
        """Batches, or outermost messages, that would go."""
        return sum(cut.batches for cut in self.cuts)

    @property
    def records(self) -> int:
        """Records that would go."""
        return sum(cut.records for cut in self.cuts)


def plan_truncation(log: PartitionLog, to_offset: int) -> TruncationPlan:
    """What ``Log.truncate_to`` would do.

    Raises
    ------
    ValueError
        An offset below 0.
    CorruptRecordError
        The part that would go is damaged, so that nobody can say how many records it has.

    Notes
    -----
    Source: UnifiedLog.truncateTo, LogSegment.truncateTo.
    """
    if to_offset < 0:
        raise ValueError(f"to_offset: expected 0 or more, found {to_offset}")
    return settled(lambda: _plan(log.listed(), to_offset))


def _plan(log: PartitionLog, to_offset: int) -> TruncationPlan:
    segments, start, end = log.segments, log.log_start_offset, log.log_end_offset
    if to_offset >= end:
        return TruncationPlan(to_offset, start, end, end, (), None)
    everything = not segments or segments[0].base_offset > to_offset
    cuts, earlier, following = [], None, to_offset
    for segment in segments:
        whole = everything or segment.base_offset > to_offset
        cut, before = _cut(segment, segment.base_offset if whole else to_offset, whole)
        if whole or cut.batches:
            cuts.append(cut)
        if not whole:
            following = _end(segment, cut.position)
            earlier = before or earlier
    return TruncationPlan(to_offset, start, end, following, tuple(cuts), earlier)


def _end(segment: Segment, position: int) -> int:
    """The offset behind the last entry before a position."""
    end, tail = segment.base_offset, segment.tail_position()
    for headers in segment.batches(tail if tail < position else 0, position):
        if headers.num_rows:
            end = int(int64(headers, "lastOffset")[-1]) + 1
    return end


def _cut(segment: Segment, offset: int, whole: bool) -> tuple[SegmentCut, tuple[int, int] | None]:
    """What goes from an offset on, and the offsets before it that go with their batch."""
    position: int | None = 0 if whole else None
    batches = records = 0
    earlier = None
    for headers in segment.batches(0 if whole else segment.start_position(offset)):
        gone = np.flatnonzero(int64(headers, "lastOffset") >= offset)
        if not len(gone):
            continue
        first = int(gone[0])
        if batches == 0:
            position = 0 if whole else int(headers["position"][first].as_py())
            size = int(headers["sizeInBytes"][first].as_py())
            offsets = _offsets(segment, int(headers["position"][first].as_py()), size)
            before = offsets[offsets < offset]
            earlier = (int(before[0]), int(before[-1])) if len(before) else None
        batches += headers.num_rows - first
        for count, place, size in zip(
            headers["count"][first:].to_pylist(),
            headers["position"][first:].to_pylist(),
            headers["sizeInBytes"][first:].to_pylist(),
            strict=True,
        ):
            records += len(_offsets(segment, place, size)) if count is None else count
    end = segment.size_bytes
    kept = end if position is None else position
    return SegmentCut(segment.path, segment.base_offset, whole, kept, end - kept, batches, records), earlier


def _offsets(segment: Segment, position: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The offsets of the records of one batch."""
    with files.File(segment.path) as file:
        read = decode(file.read(position, size), ["offset", "headers"])
    offsets: np.ndarray[tuple[int], np.dtype[np.int64]] = int64(read, "offset")
    return offsets
