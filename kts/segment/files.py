"""All file system access: everything that opens, reads or changes a file goes through this module.

A path with a scheme (``s3://bucket/key``) belongs to a ``Store``, whose files are read, and put or removed whole. Every
other path is a file of this machine. Files are read with pread and written with pwrite, never mapped: a broker may
append, truncate or delete meanwhile, and a mapped file that shrinks would kill the process. A ``.log.gz`` or
``.log.zst`` is read as the log that it holds: the first use decompresses it into a temporary file. Every system call
goes through this module's name ``os``, so that a test can substitute another file system.
"""

from __future__ import annotations

import atexit
import errno
import io
import logging
import os
import re
import stat
import sys
import tempfile
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, Self, TypeVar, runtime_checkable
from urllib.parse import unquote, urlsplit

from kts.arguments import INT32_MAX
from kts.compression import expanded
from kts.errors import CorruptRecordError, LogStorageError
from kts.segment.names import compression_of_log

Bytes = bytes | bytearray | memoryview
Item = TypeVar("Item")
Result = TypeVar("Result")
# Without O_NONBLOCK a FIFO with a segment's name would hang the program.
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


def failure(error: OSError, path: str, doing: str) -> LogStorageError:
    """An operating system error as a LogStorageError with its errno."""
    message = f"{doing} failed: {error.strerror or error}"
    if error.errno in NO_DESCRIPTOR:
        tell_no_descriptor()
        message += f"; {more_descriptors()}"
    return LogStorageError(message, path=path, errno=error.errno)


@contextmanager
def storage_errors(path: str, doing: str) -> Iterator[None]:
    """Raise an operating system error as a LogStorageError with its errno."""
    try:
        yield
    except OSError as error:
        raise failure(error, path, doing) from error


def again(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, and repeat the call if a signal interrupts it."""
    while True:
        try:
            return call(*arguments)
        except InterruptedError:
            continue


# --- where a path lies ----------------------------------------------------------------------------

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)")


class Readable(Protocol):
    """Bytes at positions: a file of this machine, an object in a bucket. A context manager."""

    path: str

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None:
        """Close it; a second call does nothing."""

    def size(self) -> int:
        """Length now, in bytes."""

    def read(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes from a position; fewer only at the end of the file."""

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer from a position; fewer bytes only at the end of the file."""


class BytesFile:
    """Bytes in memory as a file to read; a ``Readable``."""

    def __init__(self, path: str, data: bytes | memoryview) -> None:
        self.path = path
        self._data = data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open."""

    def size(self) -> int:
        """Their number."""
        return len(self._data)

    def read(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes from a position."""
        return bytes(self._data[position : position + count])

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer from a position."""
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)


@runtime_checkable
class ReadAhead(Readable, Protocol):
    """A file whose bytes are requested before they are read."""

    def at_hand(self, position: int, count: int) -> memoryview:
        """The bytes at a position that were requested together ahead, up to ``count``; empty if none were."""


class ByteRange(NamedTuple):
    """Bytes of a file that a reader takes in order; an end of None is the end of the file."""

    path: str
    start: int
    end: int | None


class Entry(Protocol):
    """A name in a directory."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def is_dir(self, *, follow_symlinks: bool = True) -> bool: ...

    def is_file(self, *, follow_symlinks: bool = True) -> bool: ...

    def is_symlink(self) -> bool: ...


class Status(NamedTuple):
    """What is known of a file without opening it."""

    size: int
    modified_ns: int
    is_directory: bool = False


class Store(Protocol):
    """Files that are not on this machine, such as the objects of a bucket. Every call raises LogStorageError.

    A missing file has the errno ENOENT; one that was replaced while it was read, ESTALE.
    """

    def file(self, path: str, ahead: tuple[int, int | None] | None) -> Readable:
        """The file; ``ahead`` are bytes that will be read in order."""

    def files(self, ranges: Sequence[ByteRange]) -> Iterator[Readable]:
        """Files that are read one after another, each to the end of its range."""

    def entries(self, path: str) -> Sequence[Entry]:
        """What lies in a directory now, in name order."""

    def status(self, path: str) -> Status | None:
        """Size and time of a file, perhaps as the last listing of its directory had them; None if there is none."""

    def side_by_side(self, work: Callable[[Item], Result], items: Sequence[Item], path: str) -> Iterator[Result]:
        """The results of work that waits for this store, in order; ``path`` is that of one of the files."""


@runtime_checkable
class WritableStore(Store, Protocol):
    """A store in which files are put and removed, whole; every call raises LogStorageError."""

    def put(self, path: str, pieces: Iterable[bytes]) -> None:
        """Make or replace a file: readers see all of the new one, or what was there before."""

    def remove(self, path: str) -> None:
        """Delete a file; do nothing if there is none."""


_stores: dict[str, Callable[[str], Store]] = {}  # by scheme: what gives the store of a path


def serve_schemes(schemes: Iterable[str], store_of: Callable[[str], Store]) -> None:
    """Let a function give the stores of paths with these schemes."""
    _stores.update(dict.fromkeys(schemes, store_of))


def scheme_of(path: str) -> str | None:
    """The scheme of a path, as ``s3``; None for a path of this machine."""
    if "://" not in path:
        return None
    found = _SCHEME.match(path)
    return None if found is None else found["scheme"].lower()


def _store(path: str) -> Store | None:
    if "://" not in path:
        return None
    scheme = scheme_of(path)
    if scheme is None:
        return None
    if scheme not in _stores:
        message = f"{scheme}:// is not supported; expected a path or one of {', '.join(served())}"
        raise LogStorageError(message, path=path)
    return _stores[scheme](path)


def _writable(path: str) -> WritableStore | None:
    store = _store(path)
    if store is None or isinstance(store, WritableStore):
        return store
    raise LogStorageError(
        f"{scheme_of(path)}:// is only read; write to a path or a bucket", path=path, errno=errno.EROFS
    )


def served() -> list[str]:
    """How the addresses begin that a user may give."""
    return [f"{one}://" for one in sorted({*_stores, "file"}) if "+" not in one]


def is_served(path: str) -> bool:
    """Whether a path belongs to a store."""
    return scheme_of(path) in _stores


def require_local(path: str, what: str) -> None:
    """Refuse a path of a store, for work that writes or locks."""
    if scheme_of(path) is not None:
        raise LogStorageError(
            f"{what} needs a path of this machine, found a {scheme_of(path)}:// address: work on a local directory;"
            " kts copy copies from and to a bucket",
            path=path,
            errno=errno.EROFS,
        )


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


def absolute(path: str) -> str:
    """The path as other processes may use it: absolute, without a slash at its end."""
    return os.path.abspath(path) if scheme_of(path) is None else path.rstrip("/")


def real(path: str) -> str:
    """The path without links, to compare it with others."""
    return os.path.realpath(path) if scheme_of(path) is None else path.rstrip("/")


def plain(path: str) -> str:
    """A ``file://`` address as a path of this machine; any other path as it is."""
    if scheme_of(path) != "file":
        return path
    parts = urlsplit(path)
    if parts.netloc not in ("", "localhost"):
        raise LogStorageError(f"expected file:///path, found the host {parts.netloc}", path=path)
    return unquote(parts.path)


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
        return ExpandedFile(path, sound_part)
    store = _store(path)
    return File(path) if store is None else store.file(path, ahead)


def open_reread(path: str, *, sound_part: bool = False) -> Readable:
    """A file for a reader that asks for the same or nearby bytes again: it caches what it read last."""
    if compression_of_log(path) is not None:
        return ExpandedFile(path, sound_part)
    store = _store(path)
    return RereadFile(path) if store is None else store.file(path, None)


class _Cut:
    """A file that ends early: where another one has the rest."""

    def __init__(self, file: Readable, end: int) -> None:
        self.path, self._file, self._end = file.path, file, end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def size(self) -> int:
        return min(self._end, self._file.size())

    def read(self, position: int, count: int) -> bytes:
        return self._file.read(position, max(min(count, self._end - position), 0))

    def read_into(self, buffer: memoryview, position: int) -> int:
        return self._file.read_into(buffer[: max(self._end - position, 0)], position)


def cut_at(end: int | None, file: Readable) -> Readable:
    """A file as if it ended at a position; the file itself if there is none."""
    return file if end is None else _Cut(file, end)


def in_order(ranges: Sequence[ByteRange]) -> Iterator[Readable | None]:
    """Files that will be read in order, each to the end of its range: a store fetches across their borders.

    None for a file of this machine and for a compressed log, which its reader opens itself. A file is closed when the
    next one is asked for.
    """
    for store, group in groupby(ranges, lambda one: None if compression_of_log(one.path) else _store(one.path)):
        if store is None:
            yield from (None for _ in group)
        else:
            yield from store.files(list(group))


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], path: str) -> Iterator[Result]:
    """The results of work on several files beside a path, in order; many wait at once if the path is a store's."""
    store = _store(path) if len(items) > 1 else None
    return map(work, items) if store is None else store.side_by_side(work, items, path)


def _close(fd: int) -> None:
    with suppress(InterruptedError):  # the descriptor is closed even so
        os.close(fd)


# --- descriptors ----------------------------------------------------------------------------------


class Holder(Protocol):
    """An object that keeps files open between uses; any thread may call ``rest`` at any time."""

    def rest(self) -> None:
        """Release all descriptors until they are needed again."""


NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
DESCRIPTORS_OF_A_HOLDER = 3  # a log and its two indexes
_holders: deque[weakref.ref[Holder]] = deque()  # no lock: a fork could happen while another thread holds it
_told: list[bool] = []


def most_descriptors() -> int:
    """How many descriptors this process may open."""
    if sys.platform == "win32":
        return 1 << 14
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def most_holders() -> int:
    """How many holders in this process may keep their files open: together they use a quarter of the descriptors."""
    return max(most_descriptors() // (4 * DESCRIPTORS_OF_A_HOLDER), 1)


def keep_open(holder: Holder) -> None:
    """Register a holder that keeps files open; above the limit, the oldest holders close theirs."""
    _holders.append(weakref.ref(holder))
    most = most_holders()
    while len(_holders) > most and _rest_first():
        pass


def _rest_first() -> bool:
    try:
        holder = _holders.popleft()()
    except IndexError:
        return False
    if holder is not None:
        holder.rest()
    return True


def more_descriptors() -> str:
    """What to do when no descriptor is left."""
    return f"the limit is {most_descriptors()} open files, `ulimit -n` raises it"


def tell_no_descriptor() -> None:
    """Log once that no descriptor is left: the error itself may reach only a client."""
    if not _told:
        _told.append(True)
        logging.getLogger("kts").warning("no file or connection can be opened: %s", more_descriptors())


def _with_descriptor(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that needs a descriptor; if none is left, close the holders' files and retry."""
    try:
        return again(call, *arguments)
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
    while _rest_first():
        pass
    return again(call, *arguments)


def _opened(path: str, flags: int, mode: int = 0o777) -> int:
    return int(_with_descriptor(os.open, path, flags | getattr(os, "O_CLOEXEC", 0), mode))


KEPT_BYTES = 2**18  # cache of a RereadFile

# --- files ----------------------------------------------------------------------------------------


class File:
    """A file opened for reading at positions; a context manager.

    Raises
    ------
    LogStorageError
        It cannot be opened, is not a regular file, or a read failed.
    """

    _fd = -1

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._fd = _opened(path, _READ_FLAGS | self._flags(), 0o666)
            regular = stat.S_ISREG(again(os.fstat, self._fd).st_mode)
        except OSError as error:
            self.close()
            raise failure(error, path, "opening") from error
        if not regular:
            self.close()
            raise LogStorageError("expected a regular file, found something else", path=path)

    def _flags(self) -> int:
        return os.O_RDONLY

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                _close(fd)
            except OSError as error:
                raise failure(error, self.path, "closing") from error

    def __del__(self) -> None:
        with suppress(LogStorageError):
            self.close()

    def fileno(self) -> int:
        """The descriptor, for a lock."""
        return self._fd

    def size(self) -> int:
        """Length now, in bytes."""
        try:
            return int(again(os.fstat, self._fd).st_size)
        except OSError as error:
            raise failure(error, self.path, "reading the size") from error

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer from a position; fewer bytes only at the end of the file."""
        done = 0
        with storage_errors(self.path, "reading"):
            while done < len(buffer):
                count = again(os.preadv, self._fd, [buffer[done:]], position + done)
                if count == 0:
                    break
                done += count
        return done

    def read(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes from a position; fewer only at the end of the file."""
        try:
            data: bytes = again(os.pread, self._fd, count, position)
        except OSError as error:
            raise failure(error, self.path, "reading") from error
        if len(data) == count or not data:
            return data
        rest = bytearray(count)
        rest[: len(data)] = data
        done = len(data) + File.read_into(self, memoryview(rest)[len(data) :], position + len(data))  # bypass the cache
        return bytes(memoryview(rest)[:done])

    def share(self) -> File:
        """The same open file with its own descriptor, which stays open when this one is closed."""
        shared = object.__new__(File)
        shared.path = self.path
        with storage_errors(self.path, "sharing the descriptor"):
            shared._fd = _with_descriptor(os.dup, self._fd)
        return shared


class RereadFile(File):
    """A file for a reader that asks for the same or nearby bytes again: it caches the last bytes read.

    Notes
    -----
    Bytes below a log's end are written once, so the cache stays valid. Long reads are not cached.
    """

    _kept, _start = b"", 0

    def read(self, position: int, count: int) -> bytes:
        kept, at = self._kept, position - self._start
        if not 0 <= at <= len(kept) or at + count > KEPT_BYTES:
            if count > KEPT_BYTES:
                return super().read(position, count)
            self._kept, self._start = b"", position
            kept, at = b"", 0
        lacking = at + count - len(kept)
        if lacking > 0:
            self._kept = kept = kept + super().read(self._start + len(kept), lacking)
        return kept[at : at + count]

    def read_into(self, buffer: memoryview, position: int) -> int:
        if len(buffer) > KEPT_BYTES:
            return super().read_into(buffer, position)
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)


class FileRange:
    """A range of bytes of an open file, to send unchanged or to read later; ``len`` is its size.

    Parameters
    ----------
    file : File, optional
        Owned by this object. None for an empty range.
    position, count : int
        Start and size of the range, in bytes.

    Attributes
    ----------
    revoked : bool
        The range was truncated.

    Notes
    -----
    The bytes stay readable when the file is renamed or deleted. A truncated range never yields other bytes: ``read``
    raises, and ``fileno`` refers to an empty file, so ``sendfile`` sends nothing.
    """

    __slots__ = ("__weakref__", "_closing", "count", "file", "position", "revoked")

    def __init__(self, file: File | None, position: int, count: int) -> None:
        self.file = file
        self.position = position
        self.count = count
        self.revoked = False
        self._closing = threading.Lock()

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        path = None if self.file is None else self.file.path
        return f"FileRange({path!r}, position={self.position}, count={self.count})"

    def fileno(self) -> int:
        """The descriptor for ``sendfile``, -1 without a file; open as long as this object lives."""
        return -1 if self.file is None else self.file.fileno()

    def read(self, start: int = 0, count: int | None = None) -> bytes:
        """The bytes, or some of them from ``start`` on.

        Raises
        ------
        LogStorageError
            Bytes are missing: the file was truncated meanwhile.
        """
        count = self.count - start if count is None else min(count, self.count - start)
        if self.file is None or count <= 0:
            return b""
        data = self.file.read(self.position + start, count)
        if self.revoked or len(data) != count:
            message = f"expected {count} bytes at {self.position + start}, found a file that was cut meanwhile"
            raise LogStorageError(message, path=self.file.path, position=self.position + start)
        return data

    def revoke(self) -> None:
        """Point the descriptor at an empty file, because the range is about to be truncated."""
        with self._closing:  # otherwise the number could belong to another file by then
            self.revoked = True
            if self.file is None or self.file.fileno() < 0:
                return
            with storage_errors(self.file.path, "taking the descriptor away"):
                nothing = _opened(os.devnull, os.O_RDONLY)
                try:
                    again(partial(os.dup2, nothing, self.file.fileno(), inheritable=False))
                finally:
                    _close(nothing)

    def close(self) -> None:
        """Close the descriptor now."""
        with self._closing:
            if self.file is not None:
                self.file.close()


class WritableFile(File):
    """A file opened for reading and writing at positions; a context manager.

    Parameters
    ----------
    path : str
        The file.
    create : bool
        Create it if it is missing.
    new : bool
        Create it, and fail if it exists.

    Raises
    ------
    LogStorageError
        A system call in any method failed; ``errno`` says why.
    """

    def __init__(self, path: str, *, create: bool = False, new: bool = False) -> None:
        require_local(path, "writing")
        self._create = (os.O_CREAT | os.O_EXCL) if new else os.O_CREAT if create else 0
        super().__init__(path)

    def _flags(self) -> int:
        return os.O_RDWR | self._create

    def write(self, data: Bytes, position: int) -> None:
        """Write all data at a position, or raise; after an error any part of it may have been written."""
        try:
            done = os.pwrite(self._fd, data, position)
        except InterruptedError:
            done = 0
        except OSError as error:
            raise failure(error, self.path, f"writing {len(data)} bytes at {position}") from error
        if done != len(data):
            self._write_rest(memoryview(data), position, done)

    def _write_rest(self, data: memoryview, position: int, done: int) -> None:
        with storage_errors(self.path, f"writing {len(data)} bytes at {position}"):
            while done < len(data):
                count = again(os.pwrite, self._fd, data[done:], position + done)
                if count == 0:
                    raise OSError(errno.EIO, f"no byte after {done} was taken")
                done += count

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with zeros that take no disk space."""
        with storage_errors(self.path, f"truncating to {size} bytes"):
            again(os.ftruncate, self._fd, size)

    def sync(self) -> None:
        """Wait until all data is on disk. After a failure the state on disk is unknown: close the log."""
        with storage_errors(self.path, "syncing"):
            again(os.fsync, self._fd)


# --- compressed logs ------------------------------------------------------------------------------

LARGEST_LOG_BYTES = INT32_MAX  # Kafka opens no larger one
_KEPT_EXPANSIONS, _KEPT_EXPANDED_BYTES = 64, 2**32
_PIECE_BYTES = 2**20


class _Expansion(NamedTuple):
    """A compressed log, decompressed.

    Attributes
    ----------
    file : File or None
        A temporary file without a name; None once others took its place.
    bytes : int
        What the log holds; with damage, what comes before it.
    damage : str or None
        Why the rest is lost.
    """

    file: WritableFile | None
    bytes: int
    damage: str | None

    def size(self, path: str, sound_part: bool) -> int:
        if self.damage is not None and not sound_part:
            raise CorruptRecordError(self.damage, path=path, position=self.bytes)
        return self.bytes


class ExpandedFile(File):
    """A compressed log as the log that it holds; see ``open_file``.

    Notes
    -----
    The first use decompresses it, whole, into a temporary file without a name; the last ones stay for the next use. No
    number in the file is believed: memory is bounded by the decompressor, and the disk by the largest size of a log.
    """

    def __init__(self, path: str, sound_part: bool) -> None:
        self.path = path
        self._expansion = _expansion(path, with_file=True)
        self._sound_part = sound_part
        if self._expansion.file is not None:
            with storage_errors(path, "sharing the descriptor"):
                self._fd = _with_descriptor(os.dup, self._expansion.file.fileno())

    def size(self) -> int:
        return self._expansion.size(self.path, self._sound_part)


def damage_of(path: str) -> CorruptRecordError | None:
    """Why the rest of a compressed log cannot be read; None if it is sound or not compressed."""
    found = None if compression_of_log(path) is None else _expansion(path)
    if found is None or found.damage is None:
        return None
    return CorruptRecordError(found.damage, path=path, position=found.bytes)


class _Source(io.RawIOBase):
    """A readable from its start on, as the decompressors take it."""

    def __init__(self, file: Readable) -> None:
        self._file, self._position = file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.read_into(memoryview(buffer), self._position)
        self._position += count
        return count


_Key = tuple[int, str, tuple[int, ...] | None]  # process, path, identity
_expansions: OrderedDict[_Key, _Expansion] = OrderedDict()
_expanding: dict[_Key, threading.Lock] = {}
atexit.register(_expansions.clear)  # later the system's functions are gone


def _expansion(path: str, *, with_file: bool = False) -> _Expansion:
    """What a compressed log holds, decompressed at the first use of this process and whenever it changed."""
    key = os.getpid(), path, identity(path)
    with _expanding.setdefault(key, threading.Lock()):
        found = _expansions.get(key)
        if found is None or (with_file and found.file is None):
            found = _expand(path)
        _expansions[key] = found
        _expansions.move_to_end(key)
    _forget_expansions()
    return found


def _forget_expansions() -> None:
    """Keep only the last files; of the others their size, so that it is known without decompressing them again."""
    kept = size = 0
    for key, one in reversed(list(_expansions.items())):
        if one.file is not None:
            kept, size = kept + 1, size + one.bytes
            if kept > 1 and (kept > _KEPT_EXPANSIONS or size > _KEPT_EXPANDED_BYTES):
                _expansions[key] = one._replace(file=None)


def _expand(path: str) -> _Expansion:
    codec, store, size = compression_of_log(path) or "", _store(path), 0
    with (
        File(path) if store is None else store.file(path, (0, None)) as source,
        io.BufferedReader(_Source(source), _PIECE_BYTES) as stream,
    ):
        file = _temporary(path)
        try:
            if not stream.peek(1):
                raise CorruptRecordError(f"expected {codec} data, found an empty file")
            for piece in expanded(codec, stream):
                if size + len(piece) > LARGEST_LOG_BYTES:
                    raise CorruptRecordError(f"the log is larger than {LARGEST_LOG_BYTES} bytes, the most of a segment")
                file.write(piece, size)
                size += len(piece)
        except CorruptRecordError as error:
            why = f"{error.message}; {size} bytes of the log come before"
            return _Expansion(file, size, why)
        except LogStorageError as error:
            if error.path != file.path:
                raise
            message = f"decompressing {path} failed: {error.message}; the variable TMPDIR names another directory"
            raise LogStorageError(message, path=os.path.dirname(file.path), errno=error.errno) from error
    return _Expansion(file, size, None)


def _temporary(of: str) -> WritableFile:
    """A new file without a name, which is gone when it is closed."""
    file = WritableFile.__new__(WritableFile)
    with storage_errors(of, f"making a temporary file in {tempfile.gettempdir()}"):
        file._fd, file.path = _with_descriptor(tempfile.mkstemp)
        again(os.unlink, file.path)
    return file


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
        if _store(path) is None and os.path.islink(path):
            raise LogStorageError("expected a regular file, found a link that leads nowhere", path=path) from error
    return None


def read_small(paths: Iterable[str], most: int) -> list[bytes | None]:
    """Whole files of at most ``most`` bytes; None for larger ones, and for compressed logs."""
    paths = list(paths)
    if any(map(compression_of_log, paths)):
        plain_ones = read_small([path for path in paths if compression_of_log(path) is None], most)[::-1]
        return [plain_ones.pop() if compression_of_log(path) is None else None for path in paths]
    if paths and _store(paths[0]) is not None:
        return list(side_by_side(lambda path: read_bytes(path) if size_of(path) <= most else None, paths, paths[0]))
    found: list[bytes | None] = []
    for path in paths:
        try:
            found.append(_read_small(path, most))
        except InterruptedError:
            found += read_small([path], most)
        except OSError as error:
            raise failure(error, path, "reading") from error
    return found


def _read_small(path: str, most: int) -> bytes | None:
    fd = os.open(path, _READ_FLAGS)
    try:
        status = os.fstat(fd)
        if status.st_size > most or not stat.S_ISREG(status.st_mode):
            return None
        data = os.pread(fd, most + 1, 0)
    finally:
        _close(fd)
    return data if len(data) <= most else None


def identity(path: str) -> tuple[int, ...] | None:
    """A value that changes when the file is replaced or written; None if there is no file.

    It ends with the size and, of a local file, the time of the last change, which programs cannot set.
    """
    if (store := _store(path)) is not None:
        found = store.status(path)
        return None if found is None else found[:2]
    with storage_errors(path, "looking at it"):
        try:
            status = again(os.stat, path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


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


def modified_ms(path: str) -> int:
    """Modification time in ms since the epoch, rounded down as in Java."""
    if (store := _store(path)) is not None:
        return _status(store, path).modified_ns // 1_000_000
    with storage_errors(path, "reading the modification time"):
        return int(again(os.stat, path).st_mtime_ns) // 1_000_000


def size_of(path: str, *, sound_part: bool = False) -> int:
    """Length now, in bytes; of a store's file, as the last listing of its directory had it.

    The length of a compressed log is that of the log in it; for ``sound_part`` see ``open_file``.
    """
    if compression_of_log(path) is not None:
        return _expansion(path).size(path, sound_part)
    if (store := _store(path)) is not None:
        return _status(store, path).size
    with storage_errors(path, "reading the size"):
        status = again(os.stat, path)
    if not stat.S_ISREG(status.st_mode):
        raise LogStorageError("expected a regular file, found something else", path=path)
    return int(status.st_size)


def _status(store: Store, path: str) -> Status:
    found = store.status(path)
    if found is None:
        raise LogStorageError("there is no such file", path=path, errno=errno.ENOENT)
    if found.is_directory:
        raise LogStorageError("expected a regular file, found a directory", path=path)
    return found


def list_directory(path: str) -> list[Entry]:
    """Entries of a directory in name order."""
    return sorted(walk_directory(path), key=attrgetter("name"))


def walk_directory(path: str) -> Iterator[Entry]:
    """Entries of a directory in no order, for a caller that may stop early."""
    if (store := _store(path)) is not None:
        yield from store.entries(path)
        return
    with storage_errors(path, "listing"), _with_descriptor(os.scandir, path) as entries:
        yield from entries


def names_in(path: str) -> list[str]:
    """Names in a directory in any order."""
    if (store := _store(path)) is not None:
        return [entry.name for entry in store.entries(path)]
    with storage_errors(path, "listing"):
        names: list[str] = _with_descriptor(os.listdir, path)
    return names


def directory_exists(path: str) -> bool:
    """True if the path is a directory, or a link to one."""
    if (store := _store(path)) is not None:
        found = store.status(path)
        return found is not None and found.is_directory
    return os.path.isdir(path)


def is_directory(entry: Entry) -> bool:
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
    if (store := _store(path)) is not None:
        return store.status(path) is not None
    try:
        again(os.stat, path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise failure(error, path, "looking for it") from error
    return True


# --- what changes directories ---------------------------------------------------------------------


def write_atomically(path: str, data: Bytes) -> None:
    """Replace a file atomically: write a temporary file, sync it, rename it, and sync the directory.

    The temporary name ends in ``.tmp``, as for Kafka's checkpoints: a broker ignores such a file.
    """
    if (store := _writable(path)) is not None:
        store.put(path, [bytes(data)])
        return
    beside = path + ".tmp"
    try:
        with WritableFile(beside, create=True) as file:
            file.truncate(0)
            file.write(data, 0)
            file.sync()
        rename(beside, path)
    except LogStorageError:
        with suppress(LogStorageError):
            remove(beside, missing_ok=True)
        raise
    sync_directory(os.path.dirname(path))


def put(source: str, target: str) -> None:
    """Give a finished file of this machine its place: it is renamed there, or uploaded whole and removed here."""
    store = _writable(target)
    if store is None:
        rename(source, target)
        return
    with File(source) as file:
        store.put(target, (file.read(at, _PIECE_BYTES) for at in range(0, file.size(), _PIECE_BYTES)))
    remove(source)


def rename(source: str, target: str) -> None:
    """Rename a file or directory; a file of that name is replaced atomically."""
    with storage_errors(source, f"renaming to {os.path.basename(target)}"):
        again(os.replace, source, target)


def remove(path: str, *, missing_ok: bool = False) -> None:
    """Delete a file."""
    if (store := _writable(path)) is not None:
        store.remove(path)
        return
    with storage_errors(path, "deleting"):
        try:
            again(os.unlink, path)
        except FileNotFoundError:
            if not missing_ok:
                raise


def remove_directory(path: str) -> None:
    """Delete an empty directory."""
    with storage_errors(path, "deleting"):
        again(os.rmdir, path)


def remove_tree(path: str) -> None:
    """Delete a directory with everything in it, if it exists; another process may do the same."""
    try:
        for entry in list_directory(path):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
            else:
                remove(entry.path, missing_ok=True)
        remove_directory(path)
    except LogStorageError as error:
        if error.errno != errno.ENOENT:
            raise


def make_directory(path: str, *, parents: bool = True) -> None:
    """Create a directory, and its parents unless they must exist; do nothing if it exists."""
    require_local(path, "making a directory")
    with storage_errors(path, "making the directory"):
        if os.path.isdir(path):
            return
        above = os.path.dirname(os.path.abspath(path))
        if parents and not os.path.isdir(above):
            make_directory(above)
        try:
            again(os.mkdir, path)
        except FileExistsError:
            if not os.path.isdir(path):  # else another process was quicker
                raise NotADirectoryError(errno.ENOTDIR, "expected a directory, found a file", path) from None


def sync_directory(path: str) -> None:
    """Wait until the names in a directory are on disk."""
    with storage_errors(path or ".", "syncing the directory"):
        fd = _opened(path or ".", os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            again(os.fsync, fd)
        finally:
            _close(fd)


def copy_mode(source: str, target: str) -> None:
    """Copy a file's permissions to another."""
    with storage_errors(target, "setting the permissions"):
        again(os.chmod, target, stat.S_IMODE(os.stat(source).st_mode))


def set_modified_ms(path: str, time_ms: int) -> None:
    """Set the modification time of a file, ms since the epoch."""
    with storage_errors(path, "setting the modification time"):
        accessed = again(os.stat, path).st_atime_ns
        again(partial(os.utime, path, ns=(accessed, time_ms * 1_000_000)))
