"""``kts copy``: copies partitions between disks and buckets, verified, into a log directory that a broker opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kts.errors import InvalidRequestError
from kts.offline.copy import CopyOptions, copy_partitions

from .clusters import applied_states
from .inputs import (
    advice_on_locks,
    declared,
    exact_range,
    given_options,
    json_option,
    log_bytes,
    now_option,
    open_logs,
    storage_options_of_context,
    tiered_paths_argument,
)
from .output import counted, expand_option, note, print_json, print_table, progress, show_bytes
from .times import zone_option

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
Where the metadata log of a KRaft cluster lies beside PATH, a partition without a topic id gets the cluster's, and
missing indexes are made by the topic's settings there.
meta.properties is copied with a whole directory, if DST has none; else start with kafka-storage format.
"""


@click.command("copy", short_help="Copy partitions between disks and buckets, verified.", epilog=EPILOG)
@tiered_paths_argument
@click.argument("target", metavar="DST")
@declared(CopyOptions)
@now_option
@zone_option
@expand_option
@json_option
def command(paths: tuple[str, ...], target: str, now: str | None, as_json: bool, **asked: Any) -> None:
    """Copy partitions into the log directory DST, on a disk or in a bucket; only what is not there yet."""
    exact_range(asked)
    try:
        options = CopyOptions(None, target, **given_options(CopyOptions, asked, now))
        wanted = options.range
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    topics, partitions = asked["topics"], asked["partitions"]
    logs = open_logs(paths, topics=topics, partitions=partitions, reaches_more=options.reaches_more)
    report = CopyReport(as_json, target)
    whole = not topics and not partitions
    states = applied_states(logs, "topic ids and settings")
    try:
        with advice_on_locks(), progress("copied", log_bytes(logs)) as advance:
            for one in copy_partitions(
                logs,
                target,
                wanted,
                storage_options=storage_options_of_context(),
                on_error=options.on_error,
                whole=whole,
                states=states,
                progress=advance,
            ):
                report.add(one)
    except InvalidRequestError as error:
        raise click.UsageError(str(error)) from error
    report.end(logs)


class CopyReport:
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
