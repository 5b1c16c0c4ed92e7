"""A table and the log as one: what the table has up to its committed offsets, and the rest from the log."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from kts.codec.columns import check_columns
from kts.dataset import scan as scanning
from kts.dataset.increments import Losses, name_of
from kts.dataset.options import LogOptions, Path, RangeOptions, ScanOptions, stream_schema
from kts.dataset.partition import LogDirs, PartitionLog
from kts.dataset.paths import (
    log_dirs_at,
    matching_topics,
    named_topics,
    numbers_of_partitions,
    paths_of,
    select,
)
from kts.errors import OffsetOutOfRangeError
from kts.model import TopicPartition
from kts.options import same, takes_only
from kts.remote.buckets import TIME_LIMIT_S, time_limit
from kts.segment.rereading import settled
from kts.tables.options import LocalSyncOptions, SyncOptions
from kts.tables.reading import RowRange, TableAt, table_at
from kts.tables.rows import READ, table_rows, table_schema, with_times_within
from kts.tables.run import Bounds, SyncSource, plausible_times
from kts.tables.state import ATTEMPTS
from kts.times import Time

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog

COLUMNS = tuple(table_schema().names)
NEEDED = ("offset", "timestamp")  # of a scan, whatever the columns
ADVICE = "set fail_on_data_loss to false to go on with what is there"


@dataclass(frozen=True)
class UnionOptions(LogOptions):
    """The arguments of ``kts.union``.

    Parameters
    ----------
    table : str or path
        A table that ``kts sync`` made, without decoded values, as it names it: an Iceberg table's catalog, namespace
        and name, as ``lake.db.orders``, with ``catalog``; or a folder of Parquet files.
    path : path or list of paths
        The log, as for ``kts.open``.
    topics : list of str, optional
        Only topics of these names, or of patterns such as ``ord*``. None is every topic of which the table has offsets,
        or, if it has none yet, every topic except Kafka's internal ones.
    columns : list of str, optional
        These columns of the table, in this order.
    starting_timestamp, ending_timestamp : int (ms), aware datetime, date, numpy.datetime64 or text, optional
        Only records with start <= timestamp < end, as for ``kts.scan``; no record is too late.
    to_end : bool
        Also what lies above the high watermark, which a dead broker never moves, and a live one writes to its disk
        every five seconds.
    fail_on_data_loss : bool
        Records that neither the table nor the log has any more are an error; else a warning.
    plausible_from, plausible_to : int (ms), aware datetime or ISO 8601 text, optional
        Which rows of the log get a ``day``, as for ``kts sync``.
    """

    table: Path
    path: Path | Sequence[Path] | None
    _: KW_ONLY
    catalog: Path | Catalog | None = same(LocalSyncOptions, "catalog")
    columns: Sequence[str] | None = None
    starting_timestamp: Time | None = same(RangeOptions, "starting_timestamp")
    ending_timestamp: Time | None = same(RangeOptions, "ending_timestamp")
    unit: str | None = same(RangeOptions, "unit")
    isolation: str = same(ScanOptions, "isolation")
    to_end: bool = same(SyncOptions, "to_end")
    fail_on_data_loss: bool = same(SyncOptions, "fail_on_data_loss")
    on_error: str = same(ScanOptions, "on_error")
    plausible_from: Time | None = same(SyncOptions, "plausible_from")
    plausible_to: Time | None = same(SyncOptions, "plausible_to")
    threads: int = same(ScanOptions, "threads")
    names: tuple[str, ...] = field(init=False, repr=False)  # of the columns, checked
    times: tuple[int | None, int | None] = field(init=False, repr=False)  # in ms

    def __post_init__(self) -> None:
        super().__post_init__()
        times = RangeOptions(
            starting_timestamp=self.starting_timestamp, ending_timestamp=self.ending_timestamp, unit=self.unit
        ).times
        object.__setattr__(self, "names", check_columns(self.columns, COLUMNS, COLUMNS))
        object.__setattr__(self, "times", (times.start_ms, times.end_ms))

    @property
    def reaches_more(self) -> bool:
        """Whether ``storage_options`` also have the catalog's limit of time."""
        return self.catalog is not None and "time_limit" in (self.storage_options or {})


@takes_only(UnionOptions)
def union(asked: UnionOptions) -> pa.RecordBatchReader:
    """What a table has up to its committed offsets, and the rest from the log: each record once.

    The rows are those that the table would have if ``kts sync`` added now what is new; nothing is written. A sync may
    run meanwhile, and retention may delete records that the table has by then.

    Returns
    -------
    pyarrow.RecordBatchReader
        With the columns of the table, in no order that is promised.

    Raises
    ------
    FileNotFoundError, TypeError, ValueError, UnknownTopicOrPartitionError
        A wrong argument, or there is no such table; raised at once.
    OffsetOutOfRangeError
        The log starts after an offset that the table has not got to, so that records are in neither; or it ends before,
        or the topic was created again. Raised at once, or while reading, if records were deleted meanwhile.
    InvalidRequestError
        The table has other columns: its values are decoded.
    LogStorageError
        The table or the log cannot be read, or the table's offsets are lost.
    CorruptRecordError
        Damage; raised while reading.

    Notes
    -----
    The seam is read from one commit: an Iceberg snapshot has rows and offsets together, as the ledger of a folder.
    Records that retention deleted before a sync could read them are in neither, and an error; rows that somebody
    deleted from the table stay deleted. A topic whose id is not the one that the table noted was created again, which
    is an error unless ``fail_on_data_loss`` is false: then its records are added from its first offset, as by sync.

    Examples
    --------
    >>> import tempfile
    >>> import kts
    >>> from kts.tables import sync
    >>> table = f"{tempfile.mkdtemp()}/orders"
    >>> sync("demo/orders", table, partitions=[0]).tables[0].records
    3042
    >>> kts.union(table, "demo/orders", columns=["topic", "partition", "offset"]).read_all().num_rows
    9000
    """
    import pyarrow as pa

    seam = _seam(asked)
    schema = pa.schema([table_schema().field(name) for name in asked.names])
    return pa.RecordBatchReader.from_batches(schema, seam.rows())


def _seam(asked: UnionOptions) -> Seam:
    """The seam of a table that is no longer on its way to offsets which the log has no more."""
    before = None
    for _ in range(ATTEMPTS):
        table = _table(asked)
        try:
            return Seam(asked, table, Losses(True, ADVICE))
        except OffsetOutOfRangeError:
            if table.found == before:
                break
            before = table.found  # the table may have got there meanwhile
    return Seam(asked, table, Losses(asked.fail_on_data_loss, ADVICE))


def _table(asked: UnionOptions) -> TableAt:
    seconds = time_limit((asked.storage_options or {}).get("time_limit", TIME_LIMIT_S))
    return table_at(os.fspath(asked.table), asked.catalog, seconds)


class Seam:
    """A table at one commit, and for each partition the offsets that only the log has.

    Parameters
    ----------
    losses : Losses
        What happens if records are in neither.
    """

    def __init__(self, asked: UnionOptions, table: TableAt, losses: Losses) -> None:
        self.asked, self.table = asked, table
        opened, logs = _logs(asked, table)
        self.logs = sorted(logs, key=name_of)
        self.wanted = RowRange(_names(asked, table), *asked.times)
        scanned = [name for name in READ if name in asked.names or name in NEEDED]
        self.options = ScanOptions(
            columns=scanned, isolation=asked.isolation, on_error=asked.on_error, threads=asked.threads
        )
        self.plausible = plausible_times(asked.plausible_from, asked.plausible_to, asked.unit)
        source = SyncSource(
            table.name, self.logs, frozenset(opened), self.options, losses, asked.to_end, self.plausible, None, None, 1
        )
        self._bounds = Bounds(source, [table])
        self.offsets = {name_of(log): settled(partial(self._new, log)) for log in self.logs}

    def _new(self, log: PartitionLog) -> tuple[int, int]:
        """The first offset that the table lacks, and the end of what is stable."""
        return self._bounds.of(log.listed(skip_damage=self.options.skip_damage))

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All rows: the log first, because it is the log whose records go."""
        for log in self.logs:
            yield from Rest(self, log).rows()
        yield from self.table.rows(self.asked.names, self.wanted)


class Rest:
    """What a table lacks of a partition. What retention deletes before it is read, a sync has added, or it is lost."""

    def __init__(self, seam: Seam, log: PartitionLog) -> None:
        self.seam, self.asked, self.log, self.name = seam, seam.asked, log, name_of(log)
        self._at, self._end = seam.offsets[self.name]
        self._first = self._at  # offset that is there
        self._reader: Iterator[pa.RecordBatch] | None = None

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows, as those of the table."""
        while self._at < self._end:
            try:
                batch = settled(self._next, goes_on=True)
            except OffsetOutOfRangeError:
                yield from self._bridged()
            else:
                yield from self._shaped(batch)

    def _next(self) -> pa.RecordBatch | None:
        """The next records; None at the end."""
        if self._reader is None:
            self._reader = self._begun()
        try:
            batch = next(self._reader, None)
        except BaseException:
            self._reader = None
            raise
        self._at = self._end if batch is None else batch.column("offset")[-1].as_py() + 1
        return batch

    def _begun(self) -> Iterator[pa.RecordBatch]:
        options, times = self.seam.options, self.asked.times
        listed = self.log.listed(skip_damage=options.skip_damage)
        self._first = listed.log_start_offset
        Losses(True, ADVICE).check_start(self.name, self._at, self._end, self._first)
        begin = self._at
        if times[0] is not None and times[0] >= 0:  # records before the first one of these times are all earlier
            found = listed.offset_for_timestamp(times[0])
            begin = self._end if found is None else max(begin, min(found.offset, self._end))
        key = (self.name.topic, self.name.partition)
        bounded = replace(options, starting_offsets={key: begin}, ending_offsets={key: self._end})
        return iter(scanning.records([listed], bounded, deleted=lambda path, source: nullcontext()))

    def _bridged(self) -> Iterator[pa.RecordBatch]:
        """Rows that a newer commit of the table has by now, instead of records that were deleted."""
        table = _table(self.asked)
        done = 0
        if len({table.found.topic_ids.get(self.name.topic), self.log.topic_id} - {None}) < 2:  # the same topic
            done = min(table.found.offsets.get(self.name, 0), self._end)
        if done <= self._at:
            losses = Losses(self.asked.fail_on_data_loss, ADVICE)
            losses.check_start(self.name, self._at, self._end, self._first)
            self._at = self._first
            return
        between = self.seam.wanted._replace(names=[self.name], offsets=(self._at, done))
        self._at = done
        yield from table.rows(self.asked.names, between)

    def _shaped(self, batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
        """Records as rows of the table, where their times are wanted."""
        import pyarrow as pa

        if batch is None:
            return
        whole = [
            batch.column(one.name) if one.name in batch.schema.names else pa.nulls(batch.num_rows, one.type)
            for one in stream_schema(READ)
        ]
        rows = table_rows(pa.RecordBatch.from_arrays(whole, names=list(READ)), self.seam.plausible)
        if self.seam.table.times_ms is not None:
            rows = with_times_within(rows, *self.seam.table.times_ms)
        found = pa.Table.from_batches([rows]).filter(RowRange(None, *self.asked.times).for_arrow())
        yield from found.select(list(self.asked.names)).to_batches()


def _logs(asked: UnionOptions, table: TableAt) -> tuple[LogDirs, list[PartitionLog]]:
    """The partitions under the path, and those of them that are read."""
    paths = None if asked.path is None else paths_of(asked.path, asked.storage_options)
    opened = log_dirs_at(
        paths,
        storage_options=asked.storage_options,
        remote=asked.remote,
        remote_options=asked.remote_options,
        reaches_more=asked.reaches_more,
    )
    shown = [os.fspath(asked.remote or "")] if paths is None else paths
    topics, there = asked.topics, {log.topic for log in opened.values()}
    own = {name.topic for name in table.found.offsets}
    if topics is None and own and not isinstance(asked.partitions, Mapping):
        topics = sorted(own & there) or sorted(own)
    return opened, select(opened, shown, topics=topics, partitions=asked.partitions)


def _names(asked: UnionOptions, table: TableAt) -> list[TopicPartition] | None:
    """The partitions of the table that are read; None is all."""
    topics, wanted = named_topics(asked.topics), numbers_of_partitions(asked.partitions)
    if topics is None and wanted is None:
        return None
    known = {name.topic for name in table.found.offsets}
    chosen = known if topics is None else {one for topic in topics for one in matching_topics(topic, known)}

    def is_chosen(name: TopicPartition) -> bool:
        numbers = wanted.get(name.topic, []) if isinstance(wanted, dict) else wanted
        return name.topic in chosen and (numbers is None or name.partition in numbers)

    return [name for name in sorted(table.found.offsets) if is_chosen(name)]
