"""The only door to the file system: everything that opens, reads or changes a file goes through here.

Files are read with pread and written with pwrite, never mapped: a broker may append, truncate or delete meanwhile, and
a mapped file that shrinks would kill the process. Every call of the operating system goes through this module's name
``os``, so that a test can put another file system in its place.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Self

from kts.errors import LogStorageError

Bytes = bytes | bytearray | memoryview


def failure(error: OSError, path: str, doing: str) -> LogStorageError:
    """An operating system's error as LogStorageError with its errno."""
    return LogStorageError(f"{doing} failed: {error.strerror or error}", path=path, errno=error.errno)


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
        with storage_errors(path, "opening"):
            # Without O_NONBLOCK a FIFO with a segment's name would hang the program.
            flags = self._flags() | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
            self._fd = again(os.open, path, flags, 0o666)
            try:
                regular = stat.S_ISREG(again(os.fstat, self._fd).st_mode)
            except OSError:
                self.close()
                raise
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
            with storage_errors(self.path, "closing"):
                _close(fd)

    def __del__(self) -> None:
        with suppress(LogStorageError):
            self.close()

    def fileno(self) -> int:
        """The descriptor, for a lock."""
        return self._fd

    def size(self) -> int:
        """Length now, in bytes."""
        with storage_errors(self.path, "reading the size"):
            return int(again(os.fstat, self._fd).st_size)

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
        with storage_errors(self.path, "reading"):
            data: bytes = again(os.pread, self._fd, count, position)
        if len(data) == count or not data:
            return data
        rest = bytearray(count)
        rest[: len(data)] = data
        done = len(data) + self.read_into(memoryview(rest)[len(data) :], position + len(data))
        return bytes(memoryview(rest)[:done])

    def share(self) -> File:
        """The same open file with a descriptor of its own, which lives on when this one is closed."""
        shared = object.__new__(File)
        shared.path = self.path
        with storage_errors(self.path, "sharing the descriptor"):
            shared._fd = again(os.dup, self._fd)
        return shared


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
                nothing = again(os.open, os.devnull, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
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


def read_used(path: str, entry_bytes: int) -> bytes:
    """An index file without the zeros of its preallocated part: an open one is 10 MiB, most of it unused."""
    with File(path) as file:
        size, count = file.size(), 4096 * entry_bytes
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
    with storage_errors(path, "listing"), again(os.scandir, path) as entries:
        return sorted(entries, key=lambda entry: entry.name)


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
    """True if something lies there; an error if nobody can say."""
    with storage_errors(path, "looking for it"):
        try:
            again(os.stat, path)
        except (FileNotFoundError, NotADirectoryError):
            return False
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
        fd = again(os.open, path or ".", os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
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
