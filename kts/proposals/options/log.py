"""A partition in the format of KIP-32's option 1, 2 or 3: appended to by a leader or a follower, rolled, retained,
truncated and searched by that option's rules."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT32_MAX, INT64_MAX, choice, integer
from kts.codec.columns import LARGEST_BOUND
from kts.config import TIMESTAMP_TYPES, LogConfig
from kts.errors import (
    REASONS,
    CorruptIndexError,
    CorruptRecordError,
    InvalidOffsetError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    LogClosedError,
    LogStorageError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnsupportedForMessageFormatError,
)
from kts.log import policies
from kts.log.directory import PartitionEntry
from kts.log.log import Deleted
from kts.model import NO_TIMESTAMP, TimestampOffset
from kts.proposals.answers import Answer, Start
from kts.proposals.append_time import MonotonicAppendTime
from kts.proposals.minute_map import MINUTE_MS
from kts.proposals.options import _messages
from kts.proposals.options.append_times import Gap, TimeIndexEntry, is_new_minute
from kts.proposals.options.messages import Entries, checked, walk
from kts.proposals.options.segment import SUFFIXES, Cut, FoundMessage, OptionSegment
from kts.segment.locks import new_in_children
from kts.segment.names import parse_directory_name, parse_file_name
from kts.store import local, publishing
from kts.store.source import files
from kts.times import wall_clock

# Left by ``close``: version, then log end offset, last append time, entries of option 3's active index. Unknown is -1.
CLOSED = "append-time-checkpoint"
CREATE_TIME, APPEND_TIME = TIMESTAMP_TYPES


class Appended(NamedTuple):
    """What a leader answers to a set: its first and last offset, and the LogAppendTime that it gave it, in ms."""

    first_offset: int
    last_offset: int
    append_ms: int


class OptionLog:
    """A partition directory in the format of one of KIP-32's rejected options, open for writing. A context manager.

    Parameters
    ----------
    path : path
        ``<log directory>/<topic>-<partition>``; created if it is missing.
    option : int
        1: messages have CreateTime and LogAppendTime. 2: LogAppendTime. 3: CreateTime, and LogAppendTime lies in the
        time index alone.
    config : LogConfig or mapping, optional
        The topic's settings by Kafka's names; those for segments, indexes, retention and ``max.message.bytes`` count.
    clock : callable, optional
        Returns ms since the epoch; None is the wall clock.
    max_decompressed_bytes : int
        Bound on each wrapper.

    Attributes
    ----------
    recovered : list of Cut
        What start-up cut off the end after a crash.
    closed : bool

    Raises
    ------
    LogLockedError
        Another writer, also a broker or a ``kts.Log``, holds the log directory or the partition.
    CorruptRecordError
        A segment is damaged that was complete on disk, or its messages are of another format. No message was changed.
    DecompressionLimitError
        After a crash: a wrapper exceeds ``max_decompressed_bytes``. No message was changed.

    Notes
    -----
    A leader gives each set the LogAppendTime ``max(last appended, now)``, whichever replica led before, and after a
    restart; in option 3, the last one that it knows, which after a crash or as a new leader is that of the last index
    entry. Sets go whole messages (or wrappers) into segments: a set may cross a roll. Appended messages are on disk
    after ``flush``, and when the segment was rolled. If the disk fails, the log closes itself, and the next start
    recovers it: the active segment is cut at the first message that is not whole.

    Roll: when a message arrives more than ``segment.ms`` after the first of the segment, by LogAppendTime (in option 3
    by the first index entry). Retention: by LogAppendTime of the segment's last message (in option 3 by the last index
    entry). Every other reader refuses these messages by name.

    Source: KIP-32, rejected options 1, 2 and 3.
    """

    closed = True  # until it is open

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        option: int,
        config: LogConfig | Mapping[str, Any] | None = None,
        clock: Callable[[], int] | None = None,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self.option = checked(option)
        self.path = os.path.abspath(os.fsdecode(path))
        name = parse_directory_name(os.path.basename(self.path))
        if name is None or name.state:
            found = os.path.basename(self.path)
            raise ValueError(f"path: expected a directory called <topic>-<partition>, found {found!r}")
        self.topic, self.partition = name.topic, name.partition
        self.config = LogConfig.of(config)
        self._clock = wall_clock if clock is None else clock
        self._limit = integer("max_decompressed_bytes", max_decompressed_bytes, 0, LARGEST_BOUND)
        self._lock: threading.RLock
        new_in_children(self, _lock=threading.RLock)
        self._append_time = MonotonicAppendTime()
        self._leads = True  # until it follows or waits: only a leader adds index entries of its own
        self._segments: list[OptionSegment] = []
        self.recovered: list[Cut] = []
        if not files.exists(self.path):
            local.make_directory(self.path)
            local.sync_directory(os.path.dirname(self.path))
        self._entry = PartitionEntry(*os.path.split(self.path), self.topic, self.partition)
        try:
            self._load()
        except BaseException:
            self._entry.leave(clean=False)
            raise
        self.closed = False

    # --- start-up ---------------------------------------------------------------------------------

    def _load(self) -> None:
        end, last_ms, entries = self._closed_at()
        names = {name: parse_file_name(name) for name in files.names_in(self.path)}
        bases = sorted(
            one.base_offset for one in names.values() if one is not None and one.suffix == ".log" and not one.transition
        )
        for name in names:
            stem, suffix = os.path.splitext(name)
            if suffix in SUFFIXES[1:] and f"{stem}.log" not in names and stem.isdigit():
                files.remove(os.path.join(self.path, name))  # of a segment that a crash took away again
        for base, following in zip(bases, bases[1:], strict=False):
            segment = self._segment(base)
            segment.load_closed(following)
            if segment.size or self._segments:
                self._segments.append(segment)
            else:  # a crash came while the log was to begin elsewhere
                segment.delete()
        active = self._segment(bases[-1] if bases else 0)
        self._segments.append(active)
        cut = active.load_active(clean=end is not None, index_entries=entries)
        if end is not None and active.end_offset != end:
            raise CorruptRecordError(f"expected the log end offset {end}, found {active.end_offset}", path=active.path)
        if cut is not None:
            self.recovered.append(cut)
        if active.append_times is not None and active.append_times.gap is None and last_ms != NO_TIMESTAMP:
            active.last_append_ms = last_ms
        files.remove(os.path.join(self.path, CLOSED), missing_ok=True)
        local.sync_directory(self.path)
        self._follow_time(max(last_ms, NO_TIMESTAMP))
        self._leads = not self.waits_for_leader

    def _segment(self, base_offset: int) -> OptionSegment:
        return OptionSegment(self.path, base_offset, self.option, self.config, self._limit)

    def _closed_at(self) -> tuple[int | None, int, int | None]:
        """What ``close`` left: log end offset, last append time, entries of option 3's active index."""
        data = files.read_if_there(os.path.join(self.path, CLOSED)) or b""
        lines = data.decode("ascii", "replace").split("\n")
        numbers = lines[1].split(" ") if len(lines) == 3 and lines[0] == "0" else []
        if len(numbers) != 3 or not all(one.removeprefix("-").isdigit() for one in numbers):
            return None, NO_TIMESTAMP, None
        return int(numbers[0]), int(numbers[1]), int(numbers[2])

    def _follow_time(self, at_least: int = NO_TIMESTAMP) -> None:
        """Take the last append time from the segments: of the messages, or of option 3's index."""
        found = at_least
        for segment in self._segments:
            last = segment.append_times.last if segment.append_times is not None else None
            for known in (segment.last_append_ms, last.append_ms if last is not None else None):
                found = found if known is None else max(found, known)
        self._append_time.last_ms = found

    # --- state ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"OptionLog({self.path!r}, option={self.option}, log_end_offset={self.log_end_offset})"

    @property
    def segments(self) -> tuple[OptionSegment, ...]:
        """The segments, oldest first; the last one is the active segment."""
        return tuple(self._segments)

    @property
    def log_start_offset(self) -> int:
        """The first offset."""
        return self._segments[0].base_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next message."""
        return self._segments[-1].end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of the messages."""
        return sum(segment.size for segment in self._segments)

    @property
    def index_bytes(self) -> int:
        """Bytes of the entries of all indexes."""
        return sum(segment.index_bytes for segment in self._segments)

    @property
    def last_append_ms(self) -> int:
        """The latest LogAppendTime that the log knows; -1 if none."""
        return self._append_time.last_ms

    @property
    def waits_for_leader(self) -> tuple[Gap, ...]:
        """Option 3: the offsets for which this replica lacks index entries that only the leader has: ``fill_index``."""
        times = [segment.append_times for segment in self._segments]
        return tuple(one.gap for one in times if one is not None and one.gap is not None)

    def index_entries(self, first_offset: int | None = None, last_offset: int | None = None) -> list[TimeIndexEntry]:
        """Option 3: the time index entries for some offsets, both included; None: from the start, to the end.

        Notes
        -----
        A follower that fetches from an offset needs those from the offset before: the leader adds the entry of a
        segment's last message when it rolls.

        Raises
        ------
        UnsupportedForMessageFormatError
            Options 1 and 2 have LogAppendTime in the messages.
        """
        self._needs_index()
        first = self.log_start_offset if first_offset is None else first_offset
        last = self.log_end_offset - 1 if last_offset is None else last_offset
        with self._lock:
            times = [segment.append_times for segment in self._segments]
            return [entry for one in times if one is not None for entry in one.between(first, last)]

    def _needs_index(self) -> None:
        if self.option != 3:
            raise UnsupportedForMessageFormatError(
                f"option {self.option} has LogAppendTime in its messages; only option 3 has index entries of its own"
            )

    # --- append -----------------------------------------------------------------------------------

    def append(self, data: bytes | bytearray | memoryview) -> Appended:
        """Append a producer's set as the leader: assign offsets and LogAppendTime.

        Parameters
        ----------
        data : buffer
            Messages of the option as ``encode`` makes them. In wrappers, relative offsets are 0, 1, 2 ...; their times
            are set as the option wants, without recompression.

        Raises
        ------
        CorruptRecordError, InvalidRecordError, RecordTooLargeError
            The set is damaged or empty, or has a message over ``max.message.bytes``. Nothing of it was appended.
        LogStorageError
            The disk failed; the log closed itself.

        Notes
        -----
        A log that followed or waited for a leader leads from now on, as after ``lead``.
        """
        with self._writing():
            now = self._append_time.append_time(self._clock())
            first = self.log_end_offset
            stored, _ = _messages.assign(memoryview(data), self.option, first, now, self._limit)
            found = walk(stored, option=self.option)
            if not len(found.position):
                raise InvalidRecordError("expected a message, found none")
            largest = int(found.size.max())
            if largest > self.config.max_message_bytes:
                words = REASONS["TOO_LARGE"].words.format(a=largest, b=self.config.max_message_bytes)
                raise RecordTooLargeError(words, position=int(found.position[found.size.argmax()]))
            if not self._leads:
                self.lead()
            times = np.full(len(found.position), now, np.int64)
            self._write(memoryview(stored), found, times, None)
            self._append_time.last_ms = now
            return Appended(first, self.log_end_offset - 1, now)

    def append_as_follower(
        self, data: bytes | bytearray | memoryview, index_entries: Sequence[TimeIndexEntry] = ()
    ) -> None:
        """Append messages of the leader as they are, and remember their LogAppendTime.

        Parameters
        ----------
        data : buffer
            Messages from ``read``, or b"" for index entries alone.
        index_entries : sequence of TimeIndexEntry
            Option 3: the leader's entries for these messages, and for the one before. Those that the log has are left
            out.

        Raises
        ------
        CorruptRecordError
            A message is damaged.
        InvalidOffsetError, InvalidTimestampError
            Offsets do not follow those of the log; LogAppendTime goes back.
        UnsupportedForMessageFormatError
            Index entries in option 1 or 2.
        """
        if index_entries:
            self._needs_index()
        with self._writing():
            found = walk(data, option=self.option, verify_crc=True)
            if found.error is not None:
                raise found.error
            data = memoryview(data)[: found.end]
            least = np.concatenate(([self.log_end_offset], found.last_offset[:-1] + 1))
            wrong = (found.last_offset < least) | (found.last_offset - INT32_MAX > least)  # no segment has room for it
            if wrong.any():
                row = int(wrong.argmax())
                first, offset = int(least[row]), int(found.last_offset[row])
                words = f"expected an offset from {first} to {first + INT32_MAX}, found {offset}"
                raise InvalidOffsetError(words, offset=offset)
            times = found.append_ms
            earlier = np.concatenate(([self._append_time.last_ms], times[:-1])) if self.option != 3 else times
            if (times < earlier).any():
                row = int((times < earlier).argmax())
                raise InvalidTimestampError(
                    f"expected a LogAppendTime from {earlier[row]} on, found {times[row]}",
                    position=int(found.position[row]),
                    offset=int(found.last_offset[row]),
                )
            self._leads = False
            entries = self._new_entries(index_entries, int(found.last_offset[-1]) if len(times) else None)
            if self.option == 3:
                times = np.full(len(found.position), NO_TIMESTAMP, np.int64)
                offsets = np.array([entry.offset for entry in entries], np.int64)
                rows = np.searchsorted(found.last_offset, offsets)
                times[rows] = [entry.append_ms for entry in entries]
            if len(times):
                self._write(data, found, times, entries)
                self._append_time.last_ms = max(int(times.max()), self._append_time.last_ms)

    def _new_entries(self, given: Sequence[TimeIndexEntry], last_offset: int | None) -> list[TimeIndexEntry]:
        """The entries for new messages; the one for the last message of the log is added here."""
        active, end = self._segments[-1], self.log_end_offset
        last = end - 1 if last_offset is None else last_offset
        entries = [TimeIndexEntry(*entry) for entry in given]
        indexes = [segment.append_times for segment in self._segments if segment.append_times is not None]
        known = max([one.last.append_ms for one in indexes if one.last is not None], default=NO_TIMESTAMP)
        for before, entry in zip([TimeIndexEntry(known, -1), *entries], entries, strict=False):
            late = entry.offset >= end and entry.append_ms < before.append_ms
            if entry.offset <= before.offset or entry.offset > last or late:
                raise InvalidRequestError(f"index_entries: {entry} does not follow {before}, or the log's messages")
        filled = next((segment for segment in reversed(self._segments) if segment.size), active)
        times = filled.append_times
        if times is not None and filled.size and times.gap is None:
            mine = times.last
            closing = [one for one in entries if one.offset == end - 1 and (mine is None or mine.offset < one.offset)]
            if closing:
                times.add(closing)
                if filled is not active:  # ``flush`` is for the active segment: the others are on disk
                    times.flush()
                    times.rest()
                filled.last_append_ms = closing[0].append_ms
                self._append_time.last_ms = max(self._append_time.last_ms, closing[0].append_ms)
        return [entry for entry in entries if entry.offset >= end]

    def fill_index(self, gap: Gap, entries: Sequence[TimeIndexEntry]) -> None:
        """Option 3: take the leader's entries for a gap of ``waits_for_leader``.

        Parameters
        ----------
        gap : Gap
            One of ``waits_for_leader``.
        entries : sequence of TimeIndexEntry
            All that the leader has for these offsets (its ``index_entries(gap.first_offset, gap.last_offset)``).

        Raises
        ------
        InvalidRequestError, CorruptIndexError
            The log does not wait for these offsets; the entries do not fit those that it has. It still waits.
        """
        self._needs_index()
        with self._writing():
            for segment in self._segments:
                times = segment.append_times
                if times is not None and times.gap == gap:
                    times.fill(gap, [TimeIndexEntry(*entry) for entry in entries])
                    segment.index_filled()
                    self._follow_time(self._append_time.last_ms)
                    return
            raise InvalidRequestError(f"gap: expected one of {self.waits_for_leader}, found {gap}")

    def _write(
        self,
        data: memoryview,
        found: Entries,
        times: np.ndarray[Any, np.dtype[np.int64]],
        entries: list[TimeIndexEntry] | None,
    ) -> None:
        """Write entries into the active segment, and into new ones where a rule says so.

        ``times`` is LogAppendTime, -1 where a follower of option 3 does not know it. ``entries`` are the leader's for
        option 3's index; None: this is the leader.
        """
        row, count = 0, len(found.position)
        ends = found.position + found.size
        while row < count:
            active = self._segments[-1]
            if active.size and self._roll_reason(
                active, int(found.size[row]), int(times[row]), int(found.last_offset[row])
            ):
                active = self._roll()
            start = int(found.position[row])
            fits = np.ones(count - row, bool)
            fits[1:] = ends[row + 1 :] - start <= self.config.segment_bytes - active.size
            fits[1:] &= found.last_offset[row + 1 :] - active.base_offset <= INT32_MAX
            first_ms = active.first_append_ms if active.size else int(times[row])
            if first_ms is not None and first_ms != NO_TIMESTAMP:
                fits[1:] &= times[row + 1 :] - first_ms <= self.config.max_segment_ms
            stop = count if fits.all() else row + int(fits.argmin())
            piece = found.part(row, stop, active.size - start)
            first, last = active.end_offset, int(found.last_offset[stop - 1])
            if entries is None:
                last_ms: int | None = int(times[stop - 1])
                mine = self._leaders_entry(active, TimeIndexEntry(int(times[row]), first))
            else:
                mine = [entry for entry in entries if first <= entry.offset <= last]
                last_ms = mine[-1].append_ms if mine and mine[-1].offset == last else None
            active.append(data[start : int(ends[stop - 1])], piece, mine, last_ms)
            row = stop

    def _leaders_entry(self, active: OptionSegment, entry: TimeIndexEntry) -> list[TimeIndexEntry]:
        """Option 3: an entry for the first message of a segment, and for the first received in a minute."""
        if active.append_times is None:
            return []
        last = active.append_times.last
        return [entry] if not active.size or last is None or is_new_minute(entry.append_ms, last.append_ms) else []

    # --- roll, retention, truncation ----------------------------------------------------------------

    def _roll_reason(self, active: OptionSegment, incoming: int, append_ms: int, last_offset: int) -> str | None:
        first_ms = active.first_append_ms
        return policies.roll_reason(
            active.size,
            incoming,
            self.config.segment_bytes,
            append_ms - first_ms if first_ms is not None else 0,
            self.config.max_segment_ms,
            active.indexes_full,
            last_offset - active.base_offset,
        )

    def roll(self) -> int | None:
        """Close the active segment and begin a new one; its base offset, None if the active segment is empty."""
        with self._writing():
            return self._roll().base_offset if self._segments[-1].size else None

    def roll_if_due(self) -> int | None:
        """Roll if the first message of the active segment is older than ``segment.ms``; as ``roll``."""
        with self._writing():
            active = self._segments[-1]
            now = self._append_time.append_time(self._clock())
            due = active.size and self._roll_reason(active, 0, now, active.base_offset) == "time"
            return self._roll().base_offset if due else None

    def _roll(self) -> OptionSegment:
        self._segments[-1].close_for_good(leads=self._leads)
        segment = self._segment(self.log_end_offset)
        local.sync_directory(self.path)
        self._segments.append(segment)
        return segment

    def delete_old_segments(self) -> list[Deleted]:
        """Delete the segments that retention takes now, oldest first.

        Notes
        -----
        A segment expires by LogAppendTime of its last message; in option 3 by its last index entry, and never without
        one. If all expire, a new segment begins first.
        """
        with self._writing():
            config, now, deleted = self.config, self._clock(), []
            policy = policies.RetentionPolicy(config.retention_ms, config.retention_bytes, config.deletes)
            for rule in policies.retention_rules(policy):
                facts = policies.LogFacts(tuple(map(_facts, self._segments)), self.log_end_offset)
                count = policies.deletable(rule, facts, policy, now)
                if count == len(self._segments):
                    self._roll()
                for one in facts.segments[:count]:
                    self._segments.pop(0).delete()
                    deleted.append(Deleted(one.base_offset, one.size_bytes, one.largest_timestamp_ms, rule))
            return deleted

    def lead(self) -> None:
        """Wait for no other leader: what this log has is the truth.

        Notes
        -----
        In option 3, that is the index as it is. Of the offsets that it waited for, nobody knows LogAppendTime any more.
        The index is on disk when the call returns.
        """
        with self._writing():
            for segment in self._segments:
                if segment.append_times is not None:
                    segment.append_times.trust()
            self._leads = True

    def follow(self) -> None:
        """Forget what only the leader of the last messages knows, since this replica follows another one now.

        Notes
        -----
        In option 3 that is LogAppendTime of messages without an index entry. No other replica knows them: a new leader
        goes on from the last entry, and all replicas must decide as it does.
        """
        with self._writing():
            self._leads = False
            if self.option == 3:
                self._segments[-1].take_times()
                self._append_time.last_ms = NO_TIMESTAMP
                self._follow_time()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all messages and begin at an offset: the leader's start, which is after the end of this log.

        Notes
        -----
        All of it is on disk when the call returns.
        """
        integer("offset", offset, 0, INT64_MAX)
        with self._writing():
            while len(self._segments) > 1:
                self._segments.pop().delete()
            self._segments[0].truncate(0)
            if offset != self.log_start_offset:
                self._begin_at(offset)
            self._append_time.last_ms = NO_TIMESTAMP

    def _begin_at(self, offset: int) -> None:
        """Put an empty segment in the place of the only one."""
        [before] = self._segments
        self._segments = [self._segment(offset)]
        local.sync_directory(self.path)  # before the other goes: a directory without a segment begins at 0
        before.delete()

    def truncate_to(self, offset: int) -> None:
        """Drop the messages from an offset on, with their index entries; of a wrapper that contains it, all.

        Notes
        -----
        The log end offset is then at or below ``offset``. If no message is left, the log begins at ``offset``. All of
        it is on disk when the call returns. A replica that begins to follow calls it in any case, with the end of the
        leader's log: an empty segment that it rolled as the leader goes too, with its index entry for the last message.
        """
        integer("offset", offset, 0, INT64_MAX)
        with self._writing():
            if offset > self.log_end_offset or (offset == self.log_end_offset and self._segments[-1].size):
                return
            while len(self._segments) > 1 and self._segments[-1].base_offset >= max(offset, self.log_start_offset + 1):
                self._segments.pop().delete()
            active = self._segments[-1]
            if offset >= active.base_offset:
                active.truncate(active.position_of(offset))
            else:
                self._begin_at(offset)
            self._append_time.last_ms = NO_TIMESTAMP
            self._follow_time()

    # --- read -------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole messages and wrappers, from the one that contains an offset on; at least one, none at the end.

        Raises
        ------
        OffsetOutOfRangeError
            The offset lies outside of the log.
        """
        integer("max_bytes", max_bytes, 0)
        with self._lock:
            if not self.log_start_offset <= integer("offset", offset) <= self.log_end_offset:
                limits = f"{self.log_start_offset} to {self.log_end_offset}"
                raise OffsetOutOfRangeError(f"expected an offset from {limits}, found {offset}", offset=offset)
            number = bisect_right([segment.base_offset for segment in self._segments], offset) - 1
            for segment in self._segments[number:]:
                position = segment.position_of(offset)
                if position < segment.size:
                    data = segment.read(position, max_bytes)
                    if segment is not self._segments[-1]:
                        segment.rest()
                    return data
            return b""

    # --- search -----------------------------------------------------------------------------------

    def search(self, target_ms: int, *, by: str = "LogAppendTime") -> Answer:
        """The first message at or after a time, and what was read to find it.

        Parameters
        ----------
        target_ms : int
            In ms since the epoch.
        by : str
            LogAppendTime, or CreateTime in options 1 and 3.

        Returns
        -------
        Answer
            ``found`` is None if there is no such message.

        Raises
        ------
        UnsupportedForMessageFormatError
            Option 2 has no CreateTime.
        CorruptIndexError
            Option 3: the index waits for the leader.

        Notes
        -----
        The guarantee depends on the option:

        - LogAppendTime in options 1 and 2 never goes back, so the answer is exact: all messages before it are earlier,
          and all from it on are at or after the target. The time index leads to it.
        - LogAppendTime in option 3 is known by the minute: all messages before the answer are earlier. From the answer
          on, those of the target's own minute may be earlier too; then the timestamp of the answer is -1. Where a
          leader went on without entries that it lost (``lead``), or with a clock behind that of the leader before,
          messages before the answer may be later than the target.
        - By CreateTime all messages are read from the start: the answer is the first in the log at or after the target.
          Later ones may be earlier, as producers set it.
        """
        choice("by", by, TIMESTAMP_TYPES)
        integer("target_ms", target_ms)
        with self._lock:
            if by == CREATE_TIME and self.option == 2:
                raise UnsupportedForMessageFormatError("option 2 has no CreateTime, search by LogAppendTime")
            if by == CREATE_TIME:
                return self._search_messages(target_ms, "createTimestamp", 0)
            if self.option == 3:
                return self._search_index(target_ms)
            lasts = [segment.last_append_ms for segment in self._segments]
            late = (number for number, last_ms in enumerate(lasts) if last_ms is not None and last_ms >= target_ms)
            return self._search_messages(target_ms, "logAppendTimestamp", next(late, len(lasts)))

    def _search_messages(self, target_ms: int, column: str, number: int) -> Answer:
        """Read segments, from one on, until one has a message at or after the target."""
        start: Start | None = None
        read: list[FoundMessage] = []
        for segment in self._segments[number:]:
            offset, position = segment.base_offset, 0
            if column == "logAppendTimestamp":
                offset, position = segment.start_by_append_time(target_ms)
            start = start or Start(segment.base_offset, offset)
            read.append(segment.find(target_ms, column, position))
            if segment is not self._segments[-1]:
                segment.rest()
            if read[-1].message is not None:
                break
        return Answer(
            read[-1].message if read else None,
            start,
            number,
            len(read),
            sum(one.bytes_read for one in read),
            sum(one.batches_read for one in read),
            sum(one.records_read for one in read),
        )

    def _search_index(self, target_ms: int) -> Answer:
        """Option 3's answer, from its index alone: no message is read."""
        gaps = self.waits_for_leader
        if gaps:
            raise CorruptIndexError(
                f"the time index waits for the leader's entries of the offsets {gaps[0].first_offset} to "
                f"{gaps[0].last_offset}; give them to fill_index",
                path=self.path,
            )
        before: TimeIndexEntry | None = None
        found: TimeIndexEntry | None = None
        for segment in self._segments:
            earlier, found = segment.append_times.after(target_ms) if segment.append_times is not None else (None, None)
            before = earlier or before
            if found is not None:
                break
        end = self.log_end_offset
        if before is not None and before.append_ms // MINUTE_MS == target_ms // MINUTE_MS:
            following = before.offset + 1  # of the same minute: nothing says how late it is
            if following < (found.offset if found is not None else end) and not self._ends_before(target_ms):
                return Answer(TimestampOffset(NO_TIMESTAMP, following))
        return Answer(None if found is None else TimestampOffset(*found))

    def _ends_before(self, target_ms: int) -> bool:
        """Whether even the last message is known to be earlier."""
        last_ms = self._segments[-1].last_append_ms
        return last_ms is not None and last_ms < target_ms

    # --- flush, close -----------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until all messages and index entries are on disk.

        Notes
        -----
        Index entries that came while the log waits for the leader are not: ``fill_index`` or ``lead`` puts them there.
        """
        with self._writing():
            self._segments[-1].flush()

    def close(self) -> None:
        """Flush and release the directory; a second call does nothing."""
        with self._lock:
            if self.closed:
                return
            try:
                self.flush()
                active = self._segments[-1]
                times = active.append_times
                known = times is None or active.last_append_ms is not None
                entries = 0 if times is None else -1 if times.gap is not None else len(times)
                line = f"{self.log_end_offset} {self.last_append_ms if known else NO_TIMESTAMP} {entries}"
                publishing.publish(os.path.join(self.path, CLOSED), f"0\n{line}\n".encode())
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Release the directory without a flush, as the end of the process would; the next start recovers the log."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            try:
                for segment in self._segments:
                    segment.rest()
            finally:
                self._entry.leave(clean=False)  # no broker may take this partition for a sound one

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _writing(self) -> _Writing:
        return _Writing(self, self._lock)


class _Writing:
    """One change of a log at a time; if the disk fails in it, the log closes itself."""

    def __init__(self, log: OptionLog, lock: threading.RLock) -> None:
        self._log, self._lock = log, lock

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._log.closed:
            self._lock.release()
            raise LogClosedError("the log is closed", path=self._log.path)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if isinstance(error, LogStorageError):
                self._log.abandon()
        finally:
            self._lock.release()


def _facts(segment: OptionSegment) -> policies.SegmentFacts:
    """What retention asks: the time of the last message, or of option 3's last index entry."""
    last_ms = segment.last_append_ms
    if last_ms is None and segment.append_times is not None and segment.append_times.last is not None:
        last_ms = segment.append_times.last.append_ms
    return policies.SegmentFacts(segment.base_offset, segment.size, INT64_MAX if last_ms is None else last_ms)
