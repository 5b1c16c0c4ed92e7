"""What a verification finds, and the checks of one segment's log, done in one pass over its headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kts.codec.columns import decode, scan_batches
from kts.errors import CorruptRecordError
from kts.segment import files
from kts.segment.damage import AFTER_DAMAGE_BYTES, Effort, next_sound_entry
from kts.segment.segment import OVERHEAD_BYTES, Segment, at, bools, int64

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

Progress = Callable[[int], None]
# headers: so that every field of a record is looked at
_DEEP = "offset timestamp headers position magic timestampType baseOffset lastOffsetDelta maxTimestamp".split()
NO_NEXT = 2**63 - 1
NO_TIME = -(2**63)  # below all times
_LONGEST = 20  # findings of one kind in one file; the rest is counted


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong.

    Attributes
    ----------
    path : str
        The file.
    position : int or None
        Byte position in it.
    offset : int or None
        Kafka offset.
    kind : str
        A short slug, the same for the same kind of damage.
    message : str
        What was expected and what was found.
    """

    path: str
    position: int | None
    offset: int | None
    kind: str
    message: str

    def __str__(self) -> str:
        where = "" if self.position is None else f" at position {self.position}"
        return f"{self.path}{where}: {self.kind}: {self.message}"


@dataclass
class Headers:
    """The batches of one slice, as arrays, with what was known before them."""

    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    magic: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]  # first offset it can hold; of a wrapper message the one behind the previous entry
    last: npt.NDArray[np.int64]
    wrapper: npt.NDArray[np.bool_]
    max_timestamp: npt.NDArray[np.int64]
    running_max: npt.NDArray[np.int64]
    filled_max: npt.NDArray[np.int64]  # without batches that have no records left
    leader_epoch: npt.NDArray[np.int64]
    sound: npt.NDArray[np.bool_]
    previous_last: npt.NDArray[np.int64]
    producer_id: npt.NDArray[np.int64]
    transactional: npt.NDArray[np.bool_]
    control: npt.NDArray[np.bool_]
    count: npt.NDArray[np.int64]  # -1 for a wrapper message


@dataclass
class SegmentFacts:
    """What the pass over a segment's headers learned."""

    last_offset: int
    allow_negative: bool = False  # times before 1970 count, and are no time only if they are -1
    reached: int = 0  # behind the last but one batch: offsets are under no CRC
    max_timestamp: int = -1
    filled_max: int = -1
    wrappers: bool = False
    batches: int = 0
    magics: set[int] = field(default_factory=set)
    damaged: bool = False
    gaps: bool = False

    def __post_init__(self) -> None:
        if self.allow_negative:
            self.max_timestamp = self.filled_max = NO_TIME


def limited(findings: Iterator[Violation]) -> Iterator[Violation]:
    """At most a few findings of a kind in a file, then how many more there are."""
    counts: dict[tuple[str, str], int] = {}
    for one in findings:
        key = one.path, one.kind
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= _LONGEST:
            yield one
    for (path, kind), count in counts.items():
        if count > _LONGEST:
            yield Violation(path, None, None, kind, f"{count - _LONGEST} more of this kind are not listed")


def walk(
    segment: Segment, facts: SegmentFacts, next_base: int | None, progress: Progress | None, deep: bool
) -> Iterator[Violation | Headers]:
    """All headers of a segment and what is wrong with them; goes on behind damage."""
    start, first_bytes, effort = 0, None, Effort()
    while True:
        try:
            for slice_start, data in segment.slices(start, first_bytes=first_bytes):
                try:
                    found = scan_batches(data)
                except CorruptRecordError as error:
                    found = scan_batches(data[: error.position or 0])
                    start = slice_start + (error.position or 0)
                    if found.num_rows:
                        yield from _slice(segment, facts, next_base, slice_start, data, found, deep)
                    raise at(error, segment.path, slice_start) from error.__cause__
                yield from _slice(segment, facts, next_base, slice_start, data, found, deep)
                start = slice_start + len(data)
                if progress is not None:
                    progress(len(data))
        except CorruptRecordError as error:
            facts.damaged = True
            zeros = _zero_tail(segment, start)
            if zeros:
                yield Violation(segment.path, start, None, "zero-tail", f"{zeros} zero bytes behind the last batch")
                return
            yield Violation(segment.path, start, error.offset, "batch", error.message)
            behind = next_sound_entry(segment, start, segment.size_bytes, facts.reached, effort)
        else:
            size = segment.size_bytes
            if start >= size:
                return
            facts.damaged = True
            behind = next_sound_entry(segment, start, size, facts.reached, effort)
            message = f"{size - start} bytes behind the last whole batch: it was cut, or its size is wrong"
            yield Violation(segment.path, start, None, "cut-tail" if behind is None else "batch", message)
        if behind is None:
            return
        start, first_bytes = behind, AFTER_DAMAGE_BYTES


def _zero_tail(segment: Segment, start: int) -> int:
    """Number of bytes from a position to the end, if all are zero."""
    with files.File(segment.path) as file:
        size = position = file.size()
        position = start
        while position < size:
            data = file.read(position, 2**20)
            if not data or any(data):
                return 0
            position += len(data)
    return size - start


def _slice(
    segment: Segment,
    facts: SegmentFacts,
    next_base: int | None,
    start: int,
    data: memoryview,
    found: pa.RecordBatch,
    deep: bool,
) -> Iterator[Violation | Headers]:
    headers = _headers(segment, found, start, facts, next_base, data)
    yield from _check_headers(segment, facts, next_base, headers)
    # What was named is not compared any further.
    headers.sound &= headers.last < min(segment.base_offset + 2**31, NO_NEXT if next_base is None else next_base)
    headers.sound &= (headers.magic < 2) | (headers.count >= 0)
    yield headers
    if deep:
        yield from _check_records(segment, start, data, headers)
    good = headers.sound
    if good.any():
        facts.reached = max(int(headers.last[good][-2]) + 1, 0) if good.sum() > 1 else facts.reached
        facts.last_offset = max(facts.last_offset, int(headers.last[good].max()))
        facts.max_timestamp = max(facts.max_timestamp, int(headers.running_max[-1]))
        facts.filled_max = max(facts.filled_max, int(headers.filled_max[-1]))
        facts.wrappers |= bool(headers.wrapper.any())
    facts.batches += len(good)
    facts.magics |= set(np.unique(headers.magic[good]).tolist())
    facts.damaged |= not good.all()


def _times(found: pa.RecordBatch, data: memoryview) -> npt.NDArray[np.int64]:
    """The greatest times of batches where those before 1970 count; ``NO_TIME`` where there is none."""
    times = int64(found, "maxTimestamp").copy()
    places, sizes = int64(found, "position"), int64(found, "sizeInBytes")
    for i in np.flatnonzero((times == -1) & bools(found, "crcOk")).tolist():  # a client's header may hide them
        try:
            inside = int64(decode(data[places[i] : places[i] + sizes[i]], ["timestamp"]), "timestamp")
        except CorruptRecordError:  # named by the deep check
            continue
        times[i] = max(inside[inside != -1].tolist(), default=-1)
    times[times == -1] = NO_TIME
    return times


def _headers(
    segment: Segment, found: pa.RecordBatch, start: int, facts: SegmentFacts, next_base: int | None, data: memoryview
) -> Headers:
    last = int64(found, "lastOffset")
    sound = bools(found, "crcOk")
    # The offset is under no CRC: one that no segment can hold is not compared with what follows.
    highest = min(segment.base_offset + 2**31, NO_NEXT if next_base is None else next_base)
    sound_places = np.maximum.accumulate(np.where(sound & (last < highest), np.arange(len(last)), -1))
    lasts = np.where(sound_places >= 0, last[sound_places], facts.last_offset)
    previous = np.concatenate([[facts.last_offset], lasts[:-1]]).astype(np.int64)
    wrapper = (int64(found, "magic") < 2) & (int64(found, "codec") > 0)
    times = _times(found, data) if facts.allow_negative else int64(found, "maxTimestamp")
    none = NO_TIME if facts.allow_negative else -1
    filled = sound & (int64(found, "count") != 0)
    return Headers(
        position=int64(found, "position") + start,
        size=int64(found, "sizeInBytes"),
        magic=int64(found, "magic"),
        first=np.where(wrapper, previous + 1, int64(found, "baseOffset")),
        last=last,
        wrapper=wrapper,
        max_timestamp=times,
        running_max=np.maximum(np.maximum.accumulate(np.where(sound, times, none)), facts.max_timestamp),
        filled_max=np.maximum(np.maximum.accumulate(np.where(filled, times, none)), facts.filled_max),
        leader_epoch=int64(found, "partitionLeaderEpoch"),
        sound=sound,
        previous_last=previous,
        producer_id=int64(found, "producerId"),
        transactional=bools(found, "transactional"),
        control=bools(found, "control"),
        count=int64(found, "count"),
    )


def _check_headers(
    segment: Segment, facts: SegmentFacts, next_base: int | None, headers: Headers
) -> Iterator[Violation]:
    def each(mask: npt.NDArray[np.bool_], kind: str, say: Callable[[int], str]) -> Iterator[Violation]:
        for i in np.flatnonzero(mask).tolist():
            yield Violation(segment.path, int(headers.position[i]), int(headers.first[i]), kind, say(i))

    first, last, good = headers.first, headers.last, headers.sound
    yield from each(~good, "crc", lambda i: "the CRC of the batch is not the stored one")
    yield from each(
        good & (headers.magic == 2) & (headers.count < 0),
        "records",
        lambda i: f"the record count {headers.count[i]} is negative",
    )
    yield from each(
        good & (last < first) & ~headers.wrapper, "offset", lambda i: f"last offset {last[i]} is below {first[i]}"
    )
    below = good & (np.where(headers.wrapper, last, first) < segment.base_offset)
    yield from each(
        below, "offset", lambda i: f"offset {first[i]} is below the segment's base offset {segment.base_offset}"
    )
    yield from each(
        good & ~below & (np.where(headers.wrapper, last, first) <= headers.previous_last),
        "offset",
        lambda i: f"offset {first[i]} does not follow {headers.previous_last[i]}, the last one before it",
    )
    if next_base is not None:
        yield from each(
            good & (last >= next_base),
            "offset",
            lambda i: f"last offset {last[i]} reaches into the next segment, which starts at {next_base}",
        )
    yield from each(
        good & (last - segment.base_offset >= 2**31),
        "offset",
        lambda i: f"offset {last[i]} is more than 2147483647 above the base offset {segment.base_offset}",
    )
    exact = good & ~headers.wrapper
    between = (first > headers.previous_last + 1) & (headers.previous_last >= 0)
    facts.gaps |= bool((exact & (between | (headers.count < last - first + 1))).any())


def _check_records(segment: Segment, start: int, data: memoryview, headers: Headers) -> Iterator[Violation]:
    """Decode every record: counts, lengths and inner CRCs by the decoder, offsets and times against the header here."""
    begin = 0
    while begin < len(data):
        end = len(data)
        try:
            records = decode(data[begin:], _DEEP)
        except CorruptRecordError as error:
            end = begin + (error.position or 0)
            records = decode(data[begin:end], _DEEP)
            i = int(np.searchsorted(headers.position, start + end))
            if i < len(headers.position) and headers.sound[i]:
                yield Violation(segment.path, start + end, error.offset, "records", error.message)
            end += int.from_bytes(data[end + 8 : end + 12], "big") + OVERHEAD_BYTES
        yield from _compare_records(segment, start + begin, records, headers)
        begin = end


def _compare_records(segment: Segment, start: int, records: pa.RecordBatch, headers: Headers) -> Iterator[Violation]:
    if records.num_rows == 0:
        return
    position = int64(records, "position")
    starts = np.flatnonzero(np.concatenate([[True], position[1:] != position[:-1]]))
    ends = np.concatenate([starts[1:], [len(position)]])
    batches = np.searchsorted(headers.position, position[starts] + start)
    offsets, times = int64(records, "offset"), int64(records, "timestamp")
    rises = np.concatenate([[True], offsets[1:] > offsets[:-1]])
    rises[starts] = True
    falls = np.flatnonzero(~rises)
    for i in falls.tolist():
        message = f"record offset {offsets[i]} follows {offsets[i - 1]} in the same batch"
        yield Violation(segment.path, int(position[i] + start), int(offsets[i]), "records", message)
    lowest, highest = np.minimum.reduceat(offsets, starts), np.maximum.reduceat(offsets, starts)
    latest = np.maximum.reduceat(times, starts)
    latest_time = np.maximum.reduceat(np.where(times == -1, NO_TIME, times), starts)
    stated_last, stated_max = headers.last[batches], headers.max_timestamp[batches]
    stated_max = np.where(stated_max == NO_TIME, -1, stated_max)
    wrapper, magic = headers.wrapper[batches], headers.magic[batches]
    outside = (highest > stated_last) | (~wrapper & (lowest < headers.first[batches]))
    outside |= wrapper & ((highest != stated_last) | (lowest <= headers.previous_last[batches]))
    for i in np.flatnonzero(outside).tolist():
        message = f"records have the offsets {lowest[i]} to {highest[i]}, the header says up to {stated_last[i]}"
        yield Violation(segment.path, int(position[starts[i]] + start), int(lowest[i]), "records", message)
    # A compacted batch may have lost the record with its maximum; what is left must not pass it.
    whole = (ends - starts) == stated_last - headers.first[batches] + 1
    wrong = (magic == 2) & ((latest > stated_max) | (whole & (np.maximum(latest, -1) != stated_max)))
    wrong &= int64(records, "timestampType")[starts] == 0
    wrong &= (stated_max >= -1) | (latest_time > stated_max) | (whole & (latest_time != stated_max))  # KIP-228
    for i in np.flatnonzero(wrong).tolist():
        message = f"the greatest record timestamp is {latest[i]}, the header says {stated_max[i]}"
        yield Violation(segment.path, int(position[starts[i]] + start), int(lowest[i]), "timestamp", message)
