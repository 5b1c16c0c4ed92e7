"""Read a segment range: the requested rows and columns as Arrow batches."""

from __future__ import annotations

import errno
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts._codec import rises
from kts.arguments import INT64_MIN
from kts.codec.columns import ALL_COLUMNS, decode
from kts.dataset.ahead import Ahead, Slice
from kts.dataset.blocks import Lateness
from kts.dataset.decoders import DECODED_COLUMNS, DECODERS, decode_records
from kts.dataset.options import ScanOptions, TimeRange
from kts.dataset.plan import SegmentRange, is_as_planned, lost_end, planned_again
from kts.errors import CorruptIndexError, CorruptRecordError, DamageWarning, LogStorageError
from kts.segment import transactions
from kts.segment.damage import (
    AFTER_DAMAGE_BYTES,
    CLOSED_WITHIN,
    WRONG_SIZE,
    SearchBudget,
    check_rest,
    next_sound_entry,
    past_end,
    tell_incomplete,
)
from kts.segment.entries import Batches, at
from kts.segment.index import SEGMENT_OFFSETS
from kts.segment.overlaps import tell_rest
from kts.segment.partition import ReadablePartition
from kts.segment.rereading import ATTEMPTS, Reread, settled, warn
from kts.segment.segment import Span, int64, rebase
from kts.store.local import File
from kts.store.protocol import Readable

FIRST_BYTES = 2**18  # of a scan: it shows how much slices grow
MOST_WAITING = 64  # small batches that wait to be joined
HEAVY = ("key", "value", "headers", "createTimestamp")  # columns that cost more than the rest of a record
EVERY_TIME, DEFAULTS = TimeRange(), ScanOptions()

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Mask = npt.NDArray[np.bool_]


def read_range(
    part: SegmentRange,
    *,
    within: TimeRange = EVERY_TIME,
    file: Readable | None = None,
    log: ReadablePartition | None = None,
    options: ScanOptions = DEFAULTS,
    **changed: Any,
) -> Iterator[pa.RecordBatch]:
    """The records of a segment range as non-empty Arrow batches of about ``batch_bytes``.

    Parameters
    ----------
    within : TimeRange
        Only the records of these times.
    file : Readable, optional
        The segment's log, if it is open.
    log : ReadablePartition, optional
        The partition, to read on in what takes the segment's place if a cleaner replaces it.
    options : ScanOptions
        How they are read; by itself as ``kts.scan`` reads without options.
    changed
        Options that differ from these, by name.

    Raises
    ------
    CorruptRecordError
        Damage; raised after the rows before it, with ``.path`` and ``.position`` in the file.
    """
    options = replace(options, **changed)
    reader = RangeReader(part, options, within, file, log=log)

    def rows() -> Iterator[pa.RecordBatch]:
        yield from reader.current()
        reader.lateness.tell()

    return fitted(rows(), options.batch_bytes)


@dataclass
class Pace:
    """How much is read at a time, for batches of about the requested size: compressed data grows.

    The ranges of a scan share one, so that it is found once.
    """

    read_bytes: int = 0  # before anything was decoded

    def fit(self, data_bytes: int, rows_bytes: int, batch_bytes: int) -> None:
        """Change it if so many bytes gave rows of another size."""
        fitting = min(batch_bytes, max(2**16, data_bytes * batch_bytes // max(rows_bytes, 1)))
        now = self.read_bytes or batch_bytes
        self.read_bytes = now if now // 2 <= fitting <= now * 2 else fitting


class DecodedSlice(NamedTuple):
    """The rows of a slice, their size (0 if none of them is wanted), and their offsets, which no CRC covers: whether
    each is greater than the one before."""

    rows: pa.RecordBatch
    size_bytes: int
    offsets: npt.NDArray[np.int64]
    rise: bool


class Skip(NamedTuple):
    """What ``on_error="skip"`` left out: bytes, a record that its decoder refused, or the lost end of a segment."""

    position: int | None
    size_bytes: int | None
    offset: int | None
    reason: str


@dataclass(eq=False)
class RangeReader:
    """The state of reading one segment range; see ``read_range``."""

    part: SegmentRange
    options: ScanOptions
    within: TimeRange = EVERY_TIME
    file: Readable | None = None
    pace: Pace = field(default_factory=Pace)
    ahead: Ahead[RangeReader] | None = None
    lateness: Lateness = field(default_factory=Lateness)
    log: ReadablePartition | None = None  # to plan again, if a cleaner replaces the segment

    def __post_init__(self) -> None:
        wanted = {name for name in self.options.names if name in ALL_COLUMNS} | {"offset"}
        if self.is_timed:
            wanted.add("timestamp")
        if self.looks_at_lateness:
            wanted |= {"position", "control", "magic", "codec"}
        if not self.options.include_control:
            wanted.add("control")
        if self.options.decoder is not None:
            wanted |= {"key", "value", "control", "position"}
        if self.options.committed:
            wanted |= {"producerId", "transactional", "control", "position"}
        self.needed = [name for name in ALL_COLUMNS if name in wanted]
        self.light = [name for name in self.needed if name not in HEAVY]
        self.seldom = False
        self.schema = self.options.schema
        self.constants: dict[str, pa.Array] = {}
        self.warned = self.told = False
        self.left_out = False
        self.skips = list[Skip]()
        self.budget = SearchBudget()
        self.open_producers: set[int] = set()
        self.markers: transactions.Markers | None = None
        held = self.file if isinstance(self.file, File) else None
        self.reread = Reread(self.part.path, held, self.part.source)
        self.unread: CorruptRecordError | None = None
        self.reached = self.part.base_offset
        self.given = max(self.part.low, self.part.base_offset)  # all wanted records below it were given
        self.is_sure = False  # that the segment is as it was planned
        self.segment = self.part.segment

    def current(self) -> Iterator[pa.RecordBatch]:
        """As ``batches``; if a cleaner replaces the segment, the rest from what takes its place."""
        waiting, again, reached = [self], 0, -1
        while waiting:
            reader = waiting.pop(0)
            try:
                yield from reader.batches()
            except LogStorageError as error:
                if self.log is None or error.errno != errno.ENOENT or not reader.lacks(error.path) or again == ATTEMPTS:
                    raise
                again, reached = again + 1 if reader.given == reached else 1, reader.given
                how = {"isolation": self.options.isolation, "on_error": self.options.on_error}
                parts = settled(partial(planned_again, self.log, self.part, reader.given, **how))
                if parts is None:
                    raise LogStorageError(error.message, path=self.part.path, errno=errno.ENOENT) from error
                waiting = [replace(self, part=part, file=None) for part in parts]
                for one in waiting:
                    one.given = max(one.given, reader.given)

    def lacks(self, path: str | None) -> bool:
        """True if an error about a missing file is one of the segment's own, or of one that is still missing."""
        return path is None or path == self.part.path or not self.part.source.exists(path)

    def look_again(self) -> None:
        """Raise LogStorageError, as if the file was missing, if what is odd in it shows that a cleaner replaced it."""
        if self.log is None or self.part.low < 0 or self.is_sure:
            return
        if not settled(partial(is_as_planned, self.log, self.part)):
            raise LogStorageError("the segment was replaced", path=self.part.path, errno=errno.ENOENT)
        self.is_sure = True

    def look_at_offsets(self, found: DecodedSlice, is_first: bool) -> None:
        """Look again if a slice has offsets of another range, or begins behind the first one of this range."""
        if not len(found.offsets) or self.part.low < 0:
            return
        begins_behind = is_first and self.part.start_position > 0 and found.offsets[0] > self.part.low
        if begins_behind or (self.part.high < self.part.end_offset and found.offsets.max() >= self.part.high):
            self.look_again()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The wanted rows and columns, slice by slice."""
        position, end, first_bytes = self.whole()
        expected = self.part.base_offset
        while position < end:
            progress = False
            for start, data, decoded in self.readable(self.pieces(position, end, first_bytes)):
                progress, first_bytes = True, None
                try:
                    found = decoded()
                    position = start + len(data)
                except CorruptRecordError as error:
                    # The rows before the damage come first.
                    if self.reread.differs(start, data):
                        position, expected = self.restart(expected)
                        break
                    self.look_again()
                    relative = error.position or 0
                    found = self.decode(start, data[:relative])
                    if self.is_past(found):
                        yield from self.finished(found)
                        self.look_behind(start + relative)
                        return
                    if not self.options.skip_damage:
                        yield from self.finished(found)
                        raise at(error, self.part.path, start) from error.__cause__
                    expected = self.seen(found, expected)
                    position = self.skipped(start + relative, end, error.message)
                    first_bytes = AFTER_DAMAGE_BYTES
                    yield from self.finished(found)
                    break
                if len(found.offsets) and found.offsets[0] != expected and self.reread.differs():
                    position, expected = self.restart(expected)
                    break
                self.look_at_offsets(found, start == self.part.start_position)
                self.reread.note(start, data)
                self.look_at_order(found, expected)
                self.look_at_border(found)
                if self.options.committed and not self.part.by_markers:
                    self.look_at_markers(found.rows)
                if self.looks_at_lateness:
                    self.lateness.look(found.rows, self.timely(found.rows), self.within, self.part)
                expected = self.seen(found, expected)
                if self.is_past(found):
                    yield from self.finished(found)
                    self.look_behind(position)
                    return
                if found.size_bytes:
                    self.pace.fit(len(data), found.size_bytes, self.slice_bytes)
                yield from self.finished(found)
                self.given = max(self.given, expected)
            if self.unread is not None:
                position = self.skipped(position, end, self.unread.message)
                first_bytes = AFTER_DAMAGE_BYTES
            elif not progress and self.reread.differs():
                position, expected = self.restart(expected)
            elif not progress:
                position = self.tail(position, end)
        self.look_at_end(expected)

    @property
    def is_timed(self) -> bool:
        """True if only records of some times are wanted."""
        return self.within.start_ms is not None or self.within.end_ms is not None

    @property
    def looks_at_lateness(self) -> bool:
        """True if blocks were left out for their lateness: late records show that more may lie there."""
        return self.is_timed and self.part.reached_ms >= 0

    @property
    def fetched(self) -> bool:
        """True if a store gives the bytes."""
        return self.file is not None

    @property
    def paced(self) -> bool:
        """True if a slice of the scan was decoded."""
        return self.pace.read_bytes > 0

    @property
    def slice_bytes(self) -> int:
        """The rows of a slice: too many to be joined with others, and few enough to stay in the processor's cache."""
        return max(self.options.batch_bytes * 3 // 4, 1)

    def whole(self) -> tuple[int, int, int | None]:
        """The range's start, its end, and None for a first slice of the usual size."""
        return self.part.start_position, self.part.end_position, None

    def slices(self, position: int, end: int, first_bytes: int | None) -> Generator[tuple[int, memoryview]]:
        """Slices of the segment as long as the pace says, also when it changes meanwhile."""
        if first_bytes is None and not self.paced and not self.fetched:
            first_bytes = FIRST_BYTES
        ahead = None if first_bytes is not None else (position, end)
        with self.segment.open(ahead) if self.file is None else nullcontext(self.file) as file:
            changed = True
            while changed:
                changed, size = False, self.pace.read_bytes or self.slice_bytes
                for start, data in self.segment.slices(position, end, size, first_bytes, file):
                    yield start, data
                    if self.pace.read_bytes not in (0, size):
                        position, first_bytes, changed = start + len(data), None, True
                        break

    def pieces(self, position: int, end: int, first_bytes: int | None) -> Iterator[Slice]:
        """The slices with their rows, decoded when asked for or ahead of that."""
        if self.ahead is not None:
            return self.ahead.slices(self, position, end, first_bytes)
        slices = self.slices(position, end, first_bytes)
        return (Slice(start, data, partial(self.decode, start, data)) for start, data in slices)

    def readable(self, pieces: Iterator[Slice]) -> Iterator[Slice]:
        """The slices up to bytes of tiered storage that cannot be read: these raise, or are noted to be skipped."""
        self.unread = None
        try:
            yield from pieces
        except CorruptRecordError as error:
            if not self.options.skip_damage:
                raise
            self.unread = error

    def restart(self, expected: int) -> tuple[int, int]:
        """Restart after a writer truncated the segment, for records not yet returned; new position and offset."""
        self.part = replace(self.part, start_offset=max(self.part.start_offset, expected))
        self.reached = self.part.base_offset
        self.reread.forget()
        self.reread.again += 1
        self.is_sure = False
        return self.part.start_position, self.part.base_offset

    def decode(self, start: int, data: memoryview) -> DecodedSlice:
        rows, size, verify_crc = None, 0, self.options.verify_crc
        if self.seldom and self.light != self.needed:  # first only what shows whether any record is wanted
            rows, verify_crc = self.columns_of(data, self.light, verify_crc), False
        if rows is None or self.timely(rows).any():
            rows = self.columns_of(data, self.needed, verify_crc)
            size = rows.nbytes // (2 if self.options.views else 1)  # keys and values share the viewed bytes
        offsets = int64(rows, "offset")
        return DecodedSlice(rebase(rows, start), size, offsets, rises(offsets))

    def columns_of(self, data: memoryview, names: list[str], verify_crc: bool) -> pa.RecordBatch:
        """Some columns of all records of a slice."""
        return decode(
            data,
            names,
            views=self.options.views,
            verify_crc=verify_crc,
            max_decompressed_bytes=self.options.max_decompressed_bytes,
        )

    def timely(self, rows: pa.RecordBatch) -> Mask:
        """Which rows have a time in the range."""
        times, (start, end, _) = int64(rows, "timestamp"), self.within
        since = times >= (INT64_MIN if start is None else start)
        return since if end is None else since & (times < end)

    def seen(self, found: DecodedSlice, expected: int) -> int:
        """The offset after the last row; also updates ``reached``, an offset that does not come from damage.

        No CRC covers offsets: an offset that is out of sequence is accepted once others follow it.
        """
        offsets = found.offsets
        if not len(offsets):
            return expected
        first, last = int(offsets[0]), int(offsets[-1])
        if found.rise and last - first == len(offsets) - 1:
            self.reached = last + 1 if first == expected else min(expected, first)
        else:
            falls = offsets[1:] < offsets[:-1]  # also where a sum went beyond 2^63-1
            jump = int(np.flatnonzero((np.diff(offsets) != 1) | falls)[-1])
            self.reached = max(min(int(offsets[jump]) + 1, int(offsets[jump + 1])), self.part.base_offset)
        return last + 1

    def is_past(self, found: DecodedSlice) -> bool:
        """True if these rows reach the end offset, so that reading may stop."""
        if not found.rise or not len(found.offsets) or self.ends_at_border:
            return False
        return self.part.end_offset - 1 <= int(found.offsets[-1]) < self.part.base_offset + SEGMENT_OFFSETS

    @property
    def ends_at_border(self) -> bool:
        """True if the range ends where the next segment begins, whatever the segment has behind that."""
        return self.part.closed == 1 and self.part.end_offset == self.part.following

    def look_behind(self, position: int) -> None:
        """With ``on_error="skip"``, tell damage behind the last record of a log: the range ends before it."""
        end = self.part.end_position
        if not self.options.skip_damage or self.part.closed or end != self.segment.size_bytes:
            return
        try:
            next(self.segment.batches(position, end, AFTER_DAMAGE_BYTES, self.file), None)
        except CorruptRecordError as error:
            if next_sound_entry(self.segment, position, end, self.reached, self.budget) is None:
                self.skipped(position, end, error.message)

    def look_at_border(self, found: DecodedSlice) -> None:
        """Tell once of offsets that the next segment has."""
        if self.ends_at_border and len(found.offsets) and int(found.offsets.max()) >= self.part.following:
            if not self.told:
                tell_rest(replace(self.segment, span=Span(until=self.part.following)))
            self.told = True

    def look_at_order(self, found: DecodedSlice, expected: int) -> None:
        """Warn once if offsets do not increase or are outside the segment; no CRC covers them."""
        offsets = found.offsets
        if self.warned or not len(offsets):
            return
        limit = self.part.base_offset + SEGMENT_OFFSETS
        if offsets[0] < expected or offsets[-1] >= limit or not found.rise:
            self.warned = True
            before = np.concatenate([[expected - 1], offsets[:-1]])
            i = int(np.flatnonzero((offsets <= before) | (offsets >= limit))[0])
            warn(
                f"{self.part.path}: offset {offsets[i]} follows {before[i]} in the segment with base offset"
                f" {self.part.base_offset}: offsets are not in order; `kts verify` says more",
                self.part.path,
            )

    def aborted_by_markers(self, rows: pa.RecordBatch) -> Mask:
        """Which rows belong to transactions that end with an abort marker."""
        producers, offsets = rows.column("producerId").to_numpy(), rows.column("offset").to_numpy()
        data = _bools(rows, "transactional") & ~_bools(rows, "control")
        aborted = np.zeros(len(data), bool)
        if self.markers is None:
            position = rows.column("position")[0].as_py()
            self.markers = transactions.Markers(self.segment, position, self.options.skip_damage)
        for producer in np.unique(producers[data]).tolist():
            places = np.flatnonzero(data & (producers == producer))
            kinds = self.markers.kinds(producer, offsets[places])
            aborted[places] = kinds == transactions.ABORT
            if self.segment.remote and (kinds == transactions.UNKNOWN).any():
                aborted[places] |= kinds == transactions.UNKNOWN
                first = int(offsets[places[kinds < 0]][0])
                warn(
                    f"{self.part.path}: the end of the transaction of producer {producer} with offset {first} was not"
                    " found, or is damaged: its records are left out",
                    self.part.path,
                    DamageWarning,
                )
        return aborted

    def look_at_markers(self, rows: pa.RecordBatch) -> None:
        """Raise if an abort marker ends a transaction of this range that the ``.txnindex`` does not list."""
        transactional, control = _bools(rows, "transactional"), _bools(rows, "control")
        producers, offsets = rows.column("producerId").to_numpy(), rows.column("offset").to_numpy()
        data = transactional & ~control & (offsets >= self.part.start_offset) & (offsets < self.part.end_offset)
        positions = rows.column("position").to_numpy()
        begun = 0
        for i in np.flatnonzero(transactional & control).tolist():
            self.open_producers.update(producers[begun:i][data[begun:i]].tolist())
            begun = i
            producer, offset = int(producers[i]), int(offsets[i])
            if producer not in self.open_producers:
                continue
            self.open_producers.discard(producer)
            kinds = transactions.markers_at(self.segment, int(positions[i]), producer)
            listed = any(p == producer and first <= offset <= last for p, first, last in self.part.aborted)
            if listed or all(marker.kind != transactions.ABORT for marker in kinds):
                continue
            message = (
                f"the transaction of producer {producer} that is aborted at offset {offset} is not in the .txnindex, so"
                " records of it were given; without that file the markers of the log are used"
            )
            if not self.options.skip_damage:
                raise CorruptIndexError(message, path=self.part.path, position=int(positions[i]), offset=offset)
            warn(f"{self.part.path}: {message}", self.part.path, DamageWarning)
        self.open_producers.update(producers[begun:][data[begun:]].tolist())

    def look_at_end(self, expected: int) -> None:
        """Raise or warn if a closed segment, read to its end, lacks entries that its indexes have."""
        if expected >= min(self.part.following, self.part.end_offset) or self.left_out or self.reread.again:
            return
        if self.log is not None and self.part.closed == 1 and self.segment.size_bytes > self.part.end_position:
            self.look_again()
        error = lost_end(self.part)
        if error is None:
            return
        self.look_again()
        if not self.options.skip_damage:
            raise error
        self.skips.append(Skip(error.position, None, error.offset, error.message))
        warn(str(error), error.path, DamageWarning)

    def tail(self, position: int, end: int) -> int:
        """Where to resume at an entry that extends past the end: normal after a writer died, otherwise damage."""
        size = self.segment.size_bytes
        if self.segment.remote and size < end:  # nobody truncates a copy
            what = f"expected {end} bytes in tiered storage, found {size}: the end of the copy is missing"
            if not self.options.skip_damage:
                raise CorruptRecordError(what, path=self.part.path, position=position)
            return self.skipped(position, end, what)
        # Only truncation changes a closed segment, and makes it the active one again.
        if position >= size or self.reread.again or size < end or (size > end and self.part.closed == 1):
            return self.part.end_position
        self.look_again()
        end = min(end, size)
        behind = next_sound_entry(self.segment, position, end, self.reached, self.budget)
        if behind is None and not self.part.closed:
            tell_incomplete(self.segment, position, end)
            return self.part.end_position
        what = CLOSED_WITHIN if behind is None else past_end(position, behind)
        if not self.options.skip_damage:
            raise CorruptRecordError(f"{what}{WRONG_SIZE}", path=self.part.path, position=position)
        return self.skipped(position, end, what)

    def skipped(self, position: int, end: int, why: str) -> int:
        """Where to resume after damage; warns."""
        self.left_out = True
        end = min(end, self.segment.size_bytes)
        behind = next_sound_entry(self.segment, position, end, self.reached, self.budget)
        stop = end if behind is None else behind
        self.skips.append(Skip(position, stop - position, None, why))
        message = f"{stop - position} bytes at position {position} are damaged and left out: {why}"
        warn(f"{self.part.path}: {message}", self.part.path, DamageWarning)
        return self.part.end_position if behind is None else behind

    def finished(self, found: DecodedSlice) -> Iterator[pa.RecordBatch]:
        """The requested rows and columns."""
        if not found.size_bytes and self.seldom:
            return
        rows = self.of_offsets(found)
        mask = self.mask(rows)
        if mask is not None and not mask.any():
            rows = rows.slice(0, 0)
        elif mask is not None and not mask.all():
            rows = _filter(rows, mask)
        if rows.num_rows and self.options.decoder is not None:
            yield from self.decoded_records(rows)
        elif rows.num_rows:
            yield self.shaped(rows, {})

    def of_offsets(self, found: DecodedSlice) -> pa.RecordBatch:
        """The rows within the range's offsets."""
        rows, offsets = found.rows, found.offsets
        low, high = self.part.start_offset, self.part.end_offset
        if len(offsets) == 0 or (offsets[0] >= low and offsets[-1] < high and found.rise):
            return rows
        if found.rise:
            first, stop = np.searchsorted(offsets, [low, high]).tolist()
            return rows.slice(first, stop - first)
        return _filter(rows, (offsets >= low) & (offsets < high))

    def mask(self, rows: pa.RecordBatch) -> Mask | None:

        keep: Mask | None = None

        def both(more: Mask) -> None:
            nonlocal keep
            keep = more if keep is None else keep & more

        if not self.options.include_control and rows.column("control").true_count:
            both(~_bools(rows, "control"))
        if self.is_timed:
            timely = self.timely(rows)
            self.seldom = not timely.any()
            both(timely)
        if self.options.committed and self.part.by_markers and rows.column("transactional").true_count:
            both(~self.aborted_by_markers(rows))
        elif self.options.committed and self.part.aborted and rows.column("transactional").true_count:
            producers, offsets = rows.column("producerId").to_numpy(), rows.column("offset").to_numpy()
            transactional = _bools(rows, "transactional") & ~_bools(rows, "control")
            for producer, first, last in self.part.aborted:
                if len(offsets) and first <= offsets[-1] and last >= offsets[0]:
                    hit = transactional & (producers == producer) & (offsets >= first) & (offsets <= last)
                    if hit.any():
                        both(~hit)
        return keep

    def decoded_records(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows with the decoder's columns; raises, or leaves out and warns, where a record cannot be decoded."""
        import pyarrow as pa

        decoder = str(self.options.decoder)
        names = [name for name in self.options.names if name in DECODED_COLUMNS]
        keys, values, control = rows.column("key"), rows.column("value"), _bools(rows, "control")
        decoded, refused = decode_records(decoder, names, keys, values, control)
        if not refused:
            yield self.shaped(rows, decoded)
            return
        row, reason = refused[0]
        offset, position = (rows.column(name)[row].as_py() for name in ("offset", "position"))
        message = (
            f"offset {offset} of {self.part.topic}-{self.part.partition} is not a record of {DECODERS[decoder].topic}"
        )
        sound = np.ones(rows.num_rows, bool)
        if self.options.skip_damage:
            sound[[each.row for each in refused]] = False
            for each in refused:
                place, number = (rows.column(name)[each.row].as_py() for name in ("position", "offset"))
                self.skips.append(Skip(place, None, number, each.reason))
            more = f", and {len(refused) - 1} more after it" if len(refused) > 1 else ""
            warn(f"{self.part.path}: {message} and is left out{more}: {reason}", self.part.path, DamageWarning)
        else:
            sound[row:] = False
        if sound.any():
            keep = pa.array(sound)
            yield self.shaped(_filter(rows, sound), {name: column.filter(keep) for name, column in decoded.items()})
        if not self.options.skip_damage:
            raise CorruptRecordError(f"{message}: {reason}", path=self.part.path, position=position, offset=offset)

    def shaped(self, rows: pa.RecordBatch, made: dict[str, pa.Array]) -> pa.RecordBatch:
        import pyarrow as pa

        for name in {"topic", "partition"} & {*self.options.names}:
            made[name] = self.constant(name, rows.num_rows)
        columns = [made[name] if name in made else rows.column(name) for name in self.options.names]
        if not columns:  # rows without columns still count
            return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows.num_rows, [None]))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def constant(self, name: str, count: int) -> pa.Array:
        """The topic or partition as a column, built once and sliced for each batch."""
        import pyarrow as pa

        known = self.constants.get(name)
        if known is None or len(known) < count:
            value = pa.scalar(self.part.topic) if name == "topic" else pa.scalar(self.part.partition, pa.int32())
            known = self.constants[name] = pa.repeat(value, max(2 * count, 1024))  # slices differ a little
        return known.slice(0, count)


def read_headers(
    part: SegmentRange, file: Readable | None = None, within: TimeRange = EVERY_TIME
) -> Iterator[pa.RecordBatch]:
    """The headers of the batches that overlap a segment range: topic, partition, segment and ``kts.scan_batches``.

    Parameters
    ----------
    within : TimeRange
        Only of the batches that may hold a record of these times, by their headers.

    Raises
    ------
    CorruptRecordError
        Damage, or the end of the segment is missing; raised after the batches before it.
    """
    import pyarrow as pa

    segment, rest = part.segment, False
    end, position = part.base_offset, part.start_position
    for batches in segment.batches(part.start_position, part.end_position, file=file):
        end, position = batches.last_offset + 1, batches.end
        # The header of a compressed wrapper lacks its first offset: the wrapper counts if its last offset does.
        first, last = batches.column("base_offset"), batches.column("last_offset")
        first = np.where(batches.wrappers, last, first)
        wanted = (last >= part.start_offset) & (first < part.end_offset)
        if part.closed == 1 and part.end_offset == part.following:
            rest = rest or bool((first >= part.following).any())
        if within != EVERY_TIME:
            wanted &= _may_hold(batches, within)
        found = batches.only(wanted).arrow()
        whose = {
            "topic": pa.array([part.topic] * len(found), pa.string()),
            "partition": pa.array([part.partition] * len(found), pa.int32()),
            "segment": pa.array([part.base_offset] * len(found), pa.int64()),
        }
        yield pa.RecordBatch.from_arrays([*whose.values(), *found.columns], names=[*whose, *found.schema.names])
    if rest:
        tell_rest(replace(segment, span=Span(until=part.following)))
    if position < part.end_position and part.closed < 2 and part.end_position == segment.size_bytes:
        check_rest(segment, position, part.end_position, end, part.closed == 1)
    if end < min(part.following, part.end_offset) and (lost := lost_end(part)) is not None:
        raise lost


def _may_hold(headers: Batches, within: TimeRange) -> Mask:
    """Which batches may hold a record of some times, by their headers.

    A header has the greatest time, and in magic 2 that of the first record, which later ones may precede as much as is
    allowed, unless the cleaner has put another time there. It does not show times before 1970.
    """
    names = ("max_timestamp", "base_timestamp", "magic", "codec", "timestamp_type")
    greatest, base, magic, codec, kind = (headers.column(name) for name in names)
    keep = np.ones(len(greatest), bool)
    if within.start_ms is not None and within.start_ms >= 0:
        keep &= greatest >= within.start_ms
    if within.latest_ms is not None and within.end_ms is not None:
        all_alike = (kind == 1) | ((magic < 2) & (codec == 0))
        keep &= np.where(
            all_alike, greatest < within.end_ms, (magic < 2) | (base > greatest) | (base < within.latest_ms)
        )
    return keep


def fitted(batches: Iterator[pa.RecordBatch], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join small batches and cut large ones, in order, to about ``batch_bytes``.

    Notes
    -----
    The first rows come without delay: the first batch is returned at once, and until batches reach their size each is
    no larger than all earlier ones together. Rows read before an error are returned before it.
    """
    import pyarrow as pa

    few: list[pa.RecordBatch] = []  # joined when there are many: a batch of ten rows takes the memory of thousands
    more: list[pa.RecordBatch] = []
    waiting_bytes = given_bytes = 0

    def taken() -> Iterator[pa.RecordBatch]:
        nonlocal few, more, waiting_bytes, given_bytes
        waiting, few, more = [*more, *few], [], []
        given_bytes, waiting_bytes = given_bytes + waiting_bytes, 0
        if waiting:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)

    try:
        for batch, size in _cut(batches, batch_bytes):
            if waiting_bytes + size > batch_bytes:
                yield from taken()
            few.append(batch)
            waiting_bytes += size
            if len(few) == MOST_WAITING:
                few, more = [], [*more, pa.concat_batches(few)]
            if waiting_bytes >= min(batch_bytes // 2, given_bytes):
                yield from taken()
    except Exception:
        yield from taken()
        raise
    yield from taken()


def _cut(batches: Iterator[pa.RecordBatch], batch_bytes: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Large batches in slices of about ``batch_bytes``, small ones unchanged; with their sizes."""
    for batch in batches:
        size = batch.nbytes or batch.num_rows  # rows without columns have no bytes
        parts = min(max(1, round(size / batch_bytes)), batch.num_rows)
        if parts <= 1:
            yield batch, size
            continue
        for start, end in pairwise(batch.num_rows * i // parts for i in range(parts + 1)):
            yield batch.slice(start, end - start), size // parts


def _filter(rows: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    import pyarrow as pa

    keep = pa.array(mask)
    columns = []
    for column in rows.columns:
        if column.type != pa.binary_view():
            columns.append(column.filter(keep))
            continue
        # Arrow has no filter for views: copy the 16 bytes of each selected view; the data they point to is shared.
        validity, views, *data = column.buffers()
        start, count = column.offset, len(column)
        chosen = np.frombuffer(views, np.dtype("V16"))[start : start + count][mask]
        if validity is not None:
            validity = pa.array(np.asarray(column.is_valid())[mask]).buffers()[1]
        columns.append(pa.Array.from_buffers(column.type, len(chosen), [validity, pa.py_buffer(chosen), *data]))
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _bools(rows: pa.RecordBatch, name: str) -> Mask:
    return np.asarray(rows.column(name).to_numpy(zero_copy_only=False), bool)
