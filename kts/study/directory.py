"""The study's rules on the latencies and the disorder of a real directory, and which settings would serve it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts.config import DAY_MS, HOUR_MS
from kts.dataset.scan import by_segment
from kts.model import NO_TIMESTAMP, TimestampType
from kts.segment.rereading import unless_deleted
from kts.times import YEAR_2000_MS

from . import verdicts
from .limits import Limits
from .measures import Figures, Spread
from .rules import CREATE_TIME, LOG_APPEND_TIME, RULES
from .workloads import START_MS, MessageStream

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog

    from .workloads import Settings, Times

MOST_PARTITIONS = 50  # of a topic, at equal distances
MOST_ENTRIES = 10_000  # of a partition, that the rules play
FAR_MS = 2**60
LAST = 9  # messages of a segment that tell how far its file's time is from theirs
YEAR_MS = 366 * DAY_MS


class EntryTimes(NamedTuple):
    """Batches and uncompressed messages of a partition, from their headers, in the order of the log.

    Attributes
    ----------
    create_ms : array
        CreateTime: of a batch under CreateTime the greatest, under LogAppendTime that of the first record. The arrival
        where it is not known.
    arrival_ms : array
        LogAppendTime where the log has it. Else the greatest CreateTime so far that is not after the time of its
        segment's file: the message came at that time or later.
    both : array of bool
        Both times are known.
    apart_ms : array
        How much later than the last messages in it the segment's file changed (below 0: earlier), which all its
        messages may have waited before they came. A copy that sets files' times anew makes it longer.
    """

    create_ms: Times
    arrival_ms: Times
    both: Any
    append_time: Any
    apart_ms: Times
    without_time: int


def entries_of(log: PartitionLog, advance: Callable[[int], None] = lambda amount: None) -> EntryTimes:
    """Read all headers of a partition."""
    parts: list[tuple[Times, ...]] = []
    without = file_ms = 0
    reached = -FAR_MS
    for segment, scans in by_segment(log):
        begun = len(parts)
        with unless_deleted(segment.path, segment.source):
            file_ms = segment.modified_ms
            for headers in scans:
                advance(int(headers.column("size").sum()))
                times = np.clip(headers.column("max_timestamp"), -FAR_MS, FAR_MS)
                first = np.clip(headers.column("base_timestamp"), -FAR_MS, FAR_MS)
                append = headers.column("timestamp_type") == TimestampType.LogAppendTime
                kept = times != NO_TIMESTAMP
                without += int((~kept).sum())
                possible = np.where(append | (times <= file_ms), times, -FAR_MS)
                so_far = np.maximum.accumulate(np.concatenate([[reached], possible]))
                reached = int(so_far[-1])
                arrival = np.where(append, times, so_far[1:])
                # The leader overwrote the time of a message; in a batch it left the first record's.
                both = append & (first != NO_TIMESTAMP) & (headers.column("magic") == 2)
                create = np.where(append, np.where(both, first, times), times)
                parts.append(tuple(column[kept] for column in (create, arrival, both, append)))
        apart = file_ms - max(_latest([part[0] for part in parts[begun:]]), reached)
        parts[begun:] = [(*part, np.where(part[3], 0, apart)) for part in parts[begun:]]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.zeros(0, np.int64)] * 5
    create, arrival, apart_ms = columns[0], columns[1], columns[4]
    known = arrival > -FAR_MS  # not if all times up to this one are from the future
    if not known.all():
        arrival = np.where(known, arrival, arrival[known].min() if known.any() else file_ms)
    return EntryTimes(create, arrival, columns[2].astype(bool), columns[3].astype(bool), apart_ms, without)


def _latest(creates: list[Times]) -> int:
    """The CreateTime of a segment's last message; if it is a day from the last ones, their median."""
    some = np.concatenate([np.zeros(0, np.int64), *(column[-LAST:] for column in creates[-LAST:])])[-LAST:]
    if not len(some):
        return -FAR_MS
    last, middle = int(some[-1]), int(np.median(some))
    return last if abs(last - middle) <= DAY_MS else middle


def with_create_time(found: EntryTimes) -> EntryTimes:
    """The entries whose CreateTime is known: without one there is nothing to compare."""
    known = found.both | ~found.append_time
    create, arrival, both, append, apart = (column[known] for column in found[:5])
    return EntryTimes(create, arrival, both, append, apart, found.without_time)


def stream_of(found: EntryTimes) -> MessageStream:
    """A partition as a stream of one row whose clock starts with its first arrival."""
    shift = START_MS - int(found.arrival_ms.min())
    arrival = np.maximum.accumulate(found.arrival_ms) + shift
    create = found.create_ms + shift
    wrong = (create > arrival) | (found.create_ms < YEAR_2000_MS)
    created = np.where(wrong, arrival, create)
    one = [times[None] for times in (created, create, created, arrival)]
    return MessageStream(one[0], one[1], one[2], one[3], np.zeros(one[0].shape, np.int8))


def sampled(stream: MessageStream, rng: np.random.Generator) -> MessageStream:
    """At most ``MOST_ENTRIES`` of a stream of one row: the whole time, in equal parts, one of each at random.

    A time from the future that is greater than all before stays: it alone can hold all segments after it.
    """
    count = stream.create_ms.shape[1]
    if count <= MOST_ENTRIES:
        return stream
    edges = np.arange(MOST_ENTRIES + 1) * count // MOST_ENTRIES
    chosen = rng.integers(edges[:-1], edges[1:])
    create = stream.create_ms[0]
    before = np.maximum.accumulate(np.concatenate([[-FAR_MS], create[:-1]]))
    far = np.flatnonzero((create > stream.arrival_ms[0]) & (create > before))
    chosen[np.searchsorted(edges, far, side="right") - 1] = far  # of several in a part the last, which is the greatest
    return MessageStream._make(column[:, chosen] for column in stream)


def by_topic(
    logs: Iterable[PartitionLog], settings: Settings, *, advance: Callable[[int], None] = lambda amount: None
) -> Iterator[dict[str, Any]]:
    """``run`` for each topic, by name: its settings are its own."""
    topics: dict[str, list[PartitionLog]] = {}
    for log in logs:
        topics.setdefault(log.topic, []).append(log)
    for topic, partitions in sorted(topics.items()):
        yield {"topic": topic} | run(partitions, settings, advance=advance)


def run(
    logs: Iterable[PartitionLog], settings: Settings, *, advance: Callable[[int], None] = lambda amount: None
) -> dict[str, Any]:
    """Play the rules on the times of real partitions, and advise.

    Parameters
    ----------
    logs : iterable of PartitionLog
        Of one topic. Up to 50 of them are read, at equal distances.
    settings : Settings
        ``roll_ms``, ``retention_ms``, ``check_ms`` and ``seed`` count.
    advance : callable
        Called with the number of bytes that were passed.

    Returns
    -------
    dict
        What is known of arrival and the latencies, counted over all headers of the partitions that were read; the
        figures of each rule, which plays ``played`` of them; the verdicts, and the advice with its reasons.
    """
    logs = list(logs)
    count = min(len(logs), MOST_PARTITIONS)
    chosen = [logs[number * len(logs) // count] for number in range(count)]
    passed = set(map(id, chosen))
    rng = np.random.default_rng(settings.seed)
    streams: dict[int, list[MessageStream]] = {}  # by length, so that partitions of one are played at once
    latency, behind, limits = Spread(), Spread(), Limits()
    known = {"both": 0, "arrivalOnly": 0, "creationOnly": 0}
    entries = without = future = before_2000 = longest = 0
    for log in logs:
        if id(log) not in passed:
            advance(sum(segment.size_bytes for segment in log.segments))
            continue
        every = entries_of(log, advance)
        found = with_create_time(every)
        entries += len(every.create_ms)
        without += every.without_time
        known["both"] += int(every.both.sum())
        known["arrivalOnly"] += int((every.append_time & ~every.both).sum())
        known["creationOnly"] += int((~every.append_time).sum())
        if not len(found.create_ms):
            continue
        stream = stream_of(found)
        limits.add(found.create_ms, np.maximum(found.arrival_ms, YEAR_2000_MS), found.apart_ms)
        latency.add((found.arrival_ms - found.create_ms)[found.both])
        behind.add(np.maximum.accumulate(stream.created_ms, axis=1) - stream.created_ms)
        future += int((stream.create_ms > stream.arrival_ms).sum())
        before_2000 += int((found.create_ms < YEAR_2000_MS).sum())
        longest = max(longest, int(stream.arrival_ms.max()) - START_MS)
        stream = sampled(stream, rng)
        streams.setdefault(stream.create_ms.shape[1], []).append(stream)
    settings = replace(settings, duration_ms=min(max(longest, HOUR_MS), YEAR_MS))
    figures = {rule: Figures(rule, settings) for rule in RULES}
    for rows in streams.values():
        together = MessageStream._make(np.concatenate(column) for column in zip(*rows, strict=True))
        for one in figures.values():
            one.add(together)
    report: dict[str, Any] = {
        "partitions": len(logs),
        "read": [f"{log.topic}-{log.partition}" for log in chosen],
        "entries": entries,
        "played": sum(length * len(rows) for length, rows in streams.items()),
        "withoutTime": without,
        "known": known,
        "latencyMs": latency.as_object(),
        "behindMs": behind.as_object(),
        "spanMs": longest,
        "inTheFuture": future,
        "before2000": before_2000,
        "settings": {"segment.ms": settings.roll_ms, "retention.ms": settings.retention_ms},
        "rules": {rule.name: one.as_object() for rule, one in figures.items()} if streams else {},
    }
    return report | (
        advised(report, settings, limits) if streams else {"retention": None, "rolling": None, "advice": None}
    )


def _limited(config: dict[str, Any], report: dict[str, Any], limits: Limits, longest: int) -> list[str]:
    """Add the limits that accept the directory's own messages; says what they refuse, and what is not known."""
    why, named = [], {}
    before, after = limits.before_ms(), limits.after_ms()
    if before is not None:
        named["message.timestamp.before.max.ms"] = max(before, (longest // HOUR_MS + 1) * HOUR_MS)
    if after is not None and report["inTheFuture"]:
        named["message.timestamp.after.max.ms"] = after
    config |= named
    for name, limit in (("before", before), ("after", after)):
        if limit is None:
            refused = limits.refused(YEAR_MS, None) if name == "before" else limits.refused(None, YEAR_MS)
            why.append(
                f"message.timestamp.{name}.max.ms is not advised: a limit of a year would refuse {refused:,} of"
                f" {limits.count:,}"
            )
    if named:
        refused = limits.refused(*(named.get(f"message.timestamp.{name}.max.ms") for name in ("before", "after")))
        why.append(
            f"played on this directory, {' and '.join(named)} (before Kafka 3.6 message.timestamp.difference.max.ms)"
            f" would have refused {refused:,} of {limits.count:,}"
        )
    if report["known"]["creationOnly"]:
        words = (
            "the clock of the broker is not known under CreateTime: it was taken from the latest CreateTime so far and"
            " from the files' times"
        )
        in_order = limits.before_in_order_ms()
        if in_order is not None and in_order != before:
            words += (
                f", which a copy sets anew: if this is one, {max(in_order, HOUR_MS)} ms before the clock are enough"
            )
        why.append(words)
    return why


def advised(report: dict[str, Any], settings: Settings, limits: Limits) -> dict[str, Any]:
    """The verdicts of retention and of Kafka's rule of rolling, and the settings that follow from them, checked."""
    cells = {
        "retention": verdicts.cell("this directory", "", verdicts.retention(report["rules"], settings)),
        "rolling": verdicts.cell("this directory", "", verdicts.rolling(report["rules"], CREATE_TIME, settings)),
    }
    found = {cell["measured"] for cell in cells.values()} - {verdicts.EITHER}
    time = CREATE_TIME.name if not found or found == {verdicts.CT} else LOG_APPEND_TIME.name
    both = len(found) > 1 or verdicts.DEPENDS in found
    why = [f"{name}: {cell['measured']} ({cell['why']})" for name, cell in cells.items()]
    config: dict[str, Any] = {"message.timestamp.type": time}
    longest = max(report["latencyMs"]["p99"] or 0, report["behindMs"]["p99"] or 0)
    if time == CREATE_TIME.name:
        why += _limited(config, report, limits, longest)
    elif report["inTheFuture"]:
        why.append(
            f"{report['inTheFuture']} have a CreateTime after their arrival, which message.timestamp.after.max.ms="
            f"{HOUR_MS} refuses under CreateTime"
        )
    if longest > settings.roll_ms:
        why.append("by KIP-32's rule of rolling, segment.ms would have to exceed the latency")
    if report["spanMs"] < settings.roll_ms:
        span = verdicts.length(report["spanMs"])
        why.append(f"messages arrived for {span} at most, less than segment.ms: that is too short to judge rolling")
    option = "option 1" if both else f"option 4 {time}"
    if both:
        why.append("each time serves one of the two, so only option 1, which keeps both times, would serve both")
    for cell in cells.values():
        del cell["paper"], cell["agrees"]
    return {**cells, "advice": {"option": option, "settings": config, "why": why}}
