"""Read-only objects for a partition and for log directories."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Self

from kts.dataset import scan as scanning
from kts.dataset.options import ScanOptions
from kts.errors import InvalidRequestError, KtsError, LogClosedError, LogStorageError
from kts.model import TimestampOffset, TopicPartition
from kts.options import takes
from kts.segment import search, transactions
from kts.segment.checkpoints import MEANINGS, Checkpoints, fault_of, read_leader_epochs, read_topic_id
from kts.segment.commits import PendingPartition
from kts.segment.index_checksums import Sealed
from kts.segment.magic_checkpoint import NotedMagics
from kts.segment.names import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    INTERNAL_TOPICS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    REMOTE,
    parse_directory_name,
)
from kts.segment.overlaps import Overlaps
from kts.segment.rereading import settled, warn
from kts.segment.segment import Segment, described, ends_shown, segment_of_file
from kts.segment.swaps import live_logs
from kts.store import addresses
from kts.store.source import Source, files
from kts.times import Time

if TYPE_CHECKING:
    import pyarrow as pa

    from kts.dataset.plan import SegmentRange
    from kts.remote.tiers import Fault, TieredPartition


SHOWN = 10  # partitions that the repr of log directories shows
# What a user of a partition needs, first things first; the other names are for kts itself.
PUBLIC = (
    *("path", "topic", "partition", "topic_id", "segments", "log_start_offset", "log_end_offset", "high_watermark"),
    *("last_stable_offset", "leader_epochs", "scan", "offset_for_timestamp", "explain_offset_for_timestamp"),
    *("max_timestamp", "batches", "close"),
)


class PartitionLog:
    """One partition, read-only: its segments, offsets, searches and scans.

    ``kts.open`` returns one. It keeps no file open and caches no size: each call sees the current log, even if a broker
    appends to it. The end of the files is not the high watermark; see ``high_watermark``.
    """

    def __init__(
        self,
        path: str,
        topic: str,
        partition: int,
        *,
        log_start_offset: int | None = None,
        segment_paths: Sequence[str] | None = None,
        checkpoints: Checkpoints | None = None,
        remote: TieredPartition | None = None,
        source: Source = files,
    ) -> None:
        self.path = path
        self.source = source  # of the directory, or of the segment files
        self.topic = topic
        self.partition = partition
        self._log_start_offset = log_start_offset
        self._segment_paths = None if segment_paths is None else tuple(segment_paths)
        self._checkpoints = checkpoints or Checkpoints(os.path.dirname(addresses.absolute(path)), source)
        self._remote = remote
        self._closed = False
        self._overlaps = Overlaps()
        self.segments_before = 0  # of a part: the segments of the partition before it,
        self._following_offset: int | None = None  # and the base offset of the first one behind it

    def __dir__(self) -> list[str]:
        return list(PUBLIC)

    def __repr__(self) -> str:
        where = f"{self.path!r}, topic={self.topic!r}, partition={self.partition}"
        return f"PartitionLog({where}, {described(self._described)})"

    def _described(self) -> list[str]:
        """Offsets, and the times of the first and the last record."""
        if self._closed:
            return ["closed"]
        log = self.listed()
        start, segments = log.log_start_offset, log.segments
        if not segments:
            return [f"log_start_offset={start}", "segments=0"]
        ends = ends_shown(segments, "log_end_offset", start)
        return [f"log_start_offset={start}", *ends, f"segments={len(segments)}"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Refuse further calls; no file is open between calls."""
        self._closed = True

    @property
    def lone(self) -> bool:
        """True if it consists of segment files given by name, not of a directory."""
        return self._segment_paths is not None

    @property
    def remote_alone(self) -> bool:
        """True if it is in tiered storage alone, without a log directory."""
        return self._remote is not None and self.path.startswith(REMOTE)

    @property
    def segments(self) -> list[Segment]:
        """The current segments to read, by base offset: no offset is in two of them.

        Where files overlap, a segment is a part of one, and a ``KtsWarning`` tells it once; see ``whole_segments``.
        """
        return self._overlaps.removed(self.whole_segments)

    @property
    def whole_segments(self) -> list[Segment]:
        """The current live segments, by base offset, as whole files.

        An interrupted swap counts as a broker completes it at its next start. Other files that end in ``.deleted``,
        ``.cleaned`` or ``.swap`` do not count. A ``.log.gz`` or ``.log.zst`` counts if its ``.log`` is not there.
        With tiered storage, its segments come first, up to the local ones.
        """
        if self._closed:
            raise LogClosedError("expected an open log, found a closed one", path=self.path)
        if self._segment_paths is not None:
            lone = [segment_of_file(path, self.source) for path in self._segment_paths]
            found = [replace(segment, topic=self.topic, partition=self.partition) for segment in lone]
            return sorted(found, key=lambda segment: (segment.base_offset, segment.path))
        local = [] if self.remote_alone else self._local_segments()
        if self._remote is None:
            return local
        return self._remote.segments(local, self._stated_start(), self._stated_epochs())

    def hidden_copies(self) -> list[tuple[Segment, int]]:
        """The copies in tiered storage of which local segments are read instead, each with the offset after it."""
        if self._remote is None or self.remote_alone or not (local := self._local_segments()):
            return []
        return self._remote.hidden(local[0].base_offset, self._stated_epochs())

    @property
    def copied_until(self) -> int | None:
        """Where the copies in tiered storage end; None if none is looked at, or there is no log directory."""
        if self._remote is None or self.remote_alone:
            return None
        copies = self.hidden_copies()
        local = self._local_segments()
        return copies[-1][1] if copies else local[0].base_offset if local else None

    def tier_faults(self) -> list[Fault]:
        """What is wrong in tiered storage besides the segments of the log."""
        return [] if self._remote is None else list(self._remote.faults())

    def _local_segments(self) -> list[Segment]:
        names, pending = self._names()
        paths = sorted(live_logs(self.path, names, self.source).items())
        return [
            Segment(path, self.topic, self.partition, base, source=self.source)
            for (base, _), path in paths
            if pending is None or base < pending.first_offset
        ]

    def _names(self) -> tuple[list[str], PendingPartition | None]:
        """The names in the directory, and the segments among them that are not committed yet."""
        while True:
            before = self._checkpoints.commits()
            names = self.source.names_in(self.path)
            if self._checkpoints.commits() is before:
                return names, before.pending_of(self.topic, self.partition)

    def listed(self, *, skip_damage: bool = False, whole: bool = False, exact: bool = False) -> PartitionLog:
        """The same partition with a fixed list of its current segments, for code that needs the list more than once.

        A writer may delete segments meanwhile: use it in ``settled``, or with ``unless_deleted`` around each segment.

        Parameters
        ----------
        skip_damage : bool
            Damaged compressed segments end at their damage.
        whole : bool
            List whole files, even if they overlap.
        exact : bool
            For code that writes segments; see ``Overlaps.removed``.
        """
        segments = self.whole_segments
        return _Listed(self, segments if whole else self._overlaps.removed(segments, exact=exact), skip_damage)

    def next_base(self, base_offset: int) -> int | None:
        """The base offset of the next segment on this machine by now, also for a fixed list; None if there is none."""
        if self.lone or self.remote_alone or not self.source.is_here:
            return None
        bases = (segment.base_offset for segment in self._local_segments())
        return min((base for base in bases if base > base_offset), default=None)

    def afresh(self) -> PartitionLog:
        """The same partition without a fixed list of its segments."""
        return self

    def taken(self, parts: Iterable[SegmentRange]) -> list[SegmentRange]:
        """Ranges of it for tasks in other processes, without what is known of the rest of tiered storage.

        That may be much, and a task reads few segments. One that needs the others asks for them again.
        """
        if self._remote is None:
            return list(parts)
        remote = self._remote.taken()
        remote.log = PartitionLog(
            self.path,
            self.topic,
            self.partition,
            log_start_offset=self._log_start_offset,
            remote=remote,
            source=remote if self.remote_alone else self.source,
        )
        return [replace(part, source=remote) if part.source is self._remote else part for part in parts]

    @property
    def is_part(self) -> bool:
        """True for a part of a partition."""
        return self.segments_before > 0 or self._following_offset is not None

    @property
    def is_last(self) -> bool:
        """True for the last part of a partition, and for a whole one."""
        return self._following_offset is None

    @property
    def following_offset(self) -> int | None:
        """The offset behind the last segment, if that is closed: in a part of a partition, or in tiered storage."""
        if self._following_offset is not None or self._remote is None:
            return self._following_offset
        segments = self.segments
        return segments[-1].known_next_offset if segments else None

    def parts(self, sizes: Sequence[int]) -> list[PartitionLog]:
        """The partition in parts of so many of its current segments each, to be worked on apart; as ``listed``."""
        log, made, first = self.listed(), list[PartitionLog](), 0
        for size in sizes:
            part = _Listed(log, log.segments[first : first + size], False)
            part.segments_before = first
            first += size
            part._following_offset = log.segments[first].base_offset if first < len(log.segments) else None
            made.append(part)
        return made

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers see: from ``kts.open``, the broker's checkpoint, or the first base offset.

        Warns
        -----
        KtsWarning
            The checkpoint is malformed, or says that the log starts beyond its end.
        """
        segments = self.whole_segments
        first = segments[0].base_offset if segments else 0
        first = first if self._remote is None else max(first, self._remote.first_offset)
        known = self._stated_start()
        if known is not None and segments and known > segments[-1].base_offset and self.following_offset is None:
            self._check_start(known)
        return first if known is None else max(first, known)

    def _check_start(self, stated: int) -> None:
        """Tell a log start offset beyond the log's end: nothing is read then."""
        if (end := self.end_before(stated)) is None:
            return
        fault = f"nothing is read, because the log start offset {stated} is after the log's end {end}"
        meaning = "give another one with log_start_offset"
        if self._log_start_offset is None:
            fault += f", as {LOG_START_OFFSETS} says it"
            meaning += ", such as 0; a broker that starts there deletes the log"
        self._checkpoints.tell(self.path, fault, meaning)

    def end_before(self, offset: int) -> int | None:
        """The end of the files if it lies before an offset that a checkpoint states; else None.

        The checkpoint may be newer than a fixed list of segments, so the files of now count.
        """
        now = PartitionLog(
            self.path,
            self.topic,
            self.partition,
            segment_paths=self._segment_paths,
            checkpoints=self._checkpoints,
            remote=self._remote,
            source=self.source,
        )
        now._overlaps = self._overlaps  # it told them
        end = settled(lambda: transactions.log_end_offset(now.listed(), skip_damage=True))
        return end if end < offset and not now._closed_at(offset) else None

    def _closed_at(self, offset: int) -> bool:
        """Whether ``kts.Log`` closed the files at this offset: after a truncation inside a batch, none reaches it."""
        segments = self.segments
        known = self.sealed_indexes().get(segments[-1].base_offset) if segments else None
        if known is None or known.log_bytes != segments[-1].size_bytes:
            return False
        return (self._checkpoints.offset(RECOVERY_POINTS, self.topic, self.partition) or 0) >= offset

    @property
    def unknown_start(self) -> str | None:
        """Why the log start offset is unknown, though a checkpoint of the broker may have it; None if it is not."""
        if self._log_start_offset is not None or self.lone:
            return None
        return self._checkpoints.fault(LOG_START_OFFSETS, self.topic, self.partition)

    @property
    def late_start(self) -> str:
        """Why the log begins later than it should, as tiered storage shows it; empty if it does not."""
        return "" if self._remote is None else self._remote.late_start

    def _stated_start(self) -> int | None:
        """The log start offset that the caller or the broker's checkpoint states."""
        if self._log_start_offset is not None or self.lone:
            return self._log_start_offset
        return self._checkpoints.offset(LOG_START_OFFSETS, self.topic, self.partition)

    @property
    def log_end_offset(self) -> int:
        """The offset after the last whole batch.

        Raises
        ------
        CorruptRecordError
            The tail of the last segment is damaged, not just incomplete.
        """
        return settled(lambda: _end_of(self.listed()))

    @property
    def high_watermark(self) -> int | None:
        """The high watermark in the broker's last checkpoint; None if there is no checkpoint beside the directory.

        Raises
        ------
        LogStorageError
            The checkpoint is malformed.
        """
        if self.lone:
            return None
        if (fault := self._checkpoints.fault(HIGH_WATERMARKS, self.topic, self.partition)) is not None:
            path = os.path.join(self._checkpoints.directory, HIGH_WATERMARKS)
            advice = (
                "restore the file, or go on without: kts sync --to-end reads to the log's end, and so does the rest"
            )
            raise LogStorageError(f"{fault}; {MEANINGS[HIGH_WATERMARKS]}; {advice} once it is deleted", path=path)
        return self._checkpoints.offset(HIGH_WATERMARKS, self.topic, self.partition)

    @property
    def first_dirty_offset(self) -> int | None:
        """The first offset that the cleaner has not cleaned; None if its checkpoint does not say it."""
        return None if self.lone else self._checkpoints.offset(CLEANER_OFFSETS, self.topic, self.partition)

    @property
    def last_stable_offset(self) -> int:
        """First offset of the earliest open transaction, or the log end offset."""
        return settled(lambda: transactions.last_stable_offset(self.listed()))

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset) from ``leader-epoch-checkpoint``, or else tiered storage; empty if there is none."""
        found = self._stated_epochs()
        return found if found or self._remote is None else self._remote.lineage()

    def _stated_epochs(self) -> list[tuple[int, int]]:
        if self.lone or self.remote_alone:
            return []
        found = read_leader_epochs(path := os.path.join(self.path, LEADER_EPOCHS), self.source)
        if found is None and (fault := fault_of(path, self.source)) is not None:
            self._checkpoints.tell(path, fault)
        return found or []

    @property
    def topic_id(self) -> str | None:
        """The topic's id from ``partition.metadata``, or else tiered storage; or None."""
        found = None if self.lone or self.remote_alone else read_topic_id(self.path, self.source)
        if found is None and not (self.lone or self.remote_alone):
            path = os.path.join(self.path, PARTITION_METADATA)
            if (fault := fault_of(path, self.source)) is not None:
                self._checkpoints.tell(path, fault)
        return found if found is not None or self._remote is None else self._remote.topic_id

    def sealed_indexes(self) -> dict[int, Sealed]:
        """The index checksums that ``kts.Log`` recorded when it closed the segments, by base offset."""
        return {} if self.lone or self.remote_alone else self._checkpoints.sealed_indexes(self.topic, self.partition)

    def noted_magics(self) -> dict[int, NotedMagics]:
        """The magics that ``kts.Log`` noted when it closed the segments, by base offset."""
        return {} if self.lone or self.remote_alone else self._checkpoints.noted_magics(self.topic, self.partition)

    def offset_for_timestamp(
        self, t_ms: Time, *, shipped_search: bool = False, unit: str | None = None
    ) -> TimestampOffset | None:
        """The first record with a timestamp of at least ``t_ms``, with its own timestamp; None if there is none.

        Parameters
        ----------
        t_ms : int (ms), aware datetime, date, numpy.datetime64 or text
            Text as for ``kts.scan``. Any 64-bit number of ms; compared as a number, so that a target below 0 finds
            records without a timestamp. A number that looks like another unit is taken as it is, with a warning.
        shipped_search : bool
            Search as brokers do: only the first segment with a largest timestamp of at least ``t_ms``. For a segment
            without timestamps its file's modification time counts, so answers depend on file times.
        unit : {"s", "ms", "us", "ns"}, optional
            The unit of an integer. None means ms, and warns of an integer that looks like another unit.

        Notes
        -----
        Control records count. The default search goes on to later segments. It uses sound indexes; without them it
        reads the log, and the answer is the same.

        Source: LogSegment.findOffsetByTimestamp, KIP-79.
        """
        target = search.target_ms("t_ms", t_ms, unit, self.path)
        return settled(lambda: search.offset_for_timestamp(self.listed(), target, shipped_search=shipped_search))

    def explain_offset_for_timestamp(self, t_ms: Time, *, unit: str | None = None) -> search.Explanation:
        """Explain how ``offset_for_timestamp`` finds its answer, and which later records are older."""
        target = search.target_ms("t_ms", t_ms, unit, self.path)
        return settled(lambda: search.explain_offset_for_timestamp(self.listed(), target))

    def max_timestamp(self) -> TimestampOffset | None:
        """The greatest timestamp and the first record with it; None if the log is empty. Control records count."""
        return settled(lambda: search.max_timestamp(self.listed()))

    @takes(ScanOptions)
    def scan(self, options: ScanOptions) -> pa.RecordBatchReader:
        """The records as a stream of Arrow batches; for the arguments see ``kts.scan``."""
        return scanning.records([self], options)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The records as Arrow's C stream, read anew by each call: polars, DuckDB and pyarrow take the log itself."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def batches(self) -> pa.RecordBatchReader:
        """Headers of all batches: the columns of ``kts.scan_batches``, and ``segment``, the segment's base offset."""
        return scanning.batches(self)


def _end_of(log: PartitionLog) -> int:
    return max(transactions.log_end_offset(log), log.log_start_offset)


class _Listed(PartitionLog):
    """A partition with a fixed list of segments and a fixed log start offset."""

    def __init__(self, log: PartitionLog, segments: list[Segment], skip_damage: bool) -> None:
        vars(self).update(vars(log))
        self._log = log.afresh()
        self._segments = [replace(one, sound_part=True) for one in segments] if skip_damage else segments
        self._start: int | None = None

    @property
    def segments(self) -> list[Segment]:
        return self._segments

    @property
    def whole_segments(self) -> list[Segment]:
        return self._segments

    @property
    def log_start_offset(self) -> int:
        if self._start is None:
            self._start = super().log_start_offset
        return self._start

    def afresh(self) -> PartitionLog:
        return self._log

    def listed(self, *, skip_damage: bool = False, whole: bool = False, exact: bool = False) -> PartitionLog:
        return _Listed(self, self._segments, skip_damage) if skip_damage else self


class _Contested(PartitionLog):
    """A partition that lies in several directories, and nothing tells which one counts."""

    why = ""

    @property
    def whole_segments(self) -> list[Segment]:
        raise InvalidRequestError(self.why)


def _distinct(logs: Sequence[PartitionLog]) -> list[PartitionLog]:
    """Logs without those that lie in the directory of another, under another name of it."""
    found: dict[tuple[str, ...], PartitionLog] = {}
    for log in logs:
        found.setdefault(tuple(map(addresses.real, log._segment_paths or [log.path])), log)
    return list(found.values())


def _newer(key: TopicPartition, copies: Sequence[PartitionLog]) -> PartitionLog:
    """Of several directories of a partition the one with the newest facts, with a warning that names it."""
    places = " and ".join(log.path for log in copies)
    advice = "to choose, name the partition's own directory as well, or leave one of the directories out"
    facts = {log: _facts(log) for log in copies}
    known = {log: one for log, one in facts.items() if one is not None}
    ids = {log.topic_id for log in copies}
    if len(ids - {None}) > 1 or not known or (None in ids and not _alike(known)):
        named = ", ".join(sorted(filter(None, ids)))
        why = f"they have the topic ids {named}" if len(ids - {None}) > 1 else "they do not agree, or say too little"
        contested = _Contested(copies[0].path, key.topic, key.partition, source=copies[0].source)
        contested.why = (
            f"expected {key} once, found it in {places}, and nothing tells which one counts: {why}; {advice}"
        )
        return contested
    chosen = max(known, key=lambda log: known[log])
    told = ", ".join(
        f"{log.path} (unreadable)"
        if one is None
        else f"{log.path} (leader epoch {one[0]}, offsets {one[2]} to {one[1]})"
        for log, one in facts.items()
    )
    why = "they say the same" if len(set(facts.values())) == 1 else "it is the newer one"
    warn(f"{key} is in {len(copies)} directories: {told}; {chosen.path} is read: {why}; {advice}", chosen.path)
    return chosen


def _facts(log: PartitionLog) -> tuple[int, int, int] | None:
    """The latest leader epoch, the log end offset and the log start offset; None if they cannot be read."""
    try:
        end = settled(lambda: transactions.log_end_offset(log.listed(), skip_damage=True))
        return max([-1, *(epoch for epoch, _ in log.leader_epochs)]), end, log.log_start_offset
    except KtsError:
        return None


def _alike(facts: Mapping[PartitionLog, tuple[int, int, int]]) -> bool:
    """Whether logs have the same record at the end of the shortest: then they are copies of one log."""
    last = min(end for _, end, _ in facts.values()) - 1
    if last < 0:
        return True
    try:
        found = [
            log.scan(starting_offsets=last, ending_offsets=last + 1, include_control=True).read_all().to_pydict()
            for log in facts
        ]
    except KtsError:
        return False
    return all(one == found[0] for one in found) and len(found[0]["offset"]) > 0


def partition_of_segment(segment: Segment) -> PartitionLog:
    """One segment as a partition of its own."""
    return PartitionLog(
        segment.path, segment.topic, segment.partition, segment_paths=[segment.path], source=segment.source
    )


class LogDirs(Mapping[TopicPartition, PartitionLog]):
    """The partitions of one or several log directories, by (topic, partition).

    Directories that a broker deletes or moves (``-delete``, ``-future``, ``-stray``) are left out; ``kts.open`` accepts
    their own path. Internal topics and ``__cluster_metadata`` are included.

    Parameters
    ----------
    logs : sequence of PartitionLog
        Of several with the same name one is taken, with a warning: the one that ``chosen`` names, else the newer one,
        which has the later leader epoch, the later end, the later start. Two that differ in nothing are taken as one;
        with two topic ids nobody can tell, and reading the partition raises InvalidRequestError.
    chosen : collection of str
        Paths of partitions that a caller named.

    Warns
    -----
    KtsWarning
        The same partition is in two directories.

    Notes
    -----
    A broker that dies while it replaces a replica by the one that it moved to another directory leaves both, and does
    not start again until one is deleted. Source: LogManager.replaceCurrentWithFutureLog, LogManager.loadLog (3.9).
    """

    def __init__(self, logs: Sequence[PartitionLog], chosen: Collection[str] = ()) -> None:
        self._logs: dict[TopicPartition, PartitionLog] = {}
        there: dict[TopicPartition, list[PartitionLog]] = {}
        for log in sorted(logs, key=lambda log: (log.topic, log.partition, log.path)):
            there.setdefault(TopicPartition(log.topic, log.partition), []).append(log)
        for key, found in there.items():
            copies = found if len(found) == 1 else _distinct(found)
            if len(copies) > 1:
                copies = [log for log in copies if log.path in chosen] or copies
            self._logs[key] = copies[0] if len(copies) == 1 else _newer(key, copies)

    def __repr__(self) -> str:
        lines = [f"    {name}: {described(log._described)}" for name, log in islice(self._logs.items(), SHOWN)]
        more = [f"    and {len(self) - SHOWN} more"] if len(self) > SHOWN else []
        return "\n".join([f"LogDirs of {len(self)} partitions", *lines, *more])

    def __getitem__(self, key: tuple[str, int] | str) -> PartitionLog:
        """The partition by ``("orders", 0)`` or by the name of its directory, ``"orders-0"``."""
        name = parse_directory_name(key) if isinstance(key, str) else None
        if name is not None and not name.state:
            key = name[:2]
        if not isinstance(key, tuple) or len(key) != 2:
            raise KeyError(key)
        return self._logs[TopicPartition(*key)]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._logs)

    def __len__(self) -> int:
        return len(self._logs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The records as Arrow's C stream, as ``kts.scan`` of the directories gives them; read anew by each call."""
        logs = [log for log in self.values() if log.topic not in INTERNAL_TOPICS]
        return scanning.records(logs, ScanOptions()).__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Close every partition."""
        for log in self._logs.values():
            log.close()
