"""Which bytes of a partition hold the records that were asked for: the pieces that every scan is made of."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kts.arguments import choice
from kts.codec.columns import ALL_COLUMNS, SCAN_COLUMNS
from kts.errors import CorruptRecordError
from kts.segment import search, transactions
from kts.segment.rereading import warn
from kts.segment.segment import Lookups, Segment

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog

NO_END = 2**63 - 1
BATCH_BYTES = 4 * 2**20
ISOLATIONS = ("read_uncommitted", "read_committed")
ON_ERROR = ("raise", "skip")
STREAM_COLUMNS = (*SCAN_COLUMNS, *(name for name in ALL_COLUMNS if name not in SCAN_COLUMNS))
Range = tuple[int | None, int | None]


@dataclass(frozen=True)
class Piece:
    """A byte range of one segment, cut at batch boundaries.

    Attributes
    ----------
    topic, partition, path, base_offset
        The segment.
    start_position, end_position : int
        The bytes to read.
    start_offset, end_offset : int
        Rows outside of [start_offset, end_offset) are dropped.
    aborted : tuple of (producer id, first offset, last offset)
        Whose transactional batches a read_committed reader drops.
    closed : int
        1 where the segment is complete, so that a cut tail is damage, 2 where the piece ends before it does; 0 where a
        writer may have been cut off.
    by_markers : int
        1 where the segment has no sound ``.txnindex``, so that a read_committed reader must look for abort markers.
    following : int
        The next segment's base offset, where there is one.
    """

    topic: str
    partition: int
    path: str
    base_offset: int
    start_position: int
    end_position: int
    start_offset: int
    end_offset: int
    aborted: tuple[tuple[int, int, int], ...] = ()
    closed: int = 0
    by_markers: int = 0
    following: int = NO_END


def check_bytes(value: object, name: str, least: int = 1) -> int:
    """Raise TypeError or ValueError, naming the argument, unless the value is a number of bytes."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}: expected an int (bytes), found {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected {least} or more, found {value}")
    return value


def resolve_range(
    log: PartitionLog,
    *,
    starting_timestamp: int | None = None,
    ending_timestamp: int | None = None,
    starting_offset: int | None = None,
    ending_offset: int | None = None,
    strict_time_range: bool = False,
    skip_damage: bool = False,
    verify_crc: bool = True,
) -> tuple[int, int]:
    """Times and offsets as the offsets [start, end) that they mean, as in Spark's Kafka source.

    Parameters
    ----------
    starting_timestamp : int, optional
        From the first record at or after it; if there is none, nothing. Beats ``starting_offset``.
    ending_timestamp : int, optional
        Up to, without, the first record at or after it; if there is none, the log's end. Beats ``ending_offset``.
    starting_offset, ending_offset : int, optional
        -2 is the earliest, -1 the latest.
    strict_time_range : bool
        Late records count too, so that everything behind the start must be read.
    skip_damage, verify_crc : bool
        Search behind damaged batches; do not look at CRCs.

    Returns
    -------
    tuple of int
        start <= end; end is 2^63-1 where it is the log's end, wherever that is when it is read.
    """
    start = log.log_start_offset
    if starting_timestamp is not None:
        found = search.offset_for_timestamp(log, starting_timestamp, skip_damage=skip_damage, verify_crc=verify_crc)
        start = NO_END if found is None else found.offset
    elif starting_offset == -1:
        start = log.log_end_offset
    elif starting_offset is not None and starting_offset >= 0:
        start = max(start, starting_offset)
    end = NO_END
    if ending_timestamp is not None:
        found = None
        if not strict_time_range:
            found = search.offset_for_timestamp(log, ending_timestamp, skip_damage=skip_damage, verify_crc=verify_crc)
        end = NO_END if found is None else found.offset
    elif ending_offset is not None and ending_offset >= 0:
        end = ending_offset
    elif ending_offset == -2:
        end = start
    return start, max(start, end)


def plan(
    log: PartitionLog,
    start_offset: int,
    end_offset: int,
    *,
    piece_bytes: int | None = None,
    isolation: str = "read_uncommitted",
    on_error: str = "raise",
) -> list[Piece]:
    """The pieces that hold the offsets [start_offset, end_offset), in order.

    Parameters
    ----------
    piece_bytes : int, optional
        Split segments that are larger, at entries of their offset index.
    isolation : str
        ``read_committed`` ends at the last stable offset and lists the aborted transactions.
    on_error : str
        ``skip`` looks for transactions behind damage too.

    Notes
    -----
    Opens indexes and a few headers only; with ``read_committed`` also the headers behind the last producer snapshot.
    """
    [pieces] = plan_all(
        log, [(start_offset, end_offset)], piece_bytes=piece_bytes, isolation=isolation, on_error=on_error
    )
    return pieces


def plan_all(
    log: PartitionLog,
    ranges: Sequence[tuple[int, int]],
    *,
    piece_bytes: int | None = None,
    isolation: str = "read_uncommitted",
    on_error: str = "raise",
) -> list[list[Piece]]:
    """What ``plan`` says of each of several ranges of offsets, with one look at the directory and its transactions."""
    choice("isolation", isolation, ISOLATIONS)
    if piece_bytes is not None:
        check_bytes(piece_bytes, "piece_bytes")
    log = log.listed()
    segments, log_start = log.segments, log.log_start_offset
    bases = [segment.base_offset for segment in segments]
    committed = isolation == "read_committed"
    last = transactions.last_stable_offset(log, skip_damage=on_error == "skip") if committed else NO_END
    wanted = [(max(start, log_start), min(end, last)) for start, end in ranges]
    found = [_plan(log, bases, start, end, piece_bytes) if start < end else [] for start, end in wanted]
    if committed and any(found):
        first = min(bisect_left(bases, piece.base_offset) for pieces in found for piece in pieces[:1])
        low, high = min(start for start, _ in wanted), max(end for _, end in wanted)
        aborted = transactions.aborted_transactions(segments[first:], low, high)
        unlisted = {s.path for s in segments[first:] if transactions.listed_transactions(s) is None}
        found = [_committed(pieces, aborted, unlisted, bases) for pieces in found]
    return found


def _plan(log: PartitionLog, bases: list[int], start: int, end: int, piece_bytes: int | None) -> list[Piece]:
    segments = log.segments
    if segments and start > bases[-1] and start == log.log_start_offset:
        log_end = transactions.log_end_offset(log, skip_damage=True)
        if start > log_end:
            warn(
                f"{log.path}: the log start offset {start} lies behind the log's end {log_end}, so nothing is"
                " read; give another one with log_start_offset"
            )
    pieces: list[Piece] = []
    for number in range(max(bisect_right(bases, start) - 1, 0), bisect_left(bases, end)):
        segment, closed = segments[number], number + 1 < len(segments)
        # A finished swap may cover live segments behind it.
        stop = min(end, bases[number + 1]) if closed and segment.path.endswith(".swap") else end
        whole = Piece(
            segment.topic, segment.partition, segment.path, segment.base_offset, 0, segment.size_bytes,
            start, stop, closed=int(closed), following=bases[number + 1] if closed else NO_END,
        )  # fmt: skip
        pieces += [piece for piece in _cut(segment, whole, piece_bytes) if piece.start_position < piece.end_position]
        if whole.closed and whole.end_position == 0 and lost_end(whole) is not None:
            pieces.append(whole)  # whoever reads it says so
    return pieces


def _cut(segment: Segment, whole: Piece, piece_bytes: int | None) -> list[Piece]:
    """The part of a segment with the offsets, cut at confirmed index entries."""
    indexes = Lookups(segment)
    start = indexes.place(whole.start_offset)
    end = (
        whole.end_position
        if whole.end_offset >= whole.following
        else min(indexes.end(whole.end_offset), whole.end_position)
    )
    cuts = [start]
    if piece_bytes is not None and end - start > piece_bytes:
        parts = -(-(end - start) // piece_bytes)
        cuts += indexes.cuts(start + (end - start) * np.arange(1, parts) // parts, start, end)
    cuts.append(end)
    return [
        replace(whole, start_position=a, end_position=b, closed=2 if b < whole.end_position else whole.closed)
        for a, b in zip(cuts, cuts[1:], strict=False)
    ]


def _committed(
    pieces: list[Piece], aborted: list[transactions.AbortedTransaction], unlisted: set[str], bases: list[int]
) -> list[Piece]:
    """The same pieces, each with the transactions that overlap it."""
    firsts = np.array([one.first_offset for one in aborted], np.int64)
    lasts = np.array([one.last_offset for one in aborted], np.int64)
    made = []
    for piece in pieces:
        behind = bisect_right(bases, piece.base_offset)
        following = bases[behind] if behind < len(bases) else NO_END
        low, high = max(piece.base_offset, piece.start_offset), min(following, piece.end_offset)
        overlapping = tuple(aborted[i][:] for i in np.flatnonzero((lasts >= low) & (firsts < high)).tolist())
        made.append(replace(piece, aborted=overlapping, by_markers=int(piece.path in unlisted)))
    return made


def lost_end(piece: Piece) -> CorruptRecordError | None:
    """What is wrong with the closed segment of a piece whose end is missing; None if nothing says that it is."""
    if piece.closed != 1 or piece.following == NO_END:
        return None
    return Lookups(Segment(piece.path, piece.topic, piece.partition, piece.base_offset)).lost_end(piece.following)
