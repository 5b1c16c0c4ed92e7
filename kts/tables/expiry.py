"""Expiry: the older snapshots of an Iceberg table go, with the files that only they use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from kts.tables.upkeep import Upkeep
from kts.times import wall_clock

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

OLDER_THAN_MS = 5 * 86_400_000  # as Iceberg's own default
KEEP = 1


@dataclass
class ExpiredSnapshots:
    """What went, or would go.

    Attributes
    ----------
    snapshots : list of int
        Their ids, oldest first.
    kept : int
        How many snapshots stay.
    files : list of str
        The files that only they use: data, manifests and lists of manifests.
    removed : int
        How many of these were removed.
    """

    table: str
    snapshots: list[int] = field(default_factory=list)
    kept: int = 0
    files: list[str] = field(default_factory=list)
    removed: int = 0


def expire(
    table: Upkeep,
    *,
    older_than_ms: int = OLDER_THAN_MS,
    keep: int = KEEP,
    dry_run: bool = False,
    now_ms: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ExpiredSnapshots:
    """Expire the snapshots that are older, but the newest ones of `main`, those of branches and tags, and the one that
    has the table's offsets.

    Parameters
    ----------
    keep : int
        How many of the newest snapshots that `main` descends from stay, whatever their age.

    Notes
    -----
    A commit that changes a branch or a tag meanwhile, or makes one, is not undone: the choice is made again (a REST
    catalog knows the changed ones only). Files go after the commit; a run that is killed before leaves them to
    ``orphans``.
    """
    now = wall_clock() if now_ms is None else now_ms

    def attempt() -> ExpiredSnapshots:
        chosen = _chosen(table, now - older_than_ms, keep)
        ids = [one.snapshot_id for one in chosen]
        found = ExpiredSnapshots(table.name, ids, len(table.metadata.snapshots) - len(ids), _only_theirs(table, {*ids}))
        if ids and not dry_run:
            table.step(partial(_commit, table, ids))
        return found

    found = table.attempted(attempt)
    if found.snapshots and not dry_run:
        found.removed = table.remove((table.key(one) for one in found.files), progress)
        table.refresh()
    return found


def _chosen(table: Upkeep, before_ms: int, keep: int) -> list[Snapshot]:
    snapshots = {one.snapshot_id: one for one in table.metadata.snapshots}
    kept, at = table.lasting(), table.metadata.current_snapshot_id
    for _ in range(keep):
        if at is None or at not in snapshots:
            break
        kept.add(at)
        at = snapshots[at].parent_snapshot_id
    old = [one for one in snapshots.values() if one.timestamp_ms < before_ms and one.snapshot_id not in kept]
    return sorted(old, key=lambda one: one.timestamp_ms)


def _only_theirs(table: Upkeep, ids: set[int]) -> list[str]:
    """The files that no other snapshot uses."""
    theirs: dict[str, ManifestFile] = {}
    others: dict[str, ManifestFile] = {}
    lists: list[str] = []
    for snapshot in table.metadata.snapshots:
        is_theirs = snapshot.snapshot_id in ids
        lists += [snapshot.manifest_list] if is_theirs else []
        (theirs if is_theirs else others).update({one.manifest_path: one for one in table.manifests(snapshot)})
    gone = {path: one for path, one in theirs.items() if path not in others}
    files = {file for one in gone.values() for file in table.files_of(one, removed=True)}
    for manifest in others.values() if files else ():
        files.difference_update(table.files_of(manifest))
    return [*sorted(files), *sorted(gone), *lists]


def _commit(table: Upkeep, ids: list[int]) -> None:
    from pyiceberg.catalog import MetastoreCatalog
    from pyiceberg.table import update

    make: Any = update  # whose types do not know their own arguments
    required = requirements(table.metadata, checked_here=isinstance(table.catalog, MetastoreCatalog))
    table.catalog.commit_table(table.table, required, (make.RemoveSnapshotsUpdate(snapshot_ids=ids),))


def requirements(metadata: TableMetadata, *, checked_here: bool) -> tuple[Any, ...]:
    """What must be as it was read: each branch and tag and, where this process checks it and no server, no new one."""
    from pyiceberg.table import update

    make: Any = update
    refs = [make.AssertRefSnapshotId(ref=name, snapshot_id=at) for name, at in _refs_of(metadata).items()]
    new = [SameRefs(metadata)] if checked_here else []
    return make.AssertTableUUID(uuid=metadata.table_uuid), *refs, *new


class SameRefs:
    """The requirement of a commit that all branches and tags are as they were read: a new one keeps its snapshot."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._refs = _refs_of(metadata)

    def validate(self, base_metadata: TableMetadata) -> None:
        """Refuse other metadata; the catalog calls it."""
        from pyiceberg.exceptions import CommitFailedException

        if _refs_of(base_metadata) != self._refs:
            raise CommitFailedException("a branch or a tag has changed")


def _refs_of(metadata: TableMetadata) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in metadata.refs.items()}
