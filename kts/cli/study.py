"""``kts study``: KIP-32's tables, measured."""

from __future__ import annotations

import textwrap
from dataclasses import fields
from typing import Any

import click

from . import study_tables
from .inputs import REMOTE, json_option, log_bytes, open_logs, remote_options, storage_options_option
from .output import FINDINGS, FINE, expand_option, note, print_json, print_line, print_table, progress, sink
from .plot import INSTALL, import_library
from .times import length_callback, show_length

EPILOG = """\b
Examples:
  kts study
  kts study --partitions 10000 --large-latency 2d --roll 1d
  kts study -o study.html
  kts study --seed 7 --json
  kts study DIR --topic orders --roll 7d --retention 7d

Without a PATH nothing is read, and the clock is the study's own: the same options and seed give the same figures. The
first 50 partitions of each pattern are played in real logs, too, in a temporary directory; exit code 1 says that they
and the rules count differently. With a PATH, the rules play the times of its partitions, and the command says which
option and settings would serve it. docs/study.md says how each verdict follows from the figures.
"""
WIDTH = 80
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
@click.argument("paths", metavar="[PATH...]", nargs=-1, type=click.Path())
@storage_options_option
@remote_options
@click.option("--topic", "topics", metavar="NAME", multiple=True, help="Of a PATH only this topic; repeatable.")
@settings_options
@click.option("-o", "--out", "output", metavar="FILE", type=click.Path(), help="Also write an HTML page with plots.")
@expand_option
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    as_json: bool,
    output: str | None,
    **given: Any,
) -> int:
    """Play KIP-32's options through its patterns of latency, or on the times of a PATH; compare with its tables."""
    from kts.study import Settings, run
    from kts.study.study import steps

    try:
        settings = Settings(**given)
    except (TypeError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    if paths or REMOTE in click.get_current_context().meta:
        if output is not None:
            raise click.UsageError("-o draws the patterns, not a PATH; kts plot PATH draws that")
        return study_directory(paths, topics, settings, as_json)
    if topics:
        raise click.UsageError("--topic selects in a PATH; give one")
    if output is not None:
        try:
            import_library("html")
        except ImportError as error:
            raise click.UsageError(f"-o needs {error.name}, which is not installed: {INSTALL}") from error
    with progress("partitions", steps(settings), sizes=False) as advance:
        report = run(settings, advance=advance)
    if output is not None:
        from .study_page import draw_report

        with sink(output) as file:
            draw_report(report, file)
    if output == "-":
        pass
    elif as_json:
        print_json(report)
    else:
        print_report(report)
    return FINDINGS if report["sample"]["differences"] else FINE


def study_directory(paths: tuple[str, ...], topics: tuple[str, ...], settings: Any, as_json: bool) -> int:
    """Play the rules on the times of real partitions."""
    from kts.study import directory

    logs = open_logs(paths, topics=topics, internal=False)
    with progress("headers", log_bytes(logs)) as advance:
        reports = list(directory.by_topic(logs, settings, advance=advance))
    if as_json:
        for report in reports:
            print_json(report)
    elif len(reports) == 1:
        print_tables(study_tables.of_directory(reports[0]))
    else:
        print_tables([study_tables.of_topics(reports)])
    return FINE


def print_tables(tables: list[study_tables.StudyTable]) -> None:
    """Each table with its title and notes."""
    for number, table in enumerate(tables):
        if number:
            print_line("")
        print_line(table.title)
        if table.rows:
            print_table(table.headers, table.rows, right=table.right)
        for text in (*table.notes, *table.reasons):
            for line in textwrap.wrap(text, WIDTH):
                print_line(line)


def print_report(report: dict[str, Any]) -> None:
    """The tables."""
    print_line("CT is CreateTime, LAT LogAppendTime. open, kept and apart are 99th percentiles.")
    print_line("docs/study.md has each column.")
    print_line("")
    print_tables(study_tables.of_report(report))
    note(study_tables.compared(report["sample"]))
