"""Leave out the blocks of a log that have no record of a range of times.

A block is a segment, or a part of one between entries of its offset index that the log confirms. It is left out if

- the time index proves that all of it is before the range, or
- several of its headers say that it begins at or after the end of the range plus the allowed lateness.

The second ground rests on the promise that no record comes later than that after younger ones. No single time decides:
several entries must agree, and the first must not be far ahead of those that follow it. A range that includes -1 leaves
nothing out on that ground: a record without a timestamp may be anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.codec.columns import valid_bytes
from kts.codec.layout import DELETE_HORIZON, HEADER_BYTES, Entry, read_header
from kts.dataset.options import TimeRange
from kts.dataset.plan import SegmentRange, with_offsets
from kts.errors import CorruptRecordError
from kts.segment.entries import decoded, is_plain
from kts.segment.index_checksums import Sealed
from kts.segment.partition import ReadablePartition
from kts.segment.rereading import warn
from kts.segment.segment import Lookups, Segment, bools, int64
from kts.store.expanded import compression_of_log
from kts.store.protocol import Readable
from kts.times import show_length

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

SEVERAL = 4  # entries that must agree
IN_A_ROW = 3  # batches that show which time the log has reached
MOST_HEADS = 64  # entries to look at for several: control batches do not count
SET_BYTES = 2**14  # of plain messages, which a producer sends together: they count as one entry
STEP_BYTES = 2**24  # of a segment on a disk that is judged as a block of its own


class _Heads(NamedTuple):
    """The first entries of a block: times at or before their first records, and their greatest timestamps."""

    firsts: tuple[int, ...] = ()
    greatest: tuple[int, ...] = ()
    all: bool = False  # the block has no others

    def and_then(self, following: _Heads) -> _Heads:
        """Those of this block and the next one."""
        return _Heads(self.firsts + following.firsts, self.greatest + following.greatest, following.all)

    def are_late(self, within: TimeRange) -> bool:
        """Whether they say that the block begins at or after the end of the range plus the allowed lateness."""
        latest, firsts = within.latest_ms, self.firsts[:SEVERAL]
        if latest is None or len(firsts) < SEVERAL or min(firsts) < latest:
            return False
        return firsts[0] <= min(self.greatest[1:SEVERAL]) + (within.allowed_lateness_ms or 0)


class _Block(NamedTuple):
    """A part of a segment; ``reached_ms`` is set if it is left out for its lateness."""

    start: int
    end: int
    reached_ms: int | None = None


def kept(log: ReadablePartition, parts: Sequence[SegmentRange], within: TimeRange) -> list[SegmentRange]:
    """The ranges of a plan without the blocks that have no record of the range of times; see ``kept_of_each``."""
    return [piece for pieces in kept_of_each(log, parts, within) for piece in pieces]


def kept_of_each(log: ReadablePartition, parts: Sequence[SegmentRange], within: TimeRange) -> list[list[SegmentRange]]:
    """What is left of each range of a plan without the blocks that have no record of the range of times.

    Notes
    -----
    Reads a few headers and index entries of each segment, side by side from a store. If a block was left out for its
    lateness, ``reached_ms`` of all that is left is set.
    """
    if not parts or within in (TimeRange(), TimeRange(allowed_lateness_ms=within.allowed_lateness_ms)):
        return [[part] for part in parts]
    segments = {(segment.path, segment.base_offset): segment for segment in log.segments}
    sealed = log.sealed_indexes()
    source = parts[0].source
    heads = [_Heads()] * len(parts)
    if within.latest_ms is not None:
        heads = list(
            source.side_by_side(lambda part: _glance(part, segments[part.path, part.base_offset], within), parts)
        )
    late = [_with_following(heads, number).are_late(within) for number in range(len(parts))]
    read = [number for number in range(len(parts)) if not late[number] or parts[number].is_empty]
    judge = partial(_blocks, segments=segments, sealed=sealed, within=within)
    blocks = dict(zip(read, source.side_by_side(judge, [parts[number] for number in read]), strict=True))
    found, reached, left_out = list[list[SegmentRange]](), 0, False
    for number, part in enumerate(parts):
        pieces = list[SegmentRange]()
        whole = [_Block(part.start_position, part.end_position, min(heads[number].firsts, default=0))]
        for start, end, reached_ms in blocks.get(number, whole):
            if reached_ms is not None:
                reached, left_out = max(reached, reached_ms), True
            elif pieces and pieces[-1].end_position == start and pieces[-1].reached_ms == reached:
                pieces[-1] = _piece(part, pieces[-1].start_position, end, reached)
            else:
                pieces.append(_piece(part, start, end, reached))
        places = [(one.start_position, one.end_position) for one in pieces]
        if part.low >= 0 and places != [(part.start_position, part.end_position)]:
            pieces = with_offsets(part, pieces, Lookups(segments[part.path, part.base_offset]))
        found.append(pieces)
    return found if left_out else [[replace(piece, reached_ms=-1) for piece in pieces] for pieces in found]


def _piece(part: SegmentRange, start: int, end: int, reached_ms: int) -> SegmentRange:
    closed = 2 if end < part.end_position else part.closed
    return replace(part, start_position=start, end_position=end, closed=closed, reached_ms=reached_ms)


def _with_following(heads: Sequence[_Heads], number: int) -> _Heads:
    """The first entries of a block, and of those after it if it has only a few."""
    found = heads[number]
    while found.all and len(found.firsts) < SEVERAL and number + 1 < len(heads):
        number += 1
        found = found.and_then(heads[number])
    return found


def _glance(part: SegmentRange, segment: Segment, within: TimeRange) -> _Heads:
    """The first entries of a range; none if others in it contradict them."""
    lookups = Lookups(segment)
    heads = _heads(lookups.file, part.start_position, part.end_position, within)
    if heads.are_late(within) and not _agree(lookups, part.start_position, part.end_position, within):
        return _Heads()
    return heads


def _heads(file: Readable, position: int, end: int, within: TimeRange, most: int = SEVERAL) -> _Heads:
    """The first entries between two positions that are no control batches; none if one of them is damaged."""
    firsts, greatest, seen = list[int](), list[int](), 0
    try:
        while position < end and len(firsts) < most and seen < MOST_HEADS:
            entry = read_header(file.read(position, min(HEADER_BYTES, end - position)))
            if entry is None or position + entry.size > end:  # incomplete
                break
            if not entry.control:
                is_first = not firsts and most == SEVERAL
                firsts.append(_first_ms(file, position, entry, within) if is_first else _begin_ms(entry))
                greatest.append(entry.max_timestamp)
            seen += 1
            position += entry.size
            if is_plain(entry):  # it may be one of many messages that came together
                position += valid_bytes(file.read(position, min(SET_BYTES, end - position)))
    except CorruptRecordError:
        return _Heads()
    return _Heads(tuple(firsts), tuple(greatest), position >= end)


def _begin_ms(entry: Entry) -> int:
    """The time of an entry's first record, as far as its header has it."""
    if entry.magic < 2 or entry.timestamp_type == 1:
        return entry.max_timestamp
    return min(entry.base_timestamp, entry.max_timestamp)


def _first_ms(file: Readable, position: int, entry: Entry, within: TimeRange) -> int:
    """The same, from the records where the header has only the greatest time."""
    begin = _begin_ms(entry)
    is_hidden = entry.attributes & DELETE_HORIZON if entry.magic == 2 else entry.codec
    if not is_hidden or begin < (within.latest_ms or 0):
        return begin
    _, times = decoded(file.read(position, entry.size))
    return int(times.min(initial=begin))


def _agree(lookups: Lookups, start: int, end: int, within: TimeRange) -> bool:
    """Whether entries all over a block of a disk are late, as its first ones are.

    The index entries that lead to them need no confirmation: they can only keep a block.
    """
    if _is_asked_seldom(lookups.segment):
        return True
    positions = lookups.places.entries()[1]
    parts = max(4, (end - start) // STEP_BYTES)
    numbers = np.searchsorted(positions, start + (end - start) * np.arange(1, parts) // parts)
    for number in np.unique(numbers[numbers < len(positions)]).tolist():
        position = int(positions[number])
        if not start < position < end:
            continue
        found = _heads(lookups.file, position, end, within, most=1).firsts
        if not found or found[0] < (within.latest_ms or 0):
            return False
    return True


def _is_asked_seldom(segment: Segment) -> bool:
    """True for a segment in a store, and a compressed one: each look into it costs as much as reading a lot."""
    return not segment.source.is_here or compression_of_log(segment.path) is not None


def _blocks(
    part: SegmentRange, segments: dict[tuple[str, int], Segment], sealed: dict[int, Sealed], within: TimeRange
) -> list[_Block]:
    """The blocks of a range, without those before the range of times."""
    start, end = part.start_position, part.end_position
    if part.is_empty:
        return [_Block(start, end)]
    lookups = Lookups(segments[part.path, part.base_offset])
    if within.start_ms is not None and within.start_ms >= 0:
        start = max(start, _start(part, lookups, within.start_ms, sealed))
    if start >= end:
        return []
    if within.latest_ms is None:
        return [_Block(start, end)]
    edges = [start, end]
    if not _is_asked_seldom(lookups.segment) and end - start > STEP_BYTES:
        edges[1:1] = lookups.cuts(np.arange(start + STEP_BYTES, end, STEP_BYTES), start, end)
    found = list[_Block]()
    for first, behind in zip(edges, edges[1:], strict=False):
        reached = _reached(lookups, first, behind, end, within)
        if reached is not None:
            found.append(_Block(first, behind, reached))
        else:
            found += _cut(lookups, first, behind, end, within)
    return found


def _start(part: SegmentRange, lookups: Lookups, start_ms: int, sealed: dict[int, Sealed]) -> int:
    """A border with only earlier times before it, by the time index; the end of the range if all are earlier."""
    known = lookups.segment.known_max_ms
    if known is not None:
        return part.end_position if known < start_ms else part.start_position
    times = lookups.times
    if not len(times) or times.slot(start_ms) < 0:
        return part.start_position
    if times.entry(len(times) - 1)[0] < start_ms and not lookups.points_beyond():
        closing = lookups.closing_time(sealed.get(part.base_offset))
        if closing is not None and closing[0] < start_ms:
            return part.end_position
    return lookups.time_at(start_ms)[1]


def _reached(lookups: Lookups, start: int, behind: int, end: int, within: TimeRange) -> int | None:
    """The time that a block begins at if it is late; None if it is not. Its first entries may lie behind it."""
    heads = _heads(lookups.file, start, end, within)
    return min(heads.firsts) if heads.are_late(within) and _agree(lookups, start, behind, within) else None


def _cut(lookups: Lookups, start: int, behind: int, end: int, within: TimeRange) -> Iterator[_Block]:
    """A block whose beginning is not late, cut in front of what is late in it."""
    positions = lookups.places.entries()[1]
    first, last = np.searchsorted(positions, [start + 1, behind]).tolist()
    low, high = first - 1, last - SEVERAL

    def is_late(number: int) -> bool:
        return _heads(lookups.file, int(positions[number]), end, within).are_late(within)

    if high > low and is_late(high):
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_late(middle) else (middle, high)
        for number in range(high, min(high + 3, last)):
            place = lookups.confirmed(number)
            if place is None:
                continue
            reached = _reached(lookups, place.position, behind, end, within)
            if reached is not None:
                yield _Block(start, place.position)
                yield _Block(place.position, behind, reached)
                return
    yield _Block(start, behind)


# --- what is read shows how late records came -----------------------------------------------------


@dataclass(eq=False)
class Lateness:
    """How late the records of a range of times came, in the blocks of a partition that are read, in order."""

    count: int = 0  # of records that came later than is allowed
    greatest_ms: int = 0
    reached_ms: int = -1  # the greatest time that several batches in a row had
    allowed_ms: int = 0
    last: tuple[int, ...] = ()  # the greatest times of the batches before

    part: SegmentRange | None = None  # the last one

    def look(self, rows: pa.RecordBatch, timely: npt.NDArray[np.bool_], within: TimeRange, part: SegmentRange) -> None:
        """Count the late ones among the rows of whole batches that are in the range of times."""
        self.part, self.allowed_ms = part, within.allowed_lateness_ms or 0
        self.reached_ms = max(self.reached_ms, part.reached_ms)
        data = ~bools(rows, "control")  # the coordinator's clock sets the time of a marker
        if not data.any():
            return
        times, positions, magic, codec = (
            int64(rows, name)[data] for name in ("timestamp", "position", "magic", "codec")
        )
        timely, plain = timely[data], (magic < 2) & (codec == 0)
        sets = np.where(plain, -1 - positions // SET_BYTES, positions)  # plain messages that came together count once
        starts = np.flatnonzero(np.diff(sets, prepend=sets[0] - 1))
        of_sets = np.where(plain[starts], np.minimum.reduceat(times, starts), np.maximum.reduceat(times, starts))
        greatest = np.concatenate([np.array(self.last, np.int64), of_sets])
        agreed = np.full(len(greatest), -1, np.int64)
        if len(greatest) >= IN_A_ROW:
            agreed[IN_A_ROW - 1 :] = np.lib.stride_tricks.sliding_window_view(greatest, IN_A_ROW).min(axis=1)
        reached = np.maximum.accumulate(np.concatenate([[self.reached_ms], agreed]))
        before = reached[len(self.last) : -1]  # each batch
        late = (np.repeat(before, np.diff(starts, append=len(times))) - times)[timely]
        self.count += int((late > self.allowed_ms).sum())
        self.greatest_ms = max(self.greatest_ms, int(late.max(initial=0)))
        self.reached_ms, self.last = int(reached[-1]), tuple(greatest[1 - IN_A_ROW :].tolist())

    def tell(self) -> None:
        """Warn if more late records may lie in the blocks that were left out."""
        if not self.count or self.part is None:
            return
        name = f"{self.part.topic}-{self.part.partition}"
        enough = show_length(self.greatest_ms + self.allowed_ms)  # the time that was reached is a cautious guess
        warn(
            f"{name}: {self.count} record{'s' * (self.count > 1)} of the range of times came up to"
            f" {show_length(self.greatest_ms)} after younger ones, and blocks of the log that begin"
            f" {show_length(self.allowed_ms)} or more after the range were not read, so others may be missing: read"
            f" again with allowed_lateness {enough}, or unlimited",
            self.part.path,
        )
