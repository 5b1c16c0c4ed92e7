"""The files of this machine: every system call on one goes through this module's name ``os``.

Files are read with pread and written with pwrite, never mapped: a broker may append, truncate or delete meanwhile, and
a mapped file that shrinks would kill the process. A test can put another file system in place of ``os``.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from operator import attrgetter
from typing import Self

from kts.errors import LogStorageError
from kts.store.addresses import require_local
from kts.store.descriptors import NO_DESCRIPTOR, more_descriptors, tell_no_descriptor, with_descriptor
from kts.store.protocol import DirectoryEntry

Bytes = bytes | bytearray | memoryview
# Without O_NONBLOCK a FIFO with a segment's name would hang the program.
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
KEPT_BYTES = 2**18  # cache of a RereadFile
PIECE_BYTES = 2**20  # read at once of a file that is read whole


def failure(error: OSError, path: str, doing: str) -> LogStorageError:
    """An operating system error as a LogStorageError with its errno."""
    message = f"{doing} failed: {error.strerror or error}"
    if error.errno in NO_DESCRIPTOR:
        tell_no_descriptor()
        message += f"; {more_descriptors()}"
    return LogStorageError(message, path=path, errno=error.errno)


class storage_errors:
    """A context that raises an operating system error as a LogStorageError with its errno.

    It is no generator: until Python 3.14 an error that passes one keeps its frames, and the files that they hold stay
    open, until the garbage is collected.
    """

    def __init__(self, path: str, doing: str) -> None:
        self.path, self.doing = path, doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            raise failure(error, self.path, self.doing) from error


def _opened(path: str, flags: int, mode: int = 0o777) -> int:
    return int(with_descriptor(os.open, path, flags | getattr(os, "O_CLOEXEC", 0), mode))


def _close(fd: int) -> None:
    with suppress(InterruptedError):  # Python repeats other calls, and this one must not be: the descriptor is closed
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
        try:
            self._fd = _opened(path, _READ_FLAGS | self._flags(), 0o666)
            regular = stat.S_ISREG(os.fstat(self._fd).st_mode)
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
            return os.fstat(self._fd).st_size
        except OSError as error:
            raise failure(error, self.path, "reading the size") from error

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer from a position; fewer bytes only at the end of the file."""
        done = 0
        with storage_errors(self.path, "reading"):
            while done < len(buffer):
                count = os.preadv(self._fd, [buffer[done:]], position + done)
                if count == 0:
                    break
                done += count
        return done

    def read(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes from a position; fewer only at the end of the file."""
        try:
            data = os.pread(self._fd, count, position)
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
        shared.path, shared._fd = self.path, self.duplicate(self.path)
        return shared

    def duplicate(self, path: str) -> int:
        """Another descriptor of the open file, for a file of that path."""
        with storage_errors(path, "sharing the descriptor"):
            return int(with_descriptor(os.dup, self._fd))


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
                    os.dup2(nothing, self.file.fileno(), inheritable=False)
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
        except OSError as error:
            raise failure(error, self.path, f"writing {len(data)} bytes at {position}") from error
        if done != len(data):
            self._write_rest(memoryview(data), position, done)

    def _write_rest(self, data: memoryview, position: int, done: int) -> None:
        with storage_errors(self.path, f"writing {len(data)} bytes at {position}"):
            while done < len(data):
                count = os.pwrite(self._fd, data[done:], position + done)
                if count == 0:
                    raise OSError(errno.EIO, f"no byte after {done} was taken")
                done += count

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with zeros that take no disk space."""
        with storage_errors(self.path, f"truncating to {size} bytes"):
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Wait until all data is on disk. After a failure the state on disk is unknown: close the log."""
        with storage_errors(self.path, "syncing"):
            os.fsync(self._fd)


def nameless_file(of: str) -> WritableFile:
    """A new temporary file without a name, which is gone when it is closed; for the contents of another file."""
    file = WritableFile.__new__(WritableFile)
    with storage_errors(of, f"making a temporary file in {tempfile.gettempdir()}"):
        file._fd, file.path = with_descriptor(tempfile.mkstemp)
        os.unlink(file.path)
    return file


def read_small(path: str, most: int) -> bytes | None:
    """A whole file of at most ``most`` bytes; None for a larger one, and for what is no regular file."""
    try:
        fd = os.open(path, _READ_FLAGS)
        try:
            status = os.fstat(fd)
            if status.st_size > most or not stat.S_ISREG(status.st_mode):
                return None
            data = os.pread(fd, most + 1, 0)
        finally:
            _close(fd)
    except OSError as error:
        raise failure(error, path, "reading") from error
    return data if len(data) <= most else None


def identity(path: str) -> tuple[int, ...] | None:
    """A value that changes when the file is replaced or written; None if there is no file."""
    with storage_errors(path, "looking at it"):
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


def modified_ms(path: str) -> int:
    """Modification time in ms since the epoch, rounded down as in Java."""
    with storage_errors(path, "reading the modification time"):
        return os.stat(path).st_mtime_ns // 1_000_000


def size_of(path: str) -> int:
    """Length now, in bytes."""
    with storage_errors(path, "reading the size"):
        status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise LogStorageError("expected a regular file, found something else", path=path)
    return status.st_size


def exists(path: str) -> bool:
    """True if the path exists; raises if the system cannot tell."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise failure(error, path, "looking for it") from error
    return True


def walk_directory(path: str) -> Iterator[DirectoryEntry]:
    """Entries of a directory in no order."""
    with storage_errors(path, "listing"), with_descriptor(os.scandir, path) as entries:
        yield from entries


def names_in(path: str) -> list[str]:
    """Names in a directory in any order."""
    with storage_errors(path, "listing"):
        names: list[str] = with_descriptor(os.listdir, path)
    return names


def rename(source: str, target: str) -> None:
    """Rename a file or directory; a file of that name is replaced atomically."""
    with storage_errors(source, f"renaming to {os.path.basename(target)}"):
        os.replace(source, target)


def remove(path: str, *, missing_ok: bool = False) -> None:
    """Delete a file."""
    with storage_errors(path, "deleting"):
        try:
            os.unlink(path)
        except FileNotFoundError:
            if not missing_ok:
                raise


def remove_directory(path: str) -> None:
    """Delete an empty directory."""
    with storage_errors(path, "deleting"):
        os.rmdir(path)


def remove_tree(path: str) -> None:
    """Delete a directory with everything in it, if it exists; another process may do the same."""
    try:
        for entry in sorted(walk_directory(path), key=attrgetter("name")):
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
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):  # else another process was quicker
                raise NotADirectoryError(errno.ENOTDIR, "expected a directory, found a file", path) from None


def sync_directory(path: str) -> None:
    """Wait until the names in a directory are on disk."""
    with storage_errors(path or ".", "syncing the directory"):
        fd = _opened(path or ".", os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            os.fsync(fd)
        finally:
            _close(fd)


def copy_mode(source: str, target: str) -> None:
    """Copy a file's permissions to another."""
    with storage_errors(target, "setting the permissions"):
        os.chmod(target, stat.S_IMODE(os.stat(source).st_mode))


def set_modified_ms(path: str, time_ms: int) -> None:
    """Set the modification time of a file, ms since the epoch."""
    with storage_errors(path, "setting the modification time"):
        accessed = os.stat(path).st_atime_ns
        os.utime(path, ns=(accessed, time_ms * 1_000_000))
