"""Rebuilds the index files of segments from their logs, and compares them with those on disk."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from kts.behaviour import DEFAULT, generation_of_format
from kts.dataset.partition import PartitionLog, partition_of_segment
from kts.errors import CorruptIndexError
from kts.log.directory import held
from kts.model import NO_TIMESTAMP
from kts.offline.verify import verify_partition
from kts.segment.entries import Batches, shallow_entries
from kts.segment.index_checksums import IndexChecksums, Sealed
from kts.segment.names import parse_file_name
from kts.segment.producers import ProducerStateEntry, marker_of
from kts.segment.rebuild import IndexConfig, rebuild
from kts.segment.rereading import settled, unless_deleted
from kts.segment.segment import Segment
from kts.segment.snapshots import read_snapshot_entries
from kts.segment.transactions import ABORT, TXN_ENTRY
from kts.store import addresses, publishing
from kts.store.expanded import without_compression
from kts.store.source import Source, files

ENTRY_BYTES = {".index": 8, ".timeindex": 12, ".txnindex": TXN_ENTRY.size}
BEGINS, ABORTS, COMMITS = 0, 1, 2  # steps of transactions
EQUAL, MISSING, EMPTY, DIFFERS, SOUND = "equal", "missing", "empty", "differs", "sound"

Progress = Callable[[int], None]


class IndexFinding(NamedTuple):
    """One index file, and its rebuilt content.

    Attributes
    ----------
    path : str
        The file.
    kind : str
        Its suffix.
    state : str
        ``equal``; ``missing``; ``empty``: it has no entries but its log has timestamps, as in logs older than time
        indexes; ``differs``: it contradicts its log; ``sound``: its entries are not the rebuilt ones but agree with the
        log, for example after appends of several sets at once or with another index interval.
    entries : int or None
        Number of its entries; None if it is missing.
    rebuilt : bytes
        The rebuilt content.
    """

    path: str
    kind: str
    state: str
    entries: int | None
    rebuilt: bytes

    @property
    def rebuilt_entries(self) -> int:
        """Number of entries of the rebuilt file."""
        return len(self.rebuilt) // ENTRY_BYTES[self.kind]

    @property
    def is_finding(self) -> bool:
        """True if the file is wrong, empty or missing."""
        return self.state in (MISSING, EMPTY, DIFFERS)


class SegmentFinding(NamedTuple):
    """The index files of one segment.

    Attributes
    ----------
    path : str
        The ``.log``.
    valid_bytes, size_bytes : int
        Bytes before the first damage, and bytes in all.
    reason : str or None
        The damage; None if there is none. The rebuilt indexes end before it.
    indexes : tuple of IndexFinding
        ``.index`` and ``.timeindex``, and ``.txnindex`` if there is one or should be.
    """

    path: str
    valid_bytes: int
    size_bytes: int
    reason: str | None
    indexes: tuple[IndexFinding, ...]


def generation_of(log: PartitionLog) -> str:
    """Return the generation of a log's first entry; of a part, by the log's first entry, too."""
    whole = PartitionLog(log.path, log.topic, log.partition, source=log.source) if log.is_part else log
    return settled(lambda: _generation_of(whole.whole_segments))


def _generation_of(segments: list[Segment]) -> str:
    for segment in segments:
        with segment.open() as file:
            first = next(shallow_entries(file, 0, file.size(), path=segment.path), None)
        if first is not None:
            return generation_of_format(first.magic)
    return DEFAULT.release


class RebuiltSegment(NamedTuple):
    """What a segment shows by itself; ``TransactionIndexes`` makes its ``.txnindex`` of it.

    Attributes
    ----------
    found : SegmentFinding
        With ``.index`` and ``.timeindex`` alone.
    transactions : array of int64
        Three numbers for each step: the producer, an offset, and whether its transaction begins there, is aborted or
        is committed.
    open_before : dict of int to int
        Of the first segment of a log: first offset by producer id of the transactions that its snapshot has open.
    txn_path : str
        Where its ``.txnindex`` is, or would be.
    txn_present : bytes or None
        The file; None if it is missing.
    wrong : set of str, optional
        The index files that contradict the log; None as long as nobody had to know.
    """

    segment: Segment
    is_last: bool
    found: SegmentFinding
    transactions: array[int]
    open_before: dict[int, int]
    txn_path: str
    txn_present: bytes | None
    wrong: set[str] | None


def reindex(log: PartitionLog, config: IndexConfig, progress: Progress | None = None) -> Iterator[SegmentFinding]:
    """Rebuild and compare the index files of every segment of a partition; nothing is written.

    Parameters
    ----------
    config : IndexConfig
        The topic's settings of its indexes.
    progress : callable, optional
        Called with the number of ``.log`` bytes that were just read.

    Notes
    -----
    Aborted transactions that began before the first segment are only known from its producer snapshot.
    """
    transactions = TransactionIndexes(config)
    for segment in rebuilt_segments(log, config, progress):
        index = transactions.index_of(segment)
        found = segment.found
        yield found if index is None else found._replace(indexes=(*found.indexes, index))


def rebuilt_segments(
    log: PartitionLog, config: IndexConfig, progress: Progress | None = None
) -> Iterator[RebuiltSegment]:
    """Rebuild and compare the indexes of every segment of a partition, or of a part of one; as ``reindex``."""
    segments, sealed = log.whole_segments, log.sealed_indexes()
    for number, segment in enumerate(segments):
        with unless_deleted(segment.path, segment.source):
            is_first = number == 0 and not log.segments_before
            open_before = _open_transactions(segment) if is_first else {}
            is_last = number + 1 == len(segments) and log.following_offset is None
            yield _rebuilt(segment, is_last, config, open_before, sealed.get(segment.base_offset), progress)


def _compared(found: SegmentFinding, sealed: Sealed | None, source: Source) -> tuple[IndexFinding, ...]:
    """The index findings. An index that changed after ``kts.Log`` closed it differs: it may have lost entries."""
    if sealed is None or sealed.log_bytes != found.size_bytes:
        return found.indexes
    differ = {".index": sealed.index_differs, ".timeindex": sealed.time_index_differs}
    return tuple(
        one._replace(state=DIFFERS) if one.state == SOUND and differ[one.kind](source.read_bytes(one.path)) else one
        for one in found.indexes
    )


def _rebuilt(
    segment: Segment,
    is_last: bool,
    config: IndexConfig,
    open_before: dict[int, int],
    sealed: Sealed | None,
    progress: Progress | None,
) -> RebuiltSegment:
    steps = _TransactionSteps()
    has_times = False

    def follow(batches: Batches) -> None:
        nonlocal has_times
        if not has_times:  # a batch that the cleaner emptied keeps its timestamp but needs no entry
            has_times = bool(((batches.column("max_timestamp") != NO_TIMESTAMP) & (batches.column("count") != 0)).any())
        steps.follow(batches)
        if progress is not None:
            progress(len(batches.records()))

    with segment.open() as file:
        found = rebuild(file, file.size(), segment.base_offset, config, segment.path, follow)
    stem, _, transition = without_compression(segment.path).rpartition(".log")
    indexes = []
    for kind, data in ((".index", found.offset_index), (".timeindex", found.time_index)):
        path = f"{stem}{kind}{transition}"
        present = segment.source.read_if_there(path)
        one = _finding(path, kind, present, data, is_last)
        if kind == ".timeindex" and one.state == SOUND and not present and has_times:
            one = one._replace(state=EMPTY)
        indexes.append(one)
    txn_path = f"{stem}.txnindex{transition}"
    txn_present = segment.source.read_if_there(txn_path)
    segment.source.size_of(segment.path)  # raises if it was deleted meanwhile: then its indexes are not missing
    wrong = None
    if any(one.state == SOUND for one in indexes):
        wrong = _contradicting(segment, is_last, config)
        indexes = [_judged(one, wrong) for one in indexes]
    whole = SegmentFinding(segment.path, found.valid_bytes, found.size, found.reason, tuple(indexes))
    whole = whole._replace(indexes=_compared(whole, sealed, segment.source))
    return RebuiltSegment(segment, is_last, whole, steps.found, open_before, txn_path, txn_present, wrong)


class _TransactionSteps:
    """Where transactions begin and end in a segment, whatever is open before it."""

    def __init__(self) -> None:
        self.found = array("q")
        self.open = set[int]()  # producers with a transaction that began here
        self.ended = set[int]()  # producers of which one ended here

    def follow(self, batches: Batches) -> None:
        """Add those of a slice."""
        control = batches.column("control")
        ours = (batches.column("producer_id") >= 0) & (control | batches.column("transactional"))
        for row in np.flatnonzero(ours).tolist():
            producer, offset = int(batches.column("producer_id")[row]), int(batches.column("base_offset")[row])
            if not control[row]:
                if producer not in self.open:
                    self.open.add(producer)
                    self.found.extend((producer, offset, BEGINS))
                continue
            marker = marker_of(batches.entry(row))
            if marker is not None and (producer in self.open or producer not in self.ended):
                self.open.discard(producer)
                self.ended.add(producer)
                self.found.extend((producer, offset, ABORTS if marker[0] == ABORT else COMMITS))


class TransactionIndexes:
    """Makes the ``.txnindex`` files of the segments of a log, which must come in order."""

    def __init__(self, config: IndexConfig) -> None:
        self.config = config
        self.open: dict[int, int] = {}  # first offset by producer id

    def index_of(self, segment: RebuiltSegment) -> IndexFinding | None:
        """The index of the next segment, compared with the file; None if there is none and should be none."""
        data, present = self._rebuilt(segment), segment.txn_present
        if not data and not present:
            return None
        found = _finding(segment.txn_path, ".txnindex", present, data, segment.is_last)
        if found.state == SOUND:
            wrong = segment.wrong
            if wrong is None:
                wrong = _contradicting(segment.segment, segment.is_last, self.config)
            found = _judged(found, wrong)
        if found.state == SOUND and present is not None:  # the cleaner removed batches of those transactions
            found = found._replace(rebuilt=present)
        return found

    def _rebuilt(self, segment: RebuiltSegment) -> bytes:
        self.open.update(segment.open_before)
        aborted, numbers = list[bytes](), iter(segment.transactions)
        for producer, offset, step in zip(numbers, numbers, numbers, strict=True):
            if step == BEGINS:
                self.open.setdefault(producer, offset)
                continue
            first = self.open.pop(producer, None)
            if step == ABORTS and first is not None:
                stable = min(self.open.values(), default=offset + 1)
                aborted.append(TXN_ENTRY.pack(0, producer, first, offset, stable))
        return b"".join(aborted)


def _finding(path: str, kind: str, present: bytes | None, rebuilt: bytes, is_last: bool) -> IndexFinding:
    entries = None if present is None else len(used_part(kind, present)) // ENTRY_BYTES[kind]
    return IndexFinding(path, kind, _state(kind, present, rebuilt, is_last), entries, rebuilt)


def _judged(one: IndexFinding, wrong: set[str]) -> IndexFinding:
    """The finding; a file that seemed sound differs if its log contradicts it."""
    return one._replace(state=DIFFERS) if one.state == SOUND and one.path in wrong else one


def _state(kind: str, present: bytes | None, rebuilt: bytes, is_last: bool) -> str:
    """Compare an index file with the rebuilt one. ``sound`` is provisional: the log may contradict the entries."""
    if present is None:
        return MISSING
    if present == rebuilt:
        return EQUAL
    return DIFFERS if len(used_part(kind, present)) < len(present) and not is_last else SOUND


def used_part(kind: str, present: bytes) -> bytes:
    """An index without its preallocated zeros."""
    width = ENTRY_BYTES[kind]
    if kind == ".txnindex" or any(present[-width:]) or len(present) % width:
        return present
    used = present.rstrip(b"\0")
    return present[: -(-len(used) // width) * width]


def _contradicting(segment: Segment, is_last: bool, config: IndexConfig) -> set[str]:
    """The index files of a segment that contradict its log."""
    found = set()
    alone = partition_of_segment(segment)
    for violation in verify_partition(alone, rules=config.behaviour.times):
        if violation.kind != "zero-tail" or not is_last:
            found.add(violation.path)
    return found


def _open_transactions(first: Segment) -> dict[int, int]:
    """The first offsets of the transactions that were open at the start of a segment, by its producer snapshot."""
    path = os.path.join(os.path.dirname(first.path), f"{first.base_offset:020d}.snapshot")
    if not first.indexed or parse_file_name(os.path.basename(path)) is None or not first.source.exists(path):
        return {}
    try:
        entries = [ProducerStateEntry.of_snapshot(entry) for entry in read_snapshot_entries(path, first.source)]
    except CorruptIndexError:
        return {}
    return {entry.producer_id: entry.first_offset for entry in entries if entry.first_offset >= 0}


# --- writing --------------------------------------------------------------------------------------


@contextmanager
def locked(log: PartitionLog) -> Iterator[None]:
    """Hold the lock of a partition's log directory, so that nothing else writes to it.

    Raises
    ------
    LogLockedError
        A broker or another program holds it.
    """
    addresses.require_local(log.path, "writing")
    for one in {os.path.dirname(os.path.abspath(segment.path)) for segment in log.whole_segments}:
        files.require_plain_logs(one, "writing")
    if log.lone:
        paths = [segment.path for segment in log.whole_segments]
        with held(os.path.dirname(os.path.abspath(log.path)), *paths):
            yield
    else:
        with held(log.path):
            yield


def replace(one: IndexFinding) -> None:
    """Replace an index file with the rebuilt one, atomically."""
    publishing.publish(one.path, one.rebuilt)


def forget_checksums(log: PartitionLog, written: Collection[str]) -> None:
    """Remove the checksums that ``kts.Log`` recorded for the segments of rebuilt index files."""
    names = (parse_file_name(os.path.basename(path)) for path in written)
    bases = {name.base_offset for name in names if name is not None}
    if not bases or log.lone:
        return
    checksums = IndexChecksums(os.path.dirname(os.path.abspath(log.path)))
    left = {base: one for base, one in checksums.of(log.topic, log.partition).items() if base not in bases}
    checksums.replace(log.topic, log.partition, left)
    checksums.write()


def write_aside(one: IndexFinding, directory: str) -> str:
    """Write a rebuilt index file into another directory; returns its path."""
    path = os.path.join(directory, os.path.basename(one.path))
    publishing.publish(path, one.rebuilt)
    return path
