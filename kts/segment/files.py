"""The only door to the file system: everything that opens, reads or changes a file goes through here.

Files are read with pread and written with pwrite, never mapped: a broker may append, truncate or delete meanwhile, and
a mapped file that shrinks would kill the process. Every call of the operating system goes through this module's name
``os``, so that a test can put another file system in its place.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import Any, Protocol, Self

from kts.errors import LogStorageError

Bytes = bytes | bytearray | memoryview
# Without O_NONBLOCK a FIFO with a segment's name would hang the program.
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


def failure(error: OSError, path: str, doing: str) -> LogStorageError:
    """An operating system's error as LogStorageError with its errno."""
    message = f"{doing} failed: {error.strerror or error}"
    if error.errno in NO_DESCRIPTOR:
        tell_no_descriptor()
        message += f"; {more_descriptors()}"
    return LogStorageError(message, path=path, errno=error.errno)


@contextmanager
def storage_errors(path: str, doing: str) -> Iterator[None]:
    """Turn an operating system's error into LogStorageError with its errno."""
    try:
        yield
    except OSError as error:
        raise failure(error, path, doing) from error


def again(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call until no signal interrupts it."""
    while True:
        try:
            return call(*arguments)
        except InterruptedError:
            continue


def _close(fd: int) -> None:
    with suppress(InterruptedError):  # it is closed all the same
        os.close(fd)


# --- descriptors ----------------------------------------------------------------------------------


class Holder(Protocol):
    """Something that keeps files open between its uses; ``rest`` may come from any thread, at any time."""

    def rest(self) -> None:
        """Hold no descriptors until it needs them again."""


NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
DESCRIPTORS_OF_A_HOLDER = 3  # a log and its two indexes
_holders: deque[weakref.ref[Holder]] = deque()  # no lock: a fork may come while another thread has it
_told: list[bool] = []


def most_descriptors() -> int:
    """How many descriptors this process may have."""
    if sys.platform == "win32":
        return 1 << 14
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def most_holders() -> int:
    """How many holders may keep their files open, over all logs of this process: a quarter of the descriptors."""
    return max(most_descriptors() // (4 * DESCRIPTORS_OF_A_HOLDER), 1)


def keep_open(holder: Holder) -> None:
    """Note that a holder keeps files open from now on; above the limit, the oldest holders close theirs."""
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
    """Call what needs a descriptor; if none is left, close what holders keep open and try again."""
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


KEPT_BYTES = 2**18  # of a file that is read more than once

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
        """Fill the buffer from a position; fewer bytes only where the file ends."""
        done = 0
        with storage_errors(self.path, "reading"):
            while done < len(buffer):
                count = again(os.preadv, self._fd, [buffer[done:]], position + done)
                if count == 0:
                    break
                done += count
        return done

    def read(self, position: int, count: int) -> bytes:
        """Up to count bytes from a position; fewer only where the file ends."""
        try:
            data: bytes = again(os.pread, self._fd, count, position)
        except OSError as error:
            raise failure(error, self.path, "reading") from error
        if len(data) == count or not data:
            return data
        rest = bytearray(count)
        rest[: len(data)] = data
        done = len(data) + File.read_into(self, memoryview(rest)[len(data) :], position + len(data))  # not what it kept
        return bytes(memoryview(rest)[:done])

    def share(self) -> File:
        """The same open file with a descriptor of its own, which lives on when this one is closed."""
        shared = object.__new__(File)
        shared.path = self.path
        with storage_errors(self.path, "sharing the descriptor"):
            shared._fd = _with_descriptor(os.dup, self._fd)
        return shared


class RereadFile(File):
    """A file for a reader that asks for the same or neighbouring bytes again: the last bytes read are kept.

    Notes
    -----
    What lies below a log's end is written once. Long reads are not kept.
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
    """Bytes of an open file, to be sent as they lie or read later; ``len`` is how many.

    Parameters
    ----------
    file : File, optional
        Its own: nobody else closes it. None for no bytes.
    position, count : int
        Where they begin, and how many they are.

    Notes
    -----
    They stay when the file is renamed or deleted. When they are cut off meanwhile they are never others: ``read``
    raises, and ``fileno`` is that of an empty file, of which ``sendfile`` sends nothing.
    """

    __slots__ = ("__weakref__", "_closing", "_gone", "count", "file", "position")

    def __init__(self, file: File | None, position: int, count: int) -> None:
        self.file = file
        self.position = position
        self.count = count
        self._gone = False
        self._closing = threading.Lock()

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        path = None if self.file is None else self.file.path
        return f"FileRange({path!r}, position={self.position}, count={self.count})"

    def fileno(self) -> int:
        """The descriptor for ``sendfile``, -1 without a file; it lives as long as this object does."""
        return -1 if self.file is None else self.file.fileno()

    def read(self, start: int = 0, count: int | None = None) -> bytes:
        """The bytes, or some of them from ``start`` on.

        Raises
        ------
        LogStorageError
            They are not all there: the file was cut meanwhile.
        """
        count = self.count - start if count is None else min(count, self.count - start)
        if self.file is None or count <= 0:
            return b""
        data = self.file.read(self.position + start, count)
        if self._gone or len(data) != count:
            message = f"expected {count} bytes at {self.position + start}, found a file that was cut meanwhile"
            raise LogStorageError(message, path=self.file.path, position=self.position + start)
        return data

    def revoke(self) -> None:
        """What it stands for is about to be cut off: from now on its descriptor is one of nothing."""
        with self._closing:  # else the number could be another file's by then
            self._gone = True
            if self.file is None or self.file.fileno() < 0:
                return
            with storage_errors(self.file.path, "taking the descriptor away"):
                nothing = _opened(os.devnull, os.O_RDONLY)
                try:
                    again(partial(os.dup2, nothing, self.file.fileno(), inheritable=False))
                finally:
                    _close(nothing)

    def close(self) -> None:
        """Give the descriptor back at once."""
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
        Make it if it is missing.
    new : bool
        Make it, and fail if it is there.

    Raises
    ------
    LogStorageError
        From every method that the operating system refuses; ``errno`` says why.
    """

    def __init__(self, path: str, *, create: bool = False, new: bool = False) -> None:
        self._create = (os.O_CREAT | os.O_EXCL) if new else os.O_CREAT if create else 0
        super().__init__(path)

    def _flags(self) -> int:
        return os.O_RDWR | self._create

    def write(self, data: Bytes, position: int) -> None:
        """Write all of it at a position, or raise: then any part of it may be there."""
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
        """Cut it, or make it longer with zeros that take no space."""
        with storage_errors(self.path, f"truncating to {size} bytes"):
            again(os.ftruncate, self._fd, size)

    def sync(self) -> None:
        """Wait until everything is on the disk. After a failure nobody knows what is: close the log."""
        with storage_errors(self.path, "syncing"):
            again(os.fsync, self._fd)


def read_bytes(path: str) -> bytes:
    """A whole file, as long as it is now."""
    with File(path) as file:
        return file.read(0, file.size())


def read_if_there(path: str) -> bytes | None:
    """A whole file; None if there is none."""
    try:
        return read_bytes(path)
    except LogStorageError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
    return None


def read_small(paths: Iterable[str], most: int) -> list[bytes | None]:
    """Whole files, those of at most so many bytes; None for others."""
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
    """Changes when the file is replaced or written to; None if there is no file."""
    with storage_errors(path, "looking at it"):
        try:
            status = again(os.stat, path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_used(path: str, entry_bytes: int) -> bytes:
    """An index file without the zeros of its preallocated part: an open one is 10 MiB, most of it unused."""
    with File(path) as file:
        return _used(file, file.size(), entry_bytes)


def read_index(path: str, entry_bytes: int) -> bytes:
    """As ``read_used``; nothing if the file is missing or does not consist of whole entries."""
    try:
        file = File(path)
    except LogStorageError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        return b""
    with file:
        size = file.size()
        return b"" if size % entry_bytes else _used(file, size, entry_bytes)


def _used(file: File, size: int, entry_bytes: int) -> bytes:
    count = 4096 * entry_bytes
    while count < size:
        last = file.read(count - entry_bytes, entry_bytes)
        if not any(last):
            break
        count *= 4
    return file.read(0, min(count, size))


def modified_ms(path: str) -> int:
    """Modification time in ms since the epoch, cut as Java does."""
    with storage_errors(path, "reading the modification time"):
        return int(again(os.stat, path).st_mtime_ns) // 1_000_000


def size_of(path: str) -> int:
    """Length now, in bytes."""
    with storage_errors(path, "reading the size"):
        status = again(os.stat, path)
    if not stat.S_ISREG(status.st_mode):
        raise LogStorageError("expected a regular file, found something else", path=path)
    return int(status.st_size)


def list_directory(path: str) -> list[os.DirEntry[str]]:
    """Entries of a directory in name order."""
    return sorted(walk_directory(path), key=attrgetter("name"))


def walk_directory(path: str) -> Iterator[os.DirEntry[str]]:
    """Entries of a directory in no order, for a caller that may stop early."""
    with storage_errors(path, "listing"), _with_descriptor(os.scandir, path) as entries:
        yield from entries


def names_in(path: str) -> list[str]:
    """Names in a directory in any order."""
    with storage_errors(path, "listing"):
        names: list[str] = _with_descriptor(os.listdir, path)
    return names


def is_directory(entry: os.DirEntry[str]) -> bool:
    """True for a directory and for a link that leads to one; a link that leads in circles does not."""
    with storage_errors(entry.path, "looking at it"):
        try:
            return entry.is_dir()
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
    return False


def exists(path: str) -> bool:
    """True if the path exists; an error if the system cannot tell."""
    try:
        again(os.stat, path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise failure(error, path, "looking for it") from error
    return True


# --- what changes directories ---------------------------------------------------------------------


def write_atomically(path: str, data: Bytes) -> None:
    """Put a whole file in place of another: written beside it, synced, renamed, and the directory synced.

    Until then its name ends in ``.tmp``, as Kafka's checkpoints do: a broker leaves such a file alone.
    """
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


def rename(source: str, target: str) -> None:
    """Give a file or directory another name; a file of that name is replaced in one step."""
    with storage_errors(source, f"renaming to {os.path.basename(target)}"):
        again(os.replace, source, target)


def remove(path: str, *, missing_ok: bool = False) -> None:
    """Delete a file."""
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


def make_directory(path: str) -> None:
    """Make a directory and those above it; nothing happens if it is there."""
    with storage_errors(path, "making the directory"):
        if os.path.isdir(path):
            return
        above = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(above):
            make_directory(above)
        again(os.mkdir, path)


def sync_directory(path: str) -> None:
    """Wait until the names in a directory are on the disk."""
    with storage_errors(path or ".", "syncing the directory"):
        fd = _opened(path or ".", os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            again(os.fsync, fd)
        finally:
            _close(fd)


def copy_mode(source: str, target: str) -> None:
    """Give a file another one's permissions."""
    with storage_errors(target, "setting the permissions"):
        again(os.chmod, target, stat.S_IMODE(os.stat(source).st_mode))


def set_modified_ms(path: str, time_ms: int) -> None:
    """Set the modification time of a file, ms since the epoch."""
    with storage_errors(path, "setting the modification time"):
        accessed = again(os.stat, path).st_atime_ns
        again(partial(os.utime, path, ns=(accessed, time_ms * 1_000_000)))
