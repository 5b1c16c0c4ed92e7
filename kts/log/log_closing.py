"""How a log that is open for writing reaches the disk, and how it is closed: cleanly, or let go of."""

from __future__ import annotations

import os
import sys
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from kts.errors import KtsError, LogStorageError
from kts.log.directory import RECOVERY_POINTS
from kts.log.log_base import BaseLog, is_over
from kts.segment import files
from kts.segment.index_checksums import Sealed
from kts.segment.log_segment import LogSegment
from kts.segment.names import HIGH_WATERMARKS, LOG_START_OFFSETS
from kts.segment.snapshots import sync_aborted

CHECKPOINT_INTERVAL_MS = 60_000  # log.flush.offset.checkpoint.interval.ms


class ClosableLog(BaseLog):
    """A log that is flushed and closed; see ``Log``."""

    def flush(self) -> None:
        """Wait until all that was appended is on the disk; the recovery point moves to the log end offset."""
        with self._lock:
            self._writable()
            with self._or_fail():
                self._flush_to(self._end, self._clock())

    def flush_if_due(self, now_ms: int) -> None:
        """Flush it if ``flush.ms`` are over since the last time and something was appended."""
        with self._lock:
            self._writable()
            if is_over(self._last_flush, self.config.flush_ms, now_ms):
                with self._or_fail():
                    self._flush_to(self._end, now_ms)

    def checkpoint(self) -> None:
        """Note how far it is flushed, in the log directory's checkpoints."""
        with self._lock:
            self._writable()
            with self._or_fail():
                self._checkpoint(self._clock())

    def rest(self) -> None:
        """Hold no descriptors until it is written to again."""
        with self._lock:
            self._writable()
            with self._or_fail():
                self._view.segments[-1].rest()

    def _repair(self) -> None:
        """Rebuild the indexes that answers could not use."""
        while self._doubted:
            with suppress(IndexError):  # another thread took it
                self._repair_one(self._doubted.pop())

    def _repair_one(self, segment: LogSegment) -> None:
        try:
            remade = segment.remade()  # appends and readers go on meanwhile
        except LogStorageError:
            return  # deleted meanwhile, or the disk fails: whoever needs the log gets that error
        with self._lock:
            segments = self._view.segments
            if self.closed or self._process != os.getpid() or segment not in segments:
                return
            following = next((one.base_offset for one in segments if one.base_offset > segment.base_offset), None)
            with self._or_fail(), self._readers.alone():
                try:
                    done = segment.repair(remade, following)
                except LogStorageError:  # a full disk, for example: answers still do without the indexes
                    return
            if done is not None and done not in self.recovered:
                self.recovered = [*self.recovered, done]
                warnings.warn(str(done), UserWarning, stacklevel=4)

    def _flush_to(self, offset: int, now_ms: int) -> None:
        if offset > self.recovery_point:
            first = max(bisect_right(self._view.bases, self.recovery_point) - 1, 0)
            for segment in self._view.segments[first:]:
                if segment.base_offset < offset:
                    segment.flush()
            self._sync_aborted()
            files.sync_directory(self.path)
            self.recovery_point = offset
            self._last_flush = now_ms
            if self._proposals is not None:
                self._proposals.flushed()
        if not self._directory.is_held_as_a_whole and is_over(self._last_checkpoint, CHECKPOINT_INTERVAL_MS, now_ms):
            self._checkpoint(now_ms)

    def _sync_aborted(self) -> None:
        if self._unsynced:
            sync_aborted(self._unsynced)
            self._unsynced.clear()

    def _checkpoint(self, now_ms: int) -> None:
        """Write the partition's lines in the log directory's checkpoints."""
        view = self._view
        self._directory.write_checkpoint(RECOVERY_POINTS, self.recovery_point)
        self._directory.write_checkpoint(HIGH_WATERMARKS, self.high_watermark)
        moved = view.log_start_offset > view.bases[0]
        self._directory.write_checkpoint(LOG_START_OFFSETS, view.log_start_offset if moved else None)
        self._last_checkpoint = now_ms

    @contextmanager
    def _or_fail(self) -> Iterator[None]:
        """If the disk fails in here, or Ctrl-C ends it, nobody knows what is done: the log closes, to be recovered."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, LogStorageError) or not isinstance(error, KtsError):
                self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """Close after an error that left a file in doubt; only its words are kept, a traceback keeps files open."""
        self._failure = str(error) if isinstance(error, KtsError) else f"{type(error).__name__} {error}".rstrip()
        self.abandon()

    def close(self) -> None:
        """Write everything, say that it is whole, and give the locks back; a second call does nothing.

        Raises
        ------
        LogStorageError
            Something could not be written: the next start recovers.
        """
        if self._process != os.getpid():  # a fork of who has it open
            return
        self._repair()
        with self._lock:
            if self.closed:
                return
            with self._or_fail(), self._readers.alone():
                self._write_all()
                if self._proposals is not None:
                    self._proposals.closed()
                self._directory.leave(clean=True)
                self.closed = True

    def _write_all(self) -> None:
        """Close the segments; everything is on the disk then."""
        if self._epochs is not None:
            self._epochs.write()
        if self._snapshots is not None:
            self._snapshots.take()
        sealed: dict[int, Sealed] = {}
        for segment in self._view.segments:
            segment.close()
            done = segment.seal()
            if done is not None:
                sealed[segment.base_offset] = done
        self._sync_aborted()
        files.sync_directory(self.path)
        self.recovery_point = self._end
        self._checkpoint(self._clock())
        self._directory.write_index_checksums(sealed)

    def abandon(self) -> None:
        """Let go of everything without writing anything, as a process does that dies; the next start recovers."""
        with self._lock:
            if self.closed or self._process != os.getpid():
                return
            self.closed = True
            with self._readers.alone():
                for segment in self._view.segments:
                    with suppress(LogStorageError):
                        segment.abandon()
            if self._proposals is not None:
                with suppress(LogStorageError):
                    self._proposals.closed()
            with suppress(LogStorageError):
                self._directory.leave(clean=False)

    def __del__(self) -> None:
        """Nobody can close it any more: the lock is given back, and the next start recovers."""
        if not self.closed and self._process == os.getpid() and not sys.is_finalizing():
            self.abandon()
            warnings.warn(f"a log was never closed: {self.path}", ResourceWarning, source=self, stacklevel=1)

    def __reduce__(self) -> str:
        raise TypeError(f"expected something that can be copied or pickled, found the open log {self.path}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
