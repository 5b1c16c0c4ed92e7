"""Which bytes of a partition hold the records that were asked for: the pieces that every scan is made of."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kts.columns import ALL_COLUMNS, SCAN_COLUMNS
from kts.storage import search, transactions
from kts.storage.segment import Segment

if TYPE_CHECKING:
    from kts.storage.directory import PartitionLog

NO_END = 2**63 - 1
BATCH_BYTES = 4 * 2**20
MAX_DECOMPRESSED_BYTES = 128 * 2**20
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


def check_choice(value: object, name: str, choices: tuple[str, ...]) -> None:
    """Raise TypeError or ValueError, naming the argument, unless the value is one of the choices."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected one of {', '.join(choices)}, found {value!r}")
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}, found {value!r}")


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
    check_choice(isolation, "isolation", ISOLATIONS)
    if piece_bytes is not None:
        check_bytes(piece_bytes, "piece_bytes")
    start_offset = max(start_offset, log.log_start_offset)
    committed = isolation == "read_committed"
    if committed:
        end_offset = min(end_offset, transactions.last_stable_offset(log, skip_damage=on_error == "skip"))
    if start_offset >= end_offset:
        return []
    segments = log.segments
    if segments and start_offset > segments[-1].base_offset and start_offset == log.log_start_offset:
        log_end = transactions.log_end_offset(log, skip_damage=True)
        if start_offset > log_end:
            warn(
                f"{log.path}: the log start offset {start_offset} lies behind the log's end {log_end}, so nothing is"
                " read; give another one with log_start_offset"
            )
    pieces: list[Piece] = []
    first: int | None = None
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else NO_END
        if following <= start_offset or segment.base_offset >= end_offset:
            continue
        first = number if first is None else first
        # A finished swap may cover live segments behind it.
        end = min(end_offset, following) if segment.path.endswith(".swap") else end_offset
        whole = Piece(
            segment.topic, segment.partition, segment.path, segment.base_offset, 0, segment.size_bytes,
            start_offset, end, closed=int(number + 1 < len(segments)),
        )  # fmt: skip
        pieces += [piece for piece in _cut(segment, whole, piece_bytes) if piece.start_position < piece.end_position]
    if committed and pieces:
        aborted = transactions.aborted_transactions(segments[first:], start_offset, end_offset)
        unlisted = {s.path for s in segments[first:] if transactions.listed_transactions(s) is None}
        pieces = [
            replace(_with_aborted(piece, aborted, segments), by_markers=int(piece.path in unlisted)) for piece in pieces
        ]
    return pieces


def _cut(segment: Segment, whole: Piece, piece_bytes: int | None) -> list[Piece]:
    """The part of a segment with the offsets, cut at index entries; the whole where the index is missing or lies."""
    offsets, positions = segment.offset_index().entries()
    if len(offsets) == 0:
        return [whole]
    start, end = 0, whole.end_position
    before = int(np.searchsorted(offsets, whole.start_offset, "right")) - 1
    if before >= 0:
        start = int(positions[before])
        if not segment.is_batch_start(start, int(offsets[before])):
            return [whole]
    # The entry's batch ends (2.0+) or starts (up to 1.1) with its offset: it can hold wanted offsets, the next cannot.
    behind = int(np.searchsorted(offsets, whole.end_offset, "left"))
    if behind < len(offsets):
        if not segment.is_batch_start(int(positions[behind]), int(offsets[behind])):
            return [whole]
        first = segment.first_offset_at(int(positions[behind]))
        if first is not None and first >= whole.end_offset:
            end = int(positions[behind])
        elif behind + 1 < len(offsets):
            if not segment.is_batch_start(int(positions[behind + 1]), int(offsets[behind + 1])):
                return [whole]
            end = int(positions[behind + 1])
    end = min(end, whole.end_position)
    cuts = [start]
    if piece_bytes is not None and end - start > piece_bytes:
        parts = -(-(end - start) // piece_bytes)
        targets = start + (end - start) * np.arange(1, parts) // parts
        for i in np.unique(np.searchsorted(positions, targets)).tolist():
            if i < len(positions) and cuts[-1] < positions[i] < end:
                if not segment.is_batch_start(int(positions[i]), int(offsets[i])):
                    continue
                cuts.append(int(positions[i]))
    cuts.append(end)
    return [
        replace(whole, start_position=a, end_position=b, closed=2 if b < whole.end_position else whole.closed)
        for a, b in zip(cuts, cuts[1:], strict=False)
    ]


def _with_aborted(piece: Piece, aborted: list[transactions.AbortedTransaction], segments: list[Segment]) -> Piece:
    following = min((s.base_offset for s in segments if s.base_offset > piece.base_offset), default=NO_END)
    low, high = max(piece.base_offset, piece.start_offset), min(following, piece.end_offset)
    overlapping = [one[:] for one in aborted if one.last_offset >= low and one.first_offset < high]
    return replace(piece, aborted=tuple(overlapping))


def warn(message: str) -> None:
    """A UserWarning that shows the line outside of kts that asked for the data."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == "kts":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)
