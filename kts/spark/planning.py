"""Plans the tasks of a read: its partitions, the offsets of each, and the bytes of each task."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from typing import TypeVar

from kts.dataset.blocks import kept, kept_of_each
from kts.dataset.options import TimeRange
from kts.dataset.partition import LogDirs, PartitionLog
from kts.dataset.paths import NoPartitionsError, log_dirs_at, matching_topics, paths_of, select
from kts.dataset.plan import NO_END, SegmentRange, plan, plan_all, resolve_range
from kts.errors import LogStorageError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kts.model import TopicPartition
from kts.offline.small_files import log_directories_of
from kts.segment.names import INTERNAL_TOPICS
from kts.segment.rereading import settled, warn
from kts.segment.transactions import log_end_offset, unstable
from kts.spark.options import Bound, Options
from kts.store.addresses import absolute
from kts.store.source import Source
from kts.times import show_time

TASK_BYTES = 64 << 20
FILE_BYTES = 256 << 10  # the cost of opening a file, as the bytes that are read in the same time
WHOLE_BYTES = 1 << 30  # a read of so many bytes without a range gets a hint
SHARED_FROM = 200  # a task may read one partition for each 200 in the read
Item = TypeVar("Item")


@dataclass(frozen=True)
class Task:
    """The segment ranges that one Spark task reads, in order, of one partition or several small ones."""

    ranges: tuple[SegmentRange, ...]
    within: TimeRange = TimeRange()
    logs: tuple[PartitionLog, ...] = ()  # instead of ranges, where whole partitions are checked
    folders: tuple[tuple[str, Source], ...] = ()  # log directories whose own files are checked


@dataclass(frozen=True)
class OffsetRange:
    """The offsets of a partition that a query reads: the end is not included.

    With ``to_end`` it reads to the end of the files, as ``kts.scan`` does: no CRC covers offsets, and wrong ones may
    lie beyond the log's end.
    """

    log: PartitionLog
    start_offset: int
    end_offset: int
    within: TimeRange
    to_end: bool = False


def plan_tasks(options: Options) -> list[Task]:
    """The tasks of a read; runs on the driver.

    Raises
    ------
    FileNotFoundError
        A path does not exist on the driver.
    ValueError
        Offsets or times by partition do not name exactly the partitions that are read.
    UnknownTopicOrPartitionError
        A topic or partition that an option names does not exist.
    OffsetOutOfRangeError
        The start or end of the range is not in the log, or the end is before the start.
    """
    logs = select_logs(options)
    if not logs and options.subscribe_pattern is not None:
        raise UnknownTopicOrPartitionError(unmatched(options))
    check_named(options.start, logs)
    check_named(options.end, logs)
    if options.granularity == "finding":
        folders = log_directories_of(dict.fromkeys(map(absolute, _existing(options))), logs, options.storage_options)
        return [Task((), folders=tuple(folders)), *whole_tasks(logs)]

    def planned() -> list[Task]:
        ranges = [resolve(log.listed(skip_damage=options.skips), options) for log in logs]
        if options.granularity == "segment":
            return _segment_tasks(ranges)
        return tasks_of(ranges, options)

    return settled(planned)


def warn_of_whole_read(tasks: Sequence[Task], options: Options) -> None:
    """Warn if much is read without any range: a filter of the query on times or partitions does not come here."""
    size = sum(part.end_position - part.start_position for task in tasks for part in task.ranges)
    ranged = options.assign is not None or {options.start.kind, options.end.kind} != {"earliest", "latest"}
    if options.granularity == "record" and not (ranged or options.latest) and size >= WHOLE_BYTES:
        warn(
            f"this read of {options.shown} takes all {size >> 20} MiB of the log, because Spark passes no"
            " filters to kts: instead of where() on timestamp or partition, use kts.spark.read(spark, path, start=,"
            " end=, partitions=), or the options startingTimestamp, endingTimestamp and assign",
            options.paths[0] if options.paths else options.remote,
        )


def select_logs(options: Options, *, only_known: bool = False) -> list[PartitionLog]:
    """The partitions of a read, in order; errors as for ``plan_tasks``.

    Parameters
    ----------
    only_known : bool
        Leave out what the options name and the paths lack.
    """
    # Executors have working directories of their own, so they get absolute paths.
    paths = list(dict.fromkeys(absolute(path) for path in _existing(options)))
    opened = _open(paths, options)
    there = list(opened.values())
    topics, assigned, internal = options.subscribe, options.assign, options.granularity == "finding"
    if options.subscribe_pattern is not None:  # which finds no internal topics, as in Kafka's consumer
        hidden = () if internal or options.scan.decoder is not None else INTERNAL_TOPICS
        named = {log.topic for log in there if re.fullmatch(options.subscribe_pattern, log.topic)}
        topics = tuple(named.difference(hidden))
    if only_known and topics is not None:
        known_topics = {log.topic for log in there}
        topics = tuple(name for name in topics if matching_topics(name, known_topics))
    if only_known and assigned is not None:
        kept = [log for log in there if log.partition in assigned.get(log.topic, ())]
        assigned = {log.topic: tuple(each.partition for each in kept if each.topic == log.topic) for log in kept}
    try:
        shown = paths or [options.remote or ""]
        return select(
            opened, shown, topics=topics, partitions=assigned, internal=internal, decoder=options.scan.decoder
        )
    except UnknownTopicOrPartitionError as error:
        option = "subscribe" if options.assign is None else "assign"
        raise UnknownTopicOrPartitionError(f"option {option}: {error}") from error


def unmatched(options: Options) -> str:
    """What to say of a pattern that matches no topic."""
    return f"option subscribePattern: no topic in {options.shown} matches {options.subscribe_pattern}"


def unseen(folder: str) -> LogStorageError:
    """The error of an executor that lacks a path of the driver."""
    return LogStorageError(
        f"the executor on {socket.gethostname()} does not see {folder}, which the driver saw: put it where every"
        " executor sees it under the same path, such as a shared mount",
        path=folder,
    )


def whole_tasks(logs: Sequence[PartitionLog]) -> list[Task]:
    """Tasks of whole partitions: neighbours share one up to its size, counted as for ranges."""
    return [Task((), logs=tuple(group)) for group in grouped(logs)]


def _segment_tasks(ranges: Sequence[OffsetRange]) -> list[Task]:
    """Tasks of whole segments that overlap ranges of offsets, empty ones too; cut as tasks of ranges are."""
    found = list[tuple[SegmentRange, int]]()
    for one in ranges:
        mine = list[SegmentRange]()
        segments, untimely = one.log.segments, _untimely(one)
        behind = NO_END if one.log.following_offset is None else one.log.following_offset
        ends = [segment.base_offset for segment in segments[1:]] + [behind] * bool(segments)
        for segment, end in zip(segments, ends, strict=True):
            if (
                segment.path in untimely
                or end <= one.start_offset
                or (segment.base_offset >= one.end_offset and not one.to_end)
            ):
                continue
            whose, size = (segment.topic, segment.partition, segment.path, segment.base_offset), segment.size_bytes
            part = SegmentRange(
                *whose, segment.span.start, size, segment.base_offset, end, following=end,
                sound_part=int(segment.sound_part), indexed=int(segment.indexed), shared=int(segment.shared),
                source=segment.source,
            )  # fmt: skip
            mine.append(part)
        found += [(part, part.end_position + FILE_BYTES) for part in one.log.taken(mine)]
    return [Task(tuple(group)) for group in _full(found)]


def _timely(one: OffsetRange) -> tuple[list[SegmentRange], list[SegmentRange]]:
    """What the range of offsets has in the log, and what is left of it in the range of times."""
    parts = plan(one.log, one.start_offset, NO_END if one.to_end else one.end_offset)
    return parts, kept(one.log, parts, one.within)


def _untimely(one: OffsetRange) -> set[str]:
    """The segments without a record of the range of times."""
    if one.within == TimeRange():
        return set()
    parts, left = _timely(one)
    return {part.path for part in parts} - {part.path for part in left}


def _narrowed(one: OffsetRange) -> OffsetRange:
    """The range without offsets of segments at its ends that have no record of the range of times."""
    if one.within.latest_ms is None:
        return one
    _, left = _timely(one)
    bases, behind = [part.base_offset for part in left], [part.following for part in left]
    start = max(one.start_offset, min(bases, default=one.end_offset))
    return replace(one, start_offset=start, end_offset=min(one.end_offset, max(behind, default=start)))


def grouped(logs: Iterable[PartitionLog], room: int | None = None) -> Iterator[list[PartitionLog]]:
    """Neighbouring partitions that one task takes, by their bytes and number of files; ``room`` is ``TASK_BYTES``."""
    return _full(((log, FILE_BYTES + sum(_costs(log))) for log in logs), room)


def in_parts(log: PartitionLog, room: int | None = None) -> list[PartitionLog]:
    """A partition, or parts of it where it is too large for one task; a part has one segment at least.

    A partition with segments that overlap is not cut: a part does not show which of them has an offset.
    """

    def parts() -> list[PartitionLog]:
        sizes = [len(group) for group in _full(((None, cost) for cost in _costs(log)), room)]
        if len(sizes) <= 1 or log.lone:
            return [log]
        overlap = log.segments != log.whole_segments
        return [log] if overlap else log.parts(sizes)

    return settled(parts)


def _costs(log: PartitionLog) -> list[int]:
    """The cost of reading each segment of a partition: its bytes, and as many as the opening of its file takes."""
    return settled(lambda: [segment.size_bytes + FILE_BYTES for segment in log.segments])


def _full(costs: Iterable[tuple[Item, int]], room: int | None = None) -> Iterator[list[Item]]:
    """Neighbours that fill a task: at least one, and no more than it has room for."""
    most = (TASK_BYTES if room is None else room) + FILE_BYTES
    group, sum_of_costs = list[Item](), 0
    for item, cost in costs:
        if group and sum_of_costs + cost > most:
            yield group
            group, sum_of_costs = [], 0
        group.append(item)
        sum_of_costs += cost
    if group:
        yield group


def _existing(options: Options) -> list[str]:
    if not options.paths:
        return []
    try:
        return paths_of(options.paths, options.storage_options)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"option path: there is nothing at {absolute(error.filename)} as the driver on {socket.gethostname()}"
            " sees it; name a log directory, a partition directory or segment files"
        ) from error


def _open(paths: list[str], options: Options) -> LogDirs:
    start = options.log_start_offset
    try:
        return log_dirs_at(
            paths or None,
            log_start_offset=start,
            storage_options=options.storage_options,
            remote=options.remote,
            remote_options=options.remote_options,
        )
    except (ValueError, UnknownTopicOrPartitionError) as error:
        raise ValueError(f"option logStartOffset: {error}") if start is not None else error from error
    except NoPartitionsError as error:
        raise FileNotFoundError(f"option path: {options.shown} holds {error.strerror}") from error


def check_named(bound: Bound, logs: list[PartitionLog]) -> None:
    """Offsets or times by partition must name exactly the partitions that are read, as in Spark's Kafka source."""
    if bound.kind not in ("offsets", "timestamps"):
        return
    named = {TopicPartition(topic, index) for topic, values in bound.values.items() for index in values}
    read = {TopicPartition(log.topic, log.partition) for log in logs}
    problems = [("is missing", read - named), ("is not among the partitions that are read", named - read)]
    for what, keys in problems:
        if keys:
            raise ValueError(
                f"option {bound.option} must name exactly the partitions that are read: {min(keys)} {what}"
                + ("; choose partitions with assign, or add it" if what == "is missing" else "")
            )


def resolve(log: PartitionLog, options: Options) -> OffsetRange:
    """The offsets that the options mean in a partition; errors as for ``plan_tasks``."""
    name = TopicPartition(log.topic, log.partition)
    first, skip = log.log_start_offset, options.skips
    seen = unstable(log, skip_damage=skip) if options.scan.committed else None
    last = log_end_offset(log, skip_damage=skip) if seen is None else seen.last_stable_offset
    bounds = options.start, options.end
    start_ms, end_ms = (time_of(bound, name) for bound in bounds)
    offsets = [bound.values[name.topic][name.partition] if bound.kind == "offsets" else None for bound in bounds]
    for bound, offset in zip(bounds, offsets, strict=True):
        if offset is not None and offset >= 0 and options.fail_on_data_loss and not first <= offset <= last:
            raise OffsetOutOfRangeError(
                f"option {bound.option}: {name} has offsets {first} to {last} (not included), found {offset}; set "
                "failOnDataLoss to false to read what is there",
                offset=offset,
            )
    if options.scan.strict_time_range and start_ms is not None and end_ms is not None and start_ms > end_ms:
        raise OffsetOutOfRangeError(
            f"options {options.start.option} and {options.end.option}: {name} would begin at {show_time(start_ms)} and"
            f" end before it at {show_time(end_ms)}; give a start before the end",
            path=log.path,
        )
    start, end = resolve_range(
        log,
        starting_timestamp=start_ms,
        ending_timestamp=end_ms,
        starting_offset=offsets[0],
        ending_offset=offsets[1],
        strict_time_range=options.scan.strict_time_range,
        skip_damage=skip,
        verify_crc=options.scan.verify_crc,
    )
    if start == NO_END and start_ms is not None and not options.latest_when_unmatched:
        raise OffsetOutOfRangeError(
            f"option {options.start.option}: no record of {name} has a timestamp of {start_ms} ms or later; set "
            "startingOffsetsByTimestampStrategy to latest to read nothing of such partitions",
            path=log.path,
        )
    to_end = end == NO_END
    if seen is not None:
        seen.tell(log, end)
    start, end = (min(max(offset, first), last) for offset in (start, end))
    if start > end:
        raise OffsetOutOfRangeError(
            f"options {options.start.option} and {options.end.option}: {name} would begin at offset {start} and end "
            f"before it at {end}; give a start before the end",
            path=log.path,
        )
    lateness = options.scan.times.allowed_lateness_ms
    within = TimeRange(start_ms, end_ms, lateness) if options.scan.strict_time_range else TimeRange()
    return OffsetRange(log, start, end, within, to_end)


def time_of(bound: Bound, name: TopicPartition) -> int | None:
    """The time of a bound in a partition; None if it is no time, or names no time for the partition."""
    if bound.kind == "timestamp":
        return bound.timestamp_ms
    return bound.values.get(name.topic, {}).get(name.partition) if bound.kind == "timestamps" else None


def _parts(one: OffsetRange, total: int, options: Options) -> int:
    """The number of parts to cut a range into, as Spark's Kafka source counts them.

    Only records are cut by offsets: two parts would both show the batch, or the damage, between them.
    """
    if options.granularity != "record":
        return 1
    size = one.end_offset - one.start_offset
    parts = 1
    if options.min_partitions is not None:
        parts = max(parts, round(options.min_partitions * size / total))
    if options.max_records is not None:
        parts = max(parts, -(-size // options.max_records))
    return min(parts, size)


def _ranges(one: OffsetRange, parts: int) -> list[tuple[int, int]]:
    """Split a range of offsets into equal parts."""
    size = one.end_offset - one.start_offset
    edges = [one.start_offset + size * part // parts for part in range(parts)]
    edges.append(NO_END if one.to_end else one.end_offset)
    return list(zip(edges, edges[1:], strict=False))


def tasks_of(ranges: Sequence[OffsetRange], options: Options) -> list[Task]:
    """The tasks that read ranges of offsets; empty ones need none.

    Partitions share a task only if there are many and no option sets the number of tasks. Those whose latest state is
    read are not cut.
    """
    asked = options.min_partitions is not None or options.max_records is not None
    wanted = [_narrowed(one) if asked else one for one in ranges if one.start_offset < one.end_offset]
    wanted = [one for one in wanted if one.start_offset < one.end_offset]
    total = sum(one.end_offset - one.start_offset for one in wanted)
    most, on_error = 1 if asked else max(1, len(wanted) // SHARED_FROM), "skip" if options.skips else "raise"

    def planned() -> Iterator[tuple[OffsetRange, list[SegmentRange]]]:
        for one in wanted:
            parts = _ranges(one, _parts(one, total, options))
            found = plan_all(
                one.log, parts, range_bytes=TASK_BYTES, isolation=options.scan.isolation, on_error=on_error
            )
            left = iter(kept_of_each(one.log, list(chain.from_iterable(found)), one.within))
            yield from ((one, one.log.taken(chain.from_iterable(islice(left, len(part))))) for part in found)

    tasks = list[Task]()
    for within, alike in groupby(planned(), key=lambda found: found[0].within):
        while sharing := list(islice(alike, most)):
            whole = [parts for _, parts in sharing]
            found = whole if options.latest else [[part] for parts in whole for part in parts]
            costs = (
                (parts, sum(part.end_position - part.start_position + FILE_BYTES for part in parts)) for parts in found
            )
            tasks += [Task(tuple(chain.from_iterable(group)), within) for group in _full(costs)]
    return tasks
