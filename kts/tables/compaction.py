"""Compaction: the small files of an Iceberg table become files of a target size, and its offsets stay."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kts.errors import LogStorageError
from kts.tables.state import snapshot_properties, table_properties
from kts.tables.upkeep import SMALL, TARGET_BYTES, Upkeep

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask

COMMIT_BYTES = 4 << 30  # of files that are replaced: what an interrupted run loses at most
GROUP_BYTES = 32 << 20  # of rows in memory, which become a row group


@dataclass
class CompactedTable:
    """What was rewritten, or would be.

    Attributes
    ----------
    files_before, files_after : int
        The files that were read, and those that took their place.
    bytes_before, bytes_after : int
        Their sizes.
    records : int
        Their rows.
    commits : int
    passed_over : int
        Small files that stay: of another partitioning than the table has now.
    dropped : int
        Groups of files that another program replaced meanwhile.
    """

    table: str
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records: int = 0
    commits: int = 0
    passed_over: int = 0
    dropped: int = 0


@dataclass(eq=False)
class Bin:
    """Files of one partition that become one.

    Attributes
    ----------
    made : DataFile or None
        The file that takes their place; None if they have no rows.
    """

    tasks: list[FileScanTask] = field(default_factory=list)
    size: int = 0
    made: DataFile | None = None


def compact(
    table: Upkeep,
    *,
    target_bytes: int = TARGET_BYTES,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> CompactedTable:
    """Rewrite files below three quarters of the target into files of about its size, each partition for itself.

    Notes
    -----
    Readers see the same rows before and after. A commit replaces its files and has the table's offsets and topic ids,
    as that of a sync. If a sync commits first, the files that were written are committed on top of it, as long as those
    they replace are still there; if the compaction does, the sync adds its rows on top of that. In memory are the rows
    of one small file, and those of a row group. What a killed run wrote is left to ``orphans``.
    """
    done = CompactedTable(table.name)
    tasks, _ = table.planned()
    waiting: list[Bin] = []
    bins = list(_bins(table, tasks, target_bytes, done))
    for number, one in enumerate(bins):
        if dry_run:
            _count(done, one, 1, one.size)
            continue
        one.made = _written(table, one)
        waiting.append(one)
        if sum(one.size for one in waiting) >= COMMIT_BYTES or number == len(bins) - 1:
            for other in table.attempted(partial(_commit, table, waiting, done)):
                _count(done, other, int(other.made is not None), other.made.file_size_in_bytes if other.made else 0)
            waiting = []
        if progress is not None:
            progress(one.size)
    return done


def _count(done: CompactedTable, one: Bin, files: int, size: int) -> None:
    done.files_before += len(one.tasks)
    done.files_after += files
    done.bytes_before += one.size
    done.bytes_after += size
    done.records += sum(task.file.record_count for task in one.tasks)


def _bins(table: Upkeep, tasks: Sequence[FileScanTask], target_bytes: int, done: CompactedTable) -> Iterator[Bin]:
    """The small files of each partition by their offsets, in groups that make about one file of the target's size."""
    partitions: dict[str, list[FileScanTask]] = {}
    for task in tasks:
        if task.file.file_size_in_bytes >= SMALL * target_bytes:
            continue
        if task.file.spec_id != table.metadata.default_spec_id:
            done.passed_over += 1
            continue
        partitions.setdefault(repr(task.file.partition), []).append(task)
    for _, small in sorted(partitions.items()):
        one = Bin()
        for task in sorted(small, key=lambda task: table.bounds(task.file.lower_bounds).get("offset", 0)):
            if one.size + task.file.file_size_in_bytes > target_bytes and one.tasks:
                yield from [one] if len(one.tasks) > 1 else []
                one = Bin()
            one.tasks.append(task)
            one.size += task.file.file_size_in_bytes
        if len(one.tasks) > 1:
            yield one


def _written(table: Upkeep, one: Bin) -> DataFile | None:
    """A file with the rows of others, beside the first of them."""
    from pyiceberg.io.fileformat import FileFormatFactory
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

    metadata, first = table.metadata, one.tasks[0].file
    location = f"{posixpath.dirname(first.file_path)}/{uuid.uuid4()}-compacted.parquet"
    output = table.table.io.new_output(location)
    writer = FileFormatFactory.get(FileFormat.PARQUET).create_writer(output, metadata.schema(), metadata.properties)
    count = 0
    for rows in _groups(table, one):
        table.step(partial(writer.write, rows), rows.nbytes)
        count += rows.num_rows
    expected = sum(task.file.record_count for task in one.tasks)
    if count != expected and not any(task.delete_files for task in one.tasks):
        raise LogStorageError(
            f"{table.name}: expected {expected} rows in {len(one.tasks)} files, such as {first.file_path}, found"
            f" {count}: they were not replaced"
        )
    if not count:
        return None
    statistics = table.step(writer.close, one.size)
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=first.partition,
        file_size_in_bytes=table.step(lambda: len(output)),
        sort_order_id=None,
        spec_id=first.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _groups(table: Upkeep, one: Bin) -> Iterator[pa.Table]:
    """The rows of files, in groups that become row groups."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    fields = schema_to_pyarrow(table.metadata.schema(), include_field_ids=True)
    schema = pa.schema([_small(field) for field in fields])  # as a sync writes it
    waiting, size = list[pa.RecordBatch](), 0
    for task in one.tasks:
        for batch in table.step(partial(table.batches, task), task.file.file_size_in_bytes):
            if batch.num_rows:
                waiting.append(batch.cast(schema))
                size += batch.nbytes
            if size >= GROUP_BYTES:
                yield pa.Table.from_batches(waiting, schema=schema)
                waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema=schema)


def _small(field: pa.Field[Any]) -> pa.Field[Any]:
    """A field of types with 32-bit offsets."""
    import pyarrow as pa

    kind: Any = field.type
    if pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind):
        kind = pa.binary()
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_small(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_small(one) for one in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_small(kind.key_field), _small(kind.item_field))
    return field.with_type(kind)


def _commit(table: Upkeep, bins: Sequence[Bin], done: CompactedTable) -> list[Bin]:
    """Replace files by those that were made of them, in one commit; the groups that another program left as they were.

    The others are dropped, with the files that were made of them.
    """
    now = table.planned()[0]
    there = {task.file.file_path: _deletions(task) for task in now}

    def is_left(one: Bin) -> bool:
        same = all(there.get(task.file.file_path) == _deletions(task) for task in one.tasks)
        return same and one.tasks[0].file.spec_id == table.metadata.default_spec_id

    left = [one for one in bins if is_left(one)]
    if left:
        replaced = {task.file.file_path for one in left for task in one.tasks}
        needed = {path for task in now if task.file.file_path not in replaced for path in _deletions(task)}
        deletes = {file.file_path: file for one in left for task in one.tasks for file in task.delete_files}
        unused = [file for path, file in deletes.items() if path not in needed]
        table.prepare(True)
        table.step(partial(_replace, table, left, unused), table.manifest_bytes())
        done.commits += 1
    for one in bins:
        if one not in left:
            done.dropped += 1
            table.remove([] if one.made is None else [table.key(one.made.file_path)])
    return left


def _deletions(task: FileScanTask) -> frozenset[str]:
    """The files of deleted rows that apply to a file."""
    return frozenset(one.file_path for one in task.delete_files)


def _replace(table: Upkeep, bins: Sequence[Bin], unused: list[DataFile]) -> None:
    from pyiceberg.table.snapshots import Operation

    from kts.tables.position_deletes import Replacement

    state = table.state(table.offsets)
    with table.table.transaction() as change:
        told = {} if table.lost else snapshot_properties(state)
        replacing = Replacement(Operation.OVERWRITE, change, table.table.io, snapshot_properties=told)
        with replacing:
            replacing.old_deletes = unused
            for one in bins:
                for task in one.tasks:
                    replacing.delete_data_file(task.file)
                if one.made is not None:
                    replacing.append_data_file(one.made)
        if not table.lost:
            change.set_properties(table_properties(state, change.table_metadata.current_snapshot_id))
