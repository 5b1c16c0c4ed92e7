"""Tables of the latest state: a Parquet folder and an Iceberg table whose files have the rows of a bucket of keys."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kts._codec import LatestOffsets
from kts.dataset.increments import Offsets
from kts.errors import InvalidRequestError
from kts.store import local, publishing
from kts.store.source import files
from kts.tables.folder import BUCKET, FolderTable
from kts.tables.iceberg import IcebergTable, within_pythons_times
from kts.tables.latest import KEY, Changed, Changes, among
from kts.tables.rows import other_mode
from kts.tables.state import TableState, snapshot_properties, table_properties

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.typedef import Record

BUCKETS = 16  # of a new table
NO_SECRET = bytes(16)  # of SipHash: a key has the same bucket in each run
STATE = "state.parquet"
FEW_ROWS = 10_000  # of a bucket, which are always written again
MOST_FILES = 8  # of a bucket, before it is written again
MOST_DELETED = 50  # one row of so many: readers look at each row of a file that has some


class StateFile(NamedTuple):
    """A file in ``_kts`` with the rows of a bucket."""

    name: str
    bucket: int


class StateFolder(FolderTable):
    """A Parquet folder of the latest state; see ``kts.tables.latest.KeyedTable``.

    Notes
    -----
    A commit is that of ``FolderTable``, but a file replaces the one of its bucket: a key is in one bucket, so a reader
    never sees two rows of it, nor none. Until all files are renamed it may see some buckets old and others new.
    """

    by = BUCKET

    def __init__(self, path: str, schema: pa.Schema, *, stated: bool = False, buckets: int | None = None) -> None:
        self._asked = buckets
        self._hashes = LatestOffsets(1, NO_SECRET)
        super().__init__(path, schema, stated=stated, buckets=buckets or BUCKETS)
        if self.lost:
            self._check_buckets()

    def _check_buckets(self) -> None:
        """Refuse a number of buckets that is not the one of the files: two of them might have rows of a key."""
        for directory in self._days():
            for path in self._parts([directory]):
                with local.storage_errors(path, "reading"), pq.ParquetFile(path) as file:
                    keys = file.read(columns=["key"]).column("key").cast(pa.binary()).combine_chunks()
                if {f"{self.by}={bucket}" for bucket in self.buckets(keys).unique().to_pylist()} - {directory}:
                    raise InvalidRequestError(
                        f"buckets: expected the number that {self.name} was made with, because its ledger does not tell"
                        f" it, found {self._buckets}: {path} has keys of other buckets"
                    )

    def _agree_on_buckets(self, found: int | None) -> None:
        if found is None:
            raise other_mode(self.name, is_state=False)
        if self._asked not in (None, found):
            raise other_buckets(self.name, found, self._asked)
        self._buckets = found

    def _columns_in(self, path: str) -> pa.Schema:
        return pq.read_schema(path)

    def _parts(self, days: Iterable[str]) -> Iterator[str]:
        return (path for day in days if files.exists(path := os.path.join(self._path, day, STATE)))

    def _newest(self, days: Iterable[str]) -> int:
        return 0  # files have no numbers: what an older ledger adds again changes nothing

    def _check_free(self, target: str) -> None:
        """A file replaces another."""

    def _target(self, day: Any, number: int, place: int) -> str:
        return f"bucket={day}/{STATE}"

    def buckets(self, keys: pa.Array) -> pa.Array:
        """The bucket of each key."""
        _, ends, data = keys.buffers()
        places = memoryview(ends).cast("B").cast("i")[keys.offset : keys.offset + len(keys) + 1]
        hashes = self._hashes.hashes(places, b"" if data is None else data)
        return pa.array(np.frombuffer(hashes, np.uint64)[::2] % np.uint64(self._buckets or 1), pa.int32())

    def change(self, changes: Changes, offsets: Offsets) -> Changed:
        """Replace rows and set the offsets in one commit."""
        done = Changed()
        self.commit(partial(self._write, changes, done), offsets)
        return done

    def _write(self, changes: Changes, done: Changed, own: str) -> Sequence[Any]:
        written = []
        for bucket in range(self._buckets or 0):
            path = os.path.join(self._path, self._target(bucket, 0, 0))
            if bucket not in changes.touched and not (changes.forgotten and files.exists(path)):
                continue
            rows = self.schema.empty_table()
            if files.exists(path):
                with local.storage_errors(path, "reading"), pq.ParquetFile(path) as file:
                    rows = file.read().cast(self.schema)
            if (after := changes.applied(bucket, rows, done)) is None:
                continue
            aside = StateFile(uuid4().hex, bucket)
            with local.storage_errors(os.path.join(own, aside.name), "writing"):
                pq.write_table(after, os.path.join(own, aside.name), compression="zstd")
            publishing.sync_file(os.path.join(own, aside.name))
            written.append(aside)
        return written


@dataclass
class _Files:
    """The data files and delete files that a commit adds and removes."""

    new: list[DataFile] = field(default_factory=list)
    old: list[DataFile] = field(default_factory=list)
    new_deletes: list[DataFile] = field(default_factory=list)
    old_deletes: list[DataFile] = field(default_factory=list)

    def clear(self) -> None:
        """Forget them."""
        for one in (self.new, self.old, self.new_deletes, self.old_deletes):
            one.clear()


class StateIceberg(IcebergTable):
    """An Iceberg table of the latest state, partitioned by ``bucket(N, key)``; see ``kts.tables.latest.KeyedTable``."""

    def __init__(self, *given: Any, buckets: int | None = None, **more: Any) -> None:
        super().__init__(*given, buckets=buckets or BUCKETS, **more)
        self._bucket_field, self._transform = self._partitioning()
        if buckets not in (None, self._transform.num_buckets):
            raise other_buckets(self.name, self._transform.num_buckets, buckets)

    def _partitioning(self) -> tuple[int, Any]:
        """The place of the bucket in partitions, and how it is computed."""
        from pyiceberg.transforms import BucketTransform

        key = self._table.schema().find_field("key").field_id
        for place, one in enumerate(self._table.spec().fields):
            if isinstance(one.transform, BucketTransform) and one.source_id == key:
                return place, one.transform
        raise InvalidRequestError(
            f"{self.name}: expected a table that is partitioned by buckets of key, found {self._table.spec()}: restore"
            " that partition field, or name another table"
        )

    def buckets(self, keys: pa.Array) -> pa.Array:
        """The bucket of each key."""
        from pyiceberg.types import BinaryType

        return self._transform.pyarrow_transform(BinaryType())(keys)

    def change(self, changes: Changes, offsets: Offsets) -> Changed:
        """Replace rows and set the offsets in one commit.

        Notes
        -----
        The files of a bucket are written again, unless few of its rows change: then a file has the new rows, and
        another the positions of the old ones, until there are ``MOST_FILES`` files or a part of the rows is deleted.
        """
        state = self.state(offsets)
        done, files = Changed(), _Files()

        def commit() -> None:
            for file in (*files.new, *files.new_deletes):  # of an attempt that another program was before
                self._table.io.delete(file.file_path)
            files.clear()
            done.added = done.removed = done.without_timestamp = 0
            self.prepare(True)
            for bucket, tasks in self._within(partial(self._planned, changes)):
                change = self._delete if _is_small(changes, bucket, tasks) else self._rewrite
                change(changes, bucket, tasks, files, done)
            self._within(partial(_replace, self._table, files, state))

        self._attempt(commit, state)
        return done

    def _rewrite(
        self, changes: Changes, bucket: int, tasks: Sequence[FileScanTask], files: _Files, done: Changed
    ) -> None:
        """Write the rows of a bucket again."""
        rows = self._within(partial(_rows_of, self._table, tasks, self.schema))
        if (after := changes.applied(bucket, rows, done)) is None:
            return
        self._write(after, files)
        files.old += [task.file for task in tasks]
        files.old_deletes += [one for task in tasks for one in task.delete_files]

    def _delete(
        self, changes: Changes, bucket: int, tasks: Sequence[FileScanTask], files: _Files, done: Changed
    ) -> None:
        """Delete rows of a bucket by their position, and add the new ones."""
        from kts.tables.position_deletes import columns_of, deleted_rows, write_deletes

        changed = changes.of(bucket)
        gone = dict["Record", list["tuple[FileScanTask, npt.NDArray[np.int64]]"]]()  # a delete file is of one partition
        for task in tasks:
            keys = self._within(partial(columns_of, self._table, task.file, KEY))
            keys = keys.cast(pa.schema([self.schema.field(name) for name in KEY]))
            found = np.flatnonzero(among(keys, changed))
            if len(found) and task.delete_files:
                found = np.setdiff1d(found, self._within(partial(deleted_rows, self._table, task)))
            if len(found):
                gone.setdefault(task.file.partition, []).append((task, found))
                done.removed += len(found)
        for of_one in gone.values():
            positions = [(task.file.file_path, found) for task, found in of_one]
            files.new_deletes.append(self._within(partial(write_deletes, self._table, of_one[0][0], positions)))
        self._write(changes.live(changed, done), files)

    def _write(self, rows: pa.Table, files: _Files) -> None:
        """Write rows into files of their own."""
        if not rows.num_rows:
            return
        if not within_pythons_times(rows):
            self.prepare(False)
        files.new += self._within(partial(_written, self._table, rows), rows.nbytes)

    def _planned(self, changes: Changes) -> list[tuple[int, list[FileScanTask]]]:
        """The files of each bucket that changes."""
        current = self._table.spec().spec_id
        found: dict[int, list[FileScanTask]] = {bucket: [] for bucket in changes.touched}
        for task in self._table.scan().plan_files():
            if task.file.spec_id != current:
                raise InvalidRequestError(
                    f"{self.name}: expected files of the current partitioning, found {task.file.file_path} of an"
                    " earlier one: rewrite the table's files, as Spark's rewrite_data_files does"
                )
            bucket = task.file.partition[self._bucket_field]
            if changes.forgotten:
                found.setdefault(bucket, [])
            if bucket in found:
                found[bucket].append(task)
        return sorted(found.items())


def _is_small(changes: Changes, bucket: int, tasks: Sequence[FileScanTask]) -> bool:
    """Whether so few rows of a bucket change that its files stay."""
    rows = sum(task.file.record_count for task in tasks)
    gone = sum(one.record_count for one in {one for task in tasks for one in task.delete_files})
    many = len(tasks) >= MOST_FILES or changes.forgotten
    return not many and rows >= FEW_ROWS and (gone + changes.of(bucket).num_rows) * MOST_DELETED <= rows


def _rows_of(table: Table, tasks: Sequence[FileScanTask], schema: pa.Schema) -> pa.Table:
    """The rows of files, without those that other programs deleted."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    if not tasks:
        return schema.empty_table()
    found = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(tasks)
    own = [schema.field(field.name) if field.name in schema.names else field for field in table.schema().as_arrow()]
    return found.cast(pa.schema(own))


def _written(table: Table, rows: pa.Table) -> list[DataFile]:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    return list(_dataframe_to_data_files(table.metadata, rows, table.io))


def _replace(table: Table, files: _Files, state: TableState) -> None:
    from pyiceberg.table.snapshots import Operation

    from kts.tables.position_deletes import Replacement

    with table.transaction() as change:
        kind = Operation.APPEND if change.table_metadata.current_snapshot_id is None else Operation.OVERWRITE
        with (snapshot := Replacement(kind, change, table.io, snapshot_properties=snapshot_properties(state))):
            snapshot.new_deletes, snapshot.old_deletes = files.new_deletes, files.old_deletes
            for file in files.old:
                snapshot.delete_data_file(file)
            for file in files.new:
                snapshot.append_data_file(file)
        change.set_properties(table_properties(state, change.table_metadata.current_snapshot_id))


def other_buckets(table: str, found: int, asked: int | None) -> InvalidRequestError:
    """The error of a run that asks for another number of buckets."""
    return InvalidRequestError(
        f"buckets: {table} was made with {found}, found {asked}: leave buckets out, or name another table"
    )
