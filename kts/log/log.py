"""A partition that is open for writing: append, roll, delete, truncate and search it as a broker does."""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from kts.arguments import DEDUPE_BUFFER_BYTES, INT32_MAX, INT64_MAX, INT64_MIN, boolean, integer, optional_offset
from kts.behaviour import one_release
from kts.codec.layout import Entries
from kts.codec.rows import AnyRows, RowSet, encode_rows
from kts.codec.validate import PRODUCER, Validated, target_codec, validate, validate_follower
from kts.compression import CODEC_NAMES
from kts.config import LogConfig
from kts.dataset import scan as scanning
from kts.dataset.options import HIGH_WATERMARK, ScanOptions
from kts.dataset.partition import PartitionLog
from kts.errors import (
    CorruptRecordError,
    InvalidOffsetError,
    InvalidRecordError,
    InvalidRequestError,
    KtsError,
    KtsWarning,
    LogClosedError,
    LogStorageError,
    OffsetOutOfRangeError,
    RecordBatchTooLargeError,
    UnsupportedVersionError,
)
from kts.log import cleaner, listeners, policies, view
from kts.log.cleaner import LOAD_FACTOR, Cleanable, CleanedLog, CleaningPass
from kts.log.deletions import DeletionQueue
from kts.log.directory import PartitionEntry
from kts.log.epochs import LeaderEpochs
from kts.log.listeners import Index, Listener
from kts.log.newest import REFUSED_BY_NEWEST, refused_by_newest
from kts.log.policies import LogFacts, RetentionPolicy, SegmentFacts
from kts.log.readers_writer_lock import ReadersWriterLock
from kts.log.recovery import LogLoader, open_segment
from kts.log.view import Fetched, Sliced, View
from kts.model import NO_TIMESTAMP, Appended, Cleaned, TimestampOffset
from kts.options import takes
from kts.segment import checkpoints, search
from kts.segment.entries import decoded
from kts.segment.index_checksums import Sealed
from kts.segment.locks import new_in_children
from kts.segment.log_segment import LogSegment
from kts.segment.magic_checkpoint import NotedMagics
from kts.segment.magics import UNREAD
from kts.segment.names import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SEGMENT_SUFFIXES,
    TOPIC_ID,
    parse_directory_name,
)
from kts.segment.producers import EXPIRATION_MS, ProducerStateEntry, Sent, Update
from kts.segment.rebuild import Recovered
from kts.segment.rereading import warn
from kts.segment.segment import described
from kts.segment.transactions import truncate_aborted
from kts.store import addresses, local
from kts.store.source import files
from kts.times import Time, show_time, time_unit, wall_clock

if TYPE_CHECKING:
    import pyarrow as pa

NO_ENTRIES = Entries(b"")  # for 0.10.2, which reads no headers of an appended set
CHECKPOINT_INTERVAL_MS = 60_000  # log.flush.offset.checkpoint.interval.ms
LARGEST_ROW_BATCH_BYTES = 2**20  # of append_rows, whatever max.message.bytes allows: a reader reads whole batches

_TOPIC_ID = re.compile("(?!A{22})" + TOPIC_ID)

Bytes = bytes | bytearray | memoryview
T = TypeVar("T", Fetched, Sliced)


class Deleted(NamedTuple):
    """A segment that retention deleted, and the rule that deleted it."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    rule: str


def is_over(since_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether an interval has passed. It has if the clock was put back; an interval of 2^63-1 never ends."""
    return interval_ms < INT64_MAX and not since_ms <= now_ms < since_ms + interval_ms


# What the owner of a log needs, first things first; the other names are for kts itself.
PUBLIC = (
    *("path", "topic", "partition", "topic_id", "config", "release", "generation", "shipped", "recovered", "closed"),
    *("append", "append_rows", "append_as_follower", "read", "scan", "offset_for_timestamp", "max_timestamp"),
    *("segments", "log_start_offset", "log_end_offset", "high_watermark", "last_stable_offset", "recovery_point"),
    *("leader_epochs", "producers", "size_bytes", "roll", "roll_if_due", "delete_old_segments", "clean"),
    *("truncate_to", "truncate_fully_and_start_at", "advance_log_start_offset", "advance_high_watermark"),
    *("begin_leader_epoch", "reconfigure", "flush", "checkpoint", "close"),
)


class SetOrigin(NamedTuple):
    """Who appends a set, and by what it rolls.

    Parameters
    ----------
    kind : str
        "client", "coordinator" or "replication".
    states_first_offset : bool
        The header of the set states its first offset.
    follows_segments : bool
        The leader's segments are followed: neither size nor time rolls, only what a segment cannot hold.
    begins_segment : int or None
        Where the segment of the set begins, if that is a new one of the leader's.
    """

    kind: str
    states_first_offset: bool = True
    follows_segments: bool = False
    begins_segment: int | None = None


CLIENT = SetOrigin("client")


class Log:
    """A partition directory, open for writing. Its files are those that a broker would leave. A context manager.

    Parameters
    ----------
    path : path
        ``<log directory>/<topic>-<partition>``; created if it is missing.
    config : LogConfig or mapping, optional
        The topic's settings by Kafka's names.
    release : str, optional
        The release of Kafka whose rules apply: "0.10.2", "3.9" or "4.3". None follows the message format, and is 3.9
        for record batches.
    generation : str, optional
        Another word for ``release``.
    shipped : bool
        Behave exactly as that Kafka release does, also where the default differs (docs/differences.md lists where).
    clock : callable, optional
        Returns ms since the epoch; None is the wall clock.
    create : bool
        False refuses a directory that does not exist.
    topic_id : str, optional
        22 characters of URL-safe base64, for ``partition.metadata``.
    high_watermark : int, optional
        Where it starts; only ``advance_high_watermark`` raises it. None follows the log end offset, as with a single
        replica.
    producer_id_expiration_ms : int
        Producers that sent nothing for this long are forgotten, at start-up and by ``remove_expired_producers``.
    log_start_offset, recovery_point : int, optional
        None reads them from the checkpoints of the log directory.
    proposals : iterable
        In place of the setting ``proposals``: names, or objects of the extension that has this setting.

    Attributes
    ----------
    recovered : list of Recovered
        Everything that start-up cut, removed, set aside or rebuilt: path, position, bytes, reason. Segments whose
        indexes prove wrong in use are rebuilt and added here.
    clean_start : bool
        The last writer closed the partition cleanly.
    recovery_point : int
        All records below this offset are on disk.
    closed : bool

    Raises
    ------
    FileNotFoundError, ValueError
        ``create`` is false and the directory is missing; the name is not a partition's; a setting is invalid.
    LogLockedError
        A broker or another process holds the log directory, or this process holds the partition.
    LogStorageError
        The disk failed.

    Notes
    -----
    One thread changes the log at a time; others wait. Readers never wait for an append, and see whole batches only.
    A failed append leaves nothing in the log. If the disk leaves that in doubt, the log closes itself, and the next
    start recovers it. The log has no threads: the first later call after their delay removes deleted files.

    Source: Log, LogSegment (0.10.2), UnifiedLog, LocalLog (3.9).
    """

    closed = True  # until it is open: invalid arguments leave an object that was never opened

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: LogConfig | Mapping[str, Any] | None = None,
        *,
        release: str | None = None,
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
        self.path, self.topic, self.partition = _partition_directory(path)
        self._pinned_release = one_release(release, generation)
        self.config = LogConfig.of(config, release=self._pinned_release)
        self.behaviour = self.config.behaviour(shipped)
        self._process = os.getpid()
        self._clock = wall_clock if clock is None else _checked_clock(clock)
        self._failure: str | None = None
        self._lock: threading.RLock
        self._readers: ReadersWriterLock
        self._cleaning: threading.RLock  # during a pass of the cleaner
        new_in_children(self, _lock=threading.RLock, _readers=ReadersWriterLock, _cleaning=threading.RLock)
        self._truncations = 0
        self._closing = False
        self._deletions = DeletionQueue()
        self.tell: Callable[[str, str], object] | None = None  # takes what is told once, and its text, for a warning
        self._told: set[str] = set()
        self._corrupt_indexes: list[LogSegment] = []  # their indexes must be rebuilt
        self._listeners: dict[str, Listener] = {}  # by the setting of an extension
        high_watermark = optional_offset("high_watermark", high_watermark)
        log_start_offset = optional_offset("log_start_offset", log_start_offset)
        recovery_point = optional_offset("recovery_point", recovery_point)
        given = _sequence("proposals", proposals)
        self._asked = {"proposals": given} if given else {}  # in place of settings
        self._producer_expiration_ms = integer("producer_id_expiration_ms", producer_id_expiration_ms, 1, INT64_MAX)
        topic_id = _topic_id(topic_id)
        if boolean("create", create):
            local.make_directory(self.path)
        elif not files.exists(self.path):
            raise FileNotFoundError(f"path: no directory {self.path}")
        files.require_plain_logs(self.path, "writing")
        known = checkpoints.read_topic_id(self.path)
        if None not in (known, topic_id) and known != topic_id:
            raise InvalidRequestError(f"topic_id: expected {known}, as partition.metadata has it, found {topic_id}")
        self.topic_id = known or topic_id
        self._entry = PartitionEntry(*os.path.split(self.path), self.topic, self.partition)
        self.closed = False
        try:
            self._start(high_watermark, log_start_offset, recovery_point)
        except BaseException:
            self.closed = True
            self._entry.leave(clean=False)
            raise

    # --- open -------------------------------------------------------------------------------------

    def _start(
        self,
        high_watermark: int | None,
        log_start_offset: int | None,
        recovery_point: int | None,
    ) -> None:
        now = self._clock()
        self.clean_start = self._entry.clean
        log_start_offset = self._given_or_checkpointed(log_start_offset, LOG_START_OFFSETS)
        recovery_point = self._given_or_checkpointed(recovery_point, RECOVERY_POINTS)
        self._high_watermark = None
        self.recovered = self._load(now, self.clean_start, log_start_offset, recovery_point)
        for checkpoint, (fault, kept) in self._entry.malformed().items():
            meaning = checkpoints.MEANINGS[os.path.basename(checkpoint)]
            self.recovered.append(Recovered(checkpoint, 0, 0, f"malformed: ignored: {fault}; {meaning}", 0, kept))
        metadata = os.path.join(self.path, PARTITION_METADATA)
        if (wrong := checkpoints.fault_of(metadata)) is not None:
            why = f"malformed: ignored: {wrong}; {checkpoints.MEANINGS[PARTITION_METADATA]}"
            self.recovered.append(Recovered(metadata, 0, 0, why, 0))
        if self.topic_id is not None and checkpoints.read_topic_id(self.path) is None:
            checkpoints.write_topic_id(self.path, self.topic_id)
        if (self._entry.checkpoint(CLEANER_OFFSETS) or 0) > self._end:  # records that come there now are dirty
            self._entry.write_checkpoint(CLEANER_OFFSETS, None)
        self._high_watermark = None if high_watermark is None else min(max(high_watermark, self._log_start), self._end)
        self._publish()
        self._last_flush = self._last_checkpoint = now
        self._follow()

    def _follow(self) -> None:
        """Begin to report to the listeners that the settings, or the argument in their place, ask for."""
        asked = {**dict(self.config.added), **self._asked}
        if asked:
            reader = PartitionLog(self.path, self.topic, self.partition)
            self._listeners = listeners.opened(asked, reader, self.config)

    def _given_or_checkpointed(self, given: int | None, checkpoint: str) -> int:
        known = self._entry.checkpoint(checkpoint) if given is None else given
        return max(known or 0, 0)

    def _load(self, now_ms: int, clean: bool, log_start_offset: int, recovery_point: int) -> list[Recovered]:
        """Load the directory under the current settings and publish it. Returns what was recovered."""
        loaded = LogLoader(
            self.path,
            self.config,
            self.behaviour,
            now_ms=now_ms,
            clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            producer_expiration_ms=self._producer_expiration_ms,
            sealed={} if self.behaviour.believes_indexes else self._entry.index_checksums(),
            noted=self._entry.noted_magics(),
        )
        loaded.load()
        self._corrupt_indexes = [one for one in loaded.segments if one.trust.corrupt is not None]
        for segment in loaded.segments:
            segment.trust.on_corrupt = self._corrupt_indexes.append
        self.recovery_point = loaded.recovery_point
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._end = loaded.end_offset
        self._log_start = loaded.log_start_offset
        for remove in loaded.deletions:
            self._deletions.add(now_ms, self.config.file_delete_delay_ms, remove)
        self._deletions.sweep(now_ms)
        self._view = View((), (), self._end, 0, self._log_start)
        self._publish(tuple(loaded.segments))
        return loaded.recovered

    # --- state ------------------------------------------------------------------------------------

    def __dir__(self) -> list[str]:
        return list(PUBLIC)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({described(self._described)})"

    def _described(self) -> list[str]:
        seen = self._view
        times = [time for segment in seen.segments if (time := segment.claimed_timestamp_ms) is not None]
        parts = [repr(self.path), f"log_start_offset={seen.log_start_offset}", f"log_end_offset={seen.end_offset}"]
        parts += [f"largest_timestamp={show_time(max(times))}"] if times else []
        return [*parts, f"segments={len(seen.segments)}", f"release={self.release!r}", *["closed"] * self.closed]

    @property
    def release(self) -> str:
        """The release that is followed: "0.10.2", "3.9" or "4.3"."""
        return self.behaviour.release

    @property
    def generation(self) -> str:
        """Another word for ``release``."""
        return self.release

    @property
    def shipped(self) -> bool:
        """Whether it is followed exactly."""
        return self.behaviour.shipped

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments, oldest first; the last one is the active segment."""
        return self._view.segments

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers may ask for."""
        return self._view.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._view.end_offset

    @property
    def high_watermark(self) -> int:
        """Records below this offset are on all replicas: the log end offset, unless one was given."""
        mark = self._high_watermark
        return self._view.end_offset if mark is None else mark

    @property
    def last_stable_offset(self) -> int:
        """First offset of the earliest open transaction, else the high watermark."""
        unstable = self._producers.first_unstable_offset
        mark = self.high_watermark
        if unstable is None:
            return mark
        seen = self._view
        if unstable < seen.log_start_offset:
            unstable = seen.log_start_offset
            if self.behaviour.stable_at_batch_base:
                holds = seen.segments[max(bisect_right(seen.bases, unstable) - 1, 0)].translate_offset(unstable)
                unstable = unstable if holds is None else holds.base_offset
        return min(mark, unstable)

    @property
    def size_bytes(self) -> int:
        """Published bytes of all segments."""
        seen = self._view
        return sum(seen.size(number) for number in range(len(seen.segments)))

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(self._epochs.entries)

    @property
    def largest_producer_id(self) -> int:
        """The greatest producer id in the log, -1 if there is none."""
        return self._producers.largest_id

    def producers(self) -> list[ProducerStateEntry]:
        """The state of each producer, in Kafka's order. Do not change the entries."""
        return self._producers.in_table_order()

    @property
    def proposals(self) -> Any:
        """The listener that the setting or argument ``proposals`` asks for; None without one."""
        return self._listeners.get("proposals")

    def _publish(self, segments: tuple[LogSegment, ...] | None = None, bases: tuple[int, ...] | None = None) -> None:
        """Show readers the log as it is now."""
        if segments is None:
            bases, segments = self._view.bases, self._view.segments
        elif bases is None:
            bases = tuple([segment.base_offset for segment in segments])
        self._view = View(segments, bases, self._end, segments[-1].size, max(self._log_start, bases[0]))
        self._producers.replicated_to(self.high_watermark)

    def _check_open(self) -> None:
        if self.closed or self._process != os.getpid():
            found = "a closed one" if self.closed else f"one that process {self._process} has open"
            reason = f": {self._failure}" if self._failure is not None else ""
            raise LogClosedError(f"expected an open log, found {found}{reason}", path=self.path)

    # --- append -----------------------------------------------------------------------------------

    def append(self, buf: Bytes, *, leader_epoch: int | None = None, origin: str = "client") -> Validated:
        """Append a set of batches as the leader: validate it, assign offsets and times, write it.

        Parameters
        ----------
        buf : buffer
            Whole batches or messages as a producer sends them; an incomplete one at the end is dropped.
        leader_epoch : int, optional
            None is the newest epoch that the log knows, else 0.
        origin : str
            "client", or "coordinator" for control batches.

        Returns
        -------
        Validated
            The written set. ``entries`` is 0 if nothing was written because the set is a ``duplicate``: it has the
            epoch and sequences of one of the producer's last five batches, and the answer is that batch's. As Kafka, a
            log that is ``shipped`` also accepts a set without a whole batch, and writes nothing.

        Raises
        ------
        KtsError
            The whole set was refused.
        InvalidRecordError
            There is no whole batch.
        OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError, TransactionCoordinatorFencedError
            The set does not continue the producer's last batch. As in Kafka, this is checked last.
        LogStorageError
            The set could not be written; none of it is in the log.
        """
        with self._lock:
            self._check_open()
            now = self._clock()
            latest = self._epochs.latest
            if leader_epoch is None:
                leader_epoch = max(latest, 0)
            else:
                leader_epoch = integer("leader_epoch", leader_epoch, -1, INT32_MAX)
                if leader_epoch < latest and self.behaviour.fences_leader_epochs:
                    why = f"expected at least {latest}, the newest, found {leader_epoch}"
                    raise InvalidRequestError(f"leader_epoch: {why}")
            done = self._checked(buf, self._end, now, leader_epoch, origin)
            if done.entries:
                # A coordinator's markers may be newer than the topic's format.
                who, magic = (CLIENT, self.config.magic) if origin == "client" else (SetOrigin(origin), UNREAD)
                first = self._store(done, now, who, leader_epoch, magic)
                if first is not None:
                    return done._replace(
                        records=b"",
                        first_offset=first.first_offset,
                        last_offset=first.last_offset,
                        log_append_time_ms=first.timestamp_ms,
                        entries=0,
                        next_offset=self._end,
                    )
            elif self.behaviour.refuses_empty_sets:
                size = memoryview(buf).nbytes
                found = f"{size} bytes without one" if size else "no bytes"
                raise InvalidRecordError(f"buf: expected at least one whole batch or message, found {found}")
            return done

    def _checked(self, buf: Bytes, offset: int, now_ms: int, leader_epoch: int, origin: str) -> Validated:
        """A set that is checked as a leader does, for an append at an offset."""
        stamp = now_ms
        if self._listeners and self.config.message_timestamp_type == "LogAppendTime":
            for listener in self._listeners.values():
                stamp = listener.append_time(stamp)
        done = validate(
            buf,
            offset=offset,
            now_ms=stamp,
            config=self.config,
            behaviour=self.behaviour,
            leader_epoch=leader_epoch,
            origin=origin,
        )
        if self.config.undecided and REFUSED_BY_NEWEST not in self._told and done.entries:
            refusal = refused_by_newest(buf, done, stamp)
            if refusal is not None:
                self._tell_once(REFUSED_BY_NEWEST, refusal)
        return done

    def _tell_once(self, what: str, text: str) -> None:
        if what in self._told:
            return
        self._told.add(what)
        if self.tell is None:
            warn(f"{self.path}: {text}", self.path)
        else:
            self.tell(what, text)

    def append_rows(
        self, rows: AnyRows, *, compression: str | None = None, unit: str | None = None, batch_bytes: int | None = None
    ) -> Appended:
        """Append rows of any number as the leader, as record batches within the topic's limits.

        Parameters
        ----------
        rows : Arrow table or batch, object with ``__arrow_c_stream__``, dict of columns, or iterable of dicts
            Data frames of pandas, polars and DuckDB have ``__arrow_c_stream__``. Columns are those of ``kts.encode``:
            ``timestamp``, ``key``, ``value``, ``headers``. The other columns that ``kts.scan`` gives are accepted and
            left out; the log gives the offsets. A row without a timestamp (null) gets the log's clock, as from Kafka's
            producer; -1 means no timestamp.
        compression : str, optional
            As in ``kts.encode``. None is the topic's ``compression.type``, and "none" if that is ``producer``. As with
            any producer, the log compresses again if the topic has another codec.
        unit : {"s", "ms", "us", "ns"}, optional
            The unit of integers in ``timestamp``. None means ms, and refuses an integer that looks like another unit.
            Text is ISO 8601, and datetimes must be aware; columns of timestamps without a zone are UTC. Fractions of a
            millisecond are cut off.
        batch_bytes : int, optional
            Limit of the uncompressed bytes of a batch, as a producer's ``batch.size``; a single row may exceed it.

        Returns
        -------
        Appended
            The first and the last offset, the number of batches, and the greatest timestamp.

        Raises
        ------
        TypeError, ValueError
            Not rows, no row, an unknown column, a wrong value.
        KtsError
            The log refused a row. ``record_index`` is its number, if it is known.
        LogStorageError
            The rows could not be written.

        Notes
        -----
        All rows or none: every batch is encoded and checked before the first is written, so that a bad row leaves the
        log as it was, with its segments. A batch has at most ``max.message.bytes``, ``segment.bytes`` and 1 MiB; a
        single row that exceeds the topic's limits is refused. Each batch is one append, which may roll the segment, so
        that rows beyond ``segment.bytes`` fill several segments. If the disk fails or Ctrl-C arrives between them, the
        batches before are truncated again, also if the error closes the log. Only if the disk still fails then, or the
        process ends, the next start may find a part: the first batches, whole. Readers may see the first batches before
        the last ones are written.

        The encoded rows are kept in memory until they are written. For a stream larger than that, call ``append_rows``
        for each of its batches.
        """
        self._check_open()
        config = self.config
        target = target_codec(config.compression_type)
        if compression is None:
            compression = CODEC_NAMES[0 if target == PRODUCER else target]
        most = min(config.max_message_bytes, config.segment_bytes, LARGEST_ROW_BATCH_BYTES)
        if compression != CODEC_NAMES[0] or target > 0:  # data that cannot be compressed grows a little
            most -= most // 64 + 256
        if batch_bytes is not None:
            most = min(most, integer("batch_bytes", batch_bytes, 1, INT32_MAX))
        sets = list(
            encode_rows(
                rows,
                magic=config.magic,
                compression=compression,
                batch_bytes=max(most, 1),
                now_ms=self._clock(),
                unit=time_unit("unit", unit),
            )
        )
        with self._lock:
            self._check_open()
            now, leader_epoch, first = self._clock(), max(self._epochs.latest, 0), self._end
            done = self._checked_rows(sets, now, leader_epoch)
            try:
                for one in done:
                    self._store(one, now, CLIENT, leader_epoch, config.magic)
            except BaseException:
                self._take_back(first)
                raise
        is_time = self.behaviour.times.minus_one
        times = [one.max_timestamp_ms for one in done if is_time or one.max_timestamp_ms != NO_TIMESTAMP]
        return Appended(first, done[-1].last_offset, sum(one.entries for one in done), max(times, default=NO_TIMESTAMP))

    def _take_back(self, end: int) -> None:
        """Remove what was appended from an offset on, after an error in the middle of an append of several sets."""
        with suppress(KtsError):
            if not self.closed and self._end > end:
                self.truncate_to(end)
        if not self.closed:
            return
        with (  # recovered as at the next start; the disk may still fail
            suppress(KtsError),
            Log(
                self.path,
                self.config,
                release=self._pinned_release,
                shipped=self.shipped,
                clock=self._clock,
                create=False,
                proposals=self._asked.get("proposals", ()),
                producer_id_expiration_ms=self._producer_expiration_ms,
            ) as recovered,
        ):
            recovered.truncate_to(end)

    def _checked_rows(self, sets: list[RowSet], now_ms: int, leader_epoch: int) -> list[Validated]:
        """The sets, checked and with their offsets. The rows' own sets are dropped on the way."""
        done: list[Validated] = []
        offset = self._end
        for number, one in enumerate(sets):
            try:
                done.append(self._checked(one.records, offset, now_ms, leader_epoch, "client"))
                self._check_set_size(done[-1], "client")
            except KtsError as error:
                raise _at_row(error, one) from error.__cause__
            offset = done[-1].next_offset
            sets[number] = one._replace(records=memoryview(b""))
        return done

    def append_as_follower(self, buf: Bytes, *, segment_base: int | None = None) -> Validated:
        """Append batches of a leader; their offsets and bytes stay.

        Parameters
        ----------
        segment_base : int, optional
            Base offset of the leader's segment that contains the set. A segment begins there, and elsewhere only where
            it must: whatever rule the leader rolls by, the copy has its segments. None rolls by the settings.

        Raises
        ------
        InvalidOffsetError
            Offsets are out of order, or below the log end offset.
        """
        with self._lock:
            self._check_open()
            done = validate_follower(buf, end_offset=self._end, config=self.config, behaviour=self.behaviour)
            if done.entries:
                entries = Entries(done.records, until_damage=True)
                known = entries[0].magic == 2
                newest = UNREAD if entries.error is not None else int(entries.column("magic").max())
                if self.behaviour.indexes_inner_offset and self._view.segments[-1].entry_is_due:
                    done = done._replace(first_offset=self._first_offset(done))
                follows = segment_base is not None
                if segment_base is not None and not self._may_begin(segment_base, done, known):
                    segment_base = None
                leader = SetOrigin("replication", known, follows, segment_base)
                self._store(done, self._clock(), leader, None, newest)
            return done

    def appends_at_once(self, size_bytes: int, timestamp_ms: int | None = None) -> bool:
        """Whether an append of this size would wait neither for another thread nor for the disk.

        Parameters
        ----------
        timestamp_ms : int, optional
            The greatest timestamp of the set, which may roll the segment; None uses the clock.

        Notes
        -----
        An estimate for callers that must not wait, such as an event loop. An append waits for the disk when it rolls
        the segment, when the settings ask for a flush, and when a listener may do either.
        """
        if self._listeners or not self._lock.acquire(blocking=False):
            return False
        try:
            config, segment, now = self.config, self._view.segments[-1], self._clock()
            flushes = config.flush_messages < INT64_MAX or config.flush_ms < INT64_MAX
            rolls = segment.size > config.segment_bytes - size_bytes or segment.indexes_are_full
            stamped = timestamp_ms is None or config.message_timestamp_type == "LogAppendTime"
            waited = segment.time_waited_for_roll(now, now if stamped or timestamp_ms is None else timestamp_ms)
            rolls = rolls or (segment.size > 0 and waited > config.max_segment_ms - segment.jitter_ms)
            return not (flushes or rolls or self._deletions.is_due(now))
        finally:
            self._lock.release()

    def _may_begin(self, base_offset: int, done: Validated, known: bool) -> bool:
        """Whether a segment may begin at an offset. ``known``: the header of the set states its first offset."""
        segment = self._view.segments[-1]
        if not segment.size or not segment.base_offset < base_offset >= self._end:
            return False
        return base_offset <= (done.first_offset if known else self._first_offset(done))

    def _first_offset(self, done: Validated) -> int:
        """The first offset of a set as an index rebuild finds it. A wrapper's header does not state it."""
        try:
            offsets = decoded(done.records[: Entries(done.records)[0].end])[0]
        except CorruptRecordError:
            return done.first_offset
        return int(offsets[0]) if len(offsets) and offsets[0] >= self._end else done.first_offset

    def _store(
        self, done: Validated, now_ms: int, origin: SetOrigin, leader_epoch: int | None, newest_magic: int
    ) -> Sent | None:
        """Write a set; or return the batch that it duplicates.

        Parameters
        ----------
        leader_epoch : int or None
            The epoch of every batch in the set; None reads them from the batches.
        newest_magic : int
            No entry of the set has a newer magic.
        """
        if self._deletions.is_due(now_ms):
            self._delete_due(now_ms)
        self._check_set_size(done, origin.kind)
        if not self._end <= done.last_offset < INT64_MAX:
            raise InvalidOffsetError(f"expected offsets below 2^63-1, found a set that begins at {self._end}")
        segment = self._segment_for(done, now_ms, origin)
        entries = Entries(done.records) if self.behaviour.indexes_last_offset else NO_ENTRIES
        self._epochs.follow(entries, leader_epoch)
        update = self._producers.prepare(done.records, entries, origin.kind)
        if isinstance(update, Sent):
            return update
        self._write(segment, done, entries, update, newest_magic)
        for listener in self._listeners.values():
            listener.appended(segment.base_offset, done.records, done.first_offset)
        config, end = self.config, self._end
        if end - self.recovery_point >= config.flush_messages or is_over(self._last_flush, config.flush_ms, now_ms):
            with self._close_if_in_doubt():
                self._flush_to(end, now_ms)
        return None

    def _segment_for(self, done: Validated, now_ms: int, origin: SetOrigin) -> LogSegment:
        """The segment that a set goes to: the active one, or a new one where it rolls."""
        segment, config, follows = self._view.segments[-1], self.config, origin.follows_segments
        if origin.begins_segment is not None:
            return self._roll(origin.begins_segment, now_ms)
        limit_ms = INT64_MAX if follows else config.max_segment_ms - segment.jitter_ms
        most = INT32_MAX if follows else config.segment_bytes
        why = policies.roll_reason(
            segment.size,
            min(len(done.records), most),
            most,
            segment.time_waited_for_roll(now_ms, done.max_timestamp_ms),
            limit_ms,
            segment.indexes_are_full,
            done.last_offset - segment.base_offset,
        )
        if self._listeners and not follows and segment.size and why in (None, "time"):
            for listener in self._listeners.values():
                why = listener.time_roll(why, now_ms, segment.created_ms, limit_ms)
        if why is None:
            return segment
        stated = done.first_offset if origin.states_first_offset and self.behaviour.rolls_at_first_offset else -1
        return self._roll(policies.new_base_offset(stated, done.last_offset, self._end), now_ms)

    def _write(
        self, segment: LogSegment, done: Validated, entries: Entries, update: Update | None, newest_magic: int
    ) -> None:
        """Append a set to its segment, and publish it."""
        before = segment.size
        try:
            segment.append(
                done.records,
                done.first_offset,
                done.last_offset,
                done.max_timestamp_ms,
                done.offset_of_max_timestamp,
                entries,
                newest_magic,
            )
            end = self._end = done.last_offset + 1
            self._producers.appended(update, end, segment)
            seen = self._view
            self._view = View(seen.segments, seen.bases, end, segment.size, seen.log_start_offset)
        except BaseException as error:
            if segment.failed is not None or (segment.size != before and _leaves_doubt(error)):
                self._fail(error)  # for example Ctrl-C after the set was written, before it was published
            raise
        if update is not None:
            self._producers.replicated_to(self.high_watermark)

    def _check_set_size(self, done: Validated, origin: str) -> None:
        # A set that a leader appended before its segment.bytes was lowered gets a segment of its own.
        alone = done.entries == 1 and origin == "replication" and self.behaviour.followers_exceed_segment
        size, most = len(done.records), self.config.segment_bytes
        if size > most and not alone:
            raise RecordBatchTooLargeError(f"expected a set of at most segment.bytes = {most} bytes, found {size}")

    # --- roll -------------------------------------------------------------------------------------

    def roll(self) -> int:
        """Close the active segment and begin a new one at the log end offset, which is returned."""
        with self._lock:
            self._check_open()
            return self._roll(self._end, self._clock()).base_offset

    def roll_if_due(self) -> int | None:
        """Roll the active segment if a listener says so although nothing is appended.

        Returns
        -------
        int or None
            The base offset of the new segment; None if nothing changed.

        Notes
        -----
        Kafka rolls by time only when it appends. So does a log without a listener, or with one that says the same: for
        them this method does nothing.
        """
        with self._lock:
            self._check_open()
            segment, now = self._view.segments[-1], self._clock()
            limit_ms = self.config.max_segment_ms - segment.jitter_ms
            if not segment.size or not any(
                listener.idle_roll(now, segment.created_ms, limit_ms) for listener in self._listeners.values()
            ):
                return None
            return self._roll(self._end, now).base_offset

    def _roll(self, base_offset: int, now_ms: int) -> LogSegment:
        """Flush the old segment, then create the new one: a crash leaves no hole between them."""
        segments = self._view.segments
        active = segments[-1]
        if base_offset <= active.base_offset:
            return self._roll_in_place(active, base_offset, now_ms)
        with self._close_if_in_doubt():
            self._remove_files(base_offset)
            with self._readers.excluded():
                active.on_become_inactive_segment()
            active.flush()  # for the closing time-index entry, even if all records were flushed before
            active.trust.seal()
            self._flush_to(base_offset, now_ms)
        try:
            new = open_segment(self.path, base_offset, self.config, self.behaviour, now_ms)
            active.rest()
            with self._close_if_in_doubt():
                self._publish((*segments, new), (*self._view.bases, base_offset))
                self._producers.rolled(base_offset)
                for listener in self._listeners.values():
                    listener.rolled(active.base_offset, base_offset)
        except BaseException:
            if not self.closed:  # continue with the old one; after a truncation the new files would be a hole
                with self._close_if_in_doubt():
                    self._remove_files(base_offset)
                    active.resize_indexes()
            raise
        return new

    def _remove_files(self, base_offset: int) -> None:
        """Remove the files of a segment that is not in the log."""
        for suffix in SEGMENT_SUFFIXES:
            files.remove(f"{self.path}/{base_offset:020d}{suffix}", missing_ok=True)

    def _roll_in_place(self, active: LogSegment, base_offset: int, now_ms: int) -> LogSegment:
        """Replace an empty active segment whose indexes are too small."""
        refused = not self.behaviour.rolls_in_place
        if active.size and not refused:
            raise KtsError(f"expected to roll after offset {active.base_offset}, found {base_offset}", path=active.path)
        with self._close_if_in_doubt(), self._readers.excluded():
            if refused:  # Kafka continues with indexes of size 0, and refuses every append until a restart
                active.on_become_inactive_segment()
                active.rest()
                files.remove(active.path)
            else:
                if self.behaviour.makes_index_before_roll:
                    active.open_offset_index()
                self._rename_deleted([active], now_ms)
            new = open_segment(self.path, active.base_offset, self.config, self.behaviour, now_ms)
            self._publish((*self._view.segments[:-1], new))
            self._producers.rolled(base_offset)
        if refused:
            raise KtsError(f"expected no segment at offset {base_offset} to roll to, found one", path=new.path)
        return new

    # --- retention --------------------------------------------------------------------------------

    def delete_old_segments(self) -> list[Deleted]:
        """Apply retention: delete the oldest segments by age, by size, or below the log start offset.

        Notes
        -----
        Files are renamed ``.deleted``. The first call after ``file.delete.delay.ms`` removes them.
        """
        with self._lock:
            self._check_open()
            now = self._clock()
            config = self.config
            policy = RetentionPolicy(config.retention_ms, config.retention_bytes, config.deletes, self.behaviour)
            gone: list[Deleted] = []
            for rule in policies.retention_rules(policy):
                facts = self._facts()
                count = policies.deletable(rule, facts, policy, now)
                if rule == policies.TIME and self.behaviour.tells_of_future_segments:
                    self._tell_of_future(policies.kept_by_future(facts, policy, now))
                if count == 0:
                    continue
                segments = self._view.segments[:count]
                if count == len(self._view.segments):
                    self._roll(self._end, now)
                gone += [Deleted(*one[:3], rule) for one in facts.segments[:count]]
                self._log_start = max(self._log_start, self._view.bases[count])
                with self._close_if_in_doubt():
                    self._remove(segments, now)
            self._delete_due(now)
        self._repair()
        return gone

    def _tell_of_future(self, segment: SegmentFacts | None) -> None:
        if segment is None:
            return
        largest = show_time(segment.largest_timestamp_ms)
        told = f"partition {self.partition}: segment {segment.base_offset} has a timestamp from the future, {largest}"
        after = show_time(segment.largest_timestamp_ms + self.config.retention_ms)
        what = f"{self.partition} {segment.base_offset}"
        self._tell_once(what, f"{told}: it and all later ones are kept until {after} (KAFKA-18929)")

    def delete_due_files(self) -> None:
        """Remove the ``.deleted`` files that are due. Appends, rolls and retention do this as well."""
        with self._lock:
            self._check_open()
            self._delete_due(self._clock())

    def remove_expired_producers(self) -> int:
        """Forget producers that sent nothing for ``producer.id.expiration.ms``. Returns how many."""
        with self._lock:
            self._check_open()
            return self._producers.remove_expired(self._clock())

    def _facts(self) -> LogFacts:
        found = [
            SegmentFacts(segment.base_offset, segment.size, segment.largest_timestamp_ms, not segment.has_timestamp)
            for segment in self._view.segments
        ]
        mark = self.high_watermark if self.behaviour.retains_to_high_watermark else None
        return LogFacts(tuple(found), self._end, self.log_start_offset, mark)

    def _remove(self, segments: Sequence[LogSegment], now_ms: int) -> None:
        """Remove segments in the given order, which must leave no hole if the machine stops halfway."""
        gone = set(map(id, segments))
        self._publish(tuple(segment for segment in self._view.segments if id(segment) not in gone))
        self._rename_deleted(segments, now_ms)
        for listener in self._listeners.values():
            for segment in segments:
                listener.removed(segment.base_offset)

    def _rename_deleted(self, segments: Sequence[LogSegment], now_ms: int) -> None:
        delay = self.config.file_delete_delay_ms
        for segment in segments:
            with self._readers.excluded():
                segment.change_file_suffixes("", ".deleted")
                segment.abandon()
            self._deletions.add(now_ms, delay, segment.delete)
            for path in self._producers.removed(segment.base_offset):
                self._deletions.add(now_ms, delay, partial(files.remove, path, missing_ok=True))
            local.sync_directory(self.path)
        self._delete_due(now_ms)

    def _delete_due(self, now_ms: int) -> None:
        if self._deletions.is_due(now_ms):
            with self._close_if_in_doubt(), self._readers.excluded():
                self._deletions.sweep(now_ms)

    # --- compaction -------------------------------------------------------------------------------

    def clean(
        self,
        now_ms: int | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
        dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
        load_factor: float = LOAD_FACTOR,
        on_progress: Callable[[int], None] | None = None,
    ) -> Cleaned:
        """Compact the log as Kafka's cleaner does: keep the last record of each key below the active segment.

        Parameters
        ----------
        now_ms : int, optional
            The time in ms; None is the log's clock.
        force : bool
            Also if ``min.cleanable.dirty.ratio`` is not reached. The other rules stay: the active segment, open
            transactions, ``min.compaction.lag.ms``, and tombstones until ``delete.retention.ms`` after the first pass.
        dry_run : bool
            Count what would go, and change nothing.
        dedupe_buffer_bytes : int
            The most memory for the map of keys to offsets (``log.cleaner.dedupe.buffer.size``), 24 bytes a key. More
            keys need more passes. While the map grows, the smaller one before it is kept.
        load_factor : float
            The part of the map that may be in use (``log.cleaner.io.buffer.load.factor``).
        on_progress : callable, optional
            Told the bytes that were read since the last call, twice for the dirty part of the log.

        Returns
        -------
        Cleaned
            What was done; ``reason`` says why nothing was.

        Raises
        ------
        CorruptRecordError, CorruptIndexError
            Damage in a segment: it and what follows stay as they are.
        LogStorageError
            The disk failed.

        Notes
        -----
        Appends and reads go on meanwhile, and a second call waits. A crash leaves each group of segments old or new. If
        segments are truncated or deleted meanwhile, the pass ends.

        Source: LogCleaner (3.9), KIP-58, KIP-354, KIP-534.
        """
        with self._cleaning:
            with self._lock:
                self._check_open()
                now = self._clock() if now_ms is None else integer("now_ms", now_ms, 0)
                plan = self._cleanable(now)
                if plan.resets_checkpoint and self.config.compacted and not dry_run:
                    with self._close_if_in_doubt():
                        self._entry.write_checkpoint(CLEANER_OFFSETS, plan.first_dirty_offset)
                reason = plan.why_not(self.config)
                if not self.config.compacted:
                    reason = "cleanup.policy has no compact"
                elif boolean("force", force) and plan.cleanable_bytes:
                    reason = None
                if reason is not None:
                    return Cleaned(reason, plan.first_dirty_offset, plan.first_dirty_offset)
                truncations = self._truncations
                check = partial(self._check_pass, truncations)
                seen = CleanedLog(self._view.segments, self.log_start_offset, self._copied_producers, check)
                run = CleaningPass(
                    *(seen, plan, self.config, self.behaviour, now),
                    *(dedupe_buffer_bytes, load_factor, on_progress),
                )
            return self._run(run, truncations, dry_run)

    def _cleanable(self, now_ms: int) -> Cleanable:
        known = self._entry.checkpoint(CLEANER_OFFSETS)
        return cleaner.cleanable(
            self._view.segments,
            self.log_start_offset,
            self._end,
            self.last_stable_offset,
            known,
            self.config,
            now_ms,
        )

    def _copied_producers(self) -> list[ProducerStateEntry]:
        with self._lock:
            return self.producers()

    def _check_pass(self, truncations: int) -> None:
        """End a pass of the cleaner if the log is closed or about to be, or was truncated."""
        if self._closing or self.closed or truncations != self._truncations:
            raise cleaner.Interrupted

    def _run(self, run: CleaningPass, truncations: int, dry_run: bool) -> Cleaned:
        """A pass of the cleaner, each group of segments swapped in as it is done."""
        reason, before, after = None, 0, 0
        next_dirty, left = run.plan.first_dirty_offset, list(run.log.segments)
        try:
            run.map()
            for group in run.groups():
                if dry_run:
                    run.filter(group, lambda _: None)
                else:
                    self._swap_in(run.make(self.path, group), group, truncations, run.now_ms)
                left = left[len(group) :]
                before, after = before + len(group), after + 1
            if not dry_run:
                with self._lock:
                    self._check_pass(truncations)
                    with self._close_if_in_doubt():
                        self._entry.write_checkpoint(CLEANER_OFFSETS, run.cleaner.latest + 1)
                next_dirty = run.cleaner.latest + 1
        except (cleaner.Interrupted, KtsError) as error:
            if not isinstance(error, cleaner.Interrupted) and not self._has_overtaken(truncations, left):
                raise
            reason = "the log was closed, or segments were truncated or deleted meanwhile"
            self._remove_cleaned(left)
        finally:
            if after and not dry_run and self._listeners:
                with self._lock:
                    if not self.closed:
                        self._follow_anew()
        return run.result(reason, next_dirty, after, before)

    def _has_overtaken(self, truncations: int, left: Sequence[LogSegment]) -> bool:
        """Whether the log changed under a pass, whose segments may have lost their files or got other bytes."""
        with self._lock:
            there, is_closed = set(map(id, self._view.segments)), self.closed or self._closing
            return is_closed or truncations != self._truncations or not there.issuperset(map(id, left))

    def _remove_cleaned(self, left: Sequence[LogSegment]) -> None:
        """Remove the files of a pass that ended early, unless another process may have the directory."""
        with self._lock:
            if left and not self.closed:
                with suppress(LogStorageError):
                    cleaner.remove_cleaned(self.path, left[0].base_offset)

    def _swap_in(self, new: LogSegment, old: Sequence[LogSegment], truncations: int, now_ms: int) -> None:
        """Put a cleaned segment in the place of those that it was made of; a crash leaves these or that."""
        with self._lock:
            segments = self._view.segments
            there = set(map(id, segments[:-1]))
            if self._closing or self.closed or truncations != self._truncations or not there.issuperset(map(id, old)):
                new.abandon()
                raise cleaner.Interrupted
            delay = self.config.file_delete_delay_ms
            with self._close_if_in_doubt():
                self._entry.forget_closed([segment.base_offset for segment in old])
                new.change_file_suffixes(cleaner.CLEANED, ".swap")
                local.sync_directory(self.path)  # from here on a start takes the new segment
                with self._readers.excluded():
                    for segment in old:
                        segment.change_file_suffixes("", ".deleted")
                        segment.abandon()
                        self._deletions.add(now_ms, delay, segment.delete)
                    local.sync_directory(self.path)
                    new.change_file_suffixes(".swap", "")
                    new.trust.on_corrupt = self._corrupt_indexes.append
                    gone = set(map(id, old[1:]))
                    kept = (new if segment is old[0] else segment for segment in segments if id(segment) not in gone)
                    self._publish(tuple(kept))
                for segment in old[1:]:
                    for path in self._producers.removed(segment.base_offset):
                        self._deletions.add(now_ms, delay, partial(files.remove, path, missing_ok=True))
                local.sync_directory(self.path)
                self._delete_due(now_ms)

    # --- truncation -------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop the records from an offset on. False if nothing changed.

        Notes
        -----
        The next record gets this offset. A batch that contains the offset is dropped whole. When the call returns, the
        dropped batches are gone from the disk.
        """
        offset = integer("offset", offset, 0)
        with self._lock:
            self._check_open()
            if offset > self._end or (offset == self._end and not self.behaviour.truncates_at_end):
                self._epochs.truncate_from_end(self._end)
                return False
            if offset < self._view.bases[0]:
                self.truncate_fully_and_start_at(offset)
                return True
            now = self._clock()
            with self._close_if_in_doubt(), self._readers.excluded():
                self._lower_checkpoints(offset)
                later = [segment for segment in self._view.segments if segment.base_offset > offset]
                self._remove(later[::-1], now)
                active = self._view.segments[-1]
                active.truncate_to(offset, now)
                truncate_aborted(active.txn_index_path, offset)
                active.flush()
                self._end = offset
                self._log_start = min(self._log_start, offset)
                self._epochs.truncate_from_end(offset)
                self._publish()
                start, magic = self._view.log_start_offset, self.config.magic
                self._producers.rebuild(self._view.segments, start, offset, now, magic=magic)
                self._after_truncation(now)
            self._repair()  # the next append relies on the indexes
            return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and continue the log at an offset."""
        offset = integer("offset", offset, 0)
        with self._lock:
            self._check_open()
            now = self._clock()
            with self._close_if_in_doubt(), self._readers.excluded():
                self._lower_checkpoints(offset)
                gone = self._view.segments
                self._rename_deleted(gone[::-1], now)
                new = open_segment(self.path, offset, self.config, self.behaviour, now)
                local.sync_directory(self.path)
                self._end = self._log_start = offset
                self._epochs.clear()
                self._producers.clear(offset)
                self._publish((new,))
                self._after_truncation(now)

    def _lower_checkpoints(self, offset: int) -> None:
        self._truncations += 1
        if (self._entry.checkpoint(CLEANER_OFFSETS) or 0) > offset:  # or what follows would count as clean
            self._entry.write_checkpoint(CLEANER_OFFSETS, offset)
        if offset < self.recovery_point:
            self.recovery_point = offset
            self._entry.write_checkpoint(RECOVERY_POINTS, offset)

    def _after_truncation(self, now_ms: int) -> None:
        if self._high_watermark is not None:
            self._high_watermark = min(self._high_watermark, self._end)
        self._publish()
        self._checkpoint(now_ms)
        for listener in self._listeners.values():
            listener.truncated()

    # --- log start offset, high watermark, leader epochs ------------------------------------------

    def advance_log_start_offset(self, offset: int) -> bool:
        """Hide the records below an offset; retention deletes their segments. False if they were hidden already.

        Raises
        ------
        OffsetOutOfRangeError
            The offset is beyond the high watermark.
        UnsupportedVersionError
            Kafka 0.10.2 cannot do this.
        """
        with self._lock:
            self._check_open()
            if not self.behaviour.moves_log_start:
                release = self.behaviour.release
                raise UnsupportedVersionError(f"the log start offset moves with the first segment in {release}")
            offset = integer("offset", offset, INT64_MIN, INT64_MAX)
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
            with self._close_if_in_doubt():
                self._epochs.truncate_from_start(offset)
                self._producers.log_start_moved(offset)
                self._checkpoint(self._clock())
            return True

    def advance_high_watermark(self, offset: int) -> None:
        """Set the high watermark, at most to the log end offset. From then on it no longer follows by itself."""
        with self._lock:
            self._check_open()
            offset = integer("offset", offset, INT64_MIN, INT64_MAX)
            self._high_watermark = min(max(offset, self.log_start_offset), self._end)
            self._publish()

    def begin_leader_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the log end offset, if the message format has epochs."""
        with self._lock:
            self._check_open()
            self._epochs.begin(integer("epoch", epoch, 0, INT32_MAX), self._end)

    # --- read and search --------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, min_one_message: bool = False, up_to: str = "log_end") -> Fetched:
        """Bytes of the log, starting with the entry that contains an offset.

        Parameters
        ----------
        max_bytes : int
            At most this many bytes, which may end inside an entry.
        min_one_message : bool
            Return the first entry whole, even if it is larger.
        up_to : str
            "log_end", "high_watermark" or "last_stable": entries from that offset on are left out.

        Raises
        ------
        OffsetOutOfRangeError
            The offset is below the log start offset or beyond the log end offset.
        """
        return self._read(view.read, offset, max_bytes, min_one_message, up_to)

    def slice(self, offset: int, max_bytes: int, *, min_one_message: bool = False, up_to: str = "log_end") -> Sliced:
        """The same as ``read``, as a range of the segment's file that can be sent without copying.

        Notes
        -----
        The range holds a file descriptor until it is closed or garbage collected. Its bytes do not change when segments
        roll, are deleted, or the log closes. If they are truncated, reading them raises LogStorageError.
        """
        return self._read(view.slice_of, offset, max_bytes, min_one_message, up_to)

    def _read(
        self,
        how: Callable[[View, int, int, bool, int], T],
        offset: int,
        max_bytes: int,
        min_one_message: bool,
        up_to: str,
    ) -> T:
        offset = integer("offset", offset, INT64_MIN, INT64_MAX)
        max_bytes = integer("max_bytes", max_bytes, 0, INT64_MAX)
        with self._readers:
            self._check_open()
            seen = self._view
            if up_to == "log_end":
                bound = seen.end_offset
            elif up_to == "high_watermark":
                bound = min(self.high_watermark, seen.end_offset)
            elif up_to == "last_stable":
                bound = min(self.last_stable_offset, seen.end_offset)
            else:
                raise ValueError(f"up_to: expected log_end, high_watermark or last_stable, found {up_to!r}")
            found = how(seen, offset, max_bytes, min_one_message, bound)
        self._repair()
        return found

    @takes(ScanOptions)
    def scan(self, options: ScanOptions) -> pa.RecordBatchReader:
        """The records as a stream of Arrow batches, up to the log end offset of now; see ``kts.scan``.

        Notes
        -----
        The files are read when the stream is. ``high_watermark`` as ``ending_offsets`` is that of the log.
        """
        self._check_open()
        if options.ending_offsets == HIGH_WATERMARK:
            options = replace(options, ending_offsets=self.high_watermark)
        seen = self._view
        reader = PartitionLog(self.path, self.topic, self.partition, log_start_offset=seen.log_start_offset)
        return scanning.records([reader], options, end_offset=seen.end_offset)

    def offset_for_timestamp(
        self, t_ms: Time, *, shipped_search: bool | None = None, unit: str | None = None
    ) -> TimestampOffset | None:
        """The first record whose timestamp is at least ``t_ms``, with its own timestamp; None if there is none.

        Parameters
        ----------
        t_ms : int (ms), aware datetime, date, numpy.datetime64 or text
            As for ``PartitionLog``. The special values of ListOffsets, such as -1, are ordinary timestamps here.
        shipped_search : bool, optional
            Search a single segment, as brokers do; None follows ``shipped``.
        unit : {"s", "ms", "us", "ns"}, optional
            The unit of an integer. None means ms, and warns of an integer that looks like another unit.

        Notes
        -----
        A log with a listener that has an index searches by that index. The answer is the same.
        """
        target = search.target_ms("t_ms", t_ms, unit, self.path)
        with self._readers:
            self._check_open()
            if shipped_search or (shipped_search is None and not self.behaviour.continues_search):
                found = view.shipped_offset_for_timestamp(self._view, target, self.config.magic)
            elif (index := self._index) is not None:
                found = index.search(self, target).found
            else:
                found = view.offset_for_timestamp(self._view, target)
        self._repair()
        return found

    @property
    def _index(self) -> Index | None:
        """The index of a listener by which searches go. Such an index never has -1, which may be a time."""
        if self.behaviour.times.minus_one:
            return None
        return next((one.index for one in self._listeners.values() if one.index is not None), None)

    def max_timestamp(self) -> TimestampOffset | None:
        """The greatest timestamp and the first record that has it; None if the log is empty."""
        with self._readers:
            self._check_open()
            in_all = self.behaviour.seeks_greatest_in_all
            found = view.max_timestamp(self._view) if in_all else view.shipped_max_timestamp(self._view)
        self._repair()
        return found

    # --- reconfigure ------------------------------------------------------------------------------

    def reconfigure(self, config: LogConfig | Mapping[str, Any] | None) -> None:
        """Use other settings from now on. Records already in the log stay as they are.

        Parameters
        ----------
        config : LogConfig or mapping, optional
            All settings of the topic: a setting that is left out returns to its default.

        Raises
        ------
        TypeError, ValueError
            A setting is invalid; nothing has changed.
        LogStorageError
            The disk failed. The log closes if its files are in doubt.

        Notes
        -----
        Index spacing and size, jitter and preallocation take effect with the next segment, the message format with the
        next append, everything else at once. If the format changes the release, or the settings for timestamps
        before 1970 change, the segments are closed and loaded again; readers wait for that. A listener's index that is
        switched on is built from the log.

        Source: UnifiedLog.updateConfig, LocalLog.updateConfig (3.9).
        """
        with self._lock:
            self._check_open()
            new, old = LogConfig.of(config, release=self._pinned_release), self.config
            if new.behaviour(self.shipped) is not self.behaviour:
                with self._close_if_in_doubt(), self._readers.excluded():
                    self._load_again(new)
            else:
                if (new.magic < 2) != (old.magic < 2) and self.behaviour.keeps_leader_epochs:
                    self._change_epochs(new.magic)
                self.config = new
            if (new.added, new.allow_negative_timestamps) != (old.added, old.allow_negative_timestamps):
                self._follow_anew()

    def _follow_anew(self) -> None:
        """Report to other listeners. If one cannot start, the log closes, as it would not have opened."""
        before, self._listeners = self._listeners, {}
        try:
            for listener in before.values():
                listener.closed()
            self._follow()
        except BaseException as error:
            self._fail(error)
            raise

    def _change_epochs(self, magic: int) -> None:
        """Keep leader epochs if the message format has them: only batches of magic 2 do."""
        with self._close_if_in_doubt():
            if magic < 2:
                files.remove(os.path.join(self.path, LEADER_EPOCHS), missing_ok=True)
        self._epochs = LeaderEpochs(self.path, kept=magic == 2)

    def _load_again(self, config: LogConfig) -> None:
        before = {segment.base_offset: segment for segment in self._view.segments}
        self._write_all(flush=True)
        if config.magic < 2 or self.config.magic < 2:  # batches of magic 0 and 1 have no epochs
            files.remove(os.path.join(self.path, LEADER_EPOCHS), missing_ok=True)
        self.config, self.behaviour = config, config.behaviour(self.shipped)
        self.recovered = self.recovered + self._load(self._clock(), True, self._log_start, self._end)
        for segment in self._view.segments:
            if segment.base_offset in before:
                segment.go_on_from(before[segment.base_offset])

    # --- rebuild indexes --------------------------------------------------------------------------

    def _repair(self) -> None:
        """Rebuild the indexes that a search or a read found wrong."""
        while self._corrupt_indexes:
            with suppress(IndexError):  # another thread took it
                self._repair_one(self._corrupt_indexes.pop())

    def _repair_one(self, segment: LogSegment) -> None:
        try:
            rebuilt = segment.rebuilt_indexes()  # appends and readers go on meanwhile
        except LogStorageError:
            return  # deleted meanwhile, or the disk failed: the next use of the log raises that error
        with self._lock:
            segments = self._view.segments
            if self.closed or self._process != os.getpid() or segment not in segments:
                return
            following = next((one.base_offset for one in segments if one.base_offset > segment.base_offset), None)
            with self._close_if_in_doubt(), self._readers.excluded():
                try:
                    done = segment.repair(rebuilt, following)
                except LogStorageError:  # a full disk, for example: answers do not need the indexes
                    return
            if done is not None and done not in self.recovered:
                self.recovered = [*self.recovered, done]
                warnings.warn(KtsWarning(str(done), done.path), stacklevel=4)

    # --- flush and checkpoint ---------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until every record is on disk. The recovery point moves to the log end offset."""
        with self._lock:
            self._check_open()
            with self._close_if_in_doubt():
                self._flush_to(self._end, self._clock())

    def flush_if_due(self, now_ms: int) -> None:
        """Flush if ``flush.ms`` have passed since the last flush and something was appended."""
        with self._lock:
            self._check_open()
            if is_over(self._last_flush, self.config.flush_ms, now_ms):
                with self._close_if_in_doubt():
                    self._flush_to(self._end, now_ms)

    def checkpoint(self) -> None:
        """Write the partition's offsets to the checkpoints of the log directory."""
        with self._lock:
            self._check_open()
            with self._close_if_in_doubt():
                self._checkpoint(self._clock())

    def rest(self) -> None:
        """Hold no file descriptors until the next write."""
        with self._lock:
            self._check_open()
            with self._close_if_in_doubt():
                self._view.segments[-1].rest()

    def _flush_to(self, offset: int, now_ms: int) -> None:
        if offset > self.recovery_point:
            first = max(bisect_right(self._view.bases, self.recovery_point) - 1, 0)
            for segment in self._view.segments[first:]:
                if segment.base_offset < offset:
                    segment.flush()
            self._producers.flush()
            local.sync_directory(self.path)
            self.recovery_point = offset
            self._last_flush = now_ms
            for listener in self._listeners.values():
                listener.flushed()
        if not self._entry.is_held_as_a_whole and is_over(self._last_checkpoint, CHECKPOINT_INTERVAL_MS, now_ms):
            self._checkpoint(now_ms)

    def _checkpoint(self, now_ms: int) -> None:
        seen = self._view
        self._entry.write_checkpoint(RECOVERY_POINTS, self.recovery_point)
        self._entry.write_checkpoint(HIGH_WATERMARKS, self.high_watermark)
        moved = seen.log_start_offset > seen.bases[0]
        self._entry.write_checkpoint(LOG_START_OFFSETS, seen.log_start_offset if moved else None)
        self._last_checkpoint = now_ms

    # --- close ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write everything, mark the partition as clean, and release the locks. A second call does nothing.

        Raises
        ------
        LogStorageError
            Something could not be written; the next start recovers the log.
        """
        self._close(flush=True)

    def hand_over(self) -> None:
        """As ``close``, for a log whose segments another process flushes before anybody relies on them."""
        self._close(flush=False)

    def _close(self, flush: bool) -> None:
        if self._process != os.getpid():  # in a fork of the process that opened it
            return
        self._repair()
        self._closing = True  # a pass of the cleaner ends at its next piece
        with self._cleaning, self._lock:
            if self.closed:
                return
            with self._close_if_in_doubt(), self._readers.excluded():
                self._write_all(flush)
                for listener in self._listeners.values():
                    listener.closed()
                self._entry.leave(clean=True)
                self.closed = True

    def _write_all(self, flush: bool) -> None:
        """Close the segments and flush everything to disk, or everything but the segments."""
        self._epochs.write()
        self._producers.take_snapshot()
        sealed: dict[int, Sealed] = {}
        noted: dict[int, NotedMagics] = {}
        for segment in self._view.segments:
            segment.close(flush=flush)
            if (indexes := segment.trust.seal()) is not None:
                sealed[segment.base_offset] = indexes
            if (magics := segment.note_magics()) is not None:
                noted[segment.base_offset] = magics
        self._producers.flush()
        local.sync_directory(self.path)
        self.recovery_point = self._end
        self._checkpoint(self._clock())
        self._entry.note_closed(sealed, noted)

    def abandon(self) -> None:
        """Release everything and write nothing, like a killed process. The next start recovers the log."""
        with self._lock:
            if self.closed or self._process != os.getpid():
                return
            self.closed = True
            with self._readers.excluded():
                for segment in self._view.segments:
                    with suppress(LogStorageError):
                        segment.abandon()
            for listener in self._listeners.values():
                with suppress(LogStorageError):
                    listener.closed()
            with suppress(LogStorageError):
                self._entry.leave(clean=False)

    @contextmanager
    def _close_if_in_doubt(self) -> Iterator[None]:
        """Close the log if the block fails in a way that leaves the files in doubt: a failed disk, or Ctrl-C."""
        try:
            yield
        except BaseException as error:
            if _leaves_doubt(error):
                self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """Close after an error. Only its message is kept: its traceback would keep files open."""
        self._failure = str(error) if isinstance(error, KtsError) else f"{type(error).__name__} {error}".rstrip()
        self.abandon()

    def __del__(self) -> None:
        """Release the lock of a log that was never closed. The next start recovers it."""
        if not self.closed and self._process == os.getpid() and not sys.is_finalizing():
            self.abandon()
            warnings.warn(f"a log was never closed: {self.path}", ResourceWarning, source=self, stacklevel=1)

    def __reduce__(self) -> str:
        raise TypeError(f"expected something that can be copied or pickled, found the open log {self.path}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _at_row(error: KtsError, rows: RowSet) -> KtsError:
    """The error of a set of rows, with the number of the row."""
    errors = [(rows.first_row + index, reason) for index, reason in getattr(error, "record_errors", ())]
    if errors:
        error.record_errors = tuple(errors)  # type: ignore[attr-defined]
        error.record_index, reason = errors[0]
        more = f"; {len(errors) - 1} more rows of its batch are refused" if len(errors) > 1 else ""
        error.message = f"row {error.record_index}: {reason}{more}"
    else:
        if error.record_index is not None:
            error.record_index += rows.first_row
        elif rows.end_row - rows.first_row == 1:
            error.record_index = rows.first_row
        place = f"rows {rows.first_row} to {rows.end_row - 1}"
        error.message = f"{place if error.record_index is None else f'row {error.record_index}'}: {error.message}"
    error.position = None  # it would be a place in encoded bytes that nobody has
    error.args = (error.message,)
    return error


def _leaves_doubt(error: BaseException) -> bool:
    """Whether the files may be in any state after an error. Other errors leave everything as it was."""
    return isinstance(error, LogStorageError) or not isinstance(error, KtsError)


# --- arguments ------------------------------------------------------------------------------------


def _partition_directory(path: Any) -> tuple[str, str, int]:
    """Absolute path, topic and partition of a directory with a partition's name."""
    try:
        text = os.fsdecode(path)
    except TypeError as error:
        raise TypeError(f"path: expected a str or a path, found {path!r}") from error
    if "\0" in text:
        raise ValueError(f"path: expected no null character, found {text!r}")
    addresses.require_local(text, "writing")
    name = os.path.basename(os.path.abspath(text))
    parsed = parse_directory_name(name)
    if parsed is None or name != f"{parsed.topic}-{parsed.partition}" or parsed.topic in (".", ".."):
        raise ValueError(f"path: expected a directory called <topic>-<partition>, found {name!r}")
    return os.path.abspath(text), parsed.topic, parsed.partition


def _topic_id(value: Any) -> str | None:
    """A topic id as ``partition.metadata`` has it, or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"topic_id: expected a str, found {value!r}")
    if value is not None and _TOPIC_ID.fullmatch(value) is None:
        raise ValueError(f"topic_id: expected 22 characters of URL-safe base64 that are not all A, found {value!r}")
    return value


def _checked_clock(clock: Any) -> Callable[[], int]:
    """A clock that checks every value: seconds as a float are a common mistake."""
    if not callable(clock):
        raise TypeError(f"clock: expected a callable that gives ms as an int, found {clock!r}")

    def now_ms() -> int:
        now = clock()
        return now if type(now) is int and 0 <= now <= INT64_MAX else integer("clock", now)

    return now_ms


def _sequence(name: str, value: Any) -> tuple[Any, ...]:
    """An argument that is a sequence of names, as a tuple."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name}: expected a sequence of names, found {value!r}")
    return tuple(value)
