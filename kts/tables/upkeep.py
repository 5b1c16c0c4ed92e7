"""An Iceberg table as its upkeep sees it: the files that it uses, those that are there, and what commits replace."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kts.dataset.options import Path
from kts.remote.buckets import TIME_LIMIT_S
from kts.store.protocol import Result
from kts.tables.iceberg import IcebergTable, existing, metadata_of
from kts.tables.state import OFFSETS, attempted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

TARGET_MIB = 128  # of a file
TARGET_BYTES = TARGET_MIB << 20
PLACE = ("topic", "partition", "offset")  # where a row is from
SMALL = 0.75  # of the target: files below it are rewritten, as by Spark's rewrite_data_files


class There(NamedTuple):
    """A file that lies in a table's location."""

    path: str
    bytes: int
    modified_s: float


class Upkeep(IcebergTable):
    """A table that is there, with or without offsets.

    Parameters
    ----------
    table : str
        Catalog, namespace and name, as ``lake.db.orders``.
    catalog : path
        The SQLite file of its catalog.

    Raises
    ------
    FileNotFoundError
        There is no such catalog or table.
    LogStorageError
        It cannot be read.
    """

    def __init__(self, table: str, catalog: Path, seconds: float = TIME_LIMIT_S) -> None:
        self.catalog, identifier = existing(table, catalog)
        super().__init__(self.catalog, identifier, None, stated=True, seconds=seconds)

    @property
    def table(self) -> Table:
        """What pyiceberg knows of it."""
        return self._table

    @property
    def metadata(self) -> TableMetadata:
        """Its metadata, as it was read last."""
        return self._table.metadata

    def step(self, work: Callable[[], Result], sent: int = 0) -> Result:
        """The result of one step with the libraries: none takes longer than the limit."""
        return self._within(work, sent)

    def refresh(self) -> None:
        """Read the metadata and the offsets again."""
        self._within(self._table.refresh)
        self.learn(self._find, stated=True)

    def attempted(self, commit: Callable[[], Result]) -> Result:
        """The result of a function that commits; again, on newer metadata, if another program committed first."""
        from pyiceberg.exceptions import CommitFailedException

        return attempted(self.name, commit, CommitFailedException, self.refresh)

    # --- what it uses -----------------------------------------------------------------------------

    def planned(self) -> tuple[list[FileScanTask], float]:
        """The files of the newest snapshot, and the seconds that a reader needs to find them."""
        began = time.monotonic()
        if self.metadata.current_snapshot_id is None:
            return [], 0.0
        tasks = self._within(lambda: list(self._table.scan().plan_files()), self.manifest_bytes())
        return tasks, time.monotonic() - began

    def batches(self, task: FileScanTask, columns: Sequence[str] | None = None) -> list[pa.RecordBatch]:
        """The rows of a file without those that were deleted, in the columns of now; to be called in a step."""
        from pyiceberg.io.pyarrow import ArrowScan

        scan = self._table.scan(selected_fields=("*",) if columns is None else tuple(columns))
        reader = ArrowScan(self.metadata, self._table.io, scan.projection(), scan.row_filter)
        return list(reader.to_record_batches([task]))

    def bounds(self, stated: Mapping[int, bytes] | None) -> dict[str, Any]:
        """The bounds of the columns that say where a row is from, as far as a file states them."""
        from pyiceberg.conversions import from_bytes as value_of

        found, schema = dict[str, Any](), self.metadata.schema()
        for name in PLACE:
            if name in schema.column_names:
                one: Any = schema.find_field(name)
                if (data := (stated or {}).get(one.field_id)) is not None:
                    found[name] = value_of(one.field_type, data)
        return found

    def manifest_bytes(self) -> int:
        """The size of the manifests of the newest snapshot."""
        current = self.metadata.current_snapshot()
        return 0 if current is None else sum(one.manifest_length for one in self.manifests(current))

    def manifests(self, snapshot: Snapshot) -> list[ManifestFile]:
        """The manifests of a snapshot."""
        return self._within(partial(_manifests, snapshot, self._table))

    def files_of(self, manifest: ManifestFile, *, removed: bool = False) -> list[str]:
        """The files that a manifest lists; with ``removed`` also those that it says are gone."""
        return self._within(partial(_listed_by, manifest, self._table, removed), manifest.manifest_length)

    def versions(self) -> Iterator[tuple[str, TableMetadata | None]]:
        """The newest metadata file and the earlier ones that it lists, each with what it says; None if it is gone."""
        yield self._table.metadata_location, self.metadata
        for entry in reversed(self.metadata.metadata_log):
            if self.is_there(entry.metadata_file):
                yield entry.metadata_file, self._within(partial(metadata_of, self._table, entry.metadata_file))
            else:
                yield entry.metadata_file, None

    def lasting(self) -> set[int]:
        """The snapshots that must stay: those of branches and tags, and from `main` back to the newest with offsets."""
        snapshots = {one.snapshot_id: one for one in self.metadata.snapshots}
        kept = {ref.snapshot_id for ref in self.metadata.refs.values()}
        at, chain = self.metadata.current_snapshot_id, set[int]()
        while at is not None and at in snapshots:
            chain.add(at)
            summary = snapshots[at].summary
            if summary is not None and OFFSETS in summary.additional_properties:
                return kept | chain
            at = snapshots[at].parent_snapshot_id
        return kept

    # --- what is there ----------------------------------------------------------------------------

    def place(self, location: str) -> tuple[FileSystem, str]:
        """The file system of a location, and its path there."""
        io: Any = self._table.io
        scheme, host, path = io.parse_location(location, io.properties)
        return io.fs_by_scheme(scheme, host), path_of(path)

    def key(self, location: str) -> str:
        """A location in the one spelling that ``listing`` has."""
        return self.place(location)[1]

    def listing(self) -> dict[str, There]:
        """The files in the table's location, by their paths."""
        return self._within(partial(_listing, *self.place(self.metadata.location)), len(self.metadata.snapshots) << 20)

    def is_there(self, location: str) -> bool:
        """Whether a file is there, wherever it lies."""
        return self._within(lambda: self._table.io.new_input(location).exists())

    def remove(self, paths: Iterable[str], progress: Callable[[int], None] | None = None) -> int:
        """Remove files of the table's file system; the number of those that were there."""
        system, _ = self.place(self.metadata.location)
        count = 0
        for path in paths:
            count += self._within(partial(_removed, system, path))
            if progress is not None:
                progress(1)
        return count


def path_of(path: str) -> str:
    """A path in one spelling."""
    found = posixpath.normpath(path)
    return f"/{found.lstrip('/')}" if found.startswith("/") else found


def _manifests(snapshot: Snapshot, table: Table) -> list[ManifestFile]:
    return list(snapshot.manifests(table.io))


def _listed_by(manifest: ManifestFile, table: Table, removed: bool) -> list[str]:
    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=not removed)
    return [entry.data_file.file_path for entry in entries]


def _listing(system: FileSystem, path: str) -> dict[str, There]:
    from pyarrow.fs import FileSelector, FileType

    found = {}
    for one in system.get_file_info(FileSelector(path, allow_not_found=True, recursive=True)):
        if one.type == FileType.File:
            there = There(path_of(one.path), one.size, one.mtime_ns / 1e9 if one.mtime_ns else time.time())
            found[there.path] = there
    return found


def _removed(system: FileSystem, path: str) -> int:
    try:
        system.delete_file(path)
    except FileNotFoundError:
        return 0
    return 1
