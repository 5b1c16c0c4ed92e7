"""The reader's view of an open log: reads of whole published batches, and searches by timestamp."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kts.arguments import INT64_MAX
from kts.errors import OffsetOutOfRangeError, UnsupportedForMessageFormatError
from kts.model import NO_TIMESTAMP, TimestampOffset
from kts.segment.entries import Batches, Slices, decoded, decoded_by, shallow_entries
from kts.segment.log_segment import LogSegment
from kts.segment.search import Found, ReadStats, claim_of, first_match, greatest_in, greatest_of
from kts.store.local import FileRange

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Fetched(NamedTuple):
    """Bytes of a log, starting with the entry that contains an offset."""

    records: bytes
    first_entry_incomplete: bool  # not even the first entry is whole
    base_offset: int  # of the segment they come from
    position: int  # in its file


class Sliced(NamedTuple):
    """The same as ``Fetched``, as a range of the file."""

    records: FileRange
    first_entry_incomplete: bool
    base_offset: int
    position: int
    segment: LogSegment  # that lends it


class View(NamedTuple):
    """A published state of a log. A read uses one view and nothing else of the log."""

    segments: tuple[LogSegment, ...]
    bases: tuple[int, ...]
    end_offset: int
    active_size: int
    log_start_offset: int

    def size(self, number: int) -> int:
        """Published bytes of a segment."""
        return self.active_size if number + 1 == len(self.segments) else self.segments[number].size

    def position_of(self, number: int, offset: int) -> int:
        """The position of a segment's first entry that reaches an offset; its published size if it has none."""
        if number + 1 < len(self.segments) and offset >= self.bases[number + 1]:
            return self.size(number)
        if offset >= self.end_offset:
            return self.size(number)
        entry = self.segments[number].translate_offset(offset)
        return self.size(number) if entry is None else min(entry.position, self.size(number))


def read(view: View, offset: int, max_bytes: int, min_one_message: bool, bound: int) -> Fetched:
    """The bytes from an offset on, up to but without the entry that contains the offset ``bound``.

    Raises
    ------
    OffsetOutOfRangeError
        The offset lies outside of the log.

    Notes
    -----
    Source: Log.read (0.10.2), LocalLog.read (3.9).
    """
    for segment, limit in _candidates(view, offset, bound):
        found = segment.read(offset, max_bytes, max_position=limit, min_one_message=min_one_message)
        if found is not None:
            return Fetched(found.data, found.first_entry_incomplete, segment.base_offset, found.position)
    return Fetched(b"", False, view.bases[-1], view.active_size)


def slice_of(view: View, offset: int, max_bytes: int, min_one_message: bool, bound: int) -> Sliced:
    """The same as ``read``, as a range of the file."""
    for segment, limit in _candidates(view, offset, bound):
        found = segment.slice(offset, max_bytes, max_position=limit, min_one_message=min_one_message)
        if found is not None:
            return Sliced(found.data, found.first_entry_incomplete, segment.base_offset, found.position, segment)
    return Sliced(FileRange(None, view.active_size, 0), False, view.bases[-1], view.active_size, view.segments[-1])


def _candidates(view: View, offset: int, bound: int) -> Iterator[tuple[LogSegment, int]]:
    """The segments that may contain the first entry from an offset on, each with the position of the bound."""
    if offset > view.end_offset or offset < view.log_start_offset:
        raise OffsetOutOfRangeError(
            f"expected an offset from {view.log_start_offset} to {view.end_offset}, found {offset}", offset=offset
        )
    number = bisect_right(view.bases, offset) - 1
    if offset >= bound or number < 0:
        return
    while number < len(view.segments) and view.bases[number] < bound:
        yield view.segments[number], view.position_of(number, bound)
        number += 1


def offset_for_timestamp(view: View, target: int) -> TimestampOffset | None:
    """The first record at or after a time, in whichever segment it is."""
    first = sum(base <= view.log_start_offset for base in view.bases[1:])
    segments = view.segments[first:]
    return _published(view, first_match(segments, segments[0].query(target, view.log_start_offset), ReadStats()))


def shipped_offset_for_timestamp(view: View, target: int, magic: int) -> TimestampOffset | None:
    """A broker's answer: it searches only the first segment whose largest timestamp reaches the time.

    Raises
    ------
    UnsupportedForMessageFormatError
        The topic's format has no timestamps.
    """
    if magic == 0:
        raise UnsupportedForMessageFormatError(
            "a search by timestamp needs message format 0.10.0 or later, found magic 0"
        )
    query = view.segments[0].query(target, view.log_start_offset, one_segment=True)
    return first_match(view.segments, query, ReadStats())


def shipped_max_timestamp(view: View) -> TimestampOffset | None:
    """A broker's answer: from the segment with the greatest known timestamp, even below the log start offset."""
    segment = max(view.segments, key=lambda segment: segment.max_timestamp_so_far.timestamp_ms)
    largest, place = segment.max_timestamp_so_far
    start = segment.offset_index.lookup(place)[1]
    for entry in shallow_entries(segment.log_file(), start, segment.size, segment.behaviour, segment.path):
        if entry.max_timestamp == largest:
            if entry.magic == 0:
                return None
            data = segment.log_file().read(entry.position, entry.size)
            offsets, timestamps = decoded_by(data, segment.behaviour)
            hits = timestamps == largest  # a record must have it: the header may be wrong
            return TimestampOffset(largest, int(offsets[hits.argmax()])) if hits.any() else None
    return None


def max_timestamp(view: View) -> TimestampOffset | None:
    """The greatest timestamp and the first record that has it.

    Notes
    -----
    Segments whose indexes have no timestamp are read.
    """
    negative = view.segments[0].behaviour.times.minus_one_means_none
    counted = [
        (segment, view.size(number))
        for number, segment in enumerate(view.segments)
        if number + 1 == len(view.segments) or view.bases[number + 1] > view.log_start_offset
    ]

    def read(number: int) -> TimestampOffset | None:
        segment, size = counted[number]
        return segment_max_timestamp(segment, view.log_start_offset, view.end_offset, size)

    claims: list[int] = []
    found: Found = {}
    for number, (segment, _) in enumerate(counted):
        largest = segment.max_timestamp_so_far.timestamp_ms
        if not _is_time(segment, largest):
            found[number] = read(number)
            largest = claim_of(found[number], negative=negative)
        claims.append(largest)
    return greatest_of(claims, found, read, negative=negative)


def segment_max_timestamp(
    segment: LogSegment, starting_offset: int, end_offset: int = INT64_MAX, end_position: int | None = None
) -> TimestampOffset | None:
    """The greatest timestamp of a segment's records from an offset on, and the first record that has it.

    Records beyond the end are not published yet, although the segment's greatest timestamp may be one of theirs. If
    times before 1970 are allowed, -1 means no time: it is the answer only if no record has a time.
    """
    end = segment.size if end_position is None else end_position
    largest, place = segment.max_timestamp_so_far
    if _is_time(segment, largest) and starting_offset <= place < end_offset:
        found = _greatest(segment, starting_offset, segment.trust.place(place), end)
        # 0.10.2 indexed times for magic 0, whose records have none.
        if found is not None and found.timestamp_ms >= largest:
            return found
    return _greatest(segment, starting_offset, segment.trust.place(starting_offset), end)


def _greatest(segment: LogSegment, starting_offset: int, start: int, end: int) -> TimestampOffset | None:
    slices = Slices(segment.log_file(), start, end)
    headers = ((part.column("max_timestamp"), part.column("last_offset"), partial(_records, part)) for part in slices)
    return greatest_in(headers, starting_offset, negative=segment.behaviour.times.minus_one_means_none)


def _records(batches: Batches, row: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return decoded(batches.entry(row))


def _is_time(segment: LogSegment, timestamp_ms: int) -> bool:
    """Whether an index can hold this greatest timestamp; if not, the records must be read."""
    return timestamp_ms >= 0 or (segment.behaviour.times.minus_one_means_none and timestamp_ms != NO_TIMESTAMP)


def _published(view: View, found: TimestampOffset | None) -> TimestampOffset | None:
    return found if found is not None and found.offset < view.end_offset else None
