"""Both indexes of a segment, rebuilt from its log.

The log is read in slices, its headers become arrays, and the index entries are chosen from those: no loop over entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.errors import InvalidOffsetError, KtsError
from kts.model import NO_TIMESTAMP
from kts.segment import files
from kts.segment.index import GREATEST_RELATIVE_OFFSET, NOTHING
from kts.segment.index_entries import IndexEntries, Rows, Rules, Stop
from kts.segment.shallow import Batches, Slices, decoded, greatest_timestamp

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Rebuilt", "Rules", "Visit", "rebuild"]

Visit = Callable[[Batches], None]
_ROWS_AT_ONCE = 2**12


class Rebuilt(NamedTuple):
    """What a log says its indexes are.

    Attributes
    ----------
    offset_index, time_index : bytes
        Their entries, the closing one included.
    size, valid_bytes : int
        Length of the log, and of its sound front.
    reason : str or None
        What is wrong behind that.
    batches : int
        Entries of the log.
    largest_timestamp_ms, offset_of_largest : int
        (-1, base offset) if there is none.
    next_offset : int
        Behind the last entry; the base offset if there is none.
    error : KtsError or None
        Where Kafka gives up: the indexes are as it leaves them.
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


def rebuild(
    file: files.File, size: int, base_offset: int, rules: Rules, path: str | None = None, visit: Visit | None = None
) -> Rebuilt:
    """What both indexes of a log are; changes nothing.

    Parameters
    ----------
    file : File
        The log.
    size : int
        Bytes of it that count.

    Notes
    -----
    Takes a slice of memory, or as much as the largest entry has. Source: LogSegment.recover.
    """
    return _Rebuild(file, size, base_offset, rules, path, visit).run()


class _Rebuild(IndexEntries):
    def __init__(
        self, file: files.File, size: int, base_offset: int, rules: Rules, path: str | None, visit: Visit | None
    ) -> None:
        super().__init__(file, base_offset, rules, path)
        self.size, self.visit = size, visit
        self.checks_range = not (rules.shipped and self.first_offsets)
        self.waiting: list[Rows] = []
        self.rows_waiting = 0
        self.batches = 0
        self.valid_bytes = 0
        self.next_offset = base_offset
        self.last_taken = base_offset - 1

    def run(self) -> Rebuilt:
        slices = Slices(self.file, 0, self.size)
        reason: str | None = None
        error: KtsError | None = None
        try:
            for batches in slices:
                self.take(batches)
            reason = slices.reason
            self.index_waiting()
        except Stop as stop:
            reason, error = stop.reason, stop.error
            stop.__traceback__ = None  # its frames name it, and the file: that circle would keep the file open
        if error is None:
            if self.rules.shipped and self.time_entries and self.time_offset < self.last_time_offset:
                error = InvalidOffsetError("the closing entry's offset lies before the last one", path=self.path)
            elif self.time > self.last_time:
                self.add_time(self.time, self.time_offset)
        none = self.time in (NO_TIMESTAMP, NOTHING)
        return Rebuilt(
            b"".join(self.offset_parts),
            b"".join(self.time_parts),
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
        """Look at the entries of one slice; those before the first unsound one wait to be indexed."""
        stop = self.unsound(batches)
        if stop is not None:
            batches.rows = stop.row
        if len(batches):
            last = batches.column("lastOffset")
            self.last_taken = int(last[-1])
            time = batches.column("maxTimestamp")
            if self.rules.allow_negative:
                time = self.signed(batches, time)
            self.waiting.append(
                Rows(
                    batches.positions(),
                    batches.column("sizeInBytes"),
                    batches.column("baseOffset") if self.first_offsets else last,
                    last,
                    time,
                )
            )
            self.rows_waiting += len(batches)
            if self.visit is not None:
                try:
                    self.index_waiting()
                except Stop as earlier:
                    batches.rows = earlier.row
                    self.visit(batches)
                    raise
                self.visit(batches)
            elif self.rows_waiting >= _ROWS_AT_ONCE:
                self.index_waiting()
        if stop is not None:
            self.index_waiting()
            raise stop

    def unsound(self, batches: Batches) -> Stop | None:
        """Where the entries of a slice end to be sound, and why."""
        found: Stop | None = None
        if not batches.all_sound():
            found = Stop(int(batches.column("crcOk").argmin()), "the CRC is wrong")
        if self.rules.max_message_bytes is not None:
            large = batches.column("sizeInBytes") > self.rules.max_message_bytes + 12
            if large.any() and (found is None or large.argmax() < found.row):
                found = Stop(int(large.argmax()), f"an entry is larger than {self.rules.max_message_bytes} bytes")
        if not self.rules.shipped:
            back = self.backwards(batches)
            if back is not None and (found is None or back.row < found.row):
                found = back
        return found

    def backwards(self, batches: Batches) -> Stop | None:
        """The first entry whose offset is not above the one before: no CRC covers it, and a torn write may lack it."""
        first, last = batches.column("baseOffset"), batches.column("lastOffset")
        before = np.concatenate(([self.last_taken], last[:-1]))
        unknown = (first < 0) & (batches.column("magic") < 2)  # a wrapper's header does not tell it
        wrong = (last <= before) | ((first <= before) & ~unknown)
        if not wrong.any():
            return None
        row = int(wrong.argmax())
        found = last[row] if unknown[row] or first[row] > before[row] else first[row]
        return Stop(row, f"expected an offset above {before[row]}, found {found}")

    def outside(self, rows: Rows) -> Stop | None:
        """The first entry whose offset does not fit into the segment."""
        most = self.base_offset + GREATEST_RELATIVE_OFFSET
        last = rows.last
        if not self.checks_range or (last.min() >= self.base_offset and last.max() <= most):
            return None
        row = int(((last < self.base_offset) | (last > most)).argmax())
        offset, position = int(last[row]), int(rows.position[row])
        message = f"offset {offset} does not fit into the segment"
        error = InvalidOffsetError(message, path=self.path, position=position, offset=offset)
        return Stop(row, message, error if self.rules.shipped else None)

    def signed(self, batches: Batches, time: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Greatest timestamps where a header's -1 may hide earlier ones."""
        time = time.copy()
        for row in np.flatnonzero(time == NO_TIMESTAMP).tolist():
            found = greatest_timestamp(decoded(batches.entry(row))[1])
            time[row] = NO_TIMESTAMP if found is None else found
        return time

    # --- into the indexes -------------------------------------------------------------------------

    def index_waiting(self) -> None:
        """Choose the index entries among the entries of the log that wait."""
        if not self.waiting:
            return
        rows = self.waiting[0]
        if len(self.waiting) > 1:
            rows = Rows(*(np.concatenate(column) for column in zip(*self.waiting, strict=True)))
        self.waiting, self.rows_waiting = [], 0
        outside = self.outside(rows)
        if outside is not None:
            rows = rows.front(outside.row)
        if len(rows.position):
            self.index(rows)
        if outside is not None:
            raise outside

    def index(self, rows: Rows) -> None:
        """Choose the index entries among some entries of the log, and take over what these say."""
        chosen = self.spaced(rows)
        times, untimed = rows.time, 0
        if self.rules.allow_negative:
            timed = times != NO_TIMESTAMP
            times = np.where(timed, times, -(2**63))
            if self.time == NOTHING:
                untimed = int(timed.argmax()) if timed.any() else len(times)
        running, reached = times, chosen
        if times[0] <= self.time or not (times[1:] > times[:-1]).all():
            running = np.maximum.accumulate(times)
            if self.time > running[0]:
                np.maximum(running, self.time, out=running)
            reached = np.searchsorted(running, running[chosen])
        stop: Stop | None = None
        if len(chosen) and (self.rules.shipped or untimed or not self.quick(rows, chosen, running, reached)):
            stop = self.one_by_one(rows, chosen, running, reached, untimed)
        end = len(running) if stop is None else stop.row
        if stop is not None and stop.error is not None:
            end += 1  # Kafka has taken its timestamp when it fails
        if end:
            if end > untimed and running[end - 1] > self.time:
                row = max(int(np.searchsorted(running, running[end - 1])), untimed)
                self.time, self.time_offset = int(running[end - 1]), int(rows.last[row])
            self.batches += end
            self.valid_bytes = int(rows.position[end - 1]) + int(rows.size[end - 1])
            self.next_offset = int(rows.last[end - 1]) + 1
        if stop is not None:
            raise stop
