"""The state of a cluster, from what a log directory holds of its metadata."""

from __future__ import annotations

import errno
import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kts.cluster_records.layout import NO_OP, SNAPSHOT_FOOTER, SNAPSHOT_HEADER, TOPIC, read_control, read_record
from kts.cluster_records.state import ClusterOrigin, ClusterPartition, ClusterState, ClusterTopic, Fold
from kts.dataset.options import Path, offset_or_time
from kts.dataset.partition import PartitionLog
from kts.dataset.paths import log_dirs_in, one_level_down, one_path, open_partition
from kts.errors import CorruptRecordError, KtsError, LogStorageError, OffsetOutOfRangeError
from kts.segment import meta_properties
from kts.segment.meta_properties import MetaProperties
from kts.segment.names import parse_directory_name
from kts.segment.rereading import warn
from kts.store import addresses
from kts.store.addresses import StorageOptions
from kts.store.source import Source
from kts.times import Time, milliseconds, show_time

if TYPE_CHECKING:
    import pyarrow as pa

BOOTSTRAP = "bootstrap.checkpoint"
COLUMNS = ["offset", "timestamp", "control", "position", "key", "value"]
_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class MetadataSnapshot(NamedTuple):
    """A snapshot: its file, and the offset behind the records that it stands for."""

    path: str
    end_offset: int


def cluster(path: Path, *, as_of: int | Time | None = None, storage_options: StorageOptions = None) -> ClusterState:
    """The state of a KRaft cluster, as a log directory's metadata log says it: topics, settings, brokers, ACLs.

    Parameters
    ----------
    path : path
        A log directory with ``__cluster_metadata-0``, or that directory.
    as_of : int, aware datetime, date, numpy.datetime64 or text, optional
        An int is an offset of the metadata log: the state after the record there. Anything else is a time: the state
        before the first record after it. Text is ISO 8601. None is the newest state.
    storage_options : dict, optional
        How to reach a bucket. See ``kts.open``.

    Returns
    -------
    ClusterState
        Times in it are ms since the epoch; secrets are left out. A topic is ``state.topic("orders")``, its own settings
        ``state.topic("orders").config``.

    Raises
    ------
    FileNotFoundError
        Nothing in the directory tells of a cluster.
    OffsetOutOfRangeError
        ``as_of`` lies before the oldest state on the disk, or is an offset after the last one.
    TypeError, ValueError
        A wrong argument.
    CorruptRecordError, LogStorageError
        Damage, with ``.path``, and where they are known ``.position`` and ``.offset``.

    Warns
    -----
    KtsWarning
        The directory has no metadata log, and tells little; or its ``meta.properties`` is malformed.

    Notes
    -----
    The newest snapshot (``*.checkpoint``) that is not after ``as_of`` is read, then the log from its end on. Where
    there is no log yet, ``bootstrap.checkpoint`` counts. Records of a metadata transaction count once it ends. The
    quorum may not have committed the last records of a disk. A directory from the time of ZooKeeper says which cluster
    and node it belongs to, and which topics lie in it.

    Source: KafkaMetadataLog, MetadataLoader, BootstrapDirectory (4.3.1).
    """
    directory, source = one_path(path, storage_options)
    own = parse_directory_name(os.path.basename(addresses.absolute(directory)))
    if own is not None and (own.topic, own.partition) == (TOPIC, 0):
        directory = os.path.dirname(addresses.absolute(directory))
    meta = _meta_of(directory, source)
    at = os.path.join(directory, f"{TOPIC}-0")
    known = () if meta is None else (meta.cluster_id, meta.node_id, meta.directory_id, meta.version == 0)
    snapshots: list[MetadataSnapshot] = []
    if source.directory_exists(at):
        log = PartitionLog(at, TOPIC, 0, source=source)
        snapshots = _snapshots(at, source)
        if log.log_end_offset or any(one.end_offset for one in snapshots):
            fold, origin = _Reading(directory, log, snapshots, storage_options).read(as_of)
            return fold.state(origin, *known)
    if as_of is not None:
        raise ValueError(f"as_of: there is no metadata log in {directory}, and without one no state but the present")
    first = snapshots[-1].path if snapshots else None  # that kafka-storage format wrote
    return _without_log(directory, source, meta, first, storage_options)


def _meta_of(directory: str, source: Source) -> MetaProperties | None:
    """Whose log directory it is; None, with a warning, if its file is malformed, as a crash may leave it."""
    try:
        return meta_properties.read(directory, source)
    except LogStorageError as error:
        warn(f"{error}; which cluster and node the directory belongs to is not known", directory)
        return None


def _snapshots(directory: str, source: Source) -> list[MetadataSnapshot]:
    """The snapshots beside a metadata log, the newest first."""
    found = [
        MetadataSnapshot(entry.path, int(name[1]))
        for entry in source.walk_directory(directory)
        if (name := _SNAPSHOT.fullmatch(entry.name)) is not None
    ]
    return sorted(found, key=lambda one: one.path, reverse=True)


class _Reading:
    """Reads snapshots and a metadata log up to an offset or a time."""

    def __init__(
        self, directory: str, log: PartitionLog, snapshots: list[MetadataSnapshot], storage_options: StorageOptions
    ) -> None:
        self.directory, self.log, self.snapshots = directory, log, snapshots
        self.storage_options = storage_options
        self.fold = Fold()
        self.last_offset: int | None = None
        self.last_ms: int | None = None

    def read(self, as_of: int | Time | None) -> tuple[Fold, ClusterOrigin]:
        """Everything up to ``as_of``."""
        end = self.log.log_end_offset
        start = self.log.log_start_offset if end else 0
        if as_of is None:
            begin = self.snapshots[0] if self.snapshots else None
        elif isinstance(as_of := offset_or_time("as_of", as_of), int):
            stop = self._end_of_offset(as_of, max(end, *(one.end_offset for one in self.snapshots), 0))
            begin = next((one for one in self.snapshots if one.end_offset <= stop), None)
            if stop > max(end, 0 if begin is None else begin.end_offset):
                raise OffsetOutOfRangeError(
                    f"as_of: the records up to {as_of} are not on this disk: the log ends at {end}"
                )
            end = min(end, stop)
        else:
            ms = milliseconds("as_of", as_of, round_up=False)
            later = self.log.offset_for_timestamp(ms + 1, unit="ms")
            before = (
                self.snapshots if later is None else [one for one in self.snapshots if one.end_offset <= later.offset]
            )
            begin = next((one for one in before if self._time_of(one) <= ms), None)
            end = end if later is None else later.offset
        if start > (0 if begin is None else begin.end_offset):
            raise self._lost(as_of, start, begin)
        if begin is not None:
            self._take_snapshot(begin)
            start = begin.end_offset
        elif not end:
            raise self._lost(as_of, start, begin)
        if start < end:
            self._take(self.log, start, end)
        opened = self.fold.waiting is not None
        snapshot = None if begin is None else begin.path
        return self.fold, ClusterOrigin(self.directory, snapshot, self.log.path, self.last_offset, self.last_ms, opened)

    @staticmethod
    def _end_of_offset(offset: int, end: int) -> int:
        if not 0 <= offset < end:
            raise OffsetOutOfRangeError(
                f"as_of: expected an offset of the metadata log, 0 to {end - 1}, found {offset}"
            )
        return offset + 1

    def _lost(self, as_of: int | Time | None, start: int, begin: MetadataSnapshot | None) -> KtsError:
        """The error for a state that is not on the disk."""
        where = f"the metadata log begins at offset {start}"
        if as_of is None:
            after = "no snapshot is there" if begin is None else f"the newest snapshot ends at {begin.end_offset}"
            return CorruptRecordError(f"{where}, and {after}: records between are missing", path=self.log.path)
        oldest = next((one for one in reversed(self.snapshots) if one.end_offset), None)
        told = ""
        if oldest is not None:
            told = f", the oldest snapshot has offset {oldest.end_offset - 1}, of {show_time(self._time_of(oldest))}"
        return OffsetOutOfRangeError(f"as_of: {as_of} is before the oldest state on this disk: {where}{told}")

    def _time_of(self, snapshot: MetadataSnapshot) -> int:
        """The time of the last record that a snapshot contains."""
        log = _snapshot_at(snapshot.path, self.storage_options)
        return _time_in_header(snapshot.path, next(_rows(log, None, None), None))

    def _take_snapshot(self, snapshot: MetadataSnapshot) -> None:
        self.last_ms = _take_snapshot(self.fold, snapshot.path, self.storage_options)
        self.last_offset = snapshot.end_offset - 1
        self.fold.waiting = None

    def _take(self, log: PartitionLog, start: int, end: int) -> None:
        for rows in _rows(log, start, end):
            _take_rows(self.fold, log, rows)
            if rows.num_rows:
                self.last_offset = rows.column("offset")[-1].as_py()
                self.last_ms = rows.column("timestamp")[-1].value


def _rows(log: PartitionLog, start: int | None, end: int | None) -> Iterator[pa.RecordBatch]:
    yield from log.scan(columns=COLUMNS, include_control=True, starting_offsets=start, ending_offsets=end)


def _take_rows(fold: Fold, log: PartitionLog, rows: pa.RecordBatch) -> None:
    """Add rows; those that say nothing cost no step of Python."""
    import pyarrow.compute as pc

    says = pc.fill_null(pc.not_equal(rows.column("value"), NO_OP), True)
    chosen = rows.filter(pc.or_(rows.column("control"), says))
    columns = (chosen.column(name).to_pylist() for name in COLUMNS if name != "timestamp")  # which is slow, as objects
    for offset, control, position, key, value in zip(*columns, strict=True):
        try:
            if control:
                fold.take_control(read_control(key or b"", value or b""))
            else:
                fold.take(offset, read_record(value or b""))
        except KtsError as error:
            bases = [segment.base_offset for segment in log.segments]
            path = log.path if log.lone else log.segments[bisect_right(bases, offset) - 1].path
            message = f"offset {offset} is not a record of {TOPIC}: {error.message}"
            raise CorruptRecordError(message, path=path, position=position, offset=offset) from error


def _snapshot_at(path: str, storage_options: StorageOptions) -> PartitionLog:
    """An open snapshot, which has the form of a segment."""
    try:
        return open_partition(path, storage_options=storage_options)
    except ValueError as error:
        raise CorruptRecordError("expected a snapshot, found no whole batch", path=path, position=0) from error


def _take_snapshot(fold: Fold, path: str, storage_options: StorageOptions) -> int:
    """Add the records of a snapshot; returns the time of the last record that it contains."""
    log = _snapshot_at(path, storage_options)
    ms: int | None = None
    last: bytes | None = None
    for rows in _rows(log, None, None):
        ms = _time_in_header(path, rows) if ms is None else ms
        last = rows.column("key")[-1].as_py() if rows.num_rows else last
        _take_rows(fold, log, rows)
    if ms is None or last != SNAPSHOT_FOOTER:
        raise CorruptRecordError("expected a snapshot with a footer at its end, found none: it is cut", path=path)
    return ms


def _time_in_header(path: str, rows: pa.RecordBatch | None) -> int:
    if rows is None or not rows.num_rows or rows.column("key")[0].as_py() != SNAPSHOT_HEADER:
        raise CorruptRecordError("expected a snapshot, found no header at its start", path=path)
    try:
        header = read_control(SNAPSHOT_HEADER, rows.column("value")[0].as_py() or b"")
    except KtsError as error:
        raise CorruptRecordError(f"the header of a snapshot: {error.message}", path=path, position=0) from error
    return 0 if header is None or header.fields is None else int(header.fields["lastContainedLogTimestamp"])


# --- directories without a metadata log -----------------------------------------------------------


def _without_log(
    directory: str,
    source: Source,
    meta: MetaProperties | None,
    first: str | None,
    storage_options: StorageOptions,
) -> ClusterState:
    """What ``meta.properties``, ``bootstrap.checkpoint`` and the partitions' own files say."""
    bootstrap = os.path.join(directory, BOOTSTRAP)
    has_bootstrap = source.exists(bootstrap)
    if meta is None and not has_bootstrap:
        hint = one_level_down([directory], storage_options) or (
            "; name the log directory in which a broker or controller keeps it: metadata.log.dir, or else the first of"
            " log.dirs, in its server.properties"
        )
        raise FileNotFoundError(errno.ENOENT, f"no metadata of a cluster ({TOPIC}-0){hint}", directory)
    fold = Fold()
    for path in (first, bootstrap if has_bootstrap else None):
        if path is not None:
            _take_snapshot(fold, path, storage_options)
    by_zookeeper = meta is not None and meta.version == 0
    node_id = None if meta is None else meta.node_id
    origin = ClusterOrigin(directory, bootstrap if has_bootstrap else None, None, None, None)
    known = () if meta is None else (meta.cluster_id, node_id, meta.directory_id, by_zookeeper)
    why = "ZooKeeper had it" if by_zookeeper else "it lies in metadata.log.dir, or else the first of log.dirs"
    if source.directory_exists(os.path.join(directory, f"{TOPIC}-0")):
        why = "it is empty, as the directory was formatted"
    warn(f"{directory}: there is no metadata log here, {why}: topics are those of the partitions here", directory)
    state = fold.state(origin, *known)
    state.topics.update(_topics_in(directory, source, node_id))  # type: ignore[attr-defined]
    return state


def _topics_in(directory: str, source: Source, node_id: int | None) -> dict[str, ClusterTopic]:
    """The topics of the partitions that lie in a log directory; settings, and most of a partition, are not known."""
    found: dict[str, tuple[str | None, dict[int, ClusterPartition]]] = {}
    for (name, number), log in sorted(log_dirs_in(directory, source).items()):
        epochs = log.leader_epochs
        unknown: dict[str, Any] = dict.fromkeys(ClusterPartition._fields, ())
        here = unknown | {
            "partition": number,
            "leader": -1,
            "leader_epoch": epochs[-1][0] if epochs else -1,
            "partition_epoch": -1,
            "replicas": () if node_id is None else (node_id,),
            "recovering": False,
        }
        topic_id, partitions = found.setdefault(name, (log.topic_id, {}))
        partitions[number] = ClusterPartition(**here)
    return {name: ClusterTopic(name, topic_id, {}, partitions) for name, (topic_id, partitions) in found.items()}
