"""Checks the log of a segment: its headers, and every record where asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kts.arguments import INT64_MAX, INT64_MIN
from kts.behaviour import TimeRules
from kts.codec.columns import decode
from kts.errors import CorruptRecordError
from kts.offline.findings import Violation
from kts.segment.damage import AFTER_DAMAGE_BYTES, SearchBudget, next_sound_entry
from kts.segment.entries import Batches, decoded, greatest_timestamp
from kts.segment.index import SEGMENT_OFFSETS
from kts.segment.segment import Segment, int64
from kts.store.protocol import Readable

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

Progress = Callable[[int], None]
# Columns of a deep check. Headers are included so that the decoder reads every field of a record.
DEEP_COLUMNS = "offset timestamp headers position magic timestampType baseOffset lastOffsetDelta maxTimestamp".split()
HEADERS_OF_BYTES = 2**23  # of a log, looked at together;
HEADERS_OF_FETCHED_BYTES = 2**25  # where a store gives them: all of a request
NO_NEXT = INT64_MAX
NO_TIME = INT64_MIN  # below all times


@dataclass
class Headers:
    """The batch headers of one slice as arrays, with running values from the batches before them."""

    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    magic: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]  # first offset; of a wrapper message, the one after the previous entry
    last: npt.NDArray[np.int64]
    wrapper: npt.NDArray[np.bool_]
    max_timestamp: npt.NDArray[np.int64]
    running_max: npt.NDArray[np.int64]
    filled_max: npt.NDArray[np.int64]  # running_max without batches that have no records left
    leader_epoch: npt.NDArray[np.int64]
    sound: npt.NDArray[np.bool_]
    previous_last: npt.NDArray[np.int64]
    producer_id: npt.NDArray[np.int64]
    transactional: npt.NDArray[np.bool_]
    control: npt.NDArray[np.bool_]
    count: npt.NDArray[np.int64]  # -1 for a wrapper message


@dataclass
class LogCheck:
    """One pass over the headers of a segment, with its state so far."""

    segment: Segment
    next_base: int | None  # base offset of the next segment
    deep: bool
    rules: TimeRules
    file: Readable | None = None  # the log, if it is open
    keyed: bool = False  # a deep check finds records without a key
    reached: int = 0  # the offset after the last but one batch: no CRC covers the offset of the last
    last_offset: int = -1
    max_timestamp: int = -1
    filled_max: int = -1
    wrappers: bool = False
    batches: int = 0
    magics: set[int] = field(default_factory=set)
    damaged: bool = False
    gaps: bool = False

    def __post_init__(self) -> None:
        self.max_timestamp = self.filled_max = self.no_time
        highest = self.segment.base_offset + SEGMENT_OFFSETS
        self.highest = highest if self.next_base is None else min(highest, self.next_base)

    @property
    def no_time(self) -> int:
        return NO_TIME if self.rules.before_1970 else -1

    def walk(self, progress: Progress | None) -> Iterator[Violation | Headers]:
        """All headers of the segment and their faults; continues after damage."""
        segment = self.segment
        start, first_bytes, budget = 0, None, SearchBudget()
        most = HEADERS_OF_BYTES if self.file is None else HEADERS_OF_FETCHED_BYTES
        while True:
            try:
                for batches in segment.batches(start, None, first_bytes, self.file, most):
                    yield from self.slice(batches)
                    start = batches.end
                    if progress is not None:
                        progress(len(batches.records()))
            except CorruptRecordError as error:
                self.damaged = True
                zeros = _zero_tail(segment, start)
                if zeros:
                    yield Violation(segment.path, start, None, "zero-tail", f"{zeros} zero bytes after the last batch")
                    return
                yield Violation(segment.path, start, error.offset, "batch", error.message)
                behind = next_sound_entry(segment, start, segment.size_bytes, self.reached, budget)
            else:
                size = segment.size_bytes
                if start >= size:
                    return
                self.damaged = True
                behind = next_sound_entry(segment, start, size, self.reached, budget)
                message = f"{size - start} bytes after the last whole batch: it was cut, or its size is wrong"
                yield Violation(segment.path, start, None, "cut-tail" if behind is None else "batch", message)
            if behind is None:
                return
            start, first_bytes = behind, AFTER_DAMAGE_BYTES

    def slice(self, batches: Batches) -> Iterator[Violation | Headers]:
        headers = self.headers(batches)
        yield from self.check_headers(headers)
        # A batch that was reported is not compared any further.
        headers.sound &= headers.last < self.highest
        headers.sound &= (headers.magic < 2) | (headers.count >= 0)
        yield headers
        if self.deep:
            yield from self.check_records(batches.start, batches.records(), headers)
        good = headers.sound
        if good.any():
            self.reached = max(int(headers.last[good][-2]) + 1, 0) if good.sum() > 1 else self.reached
            self.last_offset = max(self.last_offset, int(headers.last[good].max()))
            self.max_timestamp = max(self.max_timestamp, int(headers.running_max[-1]))
            self.filled_max = max(self.filled_max, int(headers.filled_max[-1]))
            self.wrappers |= bool(headers.wrapper.any())
        self.batches += len(good)
        self.magics |= set(np.unique(headers.magic[good]).tolist())
        self.damaged |= not good.all()

    def headers(self, batches: Batches) -> Headers:
        last = batches.column("last_offset")
        sound = batches.column("crc_ok").copy()
        # No CRC covers the offset: one that the segment cannot hold is not compared with what follows.
        sound_places = np.maximum.accumulate(np.where(sound & (last < self.highest), np.arange(len(last)), -1))
        lasts = np.where(sound_places >= 0, last[sound_places], self.last_offset)
        previous = np.concatenate([[self.last_offset], lasts[:-1]]).astype(np.int64)
        magic, count = batches.column("magic"), batches.column("count")
        wrapper = batches.wrappers
        times = _times(batches, self.rules) if self.rules.before_1970 else batches.column("max_timestamp")
        none = self.no_time
        filled = sound & (count != 0)
        return Headers(
            position=batches.column("position"),
            size=batches.column("size"),
            magic=magic,
            first=np.where(wrapper, previous + 1, batches.column("base_offset")),
            last=last,
            wrapper=wrapper,
            max_timestamp=times,
            running_max=np.maximum(np.maximum.accumulate(np.where(sound, times, none)), self.max_timestamp),
            filled_max=np.maximum(np.maximum.accumulate(np.where(filled, times, none)), self.filled_max),
            leader_epoch=batches.column("leader_epoch"),
            sound=sound,
            previous_last=previous,
            producer_id=batches.column("producer_id"),
            transactional=batches.column("transactional"),
            control=batches.column("control"),
            count=count,
        )

    def check_headers(self, headers: Headers) -> Iterator[Violation]:
        base, following = self.segment.base_offset, self.next_base
        first, last, good = headers.first, headers.last, headers.sound
        known = np.where(headers.wrapper, last, first)  # the first offset that the header itself states
        below = good & (known < base)
        checks: list[tuple[npt.NDArray[np.bool_], str, Callable[[int], str]]] = [
            (~good, "crc", lambda i: "the CRC of the batch is not the stored one"),
            (
                good & (headers.magic == 2) & (headers.count < 0),
                "records",
                lambda i: f"the record count {headers.count[i]} is negative",
            ),
            (
                good & (last < first) & ~headers.wrapper,
                "offset",
                lambda i: f"last offset {last[i]} is below {first[i]}",
            ),
            (below, "offset", lambda i: f"offset {first[i]} is below the segment's base offset {base}"),
            (
                good & ~below & (known <= headers.previous_last),
                "offset",
                lambda i: f"offset {first[i]} does not follow {headers.previous_last[i]}, the last one before it",
            ),
            (
                good & (last >= (NO_NEXT if following is None else following)),
                "offset",
                lambda i: f"last offset {last[i]} reaches into the next segment, which starts at {following}",
            ),
            (
                good & (last - base >= SEGMENT_OFFSETS),
                "offset",
                lambda i: f"offset {last[i]} is more than {SEGMENT_OFFSETS - 1} above the base offset {base}",
            ),
        ]
        for wrong, kind, say in checks:
            for i in np.flatnonzero(wrong).tolist():
                yield Violation(self.segment.path, int(headers.position[i]), int(first[i]), kind, say(i))
        exact = good & ~headers.wrapper
        between = (first > headers.previous_last + 1) & (headers.previous_last >= 0)
        self.gaps |= bool((exact & (between | (headers.count < last - first + 1))).any())

    def check_records(self, start: int, data: memoryview, headers: Headers) -> Iterator[Violation]:
        """Decode every record: the decoder checks counts, lengths and inner CRCs, this method offsets and times."""
        begin, columns = 0, [*DEEP_COLUMNS, *["key"] * self.keyed]
        while begin < len(data):
            end = following = len(data)
            try:
                records = decode(data[begin:], columns)
            except CorruptRecordError as error:
                end = begin + (error.position or 0)
                records = decode(data[begin:end], columns)
                i = int(np.searchsorted(headers.position, start + end))
                if headers.sound[i]:
                    yield Violation(self.segment.path, start + end, error.offset, "records", error.message)
                following = end + int(headers.size[i])
            yield from self.compare_records(start + begin, records, headers)
            begin = following

    def compare_records(self, start: int, records: pa.RecordBatch, headers: Headers) -> Iterator[Violation]:
        if records.num_rows == 0:
            return
        position = int64(records, "position")
        starts = np.flatnonzero(np.concatenate([[True], position[1:] != position[:-1]]))
        ends = np.concatenate([starts[1:], [len(position)]])
        batches = np.searchsorted(headers.position, position[starts] + start)
        offsets, times = int64(records, "offset"), int64(records, "timestamp")

        def violation(i: int, offset: int, kind: str, message: str) -> Violation:
            return Violation(self.segment.path, int(position[i] + start), offset, kind, message)

        rises = np.concatenate([[True], offsets[1:] > offsets[:-1]])
        rises[starts] = True
        for i in np.flatnonzero(~rises).tolist():
            message = f"record offset {offsets[i]} follows {offsets[i - 1]} in the same batch"
            yield violation(i, int(offsets[i]), "records", message)
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
            yield violation(int(starts[i]), int(lowest[i]), "records", message)
        # A compacted batch may have lost the record with its max timestamp; the others must not exceed it.
        whole = (ends - starts) == stated_last - headers.first[batches] + 1
        wrong = (magic == 2) & ((latest > stated_max) | (whole & (np.maximum(latest, -1) != stated_max)))
        wrong &= int64(records, "timestampType")[starts] == 0
        wrong &= (stated_max >= -1) | (latest_time > stated_max) | (whole & (latest_time != stated_max))  # KIP-228
        for i in np.flatnonzero(wrong).tolist():
            message = f"the greatest record timestamp is {latest[i]}, the header says {stated_max[i]}"
            yield violation(int(starts[i]), int(lowest[i]), "timestamp", message)
        if self.keyed:
            lacks = records.column("key").is_null().to_numpy(zero_copy_only=False)
            lacking = np.add.reduceat(lacks, starts, dtype=np.int64)
            for i in np.flatnonzero(lacking).tolist():
                first = int(starts[i]) + int(lacks[starts[i] : ends[i]].argmax())
                message = (
                    f"records without a key in a compacted topic: {lacking[i]} in this batch; a broker refuses such"
                    " records, and its cleaner deletes them"
                )
                yield violation(first, int(offsets[first]), "key", message)


def _zero_tail(segment: Segment, start: int) -> int:
    """Number of bytes from a position to the end, if all are zero."""
    with segment.open() as file:
        size, position = file.size(), start
        while position < size:
            data = file.read(position, 2**20)
            if not data or any(data):
                return 0
            position += len(data)
    return size - start


def _times(batches: Batches, rules: TimeRules) -> npt.NDArray[np.int64]:
    """The greatest timestamp of each batch if those before 1970 count; ``NO_TIME`` if it has none."""
    times = batches.column("max_timestamp").copy()
    for i in np.flatnonzero(rules.hides(times) & batches.column("crc_ok")).tolist():
        try:
            inside = decoded(batches.entry(i))[1]
        except CorruptRecordError:  # the deep check reports it
            continue
        greatest = greatest_timestamp(inside, rules)
        times[i] = NO_TIME if greatest is None else greatest
    if not rules.minus_one:
        times[times == -1] = NO_TIME
    return times
