"""The rules of a log as pure functions: which segments retention deletes, and when a new segment begins."""

from __future__ import annotations

from typing import NamedTuple

from kts.arguments import INT32_MAX, INT64_MAX
from kts.behaviour import DEFAULT, FUTURE_BY_FILE, KAFKA_TIMES, Behaviour, TimeRules
from kts.config import DIFFERENCE, LogConfig, extension
from kts.dataset.partition import PartitionLog
from kts.segment.rereading import settled
from kts.segment.search import largest_ms

# --- retention ------------------------------------------------------------------------------------
# Each rule deletes segments from the oldest on and stops at the first that it must keep: a single segment with a
# timestamp from the future keeps all later segments.

START, SIZE, TIME = "log start offset", "retention.bytes", "retention.ms"


class SegmentFacts(NamedTuple):
    """The facts about a segment that retention uses."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int  # the greatest in it, else the file's modification time
    from_file: bool = False  # True: no record has a timestamp; it is the modification time
    modified_ms: int | None = None  # the file's modification time; None where it is not known


class LogFacts(NamedTuple):
    """The facts about a log that retention uses."""

    segments: tuple[SegmentFacts, ...]
    log_end_offset: int
    log_start_offset: int = 0
    high_watermark: int | None = None  # None: nothing is held back
    copied_until: int | None = None  # where the copies in tiered storage end; None: none is needed, or it is not known


class RetentionPolicy(NamedTuple):
    """The settings of retention; a negative number means unlimited."""

    retention_ms: int
    retention_bytes: int = -1
    deletes: bool = True  # ``cleanup.policy`` contains ``delete``
    behaviour: Behaviour = DEFAULT
    future_by_file: bool = False  # a segment with a time from the future expires by its file's time (KAFKA-20609)
    is_local: bool = False  # the limits are local.retention.ms and .bytes, of segments that tiered storage has, too


class Outlook(NamedTuple):
    """When and why retention deletes a segment, or why it does not."""

    segment: SegmentFacts
    rule: str | None  # the rule that deletes it now, or None
    expires_ms: int | None  # the first ms at which retention.ms deletes it, if nothing else changes; None: never
    kept_by: SegmentFacts | None  # of the segments up to this one, the one that expires last
    why: str


def facts_of(log: PartitionLog, rules: TimeRules = KAFKA_TIMES, *, file_times: bool = False) -> LogFacts:
    """The facts of a partition as a broker that has just started would see them, with everything replicated.

    Parameters
    ----------
    rules : TimeRules
        Which numbers are times in the topic.
    file_times : bool
        Also the modification times of the files, for ``RetentionPolicy.future_by_file``.

    Notes
    -----
    The largest timestamp of a closed segment is that of its last time index entry. Without timestamps it is the
    modification time of its file, which a copy may have changed.
    """
    return settled(lambda: _facts_of(log.listed(whole=True), rules, file_times))


def _facts_of(log: PartitionLog, rules: TimeRules, file_times: bool) -> LogFacts:
    segments = log.segments
    found = []
    for segment in segments:
        time, from_file = largest_ms(segment, segment is segments[-1], rules)
        modified_ms = segment.modified_ms if file_times else None
        found.append(SegmentFacts(segment.base_offset, segment.size_bytes, time, from_file, modified_ms))
    return LogFacts(tuple(found), log.log_end_offset, log.log_start_offset)


def retention_rules(policy: RetentionPolicy) -> tuple[str, ...]:
    """The rules in the order in which a broker of this release applies them."""
    limits = (SIZE, TIME) if policy.behaviour.deletes_by_size_first else (TIME, SIZE)
    return (START,) * policy.behaviour.moves_log_start + limits * policy.deletes


def deletable(rule: str, log: LogFacts, policy: RetentionPolicy, now_ms: int) -> int:
    """How many of the oldest segments a rule deletes.

    Notes
    -----
    An empty last segment is never deleted. If all segments are deletable, the caller must roll a new one first.

    Source: Log.deleteOldSegments (0.10.2), UnifiedLog.deletableSegments, .isSegmentEligibleForDeletion (3.9).
    """
    segments = log.segments
    surplus = sum(segment.size_bytes for segment in segments) - policy.retention_bytes
    if (rule == SIZE and (policy.retention_bytes < 0 or surplus < 0)) or (rule == TIME and policy.retention_ms < 0):
        return 0
    for number, segment in enumerate(segments):
        if _is_held(log, number) or (rule != START and _lacks_copy(log, number)):
            return number
        if rule == START:
            take = not _last(log, number) and _end(log, number) <= log.log_start_offset
        elif rule == SIZE:
            surplus -= segment.size_bytes
            take = surplus >= 0
        else:
            take = now_ms >= expires_ms(segment, policy, now_ms)
        if not take:
            return number
    return len(segments)


def expires_ms(segment: SegmentFacts, policy: RetentionPolicy, now_ms: int) -> int:
    """The first ms at which ``retention.ms`` takes a segment, if it is the oldest.

    Notes
    -----
    Source: UnifiedLog.deleteRetentionMsBreachedSegments; the anchor that KAFKA-20609 gave it.
    """
    expires = segment.largest_timestamp_ms + policy.retention_ms + 1
    if policy.future_by_file and segment.modified_ms is not None and now_ms < segment.largest_timestamp_ms:
        by_file = segment.modified_ms + policy.retention_ms + 1
        if by_file < segment.largest_timestamp_ms:  # later the time is no longer from the future
            return by_file
    return expires


def kept_by_future(log: LogFacts, policy: RetentionPolicy, now_ms: int) -> SegmentFacts | None:
    """The segment at which ``retention.ms`` ends because its largest timestamp is from the future; None if none is.

    Notes
    -----
    Source: UnifiedLog.deleteRetentionMsBreachedSegments (4.3).
    """
    if TIME not in retention_rules(policy) or policy.retention_ms < 0:
        return None
    number = deletable(TIME, log, policy, now_ms)
    if number == len(log.segments) or _is_held(log, number) or _lacks_copy(log, number):
        return None
    segment = log.segments[number]
    return segment if segment.largest_timestamp_ms > now_ms else None


def without(log: LogFacts, count: int) -> LogFacts:
    """The facts after the oldest segments are deleted. If none is left, an empty one begins at the log end offset."""
    left = log.segments[count:]
    if not left:
        left = (SegmentFacts(log.log_end_offset, 0, 0, True),)
    return log._replace(segments=left, log_start_offset=max(log.log_start_offset, left[0].base_offset))


def outlook(log: LogFacts, policy: RetentionPolicy, now_ms: int) -> list[Outlook]:
    """For each segment, oldest first: the rule that deletes it now; or when it expires and what keeps it."""
    taken: list[str] = []
    left = log
    for rule in retention_rules(policy):
        count = deletable(rule, left, policy, now_ms)
        if count:
            taken += [rule] * count
            left = without(left, count)
    taken = taken[: len(log.segments)]
    copied = [] if log.copied_until is None else outlook(log._replace(copied_until=None), policy, now_ms)
    found: list[Outlook] = []
    latest: SegmentFacts | None = None
    expires_before = now_ms
    for number, segment in enumerate(log.segments):
        moment = max(now_ms, expires_before)  # when those before it have gone
        own = expires_ms(segment, policy, moment)
        if latest is None or own > expires_before:
            latest, expires_before = segment, own
        rule_now = taken[number] if number < len(taken) else None
        if not policy.deletes or policy.retention_ms < 0 or (_last(log, number) and segment.size_bytes == 0):
            expires = None
        else:
            expires = expires_before
        if rule_now:
            why = _why_taken(rule_now, segment, policy, now_ms)
        elif copied and copied[number].rule is not None:
            why = _why_not_copied(log, number)
        else:
            why = _why_not(log, policy, now_ms, number, latest)
        found.append(Outlook(segment, rule_now and _setting(rule_now, policy), expires, latest, why))
    return found


def bytes_missing(log: LogFacts, policy: RetentionPolicy, number: int) -> int | None:
    """How many bytes the log must grow before ``retention.bytes`` deletes a segment; None: never."""
    if not policy.deletes or policy.retention_bytes < 0:
        return None
    behind = sum(segment.size_bytes for segment in log.segments[number + 1 :])
    return max(0, policy.retention_bytes - behind)


def _last(log: LogFacts, number: int) -> bool:
    return number + 1 == len(log.segments)


def _end(log: LogFacts, number: int) -> int:
    return log.log_end_offset if _last(log, number) else log.segments[number + 1].base_offset


def _is_held(log: LogFacts, number: int) -> bool:
    """Whether no rule may delete a segment: it is the empty last one, or reaches beyond the high watermark."""
    is_empty_last = _last(log, number) and log.segments[number].size_bytes == 0
    return is_empty_last or (log.high_watermark is not None and log.high_watermark < _end(log, number))


def _lacks_copy(log: LogFacts, number: int) -> bool:
    """Whether tiered storage is to have a segment, and has no copy of it yet."""
    return log.copied_until is not None and log.copied_until < _end(log, number)


def _why_not_copied(log: LogFacts, number: int) -> str:
    """Why a segment stays that would go if tiered storage had it and those before it."""
    first = next(one for one in range(number + 1) if _lacks_copy(log, one))
    lacks = "has no copy in tiered storage yet"
    return f"it {lacks}" if first == number else f"waits for segment {log.segments[first].base_offset}, which {lacks}"


def _setting(rule: str, policy: RetentionPolicy) -> str:
    """The name of a rule's setting."""
    return f"local.{rule}" if policy.is_local and rule != START else rule


def _why_taken(rule: str, segment: SegmentFacts, policy: RetentionPolicy, now_ms: int) -> str:
    by_file = rule == TIME and _counts_by_file(segment, policy, now_ms)
    return f"goes by {_setting(rule, policy)}{f' and the time of its file, by {FUTURE_BY_FILE}' if by_file else ''}"


def _counts_by_file(segment: SegmentFacts, policy: RetentionPolicy, now_ms: int) -> bool:
    """Whether the time of the file decides, and not the largest timestamp, which is from the future."""
    return expires_ms(segment, policy, now_ms) <= segment.largest_timestamp_ms and not segment.from_file


def _why_not(log: LogFacts, policy: RetentionPolicy, now_ms: int, number: int, latest: SegmentFacts) -> str:
    segment, end = log.segments[number], _end(log, number)
    if _last(log, number) and segment.size_bytes == 0:
        return "the active segment is empty"
    if log.high_watermark is not None and log.high_watermark < end:
        return f"the high watermark {log.high_watermark} is below its end {end}"
    if not policy.deletes:
        return "cleanup.policy has no delete"
    if policy.retention_ms < 0:
        return f"{_setting(TIME, policy)} is unlimited"
    source = "modification time of its file" if latest.from_file else "timestamp"
    kept = now_ms < expires_ms(latest, policy, now_ms)
    if _counts_by_file(latest, policy, now_ms):
        source = f"modification time of its file ({FUTURE_BY_FILE})"
        if latest is segment:
            return "not old enough by the " + source
        return f"waits for segment {latest.base_offset}, by the {source}"
    if latest is not segment and kept:
        future = " from the future" if latest.largest_timestamp_ms > now_ms else ""
        return f"waits for segment {latest.base_offset}, which has a {source}{future}"
    if latest.largest_timestamp_ms > now_ms:
        return f"its largest {source} is from the future"
    return "not old enough"


# --- roll -----------------------------------------------------------------------------------------


def roll_reason(
    size: int,
    incoming: int,
    segment_bytes: int,
    waited_ms: int,
    limit_ms: int,
    indexes_full: bool,
    relative_offset: int,
) -> str | None:
    """Why the active segment must be rolled before an append; None if it need not.

    Parameters
    ----------
    size, incoming : int
        Bytes in the active segment, and of the set to append.
    segment_bytes : int
        ``segment.bytes``; a segment of exactly this size is fine.
    waited_ms : int
        See ``LogSegment.time_waited_for_roll``; an empty segment never rolls by time.
    limit_ms : int
        ``LogConfig.max_segment_ms`` less the segment's jitter; a wait of exactly this long is fine.
    indexes_full : bool
        One of the indexes has no room for another entry.
    relative_offset : int
        Last offset of the set less the segment's base offset.

    Notes
    -----
    Source: Log.maybeRoll (0.10.2), LogSegment.shouldRoll (3.9).
    """
    if size > segment_bytes - incoming:
        return "size"
    if size > 0 and waited_ms > limit_ms:
        return "time"
    if indexes_full:
        return "index"
    return "offset" if relative_offset > INT32_MAX else None


# What a rule for rolling by time compares: two timestamps, as Kafka does, or the clock with a timestamp or with the
# creation of the segment.
TIMESTAMPS, CLOCK, CREATION = "timestamps", "clock", "creation"


def rolls_by(config: LogConfig) -> str:
    """What the rule of a log with these settings compares: that of an extension, else Kafka's."""
    rules = ((extension(name).rolls_by, value) for name, value in config.added)
    found = (rule(value) for rule, value in rules if rule is not None)
    return next((one for one in found if one is not None), TIMESTAMPS)


def roll_warning(config: LogConfig) -> str | None:
    """Why the limits of CreateTime and the roll time together may make segments of one message, and what to set.

    Notes
    -----
    A segment rolls when a timestamp is above its first one by more than the roll time. At one moment, the limits admit
    timestamps from ``now - before`` to ``now + after``. Only if this span is greater than the roll time can messages
    that arrive together roll segments: a rising row of them leaves up to ``span // (roll time + 1)`` segments of one
    message. Otherwise a segment lasts at least the roll time less the span. Rules that compare a timestamp with the
    clock roll at each append of messages that are older than the roll time, which needs ``before`` alone. Nothing is
    said of unlimited times with a roll time of seven days or more: those are Kafka's defaults.

    Source: KIP-33 (``max.message.time.difference.ms`` "appropriately together with ``log.roll.ms``").
    """
    rule = rolls_by(config)
    if config.message_timestamp_type != "CreateTime" or config.magic == 0 or rule == CREATION:
        return None
    by_clock = rule == CLOCK
    before = after = config.message_timestamp_difference_max_ms
    behaviour = config.behaviour()
    by_one = not behaviour.limits_before_and_after
    if not by_one:
        equal = before == config.message_timestamp_before_max_ms == config.message_timestamp_after_max_ms
        by_one = equal and DIFFERENCE not in behaviour.unknown_settings
        before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    jitter = max(min(config.segment_jitter_ms, config.segment_ms) - 1, 0)
    limits = {"before": before} if by_clock else {"before": before, "after": after}
    roll, span = max(config.max_segment_ms - jitter, 0), sum(limits.values())
    unlimited = INT64_MAX in limits.values()
    if span <= roll or (unlimited and roll >= LogConfig.segment_ms):
        return None
    lag = "max.compaction.lag.ms" if config.max_segment_ms < config.segment_ms else ""
    rolls = f"{lag or 'segment.ms'} {config.max_segment_ms}"
    if jitter:
        rolls += f" (less a segment.jitter.ms of up to {jitter})"
    if by_one:
        shown = f"message.timestamp.difference.max.ms {_or_unlimited(before)}"
        remedy = f"message.timestamp.difference.max.ms to at most {roll // len(limits)}"
    else:
        shown = " and ".join(f"message.timestamp.{name}.max.ms {_or_unlimited(ms)}" for name, ms in limits.items())
        remedy = " and ".join(f"message.timestamp.{name}.max.ms" for name in limits)
        remedy += f" to at most {roll}{' together' if len(limits) > 1 else ''}"
    needed = span + max(config.segment_jitter_ms - 1, 0)
    if not unlimited and needed <= INT64_MAX:
        remedy += f", or segment.ms{f' and {lag}' if lag else ''} to at least {needed}"
    count = "each message" if unlimited or by_clock else f"up to {span // (roll + 1)} at once"
    return f"{rolls} with {shown} may give messages a segment of their own, {count}: set {remedy}"


def _or_unlimited(limit_ms: int) -> int | str:
    return "unlimited" if limit_ms == INT64_MAX else limit_ms


def roll_jitter_ms(config: LogConfig, random_int32: int) -> int:
    """How much earlier than its time limit a segment rolls, from a random 32-bit number."""
    span = min(config.segment_jitter_ms, config.segment_ms)
    # Kafka's Utils.abs returns 0 for -2^31.
    return 0 if span == 0 or random_int32 == -(2**31) else abs(random_int32) % span


def new_base_offset(first_offset: int, last_offset: int, log_end_offset: int) -> int:
    """Base offset of the next segment: the log end offset, or higher if a follower's set follows a gap.

    Parameters
    ----------
    first_offset : int
        Of the set to append; -1 if its header does not state it (a follower's set of magic 0 or 1).
    last_offset : int
        Of that set.
    """
    expected = first_offset if first_offset >= 0 else last_offset - INT32_MAX
    return max(expected, log_end_offset)
