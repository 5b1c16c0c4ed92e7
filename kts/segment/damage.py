"""Find the next sound entry after damage, resume header scans there, and tell what is left out at a log's end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kts.codec.columns import decode
from kts.codec.layout import OVERHEAD_BYTES, SMALLEST_ENTRY_BYTES, Entries, candidates, claimed_size
from kts.errors import CorruptRecordError
from kts.segment.entries import Batches, at
from kts.segment.index import SEGMENT_OFFSETS
from kts.segment.rereading import warn
from kts.segment.segment import Segment
from kts.store.protocol import Readable

if TYPE_CHECKING:
    pass

FIRST_WINDOW = 2**12
LAST_WINDOW = 2**20
AFTER_DAMAGE_BYTES = 2**14  # first slice after damage: more may follow soon
WRONG_SIZE = "; its size is wrong or bytes are missing"  # ends an error
CLOSED_WITHIN = "an entry reaches past the end of its closed segment"


class SearchBudget:
    """A limit on the work of looking for sound entries: a few times the bytes of the file in all.

    Notes
    -----
    A hostile file can claim a large entry at every byte, and each would cost a CRC.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.spent = 0

    def allows(self, position: int, cost: int) -> bool:
        """Count the cost and return True, unless it is too high for the bytes passed so far."""
        self.first = position if self.first is None else self.first
        if self.spent + cost > 2**24 + 8 * max(position - self.first, 0):
            return False
        self.spent += cost
        return True


def next_sound_entry(
    where: Segment | Readable,
    position: int,
    end: int,
    expected_offset: int,
    budget: SearchBudget | None = None,
    span: int = SEGMENT_OFFSETS,
) -> int | None:
    """Where the first sound entry after damage starts, or None if there is none.

    Parameters
    ----------
    where : Segment or Readable
        The segment, which is opened; or an open file, or bytes in memory.
    position : int
        Start of the damaged entry.
    end : int
        Where the bytes end.
    expected_offset : int
        Entries below this offset are not accepted.
    budget : SearchBudget, optional
        Shared by all searches in one file.
    span : int
        Entries this far above the offset are not accepted.

    Notes
    -----
    The damaged entry's size is accepted if a sound entry or the end of the bytes follows it, and no chain of sound
    entries inside it leads there. Otherwise every byte is tried: an entry is sound if its size fits, its magic is
    known, its offset can follow, and its CRC is correct. Costs O(n) for n bytes.
    """
    if isinstance(where, Segment):
        with where.open() as file:
            return next_sound_entry(file, position, end, expected_offset, budget, span)
    budget = SearchBudget() if budget is None else budget
    look = _Look(_Holes(where), min(end, where.size()), expected_offset, budget, span)
    size = look.size_at(position)
    if size is not None:
        follower = position + size
        if follower == look.end or look.is_sound(follower):
            inside = look.chain(position + 1, follower) if look.budget.allows(position, size) else None
            return inside if inside is not None else None if follower == look.end else follower
    return next(look.sound_entries(position + 1, look.end), None)


def past_end(position: int, behind: int) -> str:
    """What is wrong with an entry that reaches past the end of the file and has a sound one behind its start."""
    return f"an entry reaches past the end of the file, but a sound one starts {behind - position} bytes on"


def check_rest(
    segment: Segment, position: int, end: int, expected_offset: int, closed: bool, budget: SearchBudget | None = None
) -> None:
    """Raise if the rest of a log, at whose start no whole entry lies, is damage; else warn that it is left out.

    For the arguments see ``next_sound_entry``; ``closed`` is true for a segment that others follow. A copy in tiered
    storage is closed in any case: it was put there whole, and no crash tears it.
    """
    closed = closed or segment.remote
    behind = next_sound_entry(segment, position, end, expected_offset, budget)
    if behind is not None or (closed and segment.size_bytes == end):
        what = CLOSED_WITHIN if behind is None else past_end(position, behind)
        raise CorruptRecordError(f"{what}{WRONG_SIZE}", path=segment.path, position=position)
    if not closed:
        tell_incomplete(segment, position, end)


def tell_incomplete(segment: Segment, position: int, end: int) -> None:
    """Warn that the bytes from a position to the end of the last segment are no whole entry, and are left out.

    No warning if the file has changed since: a writer goes on, or has cut the entry.
    """
    if segment.size_bytes != end:
        return
    left = f"{end - position} bytes at position {position} are left out"
    if position == 0:
        why = "the file holds no whole entry; is it a Kafka segment?"
    else:
        why = "an incomplete entry, such as a crash leaves"
    warn(f"{segment.path}: {left}: {why}", segment.path)


class _Holes:
    """A file in which bytes that cannot be read are zeros: no sound entry has them in it."""

    def __init__(self, file: Readable) -> None:
        self.file = file
        self.hole = 0, 0  # the last one: the next read mostly begins in it

    def read(self, position: int, count: int) -> bytes:
        parts, end = list[bytes](), position + count
        while position < end:
            if self.hole[0] <= position < self.hole[1]:
                stop = min(self.hole[1], end)
                parts.append(bytes(stop - position))
                position = stop
                continue
            try:
                parts.append(self.file.read(position, end - position))
                break
            except CorruptRecordError as error:
                hole = max(error.position or 0, position)
                if hole > position:
                    parts.append(self.file.read(position, hole - position))
                self.hole = hole, max(getattr(error, "end", end), hole + 1)
                position = hole
        return b"".join(parts)


class _Look:
    """A file, and the test for sound entries in it."""

    def __init__(self, file: _Holes, end: int, expected_offset: int, budget: SearchBudget, span: int) -> None:
        self.file = file
        self.end = end
        self.expected_offset = expected_offset
        self.budget = budget
        self.span = span

    def size_at(self, position: int, end: int | None = None) -> int | None:
        """Size of the entry that starts there, by its size field; None if it cannot be one."""
        header = self.file.read(position, OVERHEAD_BYTES)
        size = claimed_size(header) or 0
        fits = size >= SMALLEST_ENTRY_BYTES and position + size <= (self.end if end is None else end)
        return size if fits else None

    def is_sound(self, position: int, end: int | None = None) -> bool:
        size = self.size_at(position, end)
        if size is None or not self.budget.allows(position, size):
            return False
        try:
            found = Entries(self.file.read(position, size), verify_crc=True)
        except CorruptRecordError:
            return False
        is_one = len(found) == 1 and found.all_sound
        return is_one and self.expected_offset <= found[0].last_offset < self.expected_offset + self.span

    def sound_entries(self, start: int, end: int) -> Iterator[int]:
        """The start of every sound entry that lies between two positions."""
        window = FIRST_WINDOW
        while start + SMALLEST_ENTRY_BYTES <= end:
            data = self.file.read(start, min(window + SMALLEST_ENTRY_BYTES - 1, end - start))
            for candidate in self.candidates(data, start, end):
                if self.is_sound(candidate, end):
                    yield candidate
            start += window
            window = min(2 * window, LAST_WINDOW)

    def candidates(self, data: bytes, start: int, end: int) -> list[int]:
        """Positions in a window where offset, size and magic could begin an entry."""
        at, sizes, offsets = candidates(data)
        fits = (sizes >= SMALLEST_ENTRY_BYTES) & (start + at + sizes <= end)
        fits &= (offsets >= self.expected_offset) & (offsets - self.expected_offset < self.span)
        found: list[int] = (start + at[fits]).tolist()
        return found

    def chain(self, start: int, end: int) -> int | None:
        """Start of the first run of adjacent sound entries that ends exactly at ``end``; entries in a value do not."""
        seen: set[int] = set()
        for first in self.sound_entries(start, end):
            position = first
            while position < end and position not in seen and self.is_sound(position, end):
                seen.add(position)
                position += self.size_at(position, end) or end
            if position == end:
                return first
        return None


def header_scan(
    segment: Segment,
    start: int,
    expected_offset: int,
    skip_damage: bool,
    first_bytes: int | None = None,
    file: Readable | None = None,
    verify_crc: bool = True,
    closed: bool = False,
) -> Iterator[Batches]:
    """The headers of the sound batches from a position on, slice by slice; those before damage come first.

    Raises
    ------
    CorruptRecordError
        Damage. With ``skip_damage`` the scan resumes behind it, where a reader does. An incomplete last batch is none,
        if nothing sound lies behind its beginning and the segment is not closed (as for ``check_rest``): a warning
        tells that it is left out.
    """
    budget, size = SearchBudget(), segment.size_bytes if file is None else file.size()
    while True:
        try:
            for batches in segment.batches(start, None, first_bytes, file):
                damaged = None
                if verify_crc and not batches.all_sound:
                    damaged = int(batches.column("crc_ok").argmin())
                    size_of_damaged = len(batches.entry(damaged))
                    batches.rows = damaged
                start = batches.end
                if len(batches) > 1:  # no CRC covers offsets: one of two is believed
                    expected_offset = int(batches.column("last_offset")[-2:].min()) + 1
                if len(batches):
                    yield batches
                if damaged is not None:
                    raise _wrong_crc(segment, start, size_of_damaged)
            if start >= size:
                return
            is_whole = True
        except CorruptRecordError as error:
            if not skip_damage:
                raise
            start, is_whole = error.position or start, False
        if not skip_damage:
            return check_rest(segment, start, size, expected_offset, closed, budget)
        behind = next_sound_entry(segment, start, size, expected_offset, budget)
        if behind is None:
            if is_whole and not (closed or segment.remote):
                tell_incomplete(segment, start, size)
            return
        start, first_bytes = behind, AFTER_DAMAGE_BYTES


def _wrong_crc(segment: Segment, position: int, size: int) -> CorruptRecordError:
    """The error that decoding the entry at a position raises."""
    try:
        with segment.open() as file:
            decode(file.read(position, size), ["offset"])
    except CorruptRecordError as error:
        return at(error, segment.path, position)
    return CorruptRecordError("the CRC was wrong until the log was rewritten", path=segment.path, position=position)


def next_offset(segment: Segment, *, skip_damage: bool = True, closed: bool = False) -> int:
    """The offset after the last whole entry of a segment; its base offset if there is none.

    Raises
    ------
    CorruptRecordError
        Damage, unless it is skipped; as for ``header_scan``. A wrong CRC is told by who reads the entry.
    """
    end = segment.base_offset
    start = segment.tail_position()
    for batches in header_scan(segment, start, end, skip_damage, verify_crc=skip_damage, closed=closed):
        end = max(end, int(batches.column("last_offset").max()) + 1)
    return end
