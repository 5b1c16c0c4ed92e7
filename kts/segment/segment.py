"""One segment on disk, read-only: its files, its bytes in slices of whole batches, and lookups in its indexes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts._timeindex import OffsetIndex, TimeIndex
from kts.arguments import INT64_MAX, INT64_MIN
from kts.codec.columns import decode, iter_decode, valid_bytes
from kts.codec.layout import HEADER_BYTES, SMALLEST_ENTRY_BYTES, Entries, Entry, read_header
from kts.errors import CorruptIndexError, CorruptRecordError
from kts.model import NO_TIMESTAMP
from kts.segment.confirmation import SoundEntry, backwards, confirmed_place, confirmed_time
from kts.segment.entries import FIRST_READ_BYTES, SLICE_BYTES, Batches, Slices, at
from kts.segment.index_checksums import Sealed
from kts.segment.names import REMOTE, parse_file_name, partition_of_file
from kts.segment.rereading import warn
from kts.store.expanded import without_compression
from kts.store.local import File
from kts.store.protocol import Readable, ReadAhead, cut_at
from kts.store.source import Source, files
from kts.times import show_time

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

SMALL_BYTES = 2**14  # reading a whole log of this size is as fast as reading the ends of its files
GROUP = 256  # most small logs to read together
EVERYTHING = INT64_MAX
GLANCE_BYTES = 2**20  # most bytes to read at the end of a log for a repr
POOLED_BYTES = 2**18  # parts of a log from this size on are read into pooled memory


class Span(NamedTuple):
    """The part of a segment that readers see, where another segment has the rest of its offsets.

    Attributes
    ----------
    start : int
        Where it begins, at the start of a batch.
    end : int, optional
        Where it ends; None is the end of the log.
    since, until : int, optional
        Records below ``since``, or from ``until`` on, are left out.
    """

    start: int = 0
    end: int | None = None
    since: int | None = None
    until: int | None = None

    @property
    def is_bounded(self) -> bool:
        """True if it has bounds for offsets."""
        return self.since is not None or self.until is not None

    def own(self, firsts: npt.NDArray[np.int64], lasts: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which batches, by their first and last offsets, have offsets within the bounds."""
        since = 0 if self.since is None else self.since
        return (lasts >= since) & (firsts < (INT64_MAX if self.until is None else self.until))


@dataclass(frozen=True, repr=False)
class Segment:
    """Read-only view of one segment without a cache: every call sees the current files.

    Parameters
    ----------
    path : str
        The ``.log`` file.
    topic, partition
        The partition that it belongs to.
    base_offset : int
        From the file's name, or from the first batch.
    indexed : bool
        False if the file's name is not Kafka's, so that index files beside it may belong to another log.
    sound_part : bool
        A damaged ``.log.gz`` or ``.log.zst`` ends at its damage, instead of raising an error.
    known_max_ms : int, optional
        No timestamp of the segment is greater, by what a broker noted when it copied the segment to tiered storage.
    claimed_max_ms : int, optional
        The same, by a note that counts only where the time index agrees.
    known_next_offset : int, optional
        The offset after its last one. A segment with it is closed, also if no other follows.
    span : Span
        The part that counts, where segments overlap: see ``overlaps``.
    shared : bool
        Other segments have some of its offsets, or some between them.
    source : Source
        Where its files lie.
    """

    path: str
    topic: str
    partition: int
    base_offset: int
    indexed: bool = True
    sound_part: bool = False
    known_max_ms: int | None = field(default=None, compare=False)
    claimed_max_ms: int | None = field(default=None, compare=False)
    known_next_offset: int | None = field(default=None, compare=False)
    span: Span = Span()
    shared: bool = field(default=False, compare=False)
    source: Source = field(default=files, compare=False)

    def __repr__(self) -> str:
        said = described(lambda: [f"size_bytes={self.size_bytes}", *ends_shown([self], "next_offset")])
        return f"Segment({self.path!r}, base_offset={self.base_offset}, {said})"

    @property
    def remote(self) -> bool:
        """True if it is read from tiered storage."""
        return self.path.startswith(REMOTE)

    @property
    def is_part(self) -> bool:
        """True for a part of a file; False for a whole one that readers leave where the next one begins."""
        return self.span.start > 0 or self.span.end is not None

    @property
    def size_bytes(self) -> int:
        """Length of the ``.log`` file now; of a part, where it ends."""
        size = self.source.size_of(self.path, sound_part=self.sound_part)
        return size if self.span.end is None else min(self.span.end, size)

    def open(self, ahead: tuple[int, int | None] | None = None) -> Readable:
        """The ``.log`` file; for ``ahead`` see ``Source.open_file``."""
        return cut_at(self.span.end, self.source.open_file(self.path, ahead=ahead, sound_part=self.sound_part))

    @property
    def modified_ms(self) -> int:
        """Modification time of the ``.log`` file, ms since the epoch."""
        return self.source.modified_ms(self.path)

    @property
    def time_index_path(self) -> str | None:
        """The ``.timeindex`` file, or None if there is none."""
        return self._beside(".timeindex")

    @property
    def offset_index_path(self) -> str | None:
        """The ``.index`` file, or None if there is none."""
        return self._beside(".index")

    @property
    def txn_index_path(self) -> str | None:
        """The ``.txnindex`` file, or None if there is none."""
        return self._beside(".txnindex")

    def _beside(self, suffix: str) -> str | None:
        path = self.path_beside(suffix)
        return path if path is not None and self.source.exists(path) else None

    def path_beside(self, suffix: str) -> str | None:
        """The path of a file beside the log; None if files there may belong to another one."""
        stem, dot, transition = without_compression(self.path).rpartition(".log")
        return f"{stem}{suffix}{transition}" if dot and self.indexed else None

    def time_index(self) -> TimeIndex:
        """The time index; an empty one if the file is missing or damaged."""
        index = TimeIndex(self._index_bytes(".timeindex", 12), self.base_offset)
        return index if _sound(index) else TimeIndex(b"", self.base_offset)

    def offset_index(self) -> OffsetIndex:
        """The offset index; an empty one if the file is missing or damaged."""
        index = OffsetIndex(self._index_bytes(".index", 8), self.base_offset)
        return index if _sound(index) else OffsetIndex(b"", self.base_offset)

    def index_entries(self) -> tuple[int, int]:
        """How many entries the files of the time index and the offset index hold, whoever may use them."""
        times = TimeIndex(self._index_bytes(".timeindex", 12), self.base_offset)
        return len(times), len(OffsetIndex(self._index_bytes(".index", 8), self.base_offset))

    def closed_time_index(self) -> TimeIndex:
        """The time index of a closed segment; an empty one if the log does not confirm its end."""
        known = Lookups(self).closing_time()
        return self.time_index() if known is not None else TimeIndex(b"", self.base_offset)

    def _index_bytes(self, suffix: str, entry_bytes: int) -> bytes:
        # Even an open index has only whole entries: any other length is damage.
        path = self.path_beside(suffix)
        try:
            return b"" if path is None else self.source.read_index(path, entry_bytes)
        except CorruptIndexError as error:
            warn(f"{path}: the index is not used, the log is read instead: {error.message}", path)
            return b""

    def start_position(self, offset: int) -> int:
        """Where to start reading for an offset: the last confirmed border with only lower offsets before it."""
        return Lookups(self).place(offset)

    def slices(
        self,
        start_position: int = 0,
        end_position: int | None = None,
        slice_bytes: int = SLICE_BYTES,
        first_bytes: int | None = None,
        file: Readable | None = None,
    ) -> Iterator[tuple[int, memoryview]]:
        """Slices of whole batches, as (position, bytes), each in its own memory.

        Parameters
        ----------
        start_position : int
            A batch start.
        end_position : int, optional
            Where to stop; None is the end of the file when the first slice is read.
        slice_bytes : int
            Approximate size of a slice; a larger batch gets a larger slice.
        first_bytes : int, optional
            Size of the first slice, for a reader that may stop early; each slice is twice as large as the last.
        file : File, optional
            The log, if it is open.

        Notes
        -----
        An incomplete last batch is left out. Bytes that are not a batch are yielded to the end of the slice, so that a
        decoder can report the fault.
        """
        ahead = None if first_bytes is not None else (start_position, end_position)
        with self.open(ahead) if file is None else nullcontext(file) as file:
            size = file.size()
            end = size if end_position is None else min(end_position, size)
            is_local = isinstance(file, File)  # to ask for a protocol takes as long as a small read
            at_hand = file.at_hand if not is_local and isinstance(file, ReadAhead) else None
            usual = slice_bytes if first_bytes is None else first_bytes
            position, want, needed = max(start_position, self.span.start), usual, 0
            while position < end:
                asked = min(want, end - position)
                data = None if at_hand is None or needed else at_hand(position, asked)
                if not data:
                    try:
                        data = _read(file, position, asked)
                    except CorruptRecordError as error:  # tiered storage that cannot be read: first what lies before
                        asked = (error.position or 0) - position
                        if asked <= 0 or asked < needed:
                            raise
                        data = memoryview(file.read(position, asked))
                    if len(data) < asked:
                        end = position + len(data)  # a broker cut the file meanwhile
                if not data:
                    return
                whole, needed = whole_entries(data)
                if whole == 0:
                    if needed <= len(data):
                        yield position, data
                        return
                    if position + needed > end:
                        return
                    want = needed
                    continue
                want = usual = min(slice_bytes, 2 * usual)
                needed = 0
                yield position, data[:whole]
                position += whole

    def batches(
        self,
        start: int = 0,
        end: int | None = None,
        first_bytes: int | None = None,
        file: Readable | None = None,
        slice_bytes: int = SLICE_BYTES,
    ) -> Iterator[Batches]:
        """The headers of the batches between two positions, slice by slice; see ``slices``.

        Raises
        ------
        CorruptRecordError
            Raised after the batches before the damage; ``.path`` and ``.position`` are set.
        """
        ahead = None if first_bytes is not None else (start, end)
        with self.open(ahead) if file is None else nullcontext(file) as file:
            size = file.size()
            end = size if end is None else min(end, size)
            slices = Slices(file, max(start, self.span.start), end, first_bytes, slice_bytes)
            yield from slices
        if slices.error is not None:
            raise at(slices.error, self.path)

    def tail_position(self) -> int:
        """The last border in the offset index that the log confirms; 0 if there is none."""
        return Lookups(self).place(EVERYTHING)


# --- for people -----------------------------------------------------------------------------------


class Ends(NamedTuple):
    """The first entry of a segment, the bytes of its last one, and the offset after it; None for what is not there or
    takes long to find."""

    first: Entry | None
    last: bytes | None
    next_offset: int | None


def ends_of(segment: Segment) -> Ends:
    """Look at both ends of a segment: a header, the offset index, and the entries after its last one."""
    lookups = Lookups(segment)
    first = read_header(lookups.file.read(segment.span.start, HEADER_BYTES))
    place = lookups.place(EVERYTHING)
    if first is None or lookups.size - place > GLANCE_BYTES:
        return Ends(first, None, None if first else segment.base_offset)
    data = lookups.file.read(place, lookups.size - place)
    entries = Entries(data, until_damage=True)
    if not len(entries):
        return Ends(first, None, None)
    last = entries[len(entries) - 1]
    return Ends(first, bytes(data[last.position : last.end]), last.last_offset + 1)


def ends_shown(segments: Sequence[Segment], name: str, start_offset: int = 0) -> list[str]:
    """The end offset of some segments, and the times of their first and last record, for a repr."""
    first, end = ends_of(segments[0]).first, ends_of(segments[-1])
    found = [] if end.next_offset is None else [f"{name}={max(end.next_offset, start_offset)}"]
    if first is None:
        return found
    glance = first.size <= GLANCE_BYTES
    found.append(f"first_time={show_time(first_time(segments, start_offset)) if glance else '...'}")
    times = None if end.last is None else decode(end.last, ["timestamp"], verify_crc=False)
    last = "..." if times is None or not times.num_rows else show_time(int(int64(times, "timestamp")[-1]))
    return [*found, f"last_time={last}"]


def first_time(segments: Iterable[Segment], start_offset: int = INT64_MIN, file: Readable | None = None) -> int | None:
    """The timestamp of the first record from an offset on; None if it has none, or there is no record.

    Notes
    -----
    The record itself says it. The header of a wrapper has the time of its latest message, that of a batch under
    LogAppendTime has two times, and the cleaner writes another one there.
    """
    for segment in segments:
        start = segment.start_position(start_offset)
        for position, data in segment.slices(start, first_bytes=FIRST_READ_BYTES, file=file):
            try:
                for records in iter_decode(data, ["offset", "timestamp"], slice_bytes=1, verify_crc=False):
                    after = np.flatnonzero(int64(records, "offset") >= start_offset)
                    if len(after):
                        time = int(int64(records, "timestamp")[after[0]])
                        return None if time == NO_TIMESTAMP else time
            except CorruptRecordError as error:
                raise at(error, segment.path, position) from error.__cause__
    return None


def described(facts: Callable[[], list[str]]) -> str:
    """Facts for a repr, which never raises: what cannot be read is named by the error."""
    try:
        return ", ".join(facts())
    except Exception as error:
        return f"unreadable: {type(error).__name__}"


def segment_of_file(path: str, source: Source = files) -> Segment:
    """A lone segment file with any name; topic and partition are guessed from its path."""
    topic, partition = partition_of_file(path)
    name = parse_file_name(without_compression(os.path.basename(path)))
    if name is not None and name.suffix == ".log":
        return Segment(path, topic, partition, name.base_offset, source=source)
    return Segment(path, topic, partition, _first_offset(path, source), indexed=False, source=source)


def _first_offset(path: str, source: Source) -> int:
    lone = Segment(path, "", 0, 0, indexed=False, sound_part=True, source=source)
    for _, data in lone.slices(slice_bytes=2**16):
        try:
            entry = read_header(data)
        except CorruptRecordError:
            return 0
        if entry is None:
            return 0
        if entry.magic == 2 or not entry.codec:
            return max(entry.base_offset, 0)
        try:
            offsets = decode(data[: entry.size], ["offset", "headers"])
        except CorruptRecordError:
            return 0
        return int(offsets.column(0)[0].as_py()) if offsets.num_rows else 0
    return 0


def _sound(index: TimeIndex | OffsetIndex) -> bool:
    return all(line.startswith("preallocated") for line in index.check())


# --- entries and columns --------------------------------------------------------------------------


def whole_entries(data: bytes | memoryview) -> tuple[int, int]:
    """Length of the whole entries at the start, and the bytes that the next one needs.

    The second number is 0 if the bytes cannot be an entry, so that more bytes would not help.
    """
    try:
        position = valid_bytes(data)
        entry = read_header(data, position)
    except CorruptRecordError as error:
        return error.position or 0, 0
    if entry is not None:
        return position, entry.size
    return position, SMALLEST_ENTRY_BYTES if len(data) - position < SMALLEST_ENTRY_BYTES else HEADER_BYTES


def _read(file: Readable, position: int, count: int) -> memoryview:
    """As ``read``; large parts of a local file in memory of Arrow's pool, which several threads fill and drop at less
    cost than that of the C library: it keeps the pages."""
    if count < POOLED_BYTES or not isinstance(file, File):
        return memoryview(file.read(position, count))
    import pyarrow as pa

    memory = memoryview(pa.allocate_buffer(count)).cast("B")
    return memory[: file.read_into(memory, position)]


def int64(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
    """A column as int64 numbers, times as ms; null is -1."""
    import pyarrow as pa

    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    if column.null_count:
        column = column.fill_null(-1)
    if not pa.types.is_int64(column.type):
        kind = np.dtype(f"i{column.type.bit_width // 8}")
        return np.frombuffer(column.buffers()[1] or b"", kind, len(column), kind.itemsize * column.offset).astype(
            np.int64
        )
    # pyarrow's to_numpy() imports pandas if it is installed.
    return np.frombuffer(column.buffers()[1] or b"", np.int64, len(column), 8 * column.offset)


def bools(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.bool_]:
    """A column of bools without nulls."""
    column = batch.column(name)
    bits = np.frombuffer(column.buffers()[1] or b"", np.uint8)
    stop = column.offset + len(column)
    return np.unpackbits(bits, count=stop, bitorder="little")[column.offset :].view(np.bool_)


def rebase(batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
    """The same rows with ``start`` added to the column ``position``, if there is one."""
    index = batch.schema.get_field_index("position")
    if start == 0 or index < 0 or batch.num_rows == 0:
        return batch
    import pyarrow.compute as pc

    return batch.set_column(index, "position", pc.add(batch.column(index), start))


# --- the indexes of one segment -------------------------------------------------------------------


class Lookups:
    """The indexes of one segment, each read once, on first use.

    Parameters
    ----------
    segment : Segment
        The segment; a missing or damaged index counts as empty.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment

    @cached_property
    def file(self) -> Readable:
        """The log; it caches the last bytes read, so that the next lookup need not read them again."""
        segment = self.segment
        return cut_at(segment.span.end, segment.source.open_reread(segment.path, sound_part=segment.sound_part))

    @cached_property
    def size(self) -> int:
        """Length of the log at first use."""
        return self.file.size()

    @cached_property
    def places(self) -> OffsetIndex:
        """The offset index, with unconfirmed entries."""
        return self.segment.offset_index()

    @cached_property
    def times(self) -> TimeIndex:
        """The time index, with unconfirmed entries."""
        return self.segment.time_index()

    def confirmed(self, number: int) -> SoundEntry | None:
        """The place that an offset-index entry points to; None unless the log confirms it."""
        before = self.places.entry(number - 1)[1] if number else 0
        try:
            found = confirmed_place(self.file, self.size, *self.places.entry(number), before)
        except CorruptRecordError:  # that part of the log cannot be read: its reader tells it
            return None
        return None if found is None or found.first_offset < self.segment.base_offset else found

    def place(self, offset: int) -> int:
        """The last confirmed border with only lower offsets before it; where the segment begins if there is none."""
        if offset <= self.segment.base_offset:
            return self.segment.span.start
        for candidate in backwards(self.places.slot(offset)):
            if (found := self.confirmed(candidate)) is not None:
                return found.position
        return self.segment.span.start

    def end(self, offset: int) -> int:
        """An early confirmed border with no lower offsets after it; the log's end if there is none."""
        number = self.places.slot(offset - 1) + 1
        # The first of these batches may also hold lower offsets. The next cannot, whichever offset brokers indexed.
        for candidate in range(number, min(number + 3, len(self.places))):
            found = self.confirmed(candidate)
            if found is not None and found.first_offset >= offset:
                return found.position
        return self.size

    def cuts(self, targets: npt.NDArray[np.int64], start: int, end: int) -> list[int]:
        """Confirmed borders between two positions: the first in the index at or after each target."""
        positions = self.places.entries()[1]
        found = []
        for number in np.unique(np.searchsorted(positions, targets)).tolist():
            if number < len(positions) and start < positions[number] < end and self.confirmed(number) is not None:
                found.append(int(positions[number]))
        return found

    def time(self, number: int, to_end: bool = False) -> int | None:
        """Where to start reading for the timestamp of a time-index entry; None unless the log confirms the entry.

        ``to_end``: also confirm that nothing up to the end of the log is later.
        """
        (time, offset), before = self.times.entry(number), self.times.entry(number - 1)[1] if number else 0
        start = self.place(before) if number else 0
        distance = self.size // max(len(self.places), 1)  # between index entries
        first = min(max((3 if to_end else 2) * distance, FIRST_READ_BYTES), SLICE_BYTES, self.size - start)
        tail = None
        if to_end and self.size - start > first:  # check the tail from its own index entry
            to_end, tail = False, self.place(EVERYTHING)
        reached = confirmed_time(self.file, self.size, time, offset, start, first_bytes=first, to_end=to_end)
        if tail is not None and reached is not None:
            for batches in Slices(self.file, max(tail, reached), self.size, first):
                if ((batches.column("max_timestamp") > time) & (batches.column("count") != 0)).any():
                    return None
        return reached

    def time_at(self, timestamp_ms: int) -> tuple[tuple[int, int] | None, int]:
        """The latest confirmed entry at or before a time, and a border with only earlier times before it."""
        for candidate in backwards(self.times.slot(timestamp_ms)):
            if (start := self.time(candidate)) is not None:
                return self.times.entry(candidate), start
        return None, 0

    def last_time(self, to_end: bool = False) -> tuple[int, int] | None:
        """The timestamp of the last entry, and where to start reading for it; None unless the log confirms the entry.

        ``to_end``: also confirm that nothing up to the end of the log is later.
        """
        last = len(self.times) - 1
        start = None if last < 0 else self.time(last, to_end)
        return None if start is None else (self.times.entry(last)[0], start)

    def closing_time(self, sealed: Sealed | None = None) -> tuple[int, int] | None:
        """The greatest timestamp of a closed segment and where to start reading for it; None if the index cannot tell.

        Parameters
        ----------
        sealed : Sealed, optional
            The record that ``kts.Log`` wrote when it closed the indexes.

        Notes
        -----
        A time index that ends as ``kts.Log`` recorded is trusted; one that does not is ignored. Without a record, the
        log must confirm the last entry, and that nothing after the last confirmed offset-index entry is later. Missing
        earlier entries are not detected.
        """
        count = len(self.times)
        if not count or sealed is None or sealed.log_bytes != self.size:
            return self.last_time(to_end=True)
        last = self.times.entry(count - 1)
        return None if sealed.end_differs(12 * count, last) else (last[0], self.place(last[1]))

    def points_beyond(self) -> bool:
        """True if the offset index has an entry past the log's end."""
        count = len(self.places)
        return count > 0 and self.places.entry(count - 1)[1] >= self.size

    def lost_end(self, following: int) -> CorruptRecordError | None:
        """The error for a closed segment that lost its end: its indexes have entries past it. None if it is complete.

        Notes
        -----
        The cleaner leaves gaps, and a damaged index may hold any number. So both fields of an entry must be past the
        log's end: its offset and its position, or its offset and its time.
        """
        last = self.segment.base_offset - 1
        tail = Slices(self.file, self.place(EVERYTHING), self.size, FIRST_READ_BYTES)
        for batches in tail:
            last = max(last, int(batches.column("last_offset").max()))
        if last + 1 >= following:
            return None
        if tail.reason is not None or (self.segment.remote and tail.position < self.size):
            if not self.segment.remote:  # a reader of the log reports such damage
                return None
            message = tail.reason or f"{self.size - tail.position} bytes that are no whole entry"
            if last >= self.segment.base_offset:
                message = f"expected offsets up to {following - 1} in this copy, found {last}, and then {message}"
            return CorruptRecordError(message, path=self.segment.path, position=tail.position)
        (places, positions), (times, offsets) = self.places.entries(), self.times.entries()
        beyond = (places > last) & (places < following) & (positions >= self.size)
        later = (offsets > last) & (offsets < following)
        for batches in Slices(self.file, self.segment.span.start, self.size if later.any() else 0):
            later &= times > int(batches.column("max_timestamp").max())
        known = max(places[beyond].max(initial=last), offsets[later].max(initial=last))
        if known == last or not (self.segment.remote or self._has_ended(following)):
            return None
        index = self.segment.offset_index_path if beyond.any() else self.segment.time_index_path
        found = f"an end of {self.size} bytes" + (f" with offset {last}" if last >= self.segment.base_offset else "")
        message = (
            f"expected entries up to offset {known} at least, which {os.path.basename(index or '')} knows, before the"
            f" next segment with base offset {following}; found {found}: the end of the segment is missing"
        )
        return CorruptRecordError(message, path=self.segment.path, position=self.size)

    def _has_ended(self, base_offset: int) -> bool:
        """False if a writer truncated the log meanwhile: it deletes the later segments first.

        If it appended so much again that there is such a segment, this one has grown.
        """
        folder = os.path.dirname(self.segment.path) or "."
        if self.segment.size_bytes > self.size:
            return False
        names = (
            parse_file_name(without_compression(entry.name)) for entry in self.segment.source.list_directory(folder)
        )
        return any(name is not None and name.base_offset == base_offset for name in names)


# --- many segments --------------------------------------------------------------------------------


class Closed(NamedTuple):
    """The known facts of a closed segment."""

    greatest_timestamp_ms: int | None  # None: its batches must be read
    start: int  # where to start reading for it
    lost: CorruptRecordError | None = None  # its end is missing


Sealing = Callable[[], dict[int, Sealed]]


def closed_times(segments: Sequence[Segment], sealed: Sealing) -> Iterator[Closed]:
    """The greatest timestamps of all but the last segment; the first groups are small, so the first need few reads."""
    sealed = cache(sealed)
    done, count = 0, 1
    while done < len(segments) - 1:
        stop = min(done + count, len(segments) - 1)
        yield from _group(
            segments[done:stop], [segment.base_offset for segment in segments[done + 1 : stop + 1]], sealed
        )
        done, count = stop, min(2 * count, GROUP)


def _group(group: Sequence[Segment], followings: Sequence[int], sealed: Sealing) -> Iterator[Closed]:
    apart = [segment.remote or segment.is_part for segment in group]
    whole = [one for one, is_apart in zip(group, apart, strict=True) if not is_apart]
    local = iter(whole[0].source.read_small([one.path for one in whole], SMALL_BYTES) if whole else [])
    logs = [None if is_apart else next(local) for is_apart in apart]
    small = _small_times([data or b"" for data in logs])

    def closed(number: int) -> Closed:
        segment, following, data, known = group[number], followings[number], logs[number], small[number]
        if segment.known_max_ms is not None:
            return Closed(segment.known_max_ms, 0)
        claimed = segment.claimed_max_ms
        if claimed is not None and (times := segment.time_index()) and times.entry(len(times) - 1)[0] == claimed:
            return Closed(claimed, 0)
        if known is not None:
            greatest, last = known
            return Closed(greatest, 0, None if last + 1 == following else Lookups(segment).lost_end(following))
        if data == b"":
            return Closed(None, 0, Lookups(segment).lost_end(following))
        indexes = Lookups(segment)
        closing = indexes.closing_time(sealed().get(segment.base_offset))
        lost = indexes.lost_end(following) if closing is None or indexes.points_beyond() else None
        return Closed(None, 0, lost) if closing is None else Closed(*closing, lost)

    yield from group[0].source.side_by_side(closed, range(len(group)))


def _small_times(logs: Sequence[bytes]) -> list[tuple[int, int] | None]:
    """The greatest timestamp and last offset of each log; None for an empty or damaged log."""
    filled = [number for number, data in enumerate(logs) if data]
    found: list[tuple[int, int] | None] = [None] * len(logs)
    if not filled:
        return found
    ends = np.cumsum([len(logs[number]) for number in filled])
    data = b"".join(logs)
    entries = Entries(data, verify_crc=True, until_damage=True)
    positions = entries.column("position")
    if entries.end < len(data) or not np.isin(ends[:-1], positions).all():  # one is damaged: check each alone
        return [_small_times([one])[0] for one in logs] if len(filled) > 1 else found
    stops = np.searchsorted(positions, ends)
    firsts = np.concatenate([[0], stops[:-1]])
    greatest = np.maximum.reduceat(entries.column("max_timestamp"), firsts).tolist()
    sound = np.logical_and.reduceat(entries.column("crc_ok"), firsts).tolist()
    lasts = entries.column("last_offset")[stops - 1].tolist()
    for k, number in enumerate(filled):
        found[number] = (greatest[k], lasts[k]) if sound[k] else None
    return found
