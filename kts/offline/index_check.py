"""Checks the indexes of a segment against its log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from kts._timeindex import OffsetIndex, TimeIndex
from kts.offline.findings import Violation
from kts.offline.log_check import NO_TIME, Headers, LogCheck
from kts.segment import transactions
from kts.segment.index_checksums import Sealed
from kts.segment.segment import Lookups, Segment
from kts.store.expanded import without_compression

NEGATIVE = "is negative, and such are never indexed"  # the index check's message for timestamps before 1970


class IndexCheck(ABC):
    """Compares an index file with the log, slice by slice.

    The two kinds differ in the rule for an entry (``compare``) and in the rule for the whole file (``at_end``).
    """

    kind: str
    entry_bytes: int

    def __init__(self, log: LogCheck, path: str, index: OffsetIndex | TimeIndex) -> None:
        self.log = log
        self.path = path
        allowed = NEGATIVE if log.rules.before_1970 else None
        self.lines = [line for line in index.check() if allowed is None or not line.endswith(allowed)]
        self.preallocated = any(line.startswith("preallocated") for line in self.lines)
        self.usable = not any(line.startswith("entry ") for line in self.lines)
        self.columns = index.entries()
        self.done = 0  # entries that were compared

    def slice(self, headers: Headers) -> Iterator[Violation]:
        """Compare the entries that point to the next batches of the log."""
        if self.usable and len(headers.position):
            yield from self.compare(headers)

    def end(self, zero_tail_allowed: bool) -> Iterator[Violation]:
        """The faults of the file by itself, and those that only the whole log shows."""
        for line in self.lines:
            if not line.startswith("preallocated"):
                yield Violation(self.path, None, None, "index-file", line)
            elif not zero_tail_allowed:
                yield Violation(self.path, None, None, "zero-tail", line)
        if self.usable:
            yield from self.at_end()

    @abstractmethod
    def compare(self, headers: Headers) -> Iterator[Violation]:
        """The faults of the entries that point to these batches."""

    @abstractmethod
    def at_end(self) -> Iterator[Violation]:
        """The faults that only the whole log shows."""

    def violation(self, n: int, offset: int | None, message: str) -> Violation:
        return Violation(self.path, self.entry_bytes * n, offset, self.kind, f"entry {n}: {message}")


class OffsetIndexCheck(IndexCheck):
    """Entries of an ``.index`` against the batches.

    Notes
    -----
    An entry is right if a batch starts at its position and its offset is that batch's first (up to 1.1) or last one
    (2.0+). When several batches were appended at once, 2.0 to 3.9.0 wrote the last offset of all of them: larger
    offsets are accepted, unless only one entry has one.
    """

    kind, entry_bytes = "offset-index", 8

    def __init__(self, log: LogCheck, path: str, data: bytes | None) -> None:
        super().__init__(log, path, OffsetIndex(_read(log.segment, path, data), log.segment.base_offset))
        self.larger: list[int] = []  # entries with offsets above their batch's

    def compare(self, headers: Headers) -> Iterator[Violation]:
        end = int(headers.position[-1] + headers.size[-1])
        stop = int(np.searchsorted(self.columns[1], end))
        offsets, positions = (column[self.done : stop] for column in self.columns)
        places = np.searchsorted(headers.position, positions)
        inside = np.minimum(places, len(headers.position) - 1)
        starts = headers.position[inside] == positions
        for k in np.flatnonzero(~starts | (headers.sound[inside] & (offsets != headers.last[inside]))).tolist():
            n, offset, position, i = self.done + k, int(offsets[k]), int(positions[k]), int(inside[k])
            first, last = int(headers.first[i]), int(headers.last[i])
            if not starts[k]:
                yield self.violation(n, offset, f"no batch starts at its position {position}")
            elif offset > last:
                self.larger.append(n)
            elif not (first <= offset <= last if headers.wrapper[i] else offset == first):
                yield self.violation(n, offset, f"the batch at position {position} has the offsets {first} to {last}")
        self.done = max(self.done, stop)

    def at_end(self) -> Iterator[Violation]:
        offsets, positions = self.columns
        last = self.log.last_offset
        beyond = [n for n in self.larger if offsets[n] > last]
        if not self.log.damaged:
            for n in range(self.done, len(positions)):
                yield self.violation(n, int(offsets[n]), f"its position {positions[n]} is after the log's end")
            for n in beyond:
                yield self.violation(n, int(offsets[n]), f"the log ends with offset {last}")
        if len(self.larger) == 1 and not beyond:
            n = self.larger[0]
            message = f"neither the first nor the last offset of the batch at position {positions[n]}"
            yield self.violation(n, int(offsets[n]), message)

    def violation(self, n: int, offset: int | None, message: str) -> Violation:
        return Violation(
            self.path, self.entry_bytes * n, offset, self.kind, f"entry {n} with offset {offset}: {message}"
        )


class TimeIndexCheck(IndexCheck):
    """Entries of a ``.timeindex`` against the batches.

    Notes
    -----
    An entry (t, o) is right if t is the greatest timestamp up to the batch with o, and that batch has it. Batches that
    the cleaner emptied may or may not count. In magic 0 and 1 a later entry of the same set may have the timestamp.
    0.10.2 also indexed timestamps of messages it converted to magic 0, and append times it did not store in the
    messages: then all entries of a file are later than its messages.
    """

    kind, entry_bytes = "time-index", 12

    def __init__(self, log: LogCheck, path: str, data: bytes | None) -> None:
        super().__init__(log, path, TimeIndex(_read(log.segment, path, data), log.segment.base_offset))
        self.larger: list[Violation] = []  # entries later than all messages before them

    def compare(self, headers: Headers) -> Iterator[Violation]:
        if self.log.damaged:
            return
        rising = np.maximum.accumulate(np.where(headers.sound, headers.last, -1))
        stop = int(np.searchsorted(self.columns[1], rising[-1], "right"))
        timestamps, offsets = (column[self.done : stop] for column in self.columns)
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

    def at_end(self) -> Iterator[Violation]:
        log, (timestamps, offsets) = self.log, self.columns
        if log.damaged:
            return
        for n in range(self.done, len(offsets)):
            yield self.violation(n, int(offsets[n]), f"the log ends with offset {log.last_offset}")
        if len(self.larger) < len(offsets):
            yield from self.larger
        largest = int(timestamps[-1]) if len(timestamps) else log.no_time
        # A preallocated file is still in use. One without entries may be older than time indexes (before 0.10.1).
        upgraded = largest == log.no_time and log.magics <= {0, 1}
        if log.filled_max > largest and not self.preallocated and not upgraded and self.done == len(offsets):
            last = "there is no entry" if largest == NO_TIME else f"the last entry has {largest}"
            message = f"{last}, but the log's greatest timestamp is {log.filled_max}"
            yield Violation(self.path, self.entry_bytes * len(timestamps), None, self.kind, message)


def _read(segment: Segment, path: str, data: bytes | None) -> bytes:
    return segment.source.read_bytes(path) if data is None else data


def lost_end(segment: Segment, following: int | None) -> Iterator[Violation]:
    """Yield that a segment lost its end, if its indexes know it.

    Parameters
    ----------
    following : int or None
        The base offset of the next segment; None if this is the last one.
    """
    lost = None if following is None else Lookups(segment).lost_end(following)
    if lost is not None:
        yield Violation(segment.path, lost.position, None, "gap", lost.message)


def changed_indexes(segment: Segment, sealed: Sealed) -> Iterator[Violation]:
    """The indexes that changed since ``kts.Log`` closed them, although the log did not."""
    for path, differs in (
        (segment.offset_index_path, sealed.index_differs),
        (segment.time_index_path, sealed.time_index_differs),
    ):
        if path is not None and differs(segment.source.read_bytes(path)):
            message = "the checksum is not the one that kts.Log noted when it closed this file; the log has not changed"
            yield Violation(path, None, None, "index-checksum", message)


class TxnIndex(NamedTuple):
    """What the ``.txnindex`` of a segment lists, to be compared with its aborted transactions.

    Attributes
    ----------
    path : str
        The file, or where it should be.
    """

    path: str
    listed: list[transactions.AbortedTransaction]

    @classmethod
    def of(cls, segment: Segment, path: str | None) -> TxnIndex | None:
        """The index at this path; None if there is none, nor any other index of the segment.

        Raises
        ------
        CorruptIndexError
            It is damaged.
        """
        if path is not None:
            return cls(path, transactions.read_txn_index(path, segment.source))
        if segment.offset_index_path is None and segment.time_index_path is None:
            return None
        return cls(without_compression(segment.path).removesuffix(".log") + ".txnindex", [])

    def compared(self, ended: Iterable[tuple[transactions.Marker, int | None]]) -> Iterator[Violation]:
        """Compare it with the abort markers of the log, each with the first offset of its transaction if it has one."""
        markers, aborted = set[tuple[int, int]](), list[transactions.AbortedTransaction]()
        first_offsets = dict[int, list[int]]()  # by last offset
        for marker, first in ended:
            markers.add((marker.producer_id, marker.offset))
            if first is not None:
                aborted.append(transactions.AbortedTransaction(marker.producer_id, first, marker.offset))
                first_offsets.setdefault(marker.offset, []).append(first)
        entry_bytes = transactions.TXN_ENTRY.size
        for number, one in enumerate(self.listed):
            known = first_offsets.get(one.last_offset, [])
            if (one.producer_id, one.last_offset) not in markers:
                message = f"entry {number}: no abort marker of producer {one.producer_id} at offset {one.last_offset}"
                yield Violation(self.path, number * entry_bytes, one.last_offset, "txn-index", message)
            elif known and known[0] < one.first_offset and one.first_offset not in known:
                message = f"entry {number}: the transaction starts at offset {known[0]}, found {one.first_offset}"
                yield Violation(self.path, number * entry_bytes, one.first_offset, "txn-index", message)
        have = {(one.producer_id, one.last_offset) for one in self.listed}
        for one in aborted:
            if (one.producer_id, one.last_offset) not in have:
                message = f"the aborted transaction of producer {one.producer_id} from {one.first_offset} is not listed"
                yield Violation(self.path, None, one.last_offset, "txn-index", message)
