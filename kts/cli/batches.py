"""``kts batches``: lists the headers of record batches and messages, one per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from .index_files import index_files, print_entries, rows_for_programs
from .inputs import filter_options, json_option, open_logs, tiered_paths_argument
from .output import CODEC_NAMES, FINE, TYPE_NAMES, expand_option, note, print_table, sink
from .times import show_time, zone_option

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog
    from kts.segment.segment import Segment

TABLE_ROWS = 1000

EPILOG = """\b
Examples:
  kts batches DIR/orders-0 --limit 10
  kts batches DIR/orders-0/00000000000000000000.log --json
  kts batches DIR/orders-0/00000000000000000000.timeindex

Files beside a log are listed by their entries: .index, .timeindex, .txnindex and .snapshot, whether or not the log
confirms them (kts verify does).

Offsets and counts that the header of a compressed v0 or v1 wrapper message does not carry are null.
"""


@click.command("batches", short_help="Batch headers: offsets, times, codecs, sizes, CRCs.", epilog=EPILOG)
@tiered_paths_argument
@filter_options
@click.option(
    "--limit", type=click.IntRange(0, 2**62), help=f"At most this many. Default {TABLE_ROWS:,} without --json."
)
@zone_option
@expand_option
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    limit: int | None,
    as_json: bool,
) -> int:
    """List record batches and outermost messages by their headers; nothing is decompressed.

    Each CRC is checked. A wrong one is shown and does not end the list.
    """
    if beside := index_files(paths):
        return list_entries(beside, limit, as_json)
    logs = open_logs(paths, topics=topics, partitions=partitions)
    left = limit if limit is not None or as_json else TABLE_ROWS + 1
    if as_json:
        with sink(None) as file:
            for log, segment, headers in limited(logs, left):
                print_lines(file, log, segment, headers)
        return FINE
    rows = [cells(log, row) for log, _, headers in limited(logs, left) for row in integers(headers).to_pylist()]
    more = limit is None and len(rows) > TABLE_ROWS and bool(rows.pop())
    names = ("partition", "position", "size", "magic", "codec", "first offset", "last offset", "records", "base time")
    print_table((*names, "max time", "type", "flags"), rows, right=(1, 2, 3, 5, 6, 7))
    if more:
        note(f"the first {TABLE_ROWS:,}; more with --limit N, all with --json")
    return FINE


def list_entries(paths: Sequence[str], limit: int | None, as_json: bool) -> int:
    """The entries of files beside a log; the exit code."""
    if not as_json:
        return print_entries(paths, limit, TABLE_ROWS)
    from .text import json_lines

    codes = [FINE]
    with sink(None) as file:
        for rows in rows_for_programs(paths, limit, codes):
            file.write(json_lines(rows))
    return max(codes)


def limited(logs: Sequence[PartitionLog], left: int | None) -> Iterator[tuple[PartitionLog, Segment, Any]]:
    """Header scans of all segments, cut after ``left`` rows."""
    from kts.dataset.scan import segment_batches

    for log in logs:
        for segment, headers in segment_batches(log):
            if left is not None:
                headers = headers.slice(0, left)
                left -= headers.num_rows
            yield log, segment, headers
            if left == 0:
                return


def print_lines(file: BinaryIO, log: PartitionLog, segment: Segment, headers: Any) -> None:
    """One JSON object per row, with the column names of ``kts.scan_batches``, and ``records`` for ``count``."""
    import pyarrow as pa

    from .text import json_lines

    rows = headers.num_rows
    where = {
        "topic": pa.repeat(log.topic, rows),
        "partition": pa.repeat(log.partition, rows),
        "segment": pa.repeat(segment.base_offset, rows),
    }
    names = ["records" if name == "count" else name for name in headers.schema.names]
    columns = [*where.values(), *headers.columns, pa.repeat(segment.path, rows)]
    file.write(json_lines(pa.record_batch(columns, names=[*where, *names, "path"])))


def integers(headers: Any) -> Any:
    """The same header scan with its times as ms."""
    for name in ("baseTimestamp", "maxTimestamp"):
        at = headers.schema.get_field_index(name)
        headers = headers.set_column(at, name, headers[name].cast("int64"))
    return headers


def cells(log: Any, row: dict[str, Any]) -> list[object]:
    """A row of the table."""
    flags = [name for name in ("transactional", "control") if row[name]]
    if not row["crcOk"]:
        flags.insert(0, "BAD CRC")
    return [
        f"{log.topic}-{log.partition}",
        row["position"],
        row["sizeInBytes"],
        row["magic"],
        CODEC_NAMES.get(row["codec"], row["codec"]),
        "?" if row["baseOffset"] is None else row["baseOffset"],
        row["lastOffset"],
        "?" if row["count"] is None else row["count"],
        show_time(row["baseTimestamp"]),
        show_time(row["maxTimestamp"]),
        TYPE_NAMES.get(row["timestampType"], row["timestampType"]),
        " ".join(flags),
    ]
