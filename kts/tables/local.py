"""Synchronises a table in this process: all records of logs, or their latest state."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from kts.dataset.latest import LatestOptions
from kts.dataset.options import Path
from kts.options import takes_only
from kts.remote.buckets import TIME_LIMIT_S, time_limit
from kts.tables.delta import PREFIX, Delta, DeltaState
from kts.tables.folder import FolderTable, is_folder_table
from kts.tables.iceberg import IcebergTable, identifier_of, open_catalog, partition_fields
from kts.tables.latest import KeyedTable, StateRun, state_schema
from kts.tables.options import LocalSyncOptions
from kts.tables.run import Run, Synced, Target, source_of
from kts.tables.state_tables import StateFolder, StateIceberg

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog


@takes_only(LocalSyncOptions)
def sync(asked: LocalSyncOptions) -> Synced:
    """Add the records of logs that a table does not have yet.

    Returns
    -------
    Synced

    Raises
    ------
    OffsetOutOfRangeError
        Records are gone before they were read.
    LogLockedError
        Another program has added records to the table at the same time; those of this run that were not committed
        are not there.
    InvalidRequestError
        The table has other columns.
    LogStorageError
        The table cannot be read or written, or its offsets are lost or malformed: give ``from_offsets``.
    CorruptRecordError
        Damage; what was committed before stays.

    Notes
    -----
    A commit to an Iceberg table holds rows together with the offset of the next record of each partition, as the
    property ``kts.offsets`` of the snapshot and of the table; a Parquet folder has both in a ledger,
    ``_kts/ledger.json``. A run that is interrupted at any point goes on behind the last commit. Rows that somebody
    deleted stay deleted. Retention of the log deletes nothing from the table. A record goes to its own day, however
    late it comes.

    With ``mode="latest"`` the table has a row for each key, as ``kts.latest`` gives it, and a run is one commit: rows
    whose key has a newer record are replaced, and those whose key was deleted go. Records without a key are of no row.
    """
    is_delta = os.fspath(asked.table).startswith(PREFIX)
    if is_delta and asked.catalog is not None:
        raise ValueError(f"catalog: it is for Iceberg tables, and {asked.table} is a Delta table: leave it out")
    if asked.catalog is None and asked.warehouse is not None:
        raise ValueError("warehouse: give catalog as well; without it the table is a folder")
    if asked.catalog is None and not is_delta:
        _check_folder(asked.table)
    if asked.partition_by and (asked.catalog is None or asked.mode == "latest"):
        what = "a folder has days" if asked.catalog is None else "a table of the latest state has buckets of keys"
        raise ValueError(f"partition_by: it is for Iceberg tables of all records, and {what}: leave it out")
    if asked.mode != "latest" and asked.buckets is not None:
        raise ValueError("buckets: they are those of a table of the latest state; give mode latest as well")
    if is_delta and asked.buckets is not None:
        raise ValueError(f"buckets: a Delta table has none, and {asked.table} is one: leave it out")
    if asked.mode == "latest":
        _refuse_of_append(asked)
        source = source_of(asked, asked.threads, LatestOptions.isolation)
        states = [_state_table(name, asked, state_schema(schema)) for name, schema in source.tables]
        return StateRun(source, states, asked.progress).finish()
    source = source_of(asked, asked.threads)
    targets = [_target(name, asked, schema) for name, schema in source.tables]
    return Run(source, targets, asked.commit_bytes, asked.progress).finish()


def _check_folder(table: Path) -> None:
    """Refuse a name without a catalog that may be an Iceberg table's: it would become a folder of that name."""
    if isinstance(table, str) and "." in table.strip(".") and "/" not in table and not is_folder_table(table):
        named = table if table.count(".") > 1 else f"lake.{table}"
        raise ValueError(
            f"table: {table} may be an Iceberg table or a folder. For an Iceberg table give catalog: kts sync DIR"
            f" {shlex.quote(named)} --catalog lake.sqlite. For a folder of Parquet files: kts sync DIR"
            f" {shlex.quote('./' + table)}"
        )


def _refuse_of_append(asked: LocalSyncOptions) -> None:
    """Refuse options that a table of the latest state has no use for."""
    about = {"plausible_from": "days", "plausible_to": "days", "max_days": "days", "commit_bytes": "commits"}
    for name, what in about.items():
        if getattr(asked, name) != getattr(LocalSyncOptions, name):
            why = "has no column day" if what == "days" else "gets one commit a run"
            raise ValueError(f"{name}: a table of the latest state {why}; leave it out, or mode latest")


def _target(table: str, asked: LocalSyncOptions, schema: pa.Schema) -> Target:
    if table.startswith(PREFIX):
        return Delta(table, schema, stated=asked.from_offsets is not None)
    if asked.catalog is None:
        return FolderTable(table, schema, stated=asked.from_offsets is not None)
    place = _in_catalog(table, asked.catalog, asked)
    return IcebergTable(*place, schema, partition_by=partition_fields(asked.partition_by, schema), **_stated(asked))


def _state_table(table: str, asked: LocalSyncOptions, schema: pa.Schema) -> KeyedTable:
    if table.startswith(PREFIX):
        return DeltaState(table, schema, stated=asked.from_offsets is not None)
    if asked.catalog is None:
        return StateFolder(table, schema, stated=asked.from_offsets is not None, buckets=asked.buckets)
    place = _in_catalog(table, asked.catalog, asked)
    return StateIceberg(*place, schema, buckets=asked.buckets, **_stated(asked))


def _in_catalog(table: str, catalog: Path | Catalog, asked: LocalSyncOptions) -> tuple[Catalog, tuple[str, ...]]:
    name, *identifier = identifier_of(table)
    where = None if asked.warehouse is None else os.fspath(asked.warehouse)
    return open_catalog(name, catalog, where), tuple(identifier)


def _stated(asked: LocalSyncOptions) -> dict[str, Any]:
    seconds = time_limit((asked.storage_options or {}).get("time_limit", TIME_LIMIT_S))
    return {"stated": asked.from_offsets is not None, "seconds": seconds}
