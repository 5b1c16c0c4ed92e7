"""The entries of both indexes, chosen among many entries of a log at once."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.errors import CorruptRecordError, IndexFullError, InvalidOffsetError, KtsError
from kts.model import NO_TIMESTAMP
from kts.segment import files
from kts.segment.index import NOTHING
from kts.segment.shallow import decoded, decoded_as_shipped

if TYPE_CHECKING:
    import numpy.typing as npt

_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])


class Rules(NamedTuple):
    """What a rebuild depends on.

    Parameters
    ----------
    index_interval_bytes, segment_index_bytes : int
        The topic's settings.
    generation : str
        "0.10.2": entries have the first offset of their entry of the log; "3.9": the last one.
    shipped : bool
        Fail where Kafka fails; else a full index stops growing, and what cannot be indexed is cut off.
    allow_negative : bool
        Times before 1970 count.
    max_message_bytes : int or None
        Larger entries count as damaged, as 0.10.2 has it.
    """

    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * 2**20
    generation: str = "3.9"
    shipped: bool = False
    allow_negative: bool = False
    max_message_bytes: int | None = None


class Stop(Exception):
    """Nothing more is taken from the log."""

    def __init__(self, row: int, reason: str, error: KtsError | None = None) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason
        self.error = error


class Rows(NamedTuple):
    """Entries of the log that wait to be indexed."""

    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]  # that an index entry has; -1 where only the records can tell
    last: npt.NDArray[np.int64]
    time: npt.NDArray[np.int64]

    def front(self, count: int) -> Rows:
        return Rows(self.position[:count], self.size[:count], self.offset[:count], self.last[:count], self.time[:count])


class IndexEntries:
    """Both indexes of a log while they are made.

    Attributes
    ----------
    time, time_offset : int
        The greatest timestamp so far, and where it was reached.
    """

    def __init__(self, file: files.File, base_offset: int, rules: Rules, path: str | None) -> None:
        self.file, self.base_offset, self.rules, self.path = file, base_offset, rules, path
        self.first_offsets = rules.generation == "0.10.2"
        self.last_entry_position = 0
        self.time, self.time_offset = (NOTHING if rules.allow_negative else NO_TIMESTAMP), base_offset
        self.offset_parts: list[bytes] = []
        self.time_parts: list[bytes] = []
        self.entries, self.time_entries = 0, 0
        self.last_index_offset = base_offset
        self.last_time = self.time
        self.last_time_offset = base_offset
        self.most = rules.segment_index_bytes // 8
        self.most_times = rules.segment_index_bytes // 12 - 1

    def spaced(self, rows: Rows) -> npt.NDArray[np.int64]:
        """Rows that get an index entry: each lies more than the interval behind the one before."""
        interval, count = self.rules.index_interval_bytes, len(rows.position)
        if int(rows.size[:-1].min(initial=2**31 - 1)) > interval:  # all but those near the last entry
            first = int(np.searchsorted(rows.position, self.last_entry_position + interval, "right"))
            chosen = np.arange(first, count)
        else:
            places = memoryview(rows.position.data)
            most = interval // 26 + 2  # no entry is smaller
            found: list[int] = []
            row, step = bisect_right(places, self.last_entry_position + interval), 1
            while row < count:
                found.append(row)
                end = places[row] + interval
                if row + step < count and places[row + step - 1] <= end < places[row + step]:
                    row += step  # entries of one size are as far apart as the two before
                else:
                    following = bisect_right(places, end, row + 1, min(row + most, count))
                    row, step = following, following - row
            chosen = np.array(found, np.int64)
        if len(chosen):
            self.last_entry_position = int(rows.position[chosen[-1]])
        return chosen

    def quick(
        self,
        rows: Rows,
        chosen: npt.NDArray[np.int64],
        running: npt.NDArray[np.int64],
        reached: npt.NDArray[np.int64],
    ) -> bool:
        """Add all chosen entries at once; False, and nothing is done, if any of them needs a closer look."""
        offsets = rows.offset[chosen]
        if self.entries + len(chosen) > self.most or self.time_entries + len(chosen) > self.most_times:
            return False
        if offsets[0] < 0 or (self.entries and offsets[0] <= self.last_index_offset):
            return False
        if not (offsets[1:] > offsets[:-1]).all():
            return False
        entries = np.empty(len(chosen), _ENTRY)
        entries["offset"] = offsets - self.base_offset
        entries["position"] = rows.position[chosen]
        times = running[chosen]
        later = np.empty(len(chosen), bool)
        later[0] = times[0] > self.last_time
        np.greater(times[1:], times[:-1], out=later[1:])
        times, places = times[later], rows.last[reached[later]]
        if len(times):
            places = np.where(times > self.time, places, self.time_offset)
            if places[0] < self.last_time_offset or not (places[1:] >= places[:-1]).all():
                return False
            time_entries = np.empty(len(times), _TIME_ENTRY)
            time_entries["timestamp"] = times
            time_entries["offset"] = places - self.base_offset
            self.time_parts.append(time_entries.tobytes())
            self.time_entries += len(times)
            self.last_time, self.last_time_offset = int(times[-1]), int(places[-1])
        self.offset_parts.append(entries.tobytes())
        self.entries += len(chosen)
        self.last_index_offset = int(offsets[-1])
        return True

    def one_by_one(
        self,
        rows: Rows,
        chosen: npt.NDArray[np.int64],
        running: npt.NDArray[np.int64],
        reached: npt.NDArray[np.int64],
        untimed: int,
    ) -> Stop | None:
        """Add the chosen entries in order, up to one that cannot be added; the first rows may have no time yet."""
        for row, at in zip(chosen.tolist(), reached.tolist(), strict=True):
            position = int(rows.position[row])
            time = NOTHING if row < untimed else int(running[row])
            time_offset = int(rows.last[max(at, untimed)]) if time > self.time else self.time_offset
            offset = int(rows.offset[row])
            if offset < 0:
                found = self.first_offset(position, int(rows.size[row]))
                if isinstance(found, Stop):
                    found.row = row
                    return found
                if found is None:
                    continue
                offset = found
            error = self.add(offset, position, time, time_offset)
            if error is not None and self.rules.shipped:
                return Stop(row, error.message, error)
            if isinstance(error, InvalidOffsetError):
                return Stop(row, error.message)
        return None

    def first_offset(self, position: int, size: int) -> int | None | Stop:
        """First offset of a wrapper message; None if it has none."""
        try:
            entry = self.file.read(position, size)
            offsets, _ = decoded_as_shipped(entry, "0.10.2") if self.rules.shipped else decoded(entry)
        except CorruptRecordError as error:
            return Stop(0, error.message) if self.rules.shipped else None
        return int(offsets[0]) if len(offsets) else None

    def add(self, offset: int, position: int, time: int, time_offset: int) -> KtsError | None:
        """Add one entry to each index, or say what is against it."""
        full = disordered = None
        if self.time_entries >= self.most_times:
            full = IndexFullError(f"the time index is full, it has {self.time_entries} entries", path=self.path)
        if self.time_entries and time_offset < self.last_time_offset:
            message = f"expected an offset from {self.last_time_offset} on, found {time_offset}"
            disordered = InvalidOffsetError(message, path=self.path, position=position, offset=time_offset)
        if full is not None and not self.rules.shipped:
            return full
        if self.entries >= self.most:
            return IndexFullError(f"the offset index is full, it has {self.entries} entries", path=self.path)
        if self.entries and offset <= self.last_index_offset:
            message = f"expected an offset above {self.last_index_offset}, found {offset}"
            return InvalidOffsetError(message, path=self.path, position=position, offset=offset)
        if self.rules.shipped or not (full or disordered):  # Kafka has added the first entry when the second one fails
            self.offset_parts.append(_packed(offset - self.base_offset, 4) + _packed(position, 4))
            self.entries += 1
            self.last_index_offset = offset
        if full is None and disordered is None and time > self.last_time:
            self.add_time(time, time_offset)
        return full or disordered

    def add_time(self, time: int, offset: int) -> None:
        self.time_parts.append(_packed(time, 8) + _packed(offset - self.base_offset, 4))
        self.time_entries += 1
        self.last_time, self.last_time_offset = time, offset
        if self.first_offsets and self.rules.shipped:  # read back from the file there, cut to 32 bits
            self.last_time_offset = self.base_offset + _cut(offset - self.base_offset)


def _packed(number: int, count: int) -> bytes:
    return (number & ((1 << 8 * count) - 1)).to_bytes(count, "big")


def _cut(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31
