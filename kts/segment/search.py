"""Search by time: find the first record at or after a time, and explain the answer.

There is one search. It visits the segments in order and reads only those that can hold such a record, each from the
position that its indexes give. If a segment has no such record, KIP-33's search goes on to the next one; with
``Query.one_segment`` it stops there, as the shipped search does.

An entry (t0, o0) of the time index says that no record before the position of o0 is later than t0. A search for t0 or
later starts there. A closed segment with a greatest timestamp before the target is not read.

Targets below 0 are compared as numbers, with -1 for records without a timestamp. Indexes and headers do not cover such
times unless negative timestamps are allowed (KIP-228), so the records are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from kts.arguments import timestamp
from kts.behaviour import KAFKA_TIMES, NOTHING, TimeRules
from kts.codec.columns import decode
from kts.errors import CorruptRecordError, KtsError
from kts.model import NO_TIMESTAMP, TimestampOffset
from kts.segment.damage import header_scan
from kts.segment.entries import Batches, at
from kts.segment.rereading import warn
from kts.segment.segment import Closed, Lookups, Segment, closed_times, int64
from kts.times import Time, doubt_of, milliseconds, time_unit

if TYPE_CHECKING:
    import numpy.typing as npt

    Times = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # offsets and timestamps of records
    Headers = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Callable[[int], Times]]

    from kts.segment.partition import ReadablePartition

FIRST_BYTES = 2**13  # most searches end within an index interval (4096 bytes); doubled from slice to slice
EXAMPLES = 5

# --- the search -----------------------------------------------------------------------------------


class Query(NamedTuple):
    """The target and rules of a search.

    Parameters
    ----------
    timestamp_ms : int
        The target: the first record at or after it.
    first_offset : int
        Records below this offset do not count.
    one_segment : bool
        As brokers ship it: search only the first segment that reaches the target by its largest timestamp, or by its
        file time if it has none.
    none_is_a_time : bool
        -1 is compared as a number, as Kafka does. False (KIP-228): a record without a timestamp is never found.
    exact_headers : bool
        Batch headers are reliable for times before 1970.
    ends_at_first_entry : bool
        Take the answer from the first entry that reaches the target, whatever its offset.
    """

    timestamp_ms: int
    first_offset: int
    one_segment: bool = False
    none_is_a_time: bool = True
    exact_headers: bool = False
    ends_at_first_entry: bool = False

    @property
    def reads_all(self) -> bool:
        """True if neither indexes nor headers can rule anything out."""
        return self.timestamp_ms < 0 and not self.exact_headers

    def may_match(self, max_timestamps: Any) -> Any:
        """Whether a header with this greatest timestamp allows a match; for a number or an array of them.

        A header with -1 may hide earlier times.
        """
        found = (max_timestamps >= self.timestamp_ms) | self.reads_all
        return found if self.none_is_a_time else found | (max_timestamps == NO_TIMESTAMP)

    def first_match(self, offsets: npt.NDArray[np.int64], timestamps: npt.NDArray[np.int64]) -> TimestampOffset | None:
        """The first of some records that matches."""
        matches = timestamps >= self.timestamp_ms
        if not self.ends_at_first_entry:
            matches &= offsets >= self.first_offset
        if not self.none_is_a_time:
            matches &= timestamps != NO_TIMESTAMP
        if not matches.any():
            return None
        first = int(matches.argmax())
        return TimestampOffset(int(timestamps[first]), int(offsets[first]))


class Records(NamedTuple):
    """The records of one entry of the log."""

    position: int
    offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]


@dataclass(slots=True)
class ReadStats:
    """Counts of what a search read.

    Attributes
    ----------
    segment : str or None
        The ``.log`` file of the last segment read. The fields after it have its base offset, the time-index entry that
        the search started from, and the positions read.
    """

    segments_skipped: int = 0
    segments_read: int = 0
    bytes_read: int = 0
    batches_read: int = 0
    records_read: int = 0
    segment: str | None = None
    segment_base_offset: int | None = None
    time_index_entry: tuple[int, int] | None = None
    start_position: int = 0
    end_position: int = 0


class SearchedSegment(Protocol):
    """The interface of a segment that a search uses."""

    @property
    def path(self) -> str:
        """The ``.log`` file."""

    def reaches(self, query: Query) -> bool:
        """False if no record of the segment can match."""

    def matching_entries(self, query: Query, stats: ReadStats) -> Iterator[Records]:
        """The records of the entries that can match, in order, from the position that the indexes give."""

    def check_end(self) -> None:
        """Raise if the end of the segment is missing."""


def first_match(segments: Iterable[SearchedSegment], query: Query, stats: ReadStats) -> TimestampOffset | None:
    """The first matching record of some segments; adds to ``stats``.

    Notes
    -----
    Source: KIP-33, "Search message by timestamp"; Log.fetchOffsetsByTimestamp (0.10.2),
    UnifiedLog.fetchOffsetByTimestamp (3.9).
    """
    for segment in segments:
        if not segment.reaches(query):
            stats.segments_skipped += 1
            continue
        found = first_match_in(segment, query, stats)
        if found is not None or query.one_segment:
            return found
        segment.check_end()
    return None


def first_match_in(segment: SearchedSegment, query: Query, stats: ReadStats) -> TimestampOffset | None:
    """The first matching record of one segment.

    Raises
    ------
    KtsError
        The query ends at the first entry, whose header promises a match, and no record matches.

    Notes
    -----
    Source: LogSegment.findOffsetByTimestamp.
    """
    for records in segment.matching_entries(query, stats):
        found = query.first_match(records.offsets, records.timestamps)
        if found is not None:
            return found
        if query.ends_at_first_entry:
            message = f"expected a record with a timestamp from {query.timestamp_ms} on, found none"
            raise KtsError(message, path=segment.path, position=records.position)
    return None


# --- the segments of a directory -------------------------------------------------------------------


@dataclass
class SegmentSearch:
    """A segment on disk, as a search sees it.

    Parameters
    ----------
    segment : Segment
    following : int, optional
        The base offset of the next segment, to check the end unless that was done before.
    active : bool
        True for the last segment.
    start_offset : int, optional
        Where reading starts, if not at the position from its own indexes.
    skip_damage, verify_crc : bool
        Read on after damaged batches; check CRCs.
    """

    segment: Segment
    following: int | None = None
    active: bool = False
    start_offset: int | None = None
    skip_damage: bool = False
    verify_crc: bool = True

    @property
    def path(self) -> str:
        """The ``.log`` file."""
        return self.segment.path

    @cached_property
    def indexes(self) -> Lookups:
        """The indexes, read only if the segment is."""
        return Lookups(self.segment)

    def reaches(self, query: Query) -> bool:
        """By the broker's largest timestamp; segments ruled out by a closed index are filtered out earlier."""
        if query.one_segment:
            return largest_ms(self.segment, self.active)[0] >= query.timestamp_ms
        return True

    def matching_entries(self, query: Query, stats: ReadStats) -> Iterator[Records]:
        """The records of the entries with headers that allow a match; reading a damaged entry raises."""
        file, stats.time_index_entry = self.indexes.file, None
        if self.start_offset is not None:
            start = self.indexes.place(max(self.start_offset, query.first_offset))
        else:
            start = self.indexes.place(query.first_offset)
            if not query.reads_all:
                stats.time_index_entry, confirmed = self.indexes.time_at(query.timestamp_ms)
                start = max(start, confirmed)
        stats.segments_read += 1
        stats.segment, stats.segment_base_offset = self.path, self.segment.base_offset
        stats.start_position = stats.end_position = start
        scan = header_scan(
            self.segment,
            start,
            self.segment.base_offset,
            self.skip_damage,
            FIRST_BYTES,
            file,
            self.verify_crc,
            closed=not self.active,
        )
        for batches in scan:
            likely = query.may_match(batches.column("max_timestamp"))
            likely &= batches.column("last_offset") >= query.first_offset
            positions = batches.column("position")
            before = stats.batches_read
            for row in np.flatnonzero(likely).tolist():
                position, data = int(positions[row]), batches.entry(row)
                size = len(data)
                offsets, timestamps = _records(self.segment, position, data, self.verify_crc)
                stats.records_read += len(offsets)
                stats.batches_read = before + row + 1
                stats.bytes_read += position + size - stats.end_position
                stats.end_position = position + size
                if not query.one_segment and self.segment.span.is_bounded:
                    own = self.segment.span.own(offsets, offsets)
                    offsets, timestamps = offsets[own], timestamps[own]
                yield Records(position, offsets, timestamps)
            stats.batches_read = before + len(batches)
            stats.bytes_read += batches.end - stats.end_position
            stats.end_position = batches.end

    def check_end(self) -> None:
        """Raise if its indexes have offsets that its log has lost."""
        if self.following is not None and not self.skip_damage:
            lost = self.indexes.lost_end(self.following)
            if lost is not None:
                raise lost


def search(
    log: ReadablePartition, query: Query, stats: ReadStats, skip_damage: bool = False, verify_crc: bool = True
) -> TimestampOffset | None:
    """Search the segments of a partition directory; as shipped, one in tiered storage, and then one of the others."""
    segments = log.segments
    tiers = [segments]
    if query.one_segment:
        remote = [one for one in _counted(segments, query.first_offset) if one.remote]
        tiers = [remote, [one for one in segments if not one.remote]]
    for tier in tiers:
        found = first_match(_segments(log, tier, query, stats, skip_damage, verify_crc), query, stats)
        if found is not None:
            return found
    return None


def _segments(
    log: ReadablePartition, segments: list[Segment], query: Query, stats: ReadStats, skip_damage: bool, verify_crc: bool
) -> Iterator[SegmentSearch]:
    """The segments that can match, judged by their closed time indexes."""
    known: Iterator[Closed] = iter(())
    if not query.one_segment:
        segments = _counted(segments, query.first_offset)
        if not query.reads_all:
            known = closed_times(segments, log.sealed_indexes)
    last, behind = len(segments) - 1, log.following_offset
    for number, segment in enumerate(segments):
        closed = next(known, None)
        if closed is not None:
            greatest, _, lost = closed
            if lost is not None and not skip_damage:
                raise lost
            if greatest is not None and greatest < query.timestamp_ms:
                stats.segments_skipped += 1
                continue
        following = None if closed is not None else behind if number == last else segments[number + 1].base_offset
        yield SegmentSearch(segment, following, number == last, None, skip_damage, verify_crc)


def _counted(segments: list[Segment], log_start_offset: int) -> list[Segment]:
    """The segments without those that end below the log start offset."""
    return segments[sum(segment.base_offset <= log_start_offset for segment in segments[1:]) :]


def _records(segment: Segment, position: int, data: memoryview, verify_crc: bool = True) -> Times:
    """Offsets and timestamps of the records of one entry."""
    try:
        records = decode(data, ["offset", "timestamp", "headers"], verify_crc=verify_crc)
    except CorruptRecordError as error:
        raise at(error, segment.path, position) from error.__cause__
    return int64(records, "offset"), int64(records, "timestamp")


# --- queries on a partition ------------------------------------------------------------------------


@dataclass(frozen=True)
class Explanation:
    """A report of a search by timestamp.

    Attributes
    ----------
    timestamp_ms : int
        The target.
    answer : TimestampOffset or None
        The first record at or after it.
    segment : str or None
        The ``.log`` file with the answer, or the last one read.
    segment_base_offset : int or None
        Its base offset.
    segments_skipped : int
        Earlier segments with no record at or after the target, by a confirmed time index or the headers of a small log.
    segments_read : int
        Segments that were read.
    time_index_entry : tuple of (timestamp_ms, offset), or None
        Latest confirmed entry at or before the target in that segment; None if there is none.
    start_position, end_position : int
        The range of that segment that was read, up to the end of the batch with the answer.
    bytes_read : int
        Bytes read from all segments, starting where the indexes pointed.
    batches_read, records_read : int
        Headers read, and records decoded because their batch header allowed a match.
    later_older_records : int
        Records after the answer that are older than the target: timestamps are out of order there.
    examples : tuple of TimestampOffset
        The first few of them.
    """

    timestamp_ms: int
    answer: TimestampOffset | None = None
    segment: str | None = None
    segment_base_offset: int | None = None
    segments_skipped: int = 0
    segments_read: int = 0
    time_index_entry: tuple[int, int] | None = None
    start_position: int = 0
    end_position: int = 0
    bytes_read: int = 0
    batches_read: int = 0
    records_read: int = 0
    later_older_records: int = 0
    examples: tuple[TimestampOffset, ...] = ()


def target_ms(name: str, value: Time, unit: str | None, path: str) -> int:
    """The time of a search in ms: a time as ``times.milliseconds`` takes it, or any 64-bit integer.

    Raises
    ------
    TypeError, ValueError

    Warns
    -----
    KtsWarning
        No unit is given, and the integer looks like one other than ms: it is taken as it is.
    """
    if unit is not None or not hasattr(value, "__index__"):
        return milliseconds(name, value, time_unit("unit", unit))
    number = timestamp(name, value)
    if doubt := doubt_of(number):
        warn(f"{name}: {doubt}", path)
    return number


def offset_for_timestamp(
    log: ReadablePartition,
    t_ms: int,
    *,
    shipped_search: bool = False,
    skip_damage: bool = False,
    verify_crc: bool = True,
) -> TimestampOffset | None:
    """See ``PartitionLog.offset_for_timestamp``; ``skip_damage`` reads on after damaged batches."""
    query = Query(timestamp("t_ms", t_ms), log.log_start_offset, one_segment=shipped_search)
    return search(log, query, ReadStats(), skip_damage and not shipped_search, verify_crc or shipped_search)


def explained(log: ReadablePartition, target: int, *, one_segment: bool = False) -> Explanation:
    """The answer to a search, and counts of what it read."""
    stats = ReadStats()
    answer = search(log, Query(target, log.log_start_offset, one_segment), stats)
    return Explanation(target, answer, **asdict(stats))


def explain_offset_for_timestamp(log: ReadablePartition, t_ms: int) -> Explanation:
    """See ``PartitionLog.explain_offset_for_timestamp``. Reads the whole log after the answer."""
    target = timestamp("t_ms", t_ms)
    story = explained(log, target)
    if story.answer is None:
        return story
    count, examples = 0, list[TimestampOffset]()
    for segment in log.segments:
        if segment.base_offset < (story.segment_base_offset or 0):
            continue
        start = story.start_position if segment.path == story.segment else 0
        for position, data in segment.slices(start):
            offsets, timestamps = _records(segment, position, data)
            older = np.flatnonzero((timestamps < target) & (offsets > story.answer.offset))
            count += len(older)
            for i in older[: EXAMPLES - len(examples)].tolist():
                examples.append(TimestampOffset(int(timestamps[i]), int(offsets[i])))
    return replace(story, later_older_records=count, examples=tuple(examples))


# --- the largest timestamp as brokers count it -----------------------------------------------------


def largest_ms(segment: Segment, active: bool, rules: TimeRules = KAFKA_TIMES) -> tuple[int, bool]:
    """Largest timestamp of a segment as a broker counts it, and whether it is the file time because none is known.

    If times before 1970 are times, these count: in the index of a closed segment, else in its records.
    """
    largest = max_so_far(segment, active)
    if largest >= 0:
        return largest, False
    if rules.before_1970:
        last, path = Lookups(segment).last_time(), segment.time_index_path
        if not active and last is not None:
            return last[0], False
        if active or path is None or segment.source.size_of(path):
            first = segment.base_offset
            headers = _headers(segment, 0, closed=not active)
            found = greatest_in(headers, first, negative=rules.minus_one_means_none)
            if found is not None and (rules.minus_one or found.timestamp_ms != NO_TIMESTAMP):
                return found.timestamp_ms, False
    return segment.modified_ms, True


def max_so_far(segment: Segment, active: bool) -> int:
    """Largest timestamp in a broker's memory: the last time-index entry, and in the active segment the log after it.

    A broker rebuilds a missing or damaged index from the log. It accepts an empty index file.
    """
    path, last = segment.time_index_path, Lookups(segment).last_time()
    if last is not None and not active:
        return last[0]
    if path is not None and not active and segment.source.size_of(path) == 0:
        return -1
    largest, start = last or (-1, 0)
    for batches in header_scan(segment, start, segment.base_offset, False, verify_crc=False, closed=not active):
        largest = max(largest, int(batches.column("max_timestamp").max()))
    return largest


# --- the greatest timestamp -----------------------------------------------------------------------


Found = dict[int, TimestampOffset | None]


def claim_of(found: TimestampOffset | None, *, negative: bool = False) -> int:
    """The claim of a segment that was read: its greatest timestamp. ``negative``: -1 sorts below every time."""
    if found is None:
        return NOTHING - 1
    return NOTHING if negative and found.timestamp_ms == NO_TIMESTAMP else found.timestamp_ms


def greatest_of(
    claims: list[int], found: Found, read: Callable[[int], TimestampOffset | None], *, negative: bool = False
) -> TimestampOffset | None:
    """The greatest timestamp of several segments, in order, and the first record that has it.

    Parameters
    ----------
    claims : list of int
        The greatest timestamp of each: as read, or as its index or headers claim.
    found : dict
        The results of reading, by number.
    read : callable
        Reads another segment. It is called only for the greatest remaining claim, because the cleaner may have emptied
        the batch with that timestamp.
    """
    while claims:
        best = claims.index(max(claims))
        if best in found:
            return found[best]
        found[best] = read(best)
        claims[best] = claim_of(found[best], negative=negative)
    return None


def greatest_in(
    slices: Iterable[Headers], first_offset: int, *, negative: bool = False, enough: int | None = None
) -> TimestampOffset | None:
    """The greatest timestamp of records from an offset on, and the first record that has it.

    Parameters
    ----------
    slices : iterable of (greatest timestamps, last offsets, reader)
        From the headers of the log entries in order; the reader returns the records of one entry.
    negative : bool
        Times before 1970 count (KIP-228); -1 means no timestamp, and is the answer only if no record has one.
    enough : int, optional
        Stop at a timestamp that reaches this.
    """
    best: TimestampOffset | None = None
    untimed: TimestampOffset | None = None
    for times, lasts, read in slices:
        if negative:
            claims = np.where(times == NO_TIMESTAMP, NO_TIMESTAMP - 1, times)  # it may hide earlier times
        else:
            claims = np.maximum(times, NO_TIMESTAMP)  # such times, kept from an earlier setting, may hide a -1
        left = lasts >= first_offset
        # The cleaner may have removed the record with a header's timestamp: read until a record matches its claim.
        while left.any():
            row = int(np.where(left, claims, -(2**63)).argmax())
            if not left[row] or (best is not None and claims[row] <= best.timestamp_ms):
                break
            left[row] = False
            offsets, timestamps = read(row)
            timestamps, offsets = timestamps[offsets >= first_offset], offsets[offsets >= first_offset]
            if negative:
                timed = timestamps != NO_TIMESTAMP
                if untimed is None and not timed.all():
                    untimed = TimestampOffset(NO_TIMESTAMP, int(offsets[~timed][0]))
                timestamps, offsets = timestamps[timed], offsets[timed]
            if len(offsets):
                top = int(timestamps.argmax())
                if best is None or timestamps[top] > best.timestamp_ms:
                    best = TimestampOffset(int(timestamps[top]), int(offsets[top]))
        if best is not None and enough is not None and best.timestamp_ms >= enough:
            break
    return untimed if best is None else best


def max_timestamp(log: ReadablePartition) -> TimestampOffset | None:
    """See ``PartitionLog.max_timestamp``."""
    log_start = log.log_start_offset
    segments = _counted(log.segments, log_start)
    claims: list[int] = []
    starts: list[int] = []
    found: Found = {}
    known = closed_times(segments, log.sealed_indexes)
    for number, segment in enumerate(segments):
        closed = next(known, None)
        if closed is not None and closed.lost is not None:
            raise closed.lost
        greatest = None if closed is None else closed.greatest_timestamp_ms
        if closed is not None and greatest is not None and greatest >= 0 and segment.base_offset >= log_start:
            claims.append(greatest)
            starts.append(closed.start)
            continue
        tail, is_closed = None, closed is not None or log.following_offset is not None
        if closed is None and segment.base_offset >= log_start:
            # No timestamp before the place of its last entry is greater: read only from there.
            last = Lookups(segment).last_time()
            if last is not None:
                tail = _segment_max(segment, log_start, last[1], closed=is_closed)
                tail = tail if tail is not None and tail.timestamp_ms >= last[0] else None
        found[number] = tail or _segment_max(segment, log_start, closed=is_closed)
        claims.append(claim_of(found[number]))
        starts.append(0)
    return greatest_of(claims, found, lambda i: _closed_max(segments[i], log_start, starts[i], claims[i]))


def _closed_max(segment: Segment, log_start: int, start: int, claimed: int) -> TimestampOffset | None:
    if start == 0 and segment.remote:  # a note was enough until now, so the log confirmed no place
        start = Lookups(segment).time_at(claimed)[1]
    found = _segment_max(segment, log_start, start, enough=claimed)
    return found if found is not None and found.timestamp_ms >= claimed else _segment_max(segment, log_start)


def _segment_max(
    segment: Segment, log_start: int, start: int | None = None, enough: int | None = None, *, closed: bool = True
) -> TimestampOffset | None:
    """The greatest timestamp of a segment's records from a position on, and the first record that has it."""
    first = segment.start_position(log_start) if start is None else start
    return greatest_in(_headers(segment, first, closed=closed), log_start, enough=enough)


def _headers(segment: Segment, start: int, *, closed: bool) -> Iterator[Headers]:
    for batches in header_scan(segment, start, segment.base_offset, False, FIRST_BYTES, closed=closed):
        yield batches.column("max_timestamp"), batches.column("last_offset"), partial(_read, segment, batches)


def _read(segment: Segment, batches: Batches, row: int) -> Times:
    """Offsets and timestamps of the records of one batch."""
    return _records(segment, int(batches.column("position")[row]), batches.entry(row))
