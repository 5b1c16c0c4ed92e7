"""A log directory that this process writes to: its lock, the marker of a clean shutdown, the checkpoints."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from kts.log.commit import finish_commit
from kts.segment import checkpoints
from kts.segment.index_checksums import IndexChecksums, Sealed
from kts.segment.locks import FileLock, new_in_children
from kts.segment.magic_checkpoint import MagicCheckpoint, NotedMagics
from kts.segment.names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    parse_directory_name,
    parse_file_name,
)
from kts.segment.rereading import warn
from kts.store import local, publishing
from kts.store.source import files
from kts.times import wall_clock

LOCK = ".lock"
CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, CLEANER_OFFSETS)
CONTROLLER = "__cluster_metadata"  # the controller's own log, which it recovers at every start

_changes = threading.RLock()
new_in_children(sys.modules[__name__], _changes=threading.RLock)
_open: dict[tuple[int, str], _State] = {}  # by process and directory


class _State:
    """The state of a log directory while this process writes to partitions in it.

    Notes
    -----
    A checkpoint is read once: while the lock is held, nobody else writes it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        finish_commit(path)  # of a process that died
        self.members = 0
        self.marker = files.read_if_there(os.path.join(path, CLEAN_SHUTDOWN))
        self.marker_is_gone = False
        self.opened: set[str] = set()
        self.closed_clean: set[str] = set()
        self.is_whole = False  # a LogDirectory is open: its holder decides when checkpoints are due
        self.collecting = 0  # callers inside checkpoints_at_once
        self.checksums = IndexChecksums(path)
        self.magics = MagicCheckpoint(path)
        self.forgotten: set[tuple[str, int]] = set()  # partitions that the files on disk may still name
        self._offsets: dict[str, checkpoints.Offsets] = {}  # by the checkpoint's name
        self.malformed: dict[str, tuple[str, str]] = {}  # checkpoints -> what is wrong, where a copy of each is kept
        self._unwritten: set[str] = set()

    def offsets(self, file: str) -> checkpoints.Offsets:
        """The offsets of a checkpoint, including changes not yet on disk."""
        if file not in self._offsets:
            path = os.path.join(self.path, file)
            found = checkpoints.read_checkpoint(path)
            fault = checkpoints.Checkpoints(self.path).fault_of_file(file)
            if fault is not None:  # the next write replaces it
                aside = f"{path}.aside-{wall_clock()}"
                publishing.publish(aside, files.read_bytes(path))
                self.malformed[path] = fault, aside
                self._unwritten.add(file)
            self._offsets[file] = dict(found or {})
            if fault is not None:
                warn(f"{path}: {fault}; {checkpoints.MEANINGS[file]}; kept as {aside}", path)
        return self._offsets[file]

    def set(self, file: str, key: tuple[str, int], offset: int | None) -> None:
        """Change a line of a checkpoint, or remove it. If the file cannot be written, nothing changes."""
        offsets = self.offsets(file)
        before = offsets.get(key)
        if before == offset:
            return
        _put(offsets, key, offset)
        self._unwritten.add(file)
        try:
            self.write_unless_collecting()
        except BaseException:
            _put(offsets, key, before)
            raise

    def forget(self, partitions: Collection[tuple[str, int]]) -> None:
        """Remove partitions from all files; they are written with the next change."""
        for key in partitions:
            self.checksums.forget(*key)
            self.magics.forget(*key)
            for file in CHECKPOINTS:
                if self.offsets(file).pop(key, None) is not None:
                    self._unwritten.add(file)
                    self.forgotten.add(key)

    def write_unless_collecting(self) -> None:
        if not self.collecting:
            self.write()

    def write(self) -> None:
        """Replace each file that changed."""
        for file in sorted(self._unwritten):
            checkpoints.write_checkpoint(os.path.join(self.path, file), self._offsets[file])
            self._unwritten.discard(file)
        self.checksums.write()
        self.magics.write()
        self.forgotten.clear()

    def nothing_is_clean(self) -> None:
        """Count no partition as clean: a checkpoint could not be written."""
        self.marker = None
        self.closed_clean.clear()

    def is_clean(self, name: str) -> bool:
        return name in self.closed_clean or (self.marker is not None and name not in self.opened)


def homes_of(partition: str, *segments: str) -> list[tuple[str, str]]:
    """The log directories whose locks a writer of a partition needs, each with the partition's directory in it.

    If the partition or one of its files is a link, the log directory of its target is included.

    Parameters
    ----------
    partition : str
        Its directory, which need not exist yet.
    segments : str
        Segment files to include whatever their names.
    """
    linked = list(segments)
    if os.path.isdir(partition):
        entries = files.list_directory(partition)
        linked += [one.path for one in entries if one.is_symlink() and parse_file_name(one.name) is not None]
    owner = os.path.realpath(partition)
    found = {(os.path.realpath(os.path.dirname(partition)), owner): os.path.dirname(partition)}
    for real in (owner, *(os.path.dirname(os.path.realpath(path)) for path in linked)):
        found.setdefault((os.path.dirname(real), real), os.path.dirname(real))
    return [(home, owner) for (_, owner), home in found.items()]


@contextmanager
def held(partition: str, *segments: str) -> Iterator[None]:
    """Hold the locks of a partition and of the targets of its links. Lock files that did not exist are removed after.

    Raises
    ------
    LogLockedError
        A broker or another program holds one of the log directories.
    """
    with ExitStack() as stack:
        for home, owner in homes_of(os.path.abspath(partition), *map(os.path.abspath, segments)):
            path = os.path.join(home, LOCK)
            made = not files.exists(path)
            stack.enter_context(FileLock(path, owner))
            if made:
                stack.callback(files.remove, path, missing_ok=True)
        yield


class LogDirectory:
    """A log directory that is locked as a whole, whether its partitions are open or not.

    Parameters
    ----------
    path : str
        The log directory.

    Raises
    ------
    LogLockedError
        A broker or another process holds it, or this process already does.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        real = os.path.realpath(path)
        self._key = os.getpid(), real
        with _changes:
            self._lock: FileLock | None = FileLock(os.path.join(path, LOCK), real)
            try:
                shared = _open.get(self._key) or _State(path)
            except BaseException:
                self._lock.release()
                raise
            _open[self._key] = shared
            shared.members += 1
            shared.is_whole = True

    def made(self, topic: str, partition: int) -> None:
        """A partition's directory was created: it needs no recovery even if nobody opens it."""
        with _changes:
            shared = _open[self._key]
            if (topic, partition) in shared.forgotten:  # after a crash it must not inherit old offsets
                shared.write()
            shared.closed_clean.add(f"{topic}-{partition}")

    @contextmanager
    def checkpoints_at_once(self) -> Iterator[None]:
        """Write each checkpoint once, at the end of the block, instead of once for each log."""
        with _changes:
            shared = _open[self._key]
            shared.collecting += 1  # with several threads, each writes the changes of all when it is done
        try:
            yield
        finally:
            with _changes:
                shared.collecting -= 1
                try:
                    shared.write()
                except BaseException:
                    shared.nothing_is_clean()
                    raise

    def forget(self, partitions: Collection[tuple[str, int]]) -> None:
        """Remove partitions from all checkpoints. Files change with the next write, or if one is created again."""
        with _changes:
            _open[self._key].forget(partitions)

    def forget_cleaned(self, topic: str, partition: int) -> None:
        """Remove a partition from the cleaner's checkpoint: other segments take the place of those it cleaned."""
        with _changes:
            _open[self._key].set(CLEANER_OFFSETS, (topic, partition), None)

    def forget_strays(self) -> None:
        """Remove the partitions without a directory: a process deleted them and died before it wrote the files."""
        with _changes:
            shared = _open[self._key]
            there = {entry.name for entry in files.list_directory(self.path)}
            known = {key for file in CHECKPOINTS for key in shared.offsets(file)}
            shared.forget([(topic, index) for topic, index in known if f"{topic}-{index}" not in there])

    def leave(self, *, clean: bool = True) -> None:
        """Release the lock; mark a clean shutdown if all partitions are clean. A second call does nothing.

        Parameters
        ----------
        clean : bool
            False marks no clean shutdown.
        """
        with _changes:
            lock, self._lock = self._lock, None
            if lock is None:
                return
            try:
                _open[self._key].members -= 1
                _open[self._key].is_whole = False
                _leave(self._key, self.path, clean=clean)
            finally:
                lock.release()


class PartitionEntry:
    """A partition's entry in its log directory: created when its log opens, released when it closes.

    Parameters
    ----------
    path : str
        The log directory.
    name : str
        Of the partition's directory.

    Attributes
    ----------
    clean : bool
        The partition was closed cleanly: by this process, or by an earlier one that left the marker.

    Raises
    ------
    LogLockedError
        A broker or another process holds the directory, or this process holds the partition.

    Notes
    -----
    The marker is removed when the first partition opens. The last one that closes writes it again, with the same bytes,
    if every partition in the directory is known to be clean.

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
            self._locks: list[FileLock] = []
            try:
                for home, owner in homes_of(os.path.join(path, name)):
                    self._locks.append(FileLock(os.path.join(home, LOCK), owner))
                shared = _open.get(self._key) or _State(path)
                self.clean = shared.is_clean(name)
                if not shared.marker_is_gone:
                    files.remove(os.path.join(path, CLEAN_SHUTDOWN), missing_ok=True)
                    local.sync_directory(path)
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
        """Release the lock; a second call does nothing.

        Parameters
        ----------
        clean : bool
            All files of the partition are whole and on disk.
        """
        with _changes:
            shared = _open.get(self._key)
            if not self._locks:
                return
            try:
                if shared is None or not self._counted:  # a second attempt, after Ctrl-C in the first
                    return
                self._counted = False
                shared.members -= 1
                if clean:
                    shared.closed_clean.add(self.name)
                _leave(self._key, self.path, clean=clean)
            finally:
                self._unlock()

    def _unlock(self) -> None:
        while self._locks:
            self._locks[-1].release()
            self._locks.pop()

    @property
    def is_held_as_a_whole(self) -> bool:
        """Whether a ``LogDirectory`` is open: then its owner writes the checkpoints of all partitions."""
        return _open[self._key].is_whole

    def checkpoint(self, file: str) -> int | None:
        """The partition's offset in a checkpoint, None if it has none."""
        with _changes:
            return _open[self._key].offsets(file).get((self.topic, self.partition))

    def index_checksums(self) -> dict[int, Sealed]:
        """The state of the partition's indexes when they were closed, by base offset."""
        with _changes:
            return _open[self._key].checksums.of(self.topic, self.partition)

    def noted_magics(self) -> dict[int, NotedMagics]:
        """The magics of the partition's segments when they were closed, by base offset."""
        with _changes:
            return _open[self._key].magics.of(self.topic, self.partition)

    def note_closed(self, indexes: Mapping[int, Sealed], magics: Mapping[int, NotedMagics]) -> None:
        """Replace the partition's index checksums and magics."""
        with _changes:
            shared = _open[self._key]
            shared.checksums.replace(self.topic, self.partition, indexes)
            shared.magics.replace(self.topic, self.partition, magics)
            shared.write_unless_collecting()

    def forget_closed(self, bases: Collection[int]) -> None:
        """Remove the index checksums and magics of segments whose files are about to be replaced."""
        with _changes:
            shared, key = _open[self._key], (self.topic, self.partition)
            sealed, noted = shared.checksums.of(*key), shared.magics.of(*key)
            if not (sealed.keys() | noted.keys()) & set(bases):
                return
            shared.checksums.replace(*key, {base: one for base, one in sealed.items() if base not in bases})
            shared.magics.replace(*key, {base: one for base, one in noted.items() if base not in bases})
            shared.write_unless_collecting()

    def malformed(self) -> dict[str, tuple[str, str]]:
        """The malformed checkpoints of the log directory: what is wrong with each, and where a copy is kept."""
        with _changes:
            shared = _open[self._key]
            for file in CHECKPOINTS:
                shared.offsets(file)
            return dict(shared.malformed)

    def write_checkpoint(self, file: str, offset: int | None) -> None:
        """Replace the partition's line in a checkpoint, or remove it; the lines of others stay."""
        with _changes:
            _open[self._key].set(file, (self.topic, self.partition), offset)


def _put(offsets: checkpoints.Offsets, key: tuple[str, int], offset: int | None) -> None:
    if offset is None:
        offsets.pop(key, None)
    else:
        offsets[key] = offset


def _leave(key: tuple[int, str], path: str, *, clean: bool) -> None:
    """If no member is left, forget the directory; write the marker if every partition in it is clean."""
    shared = _open[key]
    if shared.members == 0:
        del _open[key]
        if clean and all(map(shared.is_clean, _partitions(path))):
            publishing.publish(os.path.join(path, CLEAN_SHUTDOWN), shared.marker or b"")


def _partitions(path: str) -> list[str]:
    """The partitions of a log directory that a broker would load."""
    found = []
    for entry in files.list_directory(path):
        name = parse_directory_name(entry.name)
        if name is not None and name.state in ("", "future") and name.topic != CONTROLLER and files.is_directory(entry):
            found.append(entry.name)
    return found
