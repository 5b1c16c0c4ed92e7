"""Start-up of a partition: what is half done is finished or removed, what may be damaged is recovered."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from kts.config import LogConfig
from kts.errors import CorruptIndexError, InvalidOffsetError
from kts.storage import files, temporary
from kts.storage.file_names import LEADER_EPOCHS, parse_file_name
from kts.storage.leader_epochs import LeaderEpochs
from kts.storage.log_segment import LogSegment
from kts.storage.opening import Loaded, open_segment
from kts.storage.producer_state import rebuild_producers
from kts.storage.producers import EXPIRATION_MS, AbortedBatch
from kts.storage.recovery import Recovered, Rules, rebuild, recover, tail_fault
from kts.storage.shallow import Batches
from kts.storage.snapshots import Snapshots, append_aborted, sync_aborted, truncate_aborted
from kts.storage.transactions import read_txn_index

MISSING = "the offset index is missing"


def load(
    path: str,
    config: LogConfig,
    *,
    shipped: bool,
    now_ms: int,
    clean: bool,
    log_start_offset: int,
    recovery_point: int,
    producer_expiration_ms: int = EXPIRATION_MS,
) -> Loaded:
    """Load a partition directory, in which nobody else writes.

    Parameters
    ----------
    clean : bool
        The last writer closed it: nothing needs recovery but what misses its index.
    log_start_offset, recovery_point : int
        From the checkpoints; 0 if there are none.

    Notes
    -----
    After a cut the segments behind it go, as in Kafka. As shipped they are renamed ``.deleted`` and removed; else
    they are set aside under a name that brokers ignore, ``.aside-<ms>`` appended.

    Source: Log.loadSegments (0.10.2), LogLoader (3.9).
    """
    loader = _Loader(path, config, shipped, now_ms, clean, log_start_offset, recovery_point)
    loader.producer_expiration_ms = producer_expiration_ms
    return loader.run()


class _Loader:
    producer_expiration_ms = EXPIRATION_MS

    def __init__(
        self, path: str, config: LogConfig, shipped: bool, now_ms: int, clean: bool, log_start: int, recovery: int
    ) -> None:
        self.path = path
        self.config = config
        self.shipped = shipped
        self.now_ms = now_ms
        self.clean = clean
        self.old = config.generation == "0.10.2"
        self.loaded = Loaded(log_start_offset=0 if self.old and shipped else log_start, recovery_point=recovery)
        self.segments = self.loaded.segments
        self.missing: set[int] = set()

    def run(self) -> Loaded:
        loaded = self.loaded
        found = temporary.finish(self.path, self.config, shipped=self.shipped)
        loaded.recovered += found
        self._open_epochs()
        self._load_segments()
        if not self.clean:
            self._recover()
        elif not self.shipped and self.segments:
            self._check_tail(self.segments[-1])
        self._check_start()
        if not self.segments:
            self.segments.append(self._segment(loaded.log_start_offset))
        active = self.segments[-1]
        active.resize_indexes()
        loaded.end_offset = active.next_offset()
        if self.clean:
            loaded.recovery_point = loaded.end_offset
        elif not (self.old and self.shipped):
            loaded.recovery_point = min(loaded.recovery_point, loaded.end_offset)
        loaded.log_start_offset = max(loaded.log_start_offset, self.segments[0].base_offset)
        if not self.old:
            loaded.recovery_point = max(loaded.recovery_point, loaded.log_start_offset)
            self._finish_state()
        if loaded.recovered:
            files.sync_directory(self.path)
        return loaded

    def _segment(self, base_offset: int) -> LogSegment:
        return open_segment(self.path, base_offset, self.config, self.shipped, self.now_ms)

    def _open_epochs(self) -> None:
        if self.old:
            return
        if self.config.magic < 2:
            files.remove(os.path.join(self.path, LEADER_EPOCHS), missing_ok=True)
        else:
            self.loaded.epochs = LeaderEpochs(self.path)

    # --- segments ---------------------------------------------------------------------------------

    def _load_segments(self) -> None:
        names = {entry.name: parse_file_name(entry.name) for entry in files.list_directory(self.path)}
        live = {
            (name.base_offset, name.suffix) for name in names.values() if name and not (name.transition or name.tier_id)
        }
        bases = sorted(base for base, suffix in live if suffix == ".log")
        for base, suffix in sorted(live):
            orphan = suffix in (".index", ".timeindex") or (suffix == ".txnindex" and not self.old)
            if orphan and (base, ".log") not in live:
                self._remove(os.path.join(self.path, f"{base:020d}{suffix}"), "index without a log")
        for base in bases:
            has_index, has_time_index = ((base, suffix) in live for suffix in (".index", ".timeindex"))
            later = not self.clean and base >= self._first_to_recover(bases)
            if later and not self.shipped:  # it is rebuilt in any case
                if not has_index:
                    self.missing.add(base)
                self.segments.append(self._segment(base))
                continue
            lacking = not (has_index and has_time_index)
            if lacking and not self.shipped:
                self._make_indexes(base)
            segment = self._segment(base)
            why = self._why_rebuild(segment, has_index, has_time_index)
            if why and not lacking and not self.shipped:
                segment.abandon()
                self._make_indexes(base)
                segment = self._segment(base)
            self.segments.append(segment)
            if why:
                self._recover_segment(segment, why)

    def _make_indexes(self, base_offset: int) -> None:
        """Put both indexes of a log in place, each in one step: nobody could tell from true ones those of which a crash
        left no entries, and the next start-up recovers no segment below the recovery point."""
        config, stem = self.config, os.path.join(self.path, f"{base_offset:020d}")
        rules = Rules(
            config.index_interval_bytes,
            config.segment_index_bytes,
            config.generation,
            allow_negative=config.allow_negative_timestamps,
        )
        with files.File(f"{stem}.log") as log:
            if log.size() == 0:
                return
            rebuilt = rebuild(log, log.size(), base_offset, rules, f"{stem}.log")
        files.write_atomically(f"{stem}.index", rebuilt.offset_index)
        files.write_atomically(f"{stem}.timeindex", rebuilt.time_index)

    def _first_to_recover(self, bases: list[int]) -> int:
        return bases[max(bisect_right(bases, self.loaded.recovery_point) - 1, 0)]

    def _remove(self, path: str, why: str) -> None:
        self.loaded.recovered.append(Recovered(path, 0, files.size_of(path), why, 0))
        files.remove(path)

    def _why_rebuild(self, segment: LogSegment, has_index: bool, has_time_index: bool) -> str | None:
        if not has_index:
            return MISSING
        if not has_time_index:
            if not self.shipped and segment.size:
                return "the time index is missing"
            segment.time_index.resize(0)
        try:
            if self.old or not self.shipped:
                segment.offset_index.sanity_check()
                segment.time_index.sanity_check()
            if not self.old and files.exists(segment.txn_index_path):
                read_txn_index(segment.txn_index_path)
        except CorruptIndexError as error:
            return str(error)
        return None

    # --- recovery ---------------------------------------------------------------------------------

    def _recover(self) -> None:
        bases = [segment.base_offset for segment in self.segments]
        if self.loaded.epochs is not None and bases and not self.shipped:
            # The batches tell them again. Else recovering twice would not be the same as once: an epoch that began
            # behind the end is known by the first time only.
            self.loaded.epochs.truncate_from_end(self._first_to_recover(bases) + 1)
        for number, segment in enumerate(list(self.segments)):
            if segment.base_offset < self._first_to_recover(bases):
                continue

            def drop_later(number: int = number, segment: LogSegment = segment) -> None:
                """Before the cut: a stop in between leaves the cut to be found, and no hole."""
                later = self.segments[number + 1 :]
                del self.segments[number + 1 :]
                self.take_out(later, f"behind a cut of segment {segment.base_offset}")

            why = MISSING if segment.base_offset in self.missing else None
            if self._recover_segment(segment, why, drop_later):
                return

    def _check_tail(self, active: LogSegment) -> None:
        """Recover the active segment if its tail is damaged: what is appended behind that could never be read."""
        why = tail_fault(active)
        if why is not None:
            self._recover_segment(active, why)

    def _recover_segment(
        self, segment: LogSegment, why: str | None, before_cut: Callable[[], None] | None = None
    ) -> bool:
        """Rebuild a segment; True if it lost bytes. ``why`` is None where an unclean stop is the only reason."""
        state = None if self.old else self._state_at(segment)
        aborted: list[AbortedBatch] = []
        if state is not None:
            truncate_aborted(segment.txn_index_path, 0)

        def visit(batches: Batches) -> None:
            if state is not None and len(batches):
                aborted.extend(self._follow(state, batches))

        size = segment.size
        try:
            done = recover(segment, visit, before_cut)
        except InvalidOffsetError as error:
            if before_cut is None and self.shipped:
                raise
            if before_cut is not None:
                before_cut()
            segment.truncate_to(segment.base_offset, self.now_ms)
            done = Recovered(segment.path, 0, size, str(error), 0)
        if aborted:
            append_aborted(segment.txn_index_path, aborted)
            sync_aborted([segment.txn_index_path])
        segment.flush()
        if state is not None:
            state.producers.end_offset = max(state.producers.end_offset, segment.next_offset())
            state.take()
        if done.bytes_cut:
            self.loaded.recovered.append(done)
        elif why is not None:
            self.loaded.recovered.append(Recovered(segment.path, 0, 0, f"{why}: indexes rebuilt", done.batches))
        return done.bytes_cut > 0

    def _state_at(self, segment: LogSegment) -> Snapshots:
        """Producer state where a segment begins."""
        state = Snapshots(self.path, self.producer_expiration_ms)
        before = [one for one in self.segments if one.base_offset < segment.base_offset]
        self._rebuild(state, before, segment.base_offset, clean=False)
        return state

    def _rebuild(self, state: Snapshots, segments: list[LogSegment], end_offset: int, *, clean: bool) -> None:
        start, magic = self.loaded.log_start_offset, self.config.magic
        rebuild_producers(state, segments, start, end_offset, self.now_ms, magic=magic, clean=clean)

    def _follow(self, state: Snapshots, batches: Batches) -> list[AbortedBatch]:
        magics, epochs = batches.column("magic"), batches.column("partitionLeaderEpoch")
        if self.loaded.epochs is not None:
            newer = (magics == 2) & (
                epochs > np.maximum.accumulate(np.concatenate(([self.loaded.epochs.latest], epochs[:-1])))
            )
            bases = batches.column("baseOffset")
            for row in np.flatnonzero(newer).tolist():
                self.loaded.epochs.assign(int(epochs[row]), int(bases[row]))
        aborted: list[AbortedBatch] = []
        for row in np.flatnonzero(batches.column("producerId") >= 0).tolist():
            aborted += state.producers.follow(batches.entry(row))
        return aborted

    def take_out(self, segments: list[LogSegment], why: str) -> None:
        """Remove segments, newest first, so that no crash leaves a hole."""
        for segment in reversed(segments):
            self.loaded.recovered.append(Recovered(segment.path, 0, segment.size, why, 0))
            if self.shipped:
                segment.change_file_suffixes("", ".deleted")
                self.loaded.doomed.append(segment.delete)
            else:
                segment.change_file_suffixes("", f".aside-{self.now_ms}")
            files.sync_directory(self.path)

    def _check_start(self) -> None:
        start = self.loaded.log_start_offset
        if not self.segments or self.segments[-1].next_offset() >= start:
            return
        self.take_out(self.segments, f"ends below the log start offset {start}")
        self.segments.clear()
        if self.loaded.epochs is not None:
            self.loaded.epochs.clear()
        Snapshots(self.path, self.producer_expiration_ms).clear(start)

    def _finish_state(self) -> None:
        loaded = self.loaded
        if loaded.epochs is not None:
            # Kafka forgets the epoch of a log that is empty at its second start.
            loaded.epochs.truncate_from_end(loaded.end_offset + (not self.shipped))
            loaded.epochs.truncate_from_start(loaded.log_start_offset)
        loaded.snapshots = Snapshots(self.path, self.producer_expiration_ms)
        loaded.snapshots.remove_strays(segment.base_offset for segment in self.segments)
        self._rebuild(loaded.snapshots, self.segments, loaded.end_offset, clean=self.clean)
