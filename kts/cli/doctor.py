"""``kts doctor``: finds bad times, and why a topic does not expire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from kts.behaviour import DEFAULT, GENERATIONS
from kts.errors import KtsError
from kts.times import wall_clock

from .clusters import configs_of
from .inputs import (
    config_of,
    config_option,
    filter_options,
    json_option,
    log_bytes,
    open_logs,
    parse_settings,
    tiered_paths_argument,
    unit_option,
)
from .output import (
    FINDINGS,
    FINE,
    UNREADABLE,
    counted,
    expand_option,
    note,
    print_json,
    print_line,
    print_table,
    progress,
    say,
)
from .times import resolve, zone_option
from .work import on_each, one_by_one, spark_option

if TYPE_CHECKING:
    from kts.config import LogConfig
    from kts.dataset.partition import PartitionLog
    from kts.offline.doctor import Finding

EPILOG = """\b
Examples:
  kts doctor DIR
  kts doctor DIR --topic orders --deep
  kts doctor DIR/orders-0 --now 2026-09-20 --json
  kts doctor DIR --config retention.ms=86400000
  kts doctor DIR --release 4.3

A topic that does not expire, a search by time that finds nothing, thousands of small segments: bad times are behind
them, and kts verify says OK. The doctor says which records, of which producer, what follows, and what to type next.

\b
seconds, microseconds, nanoseconds
                  the producer did not send milliseconds
future            more than an hour (message.timestamp.after.max.ms) after
                  now, or after the file was written
past              before the year 2000
no-timestamp      -1 among records with a timestamp
ahead, late       out of order by more than segment.ms or retention.ms
append-time-steps-back
                  LogAppendTime: a leader's clock was set back
time-index        a record that is too late ends the time index early
small-segments    closed segments of one batch, and the setting behind it
does-not-expire   segments that retention.ms deletes later than it says
refused           what a broker of Kafka 4.3 would refuse

The exit code is 1 if something is found. Headers are read, and records where a header has a bad time. --deep reads the
times of all records: only they show an early time among right ones in one batch.

The settings are those that kts serve keeps in DIR (kts-topics.json), or those of the cluster whose metadata log lies in
DIR (kts cluster DIR shows them), or else Kafka's defaults; --config replaces them.
"""


@click.command("doctor", short_help="Bad times, and why a topic does not expire.", epilog=EPILOG)
@tiered_paths_argument
@filter_options
@click.option("--deep", is_flag=True, help="Read the times of all records.")
@click.option("--now", metavar="TIME", help="The clock. Default: now.")
@unit_option
@click.option(
    "--release", type=click.Choice(GENERATIONS), help="Also find all that a broker of this release would refuse."
)
@config_option
@zone_option
@spark_option
@expand_option
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    deep: bool,
    now: str | None,
    unit: str | None,
    release: str | None,
    settings: tuple[str, ...],
    master: str | None,
    as_json: bool,
) -> int:
    """Find bad times of records and segments, and what follows from them."""
    now_ms = resolve(now, "--now", unit, None)
    if now_ms is None:
        now_ms = wall_clock()
    own = parse_settings(settings)
    config_of(own, DEFAULT.release)  # a wrong one is told before anything is read
    logs = open_logs(paths, topics=topics, partitions=partitions)
    work = partial(findings_of, configs_of(logs, own, DEFAULT.release), now_ms, deep, release)
    found: list[Finding] = []
    code = FINE
    with progress("headers", log_bytes(logs), quiet=master is not None) as advance:
        for log, parts in on_each(logs, work, one_by_one, advance, master=master):
            for part in parts:
                if isinstance(part, KtsError):
                    code = say(f"{log.topic}-{log.partition} is left out: {part}", UNREADABLE)
                else:
                    found += part
    if as_json:
        for one in found:
            print_json(asdict(one))
    elif found:
        print_findings(found)
    elif code == FINE:
        print_line(f"OK: {counted(len(logs), 'partition')}{', every record' * deep}")
    return code or (FINDINGS if found else FINE)


def findings_of(
    configs: dict[tuple[str, str], LogConfig],
    now_ms: int,
    deep: bool,
    release: str | None,
    log: PartitionLog,
    advance: Callable[[int], None],
) -> Iterator[list[Finding] | KtsError]:
    """The findings of a partition; or the error of a damaged one, which is left out."""
    from kts.dataset.placement import home_of
    from kts.offline.doctor import examined
    from kts.segment.rereading import settled

    config = configs[home_of(log), log.topic]
    try:
        yield settled(lambda: examined(log, config, now_ms, deep=deep, release=release, progress=advance))
    except KtsError as error:
        yield error


def print_findings(found: list[Finding]) -> None:
    """A table of the findings, and for the first of each kind what to do next."""
    rows = [
        (
            f"{one.topic}-{one.partition}",
            f"{one.segment:,}",
            one.kind,
            "" if one.offset is None else f"{one.offset:,}",
            one.message,
        )
        for one in found
    ]
    print_table(("partition", "segment", "finding", "offset", "what it is"), rows, right=(1, 3))
    note(f"{counted(len(found), 'finding')} in {counted(len({row[0] for row in rows}), 'partition')}")
    advice = dict[str, str]()
    for one in found:
        advice.setdefault(one.kind, one.advice)
    for kind, text in advice.items():
        note(f"next, {kind}: {text}")
