"""File locks, which allow one writer for each log directory, and locks that survive a fork."""

from __future__ import annotations

import errno
import os
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Self

from kts.errors import LogLockedError
from kts.store import local
from kts.store.local import File, WritableFile

# --- locks in a forked process ---------------------------------------------------------------------

_made: weakref.WeakKeyDictionary[object, dict[str, Callable[[], Any]]] = weakref.WeakKeyDictionary()


def new_in_children(owner: object, **makers: Callable[[], Any]) -> None:
    """Set lock attributes of an object, and replace them in a forked child, where no thread would release them.

    The child has its own copy of the protected state, and no other thread changes it. Other code checks whether the
    child may use it at all.
    """
    _made[owner] = makers
    _make(owner, makers)


def _make(owner: object, makers: dict[str, Callable[[], Any]]) -> None:
    for name, make in makers.items():
        setattr(owner, name, make())


def _in_child() -> None:
    for owner, makers in list(_made.items()):
        _make(owner, makers)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


# --- locks on files -------------------------------------------------------------------------------

_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, length, process
_changes = threading.RLock()  # reentrant: an unused log may be garbage-collected while another one opens
new_in_children(sys.modules[__name__], _changes=threading.RLock)
_held: dict[tuple[int, int, int], _Held] = {}  # by process, device and inode


class _Held:
    """A lock that this process holds, and its owners."""

    def __init__(self, file: WritableFile) -> None:
        self.file = file
        self.owners: set[str] = set()


def _asked(file: File) -> tuple[int, ...]:
    """The lock that is in the way of one on the whole file, as ``struct flock``; of type F_UNLCK if there is none."""
    import fcntl

    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    return struct.unpack(_FLOCK, fcntl.fcntl(file.fileno(), fcntl.F_GETLK, asked))


def _holder(file: File) -> str:
    """The process that holds the lock, if the system reports it."""
    try:
        told = _asked(file)
    except OSError:
        return ""
    return f" ({told[4]})" if sys.platform == "linux" and told[4] > 0 else ""


def is_locked(path: str) -> bool:
    """Whether a process, perhaps this one, holds a ``FileLock``; False if there is no file."""
    import fcntl

    with _changes, local.storage_errors(path, "looking at the lock"):
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if (os.getpid(), status.st_dev, status.st_ino) in _held:  # then no other descriptor may be opened and closed
            return True
        with File(path) as file:
            return _asked(file)[0] != fcntl.F_UNLCK


class FileLock:
    """A file lock compatible with Java's FileLock: a live broker and kts exclude each other. A context manager.

    Parameters
    ----------
    path : str
        The file, created if it is missing: ``.lock`` of a log directory.
    owner : str
        The owner's name. Different owners in one process share the lock, as a broker's partitions do; two of the same
        name exclude each other.

    Raises
    ------
    LogLockedError
        Another process holds the lock, or this process holds it for the same owner.

    Notes
    -----
    The operating system releases the lock when the process ends. It also does when any other descriptor of the file is
    closed, so no other code may open the file.
    """

    def __init__(self, path: str, owner: str) -> None:
        import fcntl

        self.path = path
        self.owner = owner
        self._key: tuple[int, int, int] | None = None
        with _changes, local.storage_errors(path, "locking"):
            key = self._identity()
            if key not in _held:
                file = WritableFile(path, create=True)
                try:
                    fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    holder = _holder(file)
                    file.close()
                    if error.errno not in (errno.EAGAIN, errno.EACCES):
                        raise
                    raise LogLockedError(f"another process{holder} holds the lock", path=path) from error
                key = self._identity()
                _held[key] = _Held(file)
            if owner in _held[key].owners:
                raise LogLockedError(f"{owner} is already open for writing in this process", path=path)
            _held[key].owners.add(owner)
            self._key = key

    def _identity(self) -> tuple[int, int, int]:
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return os.getpid(), -1, -1
        return os.getpid(), status.st_dev, status.st_ino

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        with _changes:
            key = self._key
            held = _held.get(key) if key and key[0] == os.getpid() else None
            if held is not None and key is not None:
                held.owners.discard(self.owner)
                if not held.owners:
                    _held.pop(key, None)
                    held.file.close()
            self._key = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
