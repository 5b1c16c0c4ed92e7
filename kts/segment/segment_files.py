"""The files of a segment that is written to: opened, flushed, trimmed, renamed, closed."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from kts.config import LogConfig
from kts.errors import IndexFullError, InvalidOffsetError, KtsError, LogClosedError, LogStorageError
from kts.model import NO_TIMESTAMP
from kts.segment import files
from kts.segment.index import GREATEST_RELATIVE_OFFSET, NOTHING, OffsetIndexFile, TimeIndexFile
from kts.segment.index_checksums import Sealed
from kts.segment.index_entries import Rules
from kts.segment.locks import new_in_children


class SegmentFiles:
    """The three files of a segment, and what is known of them.

    Parameters
    ----------
    directory : str
        The partition directory.
    base_offset : int
        Of the segment. Files that are missing are made.
    config : LogConfig or mapping, optional
        The topic's settings.
    generation : str, optional
        "0.10.2" or "3.9"; None is that of the settings.
    shipped : bool
        Fail and leave behind what Kafka leaves; else a failed append leaves nothing.
    now_ms : int
        The clock, for segments without timestamps.
    jitter_ms : int
        Taken from ``segment.ms`` when the log asks whether to roll.
    suffix : str
        Behind the names of all files, as ``.swap``.
    """

    def __init__(
        self,
        directory: str,
        base_offset: int,
        config: LogConfig | Mapping[str, Any] | None = None,
        *,
        generation: str | None = None,
        shipped: bool = False,
        now_ms: int,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        self.config = LogConfig.of(config, generation=generation)
        self.generation = generation or self.config.generation
        self.shipped = shipped
        self.base_offset = base_offset
        self.jitter_ms = jitter_ms
        self.created_ms = now_ms
        self.failed: KtsError | None = None
        stem = os.path.join(directory, f"{base_offset:020d}")
        self.path = f"{stem}.log{suffix}"
        self._log: files.WritableFile | None = None
        self._log_dirty = False
        self._lent: weakref.WeakSet[files.FileRange] = weakref.WeakSet()
        self._allow_negative = self.config.allow_negative_timestamps
        self._least = NOTHING if self._allow_negative else NO_TIMESTAMP
        self._batches_are_indexed = self.generation != "0.10.2"
        self._interval = self.config.index_interval_bytes
        rules: dict[str, Any] = {"generation": self.generation, "shipped": shipped}
        most = self.config.segment_index_bytes
        index, time_index = f"{stem}.index{suffix}", f"{stem}.timeindex{suffix}"
        self._index_path = index
        self._index_lock: threading.Lock
        new_in_children(self, _index_lock=threading.Lock)
        missing = [path for path in (self.path, index, time_index) if not files.exists(path)]
        self.is_new = self.path in missing
        try:
            self._open_log()
            if index not in missing or not (shipped and self._batches_are_indexed):
                self.offset_index  # noqa: B018
            self.time_index = TimeIndexFile(time_index, base_offset, most, allow_negative=self._allow_negative, **rules)
        except LogStorageError:
            for path in missing:
                with suppress(LogStorageError):
                    files.remove(path, missing_ok=True)
            raise
        self._largest, self._offset_of_largest = self._last_time_entry()
        self._claimed = not (shipped or self.is_new)  # that is what an index says that the log did not confirm yet
        self._rolling_base: int | None = None
        self._since_last_entry = 0
        self.loaded_bytes = self.size  # of them the indexes know by the entries that lay there
        self.sealed: Sealed | None = None
        self.doubted: str | None = None  # what of the indexes the log does not confirm
        self.on_doubt: Callable[[Any], None] | None = None  # told once

    @cached_property
    def offset_index(self) -> OffsetIndexFile:
        """Made with the segment; 3.9 makes a missing one when it is first asked for."""
        with self._index_lock:
            made: OffsetIndexFile | None = self.__dict__.get("offset_index")
            most = self.config.segment_index_bytes
            rules: dict[str, Any] = {"generation": self.generation, "shipped": self.shipped}
            return made or OffsetIndexFile(self._index_path, self.base_offset, most, **rules)

    def _indexes(self) -> tuple[OffsetIndexFile | TimeIndexFile, ...]:
        """Those that are made."""
        return (self.offset_index, self.time_index) if "offset_index" in self.__dict__ else (self.time_index,)

    def _open_log(self) -> None:
        if self.is_new:
            with files.WritableFile(self.path, create=True) as file:
                if self.config.preallocate:
                    file.truncate(self.config.segment_bytes)
        self.size = 0 if self.is_new else files.size_of(self.path)

    def _last_time_entry(self) -> tuple[int, int]:
        # Entries before 1970 are of a log that had other settings, they count no longer.
        if self.time_index.entries and (self.time_index.last_timestamp >= 0 or self._allow_negative or self.shipped):
            return self.time_index.last_timestamp, self.time_index.last_offset
        return self._least, self.base_offset

    def __repr__(self) -> str:
        return f"LogSegment(base_offset={self.base_offset}, size={self.size})"

    # --- facts ------------------------------------------------------------------------------------

    @property
    def txn_index_path(self) -> str:
        """Where the ``.txnindex`` file is, or would be."""
        stem, _, suffix = self.path.rpartition(".log")
        return f"{stem}.txnindex{suffix}"

    @property
    def indexes_are_full(self) -> bool:
        """True if one of the indexes has no room: the log rolls before the next append."""
        return self.offset_index.is_full or self.time_index.is_full

    @property
    def modified_ms(self) -> int:
        """When the ``.log`` file was modified last, ms since the epoch."""
        return files.modified_ms(self.path)

    def rules(self) -> Rules:
        """What a rebuild of its indexes depends on."""
        limited = self.shipped and not self._batches_are_indexed
        return Rules(
            self._interval,
            self.config.segment_index_bytes,
            self.generation,
            self.shipped,
            self._allow_negative,
            self.config.max_message_bytes if limited else None,
        )

    def fits(self, offset: int) -> bool:
        """True if an offset can be told relative to the base offset."""
        relative = offset - self.base_offset
        return relative <= GREATEST_RELATIVE_OFFSET and (relative >= 0 or not self._batches_are_indexed)

    def log_file(self) -> files.File:
        """The log, for reading. Stays readable when the segment is renamed or deleted meanwhile."""
        log = self._log
        if log is not None:
            return log
        path = self.path
        try:
            return files.File(path)
        except LogStorageError as error:
            if error.errno != errno.ENOENT or path == self.path:
                raise
            return files.File(self.path)

    def _writable(self) -> files.WritableFile:
        if self.failed is not None:
            raise LogClosedError(f"the segment failed before: {self.failed}", path=self.path)
        log = self._log
        if log is None:
            log = self._log = files.WritableFile(self.path)
            files.keep_open(self)
        return log

    def _take_back(self, size: int) -> None:
        """Revoke what was lent of the bytes behind a position, which are about to be cut off."""
        for lent in list(self._lent):
            if lent.position + lent.count > size:
                lent.revoke()

    def _fail(self, error: LogStorageError) -> None:
        # Without its traceback, whose frames would keep the files open.
        self.failed = LogStorageError(error.message, path=error.path, errno=error.errno)

    # --- the files --------------------------------------------------------------------------------

    def resize_indexes(self, max_bytes: int | None = None) -> None:
        """Give both indexes room up to ``segment.index.bytes``, as an active segment needs it."""
        if max_bytes is not None:
            self.offset_index.max_bytes = self.time_index.max_bytes = max_bytes
        self.offset_index.resize(self.offset_index.max_bytes)
        self.time_index.resize(self.time_index.max_bytes)

    def append_closing_entry(self) -> None:
        """Add the greatest timestamp to the time index, if its last entry is earlier."""
        if self.doubted is not None:
            return
        self.time_index.maybe_append(self._largest, self._offset_of_largest, skip_full_check=True)

    def on_become_inactive_segment(self) -> None:
        """Close the time index, and give back the room that was kept."""
        self.append_closing_entry()
        self.offset_index.trim()
        self.time_index.trim()
        self._trim_log()

    def _trim_log(self) -> None:
        if self.config.preallocate and files.size_of(self.path) > self.size:
            self._log_dirty = True
            self._writable().truncate(self.size)

    def rest(self) -> None:
        """Hold no descriptors until it is written to again; one that is in use just now goes with its last user."""
        self._log = None
        for index in self._indexes():
            index.rest()

    def flush(self) -> None:
        """Wait until the log and both indexes are on the disk.

        Raises
        ------
        LogStorageError
            Then nobody knows what is: the segment has failed.
        """
        try:
            if self._log_dirty:
                self._writable().sync()
                self._log_dirty = False
            for index in self._indexes():
                index.flush()
        except LogStorageError as error:
            self._fail(error)
            raise

    # --- what the indexes were when they were closed --------------------------------------------

    def load_seal(self, sealed: Sealed | None) -> None:
        """Compare lengths and the last time entry with what was noted, if that is of this log."""
        if sealed is None or self.shipped:
            return
        index, times = self.offset_index, self.time_index
        if sealed.log_bytes != self.size:
            if sealed.log_bytes > self.size and index.size_bytes == sealed.index_bytes:  # who cuts a log changes both
                self.sealed = sealed  # to be noted again, as long as the end is missing
                self.doubt(f"the log had {sealed.log_bytes} bytes when it was closed, found {self.size}")
            return
        self.sealed = sealed
        if index.size_bytes != sealed.index_bytes:
            self.doubt(f"the offset index had {sealed.index_bytes} bytes when it was closed, found {index.size_bytes}")
        elif sealed.end_differs(times.size_bytes, times.last_entry):
            self.doubt("the time index does not end as it did when it was closed")
        else:
            self._claimed = False

    def seal(self) -> Sealed | None:
        """What the indexes are, if this log wrote all of them or they were so noted before."""
        if self.sealed is not None and (self.sealed.log_bytes == self.size or self.doubted is not None):
            return self.sealed
        if self.shipped or not self.size or any(index.own_from for index in self._indexes()):
            return None
        index, times = self.offset_index, self.time_index
        self.sealed = Sealed.of(self.size, index.read(), times.read(), times.last_entry)
        return self.sealed

    def doubt(self, why: str) -> None:
        """The log does not confirm what an index says: answers do without it, and it has to be rebuilt."""
        if self.doubted is None:
            self.doubted = why
            if self.on_doubt is not None:
                self.on_doubt(self)

    def go_on_from(self, before: SegmentFiles) -> None:
        """Be as old as the same segment was before it was loaded again."""
        self.created_ms, self.jitter_ms, self._rolling_base = before.created_ms, before.jitter_ms, before._rolling_base

    def close(self) -> None:
        """Close the time index, trim both, flush everything; a segment that failed is only let go."""
        try:
            if self.failed is None:
                self._close_indexes()
                self._trim_log()
                self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close all descriptors and leave the files as they are; nobody may be reading."""
        log, self._log = self._log, None
        try:
            if log is not None:
                log.close()
        finally:
            for index in self._indexes():
                index.abandon()

    def _close_indexes(self) -> None:
        try:
            self.append_closing_entry()
        except (IndexFullError, InvalidOffsetError):
            if not self.shipped:  # Kafka swallows it
                raise
        for index in self._indexes():
            index.trim()

    def change_file_suffixes(self, old: str, new: str) -> None:
        """Rename all its files, as to ``.deleted``."""
        txn_index = self.txn_index_path
        target = _replaced(self.path, old, new)
        files.rename(self.path, target)
        self.path = target
        self._index_path = _replaced(self._index_path, old, new)
        for index in self._indexes():
            index.rename(_replaced(index.path, old, new))
        if files.exists(txn_index):
            files.rename(txn_index, _replaced(txn_index, old, new))

    def delete(self) -> None:
        """Remove all its files; those that are gone already do not matter."""
        self.rest()
        files.remove(self.path, missing_ok=True)
        for index in self._indexes():
            index.delete()
        files.remove(self.txn_index_path, missing_ok=True)


def _replaced(path: str, old: str, new: str) -> str:
    if not path.endswith(old):
        raise ValueError(f"suffix: expected the name to end with {old!r}, found {path!r}")
    return path[: len(path) - len(old)] + new
