"""What the partitions of one log directory share: its lock, the marker of a clean shutdown, the checkpoints."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from kts.storage import checkpoints, file_names, files
from kts.storage.locks import FileLock

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CONTROLLER = "__cluster_metadata"  # the controller's own log, which it recovers at every start

_changes = threading.RLock()
_open: dict[tuple[int, str], _Shared] = {}  # by process and directory


class _Shared:
    """What this process knows of a log directory while it writes to partitions in it."""

    def __init__(self, path: str) -> None:
        self.members = 0
        self.marker = _read_if_there(os.path.join(path, CLEAN_SHUTDOWN))
        self.marker_is_gone = False
        self.opened: set[str] = set()
        self.closed_clean: set[str] = set()
        self.waiting: dict[str, checkpoints.Offsets] | None = None  # checkpoints that are written later, by path

    def nothing_is_clean(self) -> None:
        """What closed cleanly relied on checkpoints that were not written."""
        self.marker = None
        self.closed_clean.clear()

    def is_clean(self, name: str) -> bool:
        return name in self.closed_clean or (self.marker is not None and name not in self.opened)


class WholeDirectory:
    """A log directory that is held as long as its partitions are served, whichever of them are open.

    Parameters
    ----------
    path : str
        The log directory.

    Raises
    ------
    LogLockedError
        A broker or another process has it, or this process already.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        real = os.path.realpath(path)
        self._key = os.getpid(), real
        with _changes:
            self._lock: FileLock | None = FileLock(os.path.join(path, LOCK), real)
            try:
                shared = _open.get(self._key) or _Shared(path)
            except BaseException:
                self._lock.release()
                raise
            _open[self._key] = shared
            shared.members += 1

    def made(self, name: str) -> None:
        """A partition's directory was made just now: it needs no recovery though nobody opens it."""
        with _changes:
            _open[self._key].closed_clean.add(name)

    @contextmanager
    def checkpoints_at_once(self) -> Iterator[None]:
        """What logs write to the checkpoints meanwhile goes to the disk at the end: each file once, not once a log."""
        with _changes:
            shared = _open[self._key]
            if shared.waiting is None:  # else another thread collects: the first to end writes what both have
                shared.waiting = {}
        try:
            yield
        finally:
            with _changes:
                waiting, shared.waiting = shared.waiting or {}, None
                try:
                    for path, offsets in waiting.items():
                        if offsets != checkpoints.read_checkpoint(path):
                            checkpoints.write_checkpoint(path, offsets)
                except BaseException:
                    shared.nothing_is_clean()
                    raise

    def forget(self, partitions: Collection[tuple[str, int]]) -> None:
        """Take partitions out of all checkpoints."""
        with _changes:
            for file in (RECOVERY_POINTS, file_names.HIGH_WATERMARKS, file_names.LOG_START_OFFSETS):
                path = os.path.join(self.path, file)
                known = checkpoints.read_checkpoint(path) or {}
                kept = {key: offset for key, offset in known.items() if key not in partitions}
                if len(kept) != len(known):
                    checkpoints.write_checkpoint(path, kept)
                waiting = (_open[self._key].waiting or {}).get(path, {})
                for key in waiting.keys() & set(partitions):
                    del waiting[key]

    def leave(self) -> None:
        """Give it back; a second call does nothing. The marker of a clean stop is written if all partitions are."""
        with _changes:
            lock, self._lock = self._lock, None
            if lock is None:
                return
            try:
                _open[self._key].members -= 1
                _leave(self._key, self.path, clean=True)
            finally:
                lock.release()


class LogDirectory:
    """A partition's part in its log directory; taken when the log is opened, given back when it is closed.

    Parameters
    ----------
    path : str
        The log directory.
    name : str
        Of the partition's directory.

    Attributes
    ----------
    clean : bool
        Whether the partition was closed cleanly: by this process, or by the one before, which left the marker.

    Raises
    ------
    LogLockedError
        A broker or another process has the directory, or this process the partition.

    Notes
    -----
    The marker goes as soon as a partition is opened. The last one to close writes it again, with the bytes it had, if
    every partition in the directory is known to be clean.

    Source: LogManager, CleanShutdownFileHandler.
    """

    def __init__(self, path: str, name: str, topic: str, partition: int) -> None:
        self.path = path
        self.name = name
        self.topic = topic
        self.partition = partition
        real = os.path.realpath(path)
        self._key = os.getpid(), real
        with _changes:
            owner = os.path.realpath(os.path.join(path, name))
            self._lock: FileLock | None = FileLock(os.path.join(path, LOCK), owner)
            self._linked: FileLock | None = None
            try:
                if os.path.dirname(owner) != real:  # a link: the log directory that it leads to is locked as well
                    self._linked = FileLock(os.path.join(os.path.dirname(owner), LOCK), owner)
                shared = _open.get(self._key) or _Shared(path)
                self.clean = shared.is_clean(name)
                if not shared.marker_is_gone:
                    files.remove(os.path.join(path, CLEAN_SHUTDOWN), missing_ok=True)
                    files.sync_directory(path)
                    shared.marker_is_gone = True
            except BaseException:
                self._unlock()
                raise
            _open[self._key] = shared
            shared.members += 1
            self._counted = True
            shared.opened.add(name)
            shared.closed_clean.discard(name)

    def leave(self, *, clean: bool) -> None:
        """Give the lock back; a second call does nothing.

        Parameters
        ----------
        clean : bool
            All of the partition's files are whole and on disk.
        """
        with _changes:
            shared = _open.get(self._key)
            if self._lock is None:
                return
            try:
                if shared is None or not self._counted:  # a second try, after Ctrl-C in the first
                    return
                self._counted = False
                shared.members -= 1
                if clean:
                    shared.closed_clean.add(self.name)
                _leave(self._key, self.path, clean=clean)
            finally:
                self._unlock()

    def _unlock(self) -> None:
        for lock in (self._linked, self._lock):
            if lock is not None:
                lock.release()
        self._linked = self._lock = None

    def checkpoint(self, file: str) -> int | None:
        """The partition's offset in a checkpoint file, None if it has none."""
        known = checkpoints.read_checkpoint(os.path.join(self.path, file)) or {}
        return known.get((self.topic, self.partition))

    def write_checkpoint(self, file: str, offset: int | None) -> None:
        """Replace the partition's line in a checkpoint file, or take it out; the lines of others stay."""
        path = os.path.join(self.path, file)
        with _changes:
            shared = _open.get(self._key)
            waiting = shared.waiting if shared is not None else None
            if waiting is None or path not in waiting:
                known = checkpoints.read_checkpoint(path)
                offsets = dict(known or {})
            else:
                offsets = waiting[path]
            key = self.topic, self.partition
            if offsets.get(key) == offset:
                return
            if offset is None:
                offsets.pop(key, None)
            else:
                offsets[key] = offset
            if waiting is None:
                checkpoints.write_checkpoint(path, offsets)
            else:
                waiting[path] = offsets


def _leave(key: tuple[int, str], path: str, *, clean: bool) -> None:
    """Nobody may be left: then the process has the directory no more, and says so if all of it is whole."""
    shared = _open[key]
    if shared.members == 0:
        del _open[key]
        if clean and all(map(shared.is_clean, _partitions(path))):
            files.write_atomically(os.path.join(path, CLEAN_SHUTDOWN), shared.marker or b"")


def _partitions(path: str) -> list[str]:
    """The partitions of a log directory that a broker would load."""
    found = []
    for entry in files.list_directory(path):
        name = file_names.parse_directory_name(entry.name)
        if name is not None and name.state in ("", "future") and name.topic != CONTROLLER and files.is_directory(entry):
            found.append(entry.name)
    return found


def _read_if_there(path: str) -> bytes | None:
    return files.read_bytes(path) if files.exists(path) else None
