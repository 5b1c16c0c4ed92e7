"""The internal topic ``__consumer_offsets``: groups write their records here and start-up loads them.

A real broker compacts the topic. Here, start-up rewrites a partition with mostly outdated records: it appends the
current ones and moves the log start offset to them. A crash in between leaves both copies, which agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kts.broker.codes import ApiError, ErrorCode
from kts.broker.groups.registry import GroupSettings
from kts.broker.topics import Topic, Topics
from kts.broker.topics.partition import Partition
from kts.codec.encode import encode
from kts.coordinator_records.groups import TOPIC
from kts.dataset.newest import Loader
from kts.dataset.partition import PartitionLog
from kts.errors import KtsError, LogStorageError, RecordBatchTooLargeError, RecordTooLargeError
from kts.log.log import Log

REWRITE_BYTES = 16 * 2**20  # a smaller partition is left as it is
REWRITE_RATIO = 4  # records per current record, for a rewrite
DEFAULT_MAX_BATCH_BYTES = 1_048_588
BATCH_BYTES = 512 * 1024
Row = tuple[bytes, bytes | None]


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
