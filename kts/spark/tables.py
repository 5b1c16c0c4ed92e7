"""``kts.spark.sync``: the records of logs in an Iceberg table or a Parquet folder, read and written by executors."""

from __future__ import annotations

import gzip
import json
import os
import re
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from kts.dataset.increments import Offsets, name_of
from kts.dataset.options import TimeRange
from kts.dataset.partition import PartitionLog
from kts.dataset.paths import paths_of
from kts.options import takes
from kts.segment.rereading import settled
from kts.spark.jobs import run_in
from kts.spark.options import Options, absolute_prefix
from kts.spark.planning import OffsetRange, Task, tasks_of, unseen
from kts.spark.reading import scanned
from kts.spark.schema import arrow_schema, split
from kts.spark.shipping import ship
from kts.store import addresses
from kts.store.source import files
from kts.tables.delta import PREFIX
from kts.tables.folder import Aside, FolderTable, write_aside
from kts.tables.iceberg import PROPERTIES, identifier_of
from kts.tables.options import COMMIT_BYTES, SyncOptions
from kts.tables.rows import DAY, READ, Days, agreed_schema, fitted
from kts.tables.run import Added, Bounds, Synced, SyncSource, shaped, source_of
from kts.tables.state import Known, Snapshot, TableState, find_state, snapshot_properties, table_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BRANCH = "kts_sync_{}"  # that a run writes to
GZIP = b"\x1f\x8b"
BRANCHES = re.compile(BRANCH.format("[0-9a-f]{32}"))


@takes(SyncOptions)
def sync(spark: SparkSession, asked: SyncOptions) -> Synced:
    """Add the records of logs that a table does not have yet.

    Parameters
    ----------
    spark : SparkSession
        For an Iceberg table with Iceberg's runtime, its extensions and the catalog; a JdbcCatalog (schema version V1)
        on the SQLite file of ``kts sync`` leads to the same tables. For a Parquet folder, not of Spark Connect.

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
    paths = (
        [] if asked.path is None else [addresses.absolute(one) for one in paths_of(asked.path, asked.storage_options)]
    )
    remote = None if asked.remote is None else absolute_prefix(addresses.plain(os.fspath(asked.remote)))
    if os.fspath(asked.table).startswith(PREFIX):
        raise ValueError(f"table: Spark's engine writes no Delta tables, and {asked.table} is one: use kts sync")
    source = source_of(replace(asked, path=paths or None, remote=remote))
    kind = _SparkFolder if "/" in source.table else _SparkIceberg
    stated = source.from_offsets is not None
    tables = [kind(spark, name, schema, stated) for name, schema in source.tables]
    options = Options(
        paths=tuple(paths),
        scan=source.options,
        fail_on_data_loss=source.losses.fails,
        storage_options=asked.storage_options,
        remote=remote,
        remote_options=asked.remote_options,
    )
    return _synced(source, tables, options)


def _synced(source: SyncSource, tables: Sequence[_SparkFolder | _SparkIceberg], options: Options) -> Synced:
    bounds = Bounds(source, tables)

    def listed(log: PartitionLog) -> PartitionLog:
        log = log.listed(skip_damage=source.options.skip_damage)
        bounds.reached[name_of(log)] = max(bounds.of(log))
        return log

    logs = [settled(partial(listed, log)) for log in source.logs]
    done = []
    for number, table in enumerate(tables):
        added = Added(table.name, offsets=bounds.known[number], created=table.created)
        offsets = bounds.offsets(number)
        if offsets != added.offsets or not table.kept:
            begins = bounds.begins[number]
            wanted = [OffsetRange(log, begins[name_of(log)], offsets[name_of(log)], TimeRange()) for log in logs]
            tasks = tasks_of(wanted, options)
            work = Work(number, source, table.schema, options)
            counts = table.add(tasks, work, offsets)
            added = Added(table.name, counts[0], 1, *counts[1:], offsets, table.created)
        done.append(added)
    return Synced(done, bounds.held_back)


class Work:
    """What an executor does with the records of a task: they become rows of the table of a number."""

    def __init__(self, number: int, source: SyncSource, schema: pa.Schema, options: Options) -> None:
        self.number, self.schema, self.options = number, schema, options
        self.plausible, self.decoder, self.max_days = source.plausible, source.decoder, source.max_days

    def rows(self, task: Task) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        days = Days(self.max_days)
        for batch in scanned(task, READ, self.options):
            rows = shaped(batch, self.plausible, self.decoder)[self.number]
            if rows.num_rows:
                yield fitted(days.bounded(rows), self.schema)

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


class _SparkFolder(FolderTable):
    """A Parquet folder; executors write its files aside, and the driver commits them."""

    def __init__(self, spark: SparkSession, name: str, schema: pa.Schema, stated: bool) -> None:
        self.context = spark.sparkContext
        super().__init__(name, schema, stated=stated)

    def add(self, tasks: list[Task], work: Work, offsets: Offsets) -> tuple[int, int, int]:
        """Add the rows of tasks and set the offsets; how many rows, without a day, and without a timestamp."""

        def write(own: str) -> list[Aside]:
            # A task that is tried again writes other files; Spark gives those of one attempt.
            return [*chain.from_iterable(run_in(self.context, partial(work.write, own), tasks))]

        written = self.commit(write, offsets)
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
            for part in split(rows, self.work.options.scan.batch_bytes):
                # Columns that the owner of the table added stay null.
                columns = [
                    part.column(field.name).cast(field.type)
                    if field.name in part.schema.names
                    else pa.nulls(part.num_rows, field.type)
                    for field in target
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=target)


class _SparkIceberg(Known):
    """An Iceberg table of Spark's catalog; its executors add to it."""

    def __init__(self, spark: SparkSession, name: str, schema: pa.Schema, stated: bool) -> None:
        self.spark, self.name, self.schema = spark, name, schema
        catalog, *_ = parts = identifier_of(name)
        if spark.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
            raise ValueError(
                f"table: expected a catalog of this session, found {catalog}: set spark.sql.catalog.{catalog} and what"
                " belongs to it"
            )
        self.parts = [f"`{part.replace('`', '``')}`" for part in parts]
        self.quoted = ".".join(self.parts)
        made = not spark.catalog.tableExists(self.quoted)
        if made:
            self._make(from_arrow_schema(schema, prefer_timestamp_ntz=True))
        self._refresh()
        self.types = spark.table(self.quoted).schema
        expected = arrow_schema(from_arrow_schema(schema, prefer_timestamp_ntz=True))
        self.schema = agreed_schema(name, arrow_schema(self.types), expected)
        self.created = self._properties().get("location", name) if made else None
        self.learn(self._find, stated)

    def _make(self, types: StructType) -> None:
        from pyspark.sql.functions import col

        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {'.'.join(self.parts[:-1])}")
        writer = self.spark.createDataFrame([], types).writeTo(self.quoted).using("iceberg").partitionedBy(col(DAY))
        for name, value in table_properties(TableState(), None).items():
            writer = writer.tableProperty(name, value)
        writer.create()

    def _refresh(self) -> None:
        """Make Spark forget what it knows of the table: other programs commit to it, too."""
        self.spark.sql(f"REFRESH TABLE {self.quoted}")

    def _find(self) -> tuple[TableState, bool]:
        rows = self.spark.sql(f"SELECT snapshot_id, parent_id, summary FROM {self.quoted}.snapshots").collect()
        snapshots = {row.snapshot_id: Snapshot(row.parent_id, row.summary or {}) for row in rows}
        self.snapshot = self._head("main")
        return find_state(self.name, self._properties(), snapshots, self.snapshot, self._older)

    def _properties(self) -> dict[str, str]:
        return {row.key: row.value for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.quoted}").collect()}

    def _older(self) -> Iterator[Mapping[int, Snapshot]]:
        """The snapshots in earlier metadata files, newest first, as long as Spark can read them."""
        found = self.spark.sql(f"SELECT file FROM {self.quoted}.metadata_log_entries ORDER BY timestamp DESC")
        for row in found.collect():
            try:
                (content,) = self.spark.read.format("binaryFile").load(row.file).select("content").collect()
            except Exception:  # of the JVM
                return
            yield _snapshots_in(bytes(content.content))

    def _head(self, branch: str) -> int | None:
        """The snapshot of a branch."""
        found = self.spark.sql(f"SELECT snapshot_id FROM {self.quoted}.refs WHERE name = '{branch}'").first()
        return None if found is None else int(found.snapshot_id)

    def _prepare(self) -> None:
        """Set the properties that a commit needs, and drop the branches of runs that were killed."""
        there = self._properties()
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

        class RowSource(DataSource):
            @classmethod
            def name(cls) -> str:
                return "kts rows"

            def schema(self) -> StructType:
                return types

            def reader(self, schema: StructType) -> DataSourceReader:
                return reader

        spark.dataSource.register(RowSource)
        self._prepare()
        before, branch = self.snapshot, BRANCH.format(uuid.uuid4().hex)
        version = "" if before is None else f" AS OF VERSION {before}"
        spark.sql(f"ALTER TABLE {self.quoted} CREATE BRANCH `{branch}`{version}")
        writer = spark.read.format("kts rows").load().writeTo(f"{self.quoted}.`branch_{branch}`")
        state = self.state(offsets)
        for name, value in snapshot_properties(state).items():
            writer = writer.option(f"snapshot-property.{name}", value)
        writer.append()
        head = self._head(branch)
        try:
            self._publish(branch, table_properties(state, head))
        except Exception:  # of the JVM
            self._refresh()
            self.check_race(self._find)
            raise
        self._refresh()
        self.snapshot = head
        self.committed(state)
        between = {"snapshot-id": head} if before is None else {"start-snapshot-id": before, "end-snapshot-id": head}
        added = spark.read.format("iceberg").options(**between).load(self.quoted)
        found = added.selectExpr("count(*)", "count_if(day IS NULL)", "count_if(timestamp IS NULL)").collect()
        return found[0][0], found[0][1], found[0][2]

    def _publish(self, branch: str, properties: Mapping[str, str]) -> None:
        """Move ``main`` to a branch if nobody else has moved it, set properties and drop the branch, in one commit."""
        if is_remote():  # Spark Connect has no way to do it in one: a table whose properties lag is found out by them
            inside = ".".join(self.parts[1:]).replace("'", "\\'")
            self.spark.sql(f"CALL {self.parts[0]}.system.fast_forward('{inside}', 'main', '{branch}')")
            pairs = ", ".join("'{}' = '{}'".format(*pair) for pair in properties.items())
            self.spark.sql(f"ALTER TABLE {self.quoted} SET TBLPROPERTIES ({pairs})")
            self.spark.sql(f"ALTER TABLE {self.quoted} DROP BRANCH `{branch}`")
            return
        java: Any = self.spark._jvm
        iceberg = java.org.apache.iceberg
        change = iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, self.quoted).newTransaction()
        change.manageSnapshots().fastForwardBranch("main", branch).removeBranch(branch).commit()
        setting = change.updateProperties()
        for name, value in properties.items():
            setting.set(name, value)
        setting.commit()
        change.commitTransaction()


def _snapshots_in(data: bytes) -> dict[int, Snapshot]:
    """The snapshots in a metadata file of a table; none if it is malformed."""
    try:
        found = json.loads(gzip.decompress(data) if data.startswith(GZIP) else data)
        return {
            one["snapshot-id"]: Snapshot(one.get("parent-snapshot-id"), dict(one.get("summary", {})))
            for one in found["snapshots"]
        }
    except (OSError, EOFError, zlib.error, RecursionError, ValueError, KeyError, TypeError, AttributeError):
        return {}
