"""Files by their path, wherever they lie: in a store, compressed, or plain on this machine."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from operator import attrgetter

from kts.errors import CorruptRecordError, LogStorageError
from kts.store import expanded, local
from kts.store.addresses import scheme_of, store_of, writable_store_of
from kts.store.expanded import ExpandedFile, compression_of_log
from kts.store.local import File, RereadFile, storage_errors
from kts.store.protocol import ByteRange, DirectoryEntry, Item, Readable, Result, Status, Store


def open_file(path: str, *, ahead: tuple[int, int | None] | None = None, sound_part: bool = False) -> Readable:
    """A file for reading at positions; a compressed log as if it were plain.

    Parameters
    ----------
    ahead : (int, int or None), optional
        The bytes that will be read in order: a store fetches them ahead. Nothing changes for a file of this machine.
    sound_part : bool
        A damaged compressed log ends at its damage; otherwise its ``size`` raises CorruptRecordError.
    """
    if compression_of_log(path) is not None:
        return ExpandedFile(path, identity(path), sound_part)
    store = store_of(path)
    return File(path) if store is None else store.file(path, ahead)


def open_reread(path: str, *, sound_part: bool = False) -> Readable:
    """A file for a reader that asks for the same or nearby bytes again: it caches what it read last."""
    if compression_of_log(path) is not None:
        return ExpandedFile(path, identity(path), sound_part)
    store = store_of(path)
    return RereadFile(path) if store is None else store.file(path, None)


def in_order(ranges: Sequence[ByteRange]) -> Iterator[Readable | None]:
    """Files that will be read in order, each to the end of its range: a store fetches across their borders.

    None for a file of this machine and for a compressed log, which its reader opens itself. A file is closed when the
    next one is asked for.
    """
    for store, group in groupby(ranges, lambda one: None if compression_of_log(one.path) else store_of(one.path)):
        if store is None:
            yield from (None for _ in group)
        else:
            yield from store.files(list(group))


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], path: str) -> Iterator[Result]:
    """The results of work on several files beside a path, in order; many wait at once if the path is a store's."""
    store = store_of(path) if len(items) > 1 else None
    return map(work, items) if store is None else store.side_by_side(work, items, path)


def read_bytes(path: str) -> bytes:
    """A whole file at its current length."""
    with open_file(path) as file:
        return file.read(0, file.size())


def read_if_there(path: str) -> bytes | None:
    """A whole file; None if there is none. A link whose file is gone is an error: it says that there was one."""
    try:
        return read_bytes(path)
    except LogStorageError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        if store_of(path) is None and os.path.islink(path):
            raise LogStorageError("expected a regular file, found a link that leads nowhere", path=path) from error
    return None


def read_small(paths: Iterable[str], most: int) -> list[bytes | None]:
    """Whole files of at most ``most`` bytes; None for larger ones, and for compressed logs."""
    paths = list(paths)
    if any(map(compression_of_log, paths)):
        plain_ones = read_small([path for path in paths if compression_of_log(path) is None], most)[::-1]
        return [plain_ones.pop() if compression_of_log(path) is None else None for path in paths]
    if paths and store_of(paths[0]) is not None:
        return list(side_by_side(lambda path: read_bytes(path) if size_of(path) <= most else None, paths, paths[0]))
    return [local.read_small(path, most) for path in paths]


def read_used(path: str, entry_bytes: int) -> bytes:
    """An index file without the zeros of its preallocated part: an open one is 10 MiB, most of it unused."""
    with open_file(path) as file:
        return _used(file, file.size(), entry_bytes)


def read_index(path: str, entry_bytes: int) -> bytes:
    """As ``read_used``; empty if the file is missing or does not consist of whole entries."""
    try:
        file = open_file(path)
    except LogStorageError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return b""
    with file:
        size = file.size()
        return b"" if size % entry_bytes else _used(file, size, entry_bytes)


def _used(file: Readable, size: int, entry_bytes: int) -> bytes:
    count = 4096 * entry_bytes
    while count < size:
        last = file.read(count - entry_bytes, entry_bytes)
        if not any(last):
            break
        count *= 4
    return file.read(0, min(count, size))


def damage_of(path: str) -> CorruptRecordError | None:
    """Why the rest of a compressed log cannot be read; None if it is sound or not compressed."""
    return None if compression_of_log(path) is None else expanded.damage_of(path, identity(path))


def size_of(path: str, *, sound_part: bool = False) -> int:
    """Length now, in bytes; of a store's file, as the last listing of its directory had it.

    The length of a compressed log is that of the log in it; for ``sound_part`` see ``open_file``.
    """
    if compression_of_log(path) is not None:
        return expanded.size_of(path, identity(path), sound_part)
    if (store := store_of(path)) is not None:
        return _status(store, path).size
    return local.size_of(path)


def modified_ms(path: str) -> int:
    """Modification time in ms since the epoch, rounded down as in Java."""
    if (store := store_of(path)) is not None:
        return _status(store, path).modified_ns // 1_000_000
    return local.modified_ms(path)


def identity(path: str) -> tuple[int, ...] | None:
    """A value that changes when the file is replaced or written; None if there is no file.

    It ends with the size and, of a local file, the time of the last change, which programs cannot set.
    """
    if (store := store_of(path)) is not None:
        found = store.status(path)
        return None if found is None else found[:2]
    return local.identity(path)


def _status(store: Store, path: str) -> Status:
    """Size and time of a file in a store, which must be there."""
    found = store.status(path)
    if found is None:
        raise LogStorageError("there is no such file", path=path, errno=errno.ENOENT)
    if found.is_directory:
        raise LogStorageError("expected a regular file, found a directory", path=path)
    return found


def list_directory(path: str) -> list[DirectoryEntry]:
    """Entries of a directory in name order."""
    return sorted(walk_directory(path), key=attrgetter("name"))


def walk_directory(path: str) -> Iterator[DirectoryEntry]:
    """Entries of a directory in no order, for a caller that may stop early."""
    store = store_of(path)
    yield from local.walk_directory(path) if store is None else store.entries(path)


def names_in(path: str) -> list[str]:
    """Names in a directory in any order."""
    if (store := store_of(path)) is not None:
        return [entry.name for entry in store.entries(path)]
    return local.names_in(path)


def directory_exists(path: str) -> bool:
    """True if the path is a directory, or a link to one."""
    if (store := store_of(path)) is not None:
        found = store.status(path)
        return found is not None and found.is_directory
    return os.path.isdir(path)


def is_directory(entry: DirectoryEntry) -> bool:
    """True for a directory or a link to one; False for a link that loops."""
    with storage_errors(entry.path, "looking at it"):
        try:
            return entry.is_dir()
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
    return False


def exists(path: str) -> bool:
    """True if the path exists; raises if the system cannot tell."""
    if (store := store_of(path)) is not None:
        return store.status(path) is not None
    return local.exists(path)


def has_pattern(path: str) -> bool:
    """Whether a path has characters of a pattern."""
    return any(character in path for character in "*?[")


def matching(pattern: str) -> list[str]:
    """What a pattern with ``*``, ``?`` and ``[...]`` matches, in name order; names that begin with a dot if it does."""
    above, _, last = pattern.rstrip("/").rpartition("/")
    root = above or ("/" if pattern.startswith("/") else ".")
    if scheme_of(pattern) is not None and scheme_of(above + "/") is None:  # only the bucket's name is left
        return [pattern.rstrip("/")]
    folders = matching(root) if has_pattern(above) else [root]
    found = []
    for folder in folders:
        if not has_pattern(last):
            found += [path] if exists(path := _joined(folder, last)) else []
        elif directory_exists(folder):
            names = [name for name in names_in(folder) if not name.startswith(".") or last.startswith(".")]
            found += [_joined(folder, name) for name in sorted(names) if fnmatchcase(name, last)]
    return found


def _joined(folder: str, name: str) -> str:
    return name if folder == "." else os.path.join(folder, name)


def require_plain_logs(directory: str, what: str) -> None:
    """Refuse a partition directory with compressed logs, for work that writes."""
    names = names_in(directory) if directory_exists(directory) else []
    compressed = min((name for name in names if compression_of_log(name) is not None), default=None)
    if compressed is not None:
        tool = "gunzip" if compression_of_log(compressed) == "gzip" else "zstd -d --rm"
        raise LogStorageError(
            f"{what} needs plain .log files, found a compressed one, which is only read; decompress it first: {tool},"
            " or copy the directory: kts copy",
            path=os.path.join(directory, compressed),
        )


def remove(path: str, *, missing_ok: bool = False) -> None:
    """Delete a file."""
    if (store := writable_store_of(path)) is not None:
        store.remove(path)
        return
    local.remove(path, missing_ok=missing_ok)
