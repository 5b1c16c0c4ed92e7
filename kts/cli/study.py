"""``kts study``: KIP-32's tables, measured."""

from __future__ import annotations

import textwrap
from dataclasses import fields
from typing import Any

import click

from .inputs import json_option
from .output import (
    FINDINGS,
    FINE,
    counted,
    expand_option,
    note,
    print_json,
    print_line,
    print_table,
    progress,
    show_bytes,
)
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
WIDTH, PATTERNS = 80, 4
LENGTHS = {  # option: field of Settings, help
    "--duration": ("duration_ms", "How long messages arrive."),
    "--latency": ("latency_ms", "The small latency, on average."),
    "--large-latency": ("large_latency_ms", "The large latency: 1 PM yesterday arrives today."),
    "--disorder": ("disorder_ms", "By how much large latencies differ."),
    "--retention": ("retention_ms", "retention.ms."),
    "--roll": ("roll_ms", "segment.ms."),
    "--interval": ("interval_ms", "time.index.interval.ms."),
    "--check": ("check_ms", "log.retention.check.interval.ms."),
}
NUMBERS = {
    "--index-messages": ("index_messages", int, "Messages of the logs whose indexes are compared."),
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
    print_line("open, kept and apart are 99th percentiles (docs/study.md has each column)")
    for pattern, found in report["patterns"].items():
        print_line(f"{pattern}: {found['what']}")
        print_table(
            ["time and rule", "segments", "of one", "open", "kept", "apart", "late"],
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
    print_line("")
    print_options(report)
    print_line("")
    print_mirror_maker(report["mirrorMaker"])
    print_line("")
    print_indexes(report["indexes"])
    sample = report["sample"]
    note(f"{sample['logs']:,} real logs, {sample['segments']:,} segments: {compared(sample)}")


def print_options(report: dict[str, Any]) -> None:
    """The paper's comparison of the options."""
    print_line("Options: what each does")
    print_table(
        ["use case", "option", "measured", "agrees"],
        [[cell["row"], cell["option"], words(cell["measured"]), answer(cell)] for cell in report["options"]],
    )
    for cell in report["options"]:
        if not cell["agrees"]:
            text = f"{cell['row']}, {cell['option']}: the paper says {words(cell['paper'])}, measured is "
            text += f"{words(cell['measured'])}."
            print_line(textwrap.fill(text, WIDTH))


def print_mirror_maker(mirror: dict[str, Any]) -> None:
    """What both clusters store, and what a consumer computes."""
    names = {ms: name.upper() for name, ms in mirror["true"].items()}
    print_line("Mirror maker: the times of a message, and what a consumer computes at T3")
    print_table(
        ["option", "CT, LAT: source", "target", "end to end", "lag", "latency"],
        [
            [
                option,
                *(", ".join(names.get(ms, "-") for ms in found[side].values()) for side in ("source", "target")),
                *("-" if found[key] is None else show(found[key]) for key in ("endToEndMs", "lagMs", "latencyMs")),
            ]
            for option, found in mirror["options"].items()
        ],
    )


def print_indexes(indexes: dict[str, Any]) -> None:
    """KIP-33's comparison of the indexes."""
    for found in indexes.values():
        size = f"{show_bytes(found['logBytes'])} in {counted(found['segments'], 'segment')}"
        print_line(f"Indexes, {found['what']}: {size}")
        print_table(
            ["index", "entries", "size", "bytes read", "before", "early", "missed", "segs"],
            [
                [name, f"{one['entries']:,}", show_bytes(one["bytes"]), f"{one['bytesRead']:,}", f"{one['before']:,}",
                 f"{one['tooEarly']:,}", f"{one['missed']:,}", one["segmentsRead"]]
                for name, one in found["indexes"].items()
            ],
            right=(1, 2, 3, 4, 5, 6, 7),
        )  # fmt: skip
        print_line("")
    again = [
        f"{name} {one['segmentsReadAfterLoss']}"
        for name, one in indexes["CreateTime"]["indexes"].items()
        if "segmentsReadAfterLoss" in one
    ]
    print_line(textwrap.fill(f"Segments read again when one index is lost: {', '.join(again)}", WIDTH))


def words(value: Any) -> str:
    """What was measured: a text, or in which patterns it holds."""
    if isinstance(value, str):
        return value
    numbers = ", ".join(pattern.removeprefix("pattern ") for pattern in value)
    return "in all patterns" if len(value) == PATTERNS else f"in pattern {numbers}"


def answer(cell: dict[str, Any]) -> str:
    """Whether a cell agrees with the paper."""
    return "yes" if cell["agrees"] else "NO"


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
    return [cell["pattern"], cell["paper"], cell["measured"], answer(cell)]


def times_of(cell: dict[str, Any], key: str) -> str:
    """Two lengths of time."""
    return ", ".join(show(criterion[key]) for criterion in cell["criteria"])


def parts_of(cell: dict[str, Any], key: str) -> str:
    """A part, and a multiple of segment.ms."""
    early, opened = (criterion[key] for criterion in cell["criteria"])
    return f"{early:.0%}, {opened:.1f}"


def show(ms: int) -> str:
    """A length of time, its largest part with one decimal."""
    for name, step in (("years", 31_557_600_000), ("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if abs(ms) >= step:
            return f"{ms / step:,.1f} {name}"
    return f"{ms} ms"
