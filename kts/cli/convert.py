"""``kts convert``: writes partitions in another message format to a new directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from kts.arguments import INT32_MAX
from kts.compression import CODEC_NAMES

from .inputs import Size, filter_options, index_options, json_option, log_bytes, open_logs
from .output import counted, expand_option, note, print_json, print_table, progress, show_bytes, target_directory

if TYPE_CHECKING:
    from kts.offline.convert import Converted

EPILOG = """\b
Examples:
  kts convert DIR --to-magic 2 --out converted
  kts convert DIR/orders-0 --to-magic 2 --compression zstd --out packed --json

\b
To get rid of messages of magic 0 and 1 before an upgrade to Kafka 4: stop the broker, convert each of its log
directories to magic 2, check the result (kts verify --deep), and replace the old directory with it. Offsets,
timestamps, keys, values, codecs and file times stay; the indexes are rebuilt. SRC is never changed.

\b
Below magic 2 there are no control batches and transactions (refused), no zstd (choose another codec) and no record
headers (refused, or dropped with --drop-headers). Magic 0 has no timestamps.
"""


@click.command("convert", short_help="Write partitions in another message format.", epilog=EPILOG)
@click.argument("src", metavar="SRC")
@filter_options
@click.option("--to-magic", type=click.Choice(["0", "1", "2"]), required=True, help="The message format to convert to.")
@click.option(
    "-o",
    "--out",
    metavar="DIR",
    type=click.Path(),
    required=True,
    help="A missing or empty directory; it appears when it is complete.",
)
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
@index_options
@expand_option
@json_option
def command(
    src: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    to_magic: str,
    out: str,
    compression: str | None,
    level: int | None,
    batch_bytes: int,
    drop_headers: bool,
    allow_negative_timestamps: bool,
    index_interval_bytes: int,
    segment_index_bytes: int,
    as_json: bool,
) -> int:
    """Convert a partition directory, a segment file, or all partitions of a log directory."""
    from kts.offline.convert import Format, aside, convert_partition, copy_beside
    from kts.segment.files import make_directory

    if level is not None and compression in (None, "none"):
        raise click.UsageError("--level needs a --compression")
    to = Format(
        int(to_magic),
        compression,
        level,
        batch_bytes,
        drop_headers,
        allow_negative_timestamps,
        index_interval_bytes,
        segment_index_bytes,
    )
    check_codec(to.magic, compression, level)
    logs = open_logs([src], topics=topics, partitions=partitions)
    refuse_inside(out, src)
    report = Report(as_json, to.magic)
    try:
        with aside(out) as directory, progress("converted", log_bytes(logs)) as advance:
            for log in logs:
                target = target_directory(directory, log)
                make_directory(target)
                for segment in convert_partition(log, target, to, advance):
                    report.add(segment)
            is_log_dir = not logs[0].lone and os.path.realpath(logs[0].path) != os.path.realpath(src)
            if is_log_dir and not topics and not partitions:
                copy_beside(src, directory)
    except FileExistsError as error:
        raise click.BadParameter(f"{error}; name another", param_hint="--out") from error
    report.end(len(logs))
    return 0


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
    source, target = os.path.realpath(src), os.path.realpath(out)
    if target == source or target.startswith(source + os.sep) or source.startswith(target + os.sep):
        raise click.BadParameter(f"{out} lies in {src}, or around it; name another", param_hint="--out")


class Report:
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
