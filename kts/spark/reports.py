"""Rows about segments, findings and damage instead of records, made on an executor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kts.compression import CODEC_NAMES
from kts.dataset.options import TimeRange
from kts.dataset.partition import PartitionLog
from kts.dataset.paths import log_dirs_in
from kts.dataset.plan import NO_END, SegmentRange
from kts.dataset.reader import RangeReader
from kts.errors import CorruptRecordError
from kts.model import NO_TIMESTAMP
from kts.offline.small_files import verify_checkpoints, verify_groups
from kts.offline.verify import apart, verify_partition
from kts.segment.damage import header_scan
from kts.segment.entries import Batches
from kts.segment.segment import Span, first_time
from kts.spark.schema import DAMAGE_TYPES, FINDING_TYPES, SEGMENT_TYPES
from kts.store.protocol import Readable
from kts.store.source import Source

if TYPE_CHECKING:
    from kts.spark.options import Options

_ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "array<tinyint>": pa.list_(pa.int8()),
    "array<string>": pa.list_(pa.string()),
}


def _rows(rows: list[dict[str, Any]], types: dict[str, str]) -> pa.RecordBatch:
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in types.items()])
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def segment_row(part: SegmentRange, file: Readable | None, *, skip_damage: bool) -> pa.RecordBatch:
    """One row about the whole segment of a range, from the headers of its batches and its first record.

    Parameters
    ----------
    skip_damage : bool
        Count what lies before damage, and say so in the column ``damage``; otherwise raise.
    """
    segment, found = part.segment, _Sums()
    if part.shared:  # a part of a file that overlaps another
        segment, file = replace(segment, span=Span(part.start_position, part.end_position)), None
    damage = part.source.damage_of(part.path) if segment.sound_part else None
    reason = None if damage is None else damage.message
    first_ms = None
    try:
        closed, start = part.following < NO_END, segment.span.start
        for headers in header_scan(segment, start, part.base_offset, False, file=file, verify_crc=False, closed=closed):
            found.add(headers)
    except CorruptRecordError as error:
        if not skip_damage:
            raise
        reason = reason or error.message
    try:
        first_ms = first_time([segment], file=file)
    except CorruptRecordError as error:
        if not skip_damage:
            raise
        reason = reason or error.message
    row = {
        "topic": part.topic,
        "partition": part.partition,
        "segment": part.base_offset,
        "path": part.path,
        "sizeInBytes": segment.size_bytes,
        "offsetIndexSizeInBytes": _size(segment.offset_index_path, part.source),
        "timeIndexSizeInBytes": _size(segment.time_index_path, part.source),
        "modified": part.source.modified_ms(part.path),
        "batches": found.batches,
        "records": found.records,
        "firstOffset": found.first_offset,
        "lastOffset": found.last_offset,
        "firstTimestamp": first_ms,
        "maxTimestamp": found.max_ms,
        "magics": sorted(found.magics),
        "codecs": [CODEC_NAMES[codec] for codec in sorted(found.codecs)],
        "damage": reason,
    }
    return _rows([row], SEGMENT_TYPES)


class _Sums:
    """What the headers of a segment add up to; None where no header tells."""

    def __init__(self) -> None:
        self.batches = 0
        self.records: int | None = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        self.max_ms: int | None = None
        self.magics: set[int] = set()
        self.codecs: set[int] = set()

    def add(self, headers: Batches) -> None:
        """Add a header scan. The header of a compressed wrapper has neither its first offset nor its count."""
        wrappers, counted = headers.wrappers, int(headers.column("count").sum())
        self.records = None if wrappers.any() or self.records is None else self.records + counted
        if not self.batches:
            self.first_offset = None if wrappers[0] else headers[0].base_offset
        self.batches += len(headers)
        self.last_offset = headers.last_offset
        self.magics |= {*headers.column("magic").tolist()}
        self.codecs |= {*headers.column("codec").tolist()}
        times = headers.column("max_timestamp")
        timed = times[times != NO_TIMESTAMP]
        if len(timed):
            greatest = int(timed.max())
            self.max_ms = greatest if self.max_ms is None else max(self.max_ms, greatest)


def _size(path: str | None, source: Source) -> int | None:
    return None if path is None else source.size_of(path)


def findings(logs: Iterable[PartitionLog], folders: Iterable[tuple[str, Source]], deep: bool) -> pa.RecordBatch:
    """What ``kts verify`` finds in partitions, and in the checkpoint files of log directories."""
    rows = list[dict[str, Any]]()
    for folder, source in folders:
        logs_there = log_dirs_in(folder, source).values()
        for one in chain(verify_checkpoints(folder, source), verify_groups(logs_there)):
            rows.append({"topic": None, "partition": None, **vars(one)})
    for log in logs:
        for part in apart(log):
            named = {"topic": log.topic, "partition": log.partition}
            rows += [named | vars(one) for one in verify_partition(part, deep)]
    return _rows(rows, FINDING_TYPES)


def damage_rows(part: SegmentRange, file: Readable | None, within: TimeRange, options: Options) -> pa.RecordBatch:
    """What a read of the range with ``onError=skip`` leaves out."""
    reader = RangeReader(part, replace(options.scan, on_error="skip"), within, file)
    for _ in reader.batches():
        pass
    whose = {"topic": part.topic, "partition": part.partition, "segment": part.base_offset, "path": part.path}
    names = ("position", "sizeInBytes", "offset", "reason")
    rows = [whose | dict(zip(names, skip, strict=True)) for skip in reader.skips]
    return _rows(rows, DAMAGE_TYPES)
