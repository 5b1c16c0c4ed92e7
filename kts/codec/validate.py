"""What a leader and a follower do with a set of records before it is written: checked, given offsets, stamped."""

from __future__ import annotations

from typing import Any, NamedTuple

from kts import _codec
from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT32_MAX, choice
from kts.codec.negative import greatest_time
from kts.codec.refusals import refused
from kts.codec.rewriting import Topic, rebuild
from kts.compression import CODEC_NAMES, NONE
from kts.config import GENERATIONS, LogConfig
from kts.errors import InvalidOffsetError, KtsError, RecordTooLargeError

ORIGINS = ("client", "coordinator", "replication")
PRODUCER = -1  # the target codec is the producer's
KEPT_RULES = 256


class Validated(NamedTuple):
    """A set ready to be written.

    Attributes
    ----------
    records : bytes or memoryview
        Whole entries.
    first_offset, last_offset : int
        Of the set, -1 where it has no entry. A follower's first offset is the last one of the first entry where that is
        all its header tells (magic 0 and 1).
    max_timestamp_ms, offset_of_max_timestamp : int
        What goes to the time index: the greatest timestamp and the shallow offset that the release names for it; -1.
    log_append_time_ms : int
        The clock, under LogAppendTime; else -1.
    entries : int
        Batches and outermost messages in ``records``; 0: nothing is to be written.
    duplicate : bool
        Nothing is written because the log has it already: offsets are the first one's, and ``log_append_time_ms`` is
        its greatest timestamp under either type, as in Kafka. Only ``Log.append`` finds that out.
    valid_bytes : int
        Of the whole entries that came in.
    size_maybe_changed : bool
        The set was written anew.
    source_codec, target_codec : int
    next_offset : int
        The log end offset afterwards.
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
        """True if the log has these batches already."""
        return self.entries == 0 and self.first_offset >= 0


class Rules:
    """The rules of a topic, ready for the compiled walk."""

    def __init__(self, config: LogConfig, generation: str, shipped: bool, origin: str) -> None:
        choice("generation", generation, GENERATIONS)
        choice("origin", origin, ORIGINS)
        self.config = config
        self.old = generation == "0.10.2"
        self.shipped = shipped
        if self.old and config.magic > 1:
            raise ValueError(f"config: message format {config.magic} is unknown to 0.10.2, expected 0 or 1")
        limits = (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms)
        self.limits = (config.message_timestamp_difference_max_ms,) * 2 if self.old else limits
        append_time = config.message_timestamp_type == "LogAppendTime"
        negative = config.allow_negative_timestamps
        self.topic = Topic(self.old, shipped, config.magic, append_time, negative)
        self.largest = config.max_message_bytes
        self.appender = _codec.Appender(
            old=self.old,
            shipped=shipped,
            magic=config.magic,
            append_time=append_time,
            compacted=config.compacted,
            client=origin == "client",
            replica=origin == "replication",
            exempt=not self.old or not shipped,
            negative=negative,
            target=target_codec(config.compression_type),
            before=self.limits[0],
            after=self.limits[1],
            largest=self.largest,
            max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
        )

    def error(self, appended: _codec.AppendSet, now_ms: int) -> KtsError | None:
        """Why the set was refused, if it was."""
        found = appended.refusal()
        if found is None:
            return None
        before, after = self.limits
        return refused(found, old=self.old, shipped=self.shipped, now_ms=now_ms, before_ms=before, after_ms=after)


def target_codec(compression_type: str) -> int:
    """The number of the codec a topic asks for; ``PRODUCER`` leaves it to the producer."""
    if compression_type == "producer":
        return PRODUCER
    return NONE if compression_type == "uncompressed" else CODEC_NAMES.index(compression_type)


_rules: dict[tuple[int, str | None, bool, str], Rules] = {}


def rules_of(config: LogConfig, generation: str | None, shipped: bool, origin: str) -> Rules:
    """The rules of a configuration, made once; they keep it alive, so that its id stays its own."""
    key = (id(config), generation, shipped, origin)
    rules = _rules.get(key)
    if rules is None:
        rules = Rules(config, generation or config.generation, bool(shipped), origin)
        if len(_rules) >= KEPT_RULES:
            _rules.clear()
        _rules[key] = rules
    return rules


def validate(
    buf: Any,
    *,
    offset: int,
    now_ms: int,
    config: LogConfig,
    generation: str | None = None,
    shipped: bool = False,
    leader_epoch: int = 0,
    origin: str = "client",
) -> Validated:
    """Check a set as the leader of a partition does, give it offsets and times, and convert it where need be.

    What is uncompressed and has the topic's format is copied once and changed in the copy; what is compressed as the
    topic wants it is decompressed to be looked at, and its payload stays as it is; all else is written anew.

    Parameters
    ----------
    buf : buffer
        Entries as a producer sends them; what lies behind the last whole one is left out.
    offset : int
        Log end offset: the first record gets it.
    now_ms : int
        The broker's clock, one for the whole set.
    config : LogConfig
        Of the topic.
    generation : str, optional
        "0.10.2" or "3.9"; None is ``config.generation``.
    shipped : bool
        Exactly what that release does, see Notes.
    leader_epoch : int
        Stamped on record batches.
    origin : str
        "client", or "coordinator" and "replication", which may write control batches.

    Returns
    -------
    Validated
        ``entries`` is 0 where there is no whole entry.

    Raises
    ------
    CorruptRecordError, InvalidRecordError, InvalidTimestampError, RecordTooLargeError,
    UnsupportedForMessageFormatError, UnsupportedCompressionTypeError
        Nothing of the set is accepted then. ``record_errors`` lists (index, reason) of the records that policy refuses.
        KtsError itself is UNKNOWN_SERVER_ERROR(-1): a timestamp before 1970 that would have to be written anew, headers
        in a format without them, an unknown codec.

    Notes
    -----
    Without ``shipped``: 0.10.2 exempts -1 from the limit, refuses magics it does not know (2), stamps the clock on all
    messages that it writes uncompressed under LogAppendTime, and writes several wrappers as one. Damaged compressed
    data, wrappers without a message and messages that kts.decode could not read are refused with 2. 3.9 refuses the
    type LogAppendTime from producers on every topic, keeps inner messages' own times under LogAppendTime as 0.10.2
    does, and refuses batches in place whose record lengths or offset deltas are wrong (87) and zstd below magic 2 (76).

    Source: LogValidator, Log.analyzeAndValidateRecords of 0.10.2.2 and 3.9.2; KIP-31, KIP-32, KIP-467, KIP-937.
    """
    rules = _rules.get((id(config), generation, shipped, origin)) or rules_of(config, generation, shipped, origin)
    found = rules.appender.append(buf, offset, now_ms, leader_epoch)
    if isinstance(found, tuple):
        return tuple.__new__(Validated, found)
    entries, source, target, *_, whole, _ = found.facts()
    error = rules.error(found, now_ms)
    if error is None and entries == 0:
        return Validated(b"", -1, -1, -1, -1, -1, 0, 0, False, source, target, offset)
    if error is not None:
        raise error
    appended = leader(rules, found, now_ms, leader_epoch, source, target)
    if appended.size_maybe_changed:
        check_sizes(appended.records, rules.largest)
    return appended._replace(valid_bytes=whole)


def leader(
    rules: Rules, found: _codec.AppendSet, now_ms: int, leader_epoch: int, source: int, target: int
) -> Validated:
    """The deep walk over an analysed set and, where it could not be kept, the set written anew."""
    in_place = found.deep()
    if in_place is False and not found.writable() or in_place is None:
        error = rules.error(found, now_ms)
        if error is None:
            raise RuntimeError("a set was refused without a reason")
        raise error
    start, end, top, of_top, append_time = found.result()
    if in_place:
        records: bytes = found.kept()
    else:
        rebuilt = rebuild(
            found, rules.topic, target=target, converted=source == target == NONE, now_ms=now_ms, epoch=leader_epoch
        )
        records, top, of_top = rebuilt
    entries = _codec.count_entries(records)
    return Validated(
        records, start, end - 1, top, of_top, append_time, entries, len(records), not in_place, source, target, end
    )


def check_sizes(records: bytes | memoryview, largest: int) -> None:
    """Every entry of a set that was written anew, against ``max.message.bytes``."""
    size, position = _codec.largest_entry(records)
    if size > largest:
        raise RecordTooLargeError(
            f"the entry has {size} bytes in the topic's format, max.message.bytes is {largest}", position=position
        )


def validate_follower(
    buf: Any,
    *,
    end_offset: int,
    config: LogConfig,
    generation: str | None = None,
    shipped: bool = False,
    leader_epoch: int | None = None,
) -> Validated:
    """Check a set as a follower does that fetched it: bytes, offsets and times stay as they are.

    Parameters
    ----------
    buf : buffer
        Entries as the leader has them.
    end_offset : int
        Log end offset, below which no entry may begin.
    config, generation, shipped
        As in :func:`validate`; only 0.10.2 holds entries against ``max.message.bytes``.
    leader_epoch : int, optional
        Of the leader that the set came from: the first batch of a later epoch and all behind it are left out, as 3.9.2
        does (KAFKA-18723). None takes every epoch.

    Returns
    -------
    Validated
        The greatest timestamp is that of the entries' headers, its offset that of the entry (of a batch: its last).

    Raises
    ------
    CorruptRecordError, RecordTooLargeError
        As in :func:`validate`.
    InvalidOffsetError
        Offsets do not rise, or begin below ``end_offset``. Its code is -1: 0.10.2 throws IllegalArgumentException, 3.9
        OffsetsOutOfOrderException and UnexpectedAppendOffsetException, and none of them has a code of its own.

    Notes
    -----
    Source: Log.append of 0.10.2.2, UnifiedLog.appendAsFollower of 3.9.2.
    """
    rules = rules_of(config, generation, shipped, "replication")
    found = rules.appender.set(buf, end_offset, 0, INT32_MAX if leader_epoch is None else leader_epoch)
    if not found.analyse(False):
        error = rules.error(found, 0)
        raise error if error is not None else RuntimeError("a set was refused without a reason")
    entries, source, _, first, first_or_last, last, top, of_top, whole, rises = found.facts()
    if not entries:
        return Validated(b"", -1, -1, -1, -1, -1, 0, 0, False, source, source, end_offset)
    first = first if rules.old else first_or_last
    if not rises:
        raise InvalidOffsetError("offsets of the entries do not rise", offset=first)
    if first < end_offset:
        text = f"the set begins at offset {first}, below the log end offset {end_offset}"
        raise InvalidOffsetError(text, offset=first)
    records = found.kept()
    if config.allow_negative_timestamps:
        top, of_top = greatest_time(records)
    return Validated(records, first, last, top, of_top, -1, entries, whole, False, source, source, last + 1)
