"""Runs one task on an executor: reads its segment ranges as batches of Spark's Arrow types."""

from __future__ import annotations

import errno
import gc
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kts.codec.micros import MAX_MS, TimestampOverflow
from kts.dataset.latest import KEYS, LatestState
from kts.dataset.options import TimeRange
from kts.dataset.partition import PartitionLog
from kts.dataset.plan import NO_END, SegmentRange, lost_end, opened, planned_again, was_cleaned
from kts.dataset.reader import fitted, read_headers, read_range
from kts.errors import InvalidTimestampError, KtsError, KtsWarning, LogStorageError
from kts.model import TopicPartition
from kts.segment.rereading import ATTEMPTS, settled
from kts.spark.planning import unseen
from kts.spark.reports import damage_rows, findings, segment_row
from kts.spark.schema import arrow_schema, check_schema, split, to_spark
from kts.store.protocol import Readable

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kts.spark.options import Options
    from kts.spark.planning import Task


def read_task(task: Task, options: Options, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The batches of one task.

    Raises
    ------
    LogStorageError
        The executor does not see a file that the driver saw, or cannot read it.
    InvalidTimestampError
        A timestamp does not fit Spark's type and ``timestampOverflow`` is ``error``.
    """
    leave_imports()
    names = check_schema(schema, options)
    yield from fitted(_batches(task, names, arrow_schema(schema), options), options.scan.batch_bytes)


@cache
def leave_imports() -> None:
    """Once a worker: pyspark collects garbage after each task, and would walk all that was imported."""
    gc.freeze()


def _batches(task: Task, names: tuple[str, ...], target: pa.Schema, options: Options) -> Iterator[pa.RecordBatch]:
    if options.granularity == "finding":
        yield to_spark(findings(task.logs, task.folders, options.deep), target, options.timestamp_overflow)
    found = _latest if options.latest else _found
    for part, batch in found(task, names, options):
        for rows in split(batch, options.scan.batch_bytes):
            yield _to_spark(rows, target, part, options)


def _found(task: Task, names: tuple[str, ...], options: Options) -> Iterator[tuple[SegmentRange, pa.RecordBatch]]:
    """The rows of a task."""
    return _of_ranges(task, options, partial(_rows, names=names, within=task.within, options=options))


def _latest(task: Task, names: tuple[str, ...], options: Options) -> Iterator[tuple[SegmentRange, pa.RecordBatch]]:
    """The latest state of each of its partitions."""
    for _, parts in groupby(task.ranges, key=lambda part: (part.topic, part.partition)):
        one = replace(task, ranges=tuple(parts))
        keys = (rows for _, rows in _found(one, KEYS, options))
        state = LatestState(keys, os.path.dirname(one.ranges[0].path), tombstones=options.tombstones)
        for part, rows in _found(one, state.columns(names), options):
            if (found := state.rows(rows)).num_rows:
                yield part, found
        state.check_found()


def scanned(task: Task, names: tuple[str, ...], options: Options) -> Iterator[pa.RecordBatch]:
    """The records of one task in the columns and types of ``kts.scan``; errors as for ``read_task``."""
    read = partial(_records, names=names, within=task.within, options=options)
    for _, batch in _of_ranges(task, options, read):
        yield batch


def _of_ranges(
    task: Task, options: Options, read: Callable[..., Iterator[pa.RecordBatch]]
) -> Iterator[tuple[SegmentRange, pa.RecordBatch]]:
    """What ``read`` gives of each range of a task that is still there."""
    for planned, given in zip(task.ranges, opened(task.ranges), strict=True):
        for part, file in _readable(planned, given, options):
            try:
                for batch in read(part, file=file):
                    yield part, batch
            except LogStorageError as error:
                raise _seen_from_here(error) from error
            finally:
                file.close()


def _rows(
    part: SegmentRange,
    names: tuple[str, ...],
    within: TimeRange,
    options: Options,
    file: Readable | None,
) -> Iterator[pa.RecordBatch]:
    if options.granularity == "batch":
        yield from read_headers(part, file, within)
    elif options.granularity == "segment":
        yield segment_row(part, file, skip_damage=options.skips)
    elif options.granularity == "damage":
        yield damage_rows(part, file, within, options)
    else:
        yield from _records(part, names, within, options, file)


def _records(
    part: SegmentRange,
    names: tuple[str, ...],
    within: TimeRange,
    options: Options,
    file: Readable | None = None,
) -> Iterator[pa.RecordBatch]:
    log = None if file is None else _seen_log(part)
    return read_range(part, file=file, log=log, within=within, options=options.scan, columns=list(names))


def _seen_log(part: SegmentRange) -> PartitionLog:
    """The partition of a range, as this executor sees it."""
    return PartitionLog(os.path.dirname(part.path), part.topic, part.partition, source=part.source)


def _to_spark(batch: pa.RecordBatch, target: pa.Schema, part: SegmentRange, options: Options) -> pa.RecordBatch:
    try:
        return to_spark(batch, target, options.timestamp_overflow)
    except TimestampOverflow as error:
        raise InvalidTimestampError(
            f"{error.column} {error.timestamp_ms} ms of {_place(part, options, error)} does not fit Spark's timestamp "
            f"(64-bit microseconds, {MAX_MS} ms at most): set option timestampOverflow to null or clamp",
            path=part.path,
        ) from None


def _place(part: SegmentRange, options: Options, overflow: TimestampOverflow) -> str:
    """The record with that timestamp. Reads the range again, because the user's columns may not include the offset."""
    name = TopicPartition(part.topic, part.partition)
    if options.granularity == "segment":
        return f"segment {part.base_offset} of {name}"
    if options.granularity == "batch":
        columns, batches = ("lastOffset", "batch that ends at offset"), read_headers(part)
    else:
        columns, batches = ("offset", "offset"), _records(part, ("offset", overflow.column), TimeRange(), options)
    for batch in batches:
        row = pc.index(batch.column(overflow.column).cast(pa.int64()), overflow.timestamp_ms).as_py()
        if row >= 0:
            return f"{columns[1]} {batch.column(columns[0])[row].as_py()} in {name}"
    return str(name)


def _readable(
    part: SegmentRange, given: Readable | None, options: Options, attempts: int = ATTEMPTS
) -> Iterator[tuple[SegmentRange, Readable]]:
    """The range and its file, open, so that it can be read whoever deletes it from now on.

    If a cleaner replaced the segment, the ranges that have its offsets now; none if the file is missing and
    ``failOnDataLoss=false`` allows that.
    """
    host = socket.gethostname()
    file, size = given, -1
    try:
        file = file or part.segment.open()
        size = file.size() if given is None else part.segment.size_bytes
    except LogStorageError as error:
        if error.errno != errno.ENOENT:
            raise _seen_from_here(error) from error
        folder = os.path.dirname(part.path)
        if not part.source.exists(folder):
            raise unseen(folder) from error
    if file is not None and size >= part.end_position:
        lost = None if options.fail_on_data_loss else lost_end(part)
        if lost is not None:
            warnings.warn(KtsWarning(str(lost), part.path), stacklevel=2)
        yield part if lost is None else replace(part, following=NO_END, low=-1), file
        return
    again = _planned_again(part, options) if attempts else None
    if again is not None:
        if file is not None:
            file.close()
        for one in again:
            yield from _readable(one, None, options, attempts - 1)
        return
    name = TopicPartition(part.topic, part.partition)
    first, end = max(part.start_offset, part.base_offset), min(part.end_offset, part.following)
    what = (
        f"offsets {first} to {end} (not included) of {name} went missing between planning and reading, as the executor "
        f"on {host} sees it: the segment was deleted or cut"
    )
    if options.fail_on_data_loss:
        raise LogStorageError(f"{what}; load() or start again, or set failOnDataLoss to false", path=part.path)
    warnings.warn(KtsWarning(f"{what}: {part.path}", part.path), stacklevel=2)
    if file is not None and size >= 0:
        yield replace(part, following=NO_END, low=-1), file


def _planned_again(part: SegmentRange, options: Options) -> list[SegmentRange] | None:
    """The ranges that have the offsets of one whose segment a cleaner replaced; None if it was deleted or cut."""
    log = _seen_log(part)
    if part.low < 0 or options.granularity not in ("record", "batch") or not was_cleaned(log, part):
        return None
    if part.high < NO_END and log.log_end_offset < part.high:
        return None
    how = {"isolation": options.scan.isolation, "on_error": options.scan.on_error}
    return settled(partial(planned_again, log, part, part.low, **how))


def _seen_from_here(error: LogStorageError) -> KtsError:
    return LogStorageError(
        f"{error.message} (on the executor on {socket.gethostname()})",
        path=error.path,
        position=error.position,
        errno=error.errno,
    )
