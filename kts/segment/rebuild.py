"""Rebuild both indexes of a segment from its log, and describe a recovery.

The log is read in slices. Entry headers become arrays, and index entries are chosen from the arrays, without a loop
over log entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.arguments import INT32_MAX
from kts.behaviour import DEFAULT, NOTHING, Behaviour
from kts.config import LogConfig
from kts.errors import CorruptRecordError, InvalidOffsetError, KtsError
from kts.model import NO_TIMESTAMP
from kts.segment.entries import Batches, Slices, decoded, decoded_by, greatest_timestamp
from kts.segment.index import GrowingOffsetIndex, GrowingTimeIndex, IndexSpacing, append_to_both
from kts.store.protocol import Readable

if TYPE_CHECKING:
    import numpy.typing as npt

Visit = Callable[[Batches], None]
_ROWS_AT_ONCE = 2**12


class IndexConfig(NamedTuple):
    """The settings that determine the index entries of a log.

    Parameters
    ----------
    index_interval_bytes, segment_index_bytes : int
        The topic's settings.
    behaviour : Behaviour
        If indexes adapt, a full one stops growing, and the log is cut before an entry that cannot be indexed. Otherwise
        a rebuild fails where Kafka fails.
    max_message_bytes : int or None
        Larger entries count as damaged.
    """

    index_interval_bytes: int = LogConfig.index_interval_bytes
    segment_index_bytes: int = LogConfig.segment_index_bytes
    behaviour: Behaviour = DEFAULT
    max_message_bytes: int | None = None

    @classmethod
    def of(cls, topic: LogConfig, behaviour: Behaviour) -> IndexConfig:
        """Take the settings of a topic."""
        most = topic.max_message_bytes if behaviour.limits_recovered_entries else None
        return cls(topic.index_interval_bytes, topic.segment_index_bytes, behaviour, most)


class RebuiltIndexes(NamedTuple):
    """Both indexes, rebuilt from a log.

    Attributes
    ----------
    offset_index, time_index : bytes
        Entries of each index, including the closing one.
    size, valid_bytes : int
        Length of the log, and of its sound part.
    reason : str or None
        The fault after the sound part.
    batches : int
        Entries of the log.
    largest_timestamp_ms, offset_of_largest : int
        (-1, base offset) if there is none.
    next_offset : int
        The offset after the last entry; the base offset if there is none.
    error : KtsError or None
        The error that stops Kafka here: the indexes are as Kafka leaves them.
    """

    offset_index: bytes
    time_index: bytes
    size: int
    valid_bytes: int
    reason: str | None
    batches: int
    largest_timestamp_ms: int
    offset_of_largest: int
    next_offset: int
    error: KtsError | None = None


class Recovered(NamedTuple):
    """The result of recovering a segment: which file was truncated, where, by how much, and why."""

    path: str
    position: int
    bytes_cut: int
    reason: str | None
    batches: int
    aside: str | None = None  # the file with the bytes cut off, if they had been flushed before

    def __str__(self) -> str:
        cut = f", {self.bytes_cut:,} bytes at position {self.position}" if self.bytes_cut else ""
        kept = f", kept as {self.aside}" if self.aside is not None else ""
        return f"{self.path}: {self.reason}{cut}{kept}"


def rebuild(
    file: Readable,
    size: int,
    base_offset: int,
    config: IndexConfig,
    path: str | None = None,
    visit: Visit | None = None,
) -> RebuiltIndexes:
    """Compute both indexes of a log; changes no file.

    Parameters
    ----------
    file : File
        The log.
    size : int
        Bytes of the log to read.

    Notes
    -----
    Uses memory for one slice, or for the largest entry. Source: LogSegment.recover.
    """
    return _Rebuild(file, size, base_offset, config, path, visit).run()


class StopIndexing(Exception):
    """Indexing stops at a row of the log."""

    def __init__(self, row: int, reason: str, error: KtsError | None = None) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason
        self.error = error


class PendingEntries(NamedTuple):
    """Log entries waiting to be indexed."""

    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]  # for the index entry; -1 if only the records show it
    last: npt.NDArray[np.int64]
    time: npt.NDArray[np.int64]

    def front(self, count: int) -> PendingEntries:
        return PendingEntries(
            self.position[:count], self.size[:count], self.offset[:count], self.last[:count], self.time[:count]
        )


class _Rebuild:
    """One rebuild; ``time`` and ``time_offset`` are the greatest timestamp so far, and its offset."""

    def __init__(
        self, file: Readable, size: int, base_offset: int, config: IndexConfig, path: str | None, visit: Visit | None
    ) -> None:
        self.file, self.size, self.base_offset = file, size, base_offset
        self.config, self.path, self.visit = config, path, visit
        self.behaviour = config.behaviour
        self.spacing = IndexSpacing(config.index_interval_bytes)
        self.time, self.time_offset = self.behaviour.times.least, base_offset
        self.offsets = GrowingOffsetIndex(path, base_offset, config.segment_index_bytes, self.behaviour)
        self.times = GrowingTimeIndex(path, base_offset, config.segment_index_bytes, self.behaviour)
        self.waiting: list[PendingEntries] = []
        self.rows_waiting = 0
        self.batches = 0
        self.valid_bytes = 0
        self.next_offset = base_offset
        self.last_taken = base_offset - 1

    def run(self) -> RebuiltIndexes:
        slices = Slices(self.file, 0, self.size)
        reason: str | None = None
        error: KtsError | None = None
        try:
            for batches in slices:
                self.take(batches)
            reason = slices.reason
            self.index_waiting()
        except StopIndexing as stop:
            reason, error = stop.reason, stop.error
            stop.__traceback__ = None  # its frames would keep the file open
        if error is None:
            try:
                self.times.maybe_append(self.time, self.time_offset, skip_full_check=True)
            except KtsError as refused:
                error = refused
                error.__traceback__ = None
        none = self.time in (NOTHING, self.behaviour.times.none)
        return RebuiltIndexes(
            bytes(self.offsets.data),
            bytes(self.times.data),
            self.size,
            self.valid_bytes,
            reason,
            self.batches,
            NO_TIMESTAMP if none else self.time,
            self.time_offset,
            self.next_offset,
            error,
        )

    # --- from the log -----------------------------------------------------------------------------

    def take(self, batches: Batches) -> None:
        """Check the entries of one slice; queue those before the first unsound one for indexing."""
        stop = self.unsound(batches)
        if stop is not None:
            batches.rows = stop.row
        if len(batches):
            last = batches.column("last_offset")
            self.last_taken = int(last[-1])
            time = batches.column("max_timestamp")
            if self.behaviour.times.before_1970:
                time = self.signed(batches, time)
            self.waiting.append(
                PendingEntries(
                    batches.column("position"),
                    batches.column("size"),
                    last if self.behaviour.indexes_last_offset else batches.column("base_offset"),
                    last,
                    time,
                )
            )
            self.rows_waiting += len(batches)
            if self.visit is not None:
                try:
                    self.index_waiting()
                except StopIndexing as earlier:
                    batches.rows = earlier.row
                    self.visit(batches)
                    raise
                self.visit(batches)
            elif self.rows_waiting >= _ROWS_AT_ONCE:
                self.index_waiting()
        if stop is not None:
            self.index_waiting()
            raise stop

    def unsound(self, batches: Batches) -> StopIndexing | None:
        """The first unsound entry of a slice and the reason; None if all are sound."""
        found: StopIndexing | None = None
        if not batches.all_sound:
            found = StopIndexing(int(batches.column("crc_ok").argmin()), "the CRC is wrong")
        if self.config.max_message_bytes is not None:
            large = batches.column("size") > self.config.max_message_bytes + 12
            if large.any() and (found is None or large.argmax() < found.row):
                found = StopIndexing(
                    int(large.argmax()), f"an entry is larger than {self.config.max_message_bytes} bytes"
                )
        if self.behaviour.requires_rising_offsets:
            back = self.backwards(batches)
            if back is not None and (found is None or back.row < found.row):
                found = back
        return found

    def backwards(self, batches: Batches) -> StopIndexing | None:
        """The first entry with an offset not above the previous one: no CRC covers offsets, and a write may be torn."""
        first, last = batches.column("base_offset"), batches.column("last_offset")
        before = np.concatenate(([self.last_taken], last[:-1]))
        unknown = (first < 0) & (batches.column("magic") < 2)  # a wrapper's header lacks its first offset
        wrong = (last <= before) | ((first <= before) & ~unknown)
        if not wrong.any():
            return None
        row = int(wrong.argmax())
        found = last[row] if unknown[row] or first[row] > before[row] else first[row]
        return StopIndexing(row, f"expected an offset above {before[row]}, found {found}")

    def outside(self, rows: PendingEntries) -> StopIndexing | None:
        """The first entry with an offset that does not fit into the segment."""
        most = self.base_offset + INT32_MAX
        last = rows.last
        if self.behaviour.cuts_relative_offsets or (last.min() >= self.base_offset and last.max() <= most):
            return None
        row = int(((last < self.base_offset) | (last > most)).argmax())
        offset, position = int(last[row]), int(rows.position[row])
        message = f"offset {offset} does not fit into the segment"
        error = InvalidOffsetError(message, path=self.path, position=position, offset=offset)
        return StopIndexing(row, message, None if self.behaviour.adapts_indexes else error)

    def signed(self, batches: Batches, time: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Greatest timestamps, read from the records where a header may hide times before 1970."""
        time, rules = time.copy(), self.behaviour.times
        for row in np.flatnonzero(rules.hides(time)).tolist():
            found = greatest_timestamp(decoded(batches.entry(row))[1], rules)
            time[row] = rules.none if found is None else found
        return time

    # --- into the indexes -------------------------------------------------------------------------

    def index_waiting(self) -> None:
        """Index the queued log entries."""
        if not self.waiting:
            return
        rows = self.waiting[0]
        if len(self.waiting) > 1:
            rows = PendingEntries(*(np.concatenate(column) for column in zip(*self.waiting, strict=True)))
        self.waiting, self.rows_waiting = [], 0
        outside = self.outside(rows)
        if outside is not None:
            rows = rows.front(outside.row)
        if len(rows.position):
            self.index(rows)
        if outside is not None:
            raise outside

    def index(self, rows: PendingEntries) -> None:
        """Choose index entries for some log entries, and update the totals."""
        one_by_one = not self.behaviour.adapts_indexes
        chosen = self.spacing.choose(rows.position, rows.size)
        times, untimed = rows.time, 0
        if self.behaviour.times.before_1970:
            timed = times != self.behaviour.times.none
            times = np.where(timed, times, -(2**63))
            if self.time == NOTHING:
                untimed = int(timed.argmax()) if timed.any() else len(times)
        running, reached = times, chosen
        if times[0] <= self.time or not (times[1:] > times[:-1]).all():
            running = np.maximum.accumulate(times)
            if self.time > running[0]:
                np.maximum(running, self.time, out=running)
            reached = np.searchsorted(running, running[chosen])
        stop: StopIndexing | None = None
        if len(chosen) and (one_by_one or untimed or not self.quick(rows, chosen, running, reached)):
            stop = self.one_by_one(rows, chosen, running, reached, untimed)
        end = len(running) if stop is None else stop.row
        if stop is not None and stop.error is not None:
            end += 1  # Kafka takes the entry's timestamp before it fails
        if end:
            if end > untimed and running[end - 1] > self.time:
                row = max(int(np.searchsorted(running, running[end - 1])), untimed)
                self.time, self.time_offset = int(running[end - 1]), int(rows.last[row])
            self.batches += end
            self.valid_bytes = int(rows.position[end - 1]) + int(rows.size[end - 1])
            self.next_offset = int(rows.last[end - 1]) + 1
        if stop is not None:
            raise stop

    def quick(
        self,
        rows: PendingEntries,
        chosen: npt.NDArray[np.int64],
        running: npt.NDArray[np.int64],
        reached: npt.NDArray[np.int64],
    ) -> bool:
        """Add all chosen entries at once; do nothing and return False if one of them needs a separate check."""
        offsets = rows.offset[chosen]
        if offsets[0] < 0 or not self.offsets.takes(offsets):
            return False
        times = running[chosen]
        later = np.empty(len(chosen), bool)
        later[0] = times[0] > self.times.last_timestamp
        np.greater(times[1:], times[:-1], out=later[1:])
        times = times[later]
        places = np.where(times > self.time, rows.last[reached[later]], self.time_offset)
        if not self.times.takes(times, places, len(chosen)):
            return False
        self.offsets.extend(offsets, rows.position[chosen])
        self.times.extend(times, places)
        return True

    def one_by_one(
        self,
        rows: PendingEntries,
        chosen: npt.NDArray[np.int64],
        running: npt.NDArray[np.int64],
        reached: npt.NDArray[np.int64],
        untimed: int,
    ) -> StopIndexing | None:
        """Add the chosen entries in order, up to one that is refused; the first ``untimed`` rows have no time yet."""
        for row, at in zip(chosen.tolist(), reached.tolist(), strict=True):
            position = int(rows.position[row])
            time = NOTHING if row < untimed else int(running[row])
            time_offset = int(rows.last[max(at, untimed)]) if time > self.time else self.time_offset
            offset = int(rows.offset[row])
            if offset < 0:
                found = self.first_offset(position, int(rows.size[row]))
                if isinstance(found, StopIndexing):
                    found.row = row
                    return found
                if found is None:
                    continue
                offset = found
            try:
                append_to_both(self.offsets, self.times, offset, position, time, time_offset)
            except KtsError as error:
                error.position, error.__traceback__ = position, None
                return StopIndexing(row, error.message, None if self.behaviour.adapts_indexes else error)
        return None

    def first_offset(self, position: int, size: int) -> int | None | StopIndexing:
        """First offset of a wrapper message; None if it has none."""
        try:
            entry = self.file.read(position, size)
            offsets, _ = decoded_by(entry, self.behaviour)
        except CorruptRecordError as error:
            return None if self.behaviour.adapts_indexes else StopIndexing(0, error.message)
        return int(offsets[0]) if len(offsets) else None
