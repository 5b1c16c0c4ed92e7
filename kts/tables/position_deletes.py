"""Position deletes of an Iceberg table: rows go without a rewrite of the files that have them.

pyiceberg reads them and does not write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _read_deletes
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyiceberg.table import Table

FIELD_ID = b"PARQUET:field_id"
SCHEMA = pa.schema(  # the ids are Iceberg's
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={FIELD_ID: b"2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: b"2147483545"}),
    ]
)


def columns_of(table: Table, file: DataFile, names: Sequence[str]) -> pa.Table:
    """Columns of a data file as the table calls them now, of all rows in their order: those that are deleted, too."""
    scan = ArrowScan(table.metadata, table.io, table.schema().select(*names), AlwaysTrue())
    return scan.to_table([FileScanTask(file)]).select(list(names))


def deleted_rows(table: Table, task: FileScanTask) -> npt.NDArray[np.int64]:
    """The positions of rows of a data file that are deleted already."""
    found = [_read_deletes(table.io, one).get(task.file.file_path) for one in task.delete_files]
    return np.concatenate([np.empty(0, np.int64), *(np.asarray(one, np.int64) for one in found if one is not None)])


def write_deletes(table: Table, task: FileScanTask, positions: Iterable[tuple[str, npt.NDArray[np.int64]]]) -> DataFile:
    """Write a file that deletes rows of data files.

    Parameters
    ----------
    task : FileScanTask
        One of the partition of the data files.
    positions : iterable of (path, positions)
    """
    ordered = [(path, np.sort(found)) for path, found in sorted(positions, key=lambda one: one[0])]
    paths = pa.concat_arrays([pa.repeat(pa.scalar(path), len(found)).cast(pa.string()) for path, found in ordered])
    rows = pa.table([paths, pa.array(np.concatenate([found for _, found in ordered]))], schema=SCHEMA)
    location = table.location_provider().new_data_location(f"{uuid4()}-deletes.parquet")
    output = table.io.new_output(location)
    with output.create() as stream:
        pq.write_table(rows, stream, compression="zstd")
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=task.file.partition,
        record_count=rows.num_rows,
        file_size_in_bytes=len(output),
        spec_id=task.file.spec_id,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
    )


class _DeleteManifest(ManifestWriterV2):
    """A manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class Replacement(_OverwriteFiles):
    """A snapshot that adds and removes data files, and delete files, too.

    Attributes
    ----------
    new_deletes, old_deletes : list of DataFile
        The delete files that come, and those that go with the data files that they are about.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.new_deletes = list[DataFile]()
        self.old_deletes = list[DataFile]()

    def _existing_manifests(self) -> list[ManifestFile]:
        old = {file.file_path for file in self.old_deletes}
        return [
            left
            for manifest in super()._existing_manifests()
            for left in (self._without(manifest, old) if manifest.content == ManifestContent.DELETES else [manifest])
        ]

    def _without(self, manifest: ManifestFile, old: set[str]) -> Iterator[ManifestFile]:
        """A manifest of delete files without some of them."""
        entries = self.fetch_manifest_entry(manifest)
        kept = [one for one in entries if one.data_file.file_path not in old]
        if len(kept) == len(entries):
            yield manifest
        elif kept:
            yield self._manifest(manifest.partition_spec_id, lambda writer: [writer.existing(one) for one in kept])

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        if not self.new_deletes:
            return manifests
        added = [
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file)
            for file in self.new_deletes
        ]
        spec = self._transaction.table_metadata.default_spec_id
        return [*manifests, self._manifest(spec, lambda writer: [writer.add(one) for one in added])]

    def _manifest(self, spec: int, fill: Callable[[ManifestWriter], Any]) -> ManifestFile:
        output = self.new_manifest_output()
        with _DeleteManifest(self.spec(spec), self.schema(), output, self._snapshot_id, self._compression) as writer:
            fill(writer)
        return writer.to_manifest_file()

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        with self._of_all_files():
            return super()._summary(snapshot_properties or {})

    @contextmanager
    def _of_all_files(self) -> Iterator[None]:
        """What is added and removed is counted from these lists: delete files as well."""
        added, removed = self._added_data_files, self._deleted_data_files
        self._added_data_files = [*added, *self.new_deletes]
        self._deleted_data_files = {*removed, *self.old_deletes}
        try:
            yield
        finally:
            self._added_data_files, self._deleted_data_files = added, removed
