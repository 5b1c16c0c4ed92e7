"""``kts ls``: which topics, partitions and segments are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..errors import KtsError
from .codes import UNREADABLE
from .inputs import filter_options, json_option, open_logs, paths_argument
from .output import counted, print_json, print_table, remark, say, show_bytes
from .times import show_time

if TYPE_CHECKING:
    from ..storage.directory import PartitionLog
    from ..storage.segment import Segment

EPILOG = """\b
Examples:
  kts ls DIR
  kts ls DIR --topic orders --segments
  kts ls DIR --json

Times are those that indexes and batch headers name: from the first batch of the first segment to the greatest one of
all. "end" is the end of the files, one behind the last offset; a running broker's high watermark may be lower.
"""


@click.command("ls", short_help="Topics, partitions, segments: offsets, times, sizes.", epilog=EPILOG)
@paths_argument
@filter_options
@click.option("--segments", "per_segment", is_flag=True, help="One row a segment instead of one a partition.")
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    per_segment: bool,
    as_json: bool,
) -> int:
    """List partitions: segments, offsets, range of times, size."""
    logs = open_logs(paths, topics=topics, partitions=partitions)
    rows, code = [], 0
    for log in logs:
        try:
            rows += segment_rows(log) if per_segment else [partition_row(log)]
        except KtsError as error:
            code = say(f"{log.topic}-{log.partition} is left out: {error}", UNREADABLE)
    if as_json:
        for row in rows:
            print_json(row)
        return code
    extra = ["segment", "index entries"] if per_segment else ["segments"]
    print_table(
        ["topic", "partition", *extra, "start", "end", "first time", "greatest time", "size"],
        [cells(row, per_segment) for row in rows],
        right=(1, 2, 3, 4, 5, 8) if per_segment else (1, 2, 3, 4, 7),
    )
    total = sum(row["sizeInBytes"] for row in rows)
    topics_there = counted(len({row["topic"] for row in rows}), "topic")
    remark(f"{topics_there}, {counted(len(logs), 'partition')}, {show_bytes(total)} of .log files")
    return code


def partition_row(log: PartitionLog) -> dict[str, Any]:
    """A partition for ``--json``."""
    segments = log.segments
    greatest = log.max_timestamp()
    return {
        "topic": log.topic,
        "partition": log.partition,
        "segments": len(segments),
        "logStartOffset": log.log_start_offset,
        "logEndOffset": log.log_end_offset,
        "firstTimestamp": next(filter(None.__ne__, map(first_time, segments)), None),
        "maxTimestamp": None if greatest is None else greatest.timestamp_ms,
        "offsetOfMaxTimestamp": None if greatest is None else greatest.offset,
        "sizeInBytes": sum(segment.size_bytes for segment in segments),
        "path": log.path,
    }


def segment_rows(log: PartitionLog) -> list[dict[str, Any]]:
    """The segments of a partition for ``--json``."""
    segments = log.segments
    ends = [segment.base_offset for segment in segments[1:]] + [log.log_end_offset]
    return [
        {
            "topic": log.topic,
            "partition": log.partition,
            "segment": segment.base_offset,
            "logStartOffset": segment.base_offset,
            "logEndOffset": end,
            "timeIndexEntries": len(segment.time_index()),
            "offsetIndexEntries": len(segment.offset_index()),
            "firstTimestamp": first_time(segment),
            "maxTimestamp": greatest_time(segment, segment is segments[-1]),
            "sizeInBytes": segment.size_bytes,
            "path": segment.path,
        }
        for segment, end in zip(segments, ends, strict=True)
    ]


def first_time(segment: Segment) -> int | None:
    """The time of a segment's first batch with one, as far as its first bytes tell."""
    import kts

    for headers in segment.batches(0, None, 1 << 16):
        for name in ("baseTimestamp", "maxTimestamp"):
            for ms in headers[name].cast("int64").to_pylist():
                if ms is not None and ms != kts.NO_TIMESTAMP:
                    return int(ms)
        return None
    return None


def greatest_time(segment: Segment, active: bool) -> int | None:
    """The greatest time of a segment: what its time index was closed with, else by its batches."""
    import kts

    index = segment.time_index()
    if len(index) and not active:
        return index.lookup(2**63 - 1)[0]
    log = kts.open(segment.path)
    greatest = log.max_timestamp() if isinstance(log, kts.PartitionLog) else None
    return None if greatest is None else greatest.timestamp_ms


def cells(row: dict[str, Any], per_segment: bool) -> list[object]:
    """A row of the table."""
    if per_segment:
        middle = [f"{row['segment']:,}", f"{row['timeIndexEntries']:,} / {row['offsetIndexEntries']:,}"]
    else:
        middle = [f"{row['segments']:,}"]
    return [
        row["topic"],
        row["partition"],
        *middle,
        f"{row['logStartOffset']:,}",
        f"{row['logEndOffset']:,}",
        show_time(row["firstTimestamp"]),
        show_time(row["maxTimestamp"]),
        show_bytes(row["sizeInBytes"]),
    ]
