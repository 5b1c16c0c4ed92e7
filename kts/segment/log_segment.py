"""A writable segment: open, append, look up, search, flush, truncate, recover, close."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts._codec import first_offset
from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT32_MAX, INT64_MAX
from kts.behaviour import NOTHING, Behaviour
from kts.codec.layout import Entries, Entry
from kts.codec.refusals import as_shipped
from kts.config import LogConfig
from kts.errors import (
    CorruptRecordError,
    IndexFullError,
    InvalidOffsetError,
    KtsError,
    LogClosedError,
    LogStorageError,
)
from kts.model import NO_TIMESTAMP, TimestampOffset
from kts.segment import magics
from kts.segment.entries import (
    Slices,
    decoded,
    decoded_by,
    greatest_timestamp,
    is_plain,
    shallow_entries,
)
from kts.segment.index import IndexSpacing, OffsetIndexFile, TimeIndexFile, append_to_both
from kts.segment.index_checksums import Sealed
from kts.segment.locks import new_in_children
from kts.segment.magic_checkpoint import NotedMagics, state_of
from kts.segment.rebuild import IndexConfig, RebuiltIndexes, Recovered, Visit, rebuild
from kts.segment.search import Query, ReadStats, Records, first_match_in
from kts.segment.segment import Lookups, Segment
from kts.segment.trust import IndexTrust
from kts.store import descriptors, local
from kts.store.local import File, FileRange, WritableFile
from kts.store.source import files
from kts.times import show_time

if TYPE_CHECKING:
    import numpy.typing as npt


class SegmentRead(NamedTuple):
    """Bytes of a segment from the first requested entry; the last entry may be incomplete."""

    position: int
    data: bytes
    first_entry_incomplete: bool


class SegmentSlice(NamedTuple):
    """The same bytes as a range of the file, to send unchanged."""

    position: int
    data: FileRange
    first_entry_incomplete: bool


class LogSegment:
    """A writable segment: its log and its two indexes.

    Parameters
    ----------
    directory : str
        The partition directory.
    base_offset : int
        Missing files are created.
    config : LogConfig or mapping, optional
        The topic's settings.
    behaviour : Behaviour, optional
        None is that of the settings.
    now_ms : int
        The clock, for segments without timestamps.
    jitter_ms : int
        Subtracted from ``segment.ms`` when the log asks whether to roll.
    suffix : str
        Appended to all file names, as ``.swap``.

    Notes
    -----
    One thread writes; others may read at the same time, up to ``size``. Only a segment open for writing keeps its
    files open. Answers use an index entry only if the log confirms it: see ``trust``.
    Source: LogSegment of 0.10.2.2 and 3.9.2.
    """

    # --- open -------------------------------------------------------------------------------------

    def __init__(
        self,
        directory: str,
        base_offset: int,
        config: LogConfig | Mapping[str, Any] | None = None,
        behaviour: Behaviour | None = None,
        *,
        now_ms: int,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        self.config = LogConfig.of(config)
        self.behaviour = behaviour or self.config.behaviour()
        self.base_offset = base_offset
        self.jitter_ms = jitter_ms
        self.created_ms = now_ms
        self.failed: KtsError | None = None
        stem = os.path.join(directory, f"{base_offset:020d}")
        self.path = f"{stem}.log{suffix}"
        self._log: WritableFile | None = None
        self._log_dirty = False
        self._lent: weakref.WeakSet[FileRange] = weakref.WeakSet()
        self._times = self.behaviour.times
        self._least = self._times.least
        self._none = NO_TIMESTAMP if self._times.minus_one_means_none else NOTHING  # it never counts
        most = self.config.segment_index_bytes
        index, time_index = f"{stem}.index{suffix}", f"{stem}.timeindex{suffix}"
        self._index_path = index
        self._offset_index: OffsetIndexFile | None = None
        self._lock: threading.Lock
        new_in_children(self, _lock=threading.Lock)
        missing = [path for path in (self.path, index, time_index) if not files.exists(path)]
        self.is_new = self.path in missing
        try:
            self._open_log()
            if index not in missing or not self.behaviour.opens_index_late:
                self.open_offset_index()
            self.time_index = TimeIndexFile(time_index, base_offset, most, self.behaviour)
        except LogStorageError:
            for path in missing:
                with suppress(LogStorageError):
                    files.remove(path, missing_ok=True)
            raise
        self._largest, self._offset_of_largest = self._last_time_entry()
        # The time index says so; the log has not confirmed it yet.
        self._claimed = not (self.behaviour.believes_indexes or self.is_new)
        self._rolling_base: int | None = None
        self._magics = magics.NOTHING_READ
        self._spacing = IndexSpacing(self.config.index_interval_bytes, self.size)
        self.loaded_bytes = self.size  # index entries found at load cover these bytes
        self.trust = IndexTrust(self)

    @property
    def offset_index(self) -> OffsetIndexFile:
        """The offset index, opened with the segment, or a missing one at its first use."""
        made = self._offset_index
        return self.open_offset_index() if made is None else made

    def open_offset_index(self) -> OffsetIndexFile:
        """Open the offset index, which makes a missing one, unless it is open."""
        with self._lock:
            if self._offset_index is None:
                most = self.config.segment_index_bytes
                self._offset_index = OffsetIndexFile(self._index_path, self.base_offset, most, self.behaviour)
            return self._offset_index

    def _indexes(self) -> tuple[OffsetIndexFile | TimeIndexFile, ...]:
        """The indexes that are open."""
        return (self.time_index,) if self._offset_index is None else (self._offset_index, self.time_index)

    def _open_log(self) -> None:
        if self.is_new:
            with WritableFile(self.path, create=True) as file:
                if self.config.preallocate:
                    file.truncate(self.config.segment_bytes)
        self.size = 0 if self.is_new else files.size_of(self.path)

    def _last_time_entry(self) -> tuple[int, int]:
        if self.time_index.entries and self.behaviour.counts(self.time_index.last_timestamp):
            return self.time_index.last_timestamp, self.time_index.last_offset
        return self._least, self.base_offset

    def __repr__(self) -> str:
        time = self.claimed_timestamp_ms
        largest = "" if time is None else f", largest_timestamp={show_time(time)}"
        return f"LogSegment({self.path!r}, base_offset={self.base_offset}, size={self.size}{largest})"

    # --- facts ------------------------------------------------------------------------------------

    @property
    def txn_index_path(self) -> str:
        """Where the ``.txnindex`` file is, or would be."""
        stem, _, suffix = self.path.rpartition(".log")
        return f"{stem}.txnindex{suffix}"

    @property
    def indexes_are_full(self) -> bool:
        """True if one of the indexes has no room: the log rolls before the next append."""
        index = self._offset_index or self.offset_index
        return index.entries >= index.max_entries or self.time_index.is_full

    @property
    def modified_ms(self) -> int:
        """Modification time of the ``.log`` file, ms since the epoch."""
        return files.modified_ms(self.path)

    def index_config(self) -> IndexConfig:
        """The settings for a rebuild of the indexes."""
        return IndexConfig.of(self.config, self.behaviour)

    def fits(self, offset: int) -> bool:
        """True if an offset fits into a relative offset of this segment."""
        relative = offset - self.base_offset
        return relative <= INT32_MAX and (relative >= 0 or not self.behaviour.refuses_lower_offsets)

    def log_file(self) -> File:
        """The log, for reading. It stays readable if the segment is renamed or deleted meanwhile."""
        log = self._log
        if log is not None:
            return log
        path = self.path
        try:
            return File(path)
        except LogStorageError as error:
            if error.errno != errno.ENOENT or path == self.path:
                raise
            return File(self.path)

    def _writable(self) -> WritableFile:
        if self.failed is not None:
            raise LogClosedError(f"the segment failed before: {self.failed}", path=self.path)
        log = self._log
        if log is None:
            log = self._log = WritableFile(self.path)
            descriptors.keep_open(self)
        return log

    def _fail(self, error: LogStorageError) -> None:
        # A copy without traceback: its frames would keep the files open.
        self.failed = LogStorageError(error.message, path=error.path, errno=error.errno)

    # --- append -----------------------------------------------------------------------------------

    def append(
        self,
        records: bytes | bytearray | memoryview,
        first_offset: int,
        largest_offset: int,
        largest_timestamp_ms: int,
        offset_of_largest_timestamp: int,
        entries: Entries | None = None,
        magic: int = magics.UNREAD,
    ) -> None:
        """Append a set of whole entries to the log, and add its index entries.

        Parameters
        ----------
        records : buffer
            Validated bytes.
        first_offset, largest_offset : int
            First and last offset of the set.
        largest_timestamp_ms, offset_of_largest_timestamp : int
            Max timestamp of the set and its shallow offset. Where batches are indexed, their headers have them.
        entries : Entries, optional
            Entries of the set; None parses them.
        magic : int
            No entry of the set has a newer magic.

        Raises
        ------
        InvalidOffsetError
            An offset does not fit, or is not in order.
        LogStorageError
            Writing failed; the segment is unchanged, or ``failed`` is set.
        """
        count = len(records)
        if not count:
            return
        log = self._log
        if log is None or self.failed is not None:
            log = self._writable()
        if not self.fits(largest_offset):
            most = self.base_offset + INT32_MAX
            message = f"expected an offset from {self.base_offset} to {most}, found {largest_offset}"
            raise InvalidOffsetError(message, path=self.path, offset=largest_offset)
        position = self.size
        start, known = self._magics[-1]
        if magic != known or position < start:  # it may have been truncated
            with self._lock:
                self._magics = magics.appended(self._magics, position, magic)
        index = self._offset_index or self.offset_index
        before = self._largest, self._offset_of_largest, self._spacing.position, self._rolling_base
        marks = index.entries, self.time_index.entries
        self._log_dirty = True
        try:
            log.write(records, position)
            if self.behaviour.indexes_last_offset:
                self._index_batches(records, Entries(records) if entries is None else entries, largest_timestamp_ms)
            else:
                self._index_set(count, position, first_offset, largest_timestamp_ms, offset_of_largest_timestamp)
            self.size = position + count
        except BaseException as error:
            if not self.behaviour.undoes_failed_appends and isinstance(error, (IndexFullError, InvalidOffsetError)):
                self.size = position + count
                raise
            self._largest, self._offset_of_largest, self._spacing.position, self._rolling_base = before
            self._put_back(position, *marks)
            raise

    @property
    def entry_is_due(self) -> bool:
        """Whether the next set appended here gets an index entry."""
        return self._spacing.is_due(self.size)

    def _index_set(
        self, count: int, position: int, first_offset: int, timestamp_ms: int, timestamp_offset: int
    ) -> None:
        """At most one index entry for a set, with its first offset."""
        if position == 0:
            self._rolling_base = timestamp_ms
        if timestamp_ms > self._largest and timestamp_ms != self._none:
            self._largest, self._offset_of_largest = timestamp_ms, timestamp_offset
        if self._spacing.is_due(position):
            self._add_entry(first_offset, position)

    def _index_batches(self, records: bytes | bytearray | memoryview, entries: Entries, timestamp_ms: int) -> None:
        """An index entry for each batch that passes the interval, with its last offset."""
        position = self.size
        for entry in entries:
            largest, last_offset, size = entry.max_timestamp, entry.last_offset, entry.size
            if self._times.before_1970 and self._times.hides(largest):
                alone = len(entries) == 1
                largest = timestamp_ms if alone else self._hidden_timestamp(records[entry.position : entry.end])
            if position == 0:
                self._rolling_base = largest
            if largest > self._largest and largest != self._none:
                self._largest, self._offset_of_largest = largest, last_offset
            if self._spacing.is_due(position):
                self._add_entry(last_offset, position)
            position += size

    def _add_entry(self, offset: int, position: int) -> None:
        if self.trust.corrupt is not None:
            return  # after a corrupt entry, which may be any number, no order holds; the index is rebuilt
        index = self._offset_index or self.offset_index
        if append_to_both(index, self.time_index, offset, position, self._largest, self._offset_of_largest):
            self._spacing.position = position  # else an index is full; the log rolls before the next append

    def _put_back(self, size: int, entries: int, time_entries: int) -> None:
        """Restore the files to their state before a failed append."""
        try:
            log = self._writable()
            log.truncate(size)
            if self.config.preallocate:
                log.truncate(max(size, self.config.segment_bytes))
            if self.offset_index.entries != entries or self.offset_index.dirty:
                self.offset_index.cut(entries)
            if self.time_index.entries != time_entries or self.time_index.dirty:
                self.time_index.cut(time_entries)
        except LogStorageError as error:
            self._fail(error)

    # --- read -------------------------------------------------------------------------------------

    def translate_offset(self, offset: int, start_position: int = 0) -> Entry | None:
        """The first entry at or after ``start_position`` that reaches an offset; None if none does."""
        start = max(self.trust.place(offset), start_position)
        entries = shallow_entries(self.log_file(), start, self.size, self.behaviour, self.path)
        if self.behaviour.searches_by_base_offset:
            return self._found_by_base_offset(entries, offset)
        for entry in entries:
            if entry.last_offset >= offset:
                return entry
        return None

    def _found_by_base_offset(self, entries: Iterable[Entry], offset: int) -> Entry | None:
        """The entry that has an offset, else the first that begins after it; as Kafka since 4.1, of rising offsets."""
        before: Entry | None = None
        for entry in entries:
            base = self._base_offset_of(entry)
            if base == offset:
                return entry
            if base > offset:
                return before if before is not None and before.last_offset >= offset else entry
            before = entry
        return before if before is not None and before.last_offset >= offset else None

    def _base_offset_of(self, entry: Entry) -> int:
        """The offset of the first record, for which a wrapper is opened."""
        if entry.magic == 2 or is_plain(entry):
            return entry.base_offset
        try:
            return first_offset(self.log_file().read(entry.position, entry.size), DEFAULT_MAX_DECOMPRESSED_BYTES)
        except CorruptRecordError as error:
            raise as_shipped(error, self.behaviour) from error

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        max_position: int | None = None,
        max_offset: int | None = None,
        min_one_message: bool = False,
    ) -> SegmentRead | None:
        """Bytes from the first entry that reaches an offset; None if none does.

        Parameters
        ----------
        max_bytes : int
            Most bytes to return; the last entry may be incomplete.
        max_position, max_offset : int, optional
            Stop at this position, or at the entry that reaches this offset.
        min_one_message : bool
            Return the first entry whole, even if it is larger.
        """
        found = self._range(start_offset, max_bytes, max_position, max_offset, min_one_message)
        if found is None:
            return None
        position, count, incomplete = found
        return SegmentRead(position, self.log_file().read(position, count) if count else b"", incomplete)

    def slice(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        max_position: int | None = None,
        max_offset: int | None = None,
        min_one_message: bool = False,
    ) -> SegmentSlice | None:
        """As ``read``, but as a range of the file."""
        found = self._range(start_offset, max_bytes, max_position, max_offset, min_one_message)
        if found is None:
            return None
        position, count, incomplete = found
        return SegmentSlice(position, self.lend(position, count), incomplete)

    def lend(self, position: int, count: int) -> FileRange:
        """A range of the log with its own descriptor; truncation revokes it."""
        if not count:
            return FileRange(None, position, 0)
        file = self._log
        lent = FileRange(self.log_file() if file is None else file.share(), position, count)
        self._lent.add(lent)
        return lent

    def _take_back(self, size: int) -> None:
        """Revoke lent ranges that extend past a position, because the log is about to be truncated there."""
        for lent in list(self._lent):
            if lent.position + lent.count > size:
                lent.revoke()

    def newest_magic(self, lent: FileRange, enough: int) -> int:
        """The newest known magic of the entries in a lent range.

        It is ``magics.UNREAD`` if not all of them are known, unless a known one is newer than ``enough``.
        """
        known = magics.newest(self._magics, lent.position, lent.position + lent.count, enough)
        return magics.UNREAD if lent.revoked else known  # entries that were appended since the truncation

    def read_magics(self, lent: FileRange, enough: int) -> None:
        """Read the headers of the entries in a lent range, for ``newest_magic``, up to one newer than ``enough``."""
        if lent.file is None:
            return
        found, end = magics.read(lent.file, lent.position, lent.position + lent.count, self.size, enough)
        with self._lock:
            if found and not lent.revoked:
                self._magics = magics.learned(self._magics, found, end)

    def load_magics(self, noted: NotedMagics | None) -> None:
        """Believe the magics that a clean stop noted, if the log is as it was then."""
        if noted is not None and noted.log == state_of(self.path):
            self._magics = noted.runs

    def note_magics(self) -> NotedMagics | None:
        """The magics to note of the closed segment; None if no entry is known to have magic 0 or 1."""
        runs = self._magics[: bisect_left(self._magics, (self.size,))]
        if all(magic >= 2 for _, magic in runs):
            return None
        state = state_of(self.path)
        return NotedMagics(state, runs) if state[1:2] == (self.size,) else None

    def _range(
        self,
        start_offset: int,
        max_bytes: int,
        max_position: int | None,
        max_offset: int | None,
        min_one_message: bool,
    ) -> tuple[int, int, bool] | None:
        """Position, count of bytes, and whether the first entry is incomplete."""
        size = self.size
        first = self.translate_offset(start_offset)
        if first is None:
            return None
        most = max(max_bytes, first.size) if min_one_message else max_bytes
        end = size if max_position is None else min(max_position, size)
        if max_offset is not None:
            last = self.translate_offset(max_offset, first.position)
            end = min(end, size if last is None else last.position)
        count = max(min(end - first.position, most), 0)
        return first.position, count, 0 < most < first.size

    def next_offset(self) -> int:
        """The offset after the last entry of the log; the base offset if there is none."""
        start = self.trust.place(INT64_MAX)
        if self.behaviour.believes_indexes:  # Kafka takes a segment for an empty one if its index is damaged
            first = self.translate_offset(self.offset_index.last_offset)
            start = self.size if first is None else first.position
        end = self.base_offset
        for entry in shallow_entries(self.log_file(), start, self.size, self.behaviour, self.path):
            end = entry.last_offset + 1
        return end

    # --- the greatest timestamp -------------------------------------------------------------------

    @property
    def max_timestamp_so_far(self) -> TimestampOffset:
        """Greatest timestamp of its entries and the offset of the entry; (-1, base offset) if there is none."""
        if self._claimed:
            self._settle()
        if self._largest == self._least:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(self._largest, self._offset_of_largest)

    @property
    def claimed_timestamp_ms(self) -> int | None:
        """Its greatest timestamp as far as it is known without reading; None if there is none. For people only."""
        return self._largest if self._largest > self._least else None

    @property
    def has_timestamp(self) -> bool:
        """True if it has a timestamp."""
        if self._claimed:
            self._settle()
        return self._largest > self._least

    @property
    def largest_timestamp_ms(self) -> int:
        """Its greatest timestamp, or the file's modification time if it has none."""
        return self._largest if self.has_timestamp else self.modified_ms

    def _settle(self) -> None:
        """Take the greatest timestamp from the last time-index entry if the log confirms it, otherwise from the log."""
        (time, offset), slot = self._last_time_entry(), self.trust.last_believed()
        if self._reaches_beyond(time):
            self.trust.mark_corrupt("the log has later timestamps than the time index")
        if self.trust.corrupt is not None:
            time, offset = self._derived_largest(slot)
        self._largest, self._offset_of_largest = time, offset
        self._claimed = False

    def _reaches_beyond(self, time: int) -> bool:
        """Whether a batch after the last offset-index entry is later than a time; emptied batches do not count."""
        for batches in Slices(self.log_file(), self.trust.place(INT64_MAX), self.size):
            times = batches.column("max_timestamp")
            if ((times > time) & (times != NO_TIMESTAMP) & (batches.column("count") != 0)).any():
                return True
        return False

    def _derived_largest(self, slot: int) -> tuple[int, int]:
        """The greatest timestamp: from the last confirmed time-index entry at or before a slot, and the log after it.

        If the log is damaged, entries after the damage count as far as the offset index leads there.
        """
        time, offset, start = self._least, self.base_offset, self.trust.place(self.base_offset)
        found = self.trust.last_time(slot, INT64_MAX, self.base_offset)
        if found is not None and self.behaviour.counts(found.timestamp_ms):
            time, offset, start = found
        time, offset, end = self._greatest_from(start, time, offset)
        if end < self.size:
            time, offset, _ = self._greatest_from(max(self.trust.place(INT64_MAX), end), time, offset)
        return time, offset

    def _greatest_from(self, start: int, time: int, offset: int) -> tuple[int, int, int]:
        """The greatest of a given timestamp and those from a position on, its offset, and the end of the entries."""
        slices = Slices(self.log_file(), start, self.size)
        for batches in slices:
            times, lasts = batches.column("max_timestamp"), batches.column("last_offset")
            if not (self.behaviour.fails_at_damage or batches.all_sound):
                # A damaged header may claim any offset: never index one above the sound batches so far.
                lasts = np.maximum.accumulate(np.where(batches.column("crc_ok"), lasts, offset))
            for row in self._times.hides(times).nonzero()[0].tolist():
                hidden = self._hidden_timestamp(batches.entry(row))
                if hidden != self._none and hidden > time:
                    time, offset = hidden, int(lasts[row])
            row = int(times.argmax())
            if times[row] > time and times[row] != NO_TIMESTAMP:
                time, offset = int(times[row]), int(lasts[row])
        if self.behaviour.fails_at_damage and slices.reason is not None and slices.position < self.size:
            raise CorruptRecordError(slices.reason, path=self.path, position=slices.position)
        return time, offset, slices.position

    def _load_largest(self, slot: int) -> None:
        """Set the greatest timestamp from a time-index entry and the log entries after its place."""
        self._largest, self._offset_of_largest = self._derived_largest(slot)
        self._claimed = False

    # --- search by time ---------------------------------------------------------------------------

    def query(self, timestamp_ms: int, first_offset: int, one_segment: bool = False) -> Query:
        """The query for a search of this log, by the topic's settings."""
        return Query(
            timestamp_ms,
            first_offset,
            one_segment,
            none_is_a_time=not self._times.minus_one_means_none,
            exact_headers=self._times.minus_one_means_none or self.behaviour.compares_early_times,
            ends_at_first_entry=self.behaviour.search_ends_at_first_entry,
        )

    def find_offset_by_timestamp(self, timestamp_ms: int, starting_offset: int | None = None) -> TimestampOffset | None:
        """The first record from an offset on with at least this timestamp; None if there is none.

        Raises
        ------
        KtsError
            The search ends at the first entry, whose header promises such a record, and no record matches.
        """
        lowest = self.base_offset if starting_offset is None else starting_offset
        return first_match_in(self, self.query(timestamp_ms, lowest), ReadStats())

    def reaches(self, query: Query) -> bool:
        """False if its greatest timestamp rules out a match; see ``SearchedSegment``."""
        if query.one_segment:
            return self.largest_timestamp_ms >= query.timestamp_ms
        if query.reads_all:
            return True
        if self._claimed:
            self._settle()
        greatest = self._largest
        if self._times.counts(greatest) and greatest not in (NO_TIMESTAMP, NOTHING):
            return greatest >= query.timestamp_ms
        return True  # no timestamp is known, so its records must be read

    def matching_entries(self, query: Query, stats: ReadStats) -> Iterator[Records]:
        """The records of the entries with headers that allow a match."""
        lowest, log, checked = query.first_offset, self.log_file(), self.behaviour.checks_searched_entries
        position = self.trust.place(lowest) if query.reads_all else self.trust.place_of_time(query.timestamp_ms, lowest)
        for entry in shallow_entries(log, position, self.size, self.behaviour, self.path):
            if not query.may_match(entry.max_timestamp):
                continue
            if is_plain(entry) and not checked:  # the header is enough; damage after it is ignored
                offsets, timestamps = np.array([entry.last_offset]), np.array([entry.max_timestamp])
            elif entry.last_offset < lowest and checked:
                continue
            else:
                offsets, timestamps = self._decoded(log.read(entry.position, entry.size))
            yield Records(entry.position, offsets, timestamps)

    def check_end(self) -> None:
        """Nothing to check: this log knows its own end."""

    def _decoded(self, entry: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        try:
            return decoded_by(entry, self.behaviour)
        except CorruptRecordError as error:
            if self.behaviour.released_codes:
                raise as_shipped(error, self.behaviour) from error
            raise

    # --- flush ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until the log and both indexes are on disk.

        Raises
        ------
        LogStorageError
            The state on disk is unknown: the segment has failed.
        """
        try:
            if self._log_dirty:
                self._writable().sync()
                self._log_dirty = False
            for index in self._indexes():
                index.flush()
        except LogStorageError as error:
            self._fail(error)
            raise

    def rest(self) -> None:
        """Release all descriptors until the next write; the last active user closes one in use."""
        self._log = None
        for index in self._indexes():
            index.rest()

    # --- truncate ---------------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop every entry that reaches an offset, and all entries after it.

        Returns
        -------
        int
            Bytes that were cut off the log.

        Notes
        -----
        If no entry reaches the offset, the indexes stay or are enlarged, by the release.
        """
        self.load_as_active()
        entry = self.translate_offset(offset)
        if entry is None and not self.behaviour.resizes_by_truncation:
            return 0
        log = self._writable()
        times = self.time_index
        self.offset_index.truncate_to(offset)
        if entry is not None and self.behaviour.removes_cut_entry:
            self.offset_index.truncate_to_position(entry.position)
        times.truncate_to(offset)
        self.resize_indexes()
        cut = 0
        if entry is not None:
            cut = self.size - entry.position
            self.size = entry.position
            self._log_dirty = True
            self._take_back(self.size)
            log.truncate(entry.position)
        if self.size == 0:
            self.created_ms = now_ms
            self._rolling_base = None
        self._spacing.position = self.size
        self.loaded_bytes, self.trust.sealed = min(self.loaded_bytes, self.size), None
        if self._times.counts(self._largest):
            self._load_largest(times.entries - 1 if self.behaviour.believes_indexes else self.trust.last_believed())
        return cut

    def resize_indexes(self, max_bytes: int | None = None) -> None:
        """Preallocate both indexes up to ``segment.index.bytes``, as an active segment needs."""
        if max_bytes is not None:
            self.offset_index.max_bytes = self.time_index.max_bytes = max_bytes
        self.offset_index.expand()
        self.time_index.expand()

    def load_as_active(self) -> None:
        """Verify sealed indexes and load the greatest timestamp, because appends build on them."""
        for index in self._indexes():
            self.trust.is_as_sealed(index)
        if self._claimed:
            self._load_largest(self.trust.last_believed())

    # --- recover: indexes rebuilt from the log ----------------------------------------------------

    def recover(self, visit: Visit | None = None, before_cut: Callable[[int], None] | None = None) -> Recovered:
        """Rebuild both indexes and truncate the log at the first unsound entry.

        Parameters
        ----------
        visit : callable, optional
            Called with the sound entries of each slice, in order, to follow producer state and leader epochs.
        before_cut : callable, optional
            Called with the position before the log is truncated, to truncate or save dependent files first.

        Raises
        ------
        KtsError
            Indexes do not adapt: the error that Kafka raises. They are left as Kafka leaves them.
        """
        rebuilt = rebuild(self.log_file(), self.size, self.base_offset, self.index_config(), self.path, visit)
        cut = rebuilt.size - rebuilt.valid_bytes
        if cut and before_cut is not None and rebuilt.error is None:
            before_cut(rebuilt.valid_bytes)
        self.adopt(rebuilt)
        if rebuilt.error is not None:
            raise rebuilt.error
        return Recovered(self.path, rebuilt.valid_bytes, cut, rebuilt.reason, rebuilt.batches)

    def adopt(self, rebuilt: RebuiltIndexes) -> None:
        """Apply a rebuild: write both indexes, and truncate the log.

        The writer may have been killed before the log was on disk: the next flush syncs all of it.
        """
        self._log_dirty = True
        self.trust.rebuilt()
        self._claimed = False
        try:
            log = self._writable()
            self.offset_index.reset(rebuilt.offset_index)
            self.time_index.reset(rebuilt.time_index)
            self._largest, self._offset_of_largest = rebuilt.largest_timestamp_ms, rebuilt.offset_of_largest
            if self._largest == NO_TIMESTAMP and not (self._times.minus_one and rebuilt.batches):
                self._largest = self._least
            if rebuilt.error is not None:
                return
            if rebuilt.valid_bytes < self.size:
                self.size = self._spacing.position = rebuilt.valid_bytes
                self._take_back(self.size)
                log.truncate(rebuilt.valid_bytes)
            self.offset_index.trim()
            self.time_index.trim()
        except LogStorageError as error:
            self._fail(error)
            raise

    def tail_fault(self) -> str | None:
        """The fault after the last offset-index entry; None if the log is sound from there to its end."""
        index, times = self.offset_index, self.time_index
        position = self.trust.place(INT64_MAX)
        slices, last = Slices(self.log_file(), position, self.size), self.base_offset - 1
        for batches in slices:
            if not batches.all_sound:
                return "the CRC of a batch in the tail is wrong"
            offsets = batches.column("last_offset")  # which no CRC covers
            if offsets[0] <= last or (np.diff(offsets) <= 0).any():
                return "an offset in the tail is not above the one before it"
            last = int(offsets[-1])
            if not self.fits(last):
                return f"offset {last} does not fit into the segment"
        if slices.reason is not None:
            return slices.reason
        if index.entries and (index.last_offset > last or not index.trusts(index.entries - 1)):
            return "the offset index ends with an entry that is not the log's"
        if times.entries and times.last_entry[1] > last:
            return f"the time index ends with offset {times.last_entry[1]}, the log with {last}"
        return None

    def rebuilt_indexes(self) -> RebuiltIndexes:
        """The indexes rebuilt for the bytes that the log had when it was loaded."""
        return rebuild(self.log_file(), self.loaded_bytes, self.base_offset, self.index_config(), self.path)

    def repair(self, rebuilt: RebuiltIndexes, following: int | None) -> Recovered | None:
        """Replace corrupt indexes with rebuilt ones; no reader may be active.

        Parameters
        ----------
        rebuilt : RebuiltIndexes
            From ``rebuilt_indexes``.
        following : int or None
            The base offset of the next segment.

        Returns
        -------
        Recovered or None
            What was done; None if the log is damaged: confirmed entries of the old indexes still lead past the damage.
            If only the indexes show that the end of the log is missing, the result says so, and they are kept.
        """
        why, index, times = self.trust.corrupt, self.offset_index, self.time_index
        if rebuilt.size != self.loaded_bytes:  # cut meanwhile
            rebuilt = self.rebuilt_indexes()
        if why is None or rebuilt.valid_bytes < rebuilt.size or rebuilt.error is not None:
            return None
        if following is not None:
            lost = Lookups(Segment(self.path, "", 0, self.base_offset)).lost_end(following)
            if lost is not None:
                return Recovered(self.path, self.size, 0, lost.message, rebuilt.batches)
        own_times = times.own_entries_after(rebuilt.largest_timestamp_ms)
        index.replace(rebuilt.offset_index + index.own_entries())
        times.replace(rebuilt.time_index + own_times)
        time, offset = rebuilt.largest_timestamp_ms, rebuilt.offset_of_largest
        if time == NO_TIMESTAMP and not (self._times.minus_one and rebuilt.batches):
            time = self._least
        if self.size > self.loaded_bytes:  # the old value came from an index that later proved corrupt
            time, offset, _ = self._greatest_from(self.loaded_bytes, time, offset)
        self._largest, self._offset_of_largest = time, offset
        self.trust.rebuilt()
        self._claimed = False
        return Recovered(self.path, 0, 0, f"{why}: indexes rebuilt", rebuilt.batches)

    # --- roll -------------------------------------------------------------------------------------

    def time_waited_for_roll(self, now_ms: int, message_timestamp_ms: int) -> int:
        """Milliseconds from its first timestamp to an incoming one; without timestamps, since it was created."""
        if self._rolling_base is None and self.size:
            try:
                self._rolling_base = self._first_timestamp()
            except CorruptRecordError:  # existing damage does not block appends
                if self.behaviour.fails_at_damage:
                    raise
                self._rolling_base = self._none
        base = self._none if self._rolling_base is None else self._rolling_base
        known = base != self._none != message_timestamp_ms if self._times.before_1970 else base >= 0
        if known:
            return message_timestamp_ms - base
        return now_ms - self.created_ms

    @property
    def first_timestamp_ms(self) -> int | None:
        """The greatest timestamp of its first entry; None if there is no entry."""
        return self._first_timestamp()

    def _first_timestamp(self) -> int | None:
        entry = next(shallow_entries(self.log_file(), 0, self.size, self.behaviour, self.path), None)
        if entry is not None and self._times.hides(entry.max_timestamp):
            return self._hidden_timestamp(self.log_file().read(0, entry.size))
        return None if entry is None else entry.max_timestamp

    def _hidden_timestamp(self, entry: bytes | bytearray | memoryview) -> int:
        found = greatest_timestamp(decoded(bytes(entry), verify_crc=False)[1], self._times)
        return self._none if found is None else found

    def append_closing_entry(self) -> None:
        """Add the greatest timestamp to the time index, if its last entry is earlier."""
        if self.trust.corrupt is not None:
            return
        self.time_index.maybe_append(self._largest, self._offset_of_largest, skip_full_check=True)

    def on_become_inactive_segment(self) -> None:
        """Add the closing entry to the time index, and free preallocated space."""
        self.append_closing_entry()
        self.offset_index.trim()
        self.time_index.trim()
        self._trim_log()

    def _trim_log(self) -> None:
        if self.config.preallocate and files.size_of(self.path) > self.size:
            self._log_dirty = True
            self._writable().truncate(self.size)

    def load_seal(self, sealed: Sealed | None) -> None:
        """Compare the indexes with what was recorded when they were closed."""
        if sealed is not None and not self.behaviour.believes_indexes and self.trust.load_seal(sealed):
            self._claimed = False

    def go_on_from(self, before: LogSegment) -> None:
        """Keep the age of the same segment before it was reloaded, its magics, and the ranges of it that are read."""
        self.created_ms, self.jitter_ms, self._rolling_base = before.created_ms, before.jitter_ms, before._rolling_base
        self._magics, self._lent = before._magics, before._lent

    # --- close ------------------------------------------------------------------------------------

    def close(self, *, flush: bool = True) -> None:
        """Add the closing entry, trim both indexes, flush; a failed segment only closes its descriptors."""
        try:
            if self.failed is None:
                self._close_indexes()
                self._trim_log()
                if flush:
                    self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close all descriptors and leave the files as they are; no reader may be active."""
        log, self._log = self._log, None
        try:
            if log is not None:
                log.close()
        finally:
            for index in self._indexes():
                index.abandon()

    def _close_indexes(self) -> None:
        try:
            self.append_closing_entry()
        except (IndexFullError, InvalidOffsetError):
            if self.behaviour.adapts_indexes:  # otherwise it is ignored, as Kafka does
                raise
        for index in self._indexes():
            index.trim()

    def change_file_suffixes(self, old: str, new: str) -> None:
        """Rename all its files, for example to ``.deleted``."""
        txn_index = self.txn_index_path
        target = _replaced(self.path, old, new)
        local.rename(self.path, target)
        self.path = target
        self._index_path = _replaced(self._index_path, old, new)
        for index in self._indexes():
            index.rename(_replaced(index.path, old, new))
        if files.exists(txn_index):
            local.rename(txn_index, _replaced(txn_index, old, new))

    def delete(self) -> None:
        """Delete all its files; missing ones are ignored."""
        self.rest()
        files.remove(self.path, missing_ok=True)
        for index in self._indexes():
            index.delete()
        files.remove(self.txn_index_path, missing_ok=True)


def _replaced(path: str, old: str, new: str) -> str:
    if not path.endswith(old):
        raise ValueError(f"suffix: expected the name to end with {old!r}, found {path!r}")
    return path[: len(path) - len(old)] + new
