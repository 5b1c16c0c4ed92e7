"""A partition that is open for writing: how it is opened, its state, and who may see it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kts.codec.encode import integer
from kts.config import INT64_MAX, LogConfig
from kts.dataset.partition import PartitionLog
from kts.errors import InvalidRequestError, LogClosedError
from kts.log import arguments, loading
from kts.log.deleting import Doomed
from kts.log.directory import RECOVERY_POINTS, LogDirectory
from kts.log.readers import Readers
from kts.log.view import View
from kts.segment import checkpoints, files
from kts.segment.locks import new_in_children
from kts.segment.log_segment import LogSegment
from kts.segment.names import LOG_START_OFFSETS
from kts.segment.producers import EXPIRATION_MS, Producers
from kts.segment.recovery import Recovered

if TYPE_CHECKING:
    from kts.proposals.modes import Proposals
    from kts.segment.producer_entry import Producer


def wall_clock() -> int:
    """Now, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def is_over(since_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether an interval has passed; also if the clock was put back, so that nobody knows. 2^63-1 never is."""
    return interval_ms < INT64_MAX and not since_ms <= now_ms < since_ms + interval_ms


class BaseLog:
    """What ``Log`` is besides its appends and what changes its segments; see there."""

    closed = True  # until it is open: wrong arguments leave an object that was never opened

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: LogConfig | Mapping[str, Any] | None = None,
        *,
        generation: str | None = None,
        shipped: bool = False,
        clock: Callable[[], int] | None = None,
        create: bool = True,
        topic_id: str | None = None,
        high_watermark: int | None = None,
        log_start_offset: int | None = None,
        recovery_point: int | None = None,
        proposals: Iterable[Any] = (),
        producer_id_expiration_ms: int = EXPIRATION_MS,
    ) -> None:
        self.path, self.topic, self.partition = arguments.partition_directory(path)
        self._pinned_generation = generation
        self.config = LogConfig.of(config, generation=generation)
        self.generation = self.config.generation
        self.shipped = arguments.boolean("shipped", shipped)
        self._process = os.getpid()
        self._clock = wall_clock if clock is None else arguments.clock(clock)
        self._failure: str | None = None
        self._lock: threading.RLock
        self._readers: Readers
        new_in_children(self, _lock=threading.RLock, _readers=Readers)
        self._doomed = Doomed()
        self._doubted: list[LogSegment] = []
        self._unsynced: set[str] = set()  # transaction indexes
        high_watermark = arguments.optional_offset("high_watermark", high_watermark)
        log_start_offset = arguments.optional_offset("log_start_offset", log_start_offset)
        recovery_point = arguments.optional_offset("recovery_point", recovery_point)
        rules = arguments.proposals(proposals)
        self._producer_expiration_ms = integer("producer_id_expiration_ms", producer_id_expiration_ms, 1, INT64_MAX)
        topic_id = arguments.topic_id(topic_id)
        if not (arguments.boolean("create", create) or files.exists(self.path)):
            raise FileNotFoundError(f"path: no directory {self.path}")
        files.make_directory(self.path)
        known = checkpoints.read_topic_id(self.path)
        if None not in (known, topic_id) and known != topic_id:
            raise InvalidRequestError(f"topic_id: expected {known}, as partition.metadata has it, found {topic_id}")
        self.topic_id = known or topic_id
        self._directory = LogDirectory(*os.path.split(self.path), self.topic, self.partition)
        self.closed = False
        try:
            self._start(high_watermark, log_start_offset, recovery_point, rules)
        except BaseException:
            self.closed = True
            self._directory.leave(clean=False)
            raise

    def _start(
        self,
        high_watermark: int | None,
        log_start_offset: int | None,
        recovery_point: int | None,
        proposals: tuple[Any, ...],
    ) -> None:
        now = self._clock()
        self.clean_start = self._directory.clean
        log_start_offset = self._known(log_start_offset, LOG_START_OFFSETS)
        recovery_point = self._known(recovery_point, RECOVERY_POINTS)
        self._high_watermark = None
        self.recovered = self._load(now, self.clean_start, log_start_offset, recovery_point)
        for checkpoint, kept in self._directory.malformed().items():
            self.recovered.append(Recovered(checkpoint, 0, 0, "malformed: nothing of it is believed", 0, kept))
        if self.topic_id is not None and checkpoints.read_topic_id(self.path) is None:
            checkpoints.write_topic_id(self.path, self.topic_id)
        self._high_watermark = None if high_watermark is None else min(max(high_watermark, self._log_start), self._end)
        self._publish()
        self._last_flush = self._last_checkpoint = now
        self._proposals: Proposals | None = None
        if proposals:
            from kts.proposals import made

            reader = PartitionLog(self.path, self.topic, self.partition)
            allow_negative = self.config.allow_negative_timestamps
            self._proposals = made(proposals, reader, allow_negative=allow_negative)
            if self._proposals is not None:
                self._proposals.opened(now)

    def _load(self, now_ms: int, clean: bool, log_start_offset: int, recovery_point: int) -> list[Recovered]:
        """Load the directory by the settings as they are, and show it to readers; returns what was recovered."""
        loaded = loading.load(
            self.path,
            self.config,
            shipped=self.shipped,
            now_ms=now_ms,
            clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            producer_expiration_ms=self._producer_expiration_ms,
            sealed={} if self.shipped else self._directory.index_checksums(),
        )
        self._doubted = [one for one in loaded.segments if one.doubted is not None]  # their indexes must be rebuilt
        for segment in loaded.segments:
            segment.on_doubt = self._doubted.append
        self.recovery_point = loaded.recovery_point
        self._epochs = loaded.epochs
        self._snapshots = loaded.snapshots
        self._producers = loaded.snapshots.producers if loaded.snapshots is not None else Producers()
        self._end = loaded.end_offset
        self._log_start = loaded.log_start_offset
        for remove in loaded.doomed:
            self._doomed.add(now_ms, self.config.file_delete_delay_ms, remove)
        self._doomed.sweep(now_ms)
        self._view = View((), (), self._end, 0, self._log_start)
        self._publish(tuple(loaded.segments))
        return loaded.recovered

    def _known(self, given: int | None, checkpoint: str) -> int:
        known = self._directory.checkpoint(checkpoint) if given is None else given
        return max(known or 0, 0)

    # --- state ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, generation={self.generation!r})"

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments, oldest first; the last one is the active segment."""
        return self._view.segments

    @property
    def log_start_offset(self) -> int:
        """The first offset that counts."""
        return self._view.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._view.end_offset

    @property
    def high_watermark(self) -> int:
        """What lies before it is on all replicas: the log end offset, unless one was given."""
        mark = self._high_watermark
        return self._view.end_offset if mark is None else mark

    @property
    def last_stable_offset(self) -> int:
        """First offset of the earliest open transaction, else the high watermark."""
        unstable = self._producers.first_unstable_offset
        mark = self.high_watermark
        return mark if unstable is None else min(mark, max(unstable, self._view.log_start_offset))

    @property
    def size_bytes(self) -> int:
        """Published bytes of all segments."""
        view = self._view
        return sum(view.size(number) for number in range(len(view.segments)))

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(self._epochs.entries) if self._epochs is not None else []

    @property
    def largest_producer_id(self) -> int:
        """The greatest id of a producer that the log knows, -1 if it knows none."""
        return max(list(self._producers.known), default=-1)

    def producers(self) -> list[Producer]:
        """What the log knows of its producers now, in Kafka's order; nothing of it may be changed."""
        return self._producers.in_table_order()

    @property
    def proposals(self) -> Proposals | None:
        """The proposals' rules that it follows, by name; None if it follows none."""
        return self._proposals

    def _publish(self, segments: tuple[LogSegment, ...] | None = None, bases: tuple[int, ...] | None = None) -> None:
        """Show readers the log as it is now."""
        if segments is None:
            bases, segments = self._view.bases, self._view.segments
        elif bases is None:
            bases = tuple([segment.base_offset for segment in segments])
        self._view = View(segments, bases, self._end, segments[-1].size, self._start_of(bases))
        if self._producers.unreplicated:
            self._producers.replicated_to(self.high_watermark)

    def _start_of(self, bases: tuple[int, ...]) -> int:
        return max(self._log_start, bases[0])

    def _writable(self) -> None:
        if self.closed or self._process != os.getpid():
            found = "a closed one" if self.closed else f"one that process {self._process} has open"
            reason = f": {self._failure}" if self._failure is not None else ""
            raise LogClosedError(f"expected an open log, found {found}{reason}", path=self.path)
