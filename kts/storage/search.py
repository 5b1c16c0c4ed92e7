"""Search by timestamp: which record is the first at or after a time, and why.

An entry (t0, o0) of the time index promises that nothing up to its place is younger than t0, so the records before o0
need not be read for a target of t0 or more. Segments whose closing entry is older than the target need not be opened.

Targets below 0 are compared as numbers too, with -1 for records without a timestamp. Of those neither indexes nor the
headers of batches know anything, least where negative times are allowed (KIP-228), so for them the records are read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kts._timeindex import TimeIndex
from kts.columns import decode
from kts.errors import CorruptRecordError
from kts.model import TimestampOffset
from kts.storage import files
from kts.storage.damage import header_scan
from kts.storage.segment import Segment, at, int64

if TYPE_CHECKING:
    import numpy.typing as npt

    from kts.storage.directory import PartitionLog

FIRST_BYTES = 2**13  # most searches end within an index interval (4096 bytes); doubled from slice to slice
EXAMPLES = 5


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
        Segments before it that were not read, because their time index ends before the target.
    segments_read : int
        Segments that were read.
    time_index_entry : tuple of (timestamp_ms, offset), or None
        Greatest entry at or below the target in that segment; None when there is none, or no sound index.
    start_position, end_position : int
        The bytes of that segment that were read, up to the end of the batch with the answer.
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
    batches_read: int = 0
    records_read: int = 0
    later_older_records: int = 0
    examples: tuple[TimestampOffset, ...] = ()


def check_timestamp(value: object, name: str) -> int:
    """A 64-bit number of ms as it is.

    Raises
    ------
    TypeError, ValueError
        Not an int; outside of 64 bits.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an int (ms since the epoch), found {type(value).__name__}")
    number = int(value.__index__())
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{name}: {number} is outside the 64-bit range")
    return number


def offset_for_timestamp(
    log: PartitionLog,
    t_ms: int,
    *,
    shipped_search: bool = False,
    skip_damage: bool = False,
    verify_crc: bool = True,
) -> TimestampOffset | None:
    """See ``PartitionLog.offset_for_timestamp``; ``skip_damage`` goes on behind damaged batches."""
    target = check_timestamp(t_ms, "t_ms")
    if shipped_search:
        return _shipped(log, target)
    return _search(log, target, skip_damage, verify_crc).answer


def explain_offset_for_timestamp(log: PartitionLog, t_ms: int) -> Explanation:
    """See ``PartitionLog.explain_offset_for_timestamp``. Reads everything behind the answer."""
    target = check_timestamp(t_ms, "t_ms")
    story = _search(log, target)
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


def _search(log: PartitionLog, target: int, skip_damage: bool = False, verify_crc: bool = True) -> Explanation:
    story = Explanation(target)
    log_start = log.log_start_offset
    segments = log.segments
    for number, segment in enumerate(segments):
        closed = number + 1 < len(segments)
        if closed and segments[number + 1].base_offset <= log_start:
            continue
        # A closing entry is written at the roll, so that only closed segments are known by their last entry.
        index = segment.closed_time_index() if closed else segment.time_index()
        if target < 0:
            index = TimeIndex(b"", segment.base_offset)
        if closed and len(index) and index.lookup(2**63 - 1)[0] < target:
            story = replace(story, segments_skipped=story.segments_skipped + 1)
            continue
        story = _search_segment(segment, index, target, log_start, story, skip_damage, verify_crc)
        if story.answer is not None:
            break
    return story


def _search_segment(
    segment: Segment,
    index: TimeIndex,
    target: int,
    log_start: int,
    story: Explanation,
    skip_damage: bool = False,
    verify_crc: bool = True,
) -> Explanation:
    """The first record of one segment that qualifies, scanning from where the indexes allow."""
    entry = index.lookup(target)
    start = segment.start_position(max(entry[1], log_start))
    story = replace(
        story,
        segment=segment.path,
        segment_base_offset=segment.base_offset,
        segments_read=story.segments_read + 1,
        time_index_entry=entry if entry != (-1, segment.base_offset) else None,
        start_position=start,
        end_position=start,
    )
    for batch, damaged in header_scan(segment, start, log_start, skip_damage, FIRST_BYTES):
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
            offsets, timestamps = _read(segment, position, size, verify_crc)
            story = replace(story, records_read=story.records_read + len(offsets))
            hits = np.flatnonzero((timestamps >= target) & (offsets >= log_start))
            if len(hits):
                answer = TimestampOffset(int(timestamps[hits[0]]), int(offsets[hits[0]]))
                return replace(
                    story, answer=answer, end_position=position + size, batches_read=story.batches_read + i + 1
                )
        if stop:
            end = int(positions[-1] + sizes[-1])
            story = replace(story, end_position=end, batches_read=story.batches_read + stop)
    return story


def _read(
    segment: Segment, position: int, size: int, verify_crc: bool = True
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Offsets and timestamps of the records of one batch."""
    with files.File(segment.path) as file:
        return _records(segment, position, memoryview(file.read(position, size)), verify_crc)


def _records(
    segment: Segment, position: int, data: memoryview, verify_crc: bool = True
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    try:
        records = decode(data, ["offset", "timestamp", "headers"], verify_crc=verify_crc)
    except CorruptRecordError as error:
        raise at(error, segment.path, position) from error.__cause__
    return int64(records, "offset"), int64(records, "timestamp")


# --- the search that brokers ship -----------------------------------------------------------------


def _shipped(log: PartitionLog, target: int) -> TimestampOffset | None:
    segments = log.segments
    for segment in segments:
        largest = max_so_far(segment, segment is segments[-1])
        if largest < 0:
            largest = segment.modified_ms
        if largest >= target:
            story = Explanation(target)
            return _search_segment(segment, segment.time_index(), target, log.log_start_offset, story).answer
    return None


def max_so_far(segment: Segment, active: bool) -> int:
    """Largest timestamp as a broker has it in memory: the last index entry, and in the active segment what follows.

    A broker rebuilds a missing or damaged index, which reads the log. It believes a file of no bytes.
    """
    index, path = segment.time_index(), segment.time_index_path
    largest, offset = index.lookup(2**63 - 1)
    rebuilt = path is None or (len(index) == 0 and files.size_of(path) > 0)
    if active or rebuilt:
        for batch in segment.batches(segment.start_position(offset)):
            if batch.num_rows:
                largest = max(largest, int(int64(batch, "maxTimestamp").max()))
    return largest


# --- the greatest timestamp -----------------------------------------------------------------------


def max_timestamp(log: PartitionLog) -> TimestampOffset | None:
    """See ``PartitionLog.max_timestamp``."""
    log_start = log.log_start_offset
    segments = log.segments
    claims: list[tuple[int, int | None]] = []  # greatest timestamp, and its record's offset once that was read
    for number, segment in enumerate(segments):
        closed = number + 1 < len(segments)
        if closed and segments[number + 1].base_offset <= log_start:
            claims.append((-(2**63), None))
            continue
        index = segment.closed_time_index() if closed else segment.time_index()
        if index.lookup(2**63 - 1)[0] < 0:
            index = TimeIndex(b"", segment.base_offset)
        if closed and len(index) and segment.base_offset >= log_start:
            claims.append((index.lookup(2**63 - 1)[0], None))
            continue
        tail = None
        if len(index) and segment.base_offset >= log_start:
            # Nothing up to the place of its last entry is greater: only what follows needs reading.
            largest, place = index.lookup(2**63 - 1)
            tail = _segment_max(segment, log_start, segment.start_position(place))
            tail = tail if tail is not None and tail[0] >= largest else None
        claims.append(tail or _segment_max(segment, log_start) or (-(2**63), None))
    while claims:
        best = max(range(len(claims)), key=lambda i: (claims[i][0], -i))
        timestamp, offset = claims[best]
        if offset is not None:
            return TimestampOffset(timestamp, offset)
        if timestamp == -(2**63):
            return None
        # What the index says may be the time of a batch that the cleaner emptied since.
        first = segments[best].start_position(segments[best].time_index().lookup(timestamp)[1])
        found = _segment_max(segments[best], log_start, first, enough=timestamp)
        if found is None or found[0] < timestamp:
            found = _segment_max(segments[best], log_start)
        claims[best] = found or (-(2**63), None)
    return None


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
