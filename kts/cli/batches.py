"""``kts batches``: the headers of record batches and messages, one a row."""

from __future__ import annotations

from typing import Any

import click

from .inputs import filter_options, json_option, open_logs, paths_argument
from .names import CODEC_NAMES, TYPE_NAMES
from .output import note, print_json, print_table
from .times import show_time

TABLE_ROWS = 1000

EPILOG = """\b
Examples:
  kts batches DIR/orders-0 --limit 10
  kts batches DIR/orders-0/00000000000000000000.log --json

Offsets and counts that a compressed v0 or v1 wrapper message does not carry in its header are null.
"""


@click.command("batches", short_help="Batch headers: offsets, times, codecs, sizes, CRCs.", epilog=EPILOG)
@paths_argument
@filter_options
@click.option("--limit", type=click.IntRange(min=0), help=f"At most so many. Default {TABLE_ROWS:,} without --json.")
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    limit: int | None,
    as_json: bool,
) -> None:
    """List record batches and outermost messages from their headers alone, nothing decompressed.

    The CRC of each is checked; a wrong one is shown and does not stop the list.
    """
    logs = open_logs(paths, topics=topics, partitions=partitions)
    shown = limit if limit is not None or as_json else TABLE_ROWS
    rows: list[list[object]] = []
    count = 0
    for log in logs:
        for segment in log.segments:
            for headers in segment.batches():
                for row in integers(headers).to_pylist():
                    if shown is not None and count == shown:
                        finish(rows, as_json, None if limit is not None else shown)
                        return
                    count += 1
                    if as_json:
                        print_json(as_object(log, segment, row))
                    else:
                        rows.append(cells(log, row))
    finish(rows, as_json, None)


def finish(rows: list[list[object]], as_json: bool, cut_at: int | None) -> None:
    """Print the table; say so when it is not all."""
    if as_json:
        return
    names = ("partition", "position", "size", "magic", "codec", "first offset", "last offset", "records", "base time")
    print_table((*names, "max time", "type", "flags"), rows, right=(1, 2, 3, 5, 6, 7))
    if cut_at is not None:
        note(f"the first {cut_at:,}; more with --limit N, all with --json")


def integers(headers: Any) -> Any:
    """The same header scan with its times as ms."""
    for name in ("baseTimestamp", "maxTimestamp"):
        at = headers.schema.get_field_index(name)
        headers = headers.set_column(at, name, headers[name].cast("int64"))
    return headers


def as_object(log: Any, segment: Any, row: dict[str, Any]) -> dict[str, Any]:
    """A row for ``--json``: api names, times in ms."""
    return (
        {"topic": log.topic, "partition": log.partition, "segment": segment.path}
        | row
        | {
            "codec": CODEC_NAMES.get(row["codec"], row["codec"]),
            "timestampType": TYPE_NAMES.get(row["timestampType"], row["timestampType"]),
        }
    )


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
