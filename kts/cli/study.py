"""``kts study``: KIP-32's tables, measured."""

from __future__ import annotations

import textwrap
from dataclasses import fields
from typing import Any

import click

from .inputs import json_option
from .output import FINDINGS, FINE, expand_option, note, print_json, print_line, print_table, progress
from .times import length_callback, show_length

EPILOG = """\b
Examples:
  kts study
  kts study --partitions 10000 --large-latency 2d --roll 1d
  kts study --json | jq '.rolling[] | select(.agrees | not)'

Nothing is read or changed, and the clock is the study's own: the same options and seed give the same figures. The
first 50 partitions of each pattern are played in real logs, too, in a temporary directory; exit code 1 says that they
and the rules count differently. docs/study.md says how each verdict follows from the figures.
"""
WIDTH = 80
LENGTHS = {  # option: field of Settings, help
    "--duration": ("duration_ms", "How long messages arrive."),
    "--latency": ("latency_ms", "The small latency, on average."),
    "--large-latency": ("large_latency_ms", "The large latency: 1 PM yesterday arrives today."),
    "--disorder": ("disorder_ms", "By how much large latencies differ."),
    "--retention": ("retention_ms", "retention.ms."),
    "--roll": ("roll_ms", "segment.ms."),
    "--check": ("check_ms", "log.retention.check.interval.ms."),
}
NUMBERS = {
    "--partitions": ("partitions", int, "Partitions of each pattern."),
    "--rate": ("messages_per_hour", int, "Messages per hour and partition."),
    "--wrong": ("wrong", float, "The part of messages with a wrong time."),
    "--seed": ("seed", int, "The seed of all random numbers."),
}
NAMES = {  # of rules, in tables
    "LogAppendTime": "LogAppendTime",
    "CreateTime": "CreateTime, Kafka's",
    "earliest-timestamp": "CreateTime, earliest",
    "largest-timestamp": "CreateTime, largest",
    "wall-clock": "CreateTime, clock",
}
BY = {"earliest-timestamp": "KIP-32's", "CreateTime": "Kafka's", "largest-timestamp": "KIP-33's"}


def settings_options(function: Any) -> Any:
    """An option for each setting, with the study's default."""
    from kts.study.workloads import Settings

    defaults: dict[str, Any] = {field.name: field.default for field in fields(Settings)}
    for option, (name, words) in reversed(LENGTHS.items()):
        text = show_length(defaults[name]).replace(" ", "")
        function = click.option(
            option, name, metavar="LENGTH", callback=length_callback, default=text, help=f"{words} Default {text}."
        )(function)
    for option, (name, kind, words) in reversed(NUMBERS.items()):
        function = click.option(option, name, type=kind, default=defaults[name], show_default=True, help=words)(
            function
        )
    return function


@click.command("study", short_help="The KIPs' tables of preference, measured.", epilog=EPILOG)
@settings_options
@expand_option
@json_option
def command(as_json: bool, **given: Any) -> int:
    """Play KIP-32's options through its patterns of latency; compare its tables with what is measured."""
    from kts.study import Settings, run
    from kts.study.study import steps

    try:
        settings = Settings(**given)
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    with progress("partitions", steps(settings), sizes=False) as advance:
        report = run(settings, advance=advance)
    if as_json:
        print_json(report)
    else:
        print_report(report)
    return FINDINGS if report["sample"]["differences"] else FINE


def print_report(report: dict[str, Any]) -> None:
    """The tables."""
    for pattern, found in report["patterns"].items():
        print_line(f"{pattern}: {found['what']}")
        print_table(
            ["time and rule", "segments", "of one", "open p99", "kept p99", "apart p99", "late"],
            [figures_row(NAMES[name], figures) for name, figures in found["rules"].items()],
            right=(1, 2, 3, 4, 5, 6),
        )
        print_line("")
    print_line("Retention: which time is preferable? (apart p99; kept p99 after the own time)")
    print_table(
        ["pattern", "paper", "measured", "agrees", "CreateTime", "LogAppendTime"],
        [
            [*verdict(cell), times_of(cell, "createTime"), times_of(cell, "logAppendTime")]
            for cell in report["retention"]
        ],
    )
    print_line("")
    print_line("Rolling: which time is preferable? (closed early; open p99 in segment.ms)")
    print_table(
        ["rule", "pattern", "paper", "measured", "agrees", "CreateTime", "LogAppendTime"],
        [
            [BY[cell["rule"]], *verdict(cell), parts_of(cell, "createTime"), parts_of(cell, "logAppendTime")]
            for cell in report["rolling"]
        ],
    )
    print_line("")
    for cell in report["rolling"]:
        if not cell["agrees"]:
            words = (
                f"{cell['pattern']}: the paper says {cell['paper']}, measured is {cell['measured']}. {cell['about']}."
            )
            print_line(textwrap.fill(words, WIDTH))
    sample = report["sample"]
    note(f"{sample['logs']:,} real logs, {sample['segments']:,} segments: {compared(sample)}")


def compared(sample: dict[str, Any]) -> str:
    """Whether real logs and rules agree."""
    if sample["differences"]:
        return f"DIFFERENT from the rules in {'; '.join(sample['differences'])}"
    alone = sample["byRulesAlone"]
    return "the rules count the same" + (f" (by rules alone: {', '.join(alone)})" if alone else "")


def figures_row(name: str, figures: dict[str, Any]) -> list[str]:
    """A line of a pattern's table."""
    return [
        name,
        f"{figures['segments']:,}",
        f"{figures['segmentsOfOneMessage']:,}",
        show(figures["openMs"]["p99"]),
        show(figures["deletedAfterCreationMs"]["p99"]),
        show(figures["deletedApartMs"]["p99"]),
        f"{figures['lateMessages']:,}",
    ]


def verdict(cell: dict[str, Any]) -> list[str]:
    """The first columns of a cell."""
    return [cell["pattern"], cell["paper"], cell["measured"], "yes" if cell["agrees"] else "NO"]


def times_of(cell: dict[str, Any], key: str) -> str:
    """Two lengths of time."""
    return ", ".join(show(criterion[key]) for criterion in cell["criteria"])


def parts_of(cell: dict[str, Any], key: str) -> str:
    """A part, and a multiple of segment.ms."""
    early, opened = (criterion[key] for criterion in cell["criteria"])
    return f"{early:.0%}, {opened:.1f}"


def show(ms: int) -> str:
    """A length of time, its largest part with one decimal."""
    for name, step in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if abs(ms) >= step:
            return f"{ms / step:,.1f} {name}"
    return f"{ms} ms"
