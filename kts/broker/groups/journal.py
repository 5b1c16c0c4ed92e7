"""The internal topic ``__consumer_offsets``: what groups write down, and what is left of it at a start.

A real broker's cleaner keeps the topic small; here a partition that is mostly outdated is written anew behind its end
at a start, and its log start offset moves there. A crash in between leaves both, which say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kts.broker.codes import ApiError, ErrorCode
from kts.broker.groups.loading import Loader
from kts.broker.groups.registry import GroupSettings
from kts.codec.encode import encode
from kts.dataset.partition import PartitionLog
from kts.errors import KtsError, LogStorageError, RecordBatchTooLargeError, RecordTooLargeError

if TYPE_CHECKING:
    from kts.broker.topics import Topic, Topics
    from kts.broker.topics.partition import Partition
    from kts.log.log import Log

TOPIC = "__consumer_offsets"
REWRITE_BYTES = 16 * 2**20  # a smaller partition is left as it is
REWRITE_RATIO = 4  # so many records for one that counts
DEFAULT_MAX_BATCH_BYTES = 1_048_588
BATCH_BYTES = 512 * 1024
Row = tuple[bytes, bytes | None]


class Journal:
    """The topic that groups live in.

    Parameters
    ----------
    topics : Topics
    clock : callable
        Gives ms since the epoch: the timestamps of the records.

    Attributes
    ----------
    problems : list of str
        What could not be read.
    """

    def __init__(self, topics: Topics, settings: GroupSettings, clock: Callable[[], int]) -> None:
        self.topics = topics
        self.settings = settings
        self.clock = clock
        self.problems: list[str] = []

    @property
    def topic(self) -> Topic | None:
        """The topic, if it is there."""
        return self.topics.get(TOPIC)

    def make_topic(self) -> Topic:
        """The topic, made if it is not there."""
        found = self.topic
        if found is None:
            configs = {"cleanup.policy": "compact", "compression.type": "producer"}
            configs["segment.bytes"] = str(self.settings.segment_bytes)
            try:
                found = self.topics.create(TOPIC, self.settings.num_partitions, configs)
            except ApiError:
                found = self.topic  # somebody was faster
                if found is None:
                    raise
        return found

    @property
    def max_batch_bytes(self) -> int:
        """The largest batch that is taken."""
        topic = self.topic
        return DEFAULT_MAX_BATCH_BYTES if topic is None else topic.config.max_message_bytes

    def partition_for(self, group_id: str) -> int:
        """The partition of a group, by Kafka's hash."""
        topic = self.topic
        count = self.settings.num_partitions if topic is None else max(topic.partitions, default=0) + 1
        return java_hash(group_id) % count

    def append(self, group_id: str, rows: Sequence[Row]) -> ErrorCode:
        """Write records of a group as one batch: all of them or none."""
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
        """Write any number of records of a group, in as many batches as they need."""
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
        """Keys and values that count; a partition that is mostly outdated is written anew."""
        topic = self.topic
        for number, partition in sorted(topic.partitions.items()) if topic is not None else ():
            try:
                self._take_back_what_was_cut(partition)
                loaded = Loader().read(_files(partition.log), self.settings.load_buffer_size)
            except KtsError as error:
                self.problems.append(f"{TOPIC}-{number}: its groups and offsets cannot be read: {error}")
                continue
            self.problems += [f"{one}; the groups and offsets that stood there are not known" for one in loaded.damage]
            yield from loaded.newest.items()
            outdated = loaded.records > REWRITE_RATIO * len(loaded.newest)
            if outdated and not (loaded.unfinished or loaded.damage) and partition.log.size_bytes >= REWRITE_BYTES:
                try:
                    self.rewrite(partition, list(loaded.newest.items()))
                except KtsError as error:  # it stays as long as it is
                    self.problems.append(f"{TOPIC}-{number}: what is outdated stays: {error}")

    def _take_back_what_was_cut(self, partition: Partition) -> None:
        """Append again what is sound of the bytes that the start of a partition's log cut off at damage."""
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
        """Put what counts behind the end of a partition, and begin it there."""
        log = partition.log
        start = log.roll()
        for piece in _pieces(rows):
            partition.append(self._batch(piece))
        log.flush()
        log.advance_log_start_offset(start)
        log.delete_old_segments()


def _files(log: Log, paths: Sequence[str] | None = None) -> PartitionLog:
    """What lies in the files of a log, or in some that were put aside."""
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
