"""Where the indexes of a segment say that reading may begin, as far as its log confirms it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.codec.columns import scan_batches
from kts.errors import CorruptRecordError, LogStorageError
from kts.segment import files
from kts.segment.confirmation import Place, confirmed_place, confirmed_time
from kts.segment.index_checksums import FILE, IndexChecksums, Sealed
from kts.segment.names import parse_file_name
from kts.segment.shallow import FIRST_READ_BYTES, SLICE_BYTES, Batches, Slices

if TYPE_CHECKING:
    import numpy.typing as npt

    from kts._timeindex import OffsetIndex, TimeIndex
    from kts.segment.segment import Segment

SMALL_BYTES = 2**14  # a whole log of this size is read as fast as the ends of its indexes and its own
GROUP = 256  # small logs that are read together, at most
EVERYTHING = 2**63 - 1


class Lookups:
    """The indexes of one segment, each read once, when it is first needed.

    Parameters
    ----------
    segment : Segment
        Whose they are; missing and damaged ones are as empty ones.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment

    @cached_property
    def file(self) -> files.File:
        """The log; what one question read of it the next one need not read again."""
        return files.RereadFile(self.segment.path)

    @cached_property
    def size(self) -> int:
        """Bytes of the log when it was first looked at."""
        return self.file.size()

    @cached_property
    def places(self) -> OffsetIndex:
        """The offset index, none of its entries confirmed."""
        return self.segment.offset_index()

    @cached_property
    def times(self) -> TimeIndex:
        """The time index, none of its entries confirmed."""
        return self.segment.time_index()

    def confirmed(self, number: int) -> Place | None:
        """What an entry of the offset index leads to, None unless the log confirms it."""
        before = self.places.entry(number - 1)[1] if number else 0
        return confirmed_place(self.file, self.size, *self.places.entry(number), before)

    def place(self, offset: int) -> int:
        """A border before which everything is below an offset: the last one that is confirmed, else 0."""
        if offset <= self.segment.base_offset:
            return 0
        for candidate in _backwards(self.places.slot(offset)):
            if (found := self.confirmed(candidate)) is not None:
                return found.position
        return 0

    def end(self, offset: int) -> int:
        """A border from which on nothing is below an offset: an early one that is confirmed, else the log's end."""
        number = self.places.slot(offset - 1) + 1
        # The first of these can hold lower offsets too. The one behind it cannot, whatever brokers indexed.
        for candidate in range(number, min(number + 3, len(self.places))):
            found = self.confirmed(candidate)
            if found is not None and found.first_offset >= offset:
                return found.position
        return self.size

    def cuts(self, targets: npt.NDArray[np.int64], start: int, end: int) -> list[int]:
        """Confirmed borders at or behind some positions, between two others."""
        positions = self.places.entries()[1]
        found = []
        for number in np.unique(np.searchsorted(positions, targets)).tolist():
            if number < len(positions) and start < positions[number] < end and self.confirmed(number) is not None:
                found.append(int(positions[number]))
        return found

    def time(self, number: int, to_end: bool = False) -> int | None:
        """Where reading for the time of a time-index entry may begin, None unless the log confirms the entry.

        ``to_end``: and that nothing up to the end of the log is later.
        """
        (time, offset), before = self.times.entry(number), self.times.entry(number - 1)[1] if number else 0
        start = self.place(before) if number else 0
        distance = self.size // max(len(self.places), 1)  # of places
        first = min(max((3 if to_end else 2) * distance, FIRST_READ_BYTES), SLICE_BYTES, self.size - start)
        tail = None
        if to_end and self.size - start > first:  # the rest is known by its own place
            to_end, tail = False, self.place(EVERYTHING)
        reached = confirmed_time(self.file, self.size, time, offset, start, first_bytes=first, to_end=to_end)
        if tail is not None and reached is not None:
            for batches in Slices(self.file, max(tail, reached), self.size, first):
                if ((batches.column("maxTimestamp") > time) & (batches.column("count") != 0)).any():
                    return None
        return reached

    def time_at(self, timestamp_ms: int) -> tuple[tuple[int, int] | None, int]:
        """The latest entry at or before a time that is confirmed, and a border before which everything is earlier."""
        for candidate in _backwards(self.times.slot(timestamp_ms)):
            if (start := self.time(candidate)) is not None:
                return self.times.entry(candidate), start
        return None, 0

    def last_time(self, to_end: bool = False) -> tuple[int, int] | None:
        """The time of the last entry, and where reading for it may begin; None if there is none, or not confirmed.

        ``to_end``: nor that nothing up to the end of the log is later.
        """
        last = len(self.times) - 1
        start = None if last < 0 else self.time(last, to_end)
        return None if start is None else (self.times.entry(last)[0], start)

    def closing_time(self, sealed: Sealed | None = None) -> tuple[int, int] | None:
        """The greatest timestamp of a closed segment and where reading for it may begin, if its time index knows it.

        Parameters
        ----------
        sealed : Sealed, optional
            What ``kts.Log`` noted when it closed the indexes.

        Notes
        -----
        A time index that ends as it did when ``kts.Log`` closed it is believed, one that does not is no use. Of others
        the last entry is confirmed, and that nothing is later behind the last place that the offset index knows.
        Entries that are gone without a trace before it are not noticed.
        """
        count = len(self.times)
        if not count or sealed is None or sealed.log_bytes != self.size:
            return self.last_time(to_end=True)
        last = self.times.entry(count - 1)
        return None if sealed.end_differs(12 * count, last) else (last[0], self.place(last[1]))

    def points_beyond(self) -> bool:
        """True if the offset index has an entry behind the log's end."""
        count = len(self.places)
        return count > 0 and self.places.entry(count - 1)[1] >= self.size

    def lost_end(self, following: int) -> CorruptRecordError | None:
        """What is wrong with a closed segment that ends before the next one's base offset, if its indexes knew more.

        Notes
        -----
        The cleaner leaves gaps, and damaged indexes say anything. So both numbers of an entry must lie behind the log's
        end: its offset and its position, or its offset and its time.
        """
        last = self.segment.base_offset - 1
        tail = Slices(self.file, self.place(EVERYTHING), self.size, FIRST_READ_BYTES)
        for batches in tail:
            last = max(last, int(batches.column("lastOffset").max()))
        if tail.reason is not None or last + 1 >= following:  # what reads the log says what is wrong with it
            return None
        (places, positions), (times, offsets) = self.places.entries(), self.times.entries()
        beyond = (places > last) & (places < following) & (positions >= self.size)
        later = (offsets > last) & (offsets < following)
        for batches in Slices(self.file, 0, self.size if later.any() else 0):
            later &= times > int(batches.column("maxTimestamp").max())
        known = max(places[beyond].max(initial=last), offsets[later].max(initial=last))
        if known == last or not self._is_followed_by(following):
            return None
        index = self.segment.offset_index_path if beyond.any() else self.segment.time_index_path
        found = f"an end of {self.size} bytes" + (f" with offset {last}" if last >= self.segment.base_offset else "")
        message = (
            f"expected entries up to offset {known} at least, which {os.path.basename(index or '')} knows, before the"
            f" next segment with base offset {following}; found {found}: the end of the segment is missing"
        )
        return CorruptRecordError(message, path=self.segment.path, position=self.size)

    def _is_followed_by(self, base_offset: int) -> bool:
        """False if a writer cut the log meanwhile: it deletes what follows first."""
        folder = os.path.dirname(self.segment.path) or "."
        names = (parse_file_name(entry.name) for entry in files.list_directory(folder))
        return any(name is not None and name.base_offset == base_offset for name in names)


def _backwards(number: int) -> Iterator[int]:
    """A number and smaller ones, in steps that double."""
    step = 1
    while number >= 0:
        yield number
        number, step = number - step, 2 * step


# --- many segments --------------------------------------------------------------------------------


class Closed(NamedTuple):
    """What is known of a segment that another one follows."""

    greatest_timestamp_ms: int | None  # None: its batches must be read
    start: int  # where reading for it may begin
    lost: CorruptRecordError | None = None  # its end is missing


Sealing = Callable[[], dict[int, Sealed]]


def closed_times(segments: Sequence[Segment], sealed: Sealing) -> Iterator[Closed]:
    """The greatest timestamps of all but the last segment; those of the first ones need little reading."""
    sealed = cache(sealed)
    done, count = 0, 1
    while done < len(segments) - 1:
        stop = min(done + count, len(segments) - 1)
        yield from _group(
            segments[done:stop], [segment.base_offset for segment in segments[done + 1 : stop + 1]], sealed
        )
        done, count = stop, min(2 * count, GROUP)


def _group(group: Sequence[Segment], followings: Sequence[int], sealed: Sealing) -> Iterator[Closed]:
    logs = files.read_small([segment.path for segment in group], SMALL_BYTES)
    small = _small_times([data or b"" for data in logs])
    for segment, following, data, known in zip(group, followings, logs, small, strict=True):
        if known is not None:
            greatest, last = known
            yield Closed(greatest, 0, None if last + 1 == following else Lookups(segment).lost_end(following))
        elif data == b"":
            yield Closed(None, 0, Lookups(segment).lost_end(following))
        else:
            indexes = Lookups(segment)
            closing = indexes.closing_time(sealed().get(segment.base_offset))
            lost = indexes.lost_end(following) if closing is None or indexes.points_beyond() else None
            yield Closed(None, 0, lost) if closing is None else Closed(*closing, lost)


def _small_times(logs: Sequence[bytes]) -> list[tuple[int, int] | None]:
    """The greatest timestamp and last offset of each log; None of an empty or damaged one."""
    filled = [number for number, data in enumerate(logs) if data]
    found: list[tuple[int, int] | None] = [None] * len(logs)
    if not filled:
        return found
    ends = np.cumsum([len(logs[number]) for number in filled])
    data = b"".join(logs)
    try:
        batches = Batches(scan_batches(data), memoryview(data), 0)
        whole = len(batches.records()) == len(data)
        whole = whole and bool(np.isin(ends[:-1], batches.column("position")).all())
    except CorruptRecordError:
        whole = False
    if not whole:  # one of them is damaged: which, each says for itself
        return [_small_times([one])[0] for one in logs] if len(filled) > 1 else found
    stops = np.searchsorted(batches.column("position"), ends)
    firsts = np.concatenate([[0], stops[:-1]])
    greatest = np.maximum.reduceat(batches.column("maxTimestamp"), firsts).tolist()
    sound = np.logical_and.reduceat(batches.column("crcOk"), firsts).tolist()
    lasts = batches.column("lastOffset")[stops - 1].tolist()
    for k, number in enumerate(filled):
        found[number] = (greatest[k], lasts[k]) if sound[k] else None
    return found


def sealed_indexes(directory: str, topic: str, partition: int) -> dict[int, Sealed]:
    """What ``kts.Log`` noted in the log directory about the indexes of a partition, by base offset."""
    above = os.path.dirname(os.path.abspath(directory))
    with suppress(LogStorageError):
        identity = files.identity(os.path.join(above, FILE))
        if identity is not None:
            return _checksums(above, identity).of(topic, partition)
    return {}


@lru_cache(maxsize=2)
def _checksums(directory: str, identity: tuple[int, ...]) -> IndexChecksums:
    """The file as it is; it is put in place as a whole, so that another one has another identity."""
    return IndexChecksums(directory)
