"""One segment that is written to: its log and both indexes, appended, truncated, closed and searched as Kafka does."""

from __future__ import annotations

from kts.errors import (
    IndexFullError,
    InvalidOffsetError,
    LogStorageError,
)
from kts.model import NO_TIMESTAMP
from kts.segment.index import GREATEST_RELATIVE_OFFSET
from kts.segment.lookups import Lookups
from kts.segment.rebuilding import Rebuilt, rebuild
from kts.segment.recovery import Recovered
from kts.segment.segment import Segment
from kts.segment.segment_reading import SegmentReading
from kts.segment.shallow import header

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


class LogSegment(SegmentReading):
    """A writable segment; see ``SegmentFiles`` for how it is made.

    Notes
    -----
    Written to by one thread; others may read at the same time, up to ``size``. Only a segment that is written to holds
    descriptors. Source: LogSegment of 0.10.2.2 and 3.9.2.
    """

    # --- appending --------------------------------------------------------------------------------

    def append(
        self,
        records: bytes | bytearray | memoryview,
        first_offset: int,
        largest_offset: int,
        largest_timestamp_ms: int,
        offset_of_largest_timestamp: int,
        entries: int = 1,
    ) -> None:
        """Write a set of whole entries behind the others, and what the indexes get of it.

        Parameters
        ----------
        records : buffer
            Validated bytes.
        first_offset, largest_offset : int
            Of the set.
        largest_timestamp_ms, offset_of_largest_timestamp : int
            Of the set, the offset is shallow. The 3.9 generation reads them from each batch's header.
        entries : int
            Shallow entries in the set.

        Raises
        ------
        InvalidOffsetError
            An offset does not fit, or is not in order.
        LogStorageError
            Writing failed; everything is as before, or ``failed`` is set.
        """
        count = len(records)
        if not count:
            return
        log = self._log
        if log is None or self.failed is not None:
            log = self._writable()
        if not self.fits(largest_offset):
            most = self.base_offset + GREATEST_RELATIVE_OFFSET
            message = f"expected an offset from {self.base_offset} to {most}, found {largest_offset}"
            raise InvalidOffsetError(message, path=self.path, offset=largest_offset)
        position = self.size
        before = self._largest, self._offset_of_largest, self._since_last_entry, self._rolling_base
        marks = self.offset_index.entries, self.time_index.entries
        self._log_dirty = True
        try:
            log.write(records, position)
            if self._batches_are_indexed:
                self._index_batches(records, count, position, largest_timestamp_ms, entries)
            else:
                self._index_set(count, position, first_offset, largest_timestamp_ms, offset_of_largest_timestamp)
            self.size = position + count
        except BaseException as error:
            if self.shipped and isinstance(error, (IndexFullError, InvalidOffsetError)):
                self.size = position + count
                raise
            self._largest, self._offset_of_largest, self._since_last_entry, self._rolling_base = before
            self._put_back(position, *marks)
            raise

    @property
    def entry_is_due(self) -> bool:
        """Whether the next set gets an index entry, if it is appended here."""
        return self._since_last_entry > self._interval

    def _index_set(
        self, count: int, position: int, first_offset: int, timestamp_ms: int, timestamp_offset: int
    ) -> None:
        """0.10.2: at most one index entry for a set, with its first offset."""
        if position == 0:
            self._rolling_base = timestamp_ms
        if timestamp_ms > self._largest and (timestamp_ms != NO_TIMESTAMP or not self._allow_negative):
            self._largest, self._offset_of_largest = timestamp_ms, timestamp_offset
        if self._since_last_entry > self._interval:
            self._add_entry(first_offset, position)
        self._since_last_entry += count

    def _index_batches(
        self, records: bytes | bytearray | memoryview, count: int, position: int, timestamp_ms: int, entries: int
    ) -> None:
        """3.9: an index entry for each batch that passes the interval, with its last offset."""
        at = 0
        while at + 26 <= count:
            _, size, _, last_offset, largest, _ = header(records, at)
            if self._allow_negative and largest == NO_TIMESTAMP:
                largest = timestamp_ms if entries == 1 else self._hidden_timestamp(records[at : at + size])
            if position == 0:
                self._rolling_base = largest
            if largest > self._largest and (largest != NO_TIMESTAMP or not self._allow_negative):
                self._largest, self._offset_of_largest = largest, last_offset
            if self._since_last_entry > self._interval:
                self._add_entry(last_offset, position)
            self._since_last_entry += size
            position += size
            at += size

    def _add_entry(self, offset: int, position: int) -> None:
        if self.doubted is not None:
            return  # behind what may be any number nothing is in order; it is rebuilt
        if not self.shipped and self.indexes_are_full:
            return  # it stops growing; the log rolls before
        self.offset_index.append(offset, position)
        self.time_index.maybe_append(self._largest, self._offset_of_largest)
        self._since_last_entry = 0

    def _put_back(self, size: int, entries: int, time_entries: int) -> None:
        """Make files as they were before a failed append."""
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

    # --- changing ---------------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Drop every entry that reaches an offset, and those behind it.

        Returns
        -------
        int
            Bytes that were cut off the log.

        Notes
        -----
        Where no entry reaches the offset, 0.10.2 leaves the indexes as they are; 3.9 enlarges them.
        """
        self.load_as_active()
        entry = self.translate_offset(offset)
        if entry is None and not self._batches_are_indexed:
            return 0
        log = self._writable()
        self.offset_index.truncate_to(offset)
        if entry is not None and not self.shipped:  # 0.10.2 keeps that of an entry which the offset lies inside of
            self.offset_index.truncate_to_position(entry.position)
        self.time_index.truncate_to(offset)
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
        self._since_last_entry = 0
        self.loaded_bytes, self.sealed = min(self.loaded_bytes, self.size), None
        if self._largest >= 0 or self._allow_negative:
            self._load_largest(self.time_index.entries - 1 if self.shipped else self._last_believed())
        return cut

    def _load_largest(self, slot: int) -> None:
        """Greatest timestamp from an entry of the time index, and from the entries behind its place."""
        self._largest, self._offset_of_largest = self._derived_largest(slot)
        self._claimed = False

    def load_as_active(self) -> None:
        """Know both indexes, if they were sealed, and the greatest timestamp: what is appended will rest on them."""
        for index in self._indexes():
            self._is_as_sealed(index)
        if self._claimed:
            self._load_largest(self._last_believed())

    def adopt(self, rebuilt: Rebuilt) -> None:
        """Take what a rebuild found: write both indexes, and cut the log.

        Who wrote the log may have been killed before it was on the disk: the next flush sees to all of it.
        """
        self._log_dirty = True
        self.doubted, self.sealed, self._claimed = None, None, False
        try:
            log = self._writable()
            self.offset_index.reset(rebuilt.offset_index)
            self.time_index.reset(rebuilt.time_index)
            self._largest, self._offset_of_largest = rebuilt.largest_timestamp_ms, rebuilt.offset_of_largest
            if self._largest == NO_TIMESTAMP:
                self._largest = self._least
            if rebuilt.error is not None:
                return
            if rebuilt.valid_bytes < self.size:
                self.size = rebuilt.valid_bytes
                self._take_back(self.size)
                log.truncate(rebuilt.valid_bytes)
            self.offset_index.trim()
            self.time_index.trim()
        except LogStorageError as error:
            self._fail(error)
            raise

    def remade(self) -> Rebuilt:
        """What the log says of the part of the indexes that lay there when it was loaded."""
        return rebuild(self.log_file(), self.loaded_bytes, self.base_offset, self.rules(), self.path)

    def repair(self, remade: Rebuilt, following: int | None) -> Recovered | None:
        """Put indexes that the log confirms in the place of doubted ones; nobody may be reading.

        Parameters
        ----------
        remade : Rebuilt
            From ``remade``.
        following : int or None
            The base offset of the next segment.

        Returns
        -------
        Recovered or None
            What was done; None where the log is damaged: the old ones still lead behind that, as far as it confirms it.
            Where they alone know that the end of the log is missing, it says so and leaves them.
        """
        why, index, times = self.doubted, self.offset_index, self.time_index
        if remade.size != self.loaded_bytes:  # cut meanwhile
            remade = self.remade()
        if why is None or remade.valid_bytes < remade.size or remade.error is not None:
            return None
        if following is not None:
            lost = Lookups(Segment(self.path, "", 0, self.base_offset)).lost_end(following)
            if lost is not None:
                return Recovered(self.path, self.size, 0, lost.message, remade.batches)
        own, own_times = index.read()[8 * index.own_from :], times.read()[12 * times.own_from :]
        index.replace(remade.offset_index + own)
        while own_times and int.from_bytes(own_times[:8], "big", signed=True) <= remade.largest_timestamp_ms:
            own_times = own_times[12:]
        times.replace(remade.time_index + own_times)
        time, offset = remade.largest_timestamp_ms, remade.offset_of_largest
        if time == NO_TIMESTAMP:
            time = self._least
        if self.size > self.loaded_bytes:  # what was known came from an index that was doubted later
            time, offset, _ = self._greatest_from(self.loaded_bytes, time, offset)
        self._largest, self._offset_of_largest = time, offset
        self.doubted, self.sealed, self._claimed = None, None, False
        return Recovered(self.path, 0, 0, f"{why}: indexes rebuilt", remade.batches)
