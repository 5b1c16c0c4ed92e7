"""Validation of a set of records before an append, as leader or follower: check it, assign offsets and timestamps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts import _codec
from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT32_MAX, choice
from kts.behaviour import Behaviour, TimeRules
from kts.codec.columns import STORED_COLUMNS, decode, record_schema
from kts.codec.encode import Rows, encode_as_producer, int64s
from kts.codec.layout import HAS_TIMESTAMP, LOG_APPEND_TIME, TRANSACTIONAL, Entries
from kts.codec.refusals import refused
from kts.compression import CODEC_NAMES, NONE, compressor
from kts.config import MISSING, LogConfig
from kts.errors import InvalidOffsetError, InvalidTimestampError, KtsError, RecordTooLargeError
from kts.model import NO_TIMESTAMP

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa
    from typing_extensions import Buffer

ORIGINS = ("client", "coordinator", "replication")
PRODUCER = -1  # the target codec is the producer's
RECORD_COLUMNS = ("timestamp", "key", "value", "headers")
RECORD_COLUMN_IDS = bytes(STORED_COLUMNS.index(name) for name in RECORD_COLUMNS)


class Validated(NamedTuple):
    """A set that is ready to be written.

    Attributes
    ----------
    records : bytes or memoryview
        Whole entries.
    first_offset, last_offset : int
        First and last offset of the set; -1 if it has no entry. For a follower, ``first_offset`` is the last offset of
        the first entry if its header has no first offset (magic 0 and 1).
    max_timestamp_ms, offset_of_max_timestamp : int
        For the time index: the max timestamp, and the shallow offset that the release records for it; -1 for none.
        Where -1 is a time, a set without records has the timestamp -2^63.
    log_append_time_ms : int
        The append time under LogAppendTime, otherwise -1.
    entries : int
        Batches and outermost messages in ``records``; 0 means that there is nothing to write.
    valid_bytes : int
        Size of the whole entries of the input.
    size_maybe_changed : bool
        The set was rewritten.
    source_codec, target_codec : int
    next_offset : int
        The log end offset after the append.
    duplicate : bool
        Nothing is written because the log already has these batches. The offsets are those of the existing batches, and
        ``log_append_time_ms`` is their max timestamp of either type, as in Kafka. Only ``Log.append`` sets this.
    """

    records: bytes | memoryview
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    log_append_time_ms: int
    entries: int
    valid_bytes: int
    size_maybe_changed: bool
    source_codec: int
    target_codec: int
    next_offset: int

    @property
    def duplicate(self) -> bool:
        """True if the log already has these batches."""
        return self.entries == 0 and self.first_offset >= 0


NOTHING = Validated(b"", -1, -1, -1, -1, -1, 0, 0, False, 0, 0, -1)  # of no entry, in no log


def validate(
    buf: Buffer,
    *,
    offset: int,
    now_ms: int,
    config: LogConfig,
    behaviour: Behaviour | None = None,
    leader_epoch: int = 0,
    origin: str = "client",
) -> Validated:
    """Check a set as a partition's leader does, assign offsets and timestamps, and convert it if needed.

    An uncompressed set in the topic's format is copied once and changed in place. A compressed set with the topic's
    codec is decompressed for the checks, and its payload is kept. Every other set is rewritten.

    Parameters
    ----------
    buf : buffer
        Entries as a producer sends them; an incomplete last entry is left out.
    offset : int
        Log end offset: the offset of the first record.
    now_ms : int
        The broker's clock.
    config : LogConfig
        The topic's settings.
    behaviour : Behaviour, optional
        None is that of the settings.
    leader_epoch : int
        Written to record batches.
    origin : str
        "client"; or "coordinator" and "replication", which may write control batches.

    Returns
    -------
    Validated
        ``entries`` is 0 if there is no whole entry.

    Raises
    ------
    CorruptRecordError, InvalidRecordError, InvalidTimestampError, RecordTooLargeError,
    UnsupportedForMessageFormatError, UnsupportedCompressionTypeError
        The whole set is refused. ``record_errors`` lists (index, reason) of the records that policy refuses.
    KtsError
        UNKNOWN_SERVER_ERROR (-1): a timestamp before 1970 in a set that must be rewritten, headers in a format without
        them, an unknown codec.

    Notes
    -----
    Unless a release is followed exactly, the rules differ from it. By those of 0.10.2: -1 is exempt from the timestamp
    limit; an unknown magic is refused (2); under LogAppendTime every uncompressed message gets the append time; several
    wrappers become one. Damaged compressed data, wrappers without a message and messages that kts.decode cannot read
    are refused (2). By the rules of 3.9: timestamp type LogAppendTime is refused from producers on every topic; inner
    messages keep their own timestamps under LogAppendTime, as in 0.10.2; wrong record lengths and offset deltas are
    refused in place (87), and zstd below magic 2 too (76).

    Source: LogValidator, Log.analyzeAndValidateRecords of 0.10.2.2 and 3.9.2; KIP-31, KIP-32, KIP-467, KIP-937.
    """
    rules = config.prepared.get((behaviour, origin)) or rules_of(config, behaviour, origin)
    found: Validated | _codec.AppendSet = rules.appender.append(buf, offset, now_ms, leader_epoch)
    if isinstance(found, Validated):
        return found
    entries, source, target, *_, whole, _ = found.facts()
    try:
        error = rules.error(found, now_ms)
        if error is not None:
            raise error
        if entries == 0:
            return Validated(b"", -1, -1, -1, -1, -1, 0, 0, False, source, target, offset)
        appended = validate_records(rules, found, now_ms, leader_epoch, source, target)
    except InvalidTimestampError:
        filled = rules.filled(buf, now_ms)
        if filled is None:
            raise
        done = validate(
            filled,
            offset=offset,
            now_ms=now_ms,
            config=rules.accepting,
            behaviour=rules.behaviour,
            leader_epoch=leader_epoch,
            origin=origin,
        )
        return done._replace(valid_bytes=whole, size_maybe_changed=True)
    if appended.size_maybe_changed:
        _check_sizes(appended.records, rules.config.max_message_bytes)
    return appended._replace(valid_bytes=whole)


def validate_follower(
    buf: Buffer,
    *,
    end_offset: int,
    config: LogConfig,
    behaviour: Behaviour | None = None,
    leader_epoch: int | None = None,
) -> Validated:
    """Check a set that a follower fetched; bytes, offsets and timestamps do not change.

    Parameters
    ----------
    buf : buffer
        Entries as stored by the leader.
    end_offset : int
        Log end offset; no entry may begin below it.
    config, behaviour
        As in :func:`validate`; only 0.10.2 checks entries against ``max.message.bytes``.
    leader_epoch : int, optional
        The leader's epoch: the first batch of a later epoch and all batches after it are left out, as in 3.9.2
        (KAFKA-18723). None accepts every epoch.

    Returns
    -------
    Validated
        The max timestamp comes from the headers of the entries; its offset is that of the entry (the last of a batch).

    Raises
    ------
    CorruptRecordError, RecordTooLargeError
        As in :func:`validate`.
    InvalidOffsetError
        Offsets do not increase, or begin below ``end_offset``. The code is -1: 0.10.2 throws IllegalArgumentException,
        3.9 throws OffsetsOutOfOrderException and UnexpectedAppendOffsetException, and none of them has a code.

    Notes
    -----
    Source: Log.append of 0.10.2.2, UnifiedLog.appendAsFollower of 3.9.2.
    """
    rules = rules_of(config, behaviour, "replication")
    found = rules.appender.set(buf, end_offset, 0, INT32_MAX if leader_epoch is None else leader_epoch)
    if not found.analyse(False):
        raise rules.certain_error(found, 0)
    entries, source, _, first, first_or_last, last, top, of_top, whole, rises = found.facts()
    if not entries:
        return Validated(b"", -1, -1, -1, -1, -1, 0, 0, False, source, source, end_offset)
    if rules.behaviour.checks_by_batch:
        first = first_or_last
    if not rises:
        raise InvalidOffsetError("offsets of the entries do not rise", offset=first)
    if first < end_offset:
        text = f"the set begins at offset {first}, below the log end offset {end_offset}"
        raise InvalidOffsetError(text, offset=first)
    records = found.kept()
    if config.times.before_1970:
        top, of_top = greatest_timestamp(records, config.times)
    return Validated(records, first, last, top, of_top, -1, entries, whole, False, source, source, last + 1)


# --- the rules of a topic -------------------------------------------------------------------------


class AppendRules:
    """The rules of a topic for one origin, prepared for the compiled core."""

    def __init__(self, config: LogConfig, behaviour: Behaviour, origin: str) -> None:
        choice("origin", origin, ORIGINS)
        self.config, self.behaviour = config, behaviour
        both = (config.message_timestamp_difference_max_ms,) * 2
        limits = (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms)
        self.limits = limits if behaviour.limits_before_and_after else both
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        missing = config.message_timestamp_missing
        self.missing = "accept" if behaviour.times.minus_one or self.log_append_time else missing
        self.accepting = replace(config, message_timestamp_missing="accept") if self.missing != "accept" else config
        self.appender = _codec.Appender(
            old=not behaviour.checks_by_batch,
            shipped=behaviour.validates_as_released,
            magic=config.magic,
            append_time=self.log_append_time,
            compacted=config.compacted,
            client=origin == "client",
            replica=origin == "replication",
            exempt=not (behaviour.refuses_minus_one or behaviour.times.minus_one),
            negative=behaviour.times.before_1970,
            missing=self.missing != "accept",
            none=behaviour.times.none,
            target=target_codec(config.compression_type),
            before=self.limits[0],
            after=self.limits[1],
            largest=config.max_message_bytes,
            max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
            result=Validated,
        )

    def error(self, appended: _codec.AppendSet, now_ms: int) -> KtsError | None:
        """The error of a refused set; None if it was accepted."""
        found = appended.refusal()
        if found is None:
            return None
        before, after = self.limits
        return refused(found, self.behaviour, now_ms=now_ms, before_ms=before, after_ms=after)

    def is_none(self, timestamp_ms: int) -> bool:
        """Whether the greatest timestamp of a set says that it has none."""
        return timestamp_ms == NO_TIMESTAMP and not self.behaviour.times.minus_one

    def filled(self, buf: Buffer, now_ms: int) -> bytes | None:
        """A refused set with a timestamp in each record that had none; None if that is not why it was refused."""
        if self.missing in MISSING and self.missing != "now":
            return None
        return with_timestamps(buf, now_ms if self.missing == "now" else int(self.missing))

    def certain_error(self, appended: _codec.AppendSet, now_ms: int) -> KtsError:
        """The error of a set that was certainly refused."""
        error = self.error(appended, now_ms)
        if error is None:
            raise RuntimeError("a set was refused without a reason")
        return error


def rules_of(config: LogConfig, behaviour: Behaviour | None, origin: str) -> AppendRules:
    """The rules of a configuration, prepared once and cached in it."""
    key = (behaviour, origin)
    rules: AppendRules | None = config.prepared.get(key)
    if rules is None:
        rules = config.prepared[key] = AppendRules(config, behaviour or config.behaviour(), origin)
    return rules


def target_codec(compression_type: str) -> int:
    """The number of a topic's codec; ``PRODUCER`` keeps the producer's."""
    if compression_type == "producer":
        return PRODUCER
    return NONE if compression_type == "uncompressed" else CODEC_NAMES.index(compression_type)


# --- sets that need a check of every record -------------------------------------------------------


def validate_records(
    rules: AppendRules, found: _codec.AppendSet, now_ms: int, leader_epoch: int, source: int, target: int
) -> Validated:
    """Check every record of an analysed set; rewrite the set if it cannot be kept in place."""
    in_place = found.deep()
    if in_place is None or (in_place is False and not found.writable()):
        raise rules.certain_error(found, now_ms)
    start, end, top, of_top, append_time = found.result()
    if in_place:
        records: bytes = found.kept()
    else:
        converted = source == target == NONE
        records, top, of_top = rewrite(
            found, rules, target=target, converted=converted, now_ms=now_ms, epoch=leader_epoch
        )
    entries = found.facts()[0] if in_place else len(Entries(records))
    return Validated(
        records, start, end - 1, top, of_top, append_time, entries, len(records), not in_place, source, target, end
    )


def _check_sizes(records: bytes | memoryview, largest: int) -> None:
    """Check the entries of a rewritten set against ``max.message.bytes``."""
    if len(records) <= largest:
        return
    entry = max(Entries(records), key=lambda entry: entry.size)
    if entry.size > largest:
        raise RecordTooLargeError(
            f"the entry has {entry.size} bytes in the topic's format, max.message.bytes is {largest}",
            position=entry.position,
        )


class Rewritten(NamedTuple):
    """The bytes, and the timestamp and offset for the time index."""

    records: bytes
    max_timestamp_ms: int
    offset_of_max_timestamp: int


def rewrite(
    appended: _codec.AppendSet, rules: AppendRules, *, target: int, converted: bool, now_ms: int, epoch: int
) -> Rewritten:
    """Rewrite all records of a checked set in the topic's format and codec.

    Parameters
    ----------
    appended : AppendSet
        Checked by ``deep``, and ``writable``.
    target : int
        Codec to write.
    converted : bool
        Neither source nor target is compressed.
    now_ms, epoch : int
        The append time, for LogAppendTime; the leader epoch of a batch.
    """
    start, end, top, *_ = appended.result()
    magic, append_time, behaviour = rules.config.magic, rules.log_append_time, rules.behaviour
    if start == end:
        return Rewritten(b"", now_ms if append_time else -1, -1)
    if magic == 2:
        records, top = _one_batch(appended, rules, target, now_ms, epoch)
        return Rewritten(records, top, -1 if rules.is_none(top) else end - 1)

    base = start if magic == 1 and target != NONE else 0
    if behaviour.rewrites_every_message:
        stamped = append_time and (target == NONE or behaviour.stamps_inner_messages)
        records, top, of_top = appended.messages(magic, base, False, False, stamped, False)
    else:
        fixed = append_time and target == NONE and behaviour.stamps_kept_messages
        stamp = append_time and converted
        records, top, of_top = appended.messages(magic, base, True, fixed, stamp or fixed, not converted)
    if target != NONE:
        flags = target | (LOG_APPEND_TIME if append_time and magic else 0)
        time = now_ms if append_time else top
        packed = compressor(target, magic, None)(records)
        records, of_top = _codec.message(magic, flags, end - 1, time, packed), end - 1
    if append_time:
        return Rewritten(records, now_ms, end - 1 if behaviour.rewritten_has_last_offset or target != NONE else start)
    if rules.is_none(top):
        return Rewritten(records, top, end - 1 if behaviour.rewritten_has_last_offset else -1)
    return Rewritten(records, top, of_top)


def _one_batch(
    appended: _codec.AppendSet, rules: AppendRules, target: int, now_ms: int, epoch: int
) -> tuple[bytes, int]:
    """Write all records as one batch; returns it and its max timestamp."""
    magic, attributes, *producer = appended.producer()
    start, end, top, *_ = appended.result()
    compress = compressor(target, 2, None) if target else None
    append_time = now_ms if rules.log_append_time else None
    flags = target | (LOG_APPEND_TIME if rules.log_append_time else 0)
    if magic != 2:
        return appended.converted(flags, append_time, compress)
    flags |= attributes & (TRANSACTIONAL | HAS_TIMESTAMP * rules.behaviour.times.before_1970)
    if not attributes & LOG_APPEND_TIME:
        time = top if append_time is None else append_time
        records = appended.recompressed(flags, time, compress)
        if records is not None:
            return records, time
    columns = _record_columns(appended.batch())
    if append_time is None:
        top = _greatest(columns["timestamp"], rules.behaviour.times)
    rows = Rows({**columns, "offset": _integers(np.arange(start, end, dtype=np.int64))}, 0, False, False)
    time = top if append_time is None else append_time
    head = (flags, start, None, None, time, epoch, *producer)
    rows.encoder.batch(0, rows.count, INT32_MAX, head, compress)
    return rows.encoder.result(), time


def _record_columns(source: bytes) -> dict[str, pa.Array]:
    """Columns of records that were already checked; CRCs are not checked again."""
    import pyarrow as pa

    decoder = _codec.Decoder(source, RECORD_COLUMN_IDS, False, False, DEFAULT_MAX_DECOMPRESSED_BYTES)
    batch = pa.RecordBatch._import_from_c(decoder.next(0), record_schema(RECORD_COLUMNS, False))
    return dict(zip(RECORD_COLUMNS, batch.columns, strict=True))


def _integers(values: npt.NDArray[np.int64]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values)


def _greatest(column: pa.Array, rules: TimeRules) -> int:
    """The greatest timestamp of a column, -1 if there is none."""
    times = np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)
    top = max(times.tolist(), default=-1)  # not times.max(): NumPy loses the error when out of memory
    if not rules.before_1970:
        return max(top, -1)
    timed = times[times != -1] if top == -1 and not rules.minus_one else times
    return int(timed.max()) if timed.size else -1


# --- times before 1970 (KIP-228) ------------------------------------------------------------------


def greatest_timestamp(records: bytes | memoryview, rules: TimeRules) -> tuple[int, int]:
    """The greatest timestamp of a set and the shallow offset of the first entry that has it.

    Without one, the offset is -1 and the timestamp -1, or -2^63 where -1 is a time.

    Parameters
    ----------
    records : bytes or memoryview
        Whole entries.
    rules : TimeRules
        Which numbers are times.

    Notes
    -----
    A producer's header has -1 if all records are from before 1970, so the records of such entries are read.
    """
    entries = Entries(records)
    times = entries.column("max_timestamp").copy()
    starts, sizes = entries.column("position"), entries.column("size")
    for row in np.flatnonzero(rules.hides(times)).tolist():
        entry = records[starts[row] : starts[row] + sizes[row]]
        inside = np.asarray(decode(entry, ["timestamp"], verify_crc=False)["timestamp"].cast("int64"))
        if not rules.minus_one:
            inside = inside[inside != NO_TIMESTAMP]
        times[row] = inside.max() if len(inside) else rules.none
    timed = np.flatnonzero(times != rules.none)
    if not len(timed):
        return rules.none, -1
    first = timed[times[timed].argmax()]
    return int(times[first]), int(entries.column("last_offset")[first])


def with_timestamps(buf: Buffer, time_ms: int) -> bytes | None:
    """A producer's set with a timestamp for each record that has none, in magic 1 at least (KIP-228, topic property).

    Returns
    -------
    bytes or None
        None if each record has one, or if the set is one that no leader accepts.
    """
    import pyarrow as pa

    entries = Entries(buf)
    magics, codecs = entries.column("magic"), entries.column("codec")
    table = decode(buf, [*RECORD_COLUMNS, "timestampType"])
    times = int64s(table.column(0), "timestamp")
    missing = times == NO_TIMESTAMP
    stamped = int64s(table.column("timestampType"), "timestampType") == 1
    if not missing.any() or stamped.any() or ((magics == 2).any() and len(entries) > 1):
        return None
    columns = {name: table.column(name) for name in RECORD_COLUMNS}
    columns["timestamp"] = pa.array(np.where(missing, time_ms, times))
    if magics[0] < 2:
        return encode_as_producer(columns, 1, CODEC_NAMES[int(codecs.max())], INT32_MAX)
    entry = entries[0]
    rows = Rows(columns, 0, False, False)
    head = (entry.attributes, 0, None, None, None, entry.leader_epoch)
    producer = (entry.producer_id, entry.producer_epoch, entry.base_sequence)
    compress = compressor(entry.codec, 2, None) if entry.codec else None
    written = rows.encoder.batch(0, rows.count, INT32_MAX, (*head, *producer), compress)
    return rows.encoder.result() if written == rows.count else None
