"""Segments that several processes write aside, and the commit that makes them part of the log directory at once.

Each task writes logs of its own, whose offsets begin at 0, into a directory that brokers and readers pass over; the
commit gives them the offsets that follow in each partition::

    <log directory>/
      kts-write-0.<32 hex digits>-delete/      of one write, which removes it; else a broker does at its start, or
                                               another write after a week without a change
        <task attempt>/<topic>-<partition>/    a log directory with the logs of one attempt
      kts-commit-<n>...                        the segments with their final offsets, until they are renamed
      kts-commit-checkpoint                    which of them join which partition: ``kts.segment.commits``
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np

from kts._codec import renumber
from kts.codec.layout import HEADER_BYTES, Entries, read_header
from kts.codec.partitioner import partitions_of
from kts.codec.rows import JUDGED_COLUMNS, row_times
from kts.config import LogConfig
from kts.errors import InvalidRequestError, KtsError, LogLockedError, LogStorageError
from kts.log.commit import finish_commit
from kts.log.directory import LogDirectory
from kts.log.log import Log
from kts.model import TopicPartition
from kts.segment import checkpoints
from kts.segment.commits import ASIDE, PendingFile, PendingPartition, read_commits, write_commits
from kts.segment.names import BOTH_INDEXES, CLEAN_SHUTDOWN, check_topic, is_aside, parse_directory_name, parse_file_name
from kts.segment.snapshots import snapshot_bytes
from kts.store import addresses, local, publishing
from kts.store.local import File, WritableFile
from kts.store.source import files
from kts.times import wall_clock

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 16384  # batch.size of Kafka's producer
FLUSH_BYTES = 32 << 20  # of rows that wait for others of their partition
PIECE_BYTES = 4 << 20  # of a segment that gets its offsets at a time
DISK_THREADS = 4  # that give segments their offsets; mostly they wait for the disk
PATIENCE_S, CHECK_PATIENCE_S = 60.0, 3.0  # for another commit in the same log directory
IDLE_MS = 7 * 86_400_000  # a write may wait so long for its rows
_ROOT = "kts-write-0.{:32.32}-delete"


class StagedLog(NamedTuple):
    """What one task wrote for one partition.

    Attributes
    ----------
    path : str
        The log aside; its offsets begin at 0. Empty if there are no records.
    records : int
        0 for a partition of a new topic that got no rows: it is created all the same, as by a broker.
    first_ms, last_ms : int or None
        The least and the greatest timestamp, if the rows were sorted by it.
    """

    path: str
    topic: str
    partition: int
    records: int
    first_ms: int | None = None
    last_ms: int | None = None


class CommittedRange(NamedTuple):
    """The offsets that a commit gave to the records of a partition; the end is exclusive."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int


class _Moved(NamedTuple):
    """A segment that lies beside its partition: what its offsets grow by, and its leader epoch."""

    log: str
    indexes: list[str]
    shift: int
    epoch: int


def staging_root(directory: str, write_id: str) -> str:
    """The directory of all tasks of one write; its id has 32 hex digits."""
    return os.path.join(directory, _ROOT.format(write_id))


def partition_counts(directory: str) -> dict[str, int | None]:
    """How many partitions each topic of a log directory has; None if the directory does not hold all of them."""
    found: dict[str, set[int]] = {}
    for name in files.names_in(directory):
        parsed = parse_directory_name(name)
        if parsed is not None and not parsed.state:
            found.setdefault(parsed.topic, set()).add(parsed.partition)
    return {topic: len(numbers) if max(numbers) < len(numbers) else None for topic, numbers in found.items()}


def check_free(directory: str) -> None:
    """Make a log directory ready for a write: create it if it is missing, complete an interrupted commit, and remove
    what writes left aside whose driver was killed.

    Raises
    ------
    LogLockedError
        A broker or another process holds the directory.
    """
    local.make_directory(directory)
    _locked(directory, CHECK_PATIENCE_S).leave()
    changed_ms = wall_clock() - IDLE_MS
    for name in files.names_in(directory):
        if is_aside(name) and _is_idle(os.path.join(directory, name), changed_ms):
            _remove(directory, name)


class StagedWriter:
    """Writes the rows of one task aside; a context manager that removes them if its block fails.

    Parameters
    ----------
    root : str
        As ``staging_root`` gives it; it must exist.
    config : LogConfig or mapping
        The topics' settings.
    counts : mapping of str to int or None
        As ``partition_counts`` gives it.
    default_count : int
        Partitions of topics that are not in ``counts``, as the broker's ``num.partitions``.
    topic : str, optional
        The topic of all rows; None takes the column ``topic``.
    task : int
        Any number of the task: rows without key and partition of different tasks go to different partitions.
    compression : str, optional
        As in ``Log.append_rows``.
    batch_bytes : int
        Limit of the uncompressed bytes of a batch.
    sort : bool
        Sort the rows of each partition by timestamp, stably. They stay in memory until ``finish``.
    """

    def __init__(
        self,
        root: str,
        config: LogConfig | Mapping[str, Any],
        counts: Mapping[str, int | None],
        *,
        default_count: int = 1,
        topic: str | None = None,
        task: int = 0,
        compression: str | None = None,
        batch_bytes: int = BATCH_BYTES,
        sort: bool = False,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.path = os.path.join(root, uuid4().hex)
        self._config = LogConfig.of(config)
        self._counts, self._default_count = counts, default_count
        self._topic, self._sticky = topic, task
        self._rows: dict[str, Any] = {"compression": compression, "unit": "ms", "batch_bytes": batch_bytes}
        self._sort, self._clock = sort, clock
        self._logs: dict[TopicPartition, Log] = {}
        self._new: set[str] = set()  # topics of which rows are spread over the default number of partitions
        self._ranges: dict[TopicPartition, tuple[int, int]] = {}
        self._waiting: dict[TopicPartition, list[pa.Table]] = {}
        self._waiting_bytes = 0
        self._make_directory(self.path)
        self._held = LogDirectory(self.path)

    def __enter__(self) -> StagedWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.abandon()

    def append(self, rows: pa.Table) -> None:
        """Append rows: ``key``, ``value``, ``headers``, ``timestamp`` as for ``Log.append_rows``, integers in ms;
        ``topic`` unless the writer has one; ``partition``, where null leaves the choice to Kafka's rule for the key.

        Raises
        ------
        ValueError, KtsError
            A row cannot be written.
        """
        if not rows.num_rows:
            return
        rows = rows.combine_chunks()
        for key, part in self._by_partition(rows):
            self._waiting.setdefault(key, []).append(part)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes > FLUSH_BYTES and not self._sort:
            self._flush()

    def finish(self) -> list[StagedLog]:
        """Write what waits and close the logs; the commit flushes them."""
        self._flush()
        with self._held.checkpoints_at_once():
            for log in self._logs.values():
                log.hand_over()
        self._held.leave()
        found = [
            StagedLog(log.path, *key, log.log_end_offset, *self._ranges.get(key, ())) for key, log in self._logs.items()
        ]
        all_of_new = [TopicPartition(name, one) for name in sorted(self._new) for one in range(self._default_count)]
        return found + [StagedLog("", *key, 0) for key in all_of_new if key not in self._logs]

    def abandon(self) -> None:
        """Remove everything; nothing fails here."""
        for log in self._logs.values():
            log.abandon()
        with suppress(KtsError):
            self._held.leave()
        with suppress(KtsError):
            local.remove_tree(self.path)

    # --- the partition of each row ------------------------------------------------------------------

    def _by_partition(self, rows: pa.Table) -> Iterable[tuple[TopicPartition, pa.Table]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        count = rows.num_rows
        if self._topic is None:
            if "topic" not in rows.column_names or rows.column("topic").null_count:
                found = "a null topic" if "topic" in rows.column_names else "no column topic"
                raise ValueError(f"rows: expected a topic in each row, or option topic for all rows, found {found}")
            topics = pc.dictionary_encode(rows.column("topic")).combine_chunks()
            names, codes = topics.dictionary.to_pylist(), np.asarray(topics.indices).astype(np.int64)
        else:
            names, codes = [self._topic], np.zeros(count, np.int64)
        partitions = self._partitions(rows, names, codes)
        if names and partitions.min() < 0:
            raise ValueError(f"rows: column partition: expected 0 or more, found {partitions.min()}")
        group = codes << 32 | partitions
        data = rows.select([name for name in JUDGED_COLUMNS if name in rows.column_names])
        first = int(group[0])
        if (group == first).all():
            yield TopicPartition(names[first >> 32], first & 0xFFFFFFFF), data
            return
        order = np.argsort(group, kind="stable")
        ordered, sorted_groups = data.take(pa.array(order)), group[order]
        edges = [0, *(np.flatnonzero(np.diff(sorted_groups)) + 1).tolist(), count]
        for start, end in zip(edges, edges[1:], strict=False):
            key = int(sorted_groups[start])
            yield TopicPartition(names[key >> 32], key & 0xFFFFFFFF), ordered.slice(start, end - start)

    def _partitions(self, rows: pa.Table, names: list[str], codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The partition of each row: its own, that of its key, or for rows without both one for all of them."""
        found = np.full(rows.num_rows, -1, np.int64)
        given = np.zeros(rows.num_rows, np.bool_)
        if "partition" in rows.column_names:
            column = rows.column("partition")
            given = np.asarray(column.is_valid())
            found = np.asarray(column.fill_null(-1)).astype(np.int64)
        if given.all():
            return found
        keys = rows.column("key").combine_chunks() if "key" in rows.column_names else None
        for code, name in enumerate(names):
            chosen = ~given & (codes == code)
            if not chosen.any():
                continue
            count = self._counts.get(name, self._default_count)
            if name not in self._counts:
                self._new.add(name)
            if count is None:
                raise InvalidRequestError(
                    f"topic {name}: expected partitions from 0 on without a gap in the log directory, so that a key's "
                    "partition is known, found some of them; give each row its partition"
                )
            self._sticky += 1
            found[chosen] = self._sticky % count
            if keys is not None:
                keyed = chosen & np.asarray(keys.is_valid())
                found[keyed] = partitions_of(keys, count)[keyed]
        return found

    # --- writing ------------------------------------------------------------------------------------

    def _flush(self) -> None:
        import pyarrow as pa

        for key, parts in self._waiting.items():
            rows = pa.concat_tables(parts)
            if self._sort:
                rows = self._sorted(key, rows)
            log = self._log(key)
            try:
                log.append_rows(rows, **self._rows)
            except KtsError as error:
                raise _of_partition(error, key, log.log_end_offset) from error.__cause__
        self._waiting.clear()
        self._waiting_bytes = 0

    def _sorted(self, key: TopicPartition, rows: pa.Table) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        if "timestamp" not in rows.column_names or rows.column("timestamp").null_count:
            raise ValueError("rows: sorted rows need a timestamp each, found a row without one")
        times = row_times(rows.column("timestamp").combine_chunks(), self._rows["unit"])
        order = pc.sort_indices(pa.table({"timestamp": times}), [("timestamp", "ascending")])
        ends = pc.min_max(times)
        self._ranges[key] = ends["min"].as_py(), ends["max"].as_py()
        return rows.take(order)

    def _log(self, key: TopicPartition) -> Log:
        if key not in self._logs:
            check_topic(key.topic)
            path = os.path.join(self.path, str(key))
            self._make_directory(path)
            self._logs[key] = Log(path, self._config, clock=self._clock, create=False)
        return self._logs[key]

    @staticmethod
    def _make_directory(path: str) -> None:
        """Without the directory above: the driver removes it when the write is over, and it must not come back."""
        try:
            local.make_directory(path, parents=False)
        except LogStorageError as error:
            if error.errno != errno.ENOENT:
                raise
            raise LogStorageError(
                "expected the directory of the write, found none: the write is over", path=os.path.dirname(path)
            ) from error


# --- commit ---------------------------------------------------------------------------------------


def commit(
    directory: str,
    staged: Sequence[StagedLog],
    config: LogConfig | Mapping[str, Any],
    *,
    query: str | None = None,
    batch: int = -1,
    sorted_by_time: bool = False,
) -> list[CommittedRange]:
    """Append logs that tasks wrote aside to the partitions of a log directory: all of them, or none.

    Parameters
    ----------
    directory : str
        The log directory; no broker runs on it.
    staged : sequence of StagedLog
        In the order in which their records are appended.
    config : LogConfig or mapping
        The topics' settings, as the tasks had them.
    query, batch : str, int
        The streaming query and its batch. A batch that was committed before, or an earlier one, changes nothing.
    sorted_by_time : bool
        Append the logs of each partition in the order of their times.

    Returns
    -------
    list of CommittedRange
        Empty if the batch had been committed before.

    Raises
    ------
    LogLockedError
        A broker or another process holds the directory.
    InvalidRequestError
        ``sorted_by_time``, and the times of two tasks overlap in a partition.
    LogStorageError
        The disk failed. Nothing is committed, or the next writer of the directory completes the commit.

    Notes
    -----
    The order, which a crash may interrupt anywhere: the partitions are closed as in a clean stop; the segments get
    their offsets and lie, synced, beside the partitions; the commit checkpoint lists them (from here on the commit
    happens); they are renamed, and the leader epochs written; the checkpoint's list is emptied (from here on readers
    see the records); the offset checkpoints and the marker of a clean stop are written.

    Offsets of magic 2, of uncompressed messages and of wrappers of magic 1 are changed in place: no CRC covers them.
    Wrappers of magic 0 have absolute offsets inside: they are appended again, as a leader does.
    """
    config = LogConfig.of(config)
    held, is_clean = _locked(directory, PATIENCE_S), False
    try:
        commits = read_commits(directory)
        if query is not None and commits.streams.get(query, -1) >= batch:
            is_clean = True
            return []
        for name in _numbered(directory):  # of a process that died before its commit
            files.remove(os.path.join(directory, name))
        groups = _grouped([one for one in staged if one.records], sorted_by_time)
        pending = []
        moved: list[_Moved] = []
        number = 0
        for key, logs in groups.items():
            one, segments = _prepare(directory, key, logs, config, number)
            number += len(one.files)
            pending.append(one)
            moved += segments
        with ThreadPoolExecutor(DISK_THREADS) as threads:
            list(threads.map(_renumber, moved))
        for key in sorted({TopicPartition(one.topic, one.partition) for one in staged} - groups.keys()):
            if not files.exists(os.path.join(directory, str(key))):
                pending.append(PendingPartition(*key, 0, True, -1, [], []))
        if pending:
            files.remove(os.path.join(directory, CLEAN_SHUTDOWN), missing_ok=True)
        local.sync_directory(directory)
        streams = commits.streams if query is None else {**commits.streams, query: batch}
        write_commits(directory, replace(commits, streams=streams, pending=pending))
        finish_commit(directory)
        with held.checkpoints_at_once():
            ids = _topic_ids(directory, {one.topic for one in pending})
            done = [_close(directory, held, one, config, ids.get(one.topic)) for one in pending]
        is_clean = True
        return done
    finally:
        held.leave(clean=is_clean)


def _of_partition(error: KtsError, key: TopicPartition, written: int) -> KtsError:
    """The error of rows, with the partition and how many of its rows the task wrote before them."""
    error.message = f"{key}{f', after {written} rows' if written else ''}: {error.message}"
    error.args = (error.message,)
    return error


def remove_staging(directory: str, *, write_id: str | None = None, stream: str | None = None, batch: int = -1) -> None:
    """Remove what tasks left aside: of one write, or of all batches of a stream up to ``batch``.

    A task that still runs writes to nothing from then on, and fails.
    """
    for name in files.names_in(directory):
        ours = write_id is not None and name == _ROOT.format(write_id)
        if stream is not None and name.startswith(f"kts-write-0.{stream}") and name.endswith("-delete"):
            ours = int(name[28:44], 16) <= batch
        if ours:
            _remove(directory, name)


def _remove(directory: str, name: str) -> None:
    """Remove the directory of a write as far as the system allows, first of all its name, so that its tasks fail."""
    path, away = (os.path.join(directory, one) for one in (name, _ROOT.format(uuid4().hex)))
    with suppress(LogStorageError):  # else it is removed where it is
        local.rename(path, away)
        path = away
    for _ in range(2):  # a task that was just making a file in it is done with that by the second time
        with suppress(KtsError):
            local.remove_tree(path)


def _is_idle(path: str, since_ms: int) -> bool:
    """Whether a directory, and everything in it, was last changed before a time."""
    try:
        return files.modified_ms(path) < since_ms and all(
            _is_idle(entry.path, since_ms)
            if entry.is_dir(follow_symlinks=False)
            else files.modified_ms(entry.path) < since_ms
            for entry in files.list_directory(path)
        )
    except LogStorageError:  # somebody removes it now
        return False


def _locked(directory: str, patience_s: float) -> LogDirectory:
    """The log directory, once no other commit holds it; where a commit moves segments, it may take longer."""
    start = time.monotonic()
    while True:
        try:
            return LogDirectory(directory)
        except LogLockedError:
            passed_s = time.monotonic() - start
            if passed_s > PATIENCE_S or (passed_s > patience_s and not _numbered(directory)):
                raise
        time.sleep(0.1)


def _numbered(directory: str) -> list[str]:
    """The segments with their final offsets that wait to be renamed."""
    names = files.names_in(directory)
    return [one for one in names if one.startswith(ASIDE) and parse_file_name(one.removeprefix(ASIDE)[9:]) is not None]


def _grouped(staged: Sequence[StagedLog], sorted_by_time: bool) -> dict[TopicPartition, list[StagedLog]]:
    groups: dict[TopicPartition, list[StagedLog]] = {}
    for one in staged:
        groups.setdefault(TopicPartition(one.topic, one.partition), []).append(one)
    if sorted_by_time:
        for key, logs in groups.items():
            logs.sort(key=lambda one: (one.first_ms or 0, one.last_ms or 0))
            for before, after in zip(logs, logs[1:], strict=False):
                if (before.last_ms or 0) > (after.first_ms or 0):
                    raise InvalidRequestError(
                        f"sorted by timestamp: expected the rows of {key} in one task, or in tasks whose times do not "
                        f"overlap, found {len(logs)} tasks, one up to {before.last_ms} ms and the next from "
                        f"{after.first_ms} ms; repartition the rows by topic and partition first"
                    )
    return groups


def _prepare(
    directory: str, key: TopicPartition, logs: list[StagedLog], config: LogConfig, number: int
) -> tuple[PendingPartition, list[_Moved]]:
    """Move the files of the logs beside the partition, numbered from ``number`` on; ``_renumber`` is the next step."""
    folder = os.path.join(directory, str(key))
    is_new, first, epoch, last = not files.exists(folder), 0, 0, list[int]()
    if not is_new:
        if addresses.real(folder) != os.path.join(addresses.real(directory), str(key)):
            message = "expected a partition in the log directory itself, found a link: a commit moves no segments out"
            raise LogStorageError(f"{message}; write to the log directory that it leads to", path=folder)
        with Log(folder, config) as log:
            if log.segments[-1].size:
                log.roll()
            first, epoch = log.log_end_offset, max([0, *(one for one, _ in log.leader_epochs)])
            active = log.segments[-1]
        last = [active.base_offset, files.size_of(active.path)]
    moves: list[PendingFile] = []
    segments: list[_Moved] = []
    offset = first

    def move(path: str, target: str) -> str:
        source = f"{ASIDE}{number + len(moves):08d}-{target}"
        size = files.size_of(path)
        local.rename(path, moved := os.path.join(directory, source))
        moves.append(PendingFile(source, target, size))
        return moved

    snapshot = None if is_new else files.read_if_there(os.path.join(folder, f"{first:020d}.snapshot"))
    for one in logs:
        path, shift = one.path, offset
        if config.magic == 0 and _is_compressed(path):
            path, shift = _appended_again(one, offset, config), 0
        names = (parse_file_name(name) for name in files.names_in(path))
        for base in sorted(
            name.base_offset for name in names if name and name.suffix == ".log" and not name.transition
        ):
            stem, target = os.path.join(path, f"{base:020d}"), f"{base + shift:020d}"
            if base + shift < offset or not files.size_of(f"{stem}.log"):
                continue
            indexes = [move(f"{stem}{suffix}", f"{target}{suffix}") for suffix in BOTH_INDEXES]
            segments.append(_Moved(move(f"{stem}.log", f"{target}.log"), indexes, shift, epoch))
        offset += one.records
    if config.magic == 2:  # the producers at the end are those from before: the new records have none
        path = os.path.join(directory, f"{ASIDE}{number + len(moves):08d}-{offset:020d}.snapshot")
        publishing.publish(path, snapshot_bytes([]) if snapshot is None else snapshot)
        moves.append(PendingFile(os.path.basename(path), f"{offset:020d}.snapshot", files.size_of(path)))
    return PendingPartition(*key, first, is_new, epoch if config.magic == 2 else -1, last, moves), segments


def _is_compressed(path: str) -> bool:
    """Whether a log begins with a wrapper; then all its sets are wrappers."""
    with File(os.path.join(path, f"{0:020d}.log")) as file:
        entry = read_header(file.read(0, HEADER_BYTES))
    return entry is not None and entry.codec != 0


def _appended_again(one: StagedLog, offset: int, config: LogConfig) -> str:
    """A log of the same sets whose offsets begin at ``offset``, beside the first."""
    path = os.path.join(f"{os.path.dirname(one.path)}.numbered", os.path.basename(one.path))
    with Log(path, config) as log:
        log.truncate_fully_and_start_at(offset)
        for name in sorted(files.names_in(one.path)):
            if name.endswith(".log"):
                with File(os.path.join(one.path, name)) as file:
                    position = 0
                    while data := file.read(position, max(PIECE_BYTES, 2 * config.max_message_bytes)):
                        whole = memoryview(data)
                        for entry in Entries(data):
                            log.append(whole[entry.position : entry.end])
                            position += entry.size
    return path


def _renumber(segment: _Moved) -> None:
    """Give a segment its offsets, and wait until it is on disk."""
    for index in segment.indexes:
        publishing.sync_file(index)
    with WritableFile(segment.log) as file:
        position, size, most = 0, file.size(), PIECE_BYTES
        while position < size and (segment.shift or segment.epoch):
            data = bytearray(min(most, size - position))
            file.read_into(memoryview(data), position)
            done = renumber(data, segment.shift, segment.epoch)
            if not done:  # an entry larger than the piece
                most *= 2
                continue
            file.write(memoryview(data)[:done], position)
            position += done
        file.sync()


def _topic_ids(directory: str, topics: set[str]) -> dict[str, str]:
    """The id of each topic of which a partition has one."""
    found: dict[str, str] = {}
    for name in files.names_in(directory):
        parsed = parse_directory_name(name)
        if parsed is None or parsed.state or parsed.topic not in topics or parsed.topic in found:
            continue
        known = checkpoints.read_topic_id(os.path.join(directory, name))
        if known is not None:
            found[parsed.topic] = known
    return found


def _close(
    directory: str, held: LogDirectory, one: PendingPartition, config: LogConfig, topic_id: str | None
) -> CommittedRange:
    """Open and close a partition, which writes its checkpoints, and the topic's id if other partitions have one."""
    if one.is_new:
        held.made(one.topic, one.partition)
    folder = os.path.join(directory, f"{one.topic}-{one.partition}")
    with Log(folder, config, topic_id=checkpoints.read_topic_id(folder) or topic_id) as log:
        return CommittedRange(one.topic, one.partition, one.first_offset, log.log_end_offset)
