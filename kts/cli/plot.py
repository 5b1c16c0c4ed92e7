"""``kts plot``: draws a partition's timestamps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, BinaryIO

import click

from kts.times import wall_clock

from .inputs import filter_options, json_option, log_bytes, open_logs, tiered_paths_argument
from .output import counted, print_json, progress, refuse_input, refuse_terminal, remark, show_bytes, sink
from .times import parse_time

KINDS = ("png", "svg", "pdf", "html")
MOST_PANELS = 12
INSTALL = "pip install 'kafka-timestamps[plot]'"

EPILOG = f"""\b
Examples:
  kts plot DIR/orders-0 -o orders-0.png
  kts plot DIR --topic orders -o orders.html

Each batch is a box: the offsets and times in its header. Each segment has a colour. Diamonds are entries of the time
index, crosses are batches that start before a time already reached (out of order), triangles are batches in the future.
Times far outside the rest are arrows at the edge. The drawing libraries are an extra: {INSTALL}
"""


@click.command("plot", short_help="A picture of the timestamps: PNG, SVG, PDF or HTML.", epilog=EPILOG)
@tiered_paths_argument
@filter_options
@click.option(
    "-o",
    "--out",
    "output",
    metavar="FILE",
    type=click.Path(),
    required=True,
    help="The file to write: .png, .svg, .pdf or .html (to zoom in).",
)
@click.option("--format", "kind", type=click.Choice(KINDS), help="Default: by the suffix of -o.")
@click.option("--now", metavar="TIME", help="Later times are in the future. Default: the clock.")
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    output: str,
    kind: str | None,
    now: str | None,
    as_json: bool,
) -> None:
    """Draw timestamps over offsets, from batch headers and time indexes: one panel for each partition."""
    kind = kind or os.path.splitext(output)[1].lower().lstrip(".")
    if kind not in KINDS:
        raise click.UsageError(f"-o {output}: expected a name that ends in .png, .svg, .pdf or .html, or --format")
    if kind in ("png", "pdf"):
        refuse_terminal(output, f"a {kind.upper()}")
    try:
        now_ms = wall_clock() if now is None else parse_time(now)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--now'") from error
    logs = open_logs(paths, topics=topics, partitions=partitions)
    if len(logs) > MOST_PANELS:
        raise click.UsageError(f"{len(logs)} partitions are too many for one picture: choose with --topic, --partition")
    from .picture import gather

    try:
        import_library(kind)
    except ImportError as error:
        raise click.UsageError(f"drawing {kind} needs {error.name}, which is not installed: {INSTALL}") from error
    refuse_input(output, logs)
    with progress("headers", log_bytes(logs)) as advance:
        pictures = [gather(log, now_ms, advance) for log in logs]
    with sink(output) as file:
        draw(pictures, file, kind)
    if as_json:
        for log, picture in zip(logs, pictures, strict=True):
            print_json({"topic": log.topic, "partition": log.partition, "output": output} | as_object(picture))
    elif output != "-":
        remark(f"{counted(len(pictures), 'partition')}, {show_bytes(os.path.getsize(output))} in {output}")


def import_library(kind: str) -> None:
    """Import the library that draws this kind of file.

    Raises
    ------
    ImportError
        The library is not installed.
    """
    import_module("plotly.graph_objects" if kind == "html" else "matplotlib.figure")


def draw(pictures: Sequence[Any], file: BinaryIO, kind: str) -> None:
    """Draw into ``file``: one panel for each partition, one below the other."""
    if kind == "html":
        from .page import draw_page

        draw_page(pictures, file)
    else:
        from .image import draw_image

        draw_image(pictures, file, kind)


def as_object(picture: Any) -> dict[str, object]:
    """The numbers of a panel for ``--json``."""
    return {
        "segments": len(picture.segments),
        "batches": picture.batches,
        "withoutTimestamp": picture.without_time,
        "outOfOrder": picture.late.count,
        "mostLateMs": picture.most_late_ms,
        "inTheFuture": picture.future.count,
        "farOutside": [{"offset": offset, "timestamp": time} for offset, time in picture.clipped],
    }
