"""Keeps a table equal to the latest state of topics: of each key the newest record, a run in one commit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kts.dataset import scan as scanning
from kts.dataset.increments import Offsets, Reach, TopicIds, name_of
from kts.dataset.latest import KEYS, LatestState
from kts.dataset.partition import PartitionLog
from kts.errors import LogStorageError
from kts.model import TopicPartition
from kts.segment.rereading import settled, warn
from kts.tables.rows import DAY, fitted, with_times_within
from kts.tables.run import Added, Bounds, Synced, SyncSource, Target, shaped
from kts.tables.state import Known

KEY = ("topic", "partition", "key")
GONE = "gone"  # of a change: whether its key has no record any more
SPOOL_BYTES = 96 << 20  # of changes in memory; more of them go to files


class KeyedTable(Target, Protocol):
    """A table with a row for each key, in buckets by key."""

    def buckets(self, keys: pa.Array) -> pa.Array:
        """The bucket of each key."""

    def change(self, changes: Changes, offsets: Offsets) -> Changed:
        """Replace rows and set the offsets, both or, after any crash, none; errors as for ``append``."""


@dataclass
class Changed:
    """What a commit did to a table.

    Attributes
    ----------
    added, removed : int
        How many rows came and went: a key with a new record counts in both.
    without_timestamp : int
        How many of those that came have no ``timestamp``.
    """

    added: int = 0
    removed: int = 0
    without_timestamp: int = 0


def state_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a table of the latest state, of those of a table of all records."""
    return schema.remove(schema.get_field_index(DAY))


class Changes:
    """The newest records of keys that changed, by bucket: in memory, and above a bound in files of a directory.

    Parameters
    ----------
    bucket_of : callable
        The buckets of keys.
    schema : pyarrow.Schema
        The columns of the table.

    Attributes
    ----------
    forgotten : set of TopicPartition
        Partitions whose rows in the table are of another log: all of them go.
    """

    def __init__(self, bucket_of: Callable[[pa.Array], pa.Array], schema: pa.Schema) -> None:
        self.schema = schema
        self.forgotten = set[TopicPartition]()
        self._bucket_of = bucket_of
        self._whole: list[tuple[pa.Table, np.ndarray]] = []  # each with the buckets of its rows
        self._waiting: dict[int, list[pa.Table]] = {}
        self._waiting_bytes = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: dict[int, list[str]] = {}
        self._seen: dict[TopicPartition, int] = {}

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            self._folder.cleanup()

    def begin(self, name: TopicPartition) -> None:
        """From here on the changes of a partition come, once more where it was read again."""
        self._seen[name] = self._seen.get(name, 0) + 1

    def add(self, rows: pa.RecordBatch, gone: pa.RecordBatch) -> None:
        """Add rows, and records whose keys have no row any more."""
        nothing = [
            gone.column(field.name).cast(field.type)
            if field.name in (*KEY, "offset")
            else pa.nulls(gone.num_rows, field.type)
            for field in self.schema
        ]
        whole = [fitted(rows, self.schema), pa.RecordBatch.from_arrays(nothing, schema=self.schema)]
        mark = pa.array(np.arange(rows.num_rows + gone.num_rows) >= rows.num_rows)
        table = pa.Table.from_batches(whole).append_column(GONE, mark)
        self._whole.append((table, np.asarray(self._bucket_of(table.column("key").combine_chunks()))))
        self._waiting_bytes += table.nbytes
        if self._waiting_bytes >= SPOOL_BYTES:
            self._write()

    def _split(self) -> None:
        """Divide what came by buckets: all at once, because a piece of a few rows takes more memory than they do."""
        if not self._whole:
            return
        table = pa.concat_tables([rows for rows, _ in self._whole])
        bucket = np.concatenate([of_rows for _, of_rows in self._whole])
        self._whole = []
        order = np.argsort(bucket, kind="stable")
        table, bucket = table.take(pa.array(order)), bucket[order]
        edges = np.flatnonzero(np.diff(bucket, prepend=-1, append=-1))
        for first, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            self._waiting.setdefault(int(bucket[first]), []).append(table.slice(first, end - first))

    def _write(self) -> None:
        """Move what is in memory to files."""
        self._split()
        try:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="kts-latest-")
            for bucket, tables in self._waiting.items():
                files = self._files.setdefault(bucket, [])
                files.append(os.path.join(self._folder.name, f"{bucket}-{len(files)}.arrow"))
                with pa.OSFile(files[-1], "wb") as sink, pa.ipc.new_stream(sink, tables[0].schema) as stream:
                    for table in tables:
                        stream.write_table(table)
        except OSError as error:
            raise LogStorageError(f"temporary files in {tempfile.gettempdir()}: {error}") from error
        self._waiting, self._waiting_bytes = {}, 0

    @property
    def is_empty(self) -> bool:
        """True if nothing changes."""
        return not (self.touched or self.forgotten)

    @property
    def touched(self) -> set[int]:
        """The buckets that have changes, but for rows that are forgotten: these may be in all."""
        self._split()
        return {*self._waiting, *self._files}

    def of(self, bucket: int) -> pa.Table:
        """The changes of a bucket, each key once."""
        self._split()
        found = list[pa.Table]()
        for path in self._files.get(bucket, ()):
            with pa.OSFile(path, "rb") as source, pa.ipc.open_stream(source) as stream:
                found.append(stream.read_all())
        found += self._waiting.get(bucket, [])
        if not found:
            return self.schema.append(pa.field(GONE, pa.bool_())).empty_table()
        table = pa.concat_tables(found)
        return _newest(table) if any(times > 1 for times in self._seen.values()) else table

    def applied(self, bucket: int, rows: pa.Table, done: Changed) -> pa.Table | None:
        """The rows of a bucket after its changes, which ``done`` counts; None if there are none.

        Parameters
        ----------
        rows : pyarrow.Table
            Those that the table has: the columns of ``schema`` and others, which are null in new rows.
        """
        changes = self.of(bucket)
        left = ~(among(rows, changes) | self._of_forgotten(rows))
        new, removed = self.live(changes, done), rows.num_rows - int(left.sum())
        done.removed += removed
        if not removed and not new.num_rows:
            return None
        return pa.concat_tables([rows.filter(pa.array(left)), new], promote_options="default").combine_chunks()

    def live(self, changes: pa.Table, done: Changed) -> pa.Table:
        """The rows that changes of a bucket add, which ``done`` counts."""
        new = changes.filter(pc.invert(changes[GONE])).drop_columns([GONE])
        done.added += new.num_rows
        done.without_timestamp += new["timestamp"].null_count
        return new

    def _of_forgotten(self, rows: pa.Table) -> np.ndarray:
        """Which rows are of partitions that are forgotten."""
        found = np.zeros(rows.num_rows, bool)
        for name in self.forgotten:
            of_it = pc.and_(pc.equal(rows["topic"], name.topic), pc.equal(rows["partition"], name.partition))
            found |= np.asarray(of_it)
        return found


def among(rows: pa.Table, changes: pa.Table) -> np.ndarray:
    """Which rows have a key that changed."""
    found = np.zeros(rows.num_rows, bool)
    if rows.num_rows and changes.num_rows:
        numbered = rows.select(list(KEY)).append_column("row", pa.array(np.arange(rows.num_rows)))
        joined = numbered.join(changes.select(list(KEY)), keys=list(KEY), join_type="left semi")
        found[np.asarray(joined["row"])] = True
    return found


def _newest(changes: pa.Table) -> pa.Table:
    """Of each key the change with the greatest offset."""
    keys = changes.select([*KEY, "offset"]).append_column("row", pa.array(np.arange(changes.num_rows)))
    ordered = keys.sort_by([("offset", "ascending")])
    last = ordered.group_by(list(KEY), use_threads=False).aggregate([("row", "last")])["row_last"]
    return changes.take(last.combine_chunks().sort())


class _StateBounds(Bounds):
    """Which offsets are new to tables of the latest state, and which partitions begin anew.

    A partition that was truncated or created again is read from its beginning: rows that its log no longer has go.
    """

    def __init__(self, source: SyncSource, tables: Sequence[Target | Known]) -> None:
        self.forgotten = set[TopicPartition]()
        super().__init__(source, tables)

    def _known(self, table: Target | Known, topic_ids: TopicIds) -> Offsets:
        known = super()._known(table, topic_ids)
        self.forgotten |= table.offsets.keys() - known.keys()
        return known

    def _begin(self, known: int | None, name: TopicPartition, reach: Reach) -> int:
        begin = super()._begin(known, name, reach)
        if known is not None and known > reach.end:
            self.forgotten.add(name)
            return reach.first
        return begin

    def offsets(self, number: int) -> Offsets:
        """Those of a table once it has everything that was reached."""
        begun = {name: offset for name, offset in self.known[number].items() if name not in self.forgotten}
        begins = self.begins[number]
        return begun | {name: max(offset, begins[name]) for name, offset in self.reached.items()}


class StateRun:
    """One run: what is new in each partition, its latest state alone, and one commit of each table at the end."""

    def __init__(
        self, source: SyncSource, targets: Sequence[KeyedTable], progress: Callable[[int], None] | None
    ) -> None:
        self.source, self.targets, self.progress = source, targets, progress
        self.bounds = _StateBounds(source, targets)
        self.changes = [Changes(target.buckets, target.schema) for target in targets]
        self.keyless = 0

    def finish(self) -> Synced:
        """Read everything that is new and commit it."""
        try:
            for log in self.source.logs:
                settled(partial(self._read, log), goes_on=True)
            if self.keyless:
                warn(
                    f"records without a key, which are of no row of a table of the latest state: {self.keyless:,}", None
                )
            added = [self._commit(number) for number in range(len(self.targets))]
        finally:
            for changes in self.changes:
                changes.close()
        return Synced(added, self.bounds.held_back)

    def _read(self, log: PartitionLog) -> None:
        """The latest state of the new records of a partition."""
        log, name = log.listed(skip_damage=self.source.options.skip_damage), name_of(log)
        begin, end = self.bounds.of(log)
        for changes in self.changes:
            changes.begin(name)
        if begin >= end:
            return
        key = (name.topic, name.partition)
        options = replace(self.source.options, starting_offsets={key: begin}, ending_offsets={key: end})
        keys = partial(scanning.records, [log], deleted=lambda path, source: nullcontext())
        state = LatestState(self._counted(keys(replace(options, columns=KEYS))), log.path, tombstones=True)
        for batch in keys(options, end_offset=state.end_offset):
            self._take(state.rows(batch))
        state.check_found()
        if self.progress is not None:
            self.progress(end - begin)
        self.bounds.reached[name] = end

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.keyless += batch.column("key").null_count
            yield batch

    def _take(self, batch: pa.RecordBatch) -> None:
        """Records of the state: each is a row of one table at most, and its key has no row in the others."""
        live = batch.filter(pc.is_valid(batch.column("value")))
        tables = shaped(live, self.source.plausible, self.source.decoder)
        for changes, target, rows in zip(self.changes, self.targets, tables, strict=True):
            rows = rows.drop_columns([DAY])
            if target.times_ms is not None:
                rows = with_times_within(rows, *target.times_ms)
            there = pc.is_in(batch.column("offset"), value_set=rows.column("offset"))
            changes.add(rows, batch.filter(pc.invert(there)))

    def _commit(self, number: int) -> Added:
        target, changes, offsets = self.targets[number], self.changes[number], self.bounds.offsets(number)
        changes.forgotten = self.bounds.forgotten
        added = Added(target.name, offsets=offsets, created=target.created, removed=0)
        if changes.is_empty and offsets == target.offsets and target.kept:
            return added
        done = target.change(changes, offsets)
        return replace(
            added, records=done.added, removed=done.removed, without_timestamp=done.without_timestamp, commits=1
        )
