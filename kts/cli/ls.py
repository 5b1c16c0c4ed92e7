"""``kts ls``: lists topics, partitions and segments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from .clusters import read_from, states_beside
from .inputs import filter_options, json_option, open_logs, rows_of, tiered_paths_argument
from .output import counted, expand_option, note, print_json, print_line, print_table, remark, show_bytes
from .times import show_time, zone_option
from .unstable import MOST_BYTES, print_open_transactions, unstable_of

if TYPE_CHECKING:
    from kts.cluster_records.state import ClusterState
    from kts.dataset.partition import PartitionLog

EPILOG = """\b
Examples:
  kts ls DIR
  kts ls DIR --topic orders --segments
  kts ls DIR --json

"first time" is the time of the first record, "max time" the greatest of all. "end" is the log end offset, one after
the last offset; a running broker's high watermark may be lower.

Where the metadata log of a KRaft cluster lies beside them (kts cluster DIR), partitions that are not the cluster's, or
not this node's any more, follow the table: their topic was deleted or made again, or they were moved away.

In a bucket: kts ls s3://backups/kafka. With tiered storage: kts ls DIR --remote s3://tiered/cluster-a/.
"""


@click.command("ls", short_help="Topics, partitions, segments: offsets, times, sizes.", epilog=EPILOG)
@tiered_paths_argument
@filter_options
@click.option("--segments", "per_segment", is_flag=True, help="One row per segment instead of one per partition.")
@zone_option
@expand_option
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
    states = {} if per_segment else states_beside(logs)
    rows, code = rows_of(logs, segment_rows if per_segment else partial(partition_rows, states))
    if as_json:
        for row in rows:
            print_json(row)
        return code
    extra = ["segment", "index entries"] if per_segment else ["segments", "start"]
    print_table(
        ["partition", *extra, "end", "first time", "max time", "size"],
        [cells(row, per_segment) for row in rows],
        right=(1, 2, 3, 6),
    )
    if not per_segment:
        print_open_transactions(rows)
        strays = [row for row in rows if row["stray"] is not None]
        for row in strays:
            print_line(f"{row['topic']}-{row['partition']} is {row['stray']}")
        if strays:
            note(f"strays are told by {', '.join(dict.fromkeys(map(read_from, states.values())))}")
    total = sum(row["sizeInBytes"] for row in rows)
    topics_there = counted(len({row["topic"] for row in rows}), "topic")
    remark(f"{topics_there}, {counted(len(logs), 'partition')}, {show_bytes(total)} of .log files")
    return code


def partition_rows(states: Mapping[str, ClusterState], log: PartitionLog) -> list[dict[str, Any]]:
    """A partition as one row for ``--json``."""
    from kts.dataset.placement import home_of, stray
    from kts.segment.segment import first_time

    state = states.get(home_of(log))
    log = log.listed()
    segments = log.segments
    greatest = log.max_timestamp()
    row = {
        "topic": log.topic,
        "partition": log.partition,
        "segments": len(segments),
        "logStartOffset": log.log_start_offset,
        "logEndOffset": log.log_end_offset,
        **unstable_of(log, MOST_BYTES),
        "firstTimestamp": first_time(segments, log.log_start_offset),
        "maxTimestamp": None if greatest is None else greatest.timestamp_ms,
        "offsetOfMaxTimestamp": None if greatest is None else greatest.offset,
        "sizeInBytes": sum(segment.size_bytes for segment in segments),
        "topicId": log.topic_id,
        "stray": None if state is None else stray(state, log),
        "path": log.path,
    }
    return [row]


def segment_rows(log: PartitionLog) -> list[dict[str, Any]]:
    """The segments of a partition as rows for ``--json``; a new topic's partition may have none."""
    from kts.segment.segment import first_time

    log = log.listed()
    segments = log.segments
    ends = [segment.base_offset for segment in segments[1:]] + [log.log_end_offset] * bool(segments)
    return [
        {
            "topic": log.topic,
            "partition": log.partition,
            "segment": segment.base_offset,
            "logStartOffset": segment.base_offset,
            "logEndOffset": end,
            "timeIndexEntries": entries[0],
            "offsetIndexEntries": entries[1],
            "firstTimestamp": first_time([segment]),
            "maxTimestamp": greatest,
            "sizeInBytes": segment.size_bytes,
            "path": segment.path,
        }
        for segment, end, greatest in zip(segments, ends, greatest_times(log), strict=True)
        for entries in [segment.index_entries()]
    ]


def greatest_times(log: PartitionLog) -> list[int | None]:
    """The greatest timestamp of each segment: its last time-index entry if the log confirms it, else from the log."""
    from kts.dataset.partition import partition_of_segment
    from kts.segment.segment import closed_times

    segments = log.segments
    found: list[int | None] = []
    for closed in closed_times(segments, log.sealed_indexes):
        if closed.lost is not None:
            raise closed.lost
        found.append(closed.greatest_timestamp_ms)
    for number, segment in enumerate(segments):
        if number == len(found) or found[number] is None:
            greatest = partition_of_segment(segment).max_timestamp()
            found[number:] = [None if greatest is None else greatest.timestamp_ms, *found[number + 1 :]]
    return found


def cells(row: dict[str, Any], per_segment: bool) -> list[object]:
    """A row of the table."""
    if per_segment:
        middle = [f"{row['segment']:,}", f"{row['timeIndexEntries']:,} / {row['offsetIndexEntries']:,}"]
    else:
        middle = [f"{row['segments']:,}", f"{row['logStartOffset']:,}"]
    return [
        f"{row['topic']}-{row['partition']}",
        *middle,
        f"{row['logEndOffset']:,}",
        show_time(row["firstTimestamp"]),
        show_time(row["maxTimestamp"]),
        show_bytes(row["sizeInBytes"]),
    ]
