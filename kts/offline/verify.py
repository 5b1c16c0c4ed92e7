"""Is everything in a segment, a partition or a log directory as Kafka would have written it?"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kts.dataset.partition import LogDirs, PartitionLog, Path, open_path
from kts.errors import CorruptIndexError, CorruptRecordError, LogStorageError
from kts.offline.findings import Headers, Progress, SegmentFacts, Violation, limited, walk
from kts.offline.index_checks import OffsetIndexCheck, TimeIndexCheck
from kts.segment import checkpoints, files, transactions
from kts.segment.index_checksums import IndexChecksums, Sealed
from kts.segment.names import HIGH_WATERMARKS, LEADER_EPOCHS, LOG_START_OFFSETS, PARTITION_METADATA, parse_file_name
from kts.segment.rereading import unless_deleted
from kts.segment.segment import Segment

__all__ = ["Violation", "verify", "verify_checkpoints"]

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_METADATA = re.compile(r"version: 0\ntopic_id: [A-Za-z0-9_-]{22}\n?")
_CHECKPOINTS = (
    LOG_START_OFFSETS,
    HIGH_WATERMARKS,
    "recovery-point-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def verify(
    path: Path, *, deep: bool = False, progress: Progress | None = None, allow_negative_timestamps: bool = False
) -> Iterator[Violation]:
    """Everything that is wrong under a path; nothing comes out of a sound one.

    Parameters
    ----------
    path : path
        A segment file, a partition directory or a log directory.
    deep : bool
        Also decode every record: counts, lengths, inner CRCs, offsets and times against the headers.
    progress : callable, optional
        Called with the number of ``.log`` bytes that were just read.
    allow_negative_timestamps : bool
        Times before 1970 count and may be in time indexes, as with ``allow.negative.timestamps``.

    Returns
    -------
    iterator of Violation
        At most 20 of a kind in a file, then one that says how many more.

    Notes
    -----
    Checked are CRCs, sizes, the order of offsets, both indexes against the log, leader epochs, aborted transactions,
    producer snapshots and checkpoint files, missing and surplus files. Files with other names than Kafka's are ignored,
    also the ``.deleted``, ``.cleaned`` and ``.swap`` ones.
    """
    opened = open_path(path)
    if isinstance(opened, LogDirs):
        yield from _readable(verify_checkpoints(os.fspath(path)))
        for log in opened.values():
            yield from verify_partition(log, deep, progress, allow_negative_timestamps)
    else:
        yield from verify_partition(opened, deep, progress, allow_negative_timestamps)


def verify_partition(
    log: PartitionLog, deep: bool = False, progress: Progress | None = None, allow_negative_timestamps: bool = False
) -> Iterator[Violation]:
    """What ``verify`` says of an open partition."""
    return limited(_partition(log, deep, progress, allow_negative_timestamps))


def verify_checkpoints(directory: str) -> Iterator[Violation]:
    """The checkpoint files of a log directory."""
    for name in _CHECKPOINTS:
        path = os.path.join(directory, name)
        if files.exists(path) and files.size_of(path) and checkpoints.read_checkpoint(path) is None:
            message = "expected `0`, a count, and lines `<topic> <partition> <offset>`"
            yield Violation(path, None, None, "checkpoint", message)
    checksums = IndexChecksums(directory)
    if checksums.fault is not None:
        yield Violation(checksums.path, None, None, "checkpoint", checksums.fault)


@dataclass
class _Partition:
    """What is carried from one segment to the next."""

    log: PartitionLog
    epochs: list[tuple[int, int]]
    allow_negative: bool = False
    last_offset: int = -1
    seams: list[tuple[str, int, int]] = field(default_factory=list)
    gaps: bool = False
    open_transactions: dict[int, int] = field(default_factory=dict)


def _readable(findings: Iterator[Violation]) -> Iterator[Violation]:
    """Findings, the last of which is that a file cannot be read."""
    try:
        yield from findings
    except LogStorageError as error:
        yield Violation(error.path or "", None, None, "unreadable", error.message)


def _partition(log: PartitionLog, deep: bool, progress: Progress | None, allow_negative: bool) -> Iterator[Violation]:
    try:
        segments = log.segments
    except LogStorageError as error:
        yield Violation(error.path or log.path, None, None, "unreadable", error.message)
        return
    try:
        epochs, problems = _leader_epochs(log)
    except LogStorageError as error:
        epochs, problems = [], [Violation(error.path or log.path, None, None, "unreadable", error.message)]
    yield from problems
    state, sealed = _Partition(log, epochs, allow_negative), log.sealed_indexes()
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        try:
            with unless_deleted(segment.path):
                yield from _segment(segment, following, state, deep, progress)
                yield from _sealed(segment, sealed.get(segment.base_offset))
        except LogStorageError as error:
            yield Violation(error.path or segment.path, None, None, "unreadable", error.message)
        if following is not None and not files.exists(segment.path):  # then nothing is missing behind it
            state.last_offset = max(state.last_offset, following - 1)
    # Only the cleaner leaves gaps within segments. Without one, a gap between them is a segment that is missing.
    for path, first, base in state.seams:
        if not state.gaps:
            message = f"offsets {first} to {base - 1} are missing before this segment"
            yield Violation(path, 0, first, "gap", message)
    if not log.lone:
        yield from _readable(_snapshots(log, state))
        yield from _readable(_small_files(log, state))
        yield from _readable(_missing_and_surplus(log, segments))


def _segment(
    segment: Segment, following: int | None, state: _Partition, deep: bool, progress: Progress | None
) -> Iterator[Violation]:
    facts = SegmentFacts(last_offset=-1, allow_negative=state.allow_negative)
    offset_path, time_path, txn_path = segment.offset_index_path, segment.time_index_path, segment.txn_index_path
    offset_check = None if offset_path is None else OffsetIndexCheck(segment, offset_path)
    time_check = None if time_path is None else TimeIndexCheck(segment, time_path, state.allow_negative)
    ended: list[transactions.AbortedTransaction] = []
    markers_seen: set[tuple[int, int]] = set()
    for found in walk(segment, facts, following, progress, deep):
        if isinstance(found, Violation):
            yield found
            continue
        if offset_check is not None:
            yield from offset_check.slice(found)
        if time_check is not None:
            yield from time_check.slice(found, facts)
        yield from _epochs_of_batches(segment, found, state.epochs)
        for marker, first in _ended(segment, found, state.open_transactions):
            if marker.kind == transactions.ABORT:
                markers_seen.add((marker.producer_id, marker.offset))
                if first is not None:
                    ended.append(transactions.AbortedTransaction(marker.producer_id, first, marker.offset))
    # An active segment's indexes are both preallocated, as long as the broker runs and after it was killed.
    checks = [check for check in (offset_check, time_check) if check is not None]
    stopped = files.exists(os.path.join(os.path.dirname(os.path.abspath(state.log.path)), CLEAN_SHUTDOWN))
    allowed = following is None and not stopped and all(check.preallocated for check in checks)
    for check in checks:
        yield from check.end(facts, allowed)
    yield from _txn_index(segment, txn_path, ended, markers_seen, following, facts)
    if 0 <= state.last_offset < segment.base_offset - 1 and not facts.damaged:
        state.seams.append((segment.path, state.last_offset + 1, segment.base_offset))
    # Wrapper messages do not show their gaps.
    state.gaps |= facts.gaps or facts.wrappers or facts.damaged or (facts.batches == 0 and following is not None)
    state.last_offset = max(state.last_offset, facts.last_offset, segment.base_offset - 1)


def _sealed(segment: Segment, sealed: Sealed | None) -> Iterator[Violation]:
    """Indexes that are not as they were when ``kts.Log`` closed them, though the log is."""
    if sealed is None or sealed.log_bytes != segment.size_bytes:
        return
    for path, differs in (
        (segment.offset_index_path, sealed.index_differs),
        (segment.time_index_path, sealed.time_index_differs),
    ):
        if path is not None and differs(files.read_bytes(path)):
            message = "it is not the file that kts.Log closed, by the checksum it noted; the log has the bytes it had"
            yield Violation(path, None, None, "index-checksum", message)


def _leader_epochs(log: PartitionLog) -> tuple[list[tuple[int, int]], list[Violation]]:
    path = os.path.join(log.path, LEADER_EPOCHS)
    if log.lone or not files.exists(path) or files.size_of(path) == 0:
        return [], []
    epochs = checkpoints.read_leader_epochs(path)
    if epochs is None:
        return [], [Violation(path, None, None, "leader-epoch", "expected `0`, a count, and lines `<epoch> <offset>`")]
    problems = [
        Violation(path, None, b[1], "leader-epoch", f"epoch {b[0]} at offset {b[1]} does not follow {a[0]} at {a[1]}")
        for a, b in zip(epochs, epochs[1:], strict=False)
        if b[0] <= a[0] or b[1] < a[1]
    ]
    return ([] if problems else epochs), problems


def _epochs_of_batches(segment: Segment, headers: Headers, epochs: list[tuple[int, int]]) -> Iterator[Violation]:
    if not epochs:
        return
    starts = np.array([start for _, start in epochs], np.int64)
    numbers = np.array([epoch for epoch, _ in epochs], np.int64)
    place = np.searchsorted(starts, headers.first, "right") - 1
    wrong = headers.sound & (headers.leader_epoch >= 0) & (place >= 0)
    wrong &= numbers[np.maximum(place, 0)] != headers.leader_epoch
    for i in np.flatnonzero(wrong).tolist():
        message = f"the batch has leader epoch {headers.leader_epoch[i]}, the checkpoint says {numbers[place[i]]}"
        yield Violation(segment.path, int(headers.position[i]), int(headers.first[i]), "leader-epoch", message)


def _ended(
    segment: Segment, headers: Headers, still_open: dict[int, int]
) -> Iterator[tuple[transactions.Marker, int | None]]:
    """The markers of a slice, each with the first offset of the transaction it ends, if that had batches."""
    for i in np.flatnonzero(headers.transactional & headers.sound).tolist():
        producer = int(headers.producer_id[i])
        if not headers.control[i]:
            still_open.setdefault(producer, int(headers.first[i]))
            continue
        try:
            found = transactions.marker_at(segment, int(headers.position[i]), int(headers.size[i]), producer)
        except CorruptRecordError:
            continue
        for marker in found:
            yield marker, still_open.pop(producer, None)


def _txn_index(
    segment: Segment,
    path: str | None,
    ended: list[transactions.AbortedTransaction],
    markers_seen: set[tuple[int, int]],
    following: int | None,
    facts: SegmentFacts,
) -> Iterator[Violation]:
    listed: list[transactions.AbortedTransaction] = []
    if path is not None:
        try:
            listed = transactions.read_txn_index(path)
        except CorruptIndexError as error:
            yield Violation(path, error.position, None, "txn-index", error.message)
            return
    if facts.damaged:
        return
    for number, one in enumerate(listed):
        if (one.producer_id, one.last_offset) not in markers_seen:
            message = f"entry {number}: no abort marker of producer {one.producer_id} at offset {one.last_offset}"
            yield Violation(path or segment.path, number * 34, one.last_offset, "txn-index", message)
        elif one.first_offset not in {e.first_offset for e in ended if e.last_offset == one.last_offset}:
            known = next((e.first_offset for e in ended if e.last_offset == one.last_offset), None)
            if known is not None and known < one.first_offset:
                message = f"entry {number}: the transaction starts at offset {known}, found {one.first_offset}"
                yield Violation(path or segment.path, number * 34, one.first_offset, "txn-index", message)
    if path is None and segment.offset_index_path is None and segment.time_index_path is None:
        return
    have = {(one.producer_id, one.last_offset) for one in listed}
    for one in ended:
        if (one.producer_id, one.last_offset) not in have:
            where = path or segment.path.removesuffix(".log") + ".txnindex"
            message = f"the aborted transaction of producer {one.producer_id} from {one.first_offset} is not listed"
            yield Violation(where, None, one.last_offset, "txn-index", message)


def _snapshots(log: PartitionLog, state: _Partition) -> Iterator[Violation]:
    end = state.last_offset + 1
    for offset, path in transactions.snapshot_paths(log):
        try:
            transactions.read_snapshot(path)
        except CorruptIndexError as error:
            yield Violation(path, error.position, offset, "snapshot", error.message)
            continue
        except LogStorageError as error:
            if error.errno != errno.ENOENT:  # else it was deleted meanwhile
                raise
            continue
        if offset > end:
            yield Violation(path, None, offset, "snapshot", f"taken at offset {offset}, but the log ends at {end}")


def _small_files(log: PartitionLog, state: _Partition) -> Iterator[Violation]:
    end = state.last_offset + 1
    for epoch, start in state.epochs:
        if start > end:
            path = os.path.join(log.path, LEADER_EPOCHS)
            message = f"epoch {epoch} starts at offset {start}, the log ends at {end}"
            yield Violation(path, None, start, "leader-epoch", message)
    path = os.path.join(log.path, PARTITION_METADATA)
    if files.exists(path) and not _METADATA.fullmatch(files.read_bytes(path).decode("utf-8", "replace")):
        yield Violation(path, None, None, "partition-metadata", "expected `version: 0` and a topic id of 22 characters")


def _missing_and_surplus(log: PartitionLog, segments: list[Segment]) -> Iterator[Violation]:
    """Files that lack their neighbours. A writer that deletes renames one after the other: only what stays counts."""
    found = list(_lacking(log, segments))
    if found:
        again = set(_lacking(log, [segment for segment in segments if files.exists(segment.path)]))
        yield from (one for one in found if one in again)


def _lacking(log: PartitionLog, segments: list[Segment]) -> Iterator[Violation]:
    names: dict[str, set[tuple[int, str]]] = {}
    paths: dict[tuple[int, str, str], str] = {}
    for entry in files.list_directory(log.path):
        name = parse_file_name(entry.name)
        if name is not None and not name.transition:
            names.setdefault(name.suffix, set()).add((name.base_offset, name.tier_id))
            paths[name.base_offset, name.tier_id, name.suffix] = entry.path
    logs = names.get(".log", set())
    for suffix in (".index", ".timeindex", ".txnindex"):
        for base, tier in sorted(names.get(suffix, set()) - logs):
            yield Violation(paths[base, tier, suffix], None, base, "orphan", "there is no .log file of this name")
    # Backups of .log files alone are fine; one file missing among others is not. Before 0.10.1 (magic 0 and 1) a
    # directory has no time index at all.
    indexed = names.get(".index", set()) | names.get(".timeindex", set())
    for segment in segments:
        name = parse_file_name(os.path.basename(segment.path))
        if name is None or name.transition:
            continue
        key = name.base_offset, name.tier_id
        if indexed and key not in names.get(".index", set()):
            where = segment.path.removesuffix(".log") + ".index"
            yield Violation(where, None, key[0], "missing", "the segment has no offset index")
        if indexed and key not in names.get(".timeindex", set()) and (names.get(".timeindex") or _magic(segment) == 2):
            where = segment.path.removesuffix(".log") + ".timeindex"
            yield Violation(where, None, key[0], "missing", "the segment has no time index")


def _magic(segment: Segment) -> int:
    header = b""
    with unless_deleted(segment.path), files.File(segment.path) as file:
        header = file.read(0, 17)
    return header[16] if len(header) == 17 else -1
