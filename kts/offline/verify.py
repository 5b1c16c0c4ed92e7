"""Checks that a segment, a partition or a log directory is as Kafka writes it.

One pass over the headers of each segment feeds all checks: the log itself, both indexes, leader epochs, transactions.
"""

from __future__ import annotations

import errno
import os
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kts._timeindex import OffsetIndex, TimeIndex
from kts.arguments import INT64_MAX, INT64_MIN
from kts.behaviour import KAFKA_TIMES, TimeRules
from kts.codec.columns import decode, scan_batches
from kts.codec.layout import HEADER_BYTES, read_header
from kts.coordinator_records.groups import TOPIC as GROUPS
from kts.dataset.committed import committed_in
from kts.dataset.options import Path
from kts.dataset.partition import LogDirs, NotInParts, PartitionLog, partition_of_segment
from kts.dataset.paths import open_path
from kts.errors import CorruptIndexError, CorruptRecordError, KtsError, KtsWarning, LogStorageError
from kts.remote import tiers
from kts.segment import checkpoints, names, transactions
from kts.segment.damage import AFTER_DAMAGE_BYTES, SearchBudget, next_sound_entry
from kts.segment.entries import at, greatest_timestamp
from kts.segment.index import SEGMENT_OFFSETS
from kts.segment.index_checksums import IndexChecksums, Sealed
from kts.segment.magic_checkpoint import MagicCheckpoint, state_of
from kts.segment.rereading import unless_deleted
from kts.segment.segment import Lookups, Segment, bools, int64
from kts.segment.snapshots import read_snapshot, snapshot_paths
from kts.store import addresses, files
from kts.store.expanded import without_compression
from kts.store.protocol import ByteRange, DirectoryEntry, Readable

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

Progress = Callable[[int], None]
CHECKPOINTS = (
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
    names.RECOVERY_POINTS,
    names.CLEANER_OFFSETS,
)
LISTED = 20  # violations of one kind in one file; the rest are counted
# Columns of a deep check. Headers are included so that the decoder reads every field of a record.
DEEP_COLUMNS = "offset timestamp headers position magic timestampType baseOffset lastOffsetDelta maxTimestamp".split()
HEADERS_OF_BYTES = 2**23  # of a log, looked at together;
HEADERS_OF_FETCHED_BYTES = 2**25  # where a store gives them: all of a request
NO_NEXT = INT64_MAX
NO_TIME = INT64_MIN  # below all times
NEGATIVE = "is negative, and such are never indexed"  # the index check's message for timestamps before 1970


@dataclass(frozen=True)
class Violation:
    """One fault in a file.

    Attributes
    ----------
    path : str
        The file.
    position : int or None
        Byte position in it.
    offset : int or None
        Kafka offset.
    kind : str
        A short name of the kind of fault.
    message : str
        What was expected and what was found.
    """

    path: str
    position: int | None
    offset: int | None
    kind: str
    message: str

    def __str__(self) -> str:
        where = "" if self.position is None else f" at position {self.position}"
        return f"{self.path}{where}: {self.kind}: {self.message}"


def verify(
    path: Path,
    *,
    deep: bool = False,
    progress: Progress | None = None,
    allow_negative_timestamps: bool = False,
    minus_one_is_a_time: bool = False,
) -> Iterator[Violation]:
    """Yield every fault under a path; nothing if all files are sound.

    Parameters
    ----------
    path : path
        A segment file, a partition directory or a log directory.
    deep : bool
        Also decode every record, and compare counts, lengths, inner CRCs, offsets and times with the headers.
    progress : callable, optional
        Called with the number of ``.log`` bytes that were just read.
    allow_negative_timestamps : bool
        Timestamps before 1970 count and may be in time indexes, as with ``allow.negative.timestamps``.
    minus_one_is_a_time : bool
        They count, and -1 is one of them, as with ``message.timestamp.missing=-1``.

    Returns
    -------
    iterator of Violation
        At most 20 of a kind in a file, then one with the number of the others.

    Notes
    -----
    It checks CRCs, sizes, the order of offsets, both indexes against the log, leader epochs, aborted transactions,
    producer snapshots, checkpoint files, and missing and surplus files. Files with names that are not Kafka's are
    ignored, and so are ``.deleted``, ``.cleaned`` and ``.swap`` files.
    """
    opened, rules = open_path(path), TimeRules.of(allow_negative_timestamps, minus_one_is_a_time)
    if isinstance(opened, LogDirs):
        yield from _readable(verify_checkpoints(os.fspath(path)))
        yield from _readable(verify_groups(opened.values()))
        for log in opened.values():
            yield from verify_partition(log, deep, progress, rules)
    else:
        yield from verify_partition(opened, deep, progress, rules)


def verify_partition(
    log: PartitionLog, deep: bool = False, progress: Progress | None = None, rules: TimeRules = KAFKA_TIMES
) -> Iterator[Violation]:
    """Yield every fault in an open partition; see ``verify``."""
    return _limited(_PartitionCheck(log, deep, progress, rules).run())


@dataclass(frozen=True)
class PartFound:
    """What the check of a part of a partition found, and what the check of the whole needs of it.

    Attributes
    ----------
    path, base_offset, begins_damaged
        Of its first segment.
    violations : list of Violation
        The first of each kind in a file.
    counts : dict of (path, kind) to int
        Of all violations.
    seams : list of (path, first missing offset, base offset)
        Gaps between its segments.
    gaps : bool
        Whether there are gaps within its segments.
    """

    path: str
    base_offset: int
    begins_damaged: bool
    last_offset: int
    violations: list[Violation]
    counts: dict[tuple[str, str], int]
    seams: list[tuple[str, int, int]]
    gaps: bool


def verify_part(
    log: PartitionLog, deep: bool = False, progress: Progress | None = None, rules: TimeRules = KAFKA_TIMES
) -> PartFound:
    """Check the segments of a part of a partition, apart from the others; the other arguments are those of ``verify``.

    Raises
    ------
    NotInParts
        There are transactions: what a part says of them depends on the parts before it.
    """
    check = _PartitionCheck(log, deep, progress, rules)
    limit, first = _Limit(), log.segments[0]
    found = list(limit.take(check.part()))
    return PartFound(
        first.path,
        first.base_offset,
        check.begins_damaged,
        check.last_offset,
        found,
        limit.counts,
        check.seams,
        check.gaps,
    )


def verify_joined(log: PartitionLog, parts: Sequence[PartFound]) -> Iterator[Violation]:
    """What ``verify_partition`` yields, from the checks of all parts of a partition."""
    return _PartitionCheck(log, False, None, KAFKA_TIMES).joined(parts)


def verify_segment(segment: Segment, following: int | None) -> Iterator[Violation]:
    """Yield every fault in a segment and its indexes that it shows by itself; see ``verify``.

    Parameters
    ----------
    following : int or None
        The base offset of the next segment; None if this is the last one.
    """
    log = partition_of_segment(segment)
    check = _PartitionCheck(log, deep=False, progress=None, rules=KAFKA_TIMES)
    return _limited(_readable(check.segment(segment, None, following, None, {}), segment.path))


def lost_end(segment: Segment, following: int | None) -> Iterator[Violation]:
    """Yield that a segment lost its end, if its indexes know it; arguments as for ``verify_segment``."""
    lost = None if following is None else Lookups(segment).lost_end(following)
    if lost is not None:
        yield Violation(segment.path, lost.position, None, "gap", lost.message)


def apart(log: PartitionLog) -> Sequence[PartitionLog]:
    """The partition; or each of its segments, where these are files given by name: they are checked one by one."""
    if not log.lone:
        return [log]
    return [partition_of_segment(segment) for segment in log.segments]


def beside(paths: Iterable[str], logs: Iterable[PartitionLog]) -> Iterator[str]:
    """The paths that are log directories: their checkpoint files are checked beside the partitions."""
    partitions = {addresses.absolute(log.path) for log in logs}
    for path in paths:
        if files.directory_exists(path) and addresses.absolute(path) not in partitions:
            yield path


def verify_checkpoints(directory: str) -> Iterator[Violation]:
    """Yield every fault in the checkpoint files of a log directory."""
    known = checkpoints.Checkpoints(directory)
    for name in CHECKPOINTS:
        if (fault := known.fault_of_file(name)) is not None:
            yield Violation(os.path.join(directory, name), None, None, "checkpoint", fault)
    for own in (IndexChecksums(directory), MagicCheckpoint(directory)):
        if own.fault is not None:
            yield Violation(own.path, None, None, "checkpoint", own.fault)


def verify_groups(logs: Iterable[PartitionLog]) -> Iterator[Violation]:
    """Yield every group that committed an offset beyond the end of its log, of all logs with each other."""
    known = {(log.topic, log.partition): log for log in logs}
    return _limited(one for log in known.values() if log.topic == GROUPS for one in _groups_beyond(log, known))


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


def _limited(findings: Iterable[Violation]) -> Iterator[Violation]:
    limit = _Limit()
    yield from limit.take(findings)
    yield from limit.rest()


class _Limit:
    """At most ``LISTED`` violations of a kind in a file, then the number of the others."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}

    def take(self, findings: Iterable[Violation]) -> Iterator[Violation]:
        for one in findings:
            key = one.path, one.kind
            self.counts[key] = self.counts.get(key, 0) + 1
            if self.counts[key] <= LISTED:
                yield one

    def rest(self) -> Iterator[Violation]:
        for (path, kind), count in self.counts.items():
            if count > LISTED:
                yield Violation(path, None, None, kind, f"{count - LISTED} more of this kind are not listed")


def _readable(findings: Iterator[Violation], path: str = "") -> Iterator[Violation]:
    """The violations; a file that cannot be read is the last one."""
    try:
        yield from findings
    except (LogStorageError, CorruptRecordError) as error:
        yield Violation(error.path or path, error.position, None, "unreadable", error.message)


# --- a partition ----------------------------------------------------------------------------------


class _PartitionCheck:
    """The checks of one partition, with the state that continues from one segment to the next."""

    def __init__(self, log: PartitionLog, deep: bool, progress: Progress | None, rules: TimeRules) -> None:
        self.log = log
        self.deep = deep
        self.progress = progress
        self.rules = rules
        self.epochs: list[tuple[int, int]] = []  # (epoch, start offset)
        self.magics = log.noted_magics()
        self.last_offset = -1
        self.seams: list[tuple[str, int, int]] = []  # segment, first missing offset, base offset
        self.gaps = self.damaged = self.begins_damaged = self.damaged_before = self.transactional = False
        self.open_transactions: dict[int, int] = {}  # first offset by producer id
        self.first_offset = 0  # of the first segment

    def run(self) -> Iterator[Violation]:
        log = self.log
        try:
            segments = log.listed(skip_damage=True, whole=True).segments
        except (LogStorageError, CorruptRecordError) as error:
            yield Violation(error.path or log.path, error.position, None, "unreadable", error.message)
            return
        yield from _readable(self.leader_epochs(), log.path)
        sealed = log.sealed_indexes()
        yield from self.segments(segments, sealed)
        yield from _readable(self.hidden_copies(), log.path)
        yield from self.whole(segments, sealed)

    def part(self) -> Iterator[Violation]:
        """The segments of a part of a partition."""
        for _ in _readable(self.leader_epochs()):
            pass  # of the whole
        yield from self.segments(self.log.listed(skip_damage=True, whole=True).segments, self.log.sealed_indexes())
        if self.log.following_offset is None:
            yield from _readable(self.hidden_copies(), self.log.path)

    def joined(self, parts: Sequence[PartFound]) -> Iterator[Violation]:
        """The partition, of which each part was checked."""
        limit = _Limit()
        yield from limit.take(_readable(self.leader_epochs(), self.log.path))
        for part in parts:
            yield from limit.take(part.violations)
            listed = Counter((one.path, one.kind) for one in part.violations)
            for key, count in part.counts.items():
                limit.counts[key] += count - listed[key]
            if 0 <= self.last_offset < part.base_offset - 1 and not part.begins_damaged:
                self.seams.append((part.path, self.last_offset + 1, part.base_offset))
            self.seams += part.seams
            self.gaps |= part.gaps
            self.last_offset = max(self.last_offset, part.last_offset)
        yield from limit.take(
            self.whole(self.log.listed(skip_damage=True, whole=True).segments, self.log.sealed_indexes())
        )
        yield from limit.rest()

    def segments(self, segments: list[Segment], sealed: dict[int, Sealed]) -> Iterator[Violation]:
        """The segments one by one; a store fetches each file ahead."""
        self.first_offset = segments[0].base_offset if segments else 0
        beside = [_indexes_of(segment) for segment in segments]
        paths = [path for segment, two in zip(segments, beside, strict=True) for path in (*two, segment.path)]
        opened = files.in_order([ByteRange(path, 0, None) for path in paths])
        for number, (segment, two) in enumerate(zip(segments, beside, strict=True)):
            indexes = {path: data for path in two if (data := _fetched(next(opened))) is not None}
            file = next(opened)
            if (damage := files.damage_of(segment.path)) is not None:
                yield Violation(segment.path, damage.position, None, "compression", damage.message)
            following = segments[number + 1].base_offset if number + 1 < len(segments) else self.log.following_offset
            found = self.segment(segment, file, following, sealed.get(segment.base_offset), indexes)
            yield from _readable(found, segment.path)
            if following is not None and not files.exists(segment.path):  # deleted meanwhile: no gap
                self.last_offset = max(self.last_offset, following - 1)
            self.begins_damaged |= number == 0 and self.damaged

    def whole(self, segments: list[Segment], sealed: dict[int, Sealed]) -> Iterator[Violation]:
        """What only the whole partition shows, after its segments."""
        # Only the cleaner leaves gaps within segments. Without any, a gap between segments is a missing segment.
        for path, first, base in self.seams if not self.gaps else []:
            message = f"offsets {first} to {base - 1} are missing before this segment"
            yield Violation(path, 0, first, "gap", message)
        for fault in self.log.tier_faults():
            yield Violation(fault.path, None, None, fault.kind, fault.message)
        if self.log.late_start:
            yield Violation(self.log.path, None, self.log.log_start_offset, "gap", self.log.late_start)
        if not self.log.lone:
            yield from _readable(self.small_files())
            yield from _readable(self.names(segments, sealed))

    def hidden_copies(self) -> Iterator[Violation]:
        """Copies in tiered storage of which local segments are read instead, one by one."""
        for segment, following in self.log.hidden_copies():
            alone = partition_of_segment(segment)
            check = _PartitionCheck(alone, self.deep, None, self.rules)
            yield from _readable(check.segment(segment, None, following, None, {}), segment.path)

    def segment(
        self,
        segment: Segment,
        file: Readable | None,
        following: int | None,
        sealed: Sealed | None,
        fetched: Mapping[str, bytes],
    ) -> Iterator[Violation]:
        """A segment, with its log and its indexes as far as a store gave them already."""
        with unless_deleted(segment.path):
            if segment.remote:
                for fault in tiers.faults(segment.path):
                    yield Violation(fault.path, None, None, fault.kind, fault.message)
            yield from self.log_and_indexes(segment, file, following, fetched)
            yield from _sealed(segment, sealed)

    def log_and_indexes(
        self, segment: Segment, file: Readable | None, following: int | None, fetched: Mapping[str, bytes]
    ) -> Iterator[Violation]:
        log = _LogCheck(segment, following, self.deep, self.rules, file)
        txn_path = segment.txn_index_path
        is_cut = segment.remote and tiers.is_cut(segment.path)  # its indexes are of the whole segment
        indexes: list[_IndexCheck] = []
        with suppress(CorruptIndexError):  # an object of tiered storage: its faults have it
            if not is_cut and (path := segment.offset_index_path) is not None:
                indexes.append(_OffsetIndexCheck(log, path, fetched.get(path)))
            if not is_cut and (path := segment.time_index_path) is not None:
                indexes.append(_TimeIndexCheck(log, path, fetched.get(path)))
        aborted: list[transactions.AbortedTransaction] = []
        markers: set[tuple[int, int]] = set()  # (producer id, offset) of abort markers
        try:
            for found in log.walk(self.progress):
                if isinstance(found, Violation):
                    yield found
                    continue
                for index in indexes:
                    yield from index.slice(found)
                yield from self.epochs_of_batches(segment, found)
                yield from self.magics_of_batches(segment, found)
                for marker, first in self.ended_transactions(segment, found):
                    if marker.kind == transactions.ABORT:
                        markers.add((marker.producer_id, marker.offset))
                        if first is not None:
                            aborted.append(transactions.AbortedTransaction(marker.producer_id, first, marker.offset))
        finally:
            if log.damaged:  # what it held is not known, and nothing behind it is compared with that
                self.gaps = self.damaged_before = True
                self.open_transactions.clear()
            self.damaged = log.damaged
        stated = tiers.stated_max_ms(segment.path) if segment.remote else None
        if stated is not None and not log.damaged and log.max_timestamp >= 0 and log.max_timestamp != stated:
            message = f"the greatest timestamp is {log.max_timestamp}, but its copy is stated to have {stated}"
            yield Violation(segment.path, None, None, "copy", message)
        # Both indexes of an active segment are preallocated while the broker runs and after it was killed.
        parent = os.path.dirname(addresses.absolute(self.log.path))
        in_use = following is None and bool(indexes) and all(index.preallocated for index in indexes)
        zero_tail_allowed = in_use and not files.exists(os.path.join(parent, names.CLEAN_SHUTDOWN))
        for index in indexes:
            yield from index.end(zero_tail_allowed)
        if is_cut:
            yield from lost_end(segment, following)
        else:
            yield from _txn_index(segment, txn_path, aborted, markers, log.damaged)
        if segment.remote and self.transactional and not (is_cut or self.damaged_before or self.log.lone):
            yield from self.open_after(segment)
        if 0 <= self.last_offset < segment.base_offset - 1 and not log.damaged:
            self.seams.append((segment.path, self.last_offset + 1, segment.base_offset))
        # Wrapper messages do not show their gaps.
        self.gaps |= log.gaps or log.wrappers or (log.batches == 0 and following is not None)
        self.last_offset = max(self.last_offset, log.last_offset, segment.base_offset - 1)

    def leader_epochs(self) -> Iterator[Violation]:
        """Read the leader epochs; they are compared with batches only if they are in order."""
        path = os.path.join(self.log.path, names.LEADER_EPOCHS)
        if self.log.lone or (not self.log.remote_alone and (not files.exists(path) or files.size_of(path) == 0)):
            return
        epochs = self.log.leader_epochs if self.log.remote_alone else checkpoints.read_leader_epochs(path)
        if epochs is None:
            yield Violation(path, None, None, "leader-epoch", checkpoints.fault_of(path) or "it is gone")
            return
        in_order = True
        for a, b in zip(epochs, epochs[1:], strict=False):
            if b[0] <= a[0] or b[1] < a[1]:
                in_order = False
                message = f"epoch {b[0]} at offset {b[1]} does not follow {a[0]} at {a[1]}"
                yield Violation(path, None, b[1], "leader-epoch", message)
        self.epochs = epochs if in_order else []

    def epochs_of_batches(self, segment: Segment, headers: _Headers) -> Iterator[Violation]:
        if not self.epochs:
            return
        starts = np.array([start for _, start in self.epochs], np.int64)
        numbers = np.array([epoch for epoch, _ in self.epochs], np.int64)
        place = np.searchsorted(starts, headers.first, "right") - 1
        wrong = headers.sound & (headers.leader_epoch >= 0) & (place >= 0)
        wrong &= numbers[np.maximum(place, 0)] != headers.leader_epoch
        for i in np.flatnonzero(wrong).tolist():
            message = f"the batch has leader epoch {headers.leader_epoch[i]}, the checkpoint says {numbers[place[i]]}"
            yield Violation(segment.path, int(headers.position[i]), int(headers.first[i]), "leader-epoch", message)

    def magics_of_batches(self, segment: Segment, headers: _Headers) -> Iterator[Violation]:
        """Entries that are newer than ``kts.Log`` noted: a fetch of an old client would send them as they are."""
        noted = self.magics.get(segment.base_offset)
        if noted is None or noted.log != state_of(segment.path):
            return
        starts, magics = np.array(noted.runs).T
        known = magics[np.searchsorted(starts, headers.position, "right") - 1]
        for i in np.flatnonzero(headers.sound & (headers.magic > known)).tolist():
            message = f"magic {headers.magic[i]}, but kts.Log noted {known[i]} when it closed this file"
            yield Violation(segment.path, int(headers.position[i]), int(headers.first[i]), "magic", message)

    def ended_transactions(
        self, segment: Segment, headers: _Headers
    ) -> Iterator[tuple[transactions.Marker, int | None]]:
        """The markers of a slice, each with the first offset of the transaction it ends, if that had batches."""
        ours = np.flatnonzero(headers.transactional & headers.sound)
        self.transactional |= bool(ours.size)
        if ours.size and self.log.is_part:
            raise NotInParts
        for i in ours.tolist():
            producer = int(headers.producer_id[i])
            if not headers.control[i]:
                self.open_transactions.setdefault(producer, int(headers.first[i]))
                continue
            try:
                found = transactions.marker_at(segment, int(headers.position[i]), int(headers.size[i]), producer)
            except CorruptRecordError:
                continue
            for marker in found:
                yield marker, self.open_transactions.pop(producer, None)

    def names(self, segments: list[Segment], sealed: dict[int, Sealed]) -> Iterator[Violation]:
        """What the names in the directory show."""
        entries = files.list_directory(self.log.path)
        yield from _readable(self.snapshots(snapshot_paths(entries), segments, sealed))
        # A writer may be deleting files one by one, so only faults found twice count.
        if found := list(_lacking(self.log, segments, entries)):
            left = [segment for segment in segments if files.exists(segment.path)]
            again = set(_lacking(self.log, left, files.list_directory(self.log.path)))
            yield from (one for one in found if one in again)

    def open_after(self, segment: Segment) -> Iterator[Violation]:
        """Compare the transactions open after a copy with its producer snapshot, as far back as the log goes."""
        with suppress(CorruptIndexError):  # the faults of its objects have it
            place, stated = tiers.open_after(segment.path)
            stated = {producer: first for producer, first in stated.items() if first >= self.first_offset}
            if stated != self.open_transactions:
                message = f"expected the open transactions {self.open_transactions} after the copy, found {stated}"
                yield Violation(place, None, None, "snapshot", message)

    def snapshots(
        self, paths: list[tuple[int, str]], segments: list[Segment], sealed: dict[int, Sealed]
    ) -> Iterator[Violation]:
        end = self.last_offset + 1
        known = sealed.get(segments[-1].base_offset) if segments else None
        # A truncation inside a batch leaves the log end offset, and a snapshot there, beyond the last batch.
        unchanged = known is not None and known.log_bytes == segments[-1].size_bytes
        for offset, path in paths:
            try:
                read_snapshot(path)
            except CorruptIndexError as error:
                yield Violation(path, error.position, offset, "snapshot", error.message)
                continue
            except LogStorageError as error:
                if error.errno != errno.ENOENT:  # else it was deleted meanwhile
                    raise
                continue
            if offset > end and not unchanged:
                yield Violation(path, None, offset, "snapshot", f"taken at offset {offset}, but the log ends at {end}")

    def small_files(self) -> Iterator[Violation]:
        end = self.last_offset + 1
        for epoch, start in self.epochs:
            if start > end:
                path = os.path.join(self.log.path, names.LEADER_EPOCHS)
                message = f"epoch {epoch} starts at offset {start}, the log ends at {end}"
                yield Violation(path, None, start, "leader-epoch", message)
        if self.log.following_offset is None:
            yield from self.offsets_beside()
        path = os.path.join(self.log.path, names.PARTITION_METADATA)
        if (fault := checkpoints.fault_of(path)) is not None:
            yield Violation(path, None, None, "partition-metadata", fault)

    def offsets_beside(self) -> Iterator[Violation]:
        """Compare what the broker's checkpoints say of the partition with the end of its files."""
        directory, own = os.path.dirname(addresses.absolute(self.log.path)), f"{self.log.topic}-{self.log.partition}"
        if (stated := self.log._stated_start()) is not None and (end := self.log.end_before(stated)) is not None:
            message = f"{own} starts at offset {stated}, and its log ends at {end}"
            yield Violation(os.path.join(directory, names.LOG_START_OFFSETS), None, stated, "checkpoint", message)
        with suppress(LogStorageError):  # a malformed one is a fault of the directory
            if (stated := self.log.high_watermark) is not None and (end := self.log.end_before(stated)) is not None:
                message = f"the high watermark of {own} is {stated}, and its log ends at {end}: records are missing"
                yield Violation(os.path.join(directory, names.HIGH_WATERMARKS), None, stated, "checkpoint", message)


# --- the log of a segment -------------------------------------------------------------------------


@dataclass
class _Headers:
    """The batch headers of one slice as arrays, with running values from the batches before them."""

    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    magic: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]  # first offset; of a wrapper message, the one after the previous entry
    last: npt.NDArray[np.int64]
    wrapper: npt.NDArray[np.bool_]
    max_timestamp: npt.NDArray[np.int64]
    running_max: npt.NDArray[np.int64]
    filled_max: npt.NDArray[np.int64]  # running_max without batches that have no records left
    leader_epoch: npt.NDArray[np.int64]
    sound: npt.NDArray[np.bool_]
    previous_last: npt.NDArray[np.int64]
    producer_id: npt.NDArray[np.int64]
    transactional: npt.NDArray[np.bool_]
    control: npt.NDArray[np.bool_]
    count: npt.NDArray[np.int64]  # -1 for a wrapper message


@dataclass
class _LogCheck:
    """One pass over the headers of a segment, with its state so far."""

    segment: Segment
    next_base: int | None  # base offset of the next segment
    deep: bool
    rules: TimeRules
    file: Readable | None = None  # the log, if it is open
    reached: int = 0  # the offset after the last but one batch: no CRC covers the offset of the last
    last_offset: int = -1
    max_timestamp: int = -1
    filled_max: int = -1
    wrappers: bool = False
    batches: int = 0
    magics: set[int] = field(default_factory=set)
    damaged: bool = False
    gaps: bool = False

    def __post_init__(self) -> None:
        self.max_timestamp = self.filled_max = self.no_time
        highest = self.segment.base_offset + SEGMENT_OFFSETS
        self.highest = highest if self.next_base is None else min(highest, self.next_base)

    @property
    def no_time(self) -> int:
        return NO_TIME if self.rules.before_1970 else -1

    def walk(self, progress: Progress | None) -> Iterator[Violation | _Headers]:
        """All headers of the segment and their faults; continues after damage."""
        segment = self.segment
        start, first_bytes, budget = 0, None, SearchBudget()
        most = HEADERS_OF_BYTES if self.file is None else HEADERS_OF_FETCHED_BYTES
        while True:
            try:
                for slice_start, data in segment.slices(start, None, most, first_bytes, self.file):
                    try:
                        found = scan_batches(data)
                    except CorruptRecordError as error:
                        sound = data[: error.position or 0]
                        start = slice_start + len(sound)
                        if sound:
                            yield from self.slice(slice_start, sound, scan_batches(sound))
                        raise at(error, segment.path, slice_start) from error.__cause__
                    yield from self.slice(slice_start, data, found)
                    start = slice_start + len(data)
                    if progress is not None:
                        progress(len(data))
            except CorruptRecordError as error:
                self.damaged = True
                zeros = _zero_tail(segment, start)
                if zeros:
                    yield Violation(segment.path, start, None, "zero-tail", f"{zeros} zero bytes after the last batch")
                    return
                yield Violation(segment.path, start, error.offset, "batch", error.message)
                behind = next_sound_entry(segment, start, segment.size_bytes, self.reached, budget)
            else:
                size = segment.size_bytes
                if start >= size:
                    return
                self.damaged = True
                behind = next_sound_entry(segment, start, size, self.reached, budget)
                message = f"{size - start} bytes after the last whole batch: it was cut, or its size is wrong"
                yield Violation(segment.path, start, None, "cut-tail" if behind is None else "batch", message)
            if behind is None:
                return
            start, first_bytes = behind, AFTER_DAMAGE_BYTES

    def slice(self, start: int, data: memoryview, found: pa.RecordBatch) -> Iterator[Violation | _Headers]:
        headers = self.headers(start, data, found)
        yield from self.check_headers(headers)
        # A batch that was reported is not compared any further.
        headers.sound &= headers.last < self.highest
        headers.sound &= (headers.magic < 2) | (headers.count >= 0)
        yield headers
        if self.deep:
            yield from self.check_records(start, data, headers)
        good = headers.sound
        if good.any():
            self.reached = max(int(headers.last[good][-2]) + 1, 0) if good.sum() > 1 else self.reached
            self.last_offset = max(self.last_offset, int(headers.last[good].max()))
            self.max_timestamp = max(self.max_timestamp, int(headers.running_max[-1]))
            self.filled_max = max(self.filled_max, int(headers.filled_max[-1]))
            self.wrappers |= bool(headers.wrapper.any())
        self.batches += len(good)
        self.magics |= set(np.unique(headers.magic[good]).tolist())
        self.damaged |= not good.all()

    def headers(self, start: int, data: memoryview, found: pa.RecordBatch) -> _Headers:
        last = int64(found, "lastOffset")
        sound = bools(found, "crcOk")
        # No CRC covers the offset: one that the segment cannot hold is not compared with what follows.
        sound_places = np.maximum.accumulate(np.where(sound & (last < self.highest), np.arange(len(last)), -1))
        lasts = np.where(sound_places >= 0, last[sound_places], self.last_offset)
        previous = np.concatenate([[self.last_offset], lasts[:-1]]).astype(np.int64)
        wrapper = (int64(found, "magic") < 2) & (int64(found, "codec") > 0)
        times = _times(found, data, self.rules) if self.rules.before_1970 else int64(found, "maxTimestamp")
        none = self.no_time
        filled = sound & (int64(found, "count") != 0)
        return _Headers(
            position=int64(found, "position") + start,
            size=int64(found, "sizeInBytes"),
            magic=int64(found, "magic"),
            first=np.where(wrapper, previous + 1, int64(found, "baseOffset")),
            last=last,
            wrapper=wrapper,
            max_timestamp=times,
            running_max=np.maximum(np.maximum.accumulate(np.where(sound, times, none)), self.max_timestamp),
            filled_max=np.maximum(np.maximum.accumulate(np.where(filled, times, none)), self.filled_max),
            leader_epoch=int64(found, "partitionLeaderEpoch"),
            sound=sound,
            previous_last=previous,
            producer_id=int64(found, "producerId"),
            transactional=bools(found, "transactional"),
            control=bools(found, "control"),
            count=int64(found, "count"),
        )

    def check_headers(self, headers: _Headers) -> Iterator[Violation]:
        base, following = self.segment.base_offset, self.next_base
        first, last, good = headers.first, headers.last, headers.sound
        known = np.where(headers.wrapper, last, first)  # the first offset that the header itself states
        below = good & (known < base)
        checks: list[tuple[npt.NDArray[np.bool_], str, Callable[[int], str]]] = [
            (~good, "crc", lambda i: "the CRC of the batch is not the stored one"),
            (
                good & (headers.magic == 2) & (headers.count < 0),
                "records",
                lambda i: f"the record count {headers.count[i]} is negative",
            ),
            (
                good & (last < first) & ~headers.wrapper,
                "offset",
                lambda i: f"last offset {last[i]} is below {first[i]}",
            ),
            (below, "offset", lambda i: f"offset {first[i]} is below the segment's base offset {base}"),
            (
                good & ~below & (known <= headers.previous_last),
                "offset",
                lambda i: f"offset {first[i]} does not follow {headers.previous_last[i]}, the last one before it",
            ),
            (
                good & (last >= (NO_NEXT if following is None else following)),
                "offset",
                lambda i: f"last offset {last[i]} reaches into the next segment, which starts at {following}",
            ),
            (
                good & (last - base >= SEGMENT_OFFSETS),
                "offset",
                lambda i: f"offset {last[i]} is more than {SEGMENT_OFFSETS - 1} above the base offset {base}",
            ),
        ]
        for wrong, kind, say in checks:
            for i in np.flatnonzero(wrong).tolist():
                yield Violation(self.segment.path, int(headers.position[i]), int(first[i]), kind, say(i))
        exact = good & ~headers.wrapper
        between = (first > headers.previous_last + 1) & (headers.previous_last >= 0)
        self.gaps |= bool((exact & (between | (headers.count < last - first + 1))).any())

    def check_records(self, start: int, data: memoryview, headers: _Headers) -> Iterator[Violation]:
        """Decode every record: the decoder checks counts, lengths and inner CRCs, this method offsets and times."""
        begin = 0
        while begin < len(data):
            end = following = len(data)
            try:
                records = decode(data[begin:], DEEP_COLUMNS)
            except CorruptRecordError as error:
                end = begin + (error.position or 0)
                records = decode(data[begin:end], DEEP_COLUMNS)
                i = int(np.searchsorted(headers.position, start + end))
                if headers.sound[i]:
                    yield Violation(self.segment.path, start + end, error.offset, "records", error.message)
                following = end + int(headers.size[i])
            yield from self.compare_records(start + begin, records, headers)
            begin = following

    def compare_records(self, start: int, records: pa.RecordBatch, headers: _Headers) -> Iterator[Violation]:
        if records.num_rows == 0:
            return
        position = int64(records, "position")
        starts = np.flatnonzero(np.concatenate([[True], position[1:] != position[:-1]]))
        ends = np.concatenate([starts[1:], [len(position)]])
        batches = np.searchsorted(headers.position, position[starts] + start)
        offsets, times = int64(records, "offset"), int64(records, "timestamp")

        def violation(i: int, offset: int, kind: str, message: str) -> Violation:
            return Violation(self.segment.path, int(position[i] + start), offset, kind, message)

        rises = np.concatenate([[True], offsets[1:] > offsets[:-1]])
        rises[starts] = True
        for i in np.flatnonzero(~rises).tolist():
            message = f"record offset {offsets[i]} follows {offsets[i - 1]} in the same batch"
            yield violation(i, int(offsets[i]), "records", message)
        lowest, highest = np.minimum.reduceat(offsets, starts), np.maximum.reduceat(offsets, starts)
        latest = np.maximum.reduceat(times, starts)
        latest_time = np.maximum.reduceat(np.where(times == -1, NO_TIME, times), starts)
        stated_last, stated_max = headers.last[batches], headers.max_timestamp[batches]
        stated_max = np.where(stated_max == NO_TIME, -1, stated_max)
        wrapper, magic = headers.wrapper[batches], headers.magic[batches]
        outside = (highest > stated_last) | (~wrapper & (lowest < headers.first[batches]))
        outside |= wrapper & ((highest != stated_last) | (lowest <= headers.previous_last[batches]))
        for i in np.flatnonzero(outside).tolist():
            message = f"records have the offsets {lowest[i]} to {highest[i]}, the header says up to {stated_last[i]}"
            yield violation(int(starts[i]), int(lowest[i]), "records", message)
        # A compacted batch may have lost the record with its max timestamp; the others must not exceed it.
        whole = (ends - starts) == stated_last - headers.first[batches] + 1
        wrong = (magic == 2) & ((latest > stated_max) | (whole & (np.maximum(latest, -1) != stated_max)))
        wrong &= int64(records, "timestampType")[starts] == 0
        wrong &= (stated_max >= -1) | (latest_time > stated_max) | (whole & (latest_time != stated_max))  # KIP-228
        for i in np.flatnonzero(wrong).tolist():
            message = f"the greatest record timestamp is {latest[i]}, the header says {stated_max[i]}"
            yield violation(int(starts[i]), int(lowest[i]), "timestamp", message)


def _zero_tail(segment: Segment, start: int) -> int:
    """Number of bytes from a position to the end, if all are zero."""
    with segment.open() as file:
        size, position = file.size(), start
        while position < size:
            data = file.read(position, 2**20)
            if not data or any(data):
                return 0
            position += len(data)
    return size - start


def _times(found: pa.RecordBatch, data: memoryview, rules: TimeRules) -> npt.NDArray[np.int64]:
    """The greatest timestamp of each batch if those before 1970 count; ``NO_TIME`` if it has none."""
    times = int64(found, "maxTimestamp").copy()
    places, sizes = int64(found, "position"), int64(found, "sizeInBytes")
    for i in np.flatnonzero(rules.hides(times) & bools(found, "crcOk")).tolist():
        try:
            inside = int64(decode(data[places[i] : places[i] + sizes[i]], ["timestamp"]), "timestamp")
        except CorruptRecordError:  # the deep check reports it
            continue
        greatest = greatest_timestamp(inside, rules)
        times[i] = NO_TIME if greatest is None else greatest
    if not rules.minus_one:
        times[times == -1] = NO_TIME
    return times


# --- the indexes of a segment ---------------------------------------------------------------------


class _IndexCheck(ABC):
    """Compares an index file with the log, slice by slice.

    The two kinds differ in the rule for an entry (``compare``) and in the rule for the whole file (``at_end``).
    """

    kind: str
    entry_bytes: int

    def __init__(self, log: _LogCheck, path: str, index: OffsetIndex | TimeIndex) -> None:
        self.log = log
        self.path = path
        allowed = NEGATIVE if log.rules.before_1970 else None
        self.lines = [line for line in index.check() if allowed is None or not line.endswith(allowed)]
        self.preallocated = any(line.startswith("preallocated") for line in self.lines)
        self.usable = not any(line.startswith("entry ") for line in self.lines)
        self.columns = index.entries()
        self.done = 0  # entries that were compared

    def slice(self, headers: _Headers) -> Iterator[Violation]:
        """Compare the entries that point to the next batches of the log."""
        if self.usable and len(headers.position):
            yield from self.compare(headers)

    def end(self, zero_tail_allowed: bool) -> Iterator[Violation]:
        """The faults of the file by itself, and those that only the whole log shows."""
        for line in self.lines:
            if not line.startswith("preallocated"):
                yield Violation(self.path, None, None, "index-file", line)
            elif not zero_tail_allowed:
                yield Violation(self.path, None, None, "zero-tail", line)
        if self.usable:
            yield from self.at_end()

    @abstractmethod
    def compare(self, headers: _Headers) -> Iterator[Violation]:
        """The faults of the entries that point to these batches."""

    @abstractmethod
    def at_end(self) -> Iterator[Violation]:
        """The faults that only the whole log shows."""

    def violation(self, n: int, offset: int | None, message: str) -> Violation:
        return Violation(self.path, self.entry_bytes * n, offset, self.kind, f"entry {n}: {message}")


class _OffsetIndexCheck(_IndexCheck):
    """Entries of an ``.index`` against the batches.

    Notes
    -----
    An entry is right if a batch starts at its position and its offset is that batch's first (up to 1.1) or last one
    (2.0+). When several batches were appended at once, 2.0 to 3.9.0 wrote the last offset of all of them: larger
    offsets are accepted, unless only one entry has one.
    """

    kind, entry_bytes = "offset-index", 8

    def __init__(self, log: _LogCheck, path: str, data: bytes | None) -> None:
        super().__init__(log, path, OffsetIndex(_read(path, data), log.segment.base_offset))
        self.larger: list[int] = []  # entries with offsets above their batch's

    def compare(self, headers: _Headers) -> Iterator[Violation]:
        end = int(headers.position[-1] + headers.size[-1])
        stop = int(np.searchsorted(self.columns[1], end))
        offsets, positions = (column[self.done : stop] for column in self.columns)
        places = np.searchsorted(headers.position, positions)
        inside = np.minimum(places, len(headers.position) - 1)
        starts = headers.position[inside] == positions
        for k in np.flatnonzero(~starts | (headers.sound[inside] & (offsets != headers.last[inside]))).tolist():
            n, offset, position, i = self.done + k, int(offsets[k]), int(positions[k]), int(inside[k])
            first, last = int(headers.first[i]), int(headers.last[i])
            if not starts[k]:
                yield self.violation(n, offset, f"no batch starts at its position {position}")
            elif offset > last:
                self.larger.append(n)
            elif not (first <= offset <= last if headers.wrapper[i] else offset == first):
                yield self.violation(n, offset, f"the batch at position {position} has the offsets {first} to {last}")
        self.done = max(self.done, stop)

    def at_end(self) -> Iterator[Violation]:
        offsets, positions = self.columns
        last = self.log.last_offset
        beyond = [n for n in self.larger if offsets[n] > last]
        if not self.log.damaged:
            for n in range(self.done, len(positions)):
                yield self.violation(n, int(offsets[n]), f"its position {positions[n]} is after the log's end")
            for n in beyond:
                yield self.violation(n, int(offsets[n]), f"the log ends with offset {last}")
        if len(self.larger) == 1 and not beyond:
            n = self.larger[0]
            message = f"neither the first nor the last offset of the batch at position {positions[n]}"
            yield self.violation(n, int(offsets[n]), message)

    def violation(self, n: int, offset: int | None, message: str) -> Violation:
        return Violation(
            self.path, self.entry_bytes * n, offset, self.kind, f"entry {n} with offset {offset}: {message}"
        )


class _TimeIndexCheck(_IndexCheck):
    """Entries of a ``.timeindex`` against the batches.

    Notes
    -----
    An entry (t, o) is right if t is the greatest timestamp up to the batch with o, and that batch has it. Batches that
    the cleaner emptied may or may not count. In magic 0 and 1 a later entry of the same set may have the timestamp.
    0.10.2 also indexed timestamps of messages it converted to magic 0, and append times it did not store in the
    messages: then all entries of a file are later than its messages.
    """

    kind, entry_bytes = "time-index", 12

    def __init__(self, log: _LogCheck, path: str, data: bytes | None) -> None:
        super().__init__(log, path, TimeIndex(_read(path, data), log.segment.base_offset))
        self.larger: list[Violation] = []  # entries later than all messages before them

    def compare(self, headers: _Headers) -> Iterator[Violation]:
        if self.log.damaged:
            return
        rising = np.maximum.accumulate(np.where(headers.sound, headers.last, -1))
        stop = int(np.searchsorted(self.columns[1], rising[-1], "right"))
        timestamps, offsets = (column[self.done : stop] for column in self.columns)
        places = np.searchsorted(rising, offsets)
        right = (offsets >= headers.first[places]) & (headers.max_timestamp[places] == timestamps)
        right &= (headers.running_max[places] == timestamps) | (headers.magic[places] == 0)
        for k in np.flatnonzero(~right & (headers.magic[places] != 0)).tolist():
            n, timestamp, offset, i = self.done + k, int(timestamps[k]), int(offsets[k]), int(places[k])
            if not headers.sound[: i + 1].all():
                break
            if offset < headers.first[i]:
                yield self.violation(n, offset, f"no batch has its offset; the next one starts at {headers.first[i]}")
            elif timestamp not in (headers.running_max[i], headers.filled_max[i]):
                message = f"the greatest timestamp up to there is {headers.running_max[i]}, found {timestamp}"
                if headers.magic[i] == 1 and timestamp > headers.running_max[i]:
                    self.larger.append(self.violation(n, offset, message))
                else:
                    yield self.violation(n, offset, message)
            elif headers.magic[i] == 2 and headers.max_timestamp[i] != timestamp:
                message = f"its batch has {headers.max_timestamp[i]} as greatest timestamp, found {timestamp}"
                yield self.violation(n, offset, message)
        self.done = max(self.done, stop)

    def at_end(self) -> Iterator[Violation]:
        log, (timestamps, offsets) = self.log, self.columns
        if log.damaged:
            return
        for n in range(self.done, len(offsets)):
            yield self.violation(n, int(offsets[n]), f"the log ends with offset {log.last_offset}")
        if len(self.larger) < len(offsets):
            yield from self.larger
        largest = int(timestamps[-1]) if len(timestamps) else log.no_time
        # A preallocated file is still in use. One without entries may be older than time indexes (before 0.10.1).
        upgraded = largest == log.no_time and log.magics <= {0, 1}
        if log.filled_max > largest and not self.preallocated and not upgraded and self.done == len(offsets):
            last = "there is no entry" if largest == NO_TIME else f"the last entry has {largest}"
            message = f"{last}, but the log's greatest timestamp is {log.filled_max}"
            yield Violation(self.path, self.entry_bytes * len(timestamps), None, self.kind, message)


def _indexes_of(segment: Segment) -> list[str]:
    """The indexes that a bucket fetches ahead; tiered storage has other rules for what is missing."""
    if segment.remote or not addresses.is_served(segment.path):
        return []
    return [path for path in (segment.offset_index_path, segment.time_index_path) if path is not None]


def _fetched(file: Readable | None) -> bytes | None:
    """A whole file; None for one that its reader opens, and, to be told there, for one that cannot be read."""
    with suppress(LogStorageError):
        return None if file is None else file.read(0, file.size())
    return None


def _read(path: str, data: bytes | None) -> bytes:
    return files.read_bytes(path) if data is None else data


def _sealed(segment: Segment, sealed: Sealed | None) -> Iterator[Violation]:
    """The indexes that changed since ``kts.Log`` closed them, although the log did not."""
    if sealed is None or sealed.log_bytes != segment.size_bytes:
        return
    for path, differs in (
        (segment.offset_index_path, sealed.index_differs),
        (segment.time_index_path, sealed.time_index_differs),
    ):
        if path is not None and differs(files.read_bytes(path)):
            message = "the checksum is not the one that kts.Log noted when it closed this file; the log has not changed"
            yield Violation(path, None, None, "index-checksum", message)


def _txn_index(
    segment: Segment,
    path: str | None,
    aborted: list[transactions.AbortedTransaction],
    markers: set[tuple[int, int]],
    damaged: bool,
) -> Iterator[Violation]:
    """Compare the ``.txnindex`` with the aborted transactions and the abort markers of the log."""
    listed: list[transactions.AbortedTransaction] = []
    if path is not None:
        try:
            listed = transactions.read_txn_index(path)
        except CorruptIndexError as error:
            yield Violation(path, error.position, None, "txn-index", error.message)
            return
    if damaged:
        return
    entry_bytes = transactions.TXN_ENTRY.size
    for number, one in enumerate(listed):
        if (one.producer_id, one.last_offset) not in markers:
            message = f"entry {number}: no abort marker of producer {one.producer_id} at offset {one.last_offset}"
            yield Violation(path or segment.path, number * entry_bytes, one.last_offset, "txn-index", message)
        elif one.first_offset not in {e.first_offset for e in aborted if e.last_offset == one.last_offset}:
            known = next((e.first_offset for e in aborted if e.last_offset == one.last_offset), None)
            if known is not None and known < one.first_offset:
                message = f"entry {number}: the transaction starts at offset {known}, found {one.first_offset}"
                yield Violation(path or segment.path, number * entry_bytes, one.first_offset, "txn-index", message)
    if path is None and segment.offset_index_path is None and segment.time_index_path is None:
        return
    have = {(one.producer_id, one.last_offset) for one in listed}
    for one in aborted:
        if (one.producer_id, one.last_offset) not in have:
            where = path or without_compression(segment.path).removesuffix(".log") + ".txnindex"
            message = f"the aborted transaction of producer {one.producer_id} from {one.first_offset} is not listed"
            yield Violation(where, None, one.last_offset, "txn-index", message)


# --- the files of a partition ---------------------------------------------------------------------


def _lacking(log: PartitionLog, segments: list[Segment], entries: Iterable[DirectoryEntry]) -> Iterator[Violation]:
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
    with suppress(CorruptRecordError), unless_deleted(segment.path), segment.open() as file:
        first = read_header(file.read(0, HEADER_BYTES))
    return -1 if first is None else first.magic
