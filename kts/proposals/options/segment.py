"""One segment of a log of option 1, 2 or 3: its messages, its offset index, and its time index.

Files::

    .log           messages of the option
    .index         the offset index, as Kafka's
    .timeindex     options 1 and 2: the time index as Kafka's, of LogAppendTime
    .appendtimes   option 3: see ``append_times``
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.arguments import INT32_MAX
from kts.codec.layout import OVERHEAD_BYTES, claimed_size, is_sound_message
from kts.codec.layout import Entries as KafkaEntries
from kts.config import LogConfig
from kts.errors import CorruptIndexError, CorruptRecordError, DecompressionLimitError
from kts.model import TimestampOffset
from kts.proposals.answers import ENTRY_BYTES
from kts.proposals.options.append_times import SUFFIX, AppendTimes, TimeIndexEntry
from kts.proposals.options.messages import Entries, decode, walk
from kts.segment.entries import at
from kts.segment.index import IndexSpacing, OffsetIndexFile, TimeIndexFile
from kts.segment.names import BOTH_INDEXES
from kts.store import local
from kts.store.local import WritableFile
from kts.store.source import files

if TYPE_CHECKING:
    import pyarrow as pa

SLICE_BYTES = 2**20
SUFFIXES = (".log", *BOTH_INDEXES, SUFFIX)


class Cut(NamedTuple):
    """The end of a segment that start-up cut off after a crash, and why."""

    path: str
    position: int
    bytes_cut: int
    reason: str


class FoundMessage(NamedTuple):
    """The first message at or after a time in a segment, if it has one, and what was read to find it."""

    message: TimestampOffset | None
    bytes_read: int
    batches_read: int
    records_read: int


class OptionSegment:
    """A segment. Only its log uses it.

    Attributes
    ----------
    base_offset, end_offset : int
        Of its name; after its last message.
    size : int
        Bytes of messages.
    first_append_ms, last_append_ms : int or None
        LogAppendTime of the first message and of the last: in options 1 and 2 from the messages, in option 3 from the
        index, None where that has no entry for it.
    append_times : AppendTimes or None
        Option 3's time index.
    """

    def __init__(self, directory: str, base_offset: int, option: int, config: LogConfig, limit: int) -> None:
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.option = option
        self._limit = limit  # max_decompressed_bytes
        self.size = 0
        self.first_append_ms: int | None = None
        self.last_append_ms: int | None = None
        stem = os.path.join(directory, f"{base_offset:020d}")
        self.path = f"{stem}.log"
        self._stem = stem
        self._sound_bytes = 0  # found by the last rebuild
        self._error: CorruptRecordError | None = None  # what it found after them
        self._interval = config.index_interval_bytes
        self._file: WritableFile | None = None
        self._spacing = IndexSpacing(self._interval)
        if not files.exists(self.path):
            WritableFile(self.path, create=True).close()
        self.offset_index = OffsetIndexFile(f"{stem}.index", base_offset, config.segment_index_bytes)
        self.time_index: TimeIndexFile | None = None
        self.append_times: AppendTimes | None = None
        if option == 3:
            self.append_times = AppendTimes(stem + SUFFIX, base_offset)
        else:
            self.time_index = TimeIndexFile(f"{stem}.timeindex", base_offset, config.segment_index_bytes)

    @property
    def indexes_full(self) -> bool:
        """Whether one of Kafka's indexes has no room for another entry."""
        return self.offset_index.is_full or (self.time_index is not None and self.time_index.is_full)

    @property
    def index_bytes(self) -> int:
        """Bytes of the entries of both indexes."""
        times = ENTRY_BYTES * len(self.append_times) if self.append_times is not None else 0
        return self.offset_index.size_bytes + times + (self.time_index.size_bytes if self.time_index else 0)

    # --- start-up ---------------------------------------------------------------------------------

    def load_closed(self, next_base: int) -> None:
        """Load a segment that is complete on disk; indexes that the log contradicts are rebuilt."""
        self.size = files.size_of(self.path)
        if not self._ends_as_indexed() and self._rebuild(deep=False) is not None:
            raise at(self._damage(), self.path)
        self._trim()
        if self.append_times is not None:
            self.append_times.load(self._first_offset(), self.end_offset, None)
            self.take_times()
        if self.end_offset > next_base:
            raise CorruptRecordError(f"expected offsets below {next_base}, found {self.end_offset - 1}", path=self.path)
        self.rest()

    def _ends_as_indexed(self) -> bool:
        """Take the segment's end from its last indexed entry on; False if the indexes do not fit the log."""
        try:
            for index in self._indexes():
                index.sanity_check()
            if self.size == 0 or self.offset_index.last_position >= self.size:
                return False
            start = max(self.offset_index.last_position, 0)
            found = [*self.slices(start)]
            first = next(self.slices(0, most_bytes=4096))
        except (CorruptIndexError, CorruptRecordError, StopIteration):
            return False
        self._note(first)
        self._note(found[-1])
        lacking = int(found[-1].position[-1]) - max(self.offset_index.last_position, 0) > self._interval
        if found[-1].end != self.size or lacking:
            return False
        if self.offset_index.entries and int(found[0].last_offset[0]) != self.offset_index.last_offset:
            return False
        return self.time_index is None or self.time_index.last_timestamp == self.last_append_ms

    def load_active(self, *, clean: bool, index_entries: int | None) -> Cut | None:
        """Load the segment that is appended to, and rebuild its indexes, but for option 3's time index.

        Parameters
        ----------
        clean : bool
            The log was closed: damage is not the trace of a crash, and nothing is cut.
        index_entries : int or None
            Of option 3's index when the log was closed; None or -1 if nothing says so.
        """
        self.size = files.size_of(self.path)
        reason = self._rebuild(deep=not clean)
        cut = None
        if reason is not None:
            if clean:
                raise at(self._damage(), self.path)
            size, self.size = self.size, self._sound_bytes
            cut = Cut(self.path, self.size, size - self.size, reason)
            self._opened().truncate(self.size)
            self._opened().sync()
        for index in self._indexes():
            index.expand()
        if self.append_times is not None:
            self.append_times.load(self._first_offset(), self.end_offset, index_entries if clean else None)
            self.take_times()
        return cut

    def _rebuild(self, *, deep: bool) -> str | None:
        """Read all entries and index them; the reason why they end before the file does."""
        for index in self._indexes():
            index.reset()
        self._spacing = IndexSpacing(self._interval)
        self.end_offset, self._sound_bytes, self._error = self.base_offset, 0, None
        self.first_append_ms = self.last_append_ms = None
        slices = self.slices(0, verify_crc=True)
        try:
            for found in slices:
                sound = self._ordered(found, deep=deep)
                if sound:
                    self._note(found.part(0, sound))
                    self._index(found.part(0, sound))
                    self._sound_bytes = int(found.position[sound - 1] + found.size[sound - 1])
                if sound < len(found.position):
                    last = self.base_offset + INT32_MAX
                    return f"expected an offset from {self.end_offset} to {last} at position {self._sound_bytes}"
        except CorruptRecordError as error:
            if self._is_sound(error.position or 0):
                raise
            self._error = error
            return error.message
        if self._sound_bytes < self.size:
            return f"an entry is cut, {self.size - self._sound_bytes} bytes are left"
        return None

    def _is_sound(self, position: int) -> bool:
        """Whether a sound entry lies there, of another format or above the bound: no crash leaves that, it stays."""
        head = self._opened().read(position, OVERHEAD_BYTES)
        size = claimed_size(head) or 0
        data = self._opened().read(position, size) if 0 < size <= self.size - position else b""
        kafkas = KafkaEntries(data, verify_crc=True, until_damage=True)
        return is_sound_message(data) or (len(kafkas) > 0 and kafkas.all_sound)

    def _damage(self) -> CorruptRecordError:
        words = f"expected whole entries up to {self.size}, found {self._sound_bytes} bytes of them"
        return self._error or CorruptRecordError(words, position=self._sound_bytes)

    def _ordered(self, found: Entries, *, deep: bool) -> int:
        """How many entries are in order: no CRC covers an offset, and a write may be torn."""
        before = np.concatenate(([self.end_offset - 1], found.last_offset[:-1]))
        wrong = (found.last_offset <= before) | (found.last_offset - self.base_offset > INT32_MAX)
        for row in np.flatnonzero(found.codec).tolist() if deep else ():
            try:
                offsets = self._decoded(found, row)["offset"]
            except DecompressionLimitError:
                raise
            except CorruptRecordError:
                wrong[row] = True
            else:
                wrong[row] |= offsets[0].as_py() <= before[row]
        return int(wrong.argmax()) if wrong.any() else len(wrong)

    def _first_offset(self) -> int:
        """The offset from which on an index entry is expected; the end offset if there is no message."""
        return self.end_offset if self.size == 0 else self.base_offset

    def take_times(self) -> None:
        """Option 3: know of the first message and of the last only what the index says."""
        if self.append_times is None:
            return
        first, last = self.append_times.first, self.append_times.last
        self.first_append_ms = first.append_ms if first is not None else None
        known = last is not None and last.offset == self.end_offset - 1
        self.last_append_ms = last.append_ms if last is not None and known else None

    def index_filled(self) -> None:
        """The leader's entries are in option 3's index."""
        known = self.last_append_ms
        self.take_times()
        self.last_append_ms = known if self.last_append_ms is None else self.last_append_ms

    # --- reading ----------------------------------------------------------------------------------

    def slices(self, start: int, *, verify_crc: bool = False, most_bytes: int = SLICE_BYTES) -> Iterator[Entries]:
        """The entries from a position on, by slices of the file; positions are those in the file.

        Raises
        ------
        CorruptRecordError
            Damage, after the entries before it; with the position.
        """
        file = self._opened()
        want = most_bytes
        while start < self.size:
            data = file.read(start, min(want, self.size - start))
            found = walk(data, option=self.option, verify_crc=verify_crc)
            if found.end:
                yield found.part(0, len(found.position), start)
            if found.error is not None:
                raise at(found.error, self.path, start)
            start += found.end
            claimed = claimed_size(data, found.end) or OVERHEAD_BYTES
            if claimed > self.size - start:
                return  # the last entry is incomplete
            want = max(most_bytes, claimed)

    def position_of(self, offset: int) -> int:
        """Where the first entry that reaches an offset begins; the size if there is none."""
        for found in self.slices(self.offset_index.lookup(offset)[1], most_bytes=2 * self._interval + 4096):
            row = int(np.searchsorted(found.last_offset, offset))
            if row < len(found.position):
                return int(found.position[row])
        return self.size

    def read(self, position: int, max_bytes: int) -> bytes:
        """Whole entries from a position on, up to a number of bytes, but one at least."""
        data = self._opened().read(position, min(max_bytes, self.size - position))
        end = walk(data, option=self.option).end
        if end == 0 and position < self.size:
            found = next(self.slices(position, most_bytes=max(2 * max_bytes, 4096)))
            return self._opened().read(position, int(found.size[0]))
        return data[:end]

    def _decoded(self, found: Entries, row: int) -> pa.Table:
        """The messages of one entry."""
        position = int(found.position[row])
        try:
            data = self._opened().read(position, int(found.size[row]))
            return decode(data, option=self.option, max_decompressed_bytes=self._limit)
        except CorruptRecordError as error:
            raise at(error, self.path, position) from error.__cause__

    # --- search -----------------------------------------------------------------------------------

    def start_by_append_time(self, target_ms: int) -> tuple[int, int]:
        """Options 1 and 2: the offset and position that the indexes lead to; all messages before are earlier."""
        offset = self.time_index.lookup(target_ms - 1)[1] if self.time_index is not None else self.base_offset
        return offset, self.offset_index.lookup(offset)[1]

    def find(self, target_ms: int, column: str, position: int) -> FoundMessage:
        """Read entries from a position on, until one has a message at or after a time of ``decode``'s column."""
        bytes_read = batches = records = 0
        for some in self.slices(position, most_bytes=2 * self._interval + 4096):
            if column == "logAppendTimestamp":
                maybe = some.append_ms >= target_ms  # a wrapper has the latest of its messages
            else:
                maybe = (some.create_ms >= target_ms) | (some.codec > 0)
            for row in np.flatnonzero(maybe).tolist():
                table = self._decoded(some, row)
                records += table.num_rows
                times = table[column].cast("int64").to_numpy()
                if (times >= target_ms).any():
                    first = int((times >= target_ms).argmax())
                    message = TimestampOffset(int(times[first]), table["offset"][first].as_py())
                    bytes_read += int(some.position[row] + some.size[row]) - int(some.position[0])
                    return FoundMessage(message, bytes_read, batches + row + 1, records)
            batches += len(some.position)
            bytes_read += some.end - int(some.position[0])
        return FoundMessage(None, bytes_read, batches, records)

    # --- appending --------------------------------------------------------------------------------

    def append(self, data: memoryview, found: Entries, entries: list[TimeIndexEntry], last_ms: int | None) -> None:
        """Write entries, whose positions in the file are those of ``found``.

        Parameters
        ----------
        entries : list of TimeIndexEntry
            Option 3: the entries of its index.
        last_ms : int or None
            LogAppendTime of the last message, if it is known.
        """
        self._opened().write(data, self.size)
        self.size += len(data)
        self._note(found)
        self._index(found)
        if self.append_times is not None:
            self.append_times.add(entries)
            if self.first_append_ms is None and self.append_times.first is not None:
                self.first_append_ms = self.append_times.first.append_ms
            self.last_append_ms = last_ms

    def _note(self, found: Entries) -> None:
        """Follow the end of the segment, and the times in its messages."""
        self.end_offset = int(found.last_offset[-1]) + 1
        if self.option != 3:
            if self.first_append_ms is None:
                self.first_append_ms = int(found.append_ms[0])
            self.last_append_ms = int(found.append_ms[-1])

    def _index(self, found: Entries) -> None:
        for row in self._spacing.choose(found.position, found.size.astype(np.int32)).tolist():
            if self.indexes_full:
                return
            offset = int(found.last_offset[row])
            self.offset_index.append(offset, int(found.position[row]))
            if self.time_index is not None:
                self.time_index.maybe_append(int(found.append_ms[row]), offset)

    # --- closing, truncating, deleting ------------------------------------------------------------

    def close_for_good(self, *, leads: bool) -> None:
        """Complete the indexes with the last message, and put everything on disk: the next segment follows.

        A follower's index of option 3 gets the leader's entry for that message, with what it fetches next.
        """
        if leads and self.append_times is not None and self.last_append_ms is not None and self.size:
            last = self.append_times.last
            if last is None or last.offset != self.end_offset - 1:
                self.append_times.add([TimeIndexEntry(self.last_append_ms, self.end_offset - 1)])
        self._trim()
        self.flush()
        self.rest()

    def _trim(self) -> None:
        if self.time_index is not None and self.last_append_ms is not None:
            self.time_index.maybe_append(self.last_append_ms, self.end_offset - 1, skip_full_check=True)
        for index in self._indexes():
            index.trim()

    def truncate(self, position: int) -> None:
        """Drop the entries from a position on; the segment is active again. On disk when it returns."""
        self.size = position
        self._rebuild(deep=False)
        if self.append_times is not None:  # first: no entry may outlive its message and meet another one
            self.append_times.truncate(self.end_offset)
        self._opened().truncate(position)
        self._opened().sync()
        for index in self._indexes():
            index.expand()
        self.take_times()

    def flush(self) -> None:
        """Wait until messages and indexes are on disk."""
        self._opened().sync()
        for index in self._indexes():
            index.flush()
        if self.append_times is not None:
            self.append_times.flush()

    def rest(self) -> None:
        """Close all files until they are needed again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
        for index in self._indexes():
            index.abandon()
        if self.append_times is not None:
            self.append_times.rest()

    def delete(self) -> None:
        """Delete all files, the messages first, and see to it that they stay deleted."""
        self.rest()
        for suffix in SUFFIXES:
            files.remove(self._stem + suffix, missing_ok=True)
        local.sync_directory(os.path.dirname(self.path))

    def _indexes(self) -> list[OffsetIndexFile | TimeIndexFile]:
        return [self.offset_index] if self.time_index is None else [self.offset_index, self.time_index]

    def _opened(self) -> WritableFile:
        if self._file is None:
            self._file = WritableFile(self.path)
        return self._file
