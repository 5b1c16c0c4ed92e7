"""What changes the segments of a log besides appends: rolling, retention, truncation, and its other offsets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kts.codec.encode import integer
from kts.config import INT32_MAX
from kts.errors import KtsError, LogStorageError, OffsetOutOfRangeError, UnsupportedVersionError
from kts.log import arguments, retention
from kts.log.arguments import INT64_MAX
from kts.log.directory import RECOVERY_POINTS
from kts.log.log_reading import ReadableLog
from kts.log.opening import open_segment
from kts.log.producer_state import rebuild_producers
from kts.log.retention import LogFacts, Policy, SegmentFacts
from kts.segment import files
from kts.segment.log_segment import SUFFIXES, LogSegment
from kts.segment.snapshots import truncate_aborted


class Deleted(NamedTuple):
    """A segment that retention took, and the rule it was taken by."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    rule: str


class ChangingLog(ReadableLog):
    """A log whose segments come and go; see ``Log``."""

    # --- rolling ----------------------------------------------------------------------------------

    def roll(self) -> int:
        """Close the active segment and begin a new one at the log end offset, which is returned."""
        with self._lock:
            self._writable()
            return self._roll(self._end, self._clock()).base_offset

    def _roll(self, base_offset: int, now_ms: int) -> LogSegment:
        """The old segment is on the disk before the new one is made: no crash leaves a hole between them."""
        segments = self._view.segments
        active = segments[-1]
        if base_offset <= active.base_offset:
            return self._roll_in_place(active, base_offset, now_ms)
        with self._or_fail():
            for suffix in SUFFIXES:
                files.remove(f"{self.path}/{base_offset:020d}{suffix}", missing_ok=True)
            with self._readers.alone():
                active.on_become_inactive_segment()
            active.flush()  # its closing entry, also where all records were flushed before
            active.seal()
            self._flush_to(base_offset, now_ms)
        try:
            new = open_segment(self.path, base_offset, self.config, self.shipped, now_ms)
        except LogStorageError:
            with self._or_fail():  # go on with the old one
                active.resize_indexes()
            raise
        active.rest()
        with self._or_fail():
            self._publish((*segments, new), (*self._view.bases, base_offset))
            self._after_roll(base_offset)
            if self._proposals is not None:
                self._proposals.rolled(active.base_offset, base_offset)
        return new

    def _after_roll(self, base_offset: int) -> None:
        self._producers.end_offset = base_offset
        if self._snapshots is not None:
            self._snapshots.take()

    def _roll_in_place(self, active: LogSegment, base_offset: int, now_ms: int) -> LogSegment:
        """A new segment where an empty one lies already, because its indexes are too small."""
        refused = self.shipped and self.generation == "0.10.2"
        if active.size and not refused:
            raise KtsError(
                f"expected to roll behind offset {active.base_offset}, found {base_offset}", path=active.path
            )
        with self._or_fail(), self._readers.alone():
            if refused:  # 0.10.2 goes on with indexes of no size, and so refuses every append until a restart
                active.on_become_inactive_segment()
                active.rest()
                files.remove(active.path)
            else:
                self._rename_deleted([active], now_ms)
            new = open_segment(self.path, active.base_offset, self.config, self.shipped, now_ms)
            self._publish((*self._view.segments[:-1], new))
            self._after_roll(base_offset)
        if refused:
            raise KtsError(f"expected no segment at offset {base_offset} to roll to, found one", path=new.path)
        return new

    # --- retention --------------------------------------------------------------------------------

    def delete_old_segments(self) -> list[Deleted]:
        """Apply retention: what is too old, too much, or below the log start offset goes, from the oldest on.

        Notes
        -----
        Files are renamed ``.deleted`` and removed when ``file.delete.delay.ms`` is over and a later call sees it.
        """
        with self._lock:
            self._writable()
            now = self._clock()
            config = self.config
            policy = Policy(config.retention_ms, config.retention_bytes, config.deletes, self.generation)
            gone: list[Deleted] = []
            for rule in retention.rules(policy):
                facts = self._facts()
                count = retention.deletable(rule, facts, policy, now)
                if count == 0:
                    continue
                segments = self._view.segments[:count]
                if count == len(self._view.segments):
                    self._roll(self._end, now)
                gone += [Deleted(*one[:3], rule) for one in facts.segments[:count]]
                self._log_start = max(self._log_start, self._view.bases[count])
                with self._or_fail():
                    self._take_out(segments, now)
            self._sweep(now)
        self._repair()
        return gone

    def _facts(self) -> LogFacts:
        found = [
            SegmentFacts(segment.base_offset, segment.size, segment.largest_timestamp_ms, not segment.has_timestamp)
            for segment in self._view.segments
        ]
        mark = None if self.generation == "0.10.2" else self.high_watermark
        return LogFacts(tuple(found), self._end, self.log_start_offset, mark)

    def _take_out(self, segments: Sequence[LogSegment], now_ms: int) -> None:
        """Remove segments, in an order that leaves no hole if the machine stops meanwhile."""
        gone = set(map(id, segments))
        self._publish(tuple(segment for segment in self._view.segments if id(segment) not in gone))
        self._rename_deleted(segments, now_ms)
        if self._proposals is not None:
            for segment in segments:
                self._proposals.removed(segment.base_offset)

    def _rename_deleted(self, segments: Sequence[LogSegment], now_ms: int) -> None:
        delay = self.config.file_delete_delay_ms
        for segment in segments:
            with self._readers.alone():
                segment.change_file_suffixes("", ".deleted")
                segment.abandon()
            self._doomed.add(now_ms, delay, segment.delete)
            doomed = self._snapshots.rename_deleted(segment.base_offset) if self._snapshots is not None else None
            if doomed is not None:
                self._doomed.add(now_ms, delay, partial(files.remove, doomed, missing_ok=True))
            files.sync_directory(self.path)
        self._sweep(now_ms)

    def _sweep(self, now_ms: int) -> None:
        if self._doomed.is_due(now_ms):
            with self._or_fail(), self._readers.alone():
                self._doomed.sweep(now_ms)

    def delete_due_files(self) -> None:
        """Remove the ``.deleted`` files whose time has come; appends, rolls and retention do so as well."""
        with self._lock:
            self._writable()
            self._sweep(self._clock())

    def remove_expired_producers(self) -> int:
        """Forget the producers that were silent for ``producer.id.expiration.ms``; returns how many."""
        with self._lock:
            self._writable()
            return self._producers.remove_expired(self._clock())

    # --- offsets ----------------------------------------------------------------------------------

    def begin_leader_epoch(self, epoch: int) -> None:
        """A leader of this epoch starts at the log's end, as far as the message format has epochs."""
        with self._lock:
            self._writable()
            if self._epochs is not None:
                self._epochs.begin(integer("epoch", epoch, 0, INT32_MAX), self._end)

    def advance_high_watermark(self, offset: int) -> None:
        """From now on the high watermark is this one, at most the log end offset; it no longer follows by itself."""
        with self._lock:
            self._writable()
            offset = integer("offset", offset, -INT64_MAX - 1, INT64_MAX)
            self._high_watermark = min(max(offset, self.log_start_offset), self._end)
            self._publish()

    def advance_log_start_offset(self, offset: int) -> bool:
        """Records below an offset count no longer; False if that was so already. Retention deletes the segments.

        Raises
        ------
        OffsetOutOfRangeError
            It is beyond the high watermark.
        UnsupportedVersionError
            Kafka 0.10.2 has no such thing.
        """
        with self._lock:
            self._writable()
            if self.generation == "0.10.2":
                raise UnsupportedVersionError("the log start offset moves with the first segment in 0.10.2")
            offset = integer("offset", offset, -INT64_MAX - 1, INT64_MAX)
            if offset > self.high_watermark:
                raise OffsetOutOfRangeError(
                    f"expected a log start offset of at most the high watermark {self.high_watermark}, found {offset}",
                    offset=offset,
                )
            if offset <= self.log_start_offset:
                return False
            self._log_start = offset
            self.recovery_point = max(self.recovery_point, offset)
            self._publish()
            with self._or_fail():
                if self._epochs is not None:
                    self._epochs.truncate_from_start(offset)
                if self._snapshots is not None:
                    self._snapshots.on_log_start(offset)
                self._checkpoint(self._clock())
            return True

    # --- truncation -------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop the batches that reach an offset and all behind; it is the next to be given. False if nothing changed.

        Notes
        -----
        When this returns, what was dropped is gone from the disk. A batch that the offset lies in goes as a whole.
        """
        offset = arguments.offset("offset", offset)
        with self._lock:
            self._writable()
            old = self.generation == "0.10.2"
            if offset > self._end or (offset == self._end and not old):
                if self._epochs is not None:
                    self._epochs.truncate_from_end(self._end)
                return False
            if offset < self._view.bases[0]:
                self.truncate_fully_and_start_at(offset)
                return True
            now = self._clock()
            with self._or_fail(), self._readers.alone():
                self._lower_recovery_point(offset)
                later = [segment for segment in self._view.segments if segment.base_offset > offset]
                self._take_out(later[::-1], now)
                active = self._view.segments[-1]
                active.truncate_to(offset, now)
                truncate_aborted(active.txn_index_path, offset)
                active.flush()
                self._end = offset
                if self._log_start > offset:
                    self._log_start = offset
                if self._epochs is not None:
                    self._epochs.truncate_from_end(offset)
                self._publish()
                if self._snapshots is not None:
                    start = self._view.log_start_offset
                    state, magic = self._snapshots, self.config.magic
                    rebuild_producers(state, self._view.segments, start, offset, now, magic=magic)
                self._after_truncation(offset, now)
            self._repair()  # what is appended next rests on it
            return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log goes on at an offset."""
        offset = arguments.offset("offset", offset)
        with self._lock:
            self._writable()
            now = self._clock()
            with self._or_fail(), self._readers.alone():
                self._lower_recovery_point(offset)
                gone = self._view.segments
                self._rename_deleted(gone[::-1], now)
                new = open_segment(self.path, offset, self.config, self.shipped, now)
                files.sync_directory(self.path)
                self._end = self._log_start = offset
                if self._epochs is not None:
                    self._epochs.clear()
                self._producers.clear()
                if self._snapshots is not None:
                    self._snapshots.clear(offset)
                self._publish((new,))
                self._after_truncation(offset, now)

    def _lower_recovery_point(self, offset: int) -> None:
        if offset < self.recovery_point:
            self.recovery_point = offset
            self._directory.write_checkpoint(RECOVERY_POINTS, offset)

    def _after_truncation(self, offset: int, now_ms: int) -> None:
        if self._high_watermark is not None:
            self._high_watermark = min(self._high_watermark, self._end)
        self._publish()
        self._checkpoint(now_ms)
        if self._proposals is not None:
            self._proposals.truncated(offset)
