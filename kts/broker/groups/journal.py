"""The internal topic ``__consumer_offsets``: groups write their records here and start-up loads them.

A real broker compacts the topic. Here, start-up rewrites a partition with mostly outdated records: it appends the
current ones and moves the log start offset to them. A crash in between leaves both copies, which agree.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.broker.codes import ApiError, ErrorCode
from kts.broker.groups.registry import GroupSettings
from kts.broker.topics import Topic, Topics
from kts.broker.topics.partition import Partition
from kts.codec.encode import encode
from kts.dataset.partition import PartitionLog
from kts.errors import KtsError, KtsWarning, LogStorageError, RecordBatchTooLargeError, RecordTooLargeError
from kts.log.log import Log

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

TOPIC = "__consumer_offsets"
REWRITE_BYTES = 16 * 2**20  # a smaller partition is left as it is
REWRITE_RATIO = 4  # records per current record, for a rewrite
DEFAULT_MAX_BATCH_BYTES = 1_048_588
BATCH_BYTES = 512 * 1024
COLUMNS = ["offset", "key", "value", "producerId", "transactional", "control"]
COMMIT = b"\x00\x00\x00\x01"  # key of the control record that commits a transaction: version, type
Row = tuple[bytes, bytes | None]


class Loaded(NamedTuple):
    """The current records of a partition, without tombstones."""

    newest: dict[bytes, bytes]
    records: int  # read in all
    unfinished: bool  # there are open transactions
    damage: list[str]  # what could not be read, and where


class Loader:
    """The newest value of each key of a partition, without aborted and open transactions.

    Python handles each key once per piece, not once per record.
    """

    def __init__(self) -> None:
        self.newest: dict[bytes, tuple[int, bytes | None]] = {}
        self.open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}  # by producer id, until its transaction ends
        self.records = 0

    def read(self, log: PartitionLog, piece_bytes: int) -> Loaded:
        """Read from the log start offset to the end of the files, without damaged parts.

        Notes
        -----
        The files are read from end to end, since no CRC protects indexes and offsets.
        """
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for rows in log.scan(columns=COLUMNS, include_control=True, on_error="skip", batch_bytes=piece_bytes):
                self.take(rows)
        damage = []
        for one in told:
            if isinstance(one.message, KtsWarning) and _within(log.path, one.message.path):
                damage.append(str(one.message))
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        newest = {key: value for key, (_, value) in self.newest.items() if value is not None}
        return Loaded(newest, self.records, bool(self.open), damage)

    def take(self, rows: pa.RecordBatch) -> None:
        """Add the next rows."""
        start = 0
        self.records += rows.num_rows
        for control in np.flatnonzero(_numbers(rows.column("control"))).tolist():
            self._span(rows, start, control)
            start = control + 1
            finished = self.open.pop(rows.column("producerId")[control].as_py(), {})
            if rows.column("key")[control].as_py() == COMMIT:
                for key, entry in finished.items():
                    if key not in self.newest or self.newest[key][0] < entry[0]:
                        self.newest[key] = entry
        self._span(rows, start, rows.num_rows)

    def _span(self, rows: pa.RecordBatch, start: int, end: int) -> None:
        """Add rows that contain no control records."""
        if start >= end:
            return
        span = rows.slice(start, end - start)
        transactional = _numbers(span.column("transactional")).astype(bool)
        producers = _numbers(span.column("producerId"))
        self._last_of_keys(span, np.flatnonzero(~transactional), self.newest)
        for producer_id in np.unique(producers[transactional]).tolist():
            chosen = np.flatnonzero(transactional & (producers == producer_id))
            self._last_of_keys(span, chosen, self.open.setdefault(producer_id, {}))

    def _last_of_keys(
        self, span: pa.RecordBatch, chosen: npt.NDArray[np.int64], into: dict[bytes, tuple[int, bytes | None]]
    ) -> None:
        import pyarrow as pa

        if not len(chosen):
            return
        table = pa.table({"key": span.column("key").take(pa.array(chosen)), "row": chosen})
        last = table.group_by("key").aggregate([("row", "max")])
        picked = span.take(last.column("row_max").combine_chunks())
        columns = (picked.column(name).to_pylist() for name in ("offset", "key", "value"))
        for offset, key, value in zip(*columns, strict=True):
            if key is not None:
                into[key] = (offset, value)


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


class Journal:
    """The topic ``__consumer_offsets``.

    Parameters
    ----------
    topics : Topics
    clock : callable
        Returns ms since the epoch, for the timestamps of the records.

    Attributes
    ----------
    problems : list of str
        Messages about data that could not be read or rewritten.
    """

    def __init__(self, topics: Topics, settings: GroupSettings, clock: Callable[[], int]) -> None:
        self.topics = topics
        self.settings = settings
        self.clock = clock
        self.problems: list[str] = []

    @property
    def topic(self) -> Topic | None:
        """The topic, if it exists."""
        return self.topics.get(TOPIC)

    def make_topic(self) -> Topic:
        """The topic, created if it does not exist."""
        found = self.topic
        if found is None:
            configs = {"cleanup.policy": "compact", "compression.type": "producer"}
            configs["segment.bytes"] = str(self.settings.segment_bytes)
            try:
                found = self.topics.create(TOPIC, self.settings.num_partitions, configs)
            except ApiError:
                found = self.topic  # another thread was faster
                if found is None:
                    raise
        return found

    @property
    def max_batch_bytes(self) -> int:
        """The largest batch that the topic accepts."""
        topic = self.topic
        return DEFAULT_MAX_BATCH_BYTES if topic is None else topic.config.max_message_bytes

    def partition_for(self, group_id: str) -> int:
        """The partition of a group, by Kafka's hash."""
        topic = self.topic
        count = self.settings.num_partitions if topic is None else max(topic.partitions, default=0) + 1
        return java_hash(group_id) % count

    def append(self, group_id: str, rows: Sequence[Row]) -> ErrorCode:
        """Append records of a group as one batch: all or none."""
        try:
            partition = self.make_topic().partitions.get(self.partition_for(group_id))
            if partition is None:
                return ErrorCode.NOT_COORDINATOR
            partition.append(self._batch(rows))
        except (RecordTooLargeError, RecordBatchTooLargeError):
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        except LogStorageError:
            return ErrorCode.NOT_COORDINATOR
        except KtsError as error:
            return ErrorCode(error.code) if error.code is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def append_many(self, group_id: str, rows: Sequence[Row]) -> ErrorCode:
        """Append any number of records of a group, in several batches if needed."""
        for piece in _pieces(rows):
            error = self.append(group_id, piece)
            if error:
                return error
        return ErrorCode.NONE

    def _batch(self, rows: Sequence[Row]) -> bytes:
        import pyarrow as pa

        keys, values = zip(*rows, strict=True)
        binary = pa.binary()
        times = pa.array([self.clock()] * len(rows), pa.int64())
        columns = {"timestamp": times, "key": pa.array(keys, binary), "value": pa.array(values, binary)}
        return encode(columns, batch_bytes=2**30)

    def load(self) -> Iterator[tuple[bytes, bytes]]:
        """The current keys and values. A partition with mostly outdated records is rewritten."""
        topic = self.topic
        for number, partition in sorted(topic.partitions.items()) if topic is not None else ():
            try:
                self._restore_cut_records(partition)
                loaded = Loader().read(_files(partition.log), self.settings.load_buffer_size)
            except KtsError as error:
                self.problems.append(f"{TOPIC}-{number}: cannot read its groups and offsets: {error}")
                continue
            self.problems += [f"{one}; its groups and offsets are unknown" for one in loaded.damage]
            yield from loaded.newest.items()
            outdated = loaded.records > REWRITE_RATIO * len(loaded.newest)
            if outdated and not (loaded.unfinished or loaded.damage) and partition.log.size_bytes >= REWRITE_BYTES:
                try:
                    self.rewrite(partition, list(loaded.newest.items()))
                except KtsError as error:  # the partition stays as it is
                    self.problems.append(f"{TOPIC}-{number}: cannot remove outdated records: {error}")

    def _restore_cut_records(self, partition: Partition) -> None:
        """Append the sound records of what recovery cut off at damage."""
        for cut in partition.log.recovered:
            if not cut.bytes_cut:
                continue
            kept = f"; they are kept in {cut.aside}" if cut.aside else ""
            where = f"{cut.path}: {cut.bytes_cut} bytes at position {cut.position} were cut off"
            self.problems.append(f"{where}: {cut.reason}{kept}")
            if cut.aside is None:
                continue
            loader = Loader()
            loader.read(_files(partition.log, [cut.aside]), self.settings.load_buffer_size)
            for piece in _pieces([(key, value) for key, (_, value) in loader.newest.items()]):
                partition.append(self._batch(piece))

    def rewrite(self, partition: Partition, rows: Sequence[Row]) -> None:
        """Append the current records and move the log start offset to them."""
        log = partition.log
        start = log.roll()
        for piece in _pieces(rows):
            partition.append(self._batch(piece))
        log.flush()
        log.advance_log_start_offset(start)
        log.delete_old_segments()


def _files(log: Log, paths: Sequence[str] | None = None) -> PartitionLog:
    """The files of a log, or files that recovery set aside."""
    start = log.log_start_offset if paths is None else None
    return PartitionLog(log.path, log.topic, log.partition, log_start_offset=start, segment_paths=paths)


def _within(directory: str, path: str | None) -> bool:
    """True of a partition's directory, and of the files in it."""
    return path is not None and directory in (path, os.path.dirname(path))


def _pieces(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    first = size = 0
    for number, (key, value) in enumerate(rows):
        each = len(key) + len(value or b"") + 20
        if number > first and size + each > BATCH_BYTES:
            yield rows[first:number]
            first, size = number, 0
        size += each
    if first < len(rows):
        yield rows[first:]


def java_hash(text: str) -> int:
    """``Utils.abs(text.hashCode())`` of Java."""
    found = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        found = (found * 31 + (high << 8 | low)) & 0xFFFFFFFF
    found = found - 2**32 if found >= 2**31 else found
    return 0 if found == -(2**31) else abs(found)
