"""Start-up of a partition: finish or undo what a crash interrupted, and recover what it may have damaged."""

from __future__ import annotations

import os
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from kts.behaviour import Behaviour
from kts.codec.layout import HEADER_BYTES, read_header
from kts.config import LogConfig
from kts.errors import CorruptIndexError, CorruptRecordError, InvalidOffsetError
from kts.log.epochs import LeaderEpochs, epochs_of
from kts.log.policies import roll_jitter_ms
from kts.log.producer_state import ProducerState
from kts.segment.confirmation import entry_at
from kts.segment.damage import next_sound_entry
from kts.segment.entries import Batches
from kts.segment.index_checksums import Sealed
from kts.segment.log_segment import LogSegment
from kts.segment.magic_checkpoint import NotedMagics
from kts.segment.names import BOTH_INDEXES, INDEX_SUFFIXES, LEADER_EPOCHS, SEGMENT_SUFFIXES, FileName, parse_file_name
from kts.segment.overlaps import Overlaps
from kts.segment.producers import EXPIRATION_MS, AbortedBatch
from kts.segment.rebuild import IndexConfig, Recovered, rebuild
from kts.segment.rereading import warn
from kts.segment.segment import Segment
from kts.segment.swaps import end_of_swap, swaps_in
from kts.segment.transactions import (
    AbortedTransaction,
    append_aborted,
    are_confirmed,
    read_txn_index,
    sync_aborted,
    truncate_aborted,
)
from kts.store import local, publishing
from kts.store.local import File
from kts.store.source import files

MISSING = "the offset index is missing"


def open_segment(path: str, base_offset: int, config: LogConfig, behaviour: Behaviour, now_ms: int) -> LogSegment:
    """Open a segment of a partition directory; create it if it has no files."""
    jitter = roll_jitter_ms(config, random.getrandbits(32) - 2**31) if config.segment_jitter_ms else 0
    return LogSegment(path, base_offset, config, behaviour, now_ms=now_ms, jitter_ms=jitter)


class LogLoader:
    """Loads a partition directory that nobody else writes to.

    Parameters
    ----------
    clean : bool
        The last writer closed the partition: only a damaged tail and missing or invalid indexes are recovered.
    log_start_offset, recovery_point : int
        From the checkpoints; 0 if there are none.
    sealed : mapping of base offset to Sealed
        The state of the indexes when they were closed.
    noted : mapping of base offset to NotedMagics
        The magics of the segments when they were closed; believed if ``clean``.

    Attributes
    ----------
    segments : list of LogSegment
        Oldest first, at least one after ``load``.
    end_offset : int
    epochs : LeaderEpochs
    producers : ProducerState
    recovered : list of Recovered
        Everything that was cut, removed, set aside or rebuilt.
    deletions : list of callables
        Remove files that were renamed ``.deleted``.

    Notes
    -----
    Segments after a cut are removed, as in Kafka. They are set aside: ``.aside-<ms>`` is appended to their names, and
    brokers ignore them. Unless the behaviour does that, they are renamed ``.deleted`` and deleted later.

    Source: Log.loadSegments (0.10.2), LogLoader (3.9).
    """

    def __init__(
        self,
        path: str,
        config: LogConfig,
        behaviour: Behaviour,
        *,
        now_ms: int,
        clean: bool,
        log_start_offset: int,
        recovery_point: int,
        producer_expiration_ms: int = EXPIRATION_MS,
        sealed: Mapping[int, Sealed] = MappingProxyType({}),
        noted: Mapping[int, NotedMagics] = MappingProxyType({}),
    ) -> None:
        self.path = path
        self.config = config
        self.behaviour = behaviour
        self.now_ms = now_ms
        self.clean = clean
        self.producer_expiration_ms = producer_expiration_ms
        self.sealed = sealed
        self.noted = noted if clean else {}
        self.segments: list[LogSegment] = []
        self.log_start_offset = log_start_offset if behaviour.believes_log_start else 0
        self.end_offset = 0
        self.recovery_point = recovery_point
        self.epochs: LeaderEpochs
        self.producers: ProducerState
        self.recovered: list[Recovered] = []
        self.deletions: list[Callable[[], None]] = []
        self._missing: set[int] = set()  # base offsets of segments without an offset index
        self._aside: str | None = None
        self._bases: list[int] = []  # of all segments in the directory, ascending
        self._snapshots: list[int] | None = None  # listed once: each segment may have a snapshot

    def load(self) -> None:
        """Load the segments and recover what needs it."""
        self._finish_interrupted()
        if self.behaviour.splits_segments:
            self._split()
        self._open_epochs()
        try:
            self._load_segments()
            if not self.clean:
                self._recover()
            elif self.behaviour.checks_tail and self.segments:
                self._check_tail(self.segments[-1])
        finally:
            self.epochs.write()  # once: each segment may begin an epoch
        self._check_start()
        if not self.segments:
            self.segments.append(self._segment(self.log_start_offset))
        active = self.segments[-1]
        active.load_as_active()
        self._repair()
        active.resize_indexes()
        self.end_offset = active.next_offset()
        self._check_recovery_point(active)
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        if self.behaviour.moves_log_start:
            self.recovery_point = max(self.recovery_point, self.log_start_offset)
        if self.behaviour.keeps_leader_epochs:
            self._check_epochs()
        self._load_producers()
        if self.recovered:
            local.sync_directory(self.path)

    def _segment(self, base_offset: int) -> LogSegment:
        return open_segment(self.path, base_offset, self.config, self.behaviour, self.now_ms)

    def _open_epochs(self) -> None:
        knows = self.behaviour.keeps_leader_epochs
        if self.config.magic < 2 and knows:
            files.remove(os.path.join(self.path, LEADER_EPOCHS), missing_ok=True)
        self.epochs = LeaderEpochs(self.path, kept=self.config.magic == 2 and knows)

    def _check_recovery_point(self, active: LogSegment) -> None:
        if self.clean:
            sealed = self.sealed.get(active.base_offset)
            # After a truncation inside a batch, the log end offset is beyond the last batch: the file is unchanged.
            unchanged = sealed is not None and sealed.log_bytes == active.size
            if self.recovery_point > self.end_offset and self.behaviour.reports_lost_end and not unchanged:
                why = f"expected offsets up to {self.recovery_point}, the recovery point of a clean stop"
                why = f"{why}, found the end {self.end_offset}: the end of the log is missing"
                self.recovered.append(Recovered(active.path, active.size, 0, why, 0))
            self.recovery_point = self.end_offset
        elif self.behaviour.lowers_recovery_point:
            self.recovery_point = min(self.recovery_point, self.end_offset)

    # --- files that a crash left halfway ----------------------------------------------------------

    def _finish_interrupted(self) -> None:
        """Remove ``.deleted`` and ``.cleaned`` files, and put ``.swap`` files in the place of the segments they cover.

        A crash at any step leaves files that mean the same at the next start.
        """
        names = self._names()

        def end_of(file: str) -> int:
            return end_of_swap(os.path.join(self.path, file), names[file])

        swaps = swaps_in(names, end_of, one_by_one=self.behaviour.swaps_one_by_one)
        late = [file for file in swaps.left_over if names[file].transition == ".swap"]
        for file in late:  # before the .cleaned file that tells that they are
            self._remove(file, "left over: a swap above a file called .cleaned")
        if late:
            local.sync_directory(self.path)
        for file in swaps.left_over:
            if file not in late:
                self._remove(file, f"left over: a file called {names[file].transition}")
        bases = {names[file].base_offset for file in swaps.logs}
        renamed = list[str]()
        for file, name in names.items():
            if name.transition != ".swap" or file in late:
                continue
            kept = self.behaviour.keeps_swapped_indexes or name.suffix not in BOTH_INDEXES
            has_log = name.base_offset in bases or f"{name.base_offset:020d}.log" in names  # which was renamed first
            if not (has_log and kept):
                self._remove(file, "a swapped index that has to be rebuilt")
            else:
                renamed.append(file)
        for file in swaps.covered:
            self._remove(file, "covered by an interrupted swap")
        if renamed:
            local.sync_directory(self.path)
        for file in renamed:
            source = os.path.join(self.path, file)
            self.recovered.append(Recovered(source, 0, 0, "renamed: an interrupted swap is completed", 0))
            local.rename(source, source.removesuffix(".swap"))

    def _split(self) -> None:
        """Split the segments with offsets below their name, or more than 2^31-1 above it, which an index cannot hold.

        Notes
        -----
        Only segments that are recovered, as in Kafka. The parts are made aside, and swapped for the segment: until the
        first one has its name, a start finds the old segment; from then on, the parts. What is in no part is set aside:
        another segment has the same offsets.

        Source: LogLoader.retryOnOffsetOverflow, LocalLog.splitOverflowedSegment (2.0, KAFKA-6264).
        """
        folder = os.path.join(self.path, "")
        names = self._names()
        live = {(one.base_offset, one.suffix) for one in names.values() if not (one.transition or one.tier_id)}
        bases = sorted(base for base, suffix in live if suffix == ".log")
        if not bases:
            return
        first = self._first_to_recover(bases)
        whole = [Segment(f"{folder}{base:020d}.log", "", 0, base) for base in bases]
        asked = [
            one
            for one in whole
            if not {(one.base_offset, suffix) for suffix in BOTH_INDEXES} <= live
            or (not self.clean and one.base_offset >= first)
        ]
        strange = Overlaps().outside(whole, asked)
        for segment, parts in strange:
            self._swap_parts(segment, parts)

    def _swap_parts(self, segment: Segment, parts: list[Segment]) -> None:
        """Put parts of a segment in its place."""
        old, size, base = segment.path, segment.size_bytes, segment.base_offset
        ranges = [(one.base_offset, one.span.start, one.size_bytes) for one in parts]
        if ranges[0][0] > base:  # the first name is the one that is replaced, so that a start removes the old segment
            ranges.insert(0, (base, 0, 0))
        paths = [os.path.join(self.path, f"{first:020d}.log") for first, _, _ in ranges]
        aside, modified_ms = None, files.modified_ms(old)
        with File(old) as log:
            if sum(end - start for _, start, end in ranges) < size:
                aside = self._set_aside(log, old, 0)
            for path, (_, start, end) in zip(paths, ranges, strict=True):
                publishing.write_synced(f"{path}.cleaned", publishing.pieces(log, start, end))
                local.set_modified_ms(f"{path}.cleaned", modified_ms)
        local.sync_directory(self.path)
        if paths == [old]:  # no swap, which would replace all segments up to the end of this one
            self._remove_beside(base, INDEX_SUFFIXES)
            local.rename(f"{old}.cleaned", old)
            local.sync_directory(self.path)
            why = "offsets below its base offset are cut off"
            self.recovered.append(Recovered(old, 0, size - files.size_of(old), why, 0, aside))
            warn(f"{self.recovered[-1]}", old)
            return
        for path in reversed(paths):
            if path == paths[0]:  # it makes the swap valid: the others must be there
                local.sync_directory(self.path)
            local.rename(f"{path}.cleaned", f"{path}.swap")
        local.sync_directory(self.path)
        self._remove_beside(base, SEGMENT_SUFFIXES)
        for path in paths:
            local.rename(f"{path}.swap", path)
        local.sync_directory(self.path)
        why = f"split: not all its offsets fit above its base offset; now {', '.join(map(os.path.basename, paths))}"
        self.recovered.append(Recovered(old, 0, 0, why, 0, aside))
        warn(f"{self.recovered[-1]}", old)

    def _remove_beside(self, base: int, suffixes: tuple[str, ...]) -> None:
        """Remove files of a segment."""
        for suffix in suffixes:
            files.remove(os.path.join(self.path, f"{base:020d}{suffix}"), missing_ok=True)
        local.sync_directory(self.path)

    def _remove(self, file: str, why: str) -> None:
        path = os.path.join(self.path, file)
        size = files.size_of(path)
        files.remove(path)
        self.recovered.append(Recovered(path, 0, size, why, 0))

    def _names(self) -> dict[str, FileName]:
        names = {entry.name: parse_file_name(entry.name) for entry in files.list_directory(self.path)}
        return {file: name for file, name in names.items() if name is not None}

    # --- segments ---------------------------------------------------------------------------------

    def _load_segments(self) -> None:
        live = {
            (name.base_offset, name.suffix) for name in self._names().values() if not (name.transition or name.tier_id)
        }
        bases = self._bases = sorted(base for base, suffix in live if suffix == ".log")
        for base, suffix in sorted(live):
            orphan = suffix in BOTH_INDEXES or (suffix == ".txnindex" and self.behaviour.keeps_producers)
            if orphan and (base, ".log") not in live:
                self._remove(f"{base:020d}{suffix}", "index without a log")
        makes_indexes = self.behaviour.makes_missing_indexes
        for base in bases:
            has_index, has_time_index = ((base, suffix) in live for suffix in BOTH_INDEXES)
            later = not self.clean and base >= self._first_to_recover(bases)
            if later and makes_indexes:  # recovery rebuilds its indexes in any case
                if not has_index:
                    self._missing.add(base)
                self.segments.append(self._segment(base))
                continue
            lacking = not (has_index and has_time_index)
            if lacking and makes_indexes:
                self._make_indexes(base)
            segment = self._segment(base)
            why = self._why_rebuild(segment, has_index, has_time_index)
            if why and not lacking and makes_indexes:
                segment.abandon()
                self._make_indexes(base)
                segment = self._segment(base)
            self.segments.append(segment)
            segment.load_magics(self.noted.get(base))
            if not why:
                segment.load_seal(self.sealed.get(base))
                if segment.offset_index.last_position >= segment.size and not self.behaviour.believes_indexes:
                    segment.trust.mark_corrupt("the offset index has an entry after the log's end")
            if why:
                self._recover_segment(segment, why)

    def _make_indexes(self, base_offset: int) -> None:
        """Create both indexes of a log, each atomically.

        An index emptied by a crash looks valid, and the next start recovers no segment below the recovery point.
        """
        stem = os.path.join(self.path, f"{base_offset:020d}")
        with File(f"{stem}.log") as log:
            if log.size() == 0:
                return
            rebuilt = rebuild(log, log.size(), base_offset, IndexConfig.of(self.config, self.behaviour), f"{stem}.log")
        publishing.publish(f"{stem}.index", rebuilt.offset_index)
        publishing.publish(f"{stem}.timeindex", rebuilt.time_index)

    def _repair(self) -> None:
        """Rebuild indexes that changed since they were closed, or whose last entry the log contradicts."""
        for segment, following in zip(self.segments, [*self.segments[1:], None], strict=True):
            if segment.trust.corrupt is None:
                continue
            done = segment.repair(segment.rebuilt_indexes(), None if following is None else following.base_offset)
            if done is not None:
                self.recovered.append(done)
            elif segment is self.segments[-1]:  # new entries must not conflict with wrong ones
                segment.time_index.cut(0)

    def _first_to_recover(self, bases: list[int]) -> int:
        return bases[max(bisect_right(bases, self.recovery_point) - 1, 0)]

    def _why_rebuild(self, segment: LogSegment, has_index: bool, has_time_index: bool) -> str | None:
        if not has_index:
            return MISSING
        if not has_time_index:
            if self.behaviour.makes_missing_indexes and segment.size:
                return "the time index is missing"
            segment.time_index.resize(0)
        try:
            if self.behaviour.checks_indexes_at_start:
                segment.offset_index.sanity_check()
                segment.time_index.sanity_check()
            if self.behaviour.keeps_producers and files.exists(segment.txn_index_path):
                listed, checks = read_txn_index(segment.txn_index_path), self.behaviour.checks_transaction_indexes
                if checks and not listed:
                    return "the transaction index is empty"
                if checks and not self._has(segment, listed):
                    return "the transaction index lists what the log does not have"
        except CorruptIndexError as error:
            return str(error)
        return None

    def _has(self, segment: LogSegment, listed: list[AbortedTransaction]) -> bool:
        def start_of(offset: int) -> int:
            return segment.offset_index.lookup(offset)[1]

        return are_confirmed(listed, segment.log_file(), segment.size, segment.base_offset, start_of)

    # --- recovery ---------------------------------------------------------------------------------

    def _recover(self) -> None:
        bases = [segment.base_offset for segment in self.segments]
        if bases and self.behaviour.confirms_leader_epochs:
            # Recovery reads them from the batches again. Otherwise a second recovery would differ from the first: only
            # the first would know an epoch that began beyond the end.
            self.epochs.truncate_from_end(self._first_to_recover(bases) + 1)
        for number, segment in enumerate(list(self.segments)):
            if segment.base_offset < self._first_to_recover(bases):
                continue

            def drop_later(position: int, number: int = number, segment: LogSegment = segment) -> None:
                """Runs before the cut: a crash in between leaves no hole, and the next start finds the damage again."""
                later = self.segments[number + 1 :]
                del self.segments[number + 1 :]
                self._take_out(later, f"after a cut of segment {segment.base_offset}")

            why = MISSING if segment.base_offset in self._missing else None
            if self._recover_segment(segment, why, drop_later):
                return

    def _check_tail(self, active: LogSegment) -> None:
        """Recover the active segment if its tail is damaged: records appended after it could not be read."""
        why = active.tail_fault()
        if why is not None:
            self._recover_segment(active, why)

    def _recover_segment(
        self, segment: LogSegment, why: str | None, before_cut: Callable[[int], None] | None = None
    ) -> bool:
        """Rebuild a segment; True if it lost bytes. ``why`` is None if an unclean stop is the only reason.

        Without ``before_cut`` the bytes were on disk when the log was stopped or flushed. Bytes cut then are not a torn
        write and may contain sound batches, so they are set aside.
        """
        aside: list[str] = []

        def keep(position: int) -> None:
            aside.extend(self._keep_aside(segment, position))

        def cut(position: int) -> None:
            """Before a cut: a torn write goes, a sound batch stays beside the log."""
            if self.behaviour.sets_aside and (before_cut is None or self._holds_a_batch(segment, position)):
                keep(position)
            if before_cut is not None:
                before_cut(position)

        state = self._producers_at(segment)
        aborted: list[AbortedBatch] = []
        if state.kept:
            truncate_aborted(segment.txn_index_path, 0)

        def visit(batches: Batches) -> None:
            if state.kept and len(batches):
                self._follow_epochs(batches)
                aborted.extend(self._follow_producers(state, batches))

        size = segment.size
        try:
            done = segment.recover(visit, cut)
        except InvalidOffsetError as error:
            if before_cut is None and not self.behaviour.adapts_indexes:
                raise
            cut(0)
            segment.truncate_to(segment.base_offset, self.now_ms)
            done = Recovered(segment.path, 0, size, str(error), 0)
        if aborted:
            append_aborted(segment.txn_index_path, aborted)
            sync_aborted([segment.txn_index_path])
        elif state.kept and self.behaviour.checks_transaction_indexes:
            files.remove(segment.txn_index_path, missing_ok=True)
        segment.flush()
        state.recovered(segment.next_offset())
        segment.rest()  # limits the number of open files
        if done.bytes_cut:
            self.recovered.append(done._replace(aside=aside[0]) if aside else done)
            if aside:
                warn(f"{self.recovered[-1]}", segment.path)
        elif why is not None:
            self.recovered.append(Recovered(segment.path, 0, 0, f"{why}: indexes rebuilt", done.batches))
        return done.bytes_cut > 0

    def _keep_aside(self, segment: LogSegment, position: int) -> list[str]:
        """Copy the bytes from a position on, unless all are zeros, to a file that brokers ignore. Its path, if any."""
        with File(segment.path) as log:
            if not any(piece.strip(b"\0") for piece in publishing.pieces(log, position, log.size())):
                return []
            return [self._set_aside(log, segment.path, position)]

    def _set_aside(self, log: File, path: str, position: int) -> str:
        """Copy the bytes of a log from a position on to a file that brokers ignore; its path."""
        aside = f"{path}.{position}{self._suffix_aside()}"
        publishing.write_synced(aside, publishing.pieces(log, position, log.size()))
        local.sync_directory(self.path)
        return aside

    def _holds_a_batch(self, segment: LogSegment, position: int) -> bool:
        """Whether a sound entry lies at a position of a segment, or behind it."""
        whole = Segment(segment.path, "", 0, segment.base_offset)
        with File(segment.path) as log:
            if entry_at(log, log.size(), position) is not None:
                return True
            return next_sound_entry(whole, position, log.size(), 0, span=2**63) is not None

    def _producers_at(self, segment: LogSegment) -> ProducerState:
        """The producer state at the start of a segment."""
        state = self._new_producers(self._snapshots)
        self._snapshots = state.snapshots
        base, start, magic = segment.base_offset, self.log_start_offset, self.config.magic
        before = bisect_left(self._bases, base)
        state.rebuild(self.segments, start, base, self.now_ms, magic=magic, bases=self._bases, count=before)
        return state

    def _new_producers(self, snapshots: list[int] | None = None) -> ProducerState:
        return ProducerState(
            self.path, self.producer_expiration_ms, kept=self.behaviour.keeps_producers, snapshots=snapshots
        )

    def _follow_epochs(self, batches: Batches) -> None:
        """Begin the epochs of the batches."""
        magics, epochs = batches.column("magic"), batches.column("leader_epoch")
        known = np.maximum.accumulate(np.concatenate(([self.epochs.latest], epochs[:-1])))
        bases = batches.column("base_offset")
        for row in np.flatnonzero((magics == 2) & (epochs > known)).tolist():
            self.epochs.begin(int(epochs[row]), int(bases[row]))

    def _follow_producers(self, state: ProducerState, batches: Batches) -> list[AbortedBatch]:
        aborted: list[AbortedBatch] = []
        for row in np.flatnonzero(batches.column("producer_id") >= 0).tolist():
            aborted += state.follow(batches.entry(row))
        return aborted

    def _take_out(self, segments: list[LogSegment], why: str) -> None:
        """Remove segments, newest first, so that no crash leaves a hole."""
        sets_aside = self.behaviour.sets_aside
        suffix = self._suffix_aside() if sets_aside else ".deleted"
        for segment in reversed(segments):
            aside = f"{segment.path}{suffix}" if sets_aside else None
            self.recovered.append(Recovered(segment.path, 0, segment.size, why, 0, aside))
            segment.change_file_suffixes("", suffix)
            if not sets_aside:
                self.deletions.append(segment.delete)
            local.sync_directory(self.path)
        if segments and sets_aside:
            warn(f"{self.path}: {len(segments)} segments are set aside as *{suffix}: {why}", self.path)

    def _suffix_aside(self) -> str:
        """A suffix that no file had before. If the clock was put back, an earlier start may have used this time."""
        if self._aside is None:
            names = [entry.name for entry in files.list_directory(self.path)]
            now_ms = self.now_ms
            while any(name.endswith(f".aside-{now_ms}") for name in names):
                now_ms += 1
            self._aside = f".aside-{now_ms}"
        return self._aside

    def _check_start(self) -> None:
        start = self.log_start_offset
        if not self.segments or self.segments[-1].next_offset() >= start:
            return
        # A clean stop leaves a start beyond the end only after a truncation inside a batch that contains the start.
        # Then the recovery point reaches the start as well, and all that is left in the log is below the start.
        if self.clean and self.behaviour.keeps_log_below_start and start > self.recovery_point:
            end, first = self.segments[-1].next_offset(), self.segments[0].base_offset
            why = f"the log start offset {start} is after the log end offset {end}: set to {first}"
            self.recovered.append(Recovered(self.segments[0].path, 0, 0, why, 0))
            self.log_start_offset = first
            return
        self._take_out(self.segments, f"ends below the log start offset {start}")
        self.segments.clear()
        self.epochs.clear()
        self._new_producers().clear(start)

    # --- leader epochs and producers --------------------------------------------------------------

    def _check_epochs(self) -> None:
        """Correct the epochs by the batches, and drop those outside of the log."""
        if self.behaviour.confirms_leader_epochs and self.epochs.kept:
            self._confirm_epochs()
        # Kafka drops an epoch that begins at the log end offset, such as the epoch of an empty log.
        self.epochs.truncate_from_end(self.end_offset + self.behaviour.keeps_epoch_at_end)
        self.epochs.truncate_from_start(self.log_start_offset)

    def _confirm_epochs(self) -> None:
        """Read the leader epochs from the batches if the file contradicts them."""
        epochs = self.epochs
        known = [entry for entry in epochs.entries if entry[1] < self.end_offset]
        if self.segments[-1].base_offset == self.end_offset and len(self.segments) == 1:
            return
        if epochs.fault is not None or not all(
            self._is_start(*entry, *(known[number + 1 :] or [(0, self.end_offset)])[0][1:])
            for number, entry in enumerate(known)
        ):
            found = epochs_of(self.segments, self.log_start_offset)
            behind = [entry for entry in epochs.entries if entry[1] >= self.end_offset]
            why = f"its epochs are not those of the batches: {epochs.entries} became {found}"
            if epochs.fault is not None:
                why = f"malformed: {epochs.fault}; the epochs of the batches took its place: {found or 'none'}"
            self.recovered.append(Recovered(epochs.path, 0, 0, why, 0))
            epochs.replace(found + [one for one in behind if not found or one[0] > found[-1][0]])

    def _is_start(self, epoch: int, start: int, end: int) -> bool:
        """Whether an epoch begins at an offset: the batch there has it, the one before has an earlier one.

        The first known epoch may have begun earlier: its start moves with the log start offset.
        """
        found = self._epoch_at(start)
        if found is not None and found[0] < end and found[1] not in (-1, epoch):
            return False
        is_first = self.epochs.entries[0][0] == epoch
        before = self._epoch_at(start - 1) if start > self.log_start_offset else None
        return before is None or before[0] >= start or before[1] < epoch + is_first

    def _epoch_at(self, offset: int) -> tuple[int, int] | None:
        """Base offset and leader epoch of the first batch of magic 2 that reaches an offset."""
        first = bisect_right([segment.base_offset for segment in self.segments], offset) - 1
        for segment in self.segments[max(first, 0) :]:
            try:
                found = segment.translate_offset(offset)
            except CorruptRecordError:  # the next read raises it
                return None
            if found is not None:
                entry = read_header(segment.log_file().read(found.position, HEADER_BYTES))
                return (entry.base_offset, entry.leader_epoch) if entry is not None and entry.magic == 2 else None
        return None

    def _load_producers(self) -> None:
        self.producers = self._new_producers()
        self.producers.remove_stray_snapshots(self.segments)
        start, magic = self.log_start_offset, self.config.magic
        self.producers.rebuild(self.segments, start, self.end_offset, self.now_ms, magic=magic, clean=self.clean)
