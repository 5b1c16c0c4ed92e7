"""A partition that is written: append, roll, retain and truncate, as a broker does."""

from __future__ import annotations

import struct

from kts.codec.encode import integer
from kts.codec.validate import Validated, validate, validate_follower
from kts.config import INT32_MAX, INT64_MAX
from kts.errors import (
    CorruptRecordError,
    InvalidOffsetError,
    InvalidRequestError,
    KtsError,
    RecordBatchTooLargeError,
)
from kts.log import rolling
from kts.log.log_base import is_over
from kts.log.log_reconfiguring import ReconfigurableLog
from kts.log.view import View
from kts.segment.log_segment import LogSegment
from kts.segment.producer_entry import Sent
from kts.segment.producers import Update
from kts.segment.shallow import decoded
from kts.segment.snapshots import append_aborted

Bytes = bytes | bytearray | memoryview
MAGIC_AT = 16
_SIZE = struct.Struct(">i")
_OVERHEAD_BYTES = 12
_PRODUCER_ID = struct.Struct(">43xq")


class Log(ReconfigurableLog):
    """A partition directory, open for writing; its files are what a broker would leave. A context manager.

    Parameters
    ----------
    path : path
        ``<log directory>/<topic>-<partition>``; made if it is missing.
    config : LogConfig or mapping, optional
        The topic's settings by Kafka's names.
    generation : str, optional
        "0.10.2" or "3.9"; None is that of the message format.
    shipped : bool
        Do exactly what that Kafka does, also where the README says that the default differs.
    clock : callable, optional
        Gives ms since the epoch; None is the wall clock.
    create : bool
        False refuses a directory that is not there.
    topic_id : str, optional
        22 characters of URL-safe base64, for ``partition.metadata``.
    high_watermark : int, optional
        Moves by ``advance_high_watermark`` only; None follows the log's end, as with one replica.
    producer_id_expiration_ms : int
        Producers without a batch for so long are forgotten, at the start and by ``remove_expired_producers``.
    log_start_offset, recovery_point : int, optional
        None takes them from the checkpoints of the log directory.
    proposals : iterable
        Rules of the proposals that no Kafka shipped; see ``kts.proposals``.

    Attributes
    ----------
    recovered : list of Recovered
        All that start-up cut, removed, set aside or rebuilt: path, position, bytes, reason; later also the segments
        whose indexes turned out not to be the log's when they were used, and were rebuilt.
    clean_start : bool
        The last writer closed the partition, so that nothing was recovered.
    recovery_point : int
        Everything below it is on the disk.
    closed : bool

    Raises
    ------
    FileNotFoundError, ValueError
        ``create`` is false and nothing is there; a name that is no partition's, a bad setting.
    LogLockedError
        A broker or another process has the log directory, or this process the partition.
    LogStorageError
        The disk fails.

    Notes
    -----
    One thread changes it at a time, others wait. Readers never wait for an append, and see whole published batches.
    A failed append leaves nothing; where the disk leaves that in doubt, the log closes, and is recovered when it is
    opened again. There are no threads: files wait for their deletion until a later call finds them due.

    Source: Log, LogSegment (0.10.2), UnifiedLog, LocalLog (3.9).
    """

    def append(self, buf: Bytes, *, leader_epoch: int | None = None, origin: str = "client") -> Validated:
        """Append a set of batches as the leader: validate, give offsets and times, write.

        Parameters
        ----------
        buf : buffer
            Whole batches or messages as a producer sends them; a cut tail is dropped.
        leader_epoch : int, optional
            None is the newest epoch the log knows, else 0.
        origin : str
            "client", or "coordinator" for control batches.

        Returns
        -------
        Validated
            What was written; ``entries`` is 0 if there was nothing to write, as for a ``duplicate``: a client's batch
            with the epoch and sequences of one of the producer's last five has its answer.

        Raises
        ------
        KtsError
            The set was refused, as a whole.
        OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError, TransactionCoordinatorFencedError
            It does not go on where the producer was; found after all else is known to be right, as in Kafka.
        LogStorageError
            It could not be written; none of it is there.
        """
        with self._lock:
            self._writable()
            now = self._clock()
            latest = self._epochs.latest if self._epochs is not None else 0
            if leader_epoch is None:
                leader_epoch = max(latest, 0)
            elif (leader_epoch := integer("leader_epoch", leader_epoch, -1, INT32_MAX)) < latest and not self.shipped:
                raise InvalidRequestError(f"leader_epoch: expected at least {latest}, the newest, found {leader_epoch}")
            stamp = now
            if self._proposals is not None and self.config.message_timestamp_type == "LogAppendTime":
                stamp = self._proposals.append_time(now)
            done = validate(
                buf,
                offset=self._end,
                now_ms=stamp,
                config=self.config,
                generation=self.generation,
                shipped=self.shipped,
                leader_epoch=leader_epoch,
                origin=origin,
            )
            if done.entries:
                first = self._store(done, now, done.first_offset, leader_epoch, origin)
                if first is not None:
                    return done._replace(
                        records=b"",
                        first_offset=first.first_offset,
                        last_offset=first.last_offset,
                        log_append_time_ms=first.timestamp_ms,
                        entries=0,
                        next_offset=self._end,
                    )
            return done

    def appends_at_once(self, size_bytes: int, timestamp_ms: int | None = None) -> bool:
        """Whether an append of so many bytes would wait neither for another thread nor for the disk.

        Parameters
        ----------
        timestamp_ms : int, optional
            The greatest of the set, which may make the segment roll; None is the clock.

        Notes
        -----
        A guess for who must not wait, as an event loop. A segment that rolls is flushed, and settings may ask for that.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            config, segment, now = self.config, self._view.segments[-1], self._clock()
            flushes = config.flush_messages < INT64_MAX or config.flush_ms < INT64_MAX
            rolls = segment.size > config.segment_bytes - size_bytes or segment.indexes_are_full
            stamped = timestamp_ms is None or config.message_timestamp_type == "LogAppendTime"
            waited = segment.time_waited_for_roll(now, now if stamped or timestamp_ms is None else timestamp_ms)
            rolls = rolls or (segment.size > 0 and waited > config.max_segment_ms - segment.jitter_ms)
            return not (flushes or rolls or self._doomed.is_due(now))
        finally:
            self._lock.release()

    def append_as_follower(self, buf: Bytes, *, segment_base: int | None = None) -> Validated:
        """Append what a leader has, offsets and bytes as they come.

        Parameters
        ----------
        segment_base : int, optional
            Where the leader's segment begins that holds the set: a new one begins there, unless that cannot be. None
            rolls by the settings alone.

        Raises
        ------
        InvalidOffsetError
            Offsets are not in order, or below the log end offset.
        """
        with self._lock:
            self._writable()
            done = validate_follower(
                buf, end_offset=self._end, config=self.config, generation=self.generation, shipped=self.shipped
            )
            if done.entries:
                known = done.records[MAGIC_AT] == 2
                if self.generation == "0.10.2" and not self.shipped and self._view.segments[-1].entry_is_due:
                    done = done._replace(first_offset=self._first_offset(done))
                if segment_base is not None and not self._may_begin(segment_base, done, known):
                    segment_base = None
                self._store(done, self._clock(), done.first_offset if known else -1, None, segment_base=segment_base)
            return done

    def _may_begin(self, base_offset: int, done: Validated, known: bool) -> bool:
        """Whether a segment may begin at an offset, with a set whose first offset is known from its header or not."""
        segment = self._view.segments[-1]
        if not segment.size or not segment.base_offset < base_offset >= self._end:
            return False
        return base_offset <= (done.first_offset if known else self._first_offset(done))

    def _first_offset(self, done: Validated) -> int:
        """The first offset of a set, as a rebuild would have it in the index: no header of a wrapper tells it."""
        size = _SIZE.unpack_from(done.records, 8)[0] + _OVERHEAD_BYTES
        try:
            offsets = decoded(done.records[:size])[0]
        except CorruptRecordError:
            return done.first_offset
        return int(offsets[0]) if len(offsets) and offsets[0] >= self._end else done.first_offset

    def _store(
        self,
        done: Validated,
        now_ms: int,
        roll_offset: int,
        leader_epoch: int | None,
        origin: str = "replication",
        segment_base: int | None = None,
    ) -> Sent | None:
        """Write a set, or find the one that it is a duplicate of.

        Parameters
        ----------
        roll_offset : int
            Its first offset if its header tells.
        leader_epoch : int, optional
            That of all of it.
        segment_base : int, optional
            Where the leader's segment begins that holds it.
        """
        records, last_offset, config = done.records, done.last_offset, self.config
        if self._doomed.is_due(now_ms):
            self._sweep(now_ms)
        size = len(records)
        # What a leader appended before its segment.bytes got smaller has a segment to itself.
        alone = done.entries == 1 and origin == "replication" and not self.shipped
        if size > config.segment_bytes and not alone:
            message = f"expected a set of at most segment.bytes = {config.segment_bytes} bytes, found {size}"
            raise RecordBatchTooLargeError(message)
        if not self._end <= last_offset < INT64_MAX:
            raise InvalidOffsetError(f"expected offsets below 2^63-1, found a set that begins at {self._end}")
        segment = self._view.segments[-1]
        why = rolling.reason(
            segment.size,
            min(size, config.segment_bytes),
            config.segment_bytes,
            segment.time_waited_for_roll(now_ms, done.max_timestamp_ms),
            config.max_segment_ms - segment.jitter_ms,
            segment.indexes_are_full,
            last_offset - segment.base_offset,
        )
        if self._proposals is not None and segment.size and why in (None, "time"):
            why = self._proposed_roll(segment, now_ms, done.max_timestamp_ms, why)
        if segment_base is not None:
            segment = self._roll(segment_base, now_ms)
        elif why is not None:
            if self.generation == "0.10.2":
                roll_offset = -1
            segment = self._roll(rolling.new_base_offset(roll_offset, last_offset, self._end), now_ms)
        update = self._follow(records, done.entries, leader_epoch, origin)
        if isinstance(update, Sent):
            return update
        before = segment.size
        try:
            segment.append(
                records,
                done.first_offset,
                last_offset,
                done.max_timestamp_ms,
                done.offset_of_max_timestamp,
                done.entries,
            )
            aborted = self._producers.apply(update) if update is not None else []
            if aborted:
                with self._or_fail():
                    append_aborted(segment.txn_index_path, aborted)
                    self._unsynced.add(segment.txn_index_path)
            end = self._end = self._producers.end_offset = last_offset + 1
            view = self._view
            self._view = View(view.segments, view.bases, end, segment.size, view.log_start_offset)
        except BaseException as error:
            if segment.failed is not None or (segment.size != before and not isinstance(error, KtsError)):
                self._fail(error)  # as Ctrl-C between writing a set and counting it
            raise
        if self._producers.unreplicated:
            self._producers.replicated_to(self.high_watermark)
        if self._proposals is not None:
            self._proposals.appended(segment.base_offset, records, done.first_offset, now_ms)
        if end - self.recovery_point >= config.flush_messages or is_over(self._last_flush, config.flush_ms, now_ms):
            with self._or_fail():
                self._flush_to(end, now_ms)
        return None

    def _follow(
        self, records: bytes | memoryview, entries: int, leader_epoch: int | None, origin: str
    ) -> Update | Sent | None:
        """Note new leader epochs, and what the set will change of the producers."""
        epochs = self._epochs
        if records[MAGIC_AT] != 2:
            if epochs is not None and epochs.entries:
                epochs.clear()
            return None
        if epochs is not None:
            if epochs.unwritten:
                epochs.write()
            if leader_epoch is None or leader_epoch != epochs.latest:
                epochs.follow(records)
        if entries == 1 and _PRODUCER_ID.unpack_from(records)[0] < 0:
            return None
        return self._producers.prepare(records, origin)

    def _proposed_roll(self, segment: LogSegment, now_ms: int, timestamp_ms: int, why: str | None) -> str | None:
        if self._proposals is None:
            return why
        limit = self.config.max_segment_ms - segment.jitter_ms
        answer = self._proposals.time_roll(now_ms, segment.created_ms, limit, timestamp_ms)
        return answer if answer is None or isinstance(answer, str) else why
