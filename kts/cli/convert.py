"""``kts convert``: writes partitions in another message format to a new directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from kts.arguments import INT32_MAX
from kts.behaviour import TimeRules
from kts.compression import CODEC_NAMES

from .inputs import (
    Size,
    filter_options,
    index_options,
    json_option,
    log_bytes,
    open_logs,
    out_option,
    source_named,
    storage_options_option,
)
from .output import counted, expand_option, note, print_json, print_table, progress, show_bytes
from .work import on_each, one_by_one, spark_option

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog
    from kts.offline.convert import Converted, Format
    from kts.offline.migration import Conversion, TopicPlan

EPILOG = """\b
Examples:
  kts convert DIR --to-magic 2 --out converted
  kts convert DIR/orders-0 --to-magic 2 --compression zstd --out packed --json
  kts convert DIR --plan
  kts convert DIR --to-magic 2 --has-timestamp --out marked

To get rid of messages of magic 0 and 1 before an upgrade to Kafka 4: stop the broker, convert each of its log
directories to magic 2, check the result (kts verify --deep), and replace the old directory with it. Offsets,
timestamps, keys, values, codecs and file times stay; the indexes are rebuilt. SRC is never changed.

Below magic 2 there are no control batches and transactions (refused), no zstd (choose another codec) and no record
headers (refused, or dropped with --drop-headers). Magic 0 has no timestamps.

--has-timestamp sets a bit of a batch's attributes that Kafka does not use (KIP-228's "hasTimestamp"): the column
hasTimestamp is then true for each of its records, also where the timestamp is -1. Records with -1 beside earlier times
get batches of their own, without the mark, unless --minus-one-is-a-time says that -1 is a time, too. Batches without
such times are copied as they are.

--plan writes nothing. For each step of KIP-32's migration it shows what a broker would convert if the records of SRC
were sent once more as they lie there, and read once: by Produce 1 and Fetch 1 from clients of 0.9 (magic 0), by 2 from
those of 0.10 (magic 1). A Produce has a batch, or 16 KiB of plain messages; a Fetch asks for 1 MiB.

\b
  phase 1   message.format.version 0.9.0; Fetch reads what lies there
            (v0 -> v0: sets get absolute offsets)
  canary    0.10.0 on the broker that leads one partition, the smallest
  phase 2   0.10.0 everywhere; Fetch reads all records, stored as magic 1
  rollback  0.9.0 again; Fetch reads what phase 2 stored, also to
            replicate it anew to followers of 0.9

"~": estimated, because these records lie there in another format.
"""


@click.command("convert", short_help="Write partitions in another message format.", epilog=EPILOG)
@click.argument("src", metavar="SRC")
@storage_options_option
@filter_options
@click.option("--to-magic", type=click.Choice(["0", "1", "2"]), help="The message format to convert to.")
@out_option("A missing or empty directory; it appears when it is complete.")
@click.option(
    "--compression", type=click.Choice(CODEC_NAMES), help="Use this codec for all batches. Default: each keeps its own."
)
@click.option("--level", type=int, help="Compression level of the codec.")
@click.option(
    "--batch-bytes",
    type=Size(1, INT32_MAX),
    default=16384,
    show_default=True,
    help="About this many bytes of uncompressed messages per batch.",
)
@click.option("--drop-headers", is_flag=True, help="Drop record headers, which magic 0 and 1 do not have.")
@click.option("--allow-negative-timestamps", is_flag=True, help="Keep times before 1970, which Kafka refuses.")
@click.option(
    "--has-timestamp", is_flag=True, help="Keep times before 1970, and mark their batches: each record has a timestamp."
)
@click.option("--minus-one-is-a-time", is_flag=True, help="With --has-timestamp: -1 is such a time, 1 ms before 1970.")
@click.option("--plan", is_flag=True, help="Show what each step of KIP-32's migration would convert; write nothing.")
@index_options
@spark_option
@expand_option
@json_option
def command(
    src: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    to_magic: str | None,
    out: str | None,
    compression: str | None,
    level: int | None,
    batch_bytes: int,
    drop_headers: bool,
    allow_negative_timestamps: bool,
    plan: bool,
    has_timestamp: bool,
    minus_one_is_a_time: bool,
    index_interval_bytes: int,
    segment_index_bytes: int,
    master: str | None,
    as_json: bool,
) -> int:
    """Convert a partition directory, a segment file, or all partitions of a log directory."""
    from kts.offline.convert import Format, aside, copy_beside, finish_partition
    from kts.store.addresses import plain, real

    if plan:
        if to_magic or out:
            raise click.UsageError("--plan writes nothing; leave out --to-magic and --out")
        return show_plan(open_logs([src], topics=topics, partitions=partitions), as_json)
    if to_magic is None or out is None:
        missing = "--to-magic" if to_magic is None else "--out"
        raise click.UsageError(f"Missing option '{missing}'; or show a migration with --plan")
    if level is not None and compression in (None, "none"):
        raise click.UsageError("--level needs a --compression")
    to = Format(
        int(to_magic),
        compression,
        level,
        batch_bytes,
        drop_headers,
        TimeRules.of(allow_negative_timestamps or has_timestamp, minus_one_is_a_time),
        index_interval_bytes,
        segment_index_bytes,
        has_timestamp,
    )
    if has_timestamp and to.magic < 2:
        raise click.UsageError("--has-timestamp needs --to-magic 2: other formats do not have the mark")
    if minus_one_is_a_time and not has_timestamp:
        raise click.UsageError("--minus-one-is-a-time needs --has-timestamp")
    check_codec(to.magic, compression, level)
    logs = open_logs([src], topics=topics, partitions=partitions)
    refuse_inside(out, src)
    report = ConvertReport(as_json, to.magic)
    try:
        with aside(out) as directory, progress("converted", log_bytes(logs), quiet=master is not None) as advance:
            work = partial(converted, directory, to)
            for log, segments in on_each(logs, work, one_by_one, advance, master=master, parts=True):
                made = []
                for segment in segments:
                    made.append(segment)
                    report.add(segment)
                finish_partition(log, directory, to, made)
            is_log_dir = not logs[0].lone and real(logs[0].path) != real(plain(src))
            if is_log_dir and not topics and not partitions:
                copy_beside(plain(src), source_named(plain(src)), directory)
    except FileExistsError as error:
        raise click.BadParameter(f"{error}; name another", param_hint="--out") from error
    report.end(len(logs))
    return 0


def converted(directory: str, to: Format, log: PartitionLog, advance: Callable[[int], None]) -> Iterator[Converted]:
    """Convert the segments of a partition into a log directory."""
    from kts.offline.convert import convert_segments

    return convert_segments(log, directory, to, advance)


def check_codec(magic: int, compression: str | None, level: int | None) -> None:
    """Refuse an unknown codec or level before anything is read."""
    from kts.compression import codec_id, compressor
    from kts.errors import UnsupportedCompressionTypeError

    try:
        if compression not in (None, "none"):
            compressor(codec_id(compression or "none", magic), magic, level)
    except (UnsupportedCompressionTypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error


def refuse_inside(out: str, src: str) -> None:
    """Refuse an ``--out`` inside the source, or around it."""
    from kts.store.addresses import plain, real

    source, target = real(plain(src)), os.path.realpath(out)
    if target == source or target.startswith(source + os.sep) or source.startswith(target + os.sep):
        raise click.BadParameter(f"{out} lies in {src}, or around it; name another", param_hint="--out")


class ConvertReport:
    """Collects what is printed at the end."""

    def __init__(self, as_json: bool, magic: int) -> None:
        self.as_json = as_json
        self.magic = magic
        self.rows: list[list[str]] = []
        self.segments: list[Converted] = []

    def add(self, segment: Converted) -> None:
        """Add one segment."""
        self.segments.append(segment)
        if segment.left_out:
            where = segment.size_bytes - segment.left_out
            note(f"{segment.path}: left out {counted(segment.left_out, 'byte')} of a cut tail at position {where}")

    def end(self, partitions: int) -> None:
        """Print everything, after the directory got its name."""
        for one in self.segments:
            if self.as_json:
                print_json(
                    {
                        "topic": one.topic,
                        "partition": one.partition,
                        "segment": one.base_offset,
                        "nextOffset": one.next_offset,
                        "magics": one.magics,
                        "records": one.records,
                        "batches": one.batches,
                        "sizeInBytes": one.size_bytes,
                        "convertedBatches": one.converted_batches,
                        "convertedSizeInBytes": one.converted_bytes,
                        "leftOutBytes": one.left_out,
                    }
                )
            else:
                change = f"{show_bytes(one.size_bytes)} -> {show_bytes(one.converted_bytes)}"
                batches = f"{one.batches:,} -> {one.converted_batches:,}"
                name = f"{one.topic}-{one.partition}"
                self.rows.append([name, str(one.base_offset), f"{one.records:,}", batches, change])
        names = ("records", "batches", "size_bytes", "converted_batches", "converted_bytes", "left_out")
        keys = ("records", "batches", "sizeInBytes", "convertedBatches", "convertedSizeInBytes", "leftOutBytes")
        sums = {key: sum(getattr(one, name) for one in self.segments) for key, name in zip(keys, names, strict=True)}
        if self.as_json:
            print_json({"toMagic": self.magic, "partitions": partitions, "segments": len(self.segments), **sums})
            return
        print_table(["partition", "segment", "records", "batches", "size"], self.rows, right=[1, 2, 3, 4])
        of = f"{counted(partitions, 'partition')}, {counted(len(self.segments), 'segment')}"
        size = f"{show_bytes(sums['sizeInBytes'])} -> {show_bytes(sums['convertedSizeInBytes'])}"
        click.echo(f"{of}: {counted(sums['records'], 'record')} as magic {self.magic}, {size}")


# --- the plan of a migration ------------------------------------------------------------------------


def show_plan(logs: list[PartitionLog], as_json: bool) -> int:
    """Print what each step of KIP-32's migration would convert."""
    from kts.offline.migration import plan

    with progress("headers", log_bytes(logs)) as advance:
        plans = plan(logs, progress=advance)
    sizes = [sum(each) for each in zip(*(one.size_bytes for one in plans), strict=True)]
    partitions = sum(one.partitions for one in plans)
    if as_json:
        for one in plans:
            for conversion in one.conversions:
                print_json(plan_object(one.topic, conversion))
        by_magic = {str(magic): size for magic, size in enumerate(sizes)}
        print_json({"topics": len(plans), "partitions": partitions, "sizeInBytesByMagic": by_magic})
        return 0
    rows = [row for one in plans for row in plan_rows(one)]
    print_table(["topic", "step", "request", "converts", "size", "requests"], rows, right=[4, 5])
    census = ", ".join(f"v{magic} {show_bytes(size)}" for magic, size in enumerate(sizes) if size) or "no records"
    click.echo(f"{counted(len(plans), 'topic')}, {counted(partitions, 'partition')}: {census}")
    if sizes[2]:
        note("v2 is unknown to 0.9 and 0.10, whose formats KIP-32 is about: here, v2 is converted in each step")
    return 0


def plan_object(topic: str, one: Conversion) -> dict[str, object]:
    """A conversion for ``--json``."""
    return {
        "topic": topic,
        "partition": one.partition,
        "step": one.step,
        "request": one.request,
        "fromMagics": one.from_magics,
        "toMagic": one.to_magic,
        "sizeInBytes": one.size_bytes,
        "requests": one.requests,
        "exact": one.exact,
    }


def plan_rows(one: TopicPlan) -> list[list[str]]:
    """The rows of a topic; a step without conversions has one too."""
    from kts.offline.migration import STEPS

    rows = []
    for step in STEPS:
        those = [conversion for conversion in one.conversions if conversion.step == step]
        for each in those:
            name = one.topic if each.partition is None else f"{one.topic}-{each.partition}"
            change = f"{' + '.join(f'v{magic}' for magic in each.from_magics)} -> v{each.to_magic}"
            size = f"{'' if each.exact else '~'}{show_bytes(each.size_bytes)}"
            requests = f"{'' if each.exact else '~'}{each.requests:,}"
            rows.append([name, step, each.request, change, size, requests])
        if not those:
            rows.append([one.topic, step, "", "nothing", "", ""])
    return rows
