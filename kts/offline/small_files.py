"""Checks the small files of log directories and partitions: checkpoints, snapshots, names, offsets of groups."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from kts.codec.layout import HEADER_BYTES, read_header
from kts.coordinator_records.groups import TOPIC as GROUPS
from kts.dataset.committed import committed_in
from kts.dataset.partition import PartitionLog
from kts.errors import CorruptIndexError, CorruptRecordError, KtsError, KtsWarning, LogStorageError
from kts.offline.findings import Violation, limited, readable
from kts.segment import checkpoints, names
from kts.segment.index_checksums import IndexChecksums
from kts.segment.magic_checkpoint import MagicCheckpoint
from kts.segment.rereading import unless_deleted
from kts.segment.segment import Segment
from kts.segment.snapshots import read_snapshot, snapshot_paths
from kts.store import addresses
from kts.store.addresses import StorageOptions
from kts.store.expanded import without_compression
from kts.store.protocol import DirectoryEntry
from kts.store.source import Source, files, source_of

CHECKPOINTS = (
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
    names.RECOVERY_POINTS,
    names.CLEANER_OFFSETS,
)


# --- a log directory ------------------------------------------------------------------------------


def log_directories_of(
    paths: Iterable[str], logs: Iterable[PartitionLog], storage_options: StorageOptions = None
) -> Iterator[tuple[str, Source]]:
    """The paths that are log directories, whose checkpoint files are checked besides the partitions."""
    partitions = {addresses.absolute(log.path) for log in logs}
    for path in paths:
        source = source_of(path, storage_options)
        if source.directory_exists(path) and addresses.absolute(path) not in partitions:
            yield path, source


def verify_checkpoints(directory: str, source: Source = files) -> Iterator[Violation]:
    """Yield every fault in the checkpoint files of a log directory."""
    known = checkpoints.Checkpoints(directory, source)
    for name in CHECKPOINTS:
        if (fault := known.fault_of_file(name)) is not None:
            yield Violation(os.path.join(directory, name), None, None, "checkpoint", fault)
    for own in (IndexChecksums(directory, source), MagicCheckpoint(directory, source)):
        if own.fault is not None:
            yield Violation(own.path, None, None, "checkpoint", own.fault)


def verify_groups(logs: Iterable[PartitionLog]) -> Iterator[Violation]:
    """Yield every group that committed an offset beyond the end of its log, of all logs with each other."""
    known = {(log.topic, log.partition): log for log in logs}
    return limited(one for log in known.values() if log.topic == GROUPS for one in _groups_beyond(log, known))


def _groups_beyond(log: PartitionLog, known: Mapping[tuple[str, int], PartitionLog]) -> Iterator[Violation]:
    import pyarrow.compute as pc

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KtsWarning)
            found = committed_in([log], known, skip=True)
    except KtsError:  # the check of the partition says what is damaged
        return
    behind = found.filter(pc.fill_null(pc.less(found["lag"], 0), False)).to_pylist()
    for row in behind:
        place, offset = f"{row['topic']}-{row['partition']}", row["currentOffset"]
        message = (
            f"group {row['group']} committed offset {offset} of {place}, and its log ends at {row['logEndOffset']}"
        )
        yield Violation(log.path, None, None, "group", message)


# --- a partition ----------------------------------------------------------------------------------


def verify_small_files(log: PartitionLog, epochs: Sequence[tuple[int, int]], end: int) -> Iterator[Violation]:
    """Yield what the small files of a partition say that its log does not, of which ``end`` is the end."""
    for epoch, start in epochs:
        if start > end:
            path = os.path.join(log.path, names.LEADER_EPOCHS)
            message = f"epoch {epoch} starts at offset {start}, the log ends at {end}"
            yield Violation(path, None, start, "leader-epoch", message)
    if log.following_offset is None:
        yield from _broker_offsets(log)
    path = os.path.join(log.path, names.PARTITION_METADATA)
    if (fault := checkpoints.fault_of(path, log.source)) is not None:
        yield Violation(path, None, None, "partition-metadata", fault)


def _broker_offsets(log: PartitionLog) -> Iterator[Violation]:
    """Compare what the broker's checkpoints say of the partition with the end of its files."""
    directory, own = os.path.dirname(addresses.absolute(log.path)), f"{log.topic}-{log.partition}"
    if (stated := log._stated_start()) is not None and (end := log.end_before(stated)) is not None:
        message = f"{own} starts at offset {stated}, and its log ends at {end}"
        yield Violation(os.path.join(directory, names.LOG_START_OFFSETS), None, stated, "checkpoint", message)
    with suppress(LogStorageError):  # a malformed one is a fault of the directory
        if (stated := log.high_watermark) is not None and (end := log.end_before(stated)) is not None:
            message = f"the high watermark of {own} is {stated}, and its log ends at {end}: records are missing"
            yield Violation(os.path.join(directory, names.HIGH_WATERMARKS), None, stated, "checkpoint", message)


def verify_names(log: PartitionLog, segments: Sequence[Segment], end: int, sealed: bool) -> Iterator[Violation]:
    """Yield what the names in the directory of a partition show.

    Parameters
    ----------
    sealed : bool
        The last segment has the size with which ``kts.Log`` closed it.
    """
    entries = log.source.list_directory(log.path)
    yield from readable(_snapshots(snapshot_paths(entries), log.source, end, sealed))
    # A writer may be deleting files one by one, so only faults found twice count.
    if found := list(_lacking(log, segments, entries)):
        left = [segment for segment in segments if segment.source.exists(segment.path)]
        again = set(_lacking(log, left, log.source.list_directory(log.path)))
        yield from (one for one in found if one in again)


def _snapshots(paths: list[tuple[int, str]], source: Source, end: int, sealed: bool) -> Iterator[Violation]:
    for offset, path in paths:
        try:
            read_snapshot(path, source)
        except CorruptIndexError as error:
            yield Violation(path, error.position, offset, "snapshot", error.message)
            continue
        except LogStorageError as error:
            if error.errno != errno.ENOENT:  # else it was deleted meanwhile
                raise
            continue
        # A truncation inside a batch leaves the log end offset, and a snapshot there, beyond the last batch.
        if offset > end and not sealed:
            yield Violation(path, None, offset, "snapshot", f"taken at offset {offset}, but the log ends at {end}")


def _lacking(log: PartitionLog, segments: Sequence[Segment], entries: Iterable[DirectoryEntry]) -> Iterator[Violation]:
    """Missing and surplus files."""
    keys: dict[str, set[tuple[int, str]]] = {}
    paths: dict[tuple[int, str, str], str] = {}
    for entry in [] if log.remote_alone else entries:
        name = names.parse_file_name(without_compression(entry.name))
        if name is not None and not name.transition:
            keys.setdefault(name.suffix, set()).add((name.base_offset, name.tier_id))
            paths[name.base_offset, name.tier_id, name.suffix] = entry.path
    logs = keys.get(".log", set())
    for suffix in names.INDEX_SUFFIXES:
        for base, tier in sorted(keys.get(suffix, set()) - logs):
            yield Violation(paths[base, tier, suffix], None, base, "orphan", "there is no .log file of this name")
    # A backup of .log files alone is fine; an index that other segments have must not be missing. Before 0.10.1 (magic
    # 0 and 1) a directory has no time index at all.
    offset_indexes, time_indexes = keys.get(".index", set()), keys.get(".timeindex", set())
    if not offset_indexes and not time_indexes:
        return
    for segment in segments:
        name = names.parse_file_name(without_compression(os.path.basename(segment.path)))
        if name is None or name.transition or segment.remote:
            continue
        key, stem = (name.base_offset, name.tier_id), without_compression(segment.path).removesuffix(".log")
        if key not in offset_indexes:
            yield Violation(f"{stem}.index", None, key[0], "missing", "the segment has no offset index")
        if key not in time_indexes and (time_indexes or magic_of(segment) == 2):
            yield Violation(f"{stem}.timeindex", None, key[0], "missing", "the segment has no time index")


def magic_of(segment: Segment) -> int:
    """The magic of the first entry; -1 if it cannot be read."""
    first = None
    with suppress(CorruptRecordError), unless_deleted(segment.path, segment.source), segment.open() as file:
        first = read_header(file.read(0, HEADER_BYTES))
    return -1 if first is None else first.magic
