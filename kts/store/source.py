"""Where files lie: a source opens, lists and looks at them, and travels with what is read from it."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from kts.errors import CorruptRecordError, LogStorageError
from kts.store import addresses, expanded, local, publishing
from kts.store.expanded import ExpandedFile, compression_of_log
from kts.store.local import Bytes, File, RereadFile, storage_errors
from kts.store.protocol import ByteRange, DirectoryEntry, Item, Readable, Result, Status

AheadRange = tuple[int, int | None] | None  # bytes that will be read in order: a store fetches them ahead


class Source(ABC):
    """Files, by path: those of this machine, of a bucket, or of a partition in tiered storage.

    A segment, a partition and all that is planned hold the source of their files. It is small, and pickles with them:
    another process reads by it, and needs nothing else.

    Raises
    ------
    LogStorageError
        By every method. A missing file has the errno ENOENT; one that was replaced while it was read, ESTALE.
    """

    is_here = False  # True for the files of this machine, which cost no request

    # --- what each kind of source does ---

    @abstractmethod
    def file(self, path: str, ahead: AheadRange) -> Readable:
        """The file, as it lies there."""

    @abstractmethod
    def open_reread(self, path: str, *, sound_part: bool = False) -> Readable:
        """A file for a reader that asks for the same or nearby bytes again: it caches what it read last."""

    @abstractmethod
    def in_order(self, ranges: Sequence[ByteRange]) -> Iterator[Readable | None]:
        """Files that will be read in order, each to the end of its range: a store fetches across their borders.

        None for a file of this machine and for a compressed log, which its reader opens itself. A file is closed when
        the next one is asked for.
        """

    @abstractmethod
    def side_by_side(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results of work on several files, in order; many wait at once where each costs a request."""

    @abstractmethod
    def size_of_file(self, path: str) -> int:
        """As ``size_of``, of a file as it lies there."""

    @abstractmethod
    def modified_ms(self, path: str) -> int:
        """Modification time in ms since the epoch, rounded down as in Java."""

    @abstractmethod
    def identity(self, path: str) -> tuple[int, ...] | None:
        """A value that changes when the file is replaced or written; None if there is no file.

        It ends with the size and, of a local file, the time of the last change, which programs cannot set.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """True if the path exists; raises if the system cannot tell."""

    @abstractmethod
    def directory_exists(self, path: str) -> bool:
        """True if the path is a directory, or a link to one."""

    @abstractmethod
    def walk_directory(self, path: str) -> Iterator[DirectoryEntry]:
        """Entries of a directory in no order, for a caller that may stop early."""

    def put(self, path: str, pieces: Iterable[Bytes]) -> None:
        """Make or replace a file: readers see all of the new one, or what was there before."""
        raise _only_read(path)

    def take(self, made: str, path: str) -> None:
        """Give a finished file of this machine its place: it is renamed there, or uploaded whole and removed here."""
        with File(made) as file:
            self.put(path, publishing.pieces(file, 0, file.size()))
        local.remove(made)

    def remove(self, path: str, *, missing_ok: bool = False) -> None:
        """Delete a file."""
        raise _only_read(path)

    @abstractmethod
    def refresh(self) -> None:
        """What was listed no longer holds: a caller that names a path sees it as it is now."""

    # --- files ---

    def open_file(self, path: str, *, ahead: AheadRange = None, sound_part: bool = False) -> Readable:
        """A file for reading at positions; a compressed log as if it were plain.

        Parameters
        ----------
        ahead : (int, int or None), optional
            The bytes that will be read in order: a store fetches them ahead. Nothing changes for a file of this
            machine.
        sound_part : bool
            A damaged compressed log ends at its damage; otherwise its ``size`` raises CorruptRecordError.
        """
        if compression_of_log(path) is not None:
            return ExpandedFile(self, path, self.identity(path), sound_part)
        return self.file(path, ahead)

    def read_bytes(self, path: str) -> bytes:
        """A whole file at its current length."""
        with self.open_file(path) as file:
            return file.read(0, file.size())

    def read_if_there(self, path: str) -> bytes | None:
        """A whole file; None if there is none. A link whose file is gone is an error: it says that there was one."""
        try:
            return self.read_bytes(path)
        except LogStorageError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            if self.is_here and os.path.islink(path):
                message = "expected a regular file, found a link that leads nowhere"
                raise LogStorageError(message, path=path) from error
        return None

    def read_small(self, paths: Iterable[str], most: int) -> list[bytes | None]:
        """Whole files of at most ``most`` bytes; None for larger ones, and for compressed logs."""
        paths = list(paths)
        plain = [path for path in paths if compression_of_log(path) is None]
        found = list(self.side_by_side(partial(self.small_file, most=most), plain))
        if len(plain) == len(paths):
            return found
        of_plain = dict(zip(plain, found, strict=True))
        return [of_plain.get(path) for path in paths]

    def small_file(self, path: str, most: int) -> bytes | None:
        """As ``read_small``, of one file as it lies there."""
        return self.read_bytes(path) if self.size_of_file(path) <= most else None

    def read_used(self, path: str, entry_bytes: int) -> bytes:
        """An index file without the zeros of its preallocated part: an open one is 10 MiB, most of it unused."""
        with self.open_file(path) as file:
            return _used(file, file.size(), entry_bytes)

    def read_index(self, path: str, entry_bytes: int) -> bytes:
        """As ``read_used``; empty if the file is missing or does not consist of whole entries."""
        try:
            file = self.open_file(path)
        except LogStorageError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            return b""
        with file:
            size = file.size()
            return b"" if size % entry_bytes else _used(file, size, entry_bytes)

    # --- what is known of them ---

    def damage_of(self, path: str) -> CorruptRecordError | None:
        """Why the rest of a compressed log cannot be read; None if it is sound or not compressed."""
        return None if compression_of_log(path) is None else expanded.damage_of(self, path, self.identity(path))

    def size_of(self, path: str, *, sound_part: bool = False) -> int:
        """Length now, in bytes; of a store's file, as the last listing of its directory had it.

        The length of a compressed log is that of the log in it; for ``sound_part`` see ``open_file``.
        """
        if compression_of_log(path) is not None:
            return expanded.size_of(self, path, self.identity(path), sound_part)
        return self.size_of_file(path)

    # --- directories ---

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """Entries of a directory in name order."""
        return sorted(self.walk_directory(path), key=attrgetter("name"))

    def names_in(self, path: str) -> list[str]:
        """Names in a directory in any order."""
        return [entry.name for entry in self.walk_directory(path)]

    @staticmethod
    def is_directory(entry: DirectoryEntry) -> bool:
        """True for a directory or a link to one; False for a link that loops."""
        with storage_errors(entry.path, "looking at it"):
            try:
                return entry.is_dir()
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
        return False

    def matching(self, pattern: str) -> list[str]:
        """What a pattern with ``*``, ``?`` and ``[...]`` matches, in name order; names that begin with a dot if it
        does."""
        above, _, last = pattern.rstrip("/").rpartition("/")
        root = above or ("/" if pattern.startswith("/") else ".")
        if addresses.scheme_of(pattern) is not None and addresses.scheme_of(above + "/") is None:
            return [pattern.rstrip("/")]  # only the bucket's name is left
        folders = self.matching(root) if addresses.has_pattern(above) else [root]
        found = []
        for folder in folders:
            if not addresses.has_pattern(last):
                found += [path] if self.exists(path := _joined(folder, last)) else []
            elif self.directory_exists(folder):
                names = [name for name in self.names_in(folder) if not name.startswith(".") or last.startswith(".")]
                found += [_joined(folder, name) for name in sorted(names) if fnmatchcase(name, last)]
        return found

    def require_plain_logs(self, directory: str, what: str) -> None:
        """Refuse a partition directory with compressed logs, for work that writes."""
        names = self.names_in(directory) if self.directory_exists(directory) else []
        compressed = min((name for name in names if compression_of_log(name) is not None), default=None)
        if compressed is not None:
            tool = "gunzip" if compression_of_log(compressed) == "gzip" else "zstd -d --rm"
            raise LogStorageError(
                f"{what} needs plain .log files, found a compressed one, which is only read; decompress it first:"
                f" {tool}, or copy the directory: kts copy",
                path=os.path.join(directory, compressed),
            )


def _used(file: Readable, size: int, entry_bytes: int) -> bytes:
    count = 4096 * entry_bytes
    while count < size:
        last = file.read(count - entry_bytes, entry_bytes)
        if not any(last):
            break
        count *= 4
    return file.read(0, min(count, size))


def _joined(folder: str, name: str) -> str:
    return name if folder == "." else os.path.join(folder, name)


def _only_read(path: str) -> LogStorageError:
    message = f"{addresses.scheme_of(path)}:// is only read; write to a path or a bucket"
    return LogStorageError(message, path=path, errno=errno.EROFS)


def in_order(ranges: Iterable[tuple[Source, ByteRange]]) -> Iterator[Readable | None]:
    """As ``in_order`` of a source, for files of several."""
    for source, group in groupby(ranges, itemgetter(0)):
        yield from source.in_order([one for _, one in group])


# --- this machine ---------------------------------------------------------------------------------


class Machine(Source):
    """The files of the machine that a process runs on; unpickled on another one, those of that."""

    is_here = True

    def __repr__(self) -> str:
        return "files"

    def __reduce__(self) -> str:
        return "files"

    def file(self, path: str, ahead: AheadRange) -> Readable:
        return File(path)

    def open_reread(self, path: str, *, sound_part: bool = False) -> Readable:
        return RereadFile(path) if compression_of_log(path) is None else self.open_file(path, sound_part=sound_part)

    def in_order(self, ranges: Sequence[ByteRange]) -> Iterator[Readable | None]:
        return (None for _ in ranges)

    def side_by_side(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        return map(work, items)

    def small_file(self, path: str, most: int) -> bytes | None:
        return local.read_small(path, most)

    def size_of_file(self, path: str) -> int:
        return local.size_of(path)

    def modified_ms(self, path: str) -> int:
        return local.modified_ms(path)

    def identity(self, path: str) -> tuple[int, ...] | None:
        return local.identity(path)

    def exists(self, path: str) -> bool:
        return local.exists(path)

    def directory_exists(self, path: str) -> bool:
        return os.path.isdir(path)

    def walk_directory(self, path: str) -> Iterator[DirectoryEntry]:
        return local.walk_directory(path)

    def names_in(self, path: str) -> list[str]:
        return local.names_in(path)

    def put(self, path: str, pieces: Iterable[Bytes]) -> None:
        publishing.publish(path, pieces)

    def take(self, made: str, path: str) -> None:
        local.rename(made, path)

    def remove(self, path: str, *, missing_ok: bool = False) -> None:
        local.remove(path, missing_ok=missing_ok)

    def refresh(self) -> None:
        """Nothing is kept."""


files = Machine()


# --- what is not on this machine ------------------------------------------------------------------


class Store(Source):
    """Files that are not on this machine, such as the objects of a bucket: each look costs a request."""

    @abstractmethod
    def files(self, ranges: Sequence[ByteRange]) -> Iterator[Readable]:
        """Files that are read one after another, each to the end of its range."""

    @abstractmethod
    def entries(self, path: str) -> Sequence[DirectoryEntry]:
        """What lies in a directory now, in name order."""

    @abstractmethod
    def status(self, path: str) -> Status | None:
        """Size and time of a file, perhaps as the last listing of its directory had them; None if there is none."""

    @abstractmethod
    def together(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """The results of work that waits for this store, in order."""

    def open_reread(self, path: str, *, sound_part: bool = False) -> Readable:
        return self.open_file(path, sound_part=sound_part)

    def in_order(self, ranges: Sequence[ByteRange]) -> Iterator[Readable | None]:
        for is_plain, group in groupby(ranges, lambda one: compression_of_log(one.path) is None):
            alike = list(group)
            yield from self.files(alike) if is_plain else [None] * len(alike)

    def side_by_side(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        return self.together(work, items) if len(items) > 1 else map(work, items)

    def size_of_file(self, path: str) -> int:
        return self._file_status(path).size

    def modified_ms(self, path: str) -> int:
        return self._file_status(path).modified_ns // 1_000_000

    def _file_status(self, path: str) -> Status:
        """Size and time of a file, which must be there."""
        found = self.status(path)
        if found is None:
            raise LogStorageError("there is no such file", path=path, errno=errno.ENOENT)
        if found.is_directory:
            raise LogStorageError("expected a regular file, found a directory", path=path)
        return found

    def identity(self, path: str) -> tuple[int, ...] | None:
        found = self.status(path)
        return None if found is None else found[:2]

    def exists(self, path: str) -> bool:
        return self.status(path) is not None

    def directory_exists(self, path: str) -> bool:
        found = self.status(path)
        return found is not None and found.is_directory

    def walk_directory(self, path: str) -> Iterator[DirectoryEntry]:
        yield from self.entries(path)


# --- the door -------------------------------------------------------------------------------------


def source_of(path: str, options: Mapping[str, Any] | None = None) -> Source:
    """The source of a path that a user names. Whatever is read from there holds it from then on.

    Parameters
    ----------
    options : dict, optional
        How its bucket is reached: see ``kts.open``.
    """
    maker = addresses.maker_of(path)
    return files if maker is None else maker(path, options)
