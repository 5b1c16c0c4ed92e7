"""Rebuilds the index files of segments from their logs, and compares them with those on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kts.behaviour import DEFAULT, generation_of_format
from kts.dataset.partition import NotInParts, PartitionLog, partition_of_segment
from kts.errors import CorruptIndexError
from kts.log.directory import held
from kts.model import NO_TIMESTAMP
from kts.offline.verify import verify_partition
from kts.segment.entries import Batches, shallow_entries
from kts.segment.index_checksums import IndexChecksums, Sealed
from kts.segment.names import parse_file_name
from kts.segment.producers import Producers, ProducerStateEntry
from kts.segment.rebuild import IndexConfig, rebuild
from kts.segment.rereading import settled, unless_deleted
from kts.segment.segment import Segment
from kts.segment.snapshots import read_snapshot_entries
from kts.segment.transactions import TXN_ENTRY
from kts.store import addresses, files, publishing
from kts.store.expanded import without_compression

ENTRY_BYTES = {".index": 8, ".timeindex": 12, ".txnindex": TXN_ENTRY.size}
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
    whole = PartitionLog(log.path, log.topic, log.partition) if log.is_part else log
    return settled(lambda: _generation_of(whole.whole_segments))


def _generation_of(segments: list[Segment]) -> str:
    for segment in segments:
        with segment.open() as file:
            first = next(shallow_entries(file, 0, file.size(), path=segment.path), None)
        if first is not None:
            return generation_of_format(first.magic)
    return DEFAULT.release


def reindex(log: PartitionLog, config: IndexConfig, progress: Progress | None = None) -> Iterator[SegmentFinding]:
    """Rebuild and compare the index files of every segment of a partition, or a part of one; nothing is written.

    Parameters
    ----------
    config : IndexConfig
        The topic's settings of its indexes.
    progress : callable, optional
        Called with the number of ``.log`` bytes that were just read.

    Raises
    ------
    NotInParts
        A part has transactions, and some may have begun before it.

    Notes
    -----
    Aborted transactions that began before the first segment are only known from its producer snapshot.
    """
    producers = None if log.segments_before else Producers()
    segments, sealed = log.whole_segments, log.sealed_indexes()
    for number, segment in enumerate(segments):
        with unless_deleted(segment.path):
            if number == 0 and producers is not None:
                _load_snapshot(producers, segment)
            is_last = number + 1 == len(segments) and log.following_offset is None
            found = _segment(segment, is_last, config, producers, progress)
            yield found._replace(indexes=_compared(found, sealed.get(segment.base_offset)))


def _compared(found: SegmentFinding, sealed: Sealed | None) -> tuple[IndexFinding, ...]:
    """The index findings. An index that changed after ``kts.Log`` closed it differs: it may have lost entries."""
    if sealed is None or sealed.log_bytes != found.size_bytes:
        return found.indexes
    differ = {".index": sealed.index_differs, ".timeindex": sealed.time_index_differs}
    return tuple(
        one._replace(state=DIFFERS)
        if one.state == SOUND and one.kind in differ and differ[one.kind](files.read_bytes(one.path))
        else one
        for one in found.indexes
    )


def _segment(
    segment: Segment, is_last: bool, config: IndexConfig, producers: Producers | None, progress: Progress | None
) -> SegmentFinding:
    aborted: list[bytes] = []
    has_times = False

    def follow(batches: Batches) -> None:
        nonlocal has_times
        records = batches.records()
        if not has_times:  # a batch that the cleaner emptied keeps its timestamp but needs no entry
            has_times = bool(((batches.column("maxTimestamp") != NO_TIMESTAMP) & (batches.column("count") != 0)).any())
        if producers is None:
            if batches.column("transactional").any():
                raise NotInParts
        elif (batches.column("producerId") >= 0).any():
            aborted.extend(TXN_ENTRY.pack(0, *entry) for entry in producers.follow(records))
        if progress is not None:
            progress(len(records))

    with segment.open() as file:
        found = rebuild(file, file.size(), segment.base_offset, config, segment.path, follow)
    stem, _, transition = without_compression(segment.path).rpartition(".log")
    made = {".index": found.offset_index, ".timeindex": found.time_index, ".txnindex": b"".join(aborted)}
    indexes, suspects = [], []
    for kind, data in made.items():
        path = f"{stem}{kind}{transition}"
        present = files.read_if_there(path)
        if kind == ".txnindex" and not data and not present:
            continue
        state = _state(kind, present, data, is_last)
        if kind == ".timeindex" and state == SOUND and not present and has_times:
            state = EMPTY
        entries = None if present is None else len(used_part(kind, present)) // ENTRY_BYTES[kind]
        indexes.append(IndexFinding(path, kind, state, entries, data))
        if state == SOUND:
            suspects.append(path)
    files.size_of(segment.path)  # raises if it was deleted meanwhile: then its indexes are not missing
    if suspects:
        wrong = _contradicting(segment, is_last, config) & set(suspects)
        indexes = [one._replace(state=DIFFERS) if one.path in wrong else one for one in indexes]
    for number, one in enumerate(indexes):
        if one.kind == ".txnindex" and one.state == SOUND:  # the cleaner removed batches of those transactions
            indexes[number] = one._replace(rebuilt=files.read_bytes(one.path))
    return SegmentFinding(segment.path, found.valid_bytes, found.size, found.reason, tuple(indexes))


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


def _load_snapshot(producers: Producers, first: Segment) -> None:
    """Load the transactions that were open at the start of the first segment."""
    path = os.path.join(os.path.dirname(first.path), f"{first.base_offset:020d}.snapshot")
    if not first.indexed or parse_file_name(os.path.basename(path)) is None or not files.exists(path):
        return
    try:
        entries = read_snapshot_entries(path)
    except CorruptIndexError:
        return
    for entry in entries:
        producers.add(ProducerStateEntry.of_snapshot(entry))
    producers.end_offset = first.base_offset


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
