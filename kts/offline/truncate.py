"""Truncates a partition on disk: plans the cut, then cuts so that a crash at any moment leaves a valid log.

Nothing else may write to the log directory meanwhile. First the marker of a clean shutdown is removed and the recovery
point is lowered, so that the next start recovers the log. Then the segments after the offset are removed, newest first.
Last, a rename replaces the segment that contains the offset with a shorter copy. At every step the log is a prefix of
the old one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kts.codec.columns import decode
from kts.config import LogConfig
from kts.dataset.partition import PartitionLog
from kts.log.directory import PartitionEntry
from kts.log.log import Log
from kts.segment.names import (
    CLEANER_OFFSETS,
    FILE_SUFFIXES,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    parse_directory_name,
)
from kts.segment.rereading import settled
from kts.segment.segment import Segment, int64
from kts.store import addresses, local, publishing
from kts.store.local import File, WritableFile
from kts.store.source import files

if TYPE_CHECKING:
    import numpy.typing as npt

UNFINISHED = ".cleaned"  # brokers delete files of this name when they start


# --- planning -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SegmentCut:
    """The part of one segment that would be removed.

    Attributes
    ----------
    path : str
        Its ``.log``.
    base_offset : int
        Its base offset.
    whole : bool
        True if the segment and all its files would be removed.
    position : int
        Where its ``.log`` would end; 0 if it is removed.
    size_bytes, batches, records : int
        How much would be removed.
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
    """The records that a truncation would remove, and the log end offset after it.

    Attributes
    ----------
    to_offset : int
        As requested: records from this offset on would be removed.
    log_start_offset, log_end_offset : int
        Before the truncation.
    next_offset : int
        The log end offset when the log is opened again: the offset after the last record that is left. An open log
        (``Log.truncate_to``) continues at ``to_offset`` instead.
    cuts : tuple of SegmentCut
        The segments that would lose records, oldest first.
    earlier : tuple of (first, last offset), or None
        Records before ``to_offset`` that would be removed too, because batches are removed whole.
    """

    to_offset: int
    log_start_offset: int
    log_end_offset: int
    next_offset: int
    cuts: tuple[SegmentCut, ...]
    earlier: tuple[int, int] | None

    @property
    def size_bytes(self) -> int:
        """Bytes of ``.log`` files that would be removed."""
        return sum(cut.size_bytes for cut in self.cuts)

    @property
    def batches(self) -> int:
        """Batches, or outer messages of magic 0 and 1, that would be removed."""
        return sum(cut.batches for cut in self.cuts)

    @property
    def records(self) -> int:
        """Records that would be removed."""
        return sum(cut.records for cut in self.cuts)


def plan_truncation(log: PartitionLog, to_offset: int) -> TruncationPlan:
    """Find what ``Log.truncate_to`` would remove; nothing is changed.

    Raises
    ------
    ValueError
        An offset below 0.
    CorruptRecordError
        The part that would be removed is damaged: its records cannot be counted.

    Notes
    -----
    Source: UnifiedLog.truncateTo, LogSegment.truncateTo.
    """
    if to_offset < 0:
        raise ValueError(f"to_offset: expected 0 or more, found {to_offset}")
    return settled(lambda: _plan(log.listed(whole=True), to_offset))


def _plan(log: PartitionLog, to_offset: int) -> TruncationPlan:
    segments, start, end = log.segments, log.log_start_offset, log.log_end_offset
    if to_offset >= end:
        return TruncationPlan(to_offset, start, end, end, (), None)
    everything = not segments or segments[0].base_offset > to_offset
    cuts, earlier, following = [], None, to_offset
    for segment in segments:
        whole = everything or segment.base_offset > to_offset
        cut, before = _cut_of(segment, segment.base_offset if whole else to_offset, whole)
        if whole or cut.batches:
            cuts.append(cut)
        if not whole:
            following = _end(segment, cut.position)
            earlier = before or earlier
    return TruncationPlan(to_offset, start, end, following, tuple(cuts), earlier)


def _end(segment: Segment, position: int) -> int:
    """The offset after the last entry before a position."""
    end, tail = segment.base_offset, segment.tail_position()
    for headers in segment.batches(tail if tail < position else 0, position):
        end = headers.last_offset + 1
    return end


def _cut_of(segment: Segment, offset: int, whole: bool) -> tuple[SegmentCut, tuple[int, int] | None]:
    """The cut of a segment at an offset; and the first and last offset before it that share a batch with it."""
    position: int | None = 0 if whole else None
    batches = records = 0
    earlier = None
    for headers in segment.batches(0 if whole else segment.start_position(offset)):
        gone = np.flatnonzero(headers.column("last_offset") >= offset)
        if not len(gone):
            continue
        first = int(gone[0])
        if batches == 0:
            position = 0 if whole else int(headers.column("position")[first])
            offsets = _offsets(headers.entry(first))
            before = offsets[offsets < offset]
            earlier = (int(before[0]), int(before[-1])) if len(before) else None
        batches += len(headers) - first
        counts = headers.column("count")[first:]
        untold = headers.wrappers[first:]
        records += int(counts[~untold].sum())
        records += sum(len(_offsets(headers.entry(first + row))) for row in np.flatnonzero(untold).tolist())
    end = segment.size_bytes
    kept = end if position is None else position
    return SegmentCut(segment.path, segment.base_offset, whole, kept, end - kept, batches, records), earlier


def _offsets(entry: memoryview) -> npt.NDArray[np.int64]:
    """The offsets of the records of one batch."""
    return int64(decode(entry, ["offset", "headers"]), "offset")


# --- cutting --------------------------------------------------------------------------------------


def truncate_in_place(
    path: str,
    to_offset: int,
    config: LogConfig | Mapping[str, Any] | None = None,
    *,
    clock: Callable[[], int] | None = None,
    opened: Callable[[Log], None] | None = None,
) -> TruncationPlan:
    """Remove the records of ``plan_truncation``, and close the log cleanly.

    Parameters
    ----------
    path : str
        The partition directory.
    config : LogConfig or mapping, optional
        The topic's settings.
    clock : callable, optional
        As for ``Log``.
    opened : callable, optional
        Called with the log before anything is cut; ``Log.recovered`` lists what its start repaired.

    Raises
    ------
    LogLockedError
        A broker or another program holds the log directory.
    LogStorageError
        The disk fails. The next start recovers the log.

    Notes
    -----
    The log then ends at ``TruncationPlan.next_offset``, after the last record that is left.
    """
    addresses.require_local(path, "truncation")
    files.require_plain_logs(path, "truncation")
    parent, name = os.path.split(os.path.abspath(path))
    parsed = parse_directory_name(name)
    if parsed is None or parsed.state:
        raise ValueError(f"path: expected a directory called <topic>-<partition>, found {name!r}")
    topic, partition = parsed.topic, parsed.partition
    with _held(PartitionEntry(parent, f"{name} is truncated", topic, partition)):
        with Log(path, config, create=False, clock=clock) as log:
            if opened is not None:
                opened(log)
        plan = plan_truncation(PartitionLog(path, topic, partition), to_offset)
        if plan.cuts:
            directory = PartitionEntry(parent, name, topic, partition)
            try:
                _cut(directory, path, plan)
            finally:
                directory.leave(clean=False)
            Log(path, config, create=False, clock=clock).close()
    return plan


@contextmanager
def _held(directory: PartitionEntry) -> Iterator[None]:
    """Hold the lock of a log directory. Without an error the clean shutdown marker stays, for the other partitions."""
    clean = False
    try:
        yield
        clean = True
    finally:
        directory.leave(clean=clean)


def _cut(directory: PartitionEntry, path: str, plan: TruncationPlan) -> None:
    end = plan.next_offset
    directory.write_checkpoint(RECOVERY_POINTS, min(directory.checkpoint(RECOVERY_POINTS) or 0, end))
    if (directory.checkpoint(LOG_START_OFFSETS) or 0) > end:
        directory.write_checkpoint(LOG_START_OFFSETS, None)
    if (directory.checkpoint(CLEANER_OFFSETS) or 0) > end:  # what follows would count as clean
        directory.write_checkpoint(CLEANER_OFFSETS, end)
    if plan.log_start_offset > end and all(cut.whole for cut in plan.cuts):  # nothing is left
        WritableFile(os.path.join(path, f"{end:020d}.log"), create=True).close()
        local.sync_directory(path)
    for cut in reversed(plan.cuts):
        if cut.whole:
            files.remove(cut.path)
            local.sync_directory(path)
            for suffix in FILE_SUFFIXES[1:]:
                files.remove(cut.path.removesuffix(".log") + suffix, missing_ok=True)
        else:
            _shorten(cut.path, cut.position)


def _shorten(path: str, size: int) -> None:
    """Shorten a file to its first bytes, with a copy and a rename; mode and modification time stay."""
    with publishing.unfinished(path, UNFINISHED) as made:
        with File(path) as source:
            publishing.write_synced(made, publishing.pieces(source, 0, size))
        local.copy_mode(path, made)
        local.set_modified_ms(made, files.modified_ms(path))
