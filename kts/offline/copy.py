"""Copies partitions between disks and buckets, segment by segment, into a log directory that a broker opens.

Each segment is copied aside, verified, given its indexes, and then takes its place whole, in the order of the offsets::

    <target>/
      kts-copy-0.<32 hex digits>-delete/   segments that are not complete; a broker that finds it deletes it
      <topic>-<partition>/                 a log without holes at any moment
      .lock                                held meanwhile
      *-offset-checkpoint, .kafka_cleanshutdown    at the end, as after a clean stop

A bucket has no lock, and gets no marker of a clean stop.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, partial
from typing import NamedTuple
from uuid import uuid4

import numpy as np

from kts.arguments import choice
from kts.behaviour import Behaviour
from kts.cluster_records.state import ClusterState
from kts.codec.layout import OVERHEAD_BYTES
from kts.config import LogConfig
from kts.coordinator_records.groups import TOPIC as GROUPS
from kts.dataset.options import ON_ERROR, LogOptions, Path, RangeOptions, ScanOptions, TimeRange
from kts.dataset.partition import PartitionLog, partition_of_segment
from kts.dataset.paths import selected
from kts.dataset.placement import home_of, id_of, log_config, states_beside
from kts.dataset.plan import NO_END, resolve_range
from kts.errors import (
    CorruptIndexError,
    CorruptRecordError,
    DamageWarning,
    InvalidRequestError,
    LogStorageError,
)
from kts.log.directory import CONTROLLER, LOCK, LogDirectory
from kts.log.epochs import LeaderEpochs
from kts.log.log import Log
from kts.offline.convert import tail_fault
from kts.offline.findings import Violation
from kts.offline.groups import Kept, Moved, moved, parts_before
from kts.offline.index_check import lost_end
from kts.offline.reindex import generation_of, reindex, used_part
from kts.offline.small_files import magic_of
from kts.offline.verify import verify_segment
from kts.options import MOMENT, option, same, takes_only
from kts.remote import tiers
from kts.remote.services import SAME
from kts.segment import checkpoints, transactions
from kts.segment.damage import header_scan
from kts.segment.entries import Slices
from kts.segment.locks import is_locked
from kts.segment.names import (
    BOTH_INDEXES,
    CLEAN_SHUTDOWN,
    FILE_SUFFIXES,
    INDEX_SUFFIXES,
    INTERNAL_TOPICS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    parse_directory_name,
    parse_file_name,
)
from kts.segment.rebuild import IndexConfig
from kts.segment.rereading import settled, unless_deleted, warn
from kts.segment.segment import Segment, ends_of, int64, segment_of_file
from kts.segment.snapshots import snapshot_paths
from kts.store import addresses, local, publishing
from kts.store.addresses import StorageOptions
from kts.store.expanded import compression_of_log
from kts.store.protocol import Readable
from kts.store.source import Source, files, source_of
from kts.times import Time, milliseconds, wall_clock

PIECE_BYTES = 2**22
COMPARED_BYTES = 2**12  # of a segment's end, or beginning, where nothing else tells whether it is the same
THREADS, MOST_WAITING_BYTES = 8, 2**28  # segments that are fetched and verified ahead of the one that takes its place
COPIED, EQUAL = "copied", "equal"
MOST_TOLD = 20  # groups that cannot go on where they were
_ASIDE = "kts-copy-0.{}-delete"
_BOOTSTRAP = "bootstrap.checkpoint"

Progress = Callable[[int], None]


class CopiedSegment(NamedTuple):
    """One segment of a copy.

    Attributes
    ----------
    source, path : str
        Its ``.log`` there and in the copy.
    base_offset : int
        Its base offset.
    size_bytes : int
        Of the log in the copy.
    state : str
        ``copied``, or ``equal``: it was there before, with the same size and time.
    rebuilt : tuple of str
        Suffixes of the indexes that were missing or wrong in the source.
    damage : tuple of Violation
        What ``on_error="skip"`` left out.
    """

    topic: str
    partition: int
    source: str
    path: str
    base_offset: int
    size_bytes: int
    state: str
    rebuilt: tuple[str, ...] = ()
    damage: tuple[Violation, ...] = ()


class CopyRange(NamedTuple):
    """Which segments are copied: all, or those with records in a range of times.

    Attributes
    ----------
    times : TimeRange
    strict : bool
        Up to the last segment that has a record in the range, even a late one; else up to the one before the first
        record at or after the end.
    groups_at_ms : int or None
        As ``groups_at`` of ``copy``.
    """

    times: TimeRange = TimeRange()
    strict: bool = True
    groups_at_ms: int | None = None

    @property
    def is_all(self) -> bool:
        """Whether no time limits the copy."""
        return self.times.start_ms is None and self.times.end_ms is None


@dataclass(frozen=True)
class CopyOptions(RangeOptions, LogOptions):
    """The arguments of ``copy``.

    Parameters
    ----------
    source : path or list of paths
        As for ``kts.open``.
    target : path
        A log directory or an address in a bucket. It may hold partitions, also an earlier copy of these.
    starting_timestamp : int (ms), aware datetime, date, numpy.datetime64 or text, optional
        From the segment with the first record of this time or later. Whole segments are copied; of internal topics all,
        but see ``groups_at``. Text is as for ``kts.scan``.
    ending_timestamp : int (ms), aware datetime, date, numpy.datetime64 or text, optional
        Without the segments after the last record before this time.
    strict_time_range : bool
        Up to the last segment with a record in the range; else up to the first record after it.
    groups_at : int (ms), aware datetime or ISO 8601 text, optional
        The groups' committed offsets as they were then; without it, as they were at the end of the range.
        ``__consumer_offsets`` is copied so, and consumers of the copy go on from there. A group whose offset lies
        beyond the copy's end, or of which only later offsets are known, is told with a warning; on a disk it goes on at
        the copy's end, or at the first of the later offsets.
    progress : callable, optional
        Called with the number of ``.log`` bytes that were just copied or compared.
    """

    source: Path | Sequence[Path] | None
    target: Path
    _: KW_ONLY
    groups_at: Time | None = option(None, MOMENT, command=True)
    on_error: str = same(ScanOptions, "on_error")
    progress: Progress | None = None

    @property
    def reaches_more(self) -> bool:
        """Whether ``storage_options`` also reach the target."""
        return addresses.is_elsewhere(os.fspath(self.target))

    @property
    def range(self) -> CopyRange:
        """Which segments are copied."""
        at = None if self.groups_at is None else milliseconds("groups_at", self.groups_at, self.unit)
        return CopyRange(self.times, self.strict_time_range, self.times.end_ms if at is None else at)


@takes_only(CopyOptions)
def copy(asked: CopyOptions) -> list[CopiedSegment]:
    """Copy partitions into a log directory on a disk or in a bucket, verified; copy only what is not there yet.

    Returns
    -------
    list of CopiedSegment

    Raises
    ------
    CorruptRecordError
        The source is damaged; ``.path``, ``.position`` and ``.offset`` say where. What lies before it is copied.
    InvalidRequestError
        The target has later records than the source, or lies in what is read.
    LogLockedError
        A broker or another program holds the target.

    Notes
    -----
    Offsets and file times stay. A segment that is in the target with the same size and modification time is not copied
    again; in a bucket, with the same size and last 4 KiB, and not older than the source's; nor is one that has moved to
    tiered storage since, with the same size and last 4 KiB. If the process dies, run it again.

    Where the metadata log of a KRaft cluster lies beside the source (see ``kts.cluster``), a partition without a topic
    id gets the cluster's, and missing indexes are made by its settings. A ``KtsWarning`` tells that, and an id that is
    not the cluster's: records of a topic that was deleted and made again keep their own.

    Examples
    --------
    >>> import kts, tempfile
    >>> from kts.offline.copy import copy
    >>> with tempfile.TemporaryDirectory() as target:
    ...     done = copy("demo/orders", target, partitions=[0])
    ...     kts.open_log_dirs(target)["orders", 0].log_end_offset
    3042
    """
    _, logs = selected(asked.source, asked, internal=True)
    whole = asked.topics is None and asked.partitions is None
    return list(
        copy_partitions(
            logs,
            os.fspath(asked.target),
            asked.range,
            storage_options=asked.storage_options,
            on_error=asked.on_error,
            whole=whole,
            states=states_beside(logs, asked.storage_options),
            progress=asked.progress,
        )
    )


def copy_partitions(
    logs: Sequence[PartitionLog],
    target: str,
    wanted: CopyRange,
    *,
    storage_options: StorageOptions = None,
    on_error: str = "raise",
    whole: bool = False,
    states: Mapping[str, ClusterState] | None = None,
    progress: Progress | None = None,
) -> Iterator[CopiedSegment]:
    """Copy opened partitions, one segment at a time; see ``copy``.

    Parameters
    ----------
    storage_options : dict, optional
        How the target is reached: see ``kts.open``.
    whole : bool
        The partitions are all of their log directory: its ``meta.properties`` belongs to the copy if the target has
        none.
    states : dict, optional
        What the metadata of the cluster says, by log directory, which topic ids and settings are taken from.
    """
    choice("on_error", on_error, ON_ERROR)
    if not target or _lacks_a_slash(target):
        raise InvalidRequestError(f"expected a directory or an address such as s3://bucket/key, found {target!r}")
    target = addresses.absolute(addresses.plain(target))
    source = source_of(target, storage_options)
    source.refresh()
    _refuse_inside(logs, target)
    with _Target(target, source) as place:
        beside, same_controller = _beside(logs, place, whole)
        chosen = [log for log in logs if log.topic != CONTROLLER or same_controller]
        if len(chosen) < len(logs):
            warn(f"{target}: {CONTROLLER} is left out: it belongs to another broker's {META_PROPERTIES}", target)
        for log in chosen:
            yield from _Partition(log, place, wanted, on_error == "skip", states or {}, progress).run()
        if wanted.groups_at_ms is not None:
            place.move_groups(chosen, wanted.groups_at_ms, on_error == "skip")
        place.finish(beside)


def _lacks_a_slash(target: str) -> bool:
    """Whether an address was mistyped, as ``s3:/bucket/key``, which would be a directory here."""
    scheme, mark, rest = target.partition(":/")
    return bool(mark) and not rest.startswith("/") and addresses.is_served(f"{scheme}://{rest}")


def _refuse_inside(logs: Sequence[PartitionLog], target: str) -> None:
    """A copy writes nothing into what it reads, by whatever names."""
    folders = (os.path.join(target, f"{log.topic}-{log.partition}") for log in logs)
    written = {_inside(path) for path in (target, *folders)}
    for home in sorted(_homes(logs)):
        if any(inner.startswith(home) or home.startswith(inner) for inner in written):
            raise InvalidRequestError(
                f"expected a target outside of the source, found {target}, and the copy reads {home}; "
                "name another directory"
            )


def _homes(logs: Sequence[PartitionLog]) -> set[str]:
    """How the names of all that a copy reads begin: log directories, tiered storage and its metadata."""
    tiered = {log._remote.tier for log in logs if log._remote is not None}
    read = {path for log in logs if not log.remote_alone for path in log._segment_paths or [log.path]}
    read.update(path for tier in tiered for path in tier.metadata.partitions())
    found = {_inside(tier.root.folder) + tier.root.stem for tier in tiered}
    for path in read:  # and where a link leads
        found |= {_inside(os.path.dirname(addresses.absolute(path))), _inside(os.path.dirname(addresses.real(path)))}
    return found


def _inside(directory: str) -> str:
    """How all names in a directory begin, by its one name: without links, and with the first name of its scheme."""
    scheme, mark, rest = addresses.real(directory or os.sep).partition("://")
    return os.path.join(SAME.get(scheme, scheme) + mark + rest, "")


def _beside(logs: Sequence[PartitionLog], target: _Target, whole: bool) -> tuple[dict[str, bytes], bool]:
    """The broker's own files that the target lacks, and whether the target may hold the log of the same controller."""
    homes = {
        os.path.dirname(addresses.absolute(log.path)): log.source for log in logs if not (log.lone or log.remote_alone)
    }
    home, source = homes.popitem() if len(homes) == 1 else ("", files)
    mine = source.read_if_there(os.path.join(home, META_PROPERTIES)) if home else None
    here = target.source.read_if_there(os.path.join(target.path, META_PROPERTIES))
    if here is not None:
        return {}, mine is not None and _properties(here) == _properties(mine)
    if not whole or mine is None:
        return {}, True
    found = {name: source.read_if_there(os.path.join(home, name)) for name in (_BOOTSTRAP, META_PROPERTIES)}
    return {name: data for name, data in found.items() if data is not None}, True


def _properties(data: bytes) -> list[bytes]:
    """The lines of a properties file but comments, such as the time when it was written."""
    return sorted(line.strip() for line in data.splitlines() if line.strip() and not line.startswith(b"#"))


# --- the target -----------------------------------------------------------------------------------


class _Change(NamedTuple):
    """What the end of a copy does for a partition."""

    topic: str
    partition: int
    log_start_offset: int | None
    topic_id: str | None
    is_verified: bool  # all its segments are of this copy
    state: ClusterState | None  # what the cluster says of the source


class _Target:
    """The log directory that is written; a context manager that holds its lock."""

    def __init__(self, path: str, source: Source) -> None:
        self.path, self.source = path, source
        self.in_bucket = not source.is_here
        self.aside = ""
        self._held: LogDirectory | None = None
        self.was_clean = False
        self._marked = False
        self._changes: list[_Change] = []
        self._rows: dict[tuple[str, int], list[Moved]] = {}  # what the groups of a partition get at the end

    def __enter__(self) -> _Target:
        if self.in_bucket:
            self.aside = tempfile.mkdtemp(prefix="kts-copy-")
            return self
        local.make_directory(self.path)
        self._held = LogDirectory(self.path)
        try:
            for name in files.names_in(self.path):  # of a copy that was killed
                if name.startswith("kts-copy-0.") and name.endswith("-delete"):
                    local.remove_tree(os.path.join(self.path, name))
            self._marked = self.was_clean = files.exists(os.path.join(self.path, CLEAN_SHUTDOWN))
            self.aside = os.path.join(self.path, _ASIDE.format(uuid4().hex))
            local.make_directory(self.aside)
        except BaseException:
            self._held.leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(LogStorageError):
            local.remove_tree(self.aside)
        if self._held is not None:
            self._held.leave()

    def folder(self, topic: str, partition: int) -> str:
        """The directory of a partition."""
        return os.path.join(self.path, f"{topic}-{partition}")

    def names(self, folder: str) -> list[str]:
        """The names in it; none if it does not exist."""
        return self.source.names_in(folder) if self.source.directory_exists(folder) else []

    def change(self, topic: str, partition: int) -> None:
        """A partition is about to change: until the end, the directory is not as after a clean stop."""
        if self._held is None:
            return
        folder = self.folder(topic, partition)
        self._held.forget_cleaned(topic, partition)
        if self._marked:
            files.remove(os.path.join(self.path, CLEAN_SHUTDOWN), missing_ok=True)
            local.sync_directory(self.path)
            self._marked = False
        if not files.exists(folder):
            publishing.make_directories(self.path, [folder])

    def synced(self, folder: str) -> None:
        """Wait until the names in a partition's directory are on disk."""
        if not self.in_bucket:
            local.sync_directory(folder)

    def copied(self, change: _Change, changed: bool) -> None:
        """A partition is complete."""
        if changed or not self.was_clean:
            self._changes.append(change)

    def move_groups(self, logs: Sequence[PartitionLog], time_ms: int, skip_damage: bool) -> None:
        """Tell the groups that cannot go on where they were, and note where they go on."""

        @cache
        def end_of(topic: str, partition: int) -> int | None:
            folder = self.folder(topic, partition)
            if not any(map(_is_log, self.names(folder))):
                return None
            there = PartitionLog(folder, topic, partition, source=self.source)
            return transactions.log_end_offset(there.listed(), skip_damage=True)

        told, changed = 0, {(one.topic, one.partition) for one in self._changes}
        for log in logs:
            if log.topic != GROUPS or end_of(log.topic, log.partition) is None:
                continue
            folder = self.folder(log.topic, log.partition)
            copied = PartitionLog(folder, log.topic, log.partition, source=self.source)
            found = list(moved(log, copied, time_ms, end_of, skip_damage))
            goes_on = not self.in_bucket and (log.topic, log.partition) in changed
            if goes_on:
                self._rows[log.topic, log.partition] = found
            for one in found[: max(MOST_TOLD - told, 0)]:
                there = f"the group goes on at {one.committed.offset}" if goes_on else "the copy is left as it is"
                warn(f"{copied.path}: {one.message}: {there}", copied.path)
            told += len(found)
        if told > MOST_TOLD:
            warn(f"{self.path}: {told - MOST_TOLD} more offsets of groups likewise", self.path)

    def finish(self, beside: Mapping[str, bytes]) -> None:
        """Write what a clean stop writes."""
        if self._held is None:
            self._bucket_checkpoints()
        else:
            with self._held.checkpoints_at_once():
                for one in self._changes:
                    self._close(self._held, one)
        for name, data in beside.items():
            self.source.put(os.path.join(self.path, name), [data])

    def _close(self, held: LogDirectory, one: _Change) -> None:
        """Open and close a partition as a broker does: that writes the checkpoints and the last producer snapshot."""
        folder = self.folder(one.topic, one.partition)
        if one.is_verified:
            held.made(one.topic, one.partition)
        if one.topic == CONTROLLER:  # recovered by its broker at each start
            return
        magics = (magic_of(segment) for segment in reversed(PartitionLog(folder, one.topic, one.partition).segments))
        config = log_config(one.state, one.topic, next((magic for magic in magics if magic >= 0), 2))
        with Log(folder, config, topic_id=one.topic_id, log_start_offset=one.log_start_offset) as log:
            if rows := [each.row for each in self._rows.get((one.topic, one.partition), ())]:
                log.append_rows(
                    dict(zip(("timestamp", "key", "value"), zip(*rows, strict=True), strict=True)), unit="ms"
                )

    def _bucket_checkpoints(self) -> None:
        path = os.path.join(self.path, LOG_START_OFFSETS)
        if (fault := checkpoints.fault_of(path, self.source)) is not None:
            raise LogStorageError(f"{fault}: restore the file, or delete it, and copy again", path=path)
        before = dict(checkpoints.read_checkpoint(path, self.source) or {})
        moved = {(one.topic, one.partition): one.log_start_offset for one in self._changes}
        after = before | {key: offset for key, offset in moved.items() if offset is not None}
        if after != before:
            checkpoints.write_checkpoint(path, after, self.source)


# --- a partition ----------------------------------------------------------------------------------


class _Planned(NamedTuple):
    """A segment to copy.

    Attributes
    ----------
    following : int or None
        The base offset of the next segment of the source.
    size : int or None
        Bytes of it; None for a compressed log, which is not decompressed just to compare it.
    before : Segment or None
        The segment before it, if that is a whole copy in tiered storage: it has the producer snapshot between them.
    """

    segment: Segment
    following: int | None
    size: int | None
    modified_ms: int
    before: Segment | None


class _Staged(NamedTuple):
    """A segment that lies aside, verified, with its indexes."""

    stem: str
    size: int
    rebuilt: tuple[str, ...]
    damage: tuple[Violation, ...]


class _Partition:
    """The copy of one partition."""

    def __init__(
        self,
        log: PartitionLog,
        place: _Target,
        wanted: CopyRange,
        skip: bool,
        states: Mapping[str, ClusterState],
        progress: Progress | None,
    ) -> None:
        self.log, self.place, self.skip = log, place, skip
        self.topic_id_there = id_of(states, log)  # in the cluster
        is_known = self.topic_id_there is not None and log.topic_id in (None, self.topic_id_there)
        self.state = states[home_of(log)] if is_known else None
        self.config = log_config(self.state, log.topic, 2)
        self.advance: Progress = progress or (lambda amount: None)
        self.wanted = CopyRange() if log.topic in INTERNAL_TOPICS else wanted
        self.groups_at = wanted.groups_at_ms if log.topic == GROUPS else None
        self.kept: dict[int, Kept] = {}  # what is left of a segment, by its base offset, where that is not all
        self.folder = place.folder(log.topic, log.partition)
        self.is_live = log.source.is_here and is_locked(os.path.join(_home(log), LOCK))
        self.bases: list[int] = []  # of all segments of the source
        self.end = 0  # where the source ends

    def run(self) -> Iterator[CopiedSegment]:
        """Copy what the target lacks."""
        log, place = self.log, self.place
        plan = settled(self.plan)
        if not plan and not self.wanted.is_all:
            return
        topic_id = self.topic_id()
        names = place.names(self.folder)
        if names:
            place.source.require_plain_logs(self.folder, "copying")
        there = {int(name[:20]) for name in names if _is_log(name)}
        self.check_end(there)
        self.check_topic(topic_id, plan, there)
        if self.kept:
            self.end = max([plan[0].segment.base_offset, *(one.last_offset + 1 for one in self.kept.values())])
        equal = self.equal(plan, names)
        missing = [one for one in plan if one.segment.base_offset not in equal]
        gone = self.superseded(plan, there)
        changed = bool(missing or gone or not names)
        if changed:
            place.change(log.topic, log.partition)
        at_once = place.in_bucket or any(not one.segment.source.is_here for one in missing)
        with closing(_ahead(partial(self.stage, advance=not at_once), missing, at_once)) as staged:
            for one in plan:
                path = os.path.join(self.folder, f"{one.segment.base_offset:020d}.log")
                if one.segment.base_offset in equal:
                    size = place.source.size_of(path)
                    self.advance(size)
                    yield self.told(one, path, size, EQUAL)
                elif (done := next(staged)) is not None:  # else a live source deleted it
                    self.publish(done, path, names, one is not plan[0])
                    self.advance(done.size if at_once else 0)
                    yield self.told(one, path, done.size, COPIED)._replace(rebuilt=done.rebuilt, damage=done.damage)
        for base in gone:
            self.remove(base, names)
        first = min([*there - gone, *(one.segment.base_offset for one in plan)], default=log.log_start_offset)
        begins_here = not plan or first == plan[0].segment.base_offset
        start = max(log.log_start_offset, first) if begins_here else None
        if place.in_bucket and start == first:
            start = None  # readers know it without a checkpoint
        if changed:
            self.warn_of_gaps(plan, there)
        if changed or not place.was_clean:
            self.small_files(plan, start, topic_id)
        planned = {one.segment.base_offset for one in plan}
        place.copied(_Change(log.topic, log.partition, start, topic_id, there - gone <= planned, self.state), changed)

    def told(self, one: _Planned, path: str, size: int, state: str) -> CopiedSegment:
        segment = one.segment
        return CopiedSegment(self.log.topic, self.log.partition, segment.path, path, segment.base_offset, size, state)

    # --- what to copy ---

    def plan(self) -> list[_Planned]:
        """The segments to copy.

        A live source ends at the high watermark of the broker's last checkpoint: what follows may still be truncated.
        """
        log = self.log.listed(skip_damage=self.skip, exact=True)
        segments = log.segments
        bases = self.bases = [segment.base_offset for segment in segments]
        if not segments:
            self.end = log.log_start_offset
            return []
        stable = log.high_watermark if self.is_live else None
        log_end = transactions.log_end_offset(log, skip_damage=True)
        self.end = log_end if stable is None else min(stable, log_end)
        start, end = self.offsets(log)
        last = len(bases) if end == NO_END else bisect_left(bases, end)
        if stable is not None:
            last = min(last, bisect_right(bases, stable))
        plan = []
        for number in range(max(bisect_right(bases, start) - 1, 0), last):
            segment, following = segments[number], bases[number + 1] if number + 1 < len(bases) else None
            size: int | None = None
            if compression_of_log(segment.path) is None:
                ends_here = not segment.remote if following is None else stable is not None and following > stable
                size = _whole_bytes(segment, stable) if ends_here else segment.size_bytes
            before = segments[number - 1] if number and segment.remote else None
            if before is not None and (tiers.is_cut(before.path) or tiers.is_cut(segment.path)):
                before = None
            plan.append(_Planned(segment, following, size, segment.modified_ms, before))
        return plan if self.groups_at is None else self.as_of(plan, self.groups_at)

    def as_of(self, plan: list[_Planned], time_ms: int) -> list[_Planned]:
        """The segments with batches from before a time, the first one in any case."""
        found = parts_before([one.segment for one in plan], time_ms, self.skip)
        self.kept = {}
        if all(one.is_whole for one in found):
            return plan
        both = list(zip(plan, found, strict=True))
        chosen = [pair for number, pair in enumerate(both) if pair[1].parts or not number]
        for one, kept in chosen:
            most = NO_END if one.size is None else one.size  # of a live source, below its high watermark
            parts = [(start, min(end, most)) for start, end in kept.parts if start < most]
            self.kept[one.segment.base_offset] = kept._replace(parts=parts)
        behind = [*(one.segment.base_offset for one, _ in chosen[1:]), None]
        return [one._replace(following=base, before=None) for (one, _), base in zip(chosen, behind, strict=True)]

    def offsets(self, log: PartitionLog) -> tuple[int, int]:
        """The offsets of the range of times."""
        if self.wanted.is_all:
            return 0, NO_END
        (first_ms, end_ms, lateness), strict = self.wanted.times, self.wanted.strict
        start, end = resolve_range(
            log,
            starting_timestamp=first_ms,
            ending_timestamp=end_ms,
            strict_time_range=strict,
            skip_damage=self.skip,
        )
        if strict and end_ms is not None and start != NO_END:
            found = log.scan(
                starting_timestamp=first_ms,
                ending_timestamp=end_ms,
                allowed_lateness=lateness,
                unit="ms",
                include_control=True,
                columns=["offset"],
                on_error="skip" if self.skip else "raise",
            )
            end = start
            for batch in found:
                end = max(end, int(int64(batch, "offset").max(initial=-1)) + 1)
        return start, end

    def check_end(self, there: set[int]) -> None:
        """Refuse a target with later records, unless a live source has them, too, but not yet as stable."""
        if not there or self.is_live:
            return
        known = PartitionLog(self.folder, self.log.topic, self.log.partition, source=self.place.source)
        found = settled(lambda: transactions.log_end_offset(known.listed(skip_damage=True), skip_damage=True))
        if found > self.end:
            raise InvalidRequestError(
                f"{self.folder}: expected records up to offset {self.end}, where the source ends, found some up to "
                f"{found}: another program wrote to the copy, or it is one of something else; copy to another directory"
            )

    def equal(self, plan: Sequence[_Planned], names: Sequence[str]) -> set[int]:
        """The base offsets of the segments that the target has."""
        told = {one.segment.base_offset: self.is_equal(one, names) for one in plan}
        unsure = [one for one in plan if told[one.segment.base_offset] is None]
        waits = self.place.source if self.place.in_bucket or not unsure else unsure[0].segment.source
        alike = waits.side_by_side(self.ends_alike, unsure)
        told |= {one.segment.base_offset: same for one, same in zip(unsure, alike, strict=True)}
        return {base for base, same in told.items() if same}

    def ends_alike(self, one: _Planned) -> bool:
        """Whether a segment of the target has the same last bytes."""
        if one.size is None:
            return True
        start = max(one.size - COMPARED_BYTES, 0)
        path = os.path.join(self.folder, f"{one.segment.base_offset:020d}.log")
        target = self.place.source
        with suppress(CorruptRecordError), one.segment.open() as source, target.open_file(path) as there:
            return source.read(start, one.size - start) == there.read(start, one.size - start)
        return False  # the source is damaged, which staging tells

    def is_equal(self, one: _Planned, names: Sequence[str]) -> bool | None:
        """Whether the target has a segment with its indexes, by size and modification time; None: its end tells.

        A bucket's times do not tell two sources apart. A segment that moved to tiered storage has another time there,
        and stays as it is.
        """
        stem = os.path.join(self.folder, f"{one.segment.base_offset:020d}")
        path, indexes = f"{stem}.log", (f"{stem}.index", f"{stem}.timeindex")
        if one.segment.span.start:  # a part of a file that overlaps another
            return False
        if not {os.path.basename(each) for each in (path, *indexes)}.issubset(names):
            return False
        target = self.place.source
        size, modified_ms = target.size_of(path), target.modified_ms(path)
        if self.is_live and one.following is None and one.size is not None and size > one.size:
            return None if self.place.in_bucket else True
        kept = self.kept.get(one.segment.base_offset)
        if one.size not in (None, size) or (kept is not None and not kept.is_whole):
            return False
        if not self.place.in_bucket:
            return modified_ms == one.modified_ms or (None if one.segment.remote else False)
        # Its times are in whole seconds. Later indexes are those of a copy that was stopped before its log.
        is_new = one.segment.remote or modified_ms // 1000 >= one.modified_ms // 1000
        return None if is_new and all(target.modified_ms(index) <= modified_ms for index in indexes) else False

    @staticmethod
    def superseded(plan: Sequence[_Planned], there: set[int]) -> set[int]:
        """Segments of the target that the source no longer has between those that are copied: it was compacted."""
        if not plan:
            return set()
        bases = {one.segment.base_offset for one in plan}
        following = plan[-1].following
        return {base for base in there - bases if min(bases) < base and (following is None or base < following)}

    # --- aside ---

    def stage(self, one: _Planned, *, advance: bool) -> _Staged | None:
        """Copy a segment aside, verify it there and complete its indexes. None if a writer deleted it meanwhile."""
        segment, base = one.segment, f"{one.segment.base_offset:020d}"
        folder = os.path.join(self.place.aside, f"{segment.topic}-{segment.partition}-{base}")
        local.make_directory(folder)
        stem, done = os.path.join(folder, base), None
        kept = self.kept.get(segment.base_offset)
        with unless_deleted(segment.path, segment.source):
            if kept is None or kept.is_whole:
                self.stage_indexes(segment, stem)
                size, damage, wrong = self.stage_log(one, f"{stem}.log", self.advance if advance else None)
            else:
                size, damage, wrong = self.stage_parts(one, kept, f"{stem}.log")
            rebuilt = _complete(f"{stem}.log", wrong, one.before, self.config)
            rebuilt = rebuilt if kept is None or kept.is_whole else ()
            local.set_modified_ms(f"{stem}.log", one.modified_ms)
            done = _Staged(stem, size, rebuilt, tuple(damage))
        return done

    def stage_indexes(self, segment: Segment, stem: str) -> None:
        """The indexes of the source, without preallocated zeros, and the producer snapshot at its start."""
        if segment.remote and tiers.is_cut(segment.path):
            return
        snapshot = os.path.join(os.path.dirname(segment.path), f"{os.path.basename(stem)}.snapshot")
        paths = {
            ".index": segment.offset_index_path,
            ".timeindex": segment.time_index_path,
            ".txnindex": segment.txn_index_path,
            ".snapshot": snapshot if not segment.remote and segment.source.exists(snapshot) else None,
        }
        for suffix, path in paths.items():
            with suppress(CorruptIndexError):  # of tiered storage: it is rebuilt
                if path is not None:
                    data = segment.source.read_bytes(path)
                    used = used_part(suffix, data) if suffix in BOTH_INDEXES else data
                    publishing.write_new(stem + suffix, used)

    def stage_parts(self, one: _Planned, kept: Kept, path: str) -> tuple[int, list[Violation], list[Violation]]:
        """Copy parts of a log and verify them, as ``stage_log`` does; its indexes are made anew."""
        segment = one.segment
        if self.skip:
            for each in verify_segment(segment, None):
                if each.path == segment.path:
                    warn(f"{each}; the copy leaves it out", each.path, DamageWarning)
        with segment.open() as source:
            size = publishing.write_synced(path, _pieces(source, kept.parts, None))
        copied = Segment(path, segment.topic, segment.partition, segment.base_offset)
        for each in verify_segment(copied, one.following):
            if each.path == path:
                raise CorruptRecordError(f"{each.kind}: {each.message}", path=segment.path, offset=each.offset)
        return size, [], []

    def stage_log(
        self, one: _Planned, path: str, progress: Progress | None
    ) -> tuple[int, list[Violation], list[Violation]]:
        """Copy the bytes of a log and verify them: their number, what is left out of them, and the wrong indexes."""
        segment = one.segment
        copied = Segment(path, segment.topic, segment.partition, segment.base_offset)
        damage = list[Violation]()
        try:
            with segment.open((segment.span.start, one.size)) as source:
                end = source.size() if one.size is None else one.size
                size = publishing.write_synced(path, _pieces(source, [(segment.span.start, end)], progress))
        except CorruptRecordError as error:  # a compressed log, or tiered storage
            damage = [Violation(segment.path, error.position, error.offset, "unreadable", error.message)]
        else:
            if segment.sound_part and (lost := segment.source.damage_of(segment.path)) is not None:
                damage.append(Violation(segment.path, lost.position, None, "compression", lost.message))
            found = list(verify_segment(copied, one.following))
            damage += [replace(each, path=segment.path) for each in found if each.path == path]
            if not damage and (found or (segment.remote and tiers.is_cut(segment.path))):
                damage += lost_end(segment, one.following)
            if not damage:
                return size, [], found
        if not self.skip:
            first = damage[0]
            why = f"{first.kind}: {first.message}"
            raise CorruptRecordError(why, path=first.path, position=first.position, offset=first.offset)
        for each in damage:
            warn(f"{each}; the copy leaves it out", each.path, DamageWarning)
        with segment.open() as source:
            size = publishing.write_synced(path, _pieces(source, _sound_parts(one), None))
        found = list(verify_segment(copied, one.following))
        left = [each for each in found if each.path == path]
        if left:
            raise CorruptRecordError(f"{left[0].kind}: {left[0].message}", path=segment.path, offset=left[0].offset)
        return size, damage, found

    # --- into place ---

    def publish(self, done: _Staged, path: str, names: Sequence[str], with_snapshot: bool) -> None:
        """Give a segment its place; its log comes last, and shows it to readers."""
        target, base = path.removesuffix(".log"), os.path.basename(done.stem)
        if f"{base}.log" in names and not self.place.in_bucket:
            # Until the new log is in place, the old one lies beside new indexes: its time must be that of no source.
            local.set_modified_ms(path, wall_clock())
            publishing.sync_file(path)
        for suffix in (*[".snapshot"] * with_snapshot, *INDEX_SUFFIXES, ".log"):
            if suffix == ".log":
                self.place.synced(self.folder)  # no crash leaves a log whose indexes are those of another
            if files.exists(done.stem + suffix):
                self.place.source.take(done.stem + suffix, target + suffix)
            elif base + suffix in names and suffix != ".snapshot":
                self.place.source.remove(target + suffix, missing_ok=True)
        self.place.synced(self.folder)

    def remove(self, base_offset: int, names: Sequence[str]) -> None:
        """Delete a segment of the target, its log first."""
        for suffix in FILE_SUFFIXES:
            if f"{base_offset:020d}{suffix}" in names:
                path = os.path.join(self.folder, f"{base_offset:020d}{suffix}")
                self.place.source.remove(path, missing_ok=True)
        self.place.synced(self.folder)

    def topic_id(self) -> str | None:
        """The topic's id: the one that the target has for it, else the source's, else the cluster's."""
        known = checkpoints.read_topic_id(self.folder, self.place.source)
        for name in [] if known else self.place.names(self.place.path):
            parsed = parse_directory_name(name)
            if known is None and parsed is not None and parsed.topic == self.log.topic and not parsed.state:
                known = checkpoints.read_topic_id(os.path.join(self.place.path, name), self.place.source)
        if known is None and self.topic_id_there is not None:
            self.tell_topic_id(self.topic_id_there)
        return known or self.log.topic_id or self.topic_id_there

    def tell_topic_id(self, there: str) -> None:
        """Tell if the source has no topic id, or not that of the cluster."""
        path, topic, own = self.log.path, self.log.topic, self.log.topic_id
        if own is None:
            warn(f"{path} has no topic id: the copy has {there}, the cluster's of {topic}", path)
        elif own != there:
            warn(
                f"{path} has the topic id {own}, and the cluster {there} for {topic}: these are records of a topic that"
                " was deleted and made again, and keep their id in the copy",
                path,
            )

    def check_topic(self, topic_id: str | None, plan: Sequence[_Planned], there: set[int]) -> None:
        """Refuse the records of another topic of this name, which was deleted, or is another cluster's.

        A topic that was made for the copy, under an id of its own, is empty or holds an earlier copy.
        """
        own = self.log.topic_id
        if own is None or topic_id in (None, own):
            return
        paths = {base: os.path.join(self.folder, f"{base:020d}.log") for base in there}
        full = {base: path for base, path in paths.items() if self.place.source.size_of(path)}
        common = [one.segment for one in plan if one.segment.base_offset in full]
        if full and not any(_begin_alike(one, full[one.base_offset], self.place.source) for one in common):
            raise InvalidRequestError(
                f"expected the topic id {own} in {self.folder}, as {self.log.path} has it, found {topic_id} with"
                " records that are not of this topic: another one of that name; copy into an empty directory"
            )

    def small_files(self, plan: Sequence[_Planned], start: int | None, topic_id: str | None) -> None:
        """The leader epochs, the last producer snapshot, the topic's id; of a controller's log all other files."""
        is_cut = bool(plan) and plan[-1].following is not None
        end = min(self.end, plan[-1].following or self.end) if is_cut else self.end
        known = self.log.leader_epochs
        if known:
            epochs = LeaderEpochs(self.folder, source=self.place.source)
            for epoch, begin in known:
                if begin < end or (begin == end and not is_cut):  # an empty log has an epoch, too
                    epochs.begin(epoch, begin)
            epochs.write()
            if start is not None:
                epochs.truncate_from_start(start)
        source = self.log.source
        entries = [] if self.log.lone else source.list_directory(self.log.path)
        beside = [path for offset, path in snapshot_paths(entries) if offset == end > 0]
        if self.log.topic == CONTROLLER:
            others = (one for one in entries if not source.is_directory(one))
            beside += [one.path for one in others if one.name == "quorum-state" or one.name.endswith(".checkpoint")]
        there = self.place.names(self.folder)
        for path in beside:
            if path.endswith(".snapshot") and _plain_name(path) in there:
                continue
            self.place.source.put(os.path.join(self.folder, _plain_name(path)), [source.read_bytes(path)])
        if topic_id is not None and checkpoints.read_topic_id(self.folder, self.place.source) is None:
            checkpoints.write_topic_id(self.folder, topic_id, self.place.source)

    def warn_of_gaps(self, plan: Sequence[_Planned], there: set[int]) -> None:
        """Warn if whole segments are missing between those that were copied and others of the target."""
        if not plan:
            return
        first, following = plan[0].segment.base_offset, plan[-1].following
        before = max((base for base in there if base < first), default=None)
        if before is not None and self.bases[: self.bases.index(first)][-1:] != [before]:
            path, whose = os.path.join(self.folder, f"{before:020d}.log"), (self.log.topic, self.log.partition)
            older = Segment(path, *whose, before, source=self.place.source)
            ended = ends_of(older).next_offset
            if ended is not None and ended < first:
                self.warn_of_gap(ended, first)
        behind = min((base for base in there if following is not None and base > following), default=None)
        if following is not None and following not in there and behind is not None:
            self.warn_of_gap(following, behind)

    def warn_of_gap(self, first: int, end: int) -> None:
        warn(f"{self.folder}: the copy has no offsets {first} to {end - 1}; copy that range, too", self.folder)


# --- a segment ------------------------------------------------------------------------------------


def _home(log: PartitionLog) -> str:
    """The log directory of a partition."""
    inside = os.path.dirname(addresses.absolute(log.path))
    return os.path.dirname(inside) if log.lone else inside


def _begin_alike(segment: Segment, other: str, source: Source) -> bool:
    """Whether two logs begin with the same entry."""
    most = min(segment.source.size_of(segment.path), source.size_of(other), COMPARED_BYTES)
    with segment.source.open_file(segment.path) as one, source.open_file(other) as two:
        return most > 0 and one.read(0, most) == two.read(0, most)


def _is_log(name: str) -> bool:
    parsed = parse_file_name(name)
    return parsed is not None and parsed.suffix == ".log" and not parsed.transition and not parsed.tier_id


def _plain_name(path: str) -> str:
    """The name of a file in a partition's directory; one of tiered storage has an id in it."""
    parsed = parse_file_name(os.path.basename(path))
    return os.path.basename(path) if parsed is None else f"{parsed.base_offset:020d}{parsed.suffix}"


def _whole_bytes(segment: Segment, end_offset: int | None) -> int:
    """The bytes of the whole entries below an offset; all, if what follows them is not what a crash leaves."""
    with segment.open() as file:
        size = file.size()
        start = segment.tail_position() if end_offset is None else segment.start_position(end_offset)
        slices, following = Slices(file, start, size), segment.base_offset
        for batches in slices:
            lasts = batches.column("last_offset")
            if end_offset is not None and (lasts >= end_offset).any():
                return int(batches.column("position")[int((lasts >= end_offset).argmax())])
            following = batches.last_offset + 1
        if tail_fault(slices, file, segment, following) is not None:
            return size
        tail = size - slices.position
        is_zeros = tail >= OVERHEAD_BYTES and not any(file.read(slices.position, OVERHEAD_BYTES))
        if is_zeros and end_offset is None:  # of an incomplete entry, the search for the end told
            left = f"{tail} zeros at position {slices.position} are left out"
            warn(f"{segment.path}: {left}, such as a crash or preallocation leaves", segment.path)
        return slices.position


def _pieces(source: Readable, parts: Iterable[tuple[int, int]], progress: Progress | None) -> Iterator[bytes]:
    """Parts of a file, as (start, end), one after another, some bytes at a time."""
    for start, end in parts:
        for position in range(start, end, PIECE_BYTES):
            count = min(PIECE_BYTES, end - position)
            data = source.read(position, count)
            if len(data) < count:
                message = f"expected {end} bytes, found {position + len(data)}: the log was truncated meanwhile"
                raise LogStorageError(f"{message}; copy it again", path=source.path, position=position)
            yield data
            if progress is not None:
                progress(len(data))


def _sound_parts(one: _Planned) -> Iterator[tuple[int, int]]:
    """Where the sound entries of a damaged segment lie whose offsets follow each other."""
    segment = one.segment
    last, most = segment.base_offset - 1, NO_END if one.following is None else one.following
    for batches in header_scan(segment, 0, segment.base_offset, True, closed=one.following is not None):
        positions, sizes, lasts = (batches.column(name) for name in ("position", "size", "last_offset"))
        firsts = batches.column("base_offset")
        for row in np.flatnonzero(lasts < most).tolist():
            end = int(positions[row] + sizes[row])
            is_known = int(firsts[row]) >= 0  # of a wrapper only the last offset is
            if lasts[row] > last and (not is_known or firsts[row] > last) and end <= (one.size or end):
                last = int(lasts[row])
                yield int(positions[row]), end


def _complete(path: str, wrong: Sequence[Violation], before: Segment | None, topic: LogConfig) -> tuple[str, ...]:
    """Rebuild the indexes of a log that are missing or wrong, by the topic's settings; their suffixes."""
    stem = path.removesuffix(".log")
    lacking = [suffix for suffix in BOTH_INDEXES if not files.exists(stem + suffix)]
    again = {*lacking, *(os.path.splitext(one.path)[1] for one in wrong)}
    if not again:
        return ()
    if before is not None:  # transactions that end in the segment may have begun before it
        with suppress(CorruptIndexError):
            publishing.write_new(f"{stem}.snapshot", before.source.read_bytes(tiers.snapshot_after(before)))
    alone = partition_of_segment(segment_of_file(path))
    limit = max(topic.segment_index_bytes, LogConfig.segment_index_bytes)  # which may be less than when it was written
    config = IndexConfig(topic.index_interval_bytes, limit, Behaviour.of(generation_of(alone)))
    for found in reindex(alone, config):
        made = {one.kind: one.rebuilt for one in found.indexes}
        if lacking and not files.exists(f"{stem}.txnindex"):  # all of them may be lost
            again |= made.keys() & {".txnindex"}
        for suffix in again:
            files.remove(stem + suffix, missing_ok=True)
            if suffix in made:
                publishing.write_new(stem + suffix, made[suffix])
    if before is not None:
        files.remove(f"{stem}.snapshot", missing_ok=True)
    return tuple(sorted(again))


def _ahead(
    work: Callable[[_Planned], _Staged | None], items: Sequence[_Planned], at_once: bool
) -> Generator[_Staged | None]:
    """The results of work in order; if it waits for a bucket, a bounded number of bytes is under way."""
    if not at_once:
        yield from map(work, items)
        return
    waiting: deque[tuple[Future[_Staged | None], int]] = deque()
    left = deque(items)
    with ThreadPoolExecutor(THREADS, "kts-copy") as threads:
        try:
            while waiting or left:
                while left and (not waiting or sum(size for _, size in waiting) < MOST_WAITING_BYTES):
                    one = left.popleft()
                    waiting.append((threads.submit(work, one), one.size or 0))
                yield waiting.popleft()[0].result()
        finally:
            for future, _ in waiting:
                future.cancel()
