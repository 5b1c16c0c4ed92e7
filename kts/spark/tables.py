"""``kts.spark.sync``: the records of logs in an Iceberg table, read and written by executors."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kts.dataset.increments import Offsets, from_json, name_of, to_json
from kts.errors import LogLockedError
from kts.model import TopicPartition
from kts.spark.options import Options, parse_options
from kts.spark.planning import OffsetRange, Task, tasks_of
from kts.spark.reading import scanned
from kts.spark.schema import arrow_schema, split
from kts.spark.shipping import ship
from kts.tables.iceberg import OFFSETS, PROPERTIES
from kts.tables.rows import DAY, READ, Plausible, check_types, types_of
from kts.tables.run import Added, Bounds, Source, Synced, shaped, source_of
from kts.tables.values import Decoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Paths = str | PathLike[str] | Sequence[str | PathLike[str]] | None


def sync(
    spark: SparkSession,
    path: Paths,
    table: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    remote: str | PathLike[str] | None = None,
    remote_options: Mapping[str, Any] | None = None,
    **asked: Any,
) -> Synced:
    """Add the records of logs that an Iceberg table does not have yet.

    Parameters
    ----------
    spark : SparkSession
        With Iceberg's runtime, its extensions and the catalog; a JdbcCatalog (schema version V1) on the SQLite file of
        ``kts sync`` leads to the same tables, and each of the two goes on where the other one ended.
    path : path or list of paths
        As for ``load``: all executors see it.
    table : str
        Catalog, namespace and name, as ``lake.db.orders``. It is made if missing.
    storage_options, remote, remote_options
        As for ``kts.open``.
    asked
        Of ``kts.tables.sync``: topics, partitions, isolation, to_end, fail_on_data_loss, on_error, value_format,
        value_schema, registry, plausible_from, plausible_to, unit.

    Returns
    -------
    kts.tables.Synced

    Raises
    ------
    LogLockedError
        Another program has added to the table meanwhile; this run has added nothing to it.
    OffsetOutOfRangeError, InvalidRequestError, ValueError
        As for ``kts.tables.sync``.

    Notes
    -----
    A run is one commit for each table. Its rows are written to a branch, and ``main`` is moved to it if nobody else
    has moved it. A branch ``kts_...`` that a killed run left is dropped by the next one.
    """
    access: dict[str, Any] = {
        "storage_options": storage_options,
        "remote": remote,
        "remote_options": remote_options,
    }
    source = source_of(path, **access, **asked)
    tables = [_SparkTable(spark, f"{table}{suffix}", schema) for suffix, schema in source.tables]
    paths = [fspath(path)] if isinstance(path, (str, PathLike)) else [fspath(one) for one in path or ()]
    given = {
        "paths": json.dumps(paths),
        "isolation": source.options.isolation,
        "onError": source.options.on_error,
        "failOnDataLoss": str(source.losses.fails).lower(),
    }
    if storage_options is not None:
        given["storageOptions"] = json.dumps(storage_options)
    if remote is not None:
        given["remote"] = fspath(remote)
    if remote_options is not None:
        given["remoteOptions"] = json.dumps(remote_options)
    return _synced(source, tables, parse_options(given))


def _synced(source: Source, tables: list[_SparkTable], options: Options) -> Synced:
    bounds = Bounds(source, [table.offsets for table in tables])
    logs = [log.listed(skip_damage=source.options.skip_damage) for log in source.logs]
    for log in logs:
        bounds.reached[name_of(log)] = max(bounds.of(log))
    done = []
    for number, table in enumerate(tables):
        added, offsets = Added(table.name, offsets=table.offsets), bounds.offsets(number)
        if offsets != table.offsets:
            begins = bounds.begins[number]
            wanted = [OffsetRange(log, begins[name_of(log)], offsets[name_of(log)], (None, None)) for log in logs]
            tasks = tasks_of(wanted, options)
            counts = table.add(tasks, Work(number, source.plausible, source.decoder, options), offsets)
            added = Added(table.name, counts[0], 1, *counts[1:], offsets)
        done.append(added)
    return Synced(done, bounds.held_back)


class Work:
    """What an executor makes of records: the rows of the table of a number."""

    def __init__(self, number: int, plausible: Plausible, decoder: Decoder | None, options: Options) -> None:
        self.number, self.plausible, self.decoder, self.options = number, plausible, decoder, options

    def rows(self, task: Task) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        for batch in scanned(task, READ, self.options):
            rows = shaped(batch, self.plausible, self.decoder)[self.number]
            if rows.num_rows:
                yield from split(rows, self.options.batch_bytes)


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
            yield pa.RecordBatch.from_arrays(
                [rows.column(field.name).cast(field.type) for field in target], schema=target
            )


class _SparkTable:
    """An Iceberg table of Spark's catalog; its executors add to it."""

    def __init__(self, spark: SparkSession, name: str, schema: pa.Schema) -> None:
        self.spark, self.name, self.schema = spark, name, schema
        self.catalog, *identifier = name.split(".")
        if len(identifier) < 2 or not all((self.catalog, *identifier)):
            raise ValueError(f"table: expected catalog, namespace and name, such as lake.db.orders, found {name!r}")
        self.identifier = ".".join(identifier)
        self.types = from_arrow_schema(schema)
        self.quoted = ".".join(f"`{part}`" for part in name.split("."))
        if not spark.catalog.tableExists(name):
            self._make(identifier[:-1])
        self._refresh()
        found = arrow_schema(spark.table(self.quoted).schema)
        check_types(name, types_of(found), arrow_schema(self.types))
        self.snapshot: int | None = None
        self.offsets = self._read_offsets()

    def _make(self, namespace: list[str]) -> None:
        from pyspark.sql.functions import col

        inside = ".".join(f"`{part}`" for part in (self.catalog, *namespace))
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {inside}")
        writer = self.spark.createDataFrame([], self.types).writeTo(self.quoted).using("iceberg")
        for key, value in PROPERTIES.items():
            writer = writer.tableProperty(key, value)
        writer.partitionedBy(col(DAY)).create()

    def _refresh(self) -> None:
        """Make Spark forget what it knows of the table: other programs commit to it, too."""
        self.spark.sql(f"REFRESH TABLE {self.quoted}")

    def _read_offsets(self) -> Offsets:
        """As ``kts.tables.iceberg.IcebergTable`` finds them."""
        known = {row.snapshot_id: row for row in self.spark.sql(f"SELECT * FROM {self.quoted}.snapshots").collect()}
        heads = self.spark.sql(f"SELECT snapshot_id FROM {self.quoted}.refs WHERE name = 'main'").collect()
        self.snapshot = heads[0].snapshot_id if heads else None
        snapshot = self.snapshot
        while snapshot in known:
            told = known[snapshot].summary.get(OFFSETS)
            if told is not None:
                return from_json(json.loads(told))
            snapshot = known[snapshot].parent_id
        rows = self.spark.sql(
            f"SELECT topic, partition, max(offset) AS last FROM {self.quoted} GROUP BY topic, partition"
        )
        return {TopicPartition(row.topic, row.partition): row.last + 1 for row in rows.collect()}

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
        for row in spark.sql(f"SELECT name FROM {self.quoted}.refs WHERE name LIKE 'kts\\\\_%'").collect():
            spark.sql(f"ALTER TABLE {self.quoted} DROP BRANCH IF EXISTS `{row.name}`")
        branch = f"kts_{uuid.uuid4().hex}"
        version = "" if self.snapshot is None else f" AS OF VERSION {self.snapshot}"
        spark.sql(f"ALTER TABLE {self.quoted} CREATE BRANCH `{branch}`{version}")
        writer = spark.read.format("kts rows").load().writeTo(f"{self.quoted}.`branch_{branch}`")
        told = json.dumps(to_json(offsets), separators=(",", ":"))
        writer.option(f"snapshot-property.{OFFSETS}", told).append()
        try:
            spark.sql(f"CALL `{self.catalog}`.system.fast_forward('{self.identifier}', 'main', '{branch}')")
        except Exception as error:  # of the JVM
            before = self.offsets
            self._refresh()
            if self._read_offsets() == before:
                raise
            raise LogLockedError(
                f"{self.name}: another program has added records meanwhile, and these were not added: run one at a"
                " time, and this one again"
            ) from error
        spark.sql(f"ALTER TABLE {self.quoted} DROP BRANCH `{branch}`")
        counts = "count(*) AS records, count_if(day IS NULL) AS days, count_if(timestamp IS NULL) AS times"
        added = spark.read.format("iceberg")
        before_id = self.snapshot
        self.offsets = self._read_offsets()
        if before_id is not None:
            added = added.option("start-snapshot-id", before_id).option("end-snapshot-id", self.snapshot)
        found = added.load(self.name).selectExpr(*counts.split(", ")).first()
        return (0, 0, 0) if found is None else (found.records, found.days, found.times)
