"""Aborted and open transactions, from the ``.txnindex`` or from the markers in the log.

Layout::

    .txnindex    entries of 34 bytes: version i16 = 0 | producer id i64 | first, last, last stable offset i64
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from kts.codec.columns import decode
from kts.codec.layout import HEADER_BYTES, Entry, read_header
from kts.errors import CorruptIndexError, CorruptRecordError
from kts.model import NO_TIMESTAMP
from kts.segment.damage import header_scan, next_offset
from kts.segment.entries import Batches, at, shallow_entries
from kts.segment.names import parse_file_name
from kts.segment.overlaps import Overlaps
from kts.segment.partition import ListsSegments, ReadablePartition
from kts.segment.producers import AbortedBatch
from kts.segment.rereading import warn
from kts.segment.segment import Lookups, Segment
from kts.segment.snapshots import read_snapshot, snapshot_paths
from kts.segment.swaps import live_logs
from kts.store import addresses, publishing
from kts.store.expanded import without_compression
from kts.store.local import WritableFile
from kts.store.protocol import Readable
from kts.store.source import Source, files
from kts.times import show_time

if TYPE_CHECKING:
    import numpy.typing as npt


TXN_ENTRY = struct.Struct(">hqqqq")
ABORT, COMMIT, UNKNOWN = 0, 1, -1
ANY_PRODUCER = -1


class AbortedTransaction(NamedTuple):
    """A range of offsets, both ends included: a read_committed reader drops the producer's batches in it."""

    producer_id: int
    first_offset: int
    last_offset: int


class Marker(NamedTuple):
    """A control record that ends a transaction."""

    offset: int
    producer_id: int
    kind: int  # ABORT or COMMIT


def txn_entries(data: bytes) -> list[tuple[int, int, int, int, int]]:
    """The whole entries in the bytes of a ``.txnindex``, fields as in the layout above."""
    return list(TXN_ENTRY.iter_unpack(data[: len(data) - len(data) % TXN_ENTRY.size]))


def read_aborted(path: str, source: Source = files) -> list[AbortedBatch]:
    """The entries of a ``.txnindex``.

    Raises
    ------
    CorruptIndexError
        Not whole entries of version 0 with sensible offsets.
    """
    data = source.read_bytes(path)
    if len(data) % TXN_ENTRY.size:
        raise CorruptIndexError(
            f"expected entries of {TXN_ENTRY.size} bytes, found {len(data) % TXN_ENTRY.size} bytes after the last one",
            path=path,
            position=len(data) - len(data) % TXN_ENTRY.size,
        )
    found = []
    for number, (version, producer, first, last, stable) in enumerate(txn_entries(data)):
        if version != 0 or producer < 0 or not 0 <= first <= last:
            raise CorruptIndexError(
                f"entry {number}: expected version 0 and a transaction, found version {version},"
                f" producer {producer}, offsets {first} to {last}",
                path=path,
                position=number * TXN_ENTRY.size,
            )
        found.append(AbortedBatch(producer, first, last, stable))
    return found


def read_txn_index(path: str, source: Source = files) -> list[AbortedTransaction]:
    """The aborted transactions that end in a segment; errors as for ``read_aborted``."""
    return [AbortedTransaction(*entry[:3]) for entry in read_aborted(path, source)]


def append_aborted(path: str, aborted: list[AbortedBatch]) -> None:
    """Add entries to a ``.txnindex``, created if it is missing."""
    with WritableFile(path, create=True) as file:
        size = file.size()
        size -= size % TXN_ENTRY.size
        file.write(b"".join(TXN_ENTRY.pack(0, *entry) for entry in aborted), size)


def truncate_aborted(path: str, offset: int) -> None:
    """Truncate a ``.txnindex`` at the first transaction that ended at or after an offset, and sync it."""
    if not files.exists(path):
        return
    with WritableFile(path) as file:
        data = file.read(0, file.size())
        whole = data[: len(data) - len(data) % TXN_ENTRY.size]
        if offset <= 0:  # whatever the entries are
            file.truncate(0)
            whole = b""
        for number, entry in enumerate(TXN_ENTRY.iter_unpack(whole)):
            if entry[3] >= offset:
                file.truncate(number * TXN_ENTRY.size)
                break
        file.sync()


def sync_aborted(paths: Iterable[str]) -> None:
    """Wait until transaction indexes are on disk; files removed meanwhile are ignored."""
    for path in paths:
        if files.exists(path):
            publishing.sync_file(path)


def are_confirmed(
    listed: list[AbortedTransaction], log: Readable, size: int, base_offset: int, start_of: Callable[[int], int]
) -> bool:
    """Whether the log confirms every transaction that a segment's ``.txnindex`` lists.

    Each must end with an abort marker of its producer and begin after the producer's previous one. If it begins in the
    segment, it must begin at the base offset of a transactional batch of the producer.

    Parameters
    ----------
    start_of : callable
        Where to start reading for an offset.
    """
    ends: dict[int, int] = {}
    for producer, first, last in listed:
        if not (base_offset <= last and ends.get(producer, -1) < first):
            return False
        ends[producer] = last
        try:
            end = _entry_at(log, size, last, start_of(last))
            begin = _entry_at(log, size, first, start_of(first)) if first >= base_offset else None
        except CorruptRecordError:
            return False
        if end is None or not _is_of(end, producer, last, True) or _kind(log, end) != ABORT:
            return False
        if first < base_offset:
            continue
        if begin is None or not _is_of(begin, producer, None, False) or begin.base_offset != first:
            return False
    return True


def _entry_at(log: Readable, size: int, offset: int, start: int) -> Entry | None:
    """The first entry that reaches an offset."""
    for entry in shallow_entries(log, start, size):
        if entry.last_offset >= offset:
            return entry
    return None


def _is_of(entry: Entry, producer: int, last_offset: int | None, control: bool) -> bool:
    """True for a transactional batch of a producer with this last offset that is, or is not, a control batch."""
    return (
        entry.transactional
        and entry.control == control
        and last_offset in (None, entry.last_offset)
        and entry.producer_id == producer
    )


def _kind(log: Readable, batch: Entry) -> int:
    """Kind of a marker; -1 for any other batch."""
    try:
        [key] = decode(log.read(batch.position, batch.size), ["key"]).column(0).to_pylist()
    except (CorruptRecordError, ValueError):
        return -1
    return key[3] if key is not None and len(key) >= 4 and key[2] == 0 else -1


def aborted_transactions(segments: list[Segment], start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Aborted transactions with batches in [start_offset, end_offset), from ``.txnindex`` files, by first offset.

    Parameters
    ----------
    segments : list of Segment
        The segments with the offsets and all later ones: an entry is in the segment where its transaction ended.
    """
    found: set[AbortedTransaction] = set()
    for segment in segments:
        found.update(listed_transactions(segment) or ())
    return sorted(
        (one for one in found if one.last_offset >= start_offset and one.first_offset < end_offset),
        key=lambda one: (one.first_offset, one.last_offset, one.producer_id),
    )


def listed_transactions(segment: Segment) -> list[AbortedTransaction] | None:
    """The entries of a segment's ``.txnindex``; None if it has none or the log does not confirm them: use markers."""
    path = segment.txn_index_path
    if path is None:
        return None
    try:
        listed = read_txn_index(path, segment.source)
    except CorruptIndexError:
        return None
    with segment.open() as log:
        sound = are_confirmed(listed, log, log.size(), segment.base_offset, segment.start_position)
    return listed if listed and sound else None


class Markers:
    """How transactions ended, from the control records after a position, read only as far as needed.

    Parameters
    ----------
    segment : Segment
        Where to start; the segments that follow it in its directory are read when needed.
    position : int
        A batch start.
    """

    def __init__(self, segment: Segment, position: int, skip_damage: bool) -> None:
        self.known: dict[int, tuple[list[int], list[int]]] = {}
        # In tiered storage whole copies may be missing: up to these offsets no later marker ends a transaction.
        self.holes: list[int] = []
        self.unread = self._walk(segment, position, skip_damage)

    def _walk(self, segment: Segment, position: int, skip_damage: bool) -> Iterator[Marker]:
        reached = segment.base_offset
        segments = [segment, *_following(segment)]
        for one in segments:
            reached, closed = max(reached, one.base_offset), one is not segments[-1]
            scan = header_scan(
                one, position, one.base_offset, skip_damage, 2**16, verify_crc=skip_damage, closed=closed
            )
            for batches in scan:
                if one.remote and batches.column("position")[0] != position:
                    yield Marker(int(batches.column("base_offset")[0]) - 1, ANY_PRODUCER, UNKNOWN)
                yield from markers(one, batches)
                position, reached = batches.end, batches.last_offset
            if one.remote and skip_damage and position < one.size_bytes:
                yield Marker(reached, ANY_PRODUCER, UNKNOWN)
            position = 0

    def kinds(self, producer_id: int, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """ABORT or COMMIT for each offset of a producer's batches, -1 where the end of the transaction is not known."""
        ends, kinds = self._of(producer_id)
        while not ends or ends[-1] <= offsets[-1]:
            marker = next(self.unread, None)
            if marker is None:
                break
            if marker.kind == UNKNOWN:
                self.holes.append(marker.offset)
            known = [*self.known.values()] if marker.kind == UNKNOWN else [self._of(marker.producer_id)]
            for more_ends, more_kinds in known:
                if more_ends and marker.offset <= more_ends[-1]:  # of segments that overlap
                    continue
                more_ends.append(marker.offset)
                more_kinds.append(marker.kind)
        return np.array([*kinds, -1], np.int64)[np.searchsorted(np.array(ends, np.int64), offsets)]

    def _of(self, producer_id: int) -> tuple[list[int], list[int]]:
        """The ends of a producer's transactions."""
        return self.known.setdefault(producer_id, ([*self.holes], [UNKNOWN] * len(self.holes)))


def _following(segment: Segment) -> list[Segment]:
    """The later live segments in a segment's directory."""
    if parse_file_name(without_compression(os.path.basename(segment.path))) is None:
        return []
    source = segment.source
    if isinstance(source, ListsSegments):
        there = [(one.base_offset, one.path, one.source) for one in source.listed()]
    else:
        folder = os.path.dirname(addresses.absolute(segment.path))
        logs = live_logs(folder, source.names_in(folder), source)
        there = [(base, path, source) for (base, _), path in sorted(logs.items())]
    found = [replace(segment, path=path, base_offset=base, indexed=True, source=of) for base, path, of in there]
    if segment.shared:  # an earlier one may have what follows
        found = Overlaps(tell=False).removed(found)
    return [one for one in found if one.base_offset > segment.base_offset]


def markers(segment: Segment, batches: Batches) -> Iterator[Marker]:
    """The transaction markers among the batches of a header scan."""
    control = batches.column("control") & (batches.column("producer_id") >= 0)
    for row in np.flatnonzero(control).tolist():
        position, producer = int(batches.column("position")[row]), int(batches.column("producer_id")[row])
        yield from _markers_in(segment, position, batches.entry(row), producer)


def marker_at(segment: Segment, position: int, size: int, producer_id: int) -> list[Marker]:
    """The transaction markers in one control batch; empty for other control records."""
    with segment.open() as file:
        return _markers_in(segment, position, file.read(position, size), producer_id)


def _markers_in(segment: Segment, position: int, data: bytes | memoryview, producer_id: int) -> list[Marker]:
    try:
        records = decode(data, ["offset", "key", "headers"])
    except CorruptRecordError as error:
        raise at(error, segment.path, position) from error.__cause__
    return [
        Marker(offset, producer_id, key[3])
        for offset, key in zip(*(records.column(i).to_pylist() for i in (0, 1)), strict=True)
        if key is not None and len(key) >= 4 and key[2:4] in (b"\0\0", b"\0\1")
    ]


def markers_at(segment: Segment, position: int, producer_id: int) -> list[Marker]:
    """The transaction markers of the control batch at a position."""
    with segment.open() as file:
        entry = read_header(file.read(position, HEADER_BYTES), start=position)
    return [] if entry is None else marker_at(segment, position, entry.size, producer_id)


def last_stable_offset(log: ReadablePartition, *, skip_damage: bool = False) -> int:
    """First offset of the earliest open transaction, or the log end offset; errors as for ``log_end_offset``.

    Notes
    -----
    The newest sound snapshot at or below the log end offset gives the transactions open there, and the headers of the
    batches after it the rest: none after a clean shutdown. Without snapshots all headers are read.
    """
    return unstable(log, skip_damage=skip_damage).last_stable_offset


class OpenTransaction(NamedTuple):
    """A transaction that no marker has ended."""

    producer_id: int
    first_offset: int
    first_timestamp_ms: int | None  # None if its first batch is gone, or has no timestamp


class Unstable(NamedTuple):
    """The end of a log, and the open transactions before it: the first offset of each, by producer id."""

    log_end_offset: int
    first_offsets: dict[int, int]

    @property
    def last_stable_offset(self) -> int:
        """Where a read_committed reader ends."""
        return min([self.log_end_offset, *self.first_offsets.values()])

    def transactions(self, log: ReadablePartition) -> list[OpenTransaction]:
        """The open transactions in order, each with the time of its first batch."""
        found = sorted(self.first_offsets.items(), key=lambda one: one[1])
        return [OpenTransaction(producer, first, _time_at(log, first)) for producer, first in found]

    def tell(self, log: ReadablePartition, end: int) -> None:
        """Warn if a read_committed reader that should read up to an offset leaves out what is not stable."""
        last = self.last_stable_offset
        if min(end, self.log_end_offset) <= last:
            return
        oldest = self.transactions(log)[0]
        since = "" if oldest.first_timestamp_ms is None else f", {show_time(oldest.first_timestamp_ms)}"
        since += f"; {len(self.first_offsets) - 1} more are open" if len(self.first_offsets) > 1 else ""
        warn(
            f"{log.path}: read_committed ends at the last stable offset {last}, and the log at {self.log_end_offset}:"
            f" the transaction of producer {oldest.producer_id} is open since offset {oldest.first_offset}{since}",
            log.path,
        )


@overload
def unstable(log: ReadablePartition, *, skip_damage: bool = False) -> Unstable: ...
@overload
def unstable(log: ReadablePartition, *, skip_damage: bool = False, most_bytes: int) -> Unstable | None: ...
def unstable(log: ReadablePartition, *, skip_damage: bool = False, most_bytes: int | None = None) -> Unstable | None:
    """The open transactions of a log; as for ``last_stable_offset``.

    Parameters
    ----------
    most_bytes : int, optional
        Return None if more of the log must be read than that.
    """
    end = log_end_offset(log, skip_damage=skip_damage)
    start, still_open = log.log_start_offset, dict[int, int]()
    for offset, path in snapshot_paths([] if log.lone else log.source.list_directory(log.path)):
        if offset > end:
            continue
        try:
            snapshot = read_snapshot(path, log.source)
        except CorruptIndexError:
            continue
        start, still_open = offset, dict(snapshot.open_transactions)
        break
    segments = log.segments
    places = [
        (segment, segment.start_position(start))
        for number, segment in enumerate(segments)
        if start < end and not (number + 1 < len(segments) and segments[number + 1].base_offset <= start)
    ]
    if most_bytes is not None and sum(segment.size_bytes - place for segment, place in places) > most_bytes:
        return None
    for segment, place in places:
        closed = segment is not segments[-1] or log.following_offset is not None
        for batches in header_scan(
            segment, place, segment.base_offset, skip_damage, verify_crc=skip_damage, closed=closed
        ):
            _follow(segment, batches, start, still_open)
    return Unstable(end, still_open)


def _time_at(log: ReadablePartition, offset: int) -> int | None:
    """The timestamp of the first record of the batch with an offset."""
    for segment in reversed(log.segments):
        if segment.base_offset > offset:
            continue
        try:
            with segment.open() as file:
                entry = _entry_at(file, file.size(), offset, segment.start_position(offset))
        except CorruptRecordError:
            return None
        times = () if entry is None else (entry.base_timestamp, entry.max_timestamp)
        return next((time for time in times if time != NO_TIMESTAMP), None)
    return None


def log_end_offset(log: ReadablePartition, *, skip_damage: bool = False) -> int:
    """The offset after the last whole batch of the last segment; its base offset if there is none.

    Raises
    ------
    CorruptRecordError
        Damage, unless it is skipped. An incomplete last batch is none, if nothing sound lies behind its beginning; a
        wrong CRC is told by who reads the batch, after the records before it.

    Notes
    -----
    A last segment that another one follows by now may have been cleaned: the log went on where that one begins.
    """
    segments, behind = log.segments, log.following_offset
    if not segments:
        return log.log_start_offset
    last = segments[-1]
    end = next_offset(last, skip_damage=skip_damage, closed=behind is not None)
    if behind is None:
        return max(end, log.next_base(last.base_offset) or end)
    if end >= behind:
        return end
    if not skip_damage and (lost := Lookups(last).lost_end(behind)) is not None:
        raise lost
    return behind  # what is missing before it is told by who reads it


def _follow(segment: Segment, batches: Batches, start: int, still_open: dict[int, int]) -> None:
    rows = batches.only(batches.column("transactional") & (batches.column("last_offset") >= start))
    ends = {marker.offset: marker for marker in markers(segment, rows)}
    columns = (rows.column(name).tolist() for name in ("base_offset", "last_offset", "producer_id", "control"))
    for base, last, producer, control in zip(*columns, strict=True):
        if not control:
            still_open.setdefault(producer, base)
        elif last in ends:
            still_open.pop(producer, None)
