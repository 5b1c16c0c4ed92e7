"""``kts.spark.sync``: the records of logs in an Iceberg table or a Parquet folder, read and written by executors."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kts.dataset.increments import Offsets, TopicIds, name_of
from kts.dataset.options import takes
from kts.dataset.partition import PartitionLog
from kts.dataset.paths import paths_of
from kts.model import TopicPartition
from kts.segment import files
from kts.segment.rereading import settled
from kts.spark.jobs import run_in
from kts.spark.options import Options, absolute_prefix, parse_options
from kts.spark.planning import OffsetRange, Task, tasks_of, unseen
from kts.spark.reading import scanned
from kts.spark.schema import arrow_schema, split
from kts.spark.shipping import ship
from kts.tables.folder import Aside, FolderTable, write_aside
from kts.tables.iceberg import PROPERTIES, identifier_of, offsets_in, snapshot_properties
from kts.tables.options import COMMIT_BYTES, SyncOptions
from kts.tables.rows import DAY, READ, Plausible, check_types, lost_race, types_of
from kts.tables.run import Added, Bounds, Source, Synced, shaped, source_of
from kts.tables.values import Decoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BRANCH = "kts_sync_{}"  # that a run writes to
BRANCHES = re.compile(BRANCH.format("[0-9a-f]{32}"))


@takes(SyncOptions)
def sync(spark: SparkSession, asked: SyncOptions) -> Synced:
    """Add the records of logs that a table does not have yet; see ``kts.tables.SyncOptions``.

    Parameters
    ----------
    spark : SparkSession
        For an Iceberg table with Iceberg's runtime, its extensions and the catalog; a JdbcCatalog (schema version V1)
        on the SQLite file of ``kts sync`` leads to the same tables. For a Parquet folder, not of Spark Connect.
    asked
        The arguments of ``kts.tables.SyncOptions``, one by one. The driver and all executors see the paths.

    Returns
    -------
    kts.tables.Synced

    Raises
    ------
    LogLockedError
        Another program has added to the table meanwhile; this run has added nothing to it.
    OffsetOutOfRangeError, InvalidRequestError, ValueError
        As for ``kts.tables.sync``.
    KtsError, or an error of Spark
        An executor could not do its work; this run has added nothing to the table.

    Notes
    -----
    A run is one commit for each table, in the layout of ``kts sync``: each of the two goes on where the other one
    ended. Rows of an Iceberg table are written to a branch, and ``main`` is moved to it if nobody else has moved it. A
    branch ``kts_sync_...`` that a killed run left is dropped by the next one. Files of a folder are written aside, and
    the driver holds the folder's lock from the first one to the commit.
    """
    # Executors have working directories of their own.
    paths = [] if asked.path is None else [files.absolute(one) for one in paths_of(asked.path, asked.storage_options)]
    remote = None if asked.remote is None else absolute_prefix(files.plain(os.fspath(asked.remote)))
    source = source_of(replace(asked, path=paths or None, remote=remote))
    kind = _SparkFolder if "/" in source.table else _SparkIceberg
    tables = [kind(spark, name, schema) for name, schema in source.tables]
    options = replace(
        parse_options({"path": "/"}),  # the defaults of all others
        paths=tuple(paths),
        isolation=source.options.isolation,
        on_error=source.options.on_error,
        fail_on_data_loss=source.losses.fails,
        storage_options=asked.storage_options,
        remote=remote,
        remote_options=asked.remote_options,
    )
    return _synced(source, tables, options)


def _synced(source: Source, tables: Sequence[_SparkFolder | _SparkIceberg], options: Options) -> Synced:
    bounds = Bounds(source, tables)

    def listed(log: PartitionLog) -> PartitionLog:
        log = log.listed(skip_damage=source.options.skip_damage)
        bounds.reached[name_of(log)] = max(bounds.of(log))
        return log

    logs = [settled(partial(listed, log)) for log in source.logs]
    done = []
    for number, table in enumerate(tables):
        added, offsets = Added(table.name, offsets=bounds.known[number]), bounds.offsets(number)
        if offsets != added.offsets:
            begins = bounds.begins[number]
            wanted = [OffsetRange(log, begins[name_of(log)], offsets[name_of(log)], (None, None)) for log in logs]
            tasks = tasks_of(wanted, options)
            counts = table.add(tasks, Work(number, source.plausible, source.decoder, options), offsets)
            added = Added(table.name, counts[0], 1, *counts[1:], offsets)
        done.append(added)
    return Synced(done, bounds.held_back)


class Work:
    """What an executor does with the records of a task: they become rows of the table of a number."""

    def __init__(self, number: int, plausible: Plausible, decoder: Decoder | None, options: Options) -> None:
        self.number, self.plausible, self.decoder, self.options = number, plausible, decoder, options

    def rows(self, task: Task) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        for batch in scanned(task, READ, self.options):
            rows = shaped(batch, self.plausible, self.decoder)[self.number]
            if rows.num_rows:
                yield rows

    def write(self, own: str, task: Task) -> list[Aside]:
        """Write the rows of a task into the directory ``_kts`` of a folder."""
        if not files.directory_exists(own):
            raise unseen(own)
        found, waiting, waiting_bytes = list[Aside](), list[pa.RecordBatch](), 0
        for rows in self.rows(task):
            waiting.append(rows)
            waiting_bytes += rows.nbytes
            if waiting_bytes >= COMMIT_BYTES:
                found += write_aside(own, pa.Table.from_batches(waiting))
                waiting, waiting_bytes = [], 0
        return found + (write_aside(own, pa.Table.from_batches(waiting)) if waiting else [])


class _SparkFolder:
    """A Parquet folder; executors write its files aside, and the driver commits them."""

    def __init__(self, spark: SparkSession, name: str, schema: pa.Schema) -> None:
        self.context, self.folder = spark.sparkContext, FolderTable(name, schema)
        self.name, self.offsets, self.topic_ids = self.folder.name, self.folder.offsets, self.folder.topic_ids

    def add(self, tasks: list[Task], work: Work, offsets: Offsets) -> tuple[int, int, int]:
        """Add the rows of tasks and set the offsets; how many rows, without a day, and without a timestamp."""

        def write(own: str) -> list[Aside]:
            # A task that is tried again writes other files; Spark gives those of one attempt.
            return [*chain.from_iterable(run_in(self.context, partial(work.write, own), tasks))]

        written = self.folder.commit(write, offsets)
        return (
            sum(one.records for one in written),
            sum(one.records for one in written if one.day is None),
            sum(one.without_timestamp for one in written),
        )


class _RowsPartition(InputPartition):
    def __init__(self, task: Task) -> None:
        super().__init__(None)
        self.task = task

    def __reduce__(self) -> tuple[Any, ...]:
        return ship(self)


class _RowsReader(DataSourceReader):
    """The rows of tasks that were planned before."""

    def __init__(self, tasks: list[Task], work: Work, schema: StructType) -> None:
        self.tasks, self.work, self.schema = tasks, work, schema

    def __reduce__(self) -> tuple[Any, ...]:
        return ship(self)

    def partitions(self) -> list[InputPartition]:
        return [_RowsPartition(task) for task in self.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _RowsPartition):  # Spark's placeholder for an empty list of tasks
            return
        target = arrow_schema(self.schema)
        for rows in self.work.rows(partition.task):
            for part in split(rows, self.work.options.batch_bytes):
                columns = [part.column(field.name).cast(field.type) for field in target]
                yield pa.RecordBatch.from_arrays(columns, schema=target)


class _SparkIceberg:
    """An Iceberg table of Spark's catalog; its executors add to it."""

    def __init__(self, spark: SparkSession, name: str, schema: pa.Schema) -> None:
        self.spark, self.name, self.schema = spark, name, schema
        catalog, *_ = parts = identifier_of(name)
        if spark.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
            raise ValueError(
                f"table: expected a catalog of this session, found {catalog}: set spark.sql.catalog.{catalog} and what"
                " belongs to it"
            )
        self.parts = [f"`{part.replace('`', '``')}`" for part in parts]
        self.quoted = ".".join(self.parts)
        self.types = from_arrow_schema(schema, prefer_timestamp_ntz=True)
        if not spark.catalog.tableExists(self.quoted):
            self._make()
        self._refresh()
        found = arrow_schema(spark.table(self.quoted).schema)
        check_types(name, types_of(found), arrow_schema(self.types))
        self.snapshot: int | None = None
        self.offsets, self.topic_ids = self._read_offsets()

    def _make(self) -> None:
        from pyspark.sql.functions import col

        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {'.'.join(self.parts[:-1])}")
        self.spark.createDataFrame([], self.types).writeTo(self.quoted).using("iceberg").partitionedBy(
            col(DAY)
        ).create()

    def _refresh(self) -> None:
        """Make Spark forget what it knows of the table: other programs commit to it, too."""
        self.spark.sql(f"REFRESH TABLE {self.quoted}")

    def _read_offsets(self) -> tuple[Offsets, TopicIds]:
        """As ``kts.tables.iceberg.IcebergTable`` finds them."""
        known = {row.snapshot_id: row for row in self.spark.sql(f"SELECT * FROM {self.quoted}.snapshots").collect()}
        snapshot = self.snapshot = self._head("main")
        while snapshot in known:
            told = offsets_in(known[snapshot].summary)
            if told is not None:
                return told
            snapshot = known[snapshot].parent_id
        rows = self.spark.sql(
            f"SELECT topic, partition, max(offset) AS last FROM {self.quoted} GROUP BY topic, partition"
        )
        return {TopicPartition(row.topic, row.partition): row.last + 1 for row in rows.collect()}, {}

    def _head(self, branch: str) -> int | None:
        """The snapshot of a branch."""
        found = self.spark.sql(f"SELECT snapshot_id FROM {self.quoted}.refs WHERE name = '{branch}'").first()
        return None if found is None else int(found.snapshot_id)

    def _prepare(self) -> None:
        """Set the properties that a commit needs, and drop the branches of runs that were killed."""
        there = {row.key: row.value for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.quoted}").collect()}
        for name, value in PROPERTIES.items():
            if there.get(name) != value:
                self.spark.sql(f"ALTER TABLE {self.quoted} SET TBLPROPERTIES ('{name}' = '{value}')")
        for row in self.spark.sql(f"SELECT name FROM {self.quoted}.refs").collect():
            if BRANCHES.fullmatch(row.name):
                self.spark.sql(f"ALTER TABLE {self.quoted} DROP BRANCH IF EXISTS `{row.name}`")

    def add(self, tasks: list[Task], work: Work, offsets: Offsets) -> tuple[int, int, int]:
        """Add the rows of tasks and set the offsets; how many rows, without a day, and without a timestamp."""
        spark, types = self.spark, self.types
        reader = _RowsReader(tasks, work, types)

        class Rows(DataSource):
            @classmethod
            def name(cls) -> str:
                return "kts rows"

            def schema(self) -> StructType:
                return types

            def reader(self, schema: StructType) -> DataSourceReader:
                return reader

        spark.dataSource.register(Rows)
        self._prepare()
        before, branch = self.snapshot, BRANCH.format(uuid.uuid4().hex)
        version = "" if before is None else f" AS OF VERSION {before}"
        spark.sql(f"ALTER TABLE {self.quoted} CREATE BRANCH `{branch}`{version}")
        writer = spark.read.format("kts rows").load().writeTo(f"{self.quoted}.`branch_{branch}`")
        for name, value in snapshot_properties(offsets, self.topic_ids).items():
            writer = writer.option(f"snapshot-property.{name}", value)
        writer.append()
        head = self._head(branch)
        inside = ".".join(self.parts[1:]).replace("'", "\\'")
        try:
            spark.sql(f"CALL {self.parts[0]}.system.fast_forward('{inside}', 'main', '{branch}')")
        except Exception as error:  # of the JVM
            self._refresh()
            if self._read_offsets()[0] == self.offsets:
                raise
            raise lost_race(self.name) from error
        spark.sql(f"ALTER TABLE {self.quoted} DROP BRANCH `{branch}`")
        self.snapshot, self.offsets = head, offsets
        between = {"snapshot-id": head} if before is None else {"start-snapshot-id": before, "end-snapshot-id": head}
        added = spark.read.format("iceberg").options(**between).load(self.quoted)
        found = added.selectExpr("count(*)", "count_if(day IS NULL)", "count_if(timestamp IS NULL)").collect()
        return found[0][0], found[0][1], found[0][2]
