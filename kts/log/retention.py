"""Which segments go, when, and why not: rules as pure functions of facts about segments and a clock.

Each rule takes segments from the oldest on and stops at the first that it has to keep, so that one segment with a
timestamp from the future keeps all behind it.
"""

from __future__ import annotations

from typing import NamedTuple

from kts.dataset.partition import PartitionLog
from kts.segment.rereading import settled
from kts.segment.search import largest_ms

START, SIZE, TIME = "log start offset", "retention.bytes", "retention.ms"


class SegmentFacts(NamedTuple):
    """What retention looks at in a segment."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int  # the greatest in it, else the file's modification time
    from_file: bool = False  # True: no record has a timestamp, it is the modification time


class LogFacts(NamedTuple):
    """What retention looks at in a log."""

    segments: tuple[SegmentFacts, ...]
    log_end_offset: int
    log_start_offset: int = 0
    high_watermark: int | None = None  # None: nothing is held back


class Policy(NamedTuple):
    """The settings of retention; negative is unlimited."""

    retention_ms: int
    retention_bytes: int = -1
    deletes: bool = True  # ``cleanup.policy`` has ``delete``
    generation: str = "3.9"


class Outlook(NamedTuple):
    """What will become of a segment."""

    segment: SegmentFacts
    rule: str | None  # the rule that takes it now, or None
    expires_ms: int | None  # the first ms at which retention.ms takes it, if nothing else changes; None: never
    kept_by: SegmentFacts | None  # the segment at or before it whose time comes last
    why: str


def rules(policy: Policy) -> tuple[str, ...]:
    """The rules in the order in which a broker of that generation applies them."""
    if policy.generation == "0.10.2":
        return (TIME, SIZE) if policy.deletes else ()
    return (START, SIZE, TIME) if policy.deletes else (START,)


def deletable(rule: str, log: LogFacts, policy: Policy, now_ms: int) -> int:
    """How many of the oldest segments a rule takes.

    Notes
    -----
    An empty last segment is never taken. If all are, a new one has to be rolled first.

    Source: Log.deleteOldSegments (0.10.2), UnifiedLog.deletableSegments (3.9).
    """
    segments = log.segments
    surplus = sum(segment.size_bytes for segment in segments) - policy.retention_bytes
    if (rule == SIZE and (policy.retention_bytes < 0 or surplus < 0)) or (rule == TIME and policy.retention_ms < 0):
        return 0
    for number, segment in enumerate(segments):
        last = number + 1 == len(segments)
        end = log.log_end_offset if last else segments[number + 1].base_offset
        if (last and segment.size_bytes == 0) or (log.high_watermark is not None and log.high_watermark < end):
            return number
        if rule == START:
            take = not last and end <= log.log_start_offset
        elif rule == SIZE:
            surplus -= segment.size_bytes
            take = surplus >= 0
        else:
            take = now_ms - segment.largest_timestamp_ms > policy.retention_ms
        if not take:
            return number
    return len(segments)


def without(log: LogFacts, count: int) -> LogFacts:
    """The facts after the oldest segments went; a new empty one at the log's end if that was all."""
    left = log.segments[count:]
    if not left:
        left = (SegmentFacts(log.log_end_offset, 0, 0, True),)
    return log._replace(segments=left, log_start_offset=max(log.log_start_offset, left[0].base_offset))


def outlook(log: LogFacts, policy: Policy, now_ms: int) -> list[Outlook]:
    """For each segment whether it goes now and by which rule, else when and what keeps it, oldest first."""
    taken: list[str] = []
    left = log
    for rule in rules(policy):
        count = deletable(rule, left, policy, now_ms)
        if count:
            taken += [rule] * count
            left = without(left, count)
    taken = taken[: len(log.segments)]
    found: list[Outlook] = []
    latest: SegmentFacts | None = None
    for number, segment in enumerate(log.segments):
        if latest is None or segment.largest_timestamp_ms > latest.largest_timestamp_ms:
            latest = segment
        rule_now = taken[number] if number < len(taken) else None
        if not policy.deletes or policy.retention_ms < 0 or (_last(log, number) and segment.size_bytes == 0):
            expires = None
        else:
            expires = latest.largest_timestamp_ms + policy.retention_ms + 1
        why = f"goes by {rule_now}" if rule_now else _why_not(log, policy, now_ms, number, latest)
        found.append(Outlook(segment, rule_now, expires, latest, why))
    return found


def bytes_missing(log: LogFacts, policy: Policy, number: int) -> int | None:
    """How many bytes the log has to grow before ``retention.bytes`` takes a segment; None: never."""
    if not policy.deletes or policy.retention_bytes < 0:
        return None
    behind = sum(segment.size_bytes for segment in log.segments[number + 1 :])
    return max(0, policy.retention_bytes - behind)


def _last(log: LogFacts, number: int) -> bool:
    return number + 1 == len(log.segments)


def _why_not(log: LogFacts, policy: Policy, now_ms: int, number: int, latest: SegmentFacts) -> str:
    segment = log.segments[number]
    end = log.log_end_offset if _last(log, number) else log.segments[number + 1].base_offset
    if _last(log, number) and segment.size_bytes == 0:
        return "the active segment is empty"
    if log.high_watermark is not None and log.high_watermark < end:
        return f"the high watermark {log.high_watermark} is below its end {end}"
    if not policy.deletes:
        return "cleanup.policy has no delete"
    if policy.retention_ms < 0:
        return "retention.ms is unlimited"
    source = "modification time of its file" if latest.from_file else "timestamp"
    kept = now_ms - latest.largest_timestamp_ms <= policy.retention_ms
    if latest is not segment and kept:
        future = " from the future" if latest.largest_timestamp_ms > now_ms else ""
        return f"waits for segment {latest.base_offset}, which has a {source}{future}"
    if latest.largest_timestamp_ms > now_ms:
        return f"its largest {source} is from the future"
    return "not old enough"


def facts_of(log: PartitionLog) -> LogFacts:
    """The facts of a partition as a broker that has just started would see them, with everything replicated.

    Notes
    -----
    The largest timestamp of a closed segment is that of its last time index entry. Without timestamps the modification
    time of its file counts, which a copy may have changed.
    """
    return settled(lambda: _facts_of(log.listed()))


def _facts_of(log: PartitionLog) -> LogFacts:
    segments = log.segments
    found = []
    for segment in segments:
        time, from_file = largest_ms(segment, segment is segments[-1])
        found.append(SegmentFacts(segment.base_offset, segment.size_bytes, time, from_file))
    return LogFacts(tuple(found), log.log_end_offset, log.log_start_offset)
