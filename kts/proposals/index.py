"""An index of a proposal in a log: its entries, its files, and how they are read at start-up.

A file has entries of 12 bytes, big-endian, in all revisions of KIP-33::

    timestamp int64 | relative offset int32

Entries are written with each append. When a segment is rolled, its index file is synced and sealed: its modification
time is set to that of the ``.log`` less ten years, a time that no write gives it. So start-up knows that the file
covers the whole segment. Start-up reads the log of a closed segment again if its index file is missing, damaged or not
sealed, and always that of the active segment.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Protocol

import numpy as np

from kts.arguments import INT32_MAX, INT64_MAX
from kts.dataset.partition import PartitionLog
from kts.errors import CorruptIndexError, CorruptRecordError, LogStorageError
from kts.proposals.answers import ENTRY_BYTES, Answer, IndexSize, Start, find
from kts.proposals.modes import AppendedSet, Mode
from kts.proposals.shallow import Shallow, shallow_entries
from kts.segment.entries import at
from kts.segment.locks import new_in_children
from kts.segment.rereading import settled
from kts.segment.segment import Segment
from kts.store import local
from kts.store.local import WritableFile
from kts.store.source import files

GREATEST = INT64_MAX
SEAL_MS = 3652 * 86_400_000
LAYOUT = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])


class IndexEntries:
    """(timestamp, offset) entries of one segment, in the order in which they were added."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("q")  # absolute

    def __len__(self) -> int:
        return len(self.timestamps)

    def pairs(self) -> list[tuple[int, int]]:
        """All entries, offsets absolute."""
        return list(zip(self.timestamps, self.offsets, strict=True))

    def extend(self, timestamps: Iterable[int], offsets: Iterable[int]) -> None:
        """Add entries at the end.

        Raises
        ------
        CorruptIndexError
            An offset is not in this segment, or below the last entry's.
        """
        times, places = array("q", timestamps), array("q", offsets)
        last = self.offsets[-1] if self.offsets else self.base_offset
        for before, after in pairwise([last, *places]):
            if not before <= after <= self.base_offset + INT32_MAX:
                raise CorruptIndexError(
                    f"entry for offset {after}: expected {before} to {self.base_offset + INT32_MAX}"
                )
        self.timestamps += times
        self.offsets += places

    def truncate(self, offset: int) -> bool:
        """Drop the entries at or after an offset, as Kafka's indexes do. True if any were dropped."""
        kept = int(np.searchsorted(np.array(self.offsets, np.int64), offset))
        changed = kept < len(self)
        del self.timestamps[kept:], self.offsets[kept:]
        return changed

    def to_bytes(self, first: int = 0) -> bytes:
        """The bytes of a file with the entries from number ``first`` on."""
        table = np.empty(len(self) - first, LAYOUT)
        table["timestamp"] = self.timestamps[first:]
        table["offset"] = np.array(self.offsets[first:], np.int64) - self.base_offset
        return table.tobytes()

    @classmethod
    def of_bytes(cls, data: bytes, base_offset: int) -> IndexEntries:
        """The entries of a file.

        Raises
        ------
        CorruptIndexError
            The last entry is incomplete, or a relative offset is below 0 or below the one before it.
        """
        if len(data) % ENTRY_BYTES:
            raise CorruptIndexError(f"expected entries of {ENTRY_BYTES} bytes, found {len(data)} bytes")
        table = np.frombuffer(data, LAYOUT)
        entries = cls(base_offset)
        entries.extend(table["timestamp"].tolist(), (table["offset"].astype(np.int64) + base_offset).tolist())
        return entries


class OpenLog(Protocol):
    """What a search needs of a ``kts.Log``; this room lies below it."""

    path: str
    topic: str
    partition: int

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...


class KnownSegments(PartitionLog):
    """The files of an open log by the segments that its index knows, without a look at the directory."""

    def __init__(self, log: OpenLog, bases: tuple[int, ...]) -> None:
        super().__init__(log.path, log.topic, log.partition, log_start_offset=log.log_start_offset)
        self._bases = bases

    @property
    def segments(self) -> list[Segment]:
        """A segment that was deleted meanwhile may be among them."""
        path = os.path.join(self.path, "")
        return [Segment(f"{path}{base:020d}.log", self.topic, self.partition, base) for base in self._bases]


class IndexRule(Protocol):
    """Decides which index entries a log gets, and where a search begins."""

    chained: bool
    allow_negative: bool

    @property
    def segments(self) -> dict[int, IndexEntries]: ...
    def create(self, base_offset: int) -> None: ...
    def load(self, entries: IndexEntries, largest: tuple[int, int] | None) -> None: ...
    def add(self, base_offset: int, shallow: Shallow) -> None: ...
    def close(self, base_offset: int, modified_ms: int) -> None: ...
    def remove(self, base_offset: int) -> None: ...
    def starts(self, target_ms: int) -> Iterator[Start]: ...


def replay(segment: Segment, rule: IndexRule) -> int:
    """Add all entries of a segment's log to a rule, as if they were appended now. Returns the offset after them.

    Raises
    ------
    CorruptRecordError
        The log is damaged, so no index of it can be right; with path and position.
    """
    expected = segment.base_offset
    for position, data in segment.slices():
        try:
            shallow = shallow_entries(data, expected, allow_negative=rule.allow_negative)
        except CorruptRecordError as error:
            raise at(error, segment.path, position) from error.__cause__
        rule.add(segment.base_offset, shallow)
        if len(shallow.last_offsets):
            expected = int(shallow.last_offsets[-1]) + 1
    return expected


class IndexMode(Mode):
    """A rule with a file for each segment.

    Attributes
    ----------
    rebuilt : list of int
        Base offsets of the closed segments whose file was not valid at the last start-up.
    failed : LogStorageError or None
        The last error in writing a file. It does not affect the log; the segment is read again at the next start.

    Notes
    -----
    The thread that writes to the log changes it; any thread may search, also while records are appended.
    """

    suffix = ""
    _lock: threading.RLock

    def __init__(self, rule: IndexRule) -> None:
        self.rule = rule
        self.rebuilt: list[int] = []
        self.failed: LogStorageError | None = None
        self._directory = ""
        self._file: tuple[int, WritableFile] | None = None  # of the active segment, with its base offset
        self._written = 0  # entries in that file
        self._writes = True
        self._end = 0, 0  # the last segment, and the first offset that is not in its index yet
        self._truncations = 0
        new_in_children(self, _lock=threading.RLock)

    def path(self, base_offset: int) -> str:
        """The file of a segment."""
        return os.path.join(self._directory, f"{base_offset:020d}{self.suffix}")

    # --- events of the log --------------------------------------------------------------------------

    def opened(self, log: PartitionLog) -> None:
        self.closed()
        segments = log.segments
        live = {f"{segment.base_offset:020d}{self.suffix}" for segment in segments}
        for entry in files.list_directory(log.path):
            if entry.name.endswith(self.suffix) and entry.name not in live:
                files.remove(entry.path, missing_ok=True)
        self._open(log.path, segments)

    def read(self, log: PartitionLog) -> None:
        """Index a log that somebody else may write: from its files, and from the log where they are not valid.

        Nothing is written; records appended later are not indexed.
        """
        self._writes = False
        listed = log.listed()
        settled(lambda: self._open(listed.path, listed.segments))

    def _open(self, directory: str, segments: list[Segment]) -> None:
        with self._lock:
            self._directory = directory
            self.rebuilt = []
            for base in list(self.rule.segments):
                self.rule.remove(base)
            believed = True
            for segment in segments[:-1]:
                believed = (believed or not self.rule.chained) and self._load(segment)
                if not believed:
                    self.rebuilt.append(segment.base_offset)
                    self._replay(segment)
                    self._seal(segment)
            for segment in segments[-1:]:
                self._replay(segment)
                self._write()

    def appended(self, appended: AppendedSet) -> None:
        with self._lock:
            self.rule.add(appended.base_offset, appended.shallow)
            if len(appended.shallow.last_offsets):
                self._end = appended.base_offset, int(appended.shallow.last_offsets[-1]) + 1
        self._write()

    def rolled(self, log: PartitionLog, closed_base: int, new_base: int) -> None:
        with self._lock:
            path = os.path.join(log.path, f"{closed_base:020d}.log")
            self._seal(Segment(path, log.topic, log.partition, closed_base))
            self._begin(new_base)

    def truncated(self, log: PartitionLog) -> None:
        with self._lock:
            self._truncations += 1
            segments = log.segments
            left = {segment.base_offset for segment in segments}
            self.closed()
            for base in [base for base in self.rule.segments if base not in left]:
                self.removed(base)
            for segment in segments[-1:]:
                self.rule.remove(segment.base_offset)
                self._replay(segment)
                self._write()

    def removed(self, base_offset: int) -> None:
        with self._lock:
            self.rule.remove(base_offset)
        with self._failing():
            files.remove(self.path(base_offset), missing_ok=True)

    def flushed(self) -> None:
        if self._file is not None:
            with self._failing():
                self._file[1].sync()

    def closed(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with self._failing():
                file[1].close()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Keep a disk error instead of raising it: the log does not depend on this file."""
        try:
            yield
        except LogStorageError as error:
            self.failed = error

    # --- files ----------------------------------------------------------------------------------------

    def _load(self, segment: Segment) -> bool:
        """Load a closed segment's entries from its file; False if the file cannot be trusted."""
        path, source = self.path(segment.base_offset), segment.source
        if not source.exists(path) or source.modified_ms(path) != segment.modified_ms - SEAL_MS:
            return False
        try:
            entries = IndexEntries.of_bytes(source.read_bytes(path), segment.base_offset)
        except (CorruptIndexError, LogStorageError):
            return False
        index = segment.closed_time_index()
        if len(index):
            self.rule.load(entries, index.lookup(GREATEST))
        return len(index) > 0  # if not, only the log shows whether a record has a timestamp

    def _begin(self, base_offset: int) -> None:
        self.rule.create(base_offset)
        self._end = base_offset, base_offset
        self.closed()
        self._written = 0
        if not self._writes:
            return
        with self._failing():
            file = WritableFile(self.path(base_offset), create=True)
            self._file = base_offset, file
            file.truncate(0)

    def _replay(self, segment: Segment) -> None:
        """Build a segment's entries from its log, as if it were appended now."""
        self._begin(segment.base_offset)
        self._end = segment.base_offset, replay(segment, self.rule)

    def _write(self) -> None:
        """Write new entries to the active segment's file."""
        if self._file is None:
            return
        base, file = self._file
        entries = self.rule.segments[base]
        if len(entries) > self._written:
            with self._failing():
                file.write(entries.to_bytes(self._written), self._written * ENTRY_BYTES)
                self._written = len(entries)

    def _seal(self, segment: Segment) -> None:
        """Close the last segment: add its closing entry, sync its file and seal it."""
        self.rule.close(segment.base_offset, segment.modified_ms)
        self._write()
        if self._file is None or self._written < len(self.rule.segments[segment.base_offset]):
            return
        with self._failing():
            self._file[1].sync()
            local.set_modified_ms(self._file[1].path, segment.modified_ms - SEAL_MS)
        self.closed()

    # --- lookup ---------------------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """The number of its entries, of all segments."""
        with self._lock:
            return sum(map(len, self.rule.segments.values()))

    def index_size(self, log: PartitionLog) -> IndexSize:
        """The current size of the index."""
        places = [(self.path(segment.base_offset), segment.source) for segment in log.segments]
        entries, size = self.entries, sum(source.size_of(path) for path, source in places if source.exists(path))
        return IndexSize(entries, size, entries * ENTRY_BYTES)

    def search(self, log: PartitionLog | OpenLog, target_ms: int) -> Answer:
        """The first record at or after the target, and how much was read.

        Parameters
        ----------
        log : kts.Log or PartitionLog
            The open log that follows the proposal: the answer is one that the log had during the call. A reader of its
            files instead finds what the index has when it is called.
        """
        while True:
            truncations = self._truncations
            end = None if isinstance(log, PartitionLog) else log.log_end_offset
            with self._lock:
                starts, bases = list(self.rule.starts(target_ms)), tuple(self.rule.segments)
                last, indexed = self._end
            if end is not None and indexed < end and all(start.base_offset != last for start in starts):
                starts.append(Start(last, indexed))
            reader = log if isinstance(log, PartitionLog) else KnownSegments(log, bases)
            answer = self._find(reader, starts, target_ms)
            if truncations != self._truncations:
                continue
            if end is not None and answer.found is not None and answer.found.offset >= end:  # not published yet
                return answer._replace(found=None)
            return answer

    def _find(self, reader: PartitionLog, starts: list[Start], target_ms: int) -> Answer:
        none_is_a_time = not self.rule.allow_negative
        return settled(lambda: find(reader.listed(), starts, target_ms, none_is_a_time=none_is_a_time))
