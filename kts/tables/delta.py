"""Delta Lake tables through delta-rs: rows and offsets in one commit of the table's log."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kts.dataset.increments import Offsets
from kts.errors import KtsError, LogStorageError
from kts.store import addresses
from kts.store.protocol import Result
from kts.tables.latest import GONE, KEY, Changed, Changes
from kts.tables.rows import DAY, agreed_schema, other_mode
from kts.tables.state import (
    NEXT,
    OFFSETS,
    Known,
    LostOffsetsError,
    TableState,
    attempted,
    snapshot_properties,
    state_in,
)

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

PREFIX = "delta:"  # of the name of a table
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
APPLICATION = "kts"  # of the transactions in the table's log
# Commits tell the offsets, so the log has to keep them.
CONFIGURATION = {"delta.logRetentionDuration": "interval 36500 days"}


@contextmanager
def errors_of_delta(table: str) -> Iterator[None]:
    """Raise what delta-rs reports as LogStorageError; what is not installed by its extra."""
    try:
        yield
    except KtsError:
        raise
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Delta tables need {error.name}: pip install 'kafka-timestamps[delta]'", name=error.name
        ) from error
    except Exception as error:  # delta-rs has an error of its own for each of its crates
        raise LogStorageError(
            f"{table}: delta-rs could not read or write the table: {type(error).__name__}: {error!s:.1000}",
            errno=getattr(error, "errno", None) or errno.EIO,
        ) from error


class Delta(Known):
    """A Delta table; see ``kts.tables.run.Target``.

    Parameters
    ----------
    name : str
        ``delta:`` and its path, or its address as delta-rs takes it.
    schema : pyarrow.Schema
        The columns of the rows: without such a table it is made.
    stated : bool
        Whether a table whose offsets are lost gets others.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns of the rows that it is given.
    created : str or None
        Where it lies, if it was made.

    Raises
    ------
    InvalidRequestError
        It has other columns, or is a table of the other mode.
    LogStorageError
        It cannot be read or written, or what it knew is lost.

    Notes
    -----
    The information of a commit has the offset of the next record of each partition. A commit is refused if there is any
    that it did not know, and made again on top of that one if the offsets are still those that the run began with.
    """

    partitions: tuple[str, ...] = (DAY,)

    def __init__(self, name: str, schema: pa.Schema, *, stated: bool = False) -> None:
        where = name.removeprefix(PREFIX)
        self.name = name
        self._path = where if addresses.scheme_of(where) is not None else addresses.absolute(where)
        with errors_of_delta(name):
            self._table, made = self._open(schema)
            self.created = self._path if made else None
            found = pa.schema(self._table.schema().to_arrow())
            if (DAY in found.names) != (DAY in schema.names):
                raise other_mode(name, is_state=DAY in schema.names)
            self.schema = agreed_schema(name, found, schema)
            self._is_wider = len(found) > len(self.schema)
        self.learn(self._find, stated)

    def _open(self, schema: pa.Schema) -> tuple[DeltaTable, bool]:
        """The table, made if it is missing; and whether it was made."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        if DeltaTable.is_deltatable(self._path):
            return DeltaTable(self._path), False
        if addresses.scheme_of(self._path) is None:
            os.makedirs(self._path, exist_ok=True)
        by = list(self.partitions)
        try:
            return DeltaTable.create(self._path, schema, partition_by=by, configuration=CONFIGURATION), True
        except DeltaError:
            if not DeltaTable.is_deltatable(self._path):
                raise
            return DeltaTable(self._path), False  # made by another program meanwhile

    def _find(self) -> tuple[TableState, bool]:
        """What the newest commit that the rows come from tells."""
        with errors_of_delta(self.name):
            newest, restored, entry = self._table.version(), False, dict[str, Any]()
            for entry in self._table.history():
                if entry["version"] > newest:
                    continue
                if entry.get("operation") == "RESTORE":  # the commits between are undone
                    if (then := self._restored(entry)) is None:
                        break
                    newest, restored = then, True
                elif OFFSETS in entry:
                    found = state_in(entry, f"{self.name}, version {entry['version']}")
                    return found or TableState(), True
            else:
                before_all = restored and entry.get("version") == 0  # of the commits that tell offsets
                if before_all or self._table.transaction_version(APPLICATION) is None:
                    return TableState(), True
        raise LostOffsetsError(
            f"{self.name}: the offsets up to which it has the logs are lost: no commit that its rows come from tells"
            f" {OFFSETS}: {NEXT}"
        )

    def _restored(self, entry: dict[str, Any]) -> int | None:
        """The version to which a commit restored the table; None if that is not sure."""
        from deltalake import DeltaTable

        told = entry.get("operationParameters", {})
        if (version := told.get("version")) is not None:
            return int(version)
        if (ms := told.get("datetime")) is None:  # as delta-rs writes it
            return None
        then, after = DeltaTable(self._path), DeltaTable(self._path, version=entry["version"])
        then.load_as_version(EPOCH + timedelta(milliseconds=int(ms)))
        return then.version() if sorted(then.file_uris()) == sorted(after.file_uris()) else None

    def append(self, rows: pa.Table, offsets: Offsets) -> None:
        """Add rows and set the offsets in one commit."""
        state = self.state(offsets)
        self._attempt(partial(self._append, rows, state), state)

    def _append(self, rows: pa.Table, state: TableState) -> None:
        from deltalake import write_deltalake

        # Columns of the owner, which rows lack, are null in them.
        write_deltalake(
            self._table,
            rows,
            mode="append",
            schema_mode="merge" if self._is_wider else None,
            commit_properties=self._commit(state),
        )

    def _commit(self, state: TableState) -> CommitProperties:
        """The properties of a commit after which the table has this state."""
        from deltalake import CommitProperties, Transaction

        last = self._table.transaction_version(APPLICATION)
        version = Transaction(APPLICATION, 1 if last is None else last + 1)
        return CommitProperties(snapshot_properties(state), max_commit_retries=0, app_transactions=[version])

    def _attempt(self, commit: Callable[[], Result], state: TableState) -> Result:
        """Commit, again where a program that leaves the offsets as they are was first."""
        from deltalake.exceptions import CommitFailedError

        def once() -> Result:
            with errors_of_delta(self.name):
                return commit()

        def refresh() -> None:
            with errors_of_delta(self.name):
                self._table.update_incremental()
            self.check_race(self._find)

        done = attempted(self.name, once, CommitFailedError, refresh)
        self.committed(state)
        return done


class DeltaState(Delta):
    """A Delta table of the latest state; see ``kts.tables.latest.KeyedTable``. delta-rs merges what changed."""

    partitions = ()

    def buckets(self, keys: pa.Array) -> pa.Array:
        """One: delta-rs finds the files to change by itself."""
        return pa.repeat(pa.scalar(0, pa.int32()), len(keys))

    def change(self, changes: Changes, offsets: Offsets) -> Changed:
        """Replace rows and set the offsets in one commit."""
        state = self.state(offsets)
        return self._attempt(partial(self._merge, changes.of(0), changes, state), state)

    def _merge(self, changed: pa.Table, changes: Changes, state: TableState) -> Changed:
        done = Changed()
        rows = changes.live(changed, done)
        if self._table.transaction_version(APPLICATION) is None:
            self._append(rows, state)
            return done
        same = " AND ".join(f"t.{name} = s.{name}" for name in KEY)
        merger = self._table.merge(
            changed, same, source_alias="s", target_alias="t", commit_properties=self._commit(state)
        )
        values = {f"`{name}`": f"s.`{name}`" for name in rows.column_names}
        merger = merger.when_matched_delete(f"s.{GONE}").when_matched_update(values)
        merger = merger.when_not_matched_insert(values, predicate=f"NOT s.{GONE}")
        for name in sorted(changes.forgotten):
            of_it = f"t.topic = '{name.topic}' AND t.partition = {name.partition}"  # no name of a topic has a quote
            merger = merger.when_not_matched_by_source_delete(of_it)
        told = merger.execute()
        done.removed = told["num_target_rows_updated"] + told["num_target_rows_deleted"]
        return done
