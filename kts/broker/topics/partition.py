"""A partition that a broker serves: its log, opened when it is first needed, and who waits for news of it."""

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
from kts.segment import files
from kts.segment.locks import new_in_children
from kts.segment.names import parse_file_name

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
        At least; it is raised above all that the log knows when that is opened.
    options : dict
        What ``Log`` is opened with besides.

    Attributes
    ----------
    on_change : set of callables
        Called without arguments after appends, deletions of records, and when it goes, from whatever thread did it.
    failure : KtsError, optional
        Why it is offline; it stays so until the next start.
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
    ) -> None:
        self.path = path
        self.topic = topic
        self.index = index
        self.config = config
        self.leader_epoch = leader_epoch
        self.on_change: set[Callable[[], None]] = set()
        self.failure: KtsError | None = None
        self._options = options
        self._opening: threading.RLock
        new_in_children(self, _opening=threading.RLock)
        self._log: Log | None = None
        self._gone: str | None = None

    def __repr__(self) -> str:
        return f"Partition({self.topic!r}, {self.index})"

    @property
    def is_open(self) -> bool:
        """Whether ``log`` answers at once."""
        return self._log is not None

    @property
    def is_offline(self) -> bool:
        """Whether its log failed: requests get KAFKA_STORAGE_ERROR."""
        log = self._log
        return self.failure is not None or (log is not None and log.closed and self._gone is None)

    @property
    def log(self) -> Log:
        """The log, which is opened now if nobody did: after a kill that takes as long as reading what was not flushed.

        Raises
        ------
        LogStorageError
            It is damaged, fails, or went with its topic; or no descriptor is left, which is tried again the next time.
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
                for found in log.recovered:
                    if found.path.endswith(".log"):  # not what was left over of deleted segments
                        logger.warning("at start-up, %s", found)
                known = log.leader_epochs
                if known and known[-1][0] >= self.leader_epoch:
                    self.leader_epoch = min(known[-1][0] + 1, INT32_MAX)
                log.begin_leader_epoch(self.leader_epoch)
            except (KtsError, OSError, ValueError) as error:
                number = getattr(error, "errno", None)
                failure = LogStorageError(f"{type(error).__name__}: {error}", path=self.path, errno=number)
                if number not in files.NO_DESCRIPTOR:  # that passes: the log itself may be as good as ever
                    self.failure = failure
                raise failure from error
            self._log = log
            return log

    @property
    def size_bytes(self) -> int:
        """Bytes of its segments; where nobody opened the log yet, those of the files.

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
        """Whether a set can be appended where nothing may wait; see ``Log.appends_at_once``."""
        log = self._log
        return log is not None and log.appends_at_once(size_bytes, timestamp_ms)

    def append(self, records: bytes | bytearray | memoryview, *, origin: str = "client") -> Validated:
        """Append a set as the leader; see ``Log.append``.

        Raises
        ------
        LogStorageError
            It is offline.
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
        """Wake up who waits for news."""
        for callback in tuple(self.on_change):
            callback()

    def reconfigure(self, config: LogConfig) -> None:
        """Follow other settings from now on."""
        with self._opening:
            if self._log is not None and not self._log.closed:
                self._log.reconfigure(config)
                self._log.begin_leader_epoch(self.leader_epoch)
            self.config = config
        self.changed()

    def close(self, why: str = "closed") -> None:
        """Close the log, and tell who waits; a second call does nothing.

        Raises
        ------
        LogStorageError
            Something could not be written: the next start recovers.
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
        """Let go of it without writing, as a process does that dies, and tell who waits."""
        with self._opening:
            self._gone = self._gone or why
            log, self._log = self._log, None
        if log is not None:
            log.abandon()
        self.changed()


def _check_files(path: str) -> None:
    """Links are not followed: what they lead to is not the broker's to write."""
    for entry in files.list_directory(path):
        if entry.is_symlink():
            raise LogStorageError("expected regular files, found a symbolic link", path=entry.path)
