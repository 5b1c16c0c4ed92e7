"""Iceberg tables through pyiceberg: rows and offsets in one snapshot."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kts.dataset.increments import Offsets, TopicIds, from_json, to_json
from kts.errors import KtsError, LogStorageError
from kts.model import TopicPartition
from kts.remote import aws
from kts.segment import files
from kts.tables.rows import DAY, FIRST_MS, LAST_MS, check_types, lost_race, types_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

OFFSETS = "kts.offsets"  # of a snapshot: {"orders": {"0": 23}}, the offset of the next record
TOPIC_IDS = "kts.topic.ids"  # and {"orders": "0pRNyzbsQCOp2wUfl5aKFA"}, where the topic had an id
# A commit that lost a race must not be added on top of the other one: its records may be the same.
PROPERTIES = {"commit.retry.num-retries": "0"}
# pyiceberg reads the bounds of a column as Python's times.
NO_BOUNDS = {"write.metadata.metrics.column.timestamp": "counts"}
ATTEMPTS = 20  # against programs that rewrite or expire what is there


def snapshot_properties(offsets: Offsets, topic_ids: TopicIds) -> dict[str, str]:
    """The properties of a snapshot that has the records before these offsets of topics with these ids."""
    told = {OFFSETS: to_json(offsets), TOPIC_IDS: topic_ids}
    return {name: json.dumps(value, separators=(",", ":")) for name, value in told.items()}


def offsets_in(properties: Mapping[str, str]) -> tuple[Offsets, TopicIds] | None:
    """The offsets and topic ids in the properties of a snapshot, if it has any."""
    told = properties.get(OFFSETS)
    return None if told is None else (from_json(json.loads(told)), json.loads(properties.get(TOPIC_IDS, "{}")))


def identifier_of(table: str) -> list[str]:
    """Catalog, namespace and name of a table; ValueError if one of them is missing."""
    parts = table.split(".")
    if len(parts) < 3 or not all(parts):
        raise ValueError(
            f"table: expected catalog, namespace and name, such as lake.db.orders, found {table!r}; they are the names"
            " that Spark uses"
        )
    return parts


def open_catalog(name: str, path: str, warehouse: str | None = None) -> Catalog:
    """The catalog in an SQLite file, as Iceberg's JdbcCatalog keeps it; the file is made if it is missing.

    Parameters
    ----------
    name : str
        The catalog's name, by which Spark knows it too: the tables in the file belong to names.
    warehouse : str, optional
        Where new tables lie; None is the folder ``warehouse`` beside the file.
    """
    try:
        from pyiceberg.catalog.sql import SqlCatalog
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Iceberg tables need {error.name}: pip install 'kafka-timestamps[tables]'", name=error.name
        ) from error
    path = files.absolute(path)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder for the catalog's file", folder)
    where = warehouse or os.path.join(folder, "warehouse")
    if files.scheme_of(where) is None:
        where = f"file://{files.absolute(where)}"
    access = {"s3.endpoint": aws.s3_endpoint(), "s3.region": aws.region()}
    given = {key: value for key, value in access.items() if value is not None}
    with _errors_of_database(path):
        return SqlCatalog(name, uri=f"sqlite:///{path}", warehouse=where, **given)


@contextmanager
def _errors_of_database(where: str) -> Iterator[None]:
    """Raise what SQLite reports as LogStorageError."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except DBAPIError as error:
        raise LogStorageError(
            f"expected the SQLite file of an Iceberg catalog, which you may write, found: {error.orig}", path=where
        ) from error


class IcebergTable:
    """A table of a catalog; see ``kts.tables.run.Target``.

    Parameters
    ----------
    identifier : tuple of str
        Its namespace and its name.
    schema : pyarrow.Schema
        Its columns: without such a table it is made.

    Raises
    ------
    InvalidRequestError
        There is one with other columns.
    LogStorageError
        The catalog's file cannot be read or written.

    Notes
    -----
    The offsets lie in the newest snapshot that has any: those of programs that rewrite files or delete rows have none.
    Where all of them were expired, the rows tell, which were added in the order of their offsets.
    """

    def __init__(self, catalog: Catalog, identifier: tuple[str, ...], schema: pa.Schema) -> None:
        self.name, self.schema = ".".join((catalog.name, *identifier)), schema
        with _errors_of_database(self.name):
            self._table = _existing(catalog, identifier, schema)
        self._columns = [field.name for field in self._table.schema().fields]
        check_types(self.name, types_of(self._table.schema().as_arrow()), schema)
        self.offsets, self.topic_ids = self._read_offsets()

    def _read_offsets(self) -> tuple[Offsets, TopicIds]:
        snapshot = self._table.current_snapshot()
        if snapshot is None:
            return {}, {}
        while snapshot is not None:
            told = None if snapshot.summary is None else offsets_in(snapshot.summary.additional_properties)
            if told is not None:
                return told
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
        return self._offsets_of_rows(), {}

    def _offsets_of_rows(self) -> Offsets:
        """One after the greatest offset of each partition."""
        import pyarrow as pa

        found: Offsets = {}
        for batch in self._table.scan(selected_fields=("topic", "partition", "offset")).to_arrow_batch_reader():
            greatest = pa.table(batch).group_by(["topic", "partition"]).aggregate([("offset", "max")])
            for row in greatest.to_pylist():
                name = TopicPartition(row["topic"], row["partition"])
                found[name] = max(found.get(name, 0), row["offset_max"] + 1)
        return found

    def append(self, rows: pa.Table, offsets: Offsets) -> None:
        """Add rows and set the offsets in one commit."""
        from pyiceberg.exceptions import CommitFailedException

        needed = PROPERTIES if _within_pythons_times(rows) else PROPERTIES | NO_BOUNDS
        rows = rows.select(self._columns)
        for _ in range(ATTEMPTS):
            properties = self._table.properties
            missing = {name: value for name, value in needed.items() if properties.get(name) != value}
            try:
                with _errors_of_database(self.name):
                    if missing:
                        with self._table.transaction() as change:
                            change.set_properties(missing)
                    # pyiceberg refuses it if there is a newer snapshot than the one that the offsets were read of.
                    self._table.append(rows, snapshot_properties=snapshot_properties(offsets, self.topic_ids))
            except CommitFailedException as error:
                self._table.refresh()
                if self._read_offsets()[0] != self.offsets:
                    raise lost_race(self.name) from error
            else:
                self.offsets = dict(offsets)
                return
        raise KtsError(f"{self.name}: in {ATTEMPTS} attempts another program committed first each time; run again")


def _existing(catalog: Catalog, identifier: tuple[str, ...], schema: pa.Schema) -> Table:
    """The table, made if it is missing: partitioned by day."""
    from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

    try:
        return catalog.load_table(identifier)
    except NoSuchTableError:
        catalog.create_namespace_if_not_exists(identifier[:-1])
    try:
        creation = catalog.create_table_transaction(identifier, schema, properties=PROPERTIES)
        with creation, creation.update_spec() as partitioning:
            partitioning.add_identity(DAY)
    except TableAlreadyExistsError:  # made by another program meanwhile
        pass
    return catalog.load_table(identifier)


def _within_pythons_times(rows: pa.Table) -> bool:
    import pyarrow.compute as pc

    found = pc.min_max(rows.column("timestampMs")).as_py()
    return found["min"] is None or (found["min"] >= FIRST_MS and found["max"] <= LAST_MS)
