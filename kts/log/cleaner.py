"""The cleaner of compacted logs: what may be cleaned, and a pass, which makes segments without superseded records.

A pass reads the dirty part of a log into a map of keys to their last offsets, and writes the segments from the first
one up to the last mapped offset anew, a group of them into one. Offsets and times of records never change.

Source: LogCleaner, LogCleanerManager, LogToClean (3.9, 4.3).
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from kts import _codec
from kts.arguments import DEDUPE_BUFFER_BYTES, DEFAULT_MAX_DECOMPRESSED_BYTES, INT32_MAX, INT64_MAX
from kts.behaviour import Behaviour
from kts.codec.layout import OVERHEAD_BYTES, claimed_size
from kts.config import LogConfig
from kts.errors import CorruptRecordError, KtsError, LogStorageError
from kts.model import Cleaned
from kts.segment.entries import at
from kts.segment.log_segment import LogSegment
from kts.segment.names import SEGMENT_SUFFIXES
from kts.segment.producers import AbortedBatch, ProducerStateEntry
from kts.segment.transactions import append_aborted, read_aborted, sync_aborted
from kts.store import local
from kts.store.local import WritableFile
from kts.store.protocol import Readable
from kts.store.source import files

LOAD_FACTOR = 0.9  # log.cleaner.io.buffer.load.factor
PIECE_BYTES = 2**20  # read at once
CLEANED = ".cleaned"

Progress = Callable[[int], None]  # told bytes that were read


# --- what may be cleaned ----------------------------------------------------------------------------


def between(segments: Sequence[LogSegment], start: int, end: int) -> Sequence[LogSegment]:
    """The segments from the one that holds an offset up to those that begin before another offset."""
    if start == end:
        return ()
    bases = [segment.base_offset for segment in segments]
    return segments[max(bisect_right(bases, start) - 1, 0) : bisect_left(bases, end)]


def inactive_from(segments: Sequence[LogSegment], offset: int) -> Sequence[LogSegment]:
    """The segments from the one that holds an offset up to the active one."""
    active = segments[-1].base_offset
    return () if offset > active else between(segments, offset, active)


class Cleanable(NamedTuple):
    """Which part of a log may be cleaned.

    Attributes
    ----------
    first_dirty_offset : int
        Where the part begins that was not cleaned yet.
    first_uncleanable_offset : int
        Where the part begins that must stay as it is; the whole segment that holds it does.
    end_offset : int
        The base offset of that segment.
    resets_checkpoint : bool
        The cleaner's checkpoint is outside of the log.
    overdue_ms : int
        How long the oldest dirty record is older than ``max.compaction.lag.ms``; 0 if it is not.
    clean_bytes, cleanable_bytes : int
        Sizes of the clean part, and of the dirty part that may be cleaned.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    end_offset: int
    resets_checkpoint: bool
    overdue_ms: int
    clean_bytes: int
    cleanable_bytes: int

    @property
    def dirty_ratio(self) -> float:
        """The share of the cleanable bytes; 0 of an empty log."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def why_not(self, config: LogConfig) -> str | None:
        """Why the cleaner would not take this log by itself; None if it would."""
        if self.overdue_ms > 0 and self.cleanable_bytes:
            return None
        if self.dirty_ratio > config.min_cleanable_dirty_ratio:
            return None
        if not self.cleanable_bytes:
            return "nothing can be cleaned"
        least = config.min_cleanable_dirty_ratio
        return f"the dirty ratio {self.dirty_ratio:.3f} is not above min.cleanable.dirty.ratio {least:g}"


def cleanable(
    segments: Sequence[LogSegment],
    log_start_offset: int,
    end_offset: int,
    last_stable_offset: int,
    checkpoint: int | None,
    config: LogConfig,
    now_ms: int,
) -> Cleanable:
    """Which part of a log may be cleaned.

    Parameters
    ----------
    checkpoint : int or None
        The first dirty offset that the last pass left.
    """
    first_dirty = log_start_offset if checkpoint is None else checkpoint
    resets = not log_start_offset <= first_dirty <= end_offset
    if resets:
        first_dirty = log_start_offset
    dirty = inactive_from(segments, first_dirty)
    limits = [last_stable_offset, segments[-1].base_offset]
    if (lag := config.min_compaction_lag_ms) > 0:
        limits += [one.base_offset for one in dirty if one.largest_timestamp_ms > now_ms - lag][:1]
    first_uncleanable = max(first_dirty, min(limits))
    uncleanable = (*inactive_from(segments, first_uncleanable), segments[-1])[0].base_offset
    due_before = now_ms - config.max_compaction_lag_ms
    first_times = (one.first_timestamp_ms for one in dirty)
    oldest = min((time for time in first_times if time is not None and time > 0), default=INT64_MAX)
    return Cleanable(
        first_dirty,
        first_uncleanable,
        uncleanable,
        resets,
        max(due_before - oldest, 0),
        sum(one.size for one in between(segments, -1, first_dirty)),
        sum(one.size for one in between(segments, min(first_dirty, uncleanable), uncleanable)),
    )


def grouped(segments: Sequence[LogSegment], config: LogConfig, end_offset: int) -> Iterator[list[LogSegment]]:
    """The segments that become one: within ``segment.bytes``, ``segment.index.bytes`` and 2^31-1 offsets together."""
    most, most_index = config.segment_bytes, config.segment_index_bytes
    place = 0
    while place < len(segments):
        first = segments[place]
        group = [first]
        size, index_size, time_index_size = first.size, first.offset_index.size_bytes, first.time_index.size_bytes
        place += 1
        while place < len(segments):
            one = segments[place]
            behind = segments[place + 1].base_offset if place + 1 < len(segments) else end_offset
            if (
                size + one.size > most
                or index_size + one.offset_index.size_bytes > most_index
                or time_index_size + one.time_index.size_bytes > most_index
                or (one.size and behind - 1 - group[-1].base_offset > INT32_MAX)
            ):
                break
            group.append(one)
            size += one.size
            index_size += one.offset_index.size_bytes
            time_index_size += one.time_index.size_bytes
            place += 1
        yield group


# --- a pass -----------------------------------------------------------------------------------------


class Interrupted(Exception):
    """The log changed or was closed during a pass: what was not swapped in yet is left as it was."""


class CleanedLog(NamedTuple):
    """What a pass asks of its log.

    Attributes
    ----------
    segments : sequence of LogSegment
        All of them, as they were when the pass began.
    log_start_offset : int
    producers : callable
        The producers that the log knows now.
    check : callable
        Raises Interrupted or LogClosedError where the pass must not go on.
    """

    segments: Sequence[LogSegment]
    log_start_offset: int
    producers: Callable[[], Iterable[ProducerStateEntry]]
    check: Callable[[], None]


class CleaningPass:
    """One pass over a log. It reads files and makes new ones aside; the log puts them in the place of the old.

    Parameters
    ----------
    now_ms : int
        The clock.
    dedupe_buffer_bytes, load_factor
        Memory of the offset map, and which part of its slots may be in use.
    on_progress : callable, optional
        Told the bytes that were read since the last call.
    """

    def __init__(
        self,
        log: CleanedLog,
        plan: Cleanable,
        config: LogConfig,
        behaviour: Behaviour,
        now_ms: int,
        dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
        load_factor: float = LOAD_FACTOR,
        on_progress: Progress | None = None,
    ) -> None:
        slots = dedupe_buffer_bytes // _codec.SLOT_BYTES
        keys = int(slots * load_factor)
        if keys < 1:
            raise ValueError(
                f"dedupe_buffer_bytes: expected room for a key, found {dedupe_buffer_bytes} bytes, a slot has"
                f" {_codec.SLOT_BYTES}, with load_factor {load_factor:g}"
            )
        self.log, self.plan, self.config, self.behaviour, self.now_ms = log, plan, config, behaviour, now_ms
        self.on_progress = on_progress
        times = behaviour.times
        self.cleaner = _codec.Cleaner(
            slots=slots,
            keys=keys,
            secret=os.urandom(16),
            start=plan.first_dirty_offset,
            now=now_ms,
            retention=config.delete_retention_ms,
            end=plan.end_offset,
            verify=behaviour.checks_cleaned_entries,
            keep_last=behaviour.keeps_last_message,
            none=times.none if times.before_1970 else None,
            max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
        )
        self.memory = memoryview(bytearray(PIECE_BYTES))

    # --- the map ----------------------------------------------------------------------------------

    def map(self) -> None:
        """Read the dirty part into the offset map, as far as it has room."""
        plan = self.plan
        dirty = between(self.log.segments, plan.first_dirty_offset, plan.end_offset)
        self.cleaner.add_aborted(self._aborted(plan.first_dirty_offset, plan.end_offset))
        ends = [*(segment.base_offset for segment in dirty[1:]), plan.end_offset]
        for segment, end in zip(dirty, ends, strict=False):
            start = segment.trust.place(plan.first_dirty_offset) if self.behaviour.maps_from_index else 0
            if self._walk(segment, start, self.cleaner.map):
                return
            self.cleaner.latest = end - 1  # also where offsets are missing

    def _aborted(self, start: int, end: int) -> list[AbortedBatch]:
        """The aborted transactions from the segment that holds an offset up to another, by the transaction indexes."""
        least = self.log.log_start_offset if self.behaviour.aborts_above_start else 0
        found: list[AbortedBatch] = []
        for segment in between(self.log.segments, start, INT64_MAX):
            path = segment.txn_index_path
            listed = read_aborted(path) if files.exists(path) else []
            for one in listed:
                if one.last_offset >= least and one.first_offset < end:
                    found.append(one)
                if one.last_stable_offset >= end:
                    return found
        return found

    # --- reading ----------------------------------------------------------------------------------

    def _walk(self, segment: LogSegment, position: int, take: Callable[[memoryview], tuple[int, bool]]) -> bool:
        """Hand over the entries of a segment in pieces, until ``take`` says that it is done, which is returned."""
        log, size = segment.log_file(), segment.size
        while position < size:
            self.log.check()
            want = min(len(self.memory), size - position)
            count = log.read_into(self.memory[:want], position)
            if count < want:
                raise LogStorageError(f"expected {size} bytes, found {position + count}", path=segment.path)
            try:
                done, stop = take(self.memory[:want])
            except CorruptRecordError as error:
                raise at(error, segment.path, position) from error.__cause__
            if self.on_progress is not None:
                self.on_progress(done)
            if stop:
                return True
            if not done:
                self._make_room(log, position, size - position, segment.path)
            position += done
        return False

    def _make_room(self, log: Readable, position: int, left: int, path: str) -> None:
        """Enlarge the memory for an entry that does not fit."""
        size = claimed_size(log.read(position, OVERHEAD_BYTES)) or OVERHEAD_BYTES
        if size > left or size <= len(self.memory):
            why = f"expected a whole entry of {size} bytes, found {left} bytes to the end of the segment"
            raise CorruptRecordError(why, path=path, position=position)
        self.memory = memoryview(bytearray(size))

    # --- the groups -------------------------------------------------------------------------------

    def groups(self) -> list[list[LogSegment]]:
        """The segments to clean, by the new segments that they become."""
        self.cleaner.begin()
        chosen = between(self.log.segments, 0, self.cleaner.latest + 1)
        clean = between(self.log.segments, 0, self.plan.first_dirty_offset)
        self.legacy_horizon_ms = clean[-1].modified_ms - self.config.delete_retention_ms if clean else 0
        return list(grouped(chosen, self.config, self.plan.end_offset))

    def filter(self, group: Sequence[LogSegment], write: Callable[[memoryview], None]) -> None:
        """Read the entries of a group, and write those that stay."""
        last_records = [(one.producer_id, one.epoch, one.last.last_offset) for one in self.log.producers()]
        self.cleaner.know_producers(last_records)

        def take(data: memoryview) -> tuple[int, bool]:
            done = self.cleaner.filter(data)
            if len(kept := self.cleaner.take()):
                write(kept)
            return done, False

        for place, segment in enumerate(group):
            end = group[place + 1].base_offset if place + 1 < len(group) else segment.next_offset()
            self.cleaner.add_aborted(self._aborted(segment.base_offset, end))
            self.cleaner.keep_deletes(segment.modified_ms > self.legacy_horizon_ms)
            self._walk(segment, 0, take)

    def make(self, folder: str, group: Sequence[LogSegment]) -> LogSegment:
        """The segment that a group becomes, on disk, in files called ``.cleaned``."""
        base = group[0].base_offset
        remove_cleaned(folder, base)
        try:
            made = self._written(folder, group)
            done = made.recover()
            if done.reason is not None:
                raise KtsError(f"the cleaner wrote what it cannot read: {done.reason}", path=made.path)
            if listed := self.cleaner.listed():
                append_aborted(made.txn_index_path, [AbortedBatch(*one) for one in listed])
                sync_aborted([made.txn_index_path])
            made.flush()
            made.rest()
            local.set_modified_ms(made.path, group[-1].modified_ms)
            local.sync_directory(folder)
        except BaseException as error:
            if self.behaviour.removes_failed_pass and not isinstance(error, Interrupted):
                with suppress(LogStorageError):
                    remove_cleaned(folder, base)
            raise
        return made

    def _written(self, folder: str, group: Sequence[LogSegment]) -> LogSegment:
        """A segment with what stays of a group, without index entries. It gets its indexes with the first bytes."""
        base, size = group[0].base_offset, 0
        made: LogSegment | None = None

        def opened() -> LogSegment:
            return LogSegment(folder, base, self.config, self.behaviour, now_ms=self.now_ms, suffix=CLEANED)

        with WritableFile(os.path.join(folder, f"{base:020d}.log{CLEANED}"), create=True) as file:

            def write(data: memoryview) -> None:
                nonlocal made, size
                if made is None:
                    made = opened()
                    made.open_offset_index()
                file.write(data, size)
                size += len(data)

            self.filter(group, write)
        made = made or opened()
        made.size = size
        return made

    def result(self, reason: str | None, next_dirty: int, groups: int, segments: int) -> Cleaned:
        """What was done."""
        counts = self.cleaner.counts()
        removed = {name: counts[name] for name in ("superseded", "tombstones", "aborted", "markers", "without_key")}
        kept = {name: counts[f"kept_{name}"] for name in ("tombstones", "markers")}
        kept |= {name: counts[name] for name in ("unmapped", "emptied")}
        return Cleaned(
            reason,
            self.plan.first_dirty_offset,
            next_dirty,
            self.cleaner.keys,
            segments,
            groups,
            counts["bytes_read"],
            counts["bytes_written"],
            counts["records_written"] + sum(removed.values()),
            counts["records_written"],
            removed,
            kept,
            self.cleaner.map_bytes,
        )


def remove_cleaned(folder: str, base_offset: int) -> None:
    """Remove what a pass left of a segment that it did not swap in."""
    for suffix in SEGMENT_SUFFIXES:
        files.remove(os.path.join(folder, f"{base_offset:020d}{suffix}{CLEANED}"), missing_ok=True)
