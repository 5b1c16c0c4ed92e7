"""``kts copy``: copies partitions between disks and buckets, verified, into a log directory that a broker opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .inputs import (
    STORAGE_OPTIONS,
    advice_on_locks,
    exact_range,
    filter_options,
    json_option,
    lateness_option,
    log_bytes,
    on_error_option,
    open_logs,
    strict_option,
    tiered_paths_argument,
)
from .output import counted, expand_option, note, print_json, print_table, progress, show_bytes
from .times import resolve, time_options, zone_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kts.dataset.partition import PartitionLog
    from kts.offline.copy import CopiedSegment

EPILOG = """\b
Examples:
  kts copy DIR copied
  kts copy DIR part --topic orders --from 2026-09-01 --to 2026-09-08 --json

To a bucket: kts copy DIR s3://backups/kafka; and back: kts copy s3://backups/kafka DIR. Tiered storage with what lies
on the disk, as one log: kts copy DIR copied --remote s3://tiered/; it alone: kts copy copied --remote s3://tiered/.

DST is a log directory: missing, empty, an earlier copy, or that of a stopped broker. At the end it is as after a clean
stop, and a broker opens it without a recovery. A bucket holds the same files, without the marker of a clean stop.

Run it again after anything stopped it, or for what is new: a segment that lies in DST with the same size and
modification time is not copied (in a bucket: the same size and last 4 KiB, and not older). Each other one is copied
aside, all its batches are verified as by kts verify, indexes that are missing or wrong are rebuilt, and then it takes
its place whole. Older segments of DST stay, though the retention of PATH deleted them; what PATH has compacted is
replaced.

A range of times copies whole segments, so that offsets stay: from the one with the first record at or after --from up
to the last one that has a record of the range, as kts dump finds them; with --no-strict, up to the one with the last
record before the first at or after --to. Kafka's internal topics are copied whole, whatever the range, but
__consumer_offsets as it was at --groups-at, which is --to unless it is given (now copies all): consumers of the copy go
on from there. A group with an offset beyond the end of the copy, or without one from before that time, is named.

Compressed logs (.log.gz, .log.zst) become plain ones, for a broker reads no others. Of a directory that a broker writes
meanwhile, all up to the high watermark of its last checkpoint is copied. A topic keeps the id that it has in DST.
meta.properties is copied with a whole directory, if DST has none; else start with kafka-storage format.
"""


@click.command("copy", short_help="Copy partitions between disks and buckets, verified.", epilog=EPILOG)
@tiered_paths_argument
@click.argument("target", metavar="DST")
@filter_options
@click.option("--from", "start", metavar="TIME", help="From the segment with the first record of this time or later.")
@click.option("--to", "end", metavar="TIME", help="Without the segments after the last record before this time.")
@strict_option("Up to the last segment with a record in the range (default), or up to the first record after it.")
@lateness_option
@click.option("--groups-at", metavar="TIME", help="The groups' committed offsets as they were then. Default: --to.")
@time_options
@zone_option
@on_error_option
@expand_option
@json_option
def command(
    paths: tuple[str, ...],
    target: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    start: str | None,
    end: str | None,
    strict: bool | None,
    allowed_lateness: str | None,
    groups_at: str | None,
    unit: str | None,
    now: str | None,
    on_error: str,
    as_json: bool,
) -> None:
    """Copy partitions into the log directory DST, on a disk or in a bucket; only what is not there yet."""
    from kts.dataset.options import time_range
    from kts.errors import InvalidRequestError
    from kts.offline.copy import CopyRange, copy_partitions
    from kts.remote.buckets import reached

    exact = exact_range(start, end, strict, allowed_lateness)
    try:
        times = time_range(resolve(start, "--from", unit, now), resolve(end, "--to", unit, now), "ms")
        at = resolve(groups_at, "--groups-at", unit, now)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    wanted = CopyRange(*times, exact["strict_time_range"], exact["allowed_lateness"], times[1] if at is None else at)
    logs = open_logs(paths, topics=topics, partitions=partitions)
    target = reached(target, click.get_current_context().meta.get(STORAGE_OPTIONS))
    report = Report(as_json, target)
    whole = not topics and not partitions
    try:
        with advice_on_locks(), progress("copied", log_bytes(logs)) as advance:
            for one in copy_partitions(logs, target, wanted, on_error=on_error, whole=whole, progress=advance):
                report.add(one)
    except InvalidRequestError as error:
        raise click.UsageError(str(error)) from error
    report.end(logs)


class Report:
    """Collects what is printed at the end."""

    def __init__(self, as_json: bool, target: str) -> None:
        self.as_json = as_json
        self.target = target
        self.segments: list[CopiedSegment] = []

    def add(self, one: CopiedSegment) -> None:
        """Add one segment."""
        self.segments.append(one)
        if one.rebuilt:
            note(f"{one.source}: rebuilt in the copy: {', '.join(one.rebuilt)}")
        if self.as_json:
            print_json(as_object(one))

    def end(self, logs: Sequence[PartitionLog]) -> None:
        """Print the partitions and a summary."""
        copied = [one for one in self.segments if one.state == "copied"]
        size = sum(one.size_bytes for one in copied)
        damage = sum(len(one.damage) for one in copied)
        if self.as_json:
            counts = {"segments": len(self.segments), "copied": len(copied), "copiedSizeInBytes": size}
            rebuilt = sum(len(one.rebuilt) for one in copied)
            summary = {"target": self.target, "partitions": len(logs), **counts, "rebuilt": rebuilt, "damaged": damage}
            print_json(summary)
            return
        rows = [row for log in logs if (row := self.row(log)) is not None]
        if rows:
            print_table(["partition", "segments", "copied", "there before", "size copied"], rows, right=[1, 2, 3, 4])
        there = counted(len(self.segments) - len(copied), "segment")
        click.echo(
            f"{counted(len(copied), 'segment')} copied to {self.target}, {show_bytes(size)}; {there} there before"
        )

    def row(self, log: PartitionLog) -> list[str] | None:
        """The row of a partition; None if no segment of it is in the range."""
        mine = [one for one in self.segments if (one.topic, one.partition) == (log.topic, log.partition)]
        if not mine:
            return None
        copied = [one.size_bytes for one in mine if one.state == "copied"]
        counts = [len(mine), len(copied), len(mine) - len(copied)]
        return [f"{log.topic}-{log.partition}", *(f"{count:,}" for count in counts), show_bytes(sum(copied))]


def as_object(one: CopiedSegment) -> dict[str, Any]:
    """A segment for ``--json``."""
    return {
        "topic": one.topic,
        "partition": one.partition,
        "segment": one.base_offset,
        "source": one.source,
        "path": one.path,
        "sizeInBytes": one.size_bytes,
        "state": one.state,
        "rebuilt": one.rebuilt,
        "damage": [
            {"path": found.path, "position": found.position, "offset": found.offset, "kind": found.kind}
            for found in one.damage
        ],
    }
