"""The last step of a commit of segments that were written aside: the renames that the commit checkpoint lists."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from kts.errors import LogStorageError
from kts.log.epochs import LeaderEpochs
from kts.segment.commits import FILE, PendingPartition, read_commits, write_commits
from kts.segment.names import parse_file_name
from kts.store import local, publishing
from kts.store.source import files


def finish_commit(directory: str) -> None:
    """Rename what the commit checkpoint of a log directory lists, then empty its list. The caller holds the lock.

    Raises
    ------
    LogStorageError
        A file is missing, or another program wrote to a partition since the commit began; the list stays.

    Notes
    -----
    It can be repeated after a crash at any point. Segments are renamed in the order of their offsets, and each log
    after its indexes, so that a broker that starts after a crash finds a log without holes.
    """
    commits = read_commits(directory)
    if not commits.pending:
        return
    _refuse_links(directory, commits.pending)
    publishing.make_directories(directory, [_folder(directory, one) for one in commits.pending])
    for one in commits.pending:
        _finish(directory, one)
    local.sync_directory(directory)
    write_commits(directory, replace(commits, pending=[]))


def _refuse_links(directory: str, pending: Sequence[PendingPartition]) -> None:
    """Move nothing through links: they lead out of the directory."""
    links = {entry.name for entry in files.list_directory(directory) if entry.is_symlink()}
    for one in pending:
        inside = links and {f"{one.topic}-{one.partition}", *(file.source for file in one.files)} & links
        if inside:
            raise LogStorageError(
                "expected a file or directory that a commit moves, found a link, which may lead out of the log"
                f" directory; replace it by what it stands for, or delete {FILE} to give up the commit",
                path=os.path.join(directory, min(inside)),
            )


def _folder(directory: str, one: PendingPartition) -> str:
    return os.path.join(directory, f"{one.topic}-{one.partition}")


def _finish(directory: str, one: PendingPartition) -> None:
    folder = _folder(directory, one)
    waiting = {file.source for file in one.files if files.exists(os.path.join(directory, file.source))}
    if waiting:
        _check_unchanged(directory, folder, one, waiting)
    for file in one.files:
        if file.source in waiting:
            local.rename(os.path.join(directory, file.source), os.path.join(folder, file.target))
        elif not files.exists(os.path.join(folder, file.target)):
            lost = os.path.join(directory, file.source)
            raise LogStorageError(f"expected a segment that joins {folder} as {file.target}, found no file", path=lost)
    epochs = LeaderEpochs(folder)
    if one.leader_epoch > epochs.latest:  # else it is known; a broker that has started meanwhile has a later one
        epochs.assign(one.leader_epoch, one.first_offset)
    local.sync_directory(folder)


def _check_unchanged(directory: str, folder: str, one: PendingPartition, waiting: set[str]) -> None:
    """Refuse to go on if the partition's last segment is neither the one before the commit nor one of the commit's."""
    names = (parse_file_name(name) for name in files.names_in(folder))
    bases = [name.base_offset for name in names if name and name.suffix == ".log" and not name.transition]
    if not bases:
        if one.is_new:
            return
        found = "no segment"
    else:
        last = max(bases), files.size_of(os.path.join(folder, f"{max(bases):020d}.log"))
        moved = [
            (int(f.target[:20]), f.size) for f in one.files if f.target.endswith(".log") and f.source not in waiting
        ]
        if last in moved or [*last] == one.last_segment:
            return
        found = f"the last segment {last[0]:020d}.log with {last[1]} bytes"
    raise LogStorageError(
        f"expected {folder} as the commit left it, found {found}: a broker or another program wrote to it before the "
        f"commit was complete. The records that wait lie in {len(waiting)} files, listed in "
        f"{os.path.join(directory, FILE)}; restore the partition from before, or delete that file to give them up",
        path=folder,
    )
