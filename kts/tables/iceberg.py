"""Iceberg tables through pyiceberg: rows and offsets in one snapshot."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from kts.dataset.increments import Offsets
from kts.dataset.options import Path
from kts.errors import InvalidRequestError, KtsError, LogStorageError
from kts.remote import aws
from kts.remote.buckets import TIME_LIMIT_S
from kts.remote.services import CONNECT_S, REQUEST_S
from kts.remote.threads import Limit, Threads, leave_at_end
from kts.store import addresses
from kts.store.protocol import Result
from kts.tables.rows import DAY, FIRST_MS, LAST_MS, agreed_schema, other_mode
from kts.tables.state import (
    Known,
    Snapshot,
    TableState,
    attempted,
    find_state,
    snapshot_properties,
    table_properties,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

# A commit that lost a race must not be added on top of the other one: its records may be the same.
PROPERTIES = {"commit.retry.num-retries": "0"}
# pyiceberg reads the bounds of a column as Python's times.
NO_BOUNDS = {"write.metadata.metrics.column.timestamp": "counts"}
MODE = "kts.mode"  # of a table of the latest state: latest
DAYS = ((DAY, "identity"),)

_FIELD = re.compile(
    r"(?P<column>\w+)"
    r"|(?P<transform>year|month|day|hour|(?P<sized>bucket|truncate))"
    r"\((?(sized)(?P<width>[1-9][0-9]{0,8}) *, *)(?P<of>\w+)\)"
)


def identifier_of(table: str) -> list[str]:
    """Catalog, namespace and name of a table; ValueError if one of them is missing."""
    parts = table.split(".")
    if len(parts) < 3 or not all(parts):
        raise ValueError(
            f"table: expected catalog, namespace and name, such as lake.db.orders, found {table!r}; they are the names"
            " that Spark uses"
        )
    return parts


def open_catalog(name: str, given: Path | Catalog, warehouse: str | None = None) -> Catalog:
    """The catalog that is named.

    Parameters
    ----------
    name : str
        The catalog's name, by which Spark knows it too: tables belong to names.
    given : path, str or pyiceberg.catalog.Catalog
        An SQLite file, as Iceberg's JdbcCatalog keeps it, which is made if it is missing; a URI; or the name of a
        catalog of pyiceberg's configuration (``.pyiceberg.yaml``, ``PYICEBERG_CATALOG__...``).
    warehouse : str, optional
        Where new tables lie; for a file, None is the folder ``warehouse`` beside it.

    Raises
    ------
    ValueError
        The catalog has another name than the table says, or a word names neither a file nor a configured catalog.
    """
    try:
        from pyiceberg.catalog import Catalog, list_catalogs, load_catalog
        from pyiceberg.catalog.sql import SqlCatalog
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Iceberg tables need {error.name}: pip install 'kafka-timestamps[tables]'", name=error.name
        ) from error
    if isinstance(given, Catalog):
        if given.name != name:
            raise ValueError(f"table: expected one of the catalog {given.name}, found {name}")
        return given
    told = os.fspath(given)
    more = {"s3.connect-timeout": str(CONNECT_S), "s3.request-timeout": str(REQUEST_S)}
    more |= {} if warehouse is None else {"warehouse": warehouse}
    if "://" in told:
        with errors_of_libraries(told):
            return load_catalog(name, uri=told, **more)
    if not _is_file(told):
        if told not in (known := list_catalogs()):
            shown = ", ".join(known) or "none"
            raise ValueError(
                f"catalog: expected an SQLite file (./{told} makes one), a URI, or a catalog of .pyiceberg.yaml (found"
                f" {shown}), found {told}"
            )
        if told != name:
            raise ValueError(f"table: expected one of the catalog {told}, found {name}")
        with errors_of_libraries(told):
            return load_catalog(name, **more)
    path = addresses.absolute(told)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder for the catalog's file", folder)
    where = warehouse or os.path.join(folder, "warehouse")
    if addresses.scheme_of(where) is None:
        where = f"file://{addresses.absolute(where)}"
    access = {"s3.endpoint": aws.s3_endpoint(), "s3.region": aws.region()}
    more |= {key: value for key, value in access.items() if value is not None} | {"warehouse": where}
    with errors_of_libraries(path):
        return SqlCatalog(name, uri=f"sqlite:///{path}", **more)


def _is_file(told: str) -> bool:
    """Whether a text that is no URI means an SQLite file, and not the name of a configured catalog."""
    return os.path.exists(told) or re.fullmatch(r"[\w-]+", told) is None


def existing(table: str, catalog: Path | Catalog) -> tuple[Catalog, tuple[str, ...]]:
    """The catalog of a table, as ``open_catalog`` takes it, and the table's namespace and name.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    """
    name, *identifier = identifier_of(table)
    told = os.fspath(catalog) if isinstance(catalog, (str, os.PathLike)) else ""
    if told and "://" not in told and _is_file(told) and not os.path.exists(told):
        raise FileNotFoundError(errno.ENOENT, "there is no such file of a catalog", addresses.absolute(told))
    return open_catalog(name, catalog), tuple(identifier)


@contextmanager
def errors_of_libraries(where: str) -> Iterator[None]:
    """Raise what pyiceberg and the libraries below it report as LogStorageError; what is not installed by its extra."""
    from pyiceberg.exceptions import NotInstalledError
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except KtsError:
        raise
    except DBAPIError as error:
        raise LogStorageError(
            f"expected the SQLite file of an Iceberg catalog, which you may write, found: {error.orig}", path=where
        ) from error
    except (ModuleNotFoundError, NotInstalledError) as error:
        raise ModuleNotFoundError(f"{where}: {error}: pip install 'kafka-timestamps[tables]'") from error
    except Exception as error:  # libraries raise what they like
        raise LogStorageError(
            f"{where}: pyiceberg could not read or write the table: {type(error).__name__}: {error!s:.1000}; check its"
            " warehouse, what gives access to it, and the catalog",
            errno=getattr(error, "errno", None) or errno.EIO,
        ) from error


def partition_fields(given: Sequence[str] | None, schema: pa.Schema) -> Sequence[tuple[str, str]]:
    """The columns by which a table is partitioned, each with its transform as Iceberg spells it.

    Raises
    ------
    ValueError
        A text is neither a column nor a transform of one.
    """
    if not given:
        return DAYS
    found = list[tuple[str, str]]()
    for text in [given] if isinstance(given, str) else given:
        known = _FIELD.fullmatch(text.strip())
        column = "" if known is None else known["column"] or known["of"]
        if known is None or column not in schema.names:
            raise ValueError(
                f"partition_by: expected a column, or year, month, day or hour(timestamp), bucket(16, key) or"
                f" truncate(4, topic), found {text!r}; columns are {', '.join(schema.names)}"
            )
        width = "" if known["width"] is None else f"[{known['width']}]"
        if column in dict(found):
            raise ValueError(f"partition_by: expected each column once, found {column} twice")
        found.append((column, f"{known['transform'] or 'identity'}{width}"))
    return found


def _field_name(column: str, transform: str) -> str:
    """The name of a partition field, as Spark names it."""
    kind = transform.partition("[")[0]
    return column if kind == "identity" else f"{column}_{'trunc' if kind == 'truncate' else kind}"


class IcebergTable(Known):
    """A table of a catalog; see ``kts.tables.run.Target``.

    Parameters
    ----------
    identifier : tuple of str
        Its namespace and its name.
    schema : pyarrow.Schema, optional
        Its columns: without such a table it is made. None is a table that is there, whatever its columns.
    stated : bool
        Whether a table whose offsets are lost gets others.
    seconds : float
        The limit of time of each step, and one more second for each ``SLOWEST_BYTES`` that are written.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns of the rows that it is given.
    created : str or None
        Where it lies, if it was made.

    Raises
    ------
    FileNotFoundError
        There is none, and no schema to make it.
    InvalidRequestError
        There is one with other columns.
    LogStorageError
        The catalog or the warehouse cannot be read or written, or what the table knew is lost.

    Notes
    -----
    For what it knows of its logs see ``kts.tables.state.find_state``.
    """

    def __init__(
        self,
        catalog: Catalog,
        identifier: tuple[str, ...],
        schema: pa.Schema | None,
        *,
        stated: bool = False,
        seconds: float = TIME_LIMIT_S,
        buckets: int | None = None,
        partition_by: Sequence[tuple[str, str]] = DAYS,
    ) -> None:
        from pyarrow import fs

        self.name = ".".join((catalog.name, *identifier))
        self._limit, self._threads = Limit(seconds), Threads("kts-table")
        leave_at_end(fs.ensure_s3_finalized)
        by = partition_by if buckets is None else [("key", f"bucket[{buckets}]")]
        more = {} if buckets is None else {MODE: "latest"}
        loaded, created = self._within(partial(_existing, catalog, identifier, schema, by, more))
        if loaded is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such table in the catalog", self.name)
        self._table = loaded
        if schema is not None and (MODE in self._table.properties) != (buckets is not None):
            raise other_mode(self.name, is_state=buckets is None)
        self.created = self._table.location() if created else None
        own = self._table.schema().as_arrow()
        self.schema = own if schema is None else agreed_schema(self.name, own, schema)
        parts = {self._table.schema().find_column_name(one.source_id) for one in self._table.spec().fields}
        if "timestamp" in parts:  # pyiceberg spells the names of such partitions with Python's times
            self.times_ms = FIRST_MS, LAST_MS
        self.learn(self._find, stated)

    def _within(self, work: Callable[[], Result], sent: int = 0) -> Result:
        """The result of work with the libraries: no server that does not answer holds it up."""
        with errors_of_libraries(self.name):
            return self._limit.wait(self._threads.submit(work), lambda: sent)

    def _find(self) -> tuple[TableState, bool]:
        metadata = self._table.metadata
        current = metadata.current_snapshot_id
        return find_state(self.name, metadata.properties, _snapshots(metadata), current, self._older)

    def _older(self) -> Iterator[Mapping[int, Snapshot]]:
        """The snapshots in earlier metadata files, newest first, as long as they can be read."""
        for entry in reversed(self._table.metadata.metadata_log):
            try:
                metadata = self._within(partial(metadata_of, self._table, entry.metadata_file))
            except LogStorageError:
                return
            yield _snapshots(metadata)

    def _has(self, state: TableState) -> bool:
        """Whether the table has a commit whose answer was an error, or another program's of the same offsets."""
        try:
            self._within(self._table.refresh)
            found, _ = self._find()
        except LogStorageError:
            return False
        return found == state != self._found

    def append(self, rows: pa.Table, offsets: Offsets) -> None:
        """Add rows and set the offsets in one commit."""
        state = self.state(offsets)

        def commit() -> None:
            self.prepare(within_pythons_times(rows))
            self._within(partial(_commit, self._table, rows, state), rows.nbytes)

        self._attempt(commit, state)

    def prepare(self, has_bounds: bool) -> None:
        """Set the properties that a commit needs."""
        needed = PROPERTIES if has_bounds else PROPERTIES | NO_BOUNDS
        if missing := {name: value for name, value in needed.items() if self._table.properties.get(name) != value}:
            self._within(partial(_set_properties, self._table, missing))

    def _attempt(self, commit: Callable[[], None], state: TableState) -> None:
        """Commit, again where a program that leaves the offsets as they are was first."""
        from pyiceberg.exceptions import CommitFailedException

        def once() -> None:
            try:
                commit()
            except LogStorageError as error:
                lost_race = isinstance(error.__cause__, CommitFailedException)
                if lost_race or not self._has(state):  # else the answer was lost on its way, not the commit
                    raise

        def refresh() -> None:
            self._within(self._table.refresh)
            self.check_race(self._find)

        attempted(self.name, once, CommitFailedException, refresh)
        self.committed(state)


def _set_properties(table: Table, missing: dict[str, str]) -> None:
    """Set properties of a table whose newest snapshot is the one that is known.

    What is known afterwards is what the catalog has: a commit on top of it would not notice a snapshot that came
    meanwhile.
    """
    from pyiceberg.table.refs import MAIN_BRANCH
    from pyiceberg.table.update import AssertRefSnapshotId

    unchanged = AssertRefSnapshotId.model_validate(
        {"ref": MAIN_BRANCH, "snapshot-id": table.metadata.current_snapshot_id}
    )
    with table.transaction() as change:
        change.set_properties(missing)
        change._apply((), (unchanged,))


def _commit(table: Table, rows: pa.Table, state: TableState) -> None:
    # pyiceberg refuses it if there is a newer snapshot than the one that the offsets were read of.
    with table.transaction() as change:
        change.append(rows, snapshot_properties=snapshot_properties(state))
        change.set_properties(table_properties(state, change.table_metadata.current_snapshot_id))


def _existing(
    catalog: Catalog,
    identifier: tuple[str, ...],
    schema: pa.Schema | None,
    partition_by: Sequence[tuple[str, str]],
    more: Mapping[str, str],
) -> tuple[Table | None, bool]:
    """The table, made with a schema if it is missing, with partition fields and with more properties; and whether it
    was made."""
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
    from pyiceberg.transforms import parse_transform

    try:
        return catalog.load_table(identifier), False
    except NoSuchTableError:
        if schema is None:
            return None, False
        catalog.create_namespace_if_not_exists(identifier[:-1])
    properties = PROPERTIES | table_properties(TableState(), None) | dict(more)
    try:
        creation = catalog.create_table_transaction(identifier, schema, properties=properties)
        with creation, creation.update_spec() as partitioning:
            for column, transform in partition_by:
                partitioning.add_field(column, parse_transform(transform), _field_name(column, transform))
    except ValueError as error:
        fields = ", ".join(f"{transform} of {column}" for column, transform in partition_by)
        raise InvalidRequestError(f"partition_by: Iceberg makes no table with {fields}: {error}") from error
    except (CommitFailedException, TableAlreadyExistsError):  # made by another program meanwhile
        return catalog.load_table(identifier), False
    return catalog.load_table(identifier), True


def metadata_of(table: Table, path: str) -> TableMetadata:
    from pyiceberg.serializers import FromInputFile

    return FromInputFile.table_metadata(table.io.new_input(path))


def _snapshots(metadata: TableMetadata) -> dict[int, Snapshot]:
    return {
        one.snapshot_id: Snapshot(one.parent_snapshot_id, one.summary.additional_properties if one.summary else {})
        for one in metadata.snapshots
    }


def within_pythons_times(rows: pa.Table) -> bool:
    import pyarrow.compute as pc

    found = pc.min_max(rows.column("timestampMs")).as_py()
    return found["min"] is None or (found["min"] >= FIRST_MS and found["max"] <= LAST_MS)
