"""``kts plot``: draws a partition's timestamps."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any, BinaryIO

import click

from .inputs import filter_options, json_option, log_bytes, open_logs, paths_argument
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
@paths_argument
@filter_options
@click.option(
