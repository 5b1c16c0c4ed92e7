"""Both indexes of a segment against its log, while the log's headers pass by."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kts._timeindex import OffsetIndex, TimeIndex
from kts.offline.findings import NO_TIME, Headers, SegmentFacts, Violation
from kts.segment import files
from kts.segment.segment import Segment

NEGATIVE = "is negative, and such are never indexed"  # what an index's own check says of times before 1970


class OffsetIndexCheck:
    """Entries of an ``.index`` against the batches.

    Notes
    -----
    An entry is right if a batch starts at its position and its offset is that batch's first (up to 1.1) or last one
    (2.0+). When several batches were appended at once, 2.0 to 3.9.0 wrote the last offset of all of them: larger ones
    are believed, unless a single entry of many has one.
    """

    def __init__(self, segment: Segment, path: str) -> None:
        self.path = path
        self.base_offset = segment.base_offset
        self.index = OffsetIndex(files.read_bytes(path), segment.base_offset)
        self.lines = self.index.check()
        self.preallocated = any(line.startswith("preallocated") for line in self.lines)
        self.usable = not any(line.startswith("entry ") for line in self.lines)
        self.offsets, self.positions = self.index.entries()
        self.done = 0
        self.larger: list[int] = []

    def slice(self, headers: Headers) -> Iterator[Violation]:
        if not self.usable or len(headers.position) == 0:
            return
        end = int(headers.position[-1] + headers.size[-1])
        stop = int(np.searchsorted(self.positions, end))
        offsets, positions = self.offsets[self.done : stop], self.positions[self.done : stop]
        places = np.searchsorted(headers.position, positions)
        inside = np.minimum(places, len(headers.position) - 1)
        starts = headers.position[inside] == positions
        for k in np.flatnonzero(~starts | (headers.sound[inside] & (offsets != headers.last[inside]))).tolist():
            n, offset, position, i = self.done + k, int(offsets[k]), int(positions[k]), int(inside[k])
            if not starts[k]:
                yield self.violation(n, offset, f"no batch starts at its position {position}")
            else:
                first = int(headers.first[i])
                within = first <= offset <= headers.last[i] if headers.wrapper[i] else offset == first
                if offset > headers.last[i]:
                    self.larger.append(n)
                elif not within:
                    message = f"the batch at position {position} has the offsets {first} to {headers.last[i]}"
                    yield self.violation(n, offset, message)
        self.done = max(self.done, stop)

    def violation(self, n: int, offset: int, message: str) -> Violation:
        return Violation(self.path, 8 * n, offset, "offset-index", f"entry {n} with offset {offset}: {message}")

    def end(self, facts: SegmentFacts, zero_tail_allowed: bool) -> Iterator[Violation]:
        yield from file_lines(self.path, self.lines, zero_tail_allowed)
        if not self.usable:
            return
        if not facts.damaged:
            for n in range(self.done, len(self.positions)):
                message = f"its position {int(self.positions[n])} lies behind the log's end"
                yield self.violation(n, int(self.offsets[n]), message)
        beyond = [n for n in self.larger if self.offsets[n] > facts.last_offset]
        for n in beyond if not facts.damaged else []:
            yield self.violation(n, int(self.offsets[n]), f"the log ends with offset {facts.last_offset}")
        if len(self.larger) == 1 and not beyond:
            n = self.larger[0]
            message = f"neither the first nor the last offset of the batch at position {int(self.positions[n])}"
            yield self.violation(n, int(self.offsets[n]), message)


class TimeIndexCheck:
    """Entries of a ``.timeindex`` against the batches.

    Notes
    -----
    An entry (t, o) is right if t is the greatest timestamp up to the batch with o, and that batch has it. Batches that
    the cleaner emptied may count or not. Sets of magic 0 and 1 are indexed as sets: there the batch may be one behind
    it in the same set. 0.10.2 indexed the times of messages that it converted to magic 0, and the append time of sets
    that it decompressed without giving it to the messages: then all entries of a file are later than its messages.
    """

    def __init__(self, segment: Segment, path: str, allow_negative: bool = False) -> None:
        self.path = path
        self.base_offset = segment.base_offset
        self.none = NO_TIME if allow_negative else -1
        self.index = TimeIndex(files.read_bytes(path), segment.base_offset)
        self.lines = [line for line in self.index.check() if not (allow_negative and line.endswith(NEGATIVE))]
        self.preallocated = any(line.startswith("preallocated") for line in self.lines)
        self.usable = not any(line.startswith("entry ") for line in self.lines)
        self.timestamps, self.offsets = self.index.entries()
        self.done = 0
        self.larger: list[Violation] = []

    def slice(self, headers: Headers, facts: SegmentFacts) -> Iterator[Violation]:
        if not self.usable or len(headers.position) == 0 or facts.damaged:
            return
        rising = np.maximum.accumulate(np.where(headers.sound, headers.last, -1))
        stop = int(np.searchsorted(self.offsets, rising[-1], "right"))
        timestamps, offsets = self.timestamps[self.done : stop], self.offsets[self.done : stop]
        places = np.searchsorted(rising, offsets)
        right = (offsets >= headers.first[places]) & (headers.max_timestamp[places] == timestamps)
        right &= (headers.running_max[places] == timestamps) | (headers.magic[places] == 0)
        for k in np.flatnonzero(~right & (headers.magic[places] != 0)).tolist():
            n, timestamp, offset, i = self.done + k, int(timestamps[k]), int(offsets[k]), int(places[k])
            if not headers.sound[: i + 1].all():
                break
            if offset < headers.first[i]:
                yield self.violation(n, offset, f"no batch has its offset; the next one starts at {headers.first[i]}")
            elif timestamp not in (headers.running_max[i], headers.filled_max[i]):
                message = f"the greatest timestamp up to there is {headers.running_max[i]}, found {timestamp}"
                if headers.magic[i] == 1 and timestamp > headers.running_max[i]:
                    self.larger.append(self.violation(n, offset, message))
                else:
                    yield self.violation(n, offset, message)
            elif headers.magic[i] == 2 and headers.max_timestamp[i] != timestamp:
                message = f"its batch has {headers.max_timestamp[i]} as greatest timestamp, found {timestamp}"
                yield self.violation(n, offset, message)
        self.done = max(self.done, stop)

    def violation(self, n: int, offset: int | None, message: str) -> Violation:
        return Violation(self.path, 12 * n, offset, "time-index", f"entry {n}: {message}")

    def end(self, facts: SegmentFacts, zero_tail_allowed: bool) -> Iterator[Violation]:
        yield from file_lines(self.path, self.lines, zero_tail_allowed)
        if not self.usable or facts.damaged:
            return
        for n in range(self.done, len(self.offsets)):
            yield self.violation(n, int(self.offsets[n]), f"the log ends with offset {facts.last_offset}")
        if len(self.larger) < len(self.offsets):
            yield from self.larger
        largest = int(self.timestamps[-1]) if len(self.timestamps) else self.none
        # A file of full length is still in use. One without entries may be older than time indexes (before 0.10.1).
        upgraded = largest == self.none and facts.magics <= {0, 1}
        if facts.filled_max > largest and not self.preallocated and not upgraded and self.done == len(self.offsets):
            last = "there is no entry" if largest == NO_TIME else f"the last entry has {largest}"
            message = f"{last}, but the log's greatest timestamp is {facts.filled_max}"
            yield Violation(self.path, 12 * len(self.timestamps), None, "time-index", message)


def file_lines(path: str, lines: list[str], zero_tail_allowed: bool) -> Iterator[Violation]:
    """What an index's own check says."""
    for line in lines:
        if line.startswith("preallocated"):
            if not zero_tail_allowed:
                yield Violation(path, None, None, "zero-tail", line)
        else:
            yield Violation(path, None, None, "index-file", line)
