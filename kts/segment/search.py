"""Search by timestamp: which record is the first at or after a time, and why.

An entry (t0, o0) of the time index promises that nothing up to its place is younger than t0, so the records before o0
need not be read for a target of t0 or more. Segments whose closing entry is older than the target need not be opened.

Targets below 0 are compared as numbers too, with -1 for records without a timestamp. Of those neither indexes nor the
headers of batches know anything, least where negative times are allowed (KIP-228), so for them the records are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from kts.arguments import timestamp
from kts.codec.columns import decode
from kts.errors import CorruptRecordError
from kts.model import TimestampOffset
from kts.segment import files
from kts.segment.damage import header_scan
from kts.segment.segment import Lookups, Segment, at, closed_times, int64

if TYPE_CHECKING:
    import numpy.typing as npt

    from kts.segment.partition import Partition

S = TypeVar("S")
FIRST_BYTES = 2**13  # most searches end within an index interval (4096 bytes); doubled from slice to slice
EXAMPLES = 5
NOTHING = (-(2**63) - 1, 0, True)


@dataclass(frozen=True)
class Explanation:
    """How a search by timestamp went.

    Attributes
    ----------
    timestamp_ms : int
        What was asked.
    answer : TimestampOffset or None
        The first record at or after it.
    segment : str or None
        The ``.log`` file with the answer, else the last one that was read.
    segment_base_offset : int or None
        Its base offset.
    segments_skipped : int
        Segments before it that end before the target, as a confirmed time index or the headers of a small one say.
    segments_read : int
        Segments that were read.
    time_index_entry : tuple of (timestamp_ms, offset), or None
        Latest entry at or before the target in that segment that its log confirms; None when there is none.
    start_position, end_position : int
        The bytes of that segment that were read, up to the end of the batch with the answer.
    bytes_read : int
        Bytes of all segments that were read, from where the indexes led to on.
    batches_read, records_read : int
        Headers looked at, and records decoded because their batch's header promised a hit.
    later_older_records : int
        Records behind the answer that are older than the target: the log is not in order there.
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


def offset_for_timestamp(
    log: Partition,
    t_ms: int,
    *,
    shipped_search: bool = False,
    skip_damage: bool = False,
    verify_crc: bool = True,
) -> TimestampOffset | None:
    """See ``PartitionLog.offset_for_timestamp``; ``skip_damage`` goes on behind damaged batches."""
    target = timestamp("t_ms", t_ms)
    if shipped_search:
        return one_segment_search(log, target).answer
    return continuing_search(log, target, skip_damage, verify_crc).answer


def explain_offset_for_timestamp(log: Partition, t_ms: int) -> Explanation:
    """See ``PartitionLog.explain_offset_for_timestamp``. Reads everything behind the answer."""
    target = timestamp("t_ms", t_ms)
    story = continuing_search(log, target)
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


def continuing_search(log: Partition, target: int, skip_damage: bool = False, verify_crc: bool = True) -> Explanation:
    """KIP-33's search: from the oldest segment on, until a record at or after the target is found."""
    story, skipped = Explanation(target), 0
    segments = log.segments
    log_start = log.log_start_offset
    # What ends below the log start does not count; of an entry that reaches beyond it, a part does.
    first = sum(segment.base_offset <= log_start for segment in segments[1:])
    segments = segments[first:]
    known = closed_times(segments, log.sealed_indexes) if target >= 0 else iter(())
    for number, segment in enumerate(segments):
        closed = next(known, None)
        if closed is not None and closed.lost is not None and not skip_damage:
            raise closed.lost
        if closed is not None and closed.greatest_timestamp_ms is not None and closed.greatest_timestamp_ms < target:
            skipped += 1
            continue
        indexes = Lookups(segment)
        story = _search_segment(indexes, target, log_start, story, skip_damage, verify_crc)
        if story.answer is not None:
            break
        if closed is None and number + 1 < len(segments) and not skip_damage:
            lost = indexes.lost_end(segments[number + 1].base_offset)
            if lost is not None:
                raise lost
    return replace(story, segments_skipped=skipped) if skipped else story


def _search_segment(
    indexes: Lookups,
    target: int,
    log_start: int,
    story: Explanation,
    skip_damage: bool = False,
    verify_crc: bool = True,
) -> Explanation:
    """The first record of one segment that qualifies, scanning from where the indexes allow."""
    segment = indexes.segment
    entry, start = indexes.time_at(target) if target >= 0 else (None, 0)
    start = max(start, indexes.place(log_start))
    answer, end, batches_read, records_read = None, start, story.batches_read, story.records_read
    for batch, damaged in header_scan(segment, start, log_start, skip_damage, FIRST_BYTES, indexes.file):
        maxima = int64(batch, "maxTimestamp")
        likely = ((maxima >= target) | (target < 0)) & (int64(batch, "lastOffset") >= log_start)
        positions, sizes = int64(batch, "position"), int64(batch, "sizeInBytes")
        stop = len(positions)
        if not verify_crc:
            damaged[:] = False
        for i in np.flatnonzero(likely | damaged).tolist():
            position, size = int(positions[i]), int(sizes[i])
            if damaged[i] and skip_damage:
                continue
            entry_bytes = memoryview(indexes.file.read(position, size))
            offsets, timestamps = _records(segment, position, entry_bytes, verify_crc)
            records_read += len(offsets)
            hits = np.flatnonzero((timestamps >= target) & (offsets >= log_start))
            if len(hits):
                answer = TimestampOffset(int(timestamps[hits[0]]), int(offsets[hits[0]]))
                end, stop = position + size, i + 1
                break
        else:
            end = int(positions[-1] + sizes[-1]) if stop else end
        batches_read += stop
        if answer is not None:
            break
    return Explanation(
        story.timestamp_ms,
        answer,
        segment.path,
        segment.base_offset,
        segments_read=story.segments_read + 1,
        time_index_entry=entry,
        start_position=start,
        end_position=end,
        bytes_read=story.bytes_read + end - start,
        batches_read=batches_read,
        records_read=records_read,
    )


def _read(segment: Segment, position: int, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Offsets and timestamps of the records of one batch."""
    with files.File(segment.path) as file:
        return _records(segment, position, memoryview(file.read(position, size)))


def _records(
    segment: Segment, position: int, data: memoryview, verify_crc: bool = True
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    try:
        records = decode(data, ["offset", "timestamp", "headers"], verify_crc=verify_crc)
    except CorruptRecordError as error:
        raise at(error, segment.path, position) from error.__cause__
    return int64(records, "offset"), int64(records, "timestamp")


# --- the search that brokers ship -----------------------------------------------------------------


def first_reaching(segments: Sequence[S], largest_ms: Callable[[S], int], target: int) -> S | None:
    """The one segment that a broker searches: the first whose largest timestamp, else file time, reaches the target.

    Notes
    -----
    Source: Log.fetchOffsetsByTimestamp (0.10.2), UnifiedLog.fetchOffsetByTimestamp (3.9).
    """
    return next((segment for segment in segments if largest_ms(segment) >= target), None)


def one_segment_search(log: Partition, target: int) -> Explanation:
    """A broker's search over its closed directory: the first record at or after the target in one segment alone."""
    segments = log.segments
    found = first_reaching(segments, lambda segment: largest_ms(segment, segment is segments[-1])[0], target)
    if found is None:
        return Explanation(target, segments_skipped=len(segments))
    story = _search_segment(Lookups(found), target, log.log_start_offset, Explanation(target))
    return replace(story, segments_skipped=segments.index(found))


def largest_ms(segment: Segment, active: bool) -> tuple[int, bool]:
    """Largest timestamp of a segment as a broker counts it, and whether it is the file's time, for want of any."""
    largest = max_so_far(segment, active)
    return (largest, False) if largest >= 0 else (segment.modified_ms, True)


def max_so_far(segment: Segment, active: bool) -> int:
    """Largest timestamp as a broker has it in memory: the last index entry, and in the active segment what follows.

    A broker rebuilds a missing or damaged index, which reads the log. It believes a file of no bytes.
    """
    path, last = segment.time_index_path, Lookups(segment).last_time()
    if last is not None and not active:
        return last[0]
    if path is not None and not active and files.size_of(path) == 0:
        return -1
    largest, start = last or (-1, 0)
    for batch in segment.batches(start):
        if batch.num_rows:
            largest = max(largest, int(int64(batch, "maxTimestamp").max()))
    return largest


# --- the greatest timestamp -----------------------------------------------------------------------


def max_timestamp(log: Partition) -> TimestampOffset | None:
    """See ``PartitionLog.max_timestamp``."""
    segments = log.segments
    log_start = log.log_start_offset
    segments = segments[sum(segment.base_offset <= log_start for segment in segments[1:]) :]
    # The greatest timestamp of each segment, where reading for it begins or the offset that has it, and whether it was.
    claims: list[tuple[int, int, bool]] = []
    known = closed_times(segments, log.sealed_indexes)
    for segment in segments:
        closed = next(known, None)
        if closed is not None and closed.lost is not None:
            raise closed.lost
        greatest = None if closed is None else closed.greatest_timestamp_ms
        if closed is not None and greatest is not None and greatest >= 0 and segment.base_offset >= log_start:
            claims.append((greatest, closed.start, False))
            continue
        tail = None
        if closed is None and segment.base_offset >= log_start:
            # Nothing up to the place of its last entry is greater: only what follows needs reading.
            last = Lookups(segment).last_time()
            if last is not None:
                tail = _segment_max(segment, log_start, last[1])
                tail = tail if tail is not None and tail[0] >= last[0] else None
        claims.append(_claim(tail or _segment_max(segment, log_start)))
    while claims:
        best = max(range(len(claims)), key=lambda i: (claims[i][0], -i))
        timestamp, where, read = claims[best]
        if timestamp == NOTHING[0]:
            return None
        if read:
            return TimestampOffset(timestamp, where)
        # That may be the time of a batch that the cleaner emptied since.
        found = _segment_max(segments[best], log_start, where, enough=timestamp)
        if found is None or found[0] < timestamp:
            found = _segment_max(segments[best], log_start)
        claims[best] = _claim(found)
    return None


def _claim(found: tuple[int, int] | None) -> tuple[int, int, bool]:
    return NOTHING if found is None else (*found, True)


def _segment_max(
    segment: Segment, log_start: int, start: int | None = None, enough: int | None = None
) -> tuple[int, int] | None:
    """The greatest timestamp of a segment's records from a position on, and the first record that has it.

    No greater one than ``enough`` is looked for.
    """
    first = segment.start_position(log_start) if start is None else start
    best: tuple[int, int] | None = None
    for batch, damaged in header_scan(segment, first, log_start, False, FIRST_BYTES):
        positions, sizes = int64(batch, "position"), int64(batch, "sizeInBytes")
        for i in np.flatnonzero(damaged).tolist():
            _read(segment, int(positions[i]), int(sizes[i]))  # raises, saying what is wrong
        claims = np.maximum(int64(batch, "maxTimestamp"), -1)
        left = int64(batch, "lastOffset") >= log_start
        # A header may promise more than the records that are left in its batch keep: read until it is kept.
        while left.any():
            i = int(np.where(left, claims, -(2**63)).argmax())
            if not left[i] or (best is not None and claims[i] <= best[0]):
                break
            left[i] = False
            offsets, timestamps = _read(segment, int(positions[i]), int(sizes[i]))
            timestamps, offsets = timestamps[offsets >= log_start], offsets[offsets >= log_start]
            if len(offsets):
                top = int(timestamps.argmax())
                if best is None or timestamps[top] > best[0]:
                    best = int(timestamps[top]), int(offsets[top])
        if best is not None and enough is not None and best[0] >= enough:
            break
    return best
