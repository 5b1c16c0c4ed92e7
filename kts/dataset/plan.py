"""Plan a scan: find the byte ranges of segments with the requested records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kts.arguments import INT64_MAX, choice, integer
from kts.dataset.options import ISOLATIONS
from kts.errors import CorruptRecordError, DamageWarning, LogStorageError
from kts.model import EARLIEST, LATEST
from kts.segment import search, transactions
from kts.segment.confirmation import entry_at
from kts.segment.damage import next_offset
from kts.segment.partition import ReadablePartition
from kts.segment.rereading import is_gone, warn
from kts.segment.segment import Lookups, Segment
from kts.store.expanded import compression_of_log
from kts.store.protocol import ByteRange, Readable
from kts.store.source import Source, files, in_order

NO_END = INT64_MAX


@dataclass(frozen=True)
class SegmentRange:
    """A range of bytes of one segment, cut at batch boundaries.

    Attributes
    ----------
    topic, partition, path, base_offset
        The segment.
    start_position, end_position : int
        The bytes to read.
    start_offset, end_offset : int
        Records outside [start_offset, end_offset) are dropped.
    aborted : tuple of (producer id, first offset, last offset)
        Aborted transactions: a read_committed reader drops their batches.
    closed : int
        1 if the segment is closed, so that an incomplete last entry is damage; 2 if the range ends before the segment
        does; 0 if a writer may have been interrupted.
    by_markers : int
        1 if the segment or a later one has no sound ``.txnindex``, so that a read_committed reader must look for abort
        markers: without one, none may have been aborted there, or the file is lost.
    following : int
        The next segment's base offset, if there is one.
    sound_part : int
        1 if a damaged compressed segment ends at its damage.
    reached_ms : int
        If blocks of the partition were left out for their lateness, the time that those before the range begin at, or
        0; else -1.
    indexed : int
        0 if the indexes beside the segment are not those of this part.
    shared : int
        1 if other segments have some of its offsets.
    low, high : int
        The offsets that are read from it, and from no other range: from ``low`` up to, but not including, ``high``;
        -1 if they are not known, so that it is not planned again when a cleaner replaces its segment.
    size : int
        The segment's length when it was planned.
    source : Source
        Where the segment's files lie.
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
    sound_part: int = 0
    reached_ms: int = -1
    indexed: int = 1
    shared: int = 0
    low: int = -1
    high: int = -1
    size: int = -1
    source: Source = field(default=files, compare=False, repr=False)

    @property
    def is_empty(self) -> bool:
        """True if it has no bytes: its reader tells what is lost."""
        return self.start_position >= self.end_position

    @property
    def segment(self) -> Segment:
        """The segment."""
        whose, flags = (
            (self.path, self.topic, self.partition, self.base_offset),
            (self.indexed == 1, self.sound_part == 1),
        )
        return Segment(*whose, *flags, shared=self.shared == 1, source=self.source)


def resolve_range(
    log: ReadablePartition,
    *,
    starting_timestamp: int | None = None,
    ending_timestamp: int | None = None,
    starting_offset: int | None = None,
    ending_offset: int | None = None,
    strict_time_range: bool = False,
    skip_damage: bool = False,
    verify_crc: bool = True,
) -> tuple[int, int]:
    """Resolve times and offsets to a range of offsets [start, end), as Spark's Kafka source does.

    Parameters
    ----------
    starting_timestamp : int, optional
        From the first record at or after it; if there is none, nothing. Overrides ``starting_offset``.
    ending_timestamp : int, optional
        Up to, but not including, the first record at or after it; if there is none, the log's end. Overrides
        ``ending_offset``.
    starting_offset, ending_offset : int, optional
        -2 is the earliest, -1 the latest.
    strict_time_range : bool
        Late records count: all records after the start must be read.
    skip_damage, verify_crc : bool
        Continue the search after damaged batches; check CRCs.

    Returns
    -------
    tuple of int
        A start of 2^63-1 means that no record matches; an end of 2^63-1 is the log's end at the time of reading.
    """
    log = log.listed(skip_damage=skip_damage)
    start = log.log_start_offset
    if starting_timestamp is not None:
        found = search.offset_for_timestamp(log, starting_timestamp, skip_damage=skip_damage, verify_crc=verify_crc)
        start = NO_END if found is None else found.offset
    elif starting_offset == LATEST:
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
    elif ending_offset == EARLIEST:
        end = log.log_start_offset
    return start, end


def plan(
    log: ReadablePartition,
    start_offset: int,
    end_offset: int,
    *,
    range_bytes: int | None = None,
    isolation: str = "read_uncommitted",
    on_error: str = "raise",
) -> list[SegmentRange]:
    """The segment ranges with the offsets [start_offset, end_offset), in order.

    Parameters
    ----------
    range_bytes : int, optional
        Split larger segments at entries of their offset index.
    isolation : str
        ``read_committed`` ends at the last stable offset and lists the aborted transactions.
    on_error : str
        ``skip`` also looks for transactions after damage.

    Notes
    -----
    Reads only indexes and a few headers; with ``read_committed`` also the headers after the last producer snapshot.
    """
    wanted = [(start_offset, end_offset)]
    return plan_all(log, wanted, range_bytes=range_bytes, isolation=isolation, on_error=on_error)[0]


def plan_all(
    log: ReadablePartition,
    ranges: Sequence[tuple[int, int]],
    *,
    range_bytes: int | None = None,
    isolation: str = "read_uncommitted",
    on_error: str = "raise",
) -> list[list[SegmentRange]]:
    """``plan`` for several ranges of offsets; reads the directory and its transactions once."""
    choice("isolation", isolation, ISOLATIONS)
    if range_bytes is not None:
        integer("range_bytes", range_bytes, 1)
    log = log.listed(skip_damage=on_error == "skip")
    segments, log_start = log.segments, log.log_start_offset
    bases = [segment.base_offset for segment in segments]
    committed = isolation == "read_committed"
    last = NO_END
    if committed:
        unstable = transactions.unstable(log, skip_damage=on_error == "skip")
        unstable.tell(log, max((end for _, end in ranges), default=0))
        last = unstable.last_stable_offset
    if log.following_offset is not None and last >= log.following_offset:
        last = NO_END  # nothing is open: the last segment is read to its end, so that damage there is told
    wanted = [(max(start, log_start), min(end, last)) for start, end in ranges]
    found = [_plan(log, bases, start, end, range_bytes) if start < end else [] for start, end in wanted]
    if committed and any(found):
        first = min(bisect_left(bases, part.base_offset) for parts in found for part in parts[:1])
        low, high = min(start for start, _ in wanted), max(end for _, end in wanted)
        aborted = transactions.aborted_transactions(segments[first:], low, high)
        unlisted = [s.base_offset for s in segments[first:] if transactions.listed_transactions(s) is None]
        found = [_committed(parts, aborted, max(unlisted, default=-1), bases) for parts in found]
    return found


def _plan(
    log: ReadablePartition, bases: list[int], start: int, end: int, range_bytes: int | None
) -> list[SegmentRange]:
    segments, behind = log.segments, NO_END if log.following_offset is None else log.following_offset
    found: list[SegmentRange] = []
    for number in range(max(bisect_right(bases, start) - 1, 0), bisect_left(bases, end)):
        segment, following = segments[number], bases[number + 1] if number + 1 < len(segments) else behind
        span = segment.span
        low = start if span.since is None else max(start, span.since)
        high = end if span.until is None else min(end, span.until)
        if low >= high:  # another segment has these offsets
            continue
        size = segment.size_bytes  # before positions are looked up: another one is another file
        whole = SegmentRange(
            segment.topic, segment.partition, segment.path, segment.base_offset, span.start, size,
            low, high, closed=int(following < NO_END or segment.remote) if span.end is None else 2,
            following=following, sound_part=int(segment.sound_part), indexed=int(segment.indexed),
            shared=int(segment.shared), size=size, source=segment.source,
        )  # fmt: skip
        if _may_be_cleaned(log, segment):
            whole = replace(whole, low=max(low, segment.base_offset), high=min(high, following))
        if segment.sound_part and (damage := segment.source.damage_of(segment.path)) is not None:
            warn(f"{segment.path}: left out from position {damage.position} on: {damage.message}", segment.path,
                 DamageWarning)  # fmt: skip
        found += [part for part in _cut(segment, whole, range_bytes) if part.start_position < part.end_position]
        if whole.closed == 1 and whole.end_position == 0 and Lookups(segment).lost_end(whole.following) is not None:
            found.append(whole)  # its reader reports the loss
    return found


def _cut(segment: Segment, whole: SegmentRange, range_bytes: int | None) -> list[SegmentRange]:
    """The part of a segment with the wanted offsets, split at confirmed index entries."""
    indexes = Lookups(segment)
    start = indexes.place(whole.start_offset)
    end = (
        whole.end_position
        if whole.end_offset >= whole.following
        else min(indexes.end(whole.end_offset), whole.end_position)
    )
    cuts = [start]
    is_split = range_bytes is not None and compression_of_log(segment.path) is None
    if is_split and range_bytes is not None and end - start > range_bytes:
        parts = -(-(end - start) // range_bytes)
        cuts += indexes.cuts(start + (end - start) * np.arange(1, parts) // parts, start, end)
    cuts.append(end)
    pieces = [
        replace(whole, start_position=a, end_position=b, closed=2 if b < whole.end_position else whole.closed)
        for a, b in zip(cuts, cuts[1:], strict=False)
    ]
    return with_offsets(replace(whole, start_position=start, end_position=end), pieces, indexes)


# --- beside a cleaner -----------------------------------------------------------------------------


def _may_be_cleaned(log: ReadablePartition, segment: Segment) -> bool:
    """Whether a broker or ``kts.Log`` may replace a segment: it lies in the partition's directory on a file system."""
    is_plain = compression_of_log(segment.path) is None and not (segment.remote or segment.shared)
    return is_plain and segment.source.is_here and not log.lone


def with_offsets(whole: SegmentRange, pieces: list[SegmentRange], indexes: Lookups) -> list[SegmentRange]:
    """The pieces of a range, each with the offsets that are read from it, by the entries where it begins and ends."""
    if whole.low < 0:
        return pieces
    edges = {whole.start_position: whole.low, whole.end_position: whole.high}
    for position in {at for piece in pieces for at in (piece.start_position, piece.end_position)} - edges.keys():
        entry = entry_at(indexes.file, indexes.size, position)
        is_known = entry is not None and entry.first_offset >= 0
        edges[position] = min(max(entry.first_offset, whole.low), whole.high) if entry and is_known else -1
    bounds = [(edges[piece.start_position], edges[piece.end_position]) for piece in pieces]
    return [
        replace(piece, low=low, high=high) if min(low, high) >= 0 else replace(piece, low=-1, high=-1)
        for piece, (low, high) in zip(pieces, bounds, strict=True)
    ]


def is_as_planned(log: ReadablePartition, part: SegmentRange) -> bool:
    """True if the segment of a range is still the one that it was planned of.

    The cleaner makes a segment smaller, or leaves out the one behind it, unless it leaves it as it was. An open one
    grows.
    """
    log = log.afresh().listed()
    followings = [segment.base_offset for segment in log.segments[1:]]
    followings.append(NO_END if log.following_offset is None else log.following_offset)
    for segment, following in zip(log.segments, followings, strict=False):
        if (segment.path, segment.base_offset) == (part.path, part.base_offset):
            size = segment.size_bytes
            return following == part.following and (size == part.size or (size > part.size and following == NO_END))
    return False


def was_cleaned(log: ReadablePartition, part: SegmentRange) -> bool:
    """True if the cleaner's checkpoint shows it, or what a broker keeps of the old segment for a while."""
    dirty = log.first_dirty_offset
    return (dirty is not None and dirty > part.base_offset) or part.source.exists(f"{part.path}.deleted")


def planned_again(
    log: ReadablePartition, part: SegmentRange, start_offset: int, *, isolation: str, on_error: str
) -> list[SegmentRange] | None:
    """The ranges that have the offsets of a planned one now, from an offset on: the cleaner replaced its segment.

    None if that was deleted: the log starts behind it, or ends before it, or has nothing in its place.

    Notes
    -----
    A cleaned segment may stand for several. It shows that it does by an entry, or ``was_cleaned`` does; else its end
    would look like the end of the segment before a lost one.
    """
    if part.low < 0:
        return None
    log = log.afresh().listed(skip_damage=on_error == "skip")
    number = bisect_right([segment.base_offset for segment in log.segments], start_offset) - 1
    if number < 0 or log.log_start_offset >= part.high:
        return None
    covering = log.segments[number]
    may_end_before = covering.base_offset < part.base_offset and not was_cleaned(log, part)
    if may_end_before and next_offset(covering) <= part.base_offset:
        return None
    return plan(log, start_offset, part.high, isolation=isolation, on_error=on_error)


def _committed(
    parts: list[SegmentRange], aborted: list[transactions.AbortedTransaction], last_unlisted: int, bases: list[int]
) -> list[SegmentRange]:
    """The same ranges, each with the aborted transactions that overlap it."""
    firsts = np.array([one.first_offset for one in aborted], np.int64)
    lasts = np.array([one.last_offset for one in aborted], np.int64)
    made = []
    for part in parts:
        behind = bisect_right(bases, part.base_offset)
        following = bases[behind] if behind < len(bases) else NO_END
        low, high = max(part.base_offset, part.start_offset), min(following, part.end_offset)
        overlapping = tuple(aborted[i][:] for i in np.flatnonzero((lasts >= low) & (firsts < high)).tolist())
        made.append(replace(part, aborted=overlapping, by_markers=int(part.base_offset <= last_unlisted)))
    return made


def opened(parts: Sequence[SegmentRange]) -> Iterator[Readable | None]:
    """The logs of ranges that are read in order; None for one that its reader opens."""
    return in_order((part.source, ByteRange(part.path, part.start_position, part.end_position)) for part in parts)


def lost_end(part: SegmentRange) -> CorruptRecordError | None:
    """The error if the indexes of a closed segment show that its end is missing; otherwise None.

    None also for a segment that was deleted: a reader that has it open reads all of it.
    """
    if part.closed != 1 or part.following == NO_END:
        return None
    try:
        return Lookups(part.segment).lost_end(part.following)
    except LogStorageError as error:
        if is_gone(error, part.source):
            return None
        raise
