"""Finds the bad times of partitions, and what follows from them for retention, segments, searches and Kafka 4."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts.arguments import INT64_MAX, INT64_MIN
from kts.behaviour import DEFAULT, NEWEST
from kts.codec.encode import int64s
from kts.config import LogConfig, settings_for
from kts.dataset.options import Path
from kts.dataset.partition import LogDirs, PartitionLog
from kts.dataset.paths import open_path
from kts.dataset.placement import home_of, settings_of, states_beside
from kts.dataset.scan import segment_batches
from kts.errors import LogStorageError
from kts.log import policies
from kts.model import TimestampType
from kts.offline import time_rules
from kts.offline.release_check import check_release, runs_of
from kts.offline.time_rules import (
    AHEAD,
    FINE,
    FUTURE,
    KINDS,
    LATE,
    NONE,
    PAST,
    TOO_LATE,
    Points,
    TimeLimits,
)
from kts.segment.segment import Segment
from kts.times import UNIT_NAMES, Time, milliseconds, show_length, show_time, wall_clock

if TYPE_CHECKING:
    import pyarrow as pa

    from kts.cluster_records.state import ClusterState

TIME_INDEX, SMALL, STAYS, REFUSED = "time-index", "small-segments", "does-not-expire", "refused"
ORDER = (*KINDS, TIME_INDEX, SMALL, STAYS, REFUSED)
ERRORS = {"seconds", "microseconds", "nanoseconds", FUTURE, STAYS}  # data goes too early, or stays
LEAST_SMALL = 3  # closed segments of one batch that are worth a word
RELEASE = NEWEST.release
# The settings that decide, of those that a cluster has of a topic.
JUDGED = frozenset(
    "cleanup_policy index_interval_bytes max_compaction_lag_ms max_message_bytes message_timestamp_after_max_ms "
    "message_timestamp_before_max_ms message_timestamp_type retention_bytes retention_ms segment_bytes "
    "segment_index_bytes segment_jitter_ms segment_ms".split()
)
COLUMNS = ("offset", "timestamp")
HEADERS = tuple(
    "position sizeInBytes magic baseOffset lastOffset count baseTimestamp maxTimestamp timestampType producerId "
    "control".split()
)

Settings = Mapping[str, Any] | LogConfig | None


@dataclass(frozen=True)
class Finding:
    """One kind of bad times in a segment, or what follows from them.

    Attributes
    ----------
    kind : str
        One of ``ORDER``.
    severity : str
        ``error`` where data is deleted too early or stays, else ``warning``.
    offset, position : int or None
        Of the first record, and of its batch in the segment's file.
    count : int
        How many records; of ``small-segments`` and ``does-not-expire`` how many segments.
    firstTimestamp, lastTimestamp : int or None
        The least and the greatest time of the records, in ms.
    deletableAt : int or None
        Of ``does-not-expire``: the time from which on ``retention.ms`` deletes the segments.
    producerId : int or None
        The producer of all of them; None if there are several, or it is not known.
    message, advice : str
        What it is, and what to type or set next.
    """

    topic: str
    partition: int
    segment: int
    kind: str
    severity: str
    offset: int | None
    position: int | None
    count: int
    firstTimestamp: int | None
    lastTimestamp: int | None
    deletableAt: int | None
    producerId: int | None
    message: str
    advice: str


def doctor(
    path: Path,
    *,
    config: Settings = None,
    now: Time | None = None,
    deep: bool = False,
    release: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> pa.Table:
    """Which partitions and segments carry bad times, and what follows: why a topic does not expire, for example.

    Parameters
    ----------
    path : path
        A segment file, a partition directory or a log directory.
    config : mapping or LogConfig, optional
        Settings that replace those of the topics, as ``{"retention.ms": 86_400_000}``. Without them they are those of
        the cluster whose metadata log lies beside the partitions, else Kafka's defaults.
    now : int, aware datetime or str, optional
        The clock; without it, now.
    deep : bool
        Read the times of all records. Without it they are read where the first or the greatest time of a batch is bad:
        an early time among right ones in a batch is not seen then.
    release : str, optional
        Also find all that a broker of this release would refuse. Without it, only times that 4.3 would refuse.
    progress : callable, optional
        Called with the number of ``.log`` bytes whose headers were just read.

    Returns
    -------
    pyarrow.Table
        A row for each finding, by topic, partition and segment, with the columns of ``Finding``; times in ms since the
        epoch. No row: nothing was found.

    Raises
    ------
    CorruptRecordError
        The log is damaged: see ``kts verify``.

    Examples
    --------
    >>> import kts
    >>> kts.doctor("demo/clicks").num_rows
    0
    >>> kts.doctor("demo/orders/orders-0", now="2026-11-01").column("kind").to_pylist()
    ['future', 'time-index', 'does-not-expire', 'refused']
    """
    opened = open_path(path)
    logs = list(opened.values()) if isinstance(opened, LogDirs) else [opened]
    now_ms = wall_clock() if now is None else milliseconds("now", now)
    states = states_beside(logs)
    found = list[Finding]()
    for log in logs:
        settings = config_of(states.get(home_of(log)), log.topic, config)
        found += examined(log, settings, now_ms, deep=deep, release=release, progress=progress)
    return as_table(found)


def config_of(state: ClusterState | None, topic: str, given: Settings) -> LogConfig:
    """The settings by which a topic is judged: those that are given, over those of its cluster."""
    if isinstance(given, LogConfig):
        return given
    known = {} if state is None else settings_for(JUDGED, settings_of(state, topic), DEFAULT)
    return LogConfig.of({**known, **(given or {})})


def as_table(found: list[Finding]) -> pa.Table:
    """Findings as Arrow."""
    import pyarrow as pa

    kinds = {"int": pa.int64(), "str": pa.string()}
    fields = [(name, kinds[str(kind).split(" ")[0]]) for name, kind in Finding.__annotations__.items()]
    return pa.Table.from_pylist([asdict(one) for one in found], pa.schema(fields))


def examined(
    log: PartitionLog,
    config: LogConfig,
    now_ms: int,
    *,
    deep: bool = False,
    release: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Finding]:
    """The findings of a partition, by segment and kind.

    Raises
    ------
    CorruptRecordError
    """
    seen = _Judged(log.listed(whole=True), config, TimeLimits.of(config, now_ms), progress)
    if not len(seen.headers["position"]):
        return []
    seen.judge(deep)
    found = [*seen.bad_times(), *seen.time_indexes(), *seen.small_segments(), *seen.staying(), *seen.refused(release)]
    return sorted(found, key=lambda one: (one.segment, ORDER.index(one.kind)))


class _Bad(NamedTuple):
    """Points of one segment and kind."""

    numbers: Any
    offset: int
    position: int
    least: int
    greatest: int
    producer: int | None
    records: int


class _Judged:
    """The headers of a partition, with a number for each of its segments, and the times that were judged."""

    def __init__(
        self, log: PartitionLog, config: LogConfig, limits: TimeLimits, progress: Callable[[int], None] | None
    ) -> None:
        self.log, self.config, self.limits = log, config, limits
        self.segments: list[Segment] = log.segments
        numbers = {segment.base_offset: number for number, segment in enumerate(self.segments)}
        parts: list[dict[str, Any]] = []
        for segment, rows in segment_batches(log):
            part = {name: _numbers(rows, name) for name in HEADERS}
            part["segment"] = np.full(rows.num_rows, numbers[segment.base_offset], np.int64)
            parts.append(part)
            if progress is not None:
                progress(int(part["sizeInBytes"].sum()))
        names = (*HEADERS, "segment")
        none = np.empty(0, np.int64)
        self.headers: dict[str, Any] = {name: np.concatenate([none, *(part[name] for part in parts)]) for name in names}
        headers = self.headers
        self.appended = headers["timestampType"] == TimestampType.LogAppendTime
        self.control = (headers["control"] != 0) | (
            headers["count"] == 0
        )  # the cleaner empties batches, and keeps them
        self.begins = np.concatenate(
            [[self.segments[0].base_offset if self.segments else 0], headers["lastOffset"] + 1]
        )
        self.begins = self.begins[: len(headers["lastOffset"])]
        opens = np.flatnonzero(np.diff(headers["segment"], prepend=-1))
        self.begins[opens] = [self.segments[number].base_offset for number in headers["segment"][opens].tolist()]
        self.wrapped = headers["count"] < 0
        known = np.maximum(headers["count"], 0)
        self.records = np.where(self.wrapped, headers["lastOffset"] - self.begins + 1, known)
        self.places = np.searchsorted(headers["segment"], np.arange(len(self.segments) + 1))
        self.latest_ms, by_broker = np.full(len(self.segments), INT64_MAX, np.int64), self.appended | self.control
        for number, segment in enumerate(self.segments):
            own = slice(self.places[number], self.places[number + 1])
            latest, stamped = headers["maxTimestamp"][own], by_broker[own]
            self.latest_ms[number] = time_rules.latest_by_file(latest, stamped, _modified(segment), limits)

    # --- the times ------------------------------------------------------------------------------------

    def judge(self, deep: bool) -> None:
        """Judge the times of headers, and then those of the records in batches of which a time is bad."""
        headers = self.headers
        first, latest = headers["baseTimestamp"], headers["maxTimestamp"]
        two = (headers["magic"] == 2) & ~self.appended & (first < latest) & (headers["count"] != 1)
        batch = np.repeat(np.arange(len(two)), 1 + two)
        is_first = np.diff(batch, append=-1) == 0
        time = np.where(is_first, first[batch], latest[batch])
        offset = np.where(self.wrapped, self.begins, headers["baseOffset"])[batch]
        self.take(time, offset, batch)
        many = ~self.appended & ~self.control & ((headers["count"] > 1) | self.wrapped) & (headers["magic"] > 0)
        chosen = many & deep
        chosen[self.points.batch[self.kinds != FINE]] = True
        chosen &= many
        if not chosen.any():
            return
        read = np.zeros(len(two), np.bool_)  # a scan leaves out what is before the log start
        parts: list[tuple[Any, Any, Any]] = []
        for start, end in runs_of(chosen, np.append(self.begins, headers["lastOffset"][-1] + 1)):
            for rows in self.log.scan(columns=COLUMNS, starting_offsets=start, ending_offsets=end):
                offsets, times = (int64s(rows.column(at), name) for at, name in enumerate(COLUMNS))
                of_records = np.searchsorted(headers["lastOffset"], offsets)
                read[of_records] = True
                parts.append((times, offsets, of_records))
        of_headers = ~read[batch]
        parts.append((time[of_headers], offset[of_headers], batch[of_headers]))
        time, offset, batch = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.lexsort((offset, batch))
        self.take(time[order], offset[order], batch[order])

    def take(self, time: Any, offset: Any, batch: Any) -> None:
        """Judge these times of batches."""
        headers = self.headers
        latest_ms = self.latest_ms[headers["segment"][batch]]
        timed = headers["magic"][batch] > 0
        self.points = Points(time, offset, batch, self.appended[batch], self.control[batch], timed, latest_ms)
        self.kinds, self.behind = time_rules.judged(self.points, self.limits)

    def bad(self) -> Iterator[tuple[int, int, _Bad]]:
        """The number of each segment and kind with bad times, and these."""
        numbers = np.flatnonzero(self.kinds != FINE)
        batch = self.points.batch[numbers]
        keys = self.headers["segment"][batch] * (len(KINDS) + 1) + self.kinds[numbers]
        order = np.argsort(keys, kind="stable")
        found, starts = np.unique(keys[order], return_index=True)
        for key, own in zip(found.tolist(), np.split(numbers[order], starts)[1:], strict=True):
            batches = self.points.batch[own]
            times = self.points.time[own]
            whole = self.appended[batches]
            records = int(np.where(whole, self.records[batches], 1).sum())
            producer = time_rules.producer_of(self.headers["producerId"][batches])
            first, position = int(self.points.offset[own[0]]), int(self.headers["position"][batches[0]])
            bad = _Bad(own, first, position, int(times.min()), int(times.max()), producer, records)
            yield key // (len(KINDS) + 1), key % (len(KINDS) + 1), bad

    def bad_times(self) -> Iterator[Finding]:
        """What the times are."""
        for number, kind, bad in self.bad():
            name = KINDS[kind - 1]
            unit = time_rules.unit_of(name)
            message, advice = self.words_of_unit(bad, unit) if unit else self.words_of(name, number, bad)
            if bad.producer is not None:
                message += f"; by producer {bad.producer}"
            yield self.finding(
                number,
                name,
                message,
                advice,
                offset=bad.offset,
                position=bad.position,
                count=bad.records,
                firstTimestamp=bad.least,
                lastTimestamp=bad.greatest,
                producerId=bad.producer,
            )

    def words_of_unit(self, bad: _Bad, unit: str) -> tuple[str, str]:
        """What a time in another unit is, and what to do."""
        name = UNIT_NAMES[unit]
        read = [show_time(int(time_rules.read_in(ms, unit))) for ms in (bad.least, bad.greatest)]
        span = read[0] if read[0] == read[1] else f"{read[0]} to {read[1]}"
        follows = "retention deletes a segment of them at once" if unit == "s" else "retention never deletes them"
        side = "before" if unit == "s" else "after"
        return (
            f"{_records(bad.records)} with {name} where Kafka has milliseconds ({bad.least} is {span}); {follows}",
            f"{self.look(bad.offset)}; let the producer send milliseconds, and set "
            f"message.timestamp.{side}.max.ms, so that a broker refuses such",
        )

    def words_of(self, kind: str, number: int, bad: _Bad) -> tuple[str, str]:
        """What bad times are, and what to do."""
        records, look, latest = _records(bad.records), self.look(bad.offset), show_time(bad.greatest)
        if kind == FUTURE:
            clock = "now" if bad.greatest > self.limits.future_from(self.limits.now_ms) else "its file was written"
            since = self.limits.now_ms if clock == "now" else int(self.latest_ms[number]) - self.limits.after_ms
            return (
                f"{records} from the future, up to {latest}, {show_length(bad.greatest - since)} after {clock}",
                f"{look}; set message.timestamp.after.max.ms, as 4.3 has by default (1h), or "
                "message.timestamp.type=LogAppendTime",
            )
        if kind == PAST:
            return (
                f"{records} with a time before the year 2000, from {show_time(bad.least)} on",
                f"{look}; set message.timestamp.before.max.ms, so that a broker refuses such",
            )
        if kind == NONE:
            return (
                f"{records} without a timestamp (-1) among others with one: a search by time never finds them",
                f"{look}; the producer is older than 0.10, or sends -1: message.timestamp.type=LogAppendTime mends it",
            )
        late = int(self.behind[bad.numbers].max())
        if kind == AHEAD:
            return (
                f"{records} ahead of those after it, up to {latest}, by more than {self.disorder()}",
                f"{look}; set message.timestamp.after.max.ms, so that a broker refuses such",
            )
        if kind == LATE:
            return (
                f"{records} up to {show_length(late)} behind those before it, which is beyond {self.disorder(late)}",
                f"{look}; kts plot {self.path} -o plot.html shows them; for late data set segment.ms and retention.ms "
                "above the delay, or message.timestamp.before.max.ms below it",
            )
        return (
            f"append times step back by up to {show_length(late)} in {records}: a leader's clock was set back, or "
            "another leader's clock is behind",
            f"{look}; keep the brokers' clocks in step (NTP)",
        )

    def disorder(self, ms: int | None = None) -> str:
        """The settings that a disorder of this length exceeds, or the least of them."""
        config = self.config
        limits = {"segment.ms": config.max_segment_ms}
        if config.deletes and config.retention_ms >= 0:
            limits["retention.ms"] = config.retention_ms
        over = {
            name: value for name, value in limits.items() if (self.limits.disorder_ms if ms is None else ms) >= value
        }
        return " and ".join(f"{name} ({show_length(value)})" for name, value in over.items())

    # --- what follows ---------------------------------------------------------------------------------

    @cached_property
    def latest_bad(self) -> dict[int, int]:
        """Of each segment whose greatest time is too late, by number: the first point with it."""
        points = self.points
        time = np.where(points.timed, points.time, INT64_MIN)
        segment = self.headers["segment"][points.batch]
        starts = np.flatnonzero(np.diff(segment, prepend=-1))
        greatest = np.repeat(np.maximum.reduceat(time, starts), np.diff(np.append(starts, len(time))))
        numbers, first = np.unique(np.where(time == greatest, segment, -1), return_index=True)
        wrong = np.isin(self.kinds[first], TOO_LATE) & (numbers >= 0)
        return dict(zip(numbers[wrong].tolist(), first[wrong].tolist(), strict=True))

    def time_indexes(self) -> Iterator[Finding]:
        """Time indexes without entries for records behind a greatest time that is too late."""
        headers = self.headers
        for number, point in self.latest_bad.items():
            batch = int(self.points.batch[point])
            behind = np.arange(batch + 1, self.places[number + 1])
            size = int(headers["sizeInBytes"][behind].sum())
            if size < max(self.config.index_interval_bytes, 1):
                continue
            count = int(self.records[behind].sum())
            offset = int(self.points.offset[point])
            yield self.finding(
                number,
                TIME_INDEX,
                f"the time index ends at offset {offset}: a search by time for the {count:,} records after it reads up "
                f"to {size:,} bytes",
                f"kts offset-for {self.path} --time {show_time(int(headers['maxTimestamp'][behind[-1]]))} --explain",
                offset=offset,
                position=int(headers["position"][batch]),
                count=count,
                firstTimestamp=int(self.points.time[point]),
                lastTimestamp=int(self.points.time[point]),
                producerId=time_rules.producer_of(headers["producerId"][[batch]]),
            )

    def small_segments(self) -> Iterator[Finding]:
        """Closed segments of one batch, by what made them."""
        headers, config, causes = self.headers, self.config, dict[str, list[int]]()
        places, entries = self.places, config.segment_index_bytes // 12
        for number in range(len(self.segments) - 1):
            start, end, stop = places[number], places[number + 1], places[min(number + 2, len(self.segments))]
            if end in (start, stop):
                continue
            segment, following = self.segments[number], self.segments[number + 1]
            size = int(headers["sizeInBytes"][start:end].sum())
            full = end - start + 1 >= entries and _is_full(segment, config)
            whole = int(self.records[start:end].sum()) == following.base_offset - segment.base_offset
            if not whole or not (end - start == 1 or (full and 2 * size < config.segment_bytes)):
                continue
            waited = int(headers["maxTimestamp"][end]) - int(headers["maxTimestamp"][start])
            if size + int(headers["sizeInBytes"][end]) > config.segment_bytes:
                cause = "segment.bytes"
            elif waited > config.max_segment_ms - config.segment_jitter_ms and headers["maxTimestamp"][start] >= 0:
                cause = "segment.ms"
            else:
                cause = "segment.index.bytes" if full else ""
            causes.setdefault(cause, []).append(number)
        for cause, numbers in causes.items():
            if len(numbers) < LEAST_SMALL:
                continue
            start = int(places[numbers[0]])
            why, advice = self.words_of_small(cause)
            times = headers["maxTimestamp"][[int(places[one]) for one in numbers]]
            yield self.finding(
                numbers[0],
                SMALL,
                f"{len(numbers):,} of {len(self.segments):,} segments are small{why}",
                advice,
                offset=self.segments[numbers[0]].base_offset,
                position=int(headers["position"][start]),
                count=len(numbers),
                firstTimestamp=int(times.min()),
                lastTimestamp=int(times.max()),
            )

    def words_of_small(self, cause: str) -> tuple[str, str]:
        """What made small segments, and what to do."""
        config = self.config
        if cause == "segment.ms":
            return (
                f": times jump by more than segment.ms ({show_length(config.max_segment_ms)}), and each jump rolls",
                f"kts plot {self.path} -o plot.html shows the jumps; raise segment.ms above them, or mend the times",
            )
        if cause == "segment.bytes":
            return f": segment.bytes is {config.segment_bytes:,}", "raise segment.bytes (Kafka's default is 1 GiB)"
        if cause:
            text = f": their indexes are full, segment.index.bytes is {config.segment_index_bytes:,}"
            return text, "raise segment.index.bytes (Kafka's default is 10 MiB)"
        return (
            ", one batch each; the settings that are known do not explain it",
            f"kts ls {self.path} --segments; give the topic's settings with --config segment.ms=MS and segment.bytes=N",
        )

    def staying(self) -> Iterator[Finding]:
        """Segments that ``retention.ms`` does not delete in time, because of a time that is too late."""
        config, now_ms = self.config, self.limits.now_ms
        if not config.deletes or config.retention_ms < 0 or not self.latest_bad:
            return
        policy = policies.RetentionPolicy(config.retention_ms, config.retention_bytes, True, config.behaviour())
        facts = policies.facts_of(self.log, config.times)
        held = dict[int, list[policies.Outlook]]()
        for one in policies.outlook(facts, policy, now_ms):
            if one.rule is None and one.expires_ms is not None and one.kept_by is not None:
                held.setdefault(one.kept_by.base_offset, []).append(one)
        numbers = {segment.base_offset: number for number, segment in enumerate(self.segments)}
        for base, kept in held.items():
            number, until = numbers.get(base), kept[0].expires_ms
            point = None if number is None or until is None or until <= now_ms else self.latest_bad.get(number)
            if number is None or until is None or point is None:
                continue
            batch = int(self.points.batch[point])
            ms, size = int(self.points.time[point]), sum(one.segment.size_bytes for one in kept)
            segments = "this segment" if len(kept) == 1 else f"{len(kept):,} segments from this one on"
            yield self.finding(
                number,
                STAYS,
                f"retention.ms deletes {segments} ({size:,} bytes) only {_when(until)}: the record at offset "
                f"{self.points.offset[point]} has the time {show_time(ms)}",
                f"kts retention {self.path} --retention-ms {config.retention_ms}; to free the disk move the log start: "
                f"kafka-delete-records.sh, or lower retention.bytes",
                offset=int(self.points.offset[point]),
                position=int(self.headers["position"][batch]),
                count=len(kept),
                firstTimestamp=ms,
                lastTimestamp=ms,
                deletableAt=until,
                producerId=time_rules.producer_of(self.headers["producerId"][[batch]]),
            )

    def refused(self, release: str | None) -> Iterator[Finding]:
        """What a broker of a release would refuse; of times only, unless a release is named."""
        config = self.config
        limits = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
        future = (self.points.time > self.limits.future_from(self.limits.now_ms)).any()
        if release is None and not future and limits == (INT64_MAX, INT64_MAX):
            return
        asked = LogConfig(
            message_timestamp_before_max_ms=limits[0],
            message_timestamp_type=config.message_timestamp_type,
            max_message_bytes=config.max_message_bytes,
            cleanup_policy=config.cleanup_policy,
            release=release or RELEASE,
        )
        if limits[1] < INT64_MAX:
            asked = replace(asked, message_timestamp_after_max_ms=limits[1])
        found = dict[str, list[Any]]()
        for one in check_release(self.log, asked, self.limits.now_ms):
            if release is not None or one.rule.name.startswith("message.timestamp."):
                found.setdefault(one.rule.name, []).append(one)
        for rule, parts in found.items():
            count, offset = sum(one.records for one in parts), min(one.first_offset for one in parts)
            batch = int(np.searchsorted(self.headers["lastOffset"], offset))
            yield self.finding(
                int(self.headers["segment"][batch]),
                REFUSED,
                f"a broker of Kafka {release or RELEASE} would refuse {_records(count)}, by {rule}",
                f"kts stats {self.path} --check-release {release or RELEASE} shows them by day",
                offset=offset,
                position=int(self.headers["position"][batch]),
                count=count,
            )

    # --- findings -------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The partition as a shell takes it."""
        return shlex.quote(self.log.path)

    def look(self, offset: int) -> str:
        """The command that shows a record."""
        return f"kts dump {self.path} --offsets {offset}:{offset + 1}"

    def finding(self, number: int, kind: str, message: str, advice: str, **facts: Any) -> Finding:
        """A finding of a segment."""
        fields = dict.fromkeys(("firstTimestamp", "lastTimestamp", "deletableAt", "producerId"))
        return Finding(
            topic=self.log.topic,
            partition=self.log.partition,
            segment=self.segments[number].base_offset,
            kind=kind,
            severity="error" if kind in ERRORS else "warning",
            message=message,
            advice=advice,
            **{**fields, **facts},
        )


def _numbers(rows: pa.RecordBatch, name: str) -> Any:
    """A column of headers; -1 for null."""
    column = rows.column(name)
    return int64s(column.cast("int8") if name == "control" else column, name).copy()


def _modified(segment: Segment) -> int | None:
    try:
        return segment.modified_ms
    except LogStorageError:
        return None


def _is_full(segment: Segment, config: LogConfig) -> bool:
    """Whether an index of a closed segment has no room for another entry; the last one of a time index closes it."""
    limit = config.segment_index_bytes
    return any(
        path is not None and segment.source.size_of(path) // entry >= max(limit // entry - spare, 1)
        for path, entry, spare in ((segment.offset_index_path, 8, 0), (segment.time_index_path, 12, 1))
    )


def _records(count: int) -> str:
    return f"{count:,} record{'s' * (count != 1)}"


def _when(ms: int) -> str:
    return f"from {show_time(ms)} on" if ms <= INT64_MAX else "never"
