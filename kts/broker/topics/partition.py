"""A partition that the broker leads: its log, opened on first use, and the requests that wait for changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from kts.arguments import INT32_MAX
from kts.broker.codes import ApiError, ErrorCode
from kts.codec.validate import Validated
from kts.config import LogConfig
from kts.errors import KtsError, LogClosedError, LogStorageError
from kts.log.epochs import UNDEFINED
from kts.log.log import Log
from kts.segment.locks import new_in_children
from kts.segment.names import parse_file_name
from kts.store import descriptors
from kts.store.source import files

logger = logging.getLogger(__name__)


class Partition:
    """One partition of a topic, led by this broker.

    Parameters
    ----------
    path : str
        Its directory.
    topic : str
    index : int
    config : LogConfig
    leader_epoch : int
        The least leader epoch; opening the log raises it above the log's latest one.
    options : dict
        Further arguments of ``Log``.
    tell : callable
        Called with what its log tells once, and the text.

    Attributes
    ----------
    on_change : set of callables
        Called without arguments after appends, deletions of records and closing, in the thread that did it.
    failure : KtsError, optional
        Why the partition is offline. It stays offline until the next start.
    uncleanable : str, optional
        Why the cleaner leaves it alone until the next start.
    """

    def __init__(
        self,
        path: str,
        topic: str,
        index: int,
        *,
        config: LogConfig,
        leader_epoch: int,
        options: dict[str, Any],
        tell: Callable[[str, str], None],
    ) -> None:
        self.path = path
        self.topic = topic
        self.index = index
        self.config = config
        self.leader_epoch = leader_epoch
        self.on_change: set[Callable[[], None]] = set()
        self.failure: KtsError | None = None
        self.uncleanable: str | None = None
        self._options = options
        self._tell = tell
        self._opening: threading.RLock
        new_in_children(self, _opening=threading.RLock)
        self._log: Log | None = None
        self._gone: str | None = None

    def __repr__(self) -> str:
        return f"Partition({self.topic!r}, {self.index})"

    @property
    def is_open(self) -> bool:
        """Whether ``log`` is open."""
        return self._log is not None

    @property
    def is_offline(self) -> bool:
        """Whether the log failed; requests get KAFKA_STORAGE_ERROR."""
        log = self._log
        return self.failure is not None or (log is not None and log.closed and self._gone is None)

    @property
    def log(self) -> Log:
        """The log, opened on first use. After a crash, opening reads what was not flushed.

        Raises
        ------
        LogStorageError
            The log is damaged, fails or was deleted; or no file descriptor is left, which the next call tries again.
        """
        return self._log or self._open()

    def _open(self) -> Log:
        with self._opening:
            if self._log is not None:
                return self._log
            if self.failure is not None:
                raise LogStorageError(f"the partition is offline: {self.failure}", path=self.path) from self.failure
            if self._gone is not None:
                raise LogStorageError(f"the partition was {self._gone}", path=self.path)
            try:
                _check_files(self.path)
                log = Log(self.path, self.config, **self._options)
                log.tell = self._tell
                for found in log.recovered:
                    if found.path.endswith(".log"):  # not left-overs of deleted segments
                        logger.warning("at start-up, %s", found)
                known = log.leader_epochs
                if known and known[-1][0] >= self.leader_epoch:
                    self.leader_epoch = min(known[-1][0] + 1, INT32_MAX)
                log.begin_leader_epoch(self.leader_epoch)
            except (KtsError, OSError, ValueError) as error:
                number = getattr(error, "errno", None)
                failure = LogStorageError(f"{type(error).__name__}: {error}", path=self.path, errno=number)
                if number not in descriptors.NO_DESCRIPTOR:  # a lack of descriptors passes, the log may be sound
                    self.failure = failure
                raise failure from error
            self._log = log
            return log

    @property
    def size_bytes(self) -> int:
        """Bytes of the segments; if the log is not open, the sizes of the files.

        Raises
        ------
        LogStorageError
            The directory cannot be read.
        """
        log = self._log
        if log is not None:
            return log.size_bytes
        size = 0
        for entry in files.list_directory(self.path):
            name = parse_file_name(entry.name)
            if name is not None and name.suffix == ".log" and not (name.transition or name.tier_id):
                size += files.size_of(entry.path)
        return size

    def appends_at_once(self, size_bytes: int, timestamp_ms: int | None) -> bool:
        """Whether an append would not block; see ``Log.appends_at_once``."""
        log = self._log
        return log is not None and log.appends_at_once(size_bytes, timestamp_ms)

    def append(self, records: bytes | bytearray | memoryview, *, origin: str = "client") -> Validated:
        """Append records as the leader; see ``Log.append``.

        Raises
        ------
        LogStorageError
            The partition is offline.
        """
        try:
            done = self.log.append(records, leader_epoch=self.leader_epoch, origin=origin)
        except LogClosedError as error:
            raise LogStorageError(f"the partition is offline: {error.message}", path=self.path) from error
        if done.entries:
            self.changed()
        return done

    def check_leader_epoch(self, known: int) -> None:
        """Check the leader epoch that a client knows; -1 is a client that does not say.

        Raises
        ------
        ApiError
            FENCED_LEADER_EPOCH (74): it knows an older leader; UNKNOWN_LEADER_EPOCH (75): it knows a newer one.
        """
        if known not in (UNDEFINED, self.leader_epoch):
            error = ErrorCode.FENCED_LEADER_EPOCH if known < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise ApiError(error, f"expected leader epoch {self.leader_epoch}, found {known}")

    def changed(self) -> None:
        """Call the ``on_change`` callbacks."""
        for callback in tuple(self.on_change):
            callback()

    def reconfigure(self, config: LogConfig) -> None:
        """Change the settings."""
        with self._opening:
            if self._log is not None and not self._log.closed:
                self._log.reconfigure(config)
                self._log.begin_leader_epoch(self.leader_epoch)
            self.config = config
        self.changed()

    def close(self, why: str = "closed") -> None:
        """Close the log and wake the requests that wait. A second call does nothing.

        Raises
        ------
        LogStorageError
            The log could not be written. The next start recovers it.
        """
        with self._opening:
            if self._gone is not None:
                return
            self._gone = why
            log, self._log = self._log, None
        try:
            if log is not None:
                log.close()
        finally:
            self.changed()

    def abandon(self, why: str = "abandoned") -> None:
        """Release the log without writing, as if the process had died, and wake the requests that wait."""
        with self._opening:
            self._gone = self._gone or why
            log, self._log = self._log, None
        if log is not None:
            log.abandon()
        self.changed()


def _check_files(path: str) -> None:
    """Refuse symbolic links: the broker does not write to their targets."""
    for entry in files.list_directory(path):
        if entry.is_symlink():
            raise LogStorageError("expected regular files, found a symbolic link", path=entry.path)
