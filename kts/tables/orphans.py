"""Orphans: files in the location of an Iceberg table that nothing uses, as a killed run leaves them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kts.errors import LogStorageError
from kts.tables.upkeep import There, Upkeep, path_of

YOUNGEST_MS = 3 * 86_400_000  # no file that is younger is an orphan: a commit may be about to name it


@dataclass
class Orphans:
    """What nothing uses.

    Attributes
    ----------
    files : list of There
        The orphans, with size and time.
    too_young : int
        Files that nothing uses yet.
    used : int
        Files in the location that something uses.
    removed : int
        How many orphans were removed.
    """

    table: str
    location: str
    files: list[There] = field(default_factory=list)
    too_young: int = 0
    used: int = 0
    removed: int = 0


def orphans(
    table: Upkeep,
    *,
    older_than_ms: int = YOUNGEST_MS,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Orphans:
    """Find and remove files in a table's location that nothing uses.

    Used are the files of every snapshot of every metadata version that the newest one still lists, whether or not the
    snapshot expired since, and what these versions name besides. Files that are younger than three days are never
    orphans.

    Raises
    ------
    ValueError
        ``older_than_ms`` is less than three days.
    LogStorageError
        What is used cannot be told: another table lies there, or a used file is not in the listing.
    """
    if older_than_ms < YOUNGEST_MS:
        raise ValueError("older_than: expected at least 3d: younger files may belong to a commit that is under way")
    _refuse_others(table)
    there = table.listing()  # first: what is committed later was written before or is too young
    table.refresh()
    used = {table.key(location) for location in _used(table, there)}
    _refuse_unlisted(table, there)
    unused = [one for path, one in sorted(there.items()) if path not in used]
    old = [one for one in unused if time.time() - one.modified_s > older_than_ms / 1000]
    found = Orphans(table.name, table.metadata.location, old, len(unused) - len(old), len(there) - len(unused))
    if not dry_run:
        found.removed = table.remove((one.path for one in old), progress)
    return found


def _used(table: Upkeep, there: dict[str, There]) -> Iterator[str]:
    """Every file that a metadata version which is still listed uses."""
    kept = {one.snapshot_id for one in table.metadata.snapshots}
    lists, manifests = set[str](), set[str]()
    for location, metadata in table.versions():
        yield location
        if metadata is None:
            continue
        yield from (entry.metadata_file for entry in metadata.metadata_log)
        yield from (one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics))
        for snapshot in metadata.snapshots:
            if snapshot.manifest_list in lists:
                continue
            lists.add(snapshot.manifest_list)
            yield snapshot.manifest_list

            def is_there(path: str, must: bool = snapshot.snapshot_id in kept) -> bool:
                return must or table.key(path) in there or table.is_there(path)  # else it expired, with its files

            if not is_there(snapshot.manifest_list):
                continue
            for manifest in table.manifests(snapshot):
                if manifest.manifest_path not in manifests and is_there(manifest.manifest_path):
                    yield from table.files_of(manifest, removed=True)
                manifests.add(manifest.manifest_path)
                yield manifest.manifest_path


def _refuse_unlisted(table: Upkeep, there: dict[str, There]) -> None:
    """Refuse to go on if the newest snapshot's files lie in the location, and the listing spells them otherwise."""
    root = path_of(table.key(table.metadata.location)) + "/"
    for task in table.planned()[0]:
        path = table.key(task.file.file_path)
        if path.startswith(root) and path not in there and table.is_there(task.file.file_path):
            young = time.time() - YOUNGEST_MS / 1000
            system, place = table.place(task.file.file_path)
            if (info := system.get_file_info(place)).mtime_ns and info.mtime_ns / 1e9 > young:
                continue  # it was committed since
            raise LogStorageError(
                f"{table.name}: expected {task.file.file_path} in the listing of {table.metadata.location}: what is"
                " used cannot be told; nothing was removed"
            )


def _refuse_others(table: Upkeep) -> None:
    """Refuse a location in which another table of the catalog lies, or that lies in another one's."""
    mine = path_of(table.key(table.metadata.location))
    for identifier, location in table.step(lambda: _locations(table)).items():
        other = path_of(table.key(location))
        if identifier != table.table.name() and (
            f"{other}/".startswith(f"{mine}/") or f"{mine}/".startswith(f"{other}/")
        ):
            raise LogStorageError(
                f"{table.name}: its location {table.metadata.location} and that of the table"
                f" {'.'.join(identifier)}, {location}, lie in each other: what is used cannot be told"
            )


def _locations(table: Upkeep) -> dict[tuple[str, ...], str]:
    """Where the tables of the catalog lie."""
    found: dict[tuple[str, ...], str] = {}
    waiting, seen = list(table.catalog.list_namespaces()), set[tuple[str, ...]]()
    while waiting:
        namespace = waiting.pop()
        if namespace in seen:
            continue
        seen.add(namespace)
        waiting += table.catalog.list_namespaces(namespace)
        for identifier in table.catalog.list_tables(namespace):
            found[identifier] = table.catalog.load_table(identifier).location()
    return found
