"""Scan partitions: records or batch headers as one Arrow stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kts.codec.columns import batch_schema
from kts.dataset.ahead import Ahead
from kts.dataset.blocks import Lateness, kept
from kts.dataset.options import HIGH_WATERMARK, ScanOptions
from kts.dataset.plan import NO_END, SegmentRange, opened, plan, resolve_range
from kts.dataset.reader import Pace, RangeReader, fitted
from kts.segment.damage import header_scan
from kts.segment.entries import Batches
from kts.segment.overlaps import tell_rest
from kts.segment.partition import ReadablePartition
from kts.segment.rereading import settled, unless_deleted
from kts.segment.segment import Lookups, Segment
from kts.store.source import Source

if TYPE_CHECKING:
    import pyarrow as pa


def records(
    logs: Sequence[ReadablePartition],
    options: ScanOptions,
    *,
    end_offset: int = NO_END,
    deleted: Callable[[str, Source], AbstractContextManager[None]] = unless_deleted,
) -> pa.RecordBatchReader:
    """The records of partitions, one after another, by topic and partition; none from ``end_offset`` on.

    Parameters
    ----------
    deleted : callable
        Around the reading of each segment: what happens if it is deleted meanwhile.
    """
    import pyarrow as pa

    ordered = sorted(logs, key=lambda log: (log.topic, log.partition))
    rows = fitted(_records(ordered, options, end_offset, deleted), options.batch_bytes)
    return pa.RecordBatchReader.from_batches(options.schema, rows)


def _records(
    logs: Sequence[ReadablePartition],
    options: ScanOptions,
    end_offset: int,
    deleted: Callable[[str, Source], AbstractContextManager[None]],
) -> Iterator[pa.RecordBatch]:
    ahead = Ahead[RangeReader](options.threads) if options.threads > 1 else None
    readers = _readers(logs, options, end_offset, ahead)
    lateness = None
    for reader in readers if ahead is None else ahead.in_turn(readers):
        if lateness is not None and lateness is not reader.lateness:
            lateness.tell()
        lateness = reader.lateness
        with deleted(reader.part.path, reader.part.source):
            yield from reader.current()
    if lateness is not None:
        lateness.tell()


def _readers(
    logs: Sequence[ReadablePartition], options: ScanOptions, end_offset: int, ahead: Ahead[RangeReader] | None
) -> Iterator[RangeReader]:
    """The readers of all segment ranges, each planned when it is asked for."""
    pace = Pace()
    for log in logs:
        parts = settled(partial(_planned, log, options, end_offset))
        lateness = Lateness()
        for part, file in zip(parts, opened(parts), strict=True):
            yield RangeReader(part, options, options.within, file, pace, ahead, lateness, log)


def _planned(log: ReadablePartition, options: ScanOptions, end_offset: int) -> list[SegmentRange]:
    log = log.listed()
    start, end = range_of(log, options)
    parts = plan(log, start, min(end, end_offset), isolation=options.isolation, on_error=options.on_error)
    return kept(log, parts, options.within)


def range_of(log: ReadablePartition, options: ScanOptions) -> tuple[int, int]:
    """The offsets that the times or offsets of a scan mean in a partition; see ``resolve_range``."""
    return resolve_range(
        log,
        starting_timestamp=options.times.start_ms,
        ending_timestamp=options.times.end_ms,
        starting_offset=_offset_of(log, options.starting_offsets),
        ending_offset=_offset_of(log, options.ending_offsets),
        strict_time_range=options.strict_time_range,
        skip_damage=options.skip_damage,
        verify_crc=options.verify_crc,
    )


def _offset_of(log: ReadablePartition, given: Any) -> int | None:
    if given == HIGH_WATERMARK:
        return log.high_watermark
    if isinstance(given, dict):
        return given.get((log.topic, log.partition))
    return {"earliest": -2, "latest": -1}.get(given) if isinstance(given, str) else given


def batches(log: ReadablePartition) -> pa.RecordBatchReader:
    """Headers of all batches of a partition: ``kts.scan_batches`` and ``segment``, the base offset of their segment."""
    import pyarrow as pa

    schema = batch_schema().append(pa.field("segment", pa.int64()))

    def rows() -> Iterator[pa.RecordBatch]:
        for segment, headers in segment_batches(log):
            base = pa.repeat(pa.scalar(segment.base_offset, pa.int64()), headers.num_rows)
            yield pa.RecordBatch.from_arrays([*headers.columns, base], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, rows())


def segment_batches(log: ReadablePartition) -> Iterator[tuple[Segment, pa.RecordBatch]]:
    """Header scans of all segments as Arrow, each with its segment; errors and warnings as for ``by_segment``."""
    for segment, scans in by_segment(log):
        for headers in scans:
            yield segment, headers.arrow()


def by_segment(log: ReadablePartition) -> Iterator[tuple[Segment, Iterator[Batches]]]:
    """All segments, each with its header scans; of one that is deleted meanwhile the rest is left out.

    Wrong CRCs are no errors here.

    Raises
    ------
    CorruptRecordError
        Damage, or the end of a segment is missing; raised after the batches before it.
    """
    segments = log.segments
    for number, segment in enumerate(segments):
        behind = segments[number + 1].base_offset if number + 1 < len(segments) else log.following_offset
        yield segment, _headers(segment, behind)


def _headers(segment: Segment, behind: int | None) -> Iterator[Batches]:
    """The header scans of a segment; ``behind`` is the offset behind it, if it is closed."""
    end = segment.base_offset
    with unless_deleted(segment.path, segment.source):
        for batches in header_scan(segment, 0, end, False, verify_crc=False, closed=behind is not None):
            end = batches.last_offset + 1
            yield _own(batches, segment) if segment.span.is_bounded else batches
        lost = Lookups(segment).lost_end(behind) if behind is not None and end < behind else None
        if lost is not None:
            raise lost


def _own(batches: Batches, segment: Segment) -> Batches:
    """The batches with offsets of a segment's span; tells if others are left out."""
    last, first = batches.column("last_offset"), batches.column("base_offset")
    own = segment.span.own(np.where(batches.wrappers, last, first), last)
    if own.all():
        return batches
    tell_rest(segment)
    return batches.only(own)
