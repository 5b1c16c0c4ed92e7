"""Segments that overlap, or hold more offsets than a segment can: parts of them that do neither.

A broker looks an offset up in the last segment that begins at or below it. Where that segment lacks the offset, because
it ends earlier or is damaged there, an earlier one that has it is read: no sound batch is lost.

Old brokers wrote offsets more than 2^31-1 above a segment's name (KAFKA-6264): later ones split such a segment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kts._timeindex import OffsetIndex
from kts.codec.layout import HEADER_BYTES, Entries, read_header
from kts.errors import CorruptRecordError, LogStorageError
from kts.segment.confirmation import entry_at
from kts.segment.damage import header_scan
from kts.segment.entries import FIRST_READ_BYTES, LAST_READ_BYTES
from kts.segment.index import SEGMENT_OFFSETS
from kts.segment.rereading import warn
from kts.segment.segment import EVERYTHING, SMALL_BYTES, Lookups, Segment, Span
from kts.store.expanded import compression_of_log
from kts.store.local import File
from kts.store.protocol import Readable

MOST_BYTES = 2**20  # to read of a segment to find its end


class _Ends(NamedTuple):
    """The offset of the first entry, the one after the last, and whether the last entry follows the one before it."""

    first: int
    next: int
    sure: bool = True

    def reach(self, base_offset: int, following: int | None) -> int:
        """Where the segment ends. No CRC covers offsets: one that lies too far is believed if others confirm it."""
        is_near = self.next <= base_offset + SEGMENT_OFFSETS or (following is not None and self.next <= following)
        return self.next if is_near or self.sure else base_offset


class Overlaps:
    """Makes the segments of a partition disjoint. What it measured once is kept as long as the sizes are the same."""

    def __init__(self, *, tell: bool = True) -> None:
        self._tells = tell
        self._known: dict[tuple[str, int], _Ends] = {}
        self._made: tuple[list[tuple[str, int, int | None]], list[Segment]] = [], []

    def removed(self, segments: list[Segment], *, exact: bool = False) -> list[Segment]:
        """The segments, by base offset, so that none has an offset of another; warns once if they overlapped.

        Parameters
        ----------
        exact : bool
            For code that writes segments: read what it takes to find each end on this machine, and cut segments with
            offsets more than 2^31-1 above their base offset. Otherwise a segment whose end takes long to find ends
            where the next one begins, which its reader tells if it matters.
        """
        if len(segments) < 2 and not exact:
            return segments
        ends = self._measured(segments, exact)
        state = [(one.path, one.base_offset, end and end.next) for one, end in zip(segments, ends, strict=True)]
        if self._made[0] != state:
            self._made = state, self._disjoint(segments, ends)
        made = self._made[1]
        if not exact:
            return made
        long = {
            one.path
            for number, (one, end) in enumerate(zip(segments, ends, strict=True))
            if _is_long(one, end, _base_behind(segments, number))
        }
        return [part for one in made for part in (_fitting(one) if one.path in long else [one])]

    def outside(self, segments: list[Segment], asked: Sequence[Segment]) -> list[tuple[Segment, list[Segment]]]:
        """Those of the asked segments with offsets below their name or too far above it, each with parts that fit.

        No other segment begins among the parts, unless there is one part with the segment's own name.
        """
        found = list[tuple[Segment, list[Segment]]]()
        for one, end in zip(asked, self._measured(asked, True), strict=True):
            behind = next((each.base_offset for each in segments if each.base_offset > one.base_offset), None)
            if end is None or not (end.first < one.base_offset or _is_long(one, end, behind)):
                continue
            mine = [part for part in self.removed(segments, exact=True) if part.path == one.path]
            others = [each.base_offset for each in segments if each.path != one.path]
            is_apart = not any(min(one.base_offset, end.first) <= base < end.next for base in others)
            if not (mine and is_apart and all(part.span.since is None and part.span.until is None for part in mine)):
                mine = _without_front(one)
            if mine and mine != [one]:
                found.append((one, mine))
        return found

    def _disjoint(self, segments: list[Segment], found: list[_Ends | None]) -> list[Segment]:
        found = list(found)
        while True:
            ends = [end or _ends_named(segments, number) for number, end in enumerate(found)]
            groups = _groups(segments, ends)
            gone = {number for group in groups if len(group) > 1 for number in group if _is_gone(segments[number])}
            if gone:  # the listing has a segment, and what a cleaner put in its place
                segments = [one for number, one in enumerate(segments) if number not in gone]
                found = [end for number, end in enumerate(found) if number not in gone]
                continue
            unknown = [number for group in groups if len(group) > 1 for number in group if found[number] is None]
            if not unknown:
                break
            for number in unknown:  # all of it is read in any case
                found[number] = _ends_read(segments[number])
        made, told = list[Segment](), list[str]()
        for group in groups:
            few, number = segments[group.start : group.stop], group.start
            if len(few) > 1:
                pieces = _disjoint(few, ends[number : group.stop], _base_behind(segments, group.stop - 1))
                if pieces != few:
                    told.append(_twice(few, ends[number : group.stop]))
                made += [replace(piece, shared=True) for piece in pieces]
            elif ends[number].first < few[0].base_offset:
                made.append(replace(few[0], base_offset=ends[number].first, indexed=False))
            elif found[number] is None and not few[0].remote:  # tiered storage cuts its copies itself
                own = Span(
                    since=few[0].base_offset if number else None, until=_base_behind(segments, number) or EVERYTHING
                )
                made.append(replace(few[0], span=own))
            else:
                made.append(few[0])
        if told and self._tells:
            more = f" (and so in {len(told) - 1} more places)" if len(told) > 1 else ""
            warn(
                f"{told[0]}{more}; each offset is read once, from the last segment that begins at or below it and has"
                " it; `kts copy` makes a log without the overlap",
                told[0].partition(": ")[0],
            )
        return made

    def _measured(self, segments: Sequence[Segment], exact: bool) -> list[_Ends | None]:
        """The ends of the segments; None where it takes long to find them."""
        found: list[_Ends | None] = [None] * len(segments)
        keys = dict[int, tuple[str, int]]()
        for number, segment in enumerate(segments):
            if not segment.remote and compression_of_log(segment.path) is None and segment.source.is_here:
                try:
                    keys[number] = segment.path, segment.size_bytes
                except LogStorageError:  # deleted meanwhile: its reader tells it
                    continue
        for number, key in keys.items():
            ends = self._known.get(key)
            if ends is None:
                base = segments[number].base_offset
                ends = _ends(segments[number], key[1], exact) if key[1] else _Ends(base, base)
                if ends is not None:
                    self._known[key] = ends
            found[number] = ends
        if len(self._known) > 2 * len(segments) + 100:
            self._known = {key: self._known[key] for key in keys.values() if key in self._known}
        return found


def tell_rest(segment: Segment) -> None:
    """Tell that a segment whose end was not looked up has offsets that are not its own."""
    since, until = segment.base_offset, segment.span.until
    own = f"from {since} on" if until is None or until == EVERYTHING else f"from {since} to {until - 1}"
    warn(
        f"{segment.path}: of this segment only the offsets {own} are read, which its name and the next one's give it;"
        " it has others, too: `kts verify` says more",
        segment.path,
    )


def _is_long(segment: Segment, end: _Ends | None, behind: int | None) -> bool:
    """Whether a segment has offsets that its index cannot hold."""
    return end is not None and end.reach(segment.base_offset, behind) > segment.base_offset + SEGMENT_OFFSETS


def _without_front(segment: Segment) -> list[Segment]:
    """A segment without the batches below its name, if the rest fits above it; else nothing."""
    base, batches = segment.base_offset, _batches(segment, 0)
    start = next((at for at, first in zip(batches.position, batches.first, strict=True) if first >= base), 0)
    fits = all(
        base <= first and last < base + SEGMENT_OFFSETS
        for at, first, last in zip(batches.position, batches.first, batches.last, strict=True)
        if at >= start
    )
    return [replace(segment, span=Span(start=start))] if start and fits else []


def _base_behind(segments: Sequence[Segment], number: int) -> int | None:
    return segments[number + 1].base_offset if number + 1 < len(segments) else None


def _ends(segment: Segment, size: int, exact: bool) -> _Ends | None:
    """The ends of a segment on this machine, by its headers; None if it takes long to find them."""
    base = segment.base_offset
    try:
        [data] = segment.source.read_small([segment.path], SMALL_BYTES) if size <= SMALL_BYTES else [None]
        if data is not None:
            first, last = _first(data, segment), _last_two(None, data, 0, 0, len(data))
        else:
            before, place = _last_places(segment)
            with File(segment.path) as log:
                first = _first(log.read(0, HEADER_BYTES), segment)
                data = log.read(before, min(max(SMALL_BYTES, place - before + FIRST_READ_BYTES), size - before))
                last = _last_two(log, data, before, place, size)
        if last is None:  # no index, or damage in it or in the log
            place = Lookups(segment).place(EVERYTHING)
            if size - place > MOST_BYTES and not exact:
                return None
            last = _last_two_sound(segment, place)
    except (CorruptRecordError, LogStorageError):  # its reader tells it
        return _Ends(base, base)
    return _of_last_two(first, last, base)


def _ends_named(segments: Sequence[Segment], number: int) -> _Ends:
    """The ends of a segment that takes long to read, by its name and the next one's."""
    base, behind = segments[number].base_offset, _base_behind(segments, number)
    return _Ends(base, base if behind is None else behind)


def _ends_read(segment: Segment) -> _Ends:
    """The ends of any segment, which is read."""
    base = segment.base_offset
    try:
        with segment.open() as log:
            first = _first(log.read(0, HEADER_BYTES), segment)
        return _of_last_two(first, _last_two_sound(segment, 0), base)
    except (CorruptRecordError, LogStorageError):
        return _Ends(base, base)


def _of_last_two(first: int, last: list[tuple[int, int]], base: int) -> _Ends:
    if not last:
        return _Ends(base, base)
    begin, end = last[-1]
    sure = len(last) > 1 and (
        begin == last[0][1] + 1 or (begin < 0 and last[0][1] < end <= last[0][1] + SEGMENT_OFFSETS)
    )
    return _Ends(first, end + 1, sure)


def _last_two_sound(segment: Segment, place: int) -> list[tuple[int, int]]:
    """First and last offsets of the last two entries behind a border, also behind damage."""
    last = list[tuple[int, int]]()
    for batch in header_scan(segment, place, segment.base_offset, True, verify_crc=False, closed=True):
        firsts, lasts = (batch.column(name)[-2:].tolist() for name in ("base_offset", "last_offset"))
        last = [*last, *zip(firsts, lasts, strict=True)][-2:]
    return last


def _first(data: bytes, segment: Segment) -> int:
    """The offset of the first entry; the base offset if it cannot be told."""
    base = segment.base_offset
    try:
        head = read_header(data)
    except CorruptRecordError:
        return base
    if head is None or head.base_offset >= 0:
        return base if head is None else head.base_offset
    if head.last_offset >= base:  # a wrapper, whose header lacks its first offset
        return base
    with segment.open() as log:
        entry = entry_at(log, log.size(), 0)
    return head.last_offset if entry is None else min(max(entry.first_offset, 0), head.last_offset)


def _last_places(segment: Segment) -> tuple[int, int]:
    """Where the last two entries of the offset index point, which the log must confirm; zeros if it cannot tell.

    Only the end of the index is read.
    """
    try:
        path = segment.path_beside(".index")
        if path is None:
            return 0, 0
        with File(path) as index:
            count = index.size()
            ends = OffsetIndex(index.read(max(count - 16, 0), 16), segment.base_offset)
    except LogStorageError:
        return 0, 0
    if count % 8 or not len(ends):  # damaged, or zeros that an open one has at its end
        return 0, 0
    before, place = ends.entry(0)[1] if count > 8 else 0, ends.entry(len(ends) - 1)[1]
    return (before, place) if 0 <= before <= place else (0, 0)


def _last_two(log: Readable | None, data: bytes, position: int, border: int, size: int) -> list[tuple[int, int]] | None:
    """First and last offsets of the last two whole entries, from a position on; None if it meets damage or reads much.

    Parameters
    ----------
    log : Readable, optional
        Where more than ``data`` is read from.
    border : int
        One of the entries must begin there.
    """
    found, left, confirmed = list[tuple[int, int]](), MOST_BYTES, position == border
    while data:
        left -= len(data)
        entries = Entries(data, start=position, until_damage=True)
        if entries.error is not None:
            return None
        if count := len(entries):
            confirmed = confirmed or border in entries.column("position").tolist()
            found += [
                (one.base_offset, one.last_offset) for one in (entries[i] for i in range(max(count - 2, 0), count))
            ]
        entry = read_header(data, entries.end - position)
        was, position = position, entries.end
        if entry is not None and position + entry.size <= size:  # it ends behind the bytes that were read
            confirmed = confirmed or position == border
            found.append((entry.base_offset, entry.last_offset))
            position += entry.size
        if log is None or position in (was, size) or was + len(data) >= size:
            break
        if left <= 0:
            return None
        want = LAST_READ_BYTES if entry is None or entry.size < len(data) else FIRST_READ_BYTES
        data = log.read(position, min(want, left, size - position))
    return found[-2:] if confirmed else None


def _groups(segments: Sequence[Segment], ends: Sequence[_Ends]) -> list[range]:
    """The segments in groups, so that those of different groups have no offset in common."""
    groups = list[tuple[range, int]]()  # each with the offset after its last
    for number, (segment, end) in enumerate(zip(segments, ends, strict=True)):
        begun, reach = number, end.reach(segment.base_offset, _base_behind(segments, number))
        while groups and groups[-1][1] > min(segment.base_offset, end.first):
            before, reached = groups.pop()
            begun, reach = before.start, max(reach, reached)
        groups.append((range(begun, number + 1), reach))
    return [group for group, _ in groups]


def _is_gone(segment: Segment) -> bool:
    """True for a segment of this machine that was deleted since it was listed."""
    return segment.source.is_here and not segment.source.exists(segment.path)


def _twice(segments: Sequence[Segment], ends: Sequence[_Ends]) -> str:
    """Which segment holds what another has."""
    reach = ends[0].next
    for segment, end in zip(segments[1:], ends[1:], strict=True):
        if segment.base_offset < reach:
            begins = f"{segment.path}: the segment starts at offset {segment.base_offset}"
            return f"{begins}, but the one before it ends with {reach - 1}"
        reach = max(reach, end.next)
    return f"{segments[-1].path}: the segment starts at offset {ends[-1].first}, which lies below its name"


# --- a group --------------------------------------------------------------------------------------


class _Slot(NamedTuple):
    """A sound batch, or bytes before, between or behind batches, with the offsets that they may have had."""

    position: int
    end: int
    first: int
    last: int
    is_batch: bool


class _Item(NamedTuple):
    """The offsets from ``low`` to ``high`` of a slot, which no other item has."""

    low: int
    is_batch: bool
    segment: int
    slot: int
    high: int


def _disjoint(segments: Sequence[Segment], ends: Sequence[_Ends], behind: int | None) -> list[Segment]:
    """The pieces of segments that overlap, in the order of their offsets."""
    lowest = min(min(end.first, one.base_offset) for one, end in zip(segments[1:], ends[1:], strict=True))
    starts = [segments[0].start_position(lowest), *[0] * (len(segments) - 1)]
    batches = [_batches(segment, start) for segment, start in zip(segments, starts, strict=True)]
    times = Counter(key for one in batches for key in {*zip(one.first, one.last, one.size, one.time, strict=True)})
    stop = max(end.next for end in ends)
    slots = list[list[_Slot]]()
    for number, segment in enumerate(segments):
        others = [one for place, one in enumerate(batches) if place != number]
        slots.append(_slots(segment, starts[number], batches[number], times, others, stop, behind))
    taken, items = _Taken(), list[_Item]()
    for below in (False, True):  # a broker gives no batches below the segment's name
        for number in reversed(range(len(segments))):
            base, mine = segments[number].base_offset, list[tuple[int, int]]()
            for place, slot in enumerate(slots[number]):
                if slot.is_batch and (slot.last < base) == below:
                    items += [_Item(low, True, number, place, high) for low, high in taken.left(slot.first, slot.last)]
                    mine.append((slot.first, slot.last))
            taken.add(mine)
    for number, found in enumerate(slots):
        for place, slot in enumerate(found):
            if not slot.is_batch and (slot.first > slot.last or any(taken.left(slot.first, slot.last))):
                items.append(_Item(slot.first, False, number, place, slot.last))
    return _pieces(segments, slots, sorted(items))


class _Batches(NamedTuple):
    """The sound batches of a segment."""

    position: list[int]
    size: list[int]
    first: list[int]
    last: list[int]
    time: list[int]


def _batches(segment: Segment, start: int) -> _Batches:
    found = _Batches([], [], [], [], [])
    try:
        for batch in header_scan(segment, start, segment.base_offset, True, closed=True):
            lasts, firsts = batch.column("last_offset"), batch.column("base_offset").copy()
            before = np.concatenate(([found.last[-1] if found.last else segment.base_offset - 1], lasts[:-1]))
            before = np.minimum(
                before + 1, lasts
            )  # of a wrapper, whose header lacks its first offset, if it is damaged
            for row in np.flatnonzero(firsts < 0).tolist():
                with segment.open() as log:
                    entry = entry_at(log, segment.size_bytes, int(batch.column("position")[row]))
                firsts[row] = before[row] if entry is None or entry.first_offset < 0 else entry.first_offset
            for column, values in zip(
                found,
                (batch.column("position"), batch.column("size"), firsts, lasts, batch.column("max_timestamp")),
                strict=True,
            ):
                column += values.tolist()
    except (CorruptRecordError, LogStorageError):  # its reader tells it
        pass
    return found


def _slots(
    segment: Segment,
    start: int,
    batches: _Batches,
    times: Counter[tuple[int, int, int, int]],
    others: Sequence[_Batches],
    stop: int,
    behind: int | None,
) -> list[_Slot]:
    """The bytes of a segment from end to end.

    No CRC covers offsets. A batch out of order has none of its offsets, and neither has a last one that does not follow
    the one before, if the other segments contradict it.
    """
    count = len(batches.first)

    reach = max([one.last[-1] for one in others if one.last] + [-1 if behind is None else behind - 1])

    def is_strange(i: int, expected: int) -> bool:
        """Whether no other segment makes an offset likely: it has another batch there, or ends before.

        The batches that were damaged before it may have had the offsets between. A batch of another segment that
        follows it, or that it follows, confirms it.
        """
        first, last = batches.first[i], batches.last[i]
        follows = i == 0 or batches.position[i] == batches.position[i - 1] + batches.size[i - 1]
        confirmed = any(last + 1 in one.first or first - 1 in one.last for one in others)
        if follows and (first > reach + 1 or ((first ^ expected).bit_count() == 1 and not confirmed)):
            return True
        return any(
            low <= last and high >= first for one in others for low, high in zip(one.first, one.last, strict=True)
        )

    def is_odd(i: int) -> bool:
        if times[batches.first[i], batches.last[i], batches.size[i], batches.time[i]] > 1:
            return False
        if i == 0 and batches.last[i] < segment.base_offset and is_strange(i, segment.base_offset):
            return True
        before = batches.last[i - 1] if i else -1
        if i + 1 == count:
            return count > 1 and batches.first[i] != before + 1 and is_strange(i, before + 1)
        behind = batches.first[i + 1]
        return before < behind and not before < batches.first[i] <= batches.last[i] < behind

    sound = [i for i in range(count) if not is_odd(i)]
    found, position, reached = list[_Slot](), start, segment.base_offset - 1
    if start:
        found.append(_Slot(0, start, segment.base_offset, segment.base_offset - 1, False))
    for i in sound:
        if batches.position[i] > position:
            found.append(_Slot(position, batches.position[i], reached + 1, batches.first[i] - 1, False))
        position, reached = batches.position[i] + batches.size[i], batches.last[i]
        found.append(_Slot(batches.position[i], position, batches.first[i], reached, True))
    try:
        size = segment.size_bytes
    except LogStorageError:  # deleted meanwhile: its reader tells it
        return found
    if size > position:
        is_odd_last = count > 0 and batches.position[-1] >= position
        if is_odd_last and batches.first[-1] > reach + 1 and batches.position[-1] + batches.size[-1] < size:
            reached = max(reached, reach)  # damage hides what would confirm it: it keeps its place, behind all others
        found.append(_Slot(position, size, reached + 1, max(stop - 1, reached + 1), False))
    return found


class _Taken:
    """Ranges of offsets, both ends included, in order and disjoint."""

    def __init__(self) -> None:
        self.lows: list[int] = []
        self.highs: list[int] = []

    def left(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The parts of a range that are not taken."""
        number = bisect_left(self.highs, first)
        while first <= last:
            if number == len(self.lows) or self.lows[number] > last:
                yield first, last
                return
            if first < self.lows[number]:
                yield first, self.lows[number] - 1
            first, number = self.highs[number] + 1, number + 1

    def add(self, more: list[tuple[int, int]]) -> None:
        """Take ranges, too."""
        lows, highs = list[int](), list[int]()
        for low, high in sorted([*zip(self.lows, self.highs, strict=True), *more]):
            if highs and low <= highs[-1] + 1:
                highs[-1] = max(highs[-1], high)
            else:
                lows.append(low)
                highs.append(high)
        self.lows, self.highs = lows, highs


def _pieces(segments: Sequence[Segment], slots: Sequence[list[_Slot]], items: list[_Item]) -> list[Segment]:
    """One piece for each run of items that follow one another in a segment."""
    made, reached, begun = list[Segment](), -1, 0
    for number, item in enumerate(items):
        behind = items[number + 1] if number + 1 < len(items) else None
        if behind is not None and (behind.segment, behind.slot) == (item.segment, item.slot + 1):
            continue
        head, segment, mine = items[begun], segments[item.segment], slots[item.segment]
        first, last = mine[head.slot], mine[item.slot]
        since = head.low if first.is_batch and head.low > first.first else None
        until = item.high + 1 if last.is_batch and item.high < last.last else None
        is_rest = item.slot + 1 == len(mine) and since is None and until is None
        span = Span(first.position if head.slot else 0, None if is_rest else last.end, since, until)
        if span != Span():
            segment = replace(segment, span=span)
        if span.start or span.since is not None or reached >= segment.base_offset or head.low < segment.base_offset:
            segment = replace(segment, base_offset=head.low, indexed=False)
        made.append(segment)
        reached = max(reached, *(one.high for one in items[begun : number + 1] if one.is_batch), -1)
        begun = number + 1
    return made


# --- a segment with too many offsets --------------------------------------------------------------


def _fitting(segment: Segment) -> list[Segment]:
    """A segment in parts whose offsets fit above their base offsets, cut where a broker cuts it."""
    batches = _batches(segment, segment.span.start)
    base, begun, cuts = segment.base_offset, segment.span.start, list[tuple[int, int]]()
    for position, first, last in zip(batches.position, batches.first, batches.last, strict=True):
        if last >= base + SEGMENT_OFFSETS:
            cuts.append((base, position))
            base = first
    if not cuts:
        return [segment]
    made, whole = list[Segment](), segment.span
    for number, (first, stop) in enumerate([*cuts, (base, whole.end)]):
        is_first, is_last = first == segment.base_offset, number == len(cuts)
        span = Span(begun, stop, None if made else whole.since, whole.until if is_last else None)
        if stop is None or stop > begun:  # else not even the first batch fits
            made.append(replace(segment, span=span, base_offset=first, indexed=segment.indexed and is_first))
        begun = begun if stop is None else stop
    return made
