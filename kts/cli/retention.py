"""``kts retention``: shows which segments would be deleted, when, and what keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kts.behaviour import FUTURE_BY_FILE, GENERATIONS
from kts.errors import KtsError
from kts.times import parse_length, wall_clock

from .clusters import KnownSettings, settings_by_topic
from .inputs import (
    Size,
    config_option,
    filter_options,
    json_option,
    open_logs,
    parse_settings,
    reached_by_context,
    tiered_paths_argument,
    unit_option,
)
from .output import FINE, UNREADABLE, counted, expand_option, note, print_json, print_table, say, show_bytes
from .times import resolve, show_length, show_time, zone_option
from .work import on_each, one_by_one, spark_option

if TYPE_CHECKING:
    from kts.config import LogConfig
    from kts.dataset.partition import PartitionLog
    from kts.log.policies import Outlook, RetentionPolicy

EPILOG = """\b
Examples:
  kts retention DIR
  kts retention DIR/orders-0 --now 2026-09-20 --retention-ms 7d
  kts retention DIR/orders-0 --retention-ms -1 --retention-bytes 1000000
  kts retention DIR --topic orders --log-start-offset 500 --partition 0 --json
  kts retention DIR/orders-0 --config segment.ms=3600000
  kts retention DIR/orders-0 --rule KAFKA-20609 --retention-ms 1d

Nothing is deleted. A segment is deleted when its largest timestamp (its file's modification time if no record has one)
is more than retention.ms ago and all segments before it are deleted too: one timestamp from the future keeps all later
segments. All records count as replicated; an empty active segment stays.
The settings are those that kts serve keeps in DIR (kts-topics.json), or those of the cluster whose metadata log lies in
DIR (kts cluster DIR shows them), or else Kafka's defaults; options and --config replace them.

--rule KAFKA-20609 is for topics whose segments are copied to tiered storage, in releases after 4.3.1: there a segment
with a time from the future expires by the modification time of its file.

Where remote.storage.enable is true, local segments go by local.retention.ms and local.retention.bytes, or those of the
topic if they are not set, once they are copied: with --remote, a segment that has no copy stays. What is in tiered
storage alone goes by retention.ms and retention.bytes.

A line on stderr says if segment.ms and the limits of timestamps can make segments of one message.
"""


def ms_callback(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Turn ms, ``7d`` or -1 into ms."""
    if value is None:
        return None
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return parse_length(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}, a number of ms, or -1 for no limit", ctx, param) from error


@click.command("retention", short_help="What retention would delete, when, and why not.", epilog=EPILOG)
@tiered_paths_argument
@filter_options
@click.option("--now", metavar="TIME", help="The broker's clock. Default: now.")
@unit_option
@click.option(
    "--retention-ms",
    metavar="MS",
    callback=ms_callback,
    help="retention.ms: ms, or 12h, 7d; -1 is no limit. Default: that of DIR, else 7d, as in Kafka.",
)
@click.option("--retention-bytes", type=Size(-1), help="retention.bytes, as 500MiB; -1, the default, is no limit.")
@click.option(
    "--log-start-offset", metavar="N", type=click.IntRange(min=0), help="Assume this log start offset; one partition."
)
@click.option("--cleanup-policy", help="delete, compact or both, with a comma. Default delete.")
@click.option(
    "--release",
    "--generation",
    "release",
    type=click.Choice(GENERATIONS),
    default="3.9",
    help="Apply the rules of this release of Kafka, as 4.3. Default 3.9.",
)
@click.option(
    "--rule",
    "rules",
    type=click.Choice([FUTURE_BY_FILE]),
    multiple=True,
    help="Also apply a rule that is later than the releases; see below.",
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
    now: str | None,
    unit: str | None,
    retention_ms: int | None,
    retention_bytes: int | None,
    log_start_offset: int | None,
    cleanup_policy: str | None,
    release: str,
    rules: tuple[str, ...],
    settings: tuple[str, ...],
    master: str | None,
    as_json: bool,
) -> int:
    """Show for each segment whether retention would delete it now, or when, and what keeps it."""
    from kts.config import LogConfig
    from kts.log.policies import roll_warning

    now_ms = resolve(now, "--now", unit, None)
    if now_ms is None:
        now_ms = wall_clock()
    options = {"retention.ms": retention_ms, "retention.bytes": retention_bytes, "cleanup.policy": cleanup_policy}
    given = {name: value for name, value in options.items() if value is not None}
    own = {**parse_settings(settings), **given}
    try:
        LogConfig.of(own, release=release)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    logs = open_logs(paths, topics=topics, partitions=partitions)
    if log_start_offset is not None and len(logs) != 1:
        raise click.UsageError(f"--log-start-offset needs one partition, found {len(logs)}")
    try:
        known = settings_by_topic(logs, own, release)
    except ValueError as error:  # of tiered storage
        raise click.UsageError(str(error)) from error
    for warning in dict.fromkeys(roll_warning(config) for config, _ in known.values()):
        if warning is not None:
            note(warning)
    for topic, local in dict.fromkeys((topic, found.local) for (_, topic), found in known.items()):
        if local is not None:
            hint = "" if reached_by_context().get("remote") else " (--remote shows which are)"
            note(f"{topic} has tiered storage: its local segments go by {local}, once they are copied{hint}")

    rows, code = list[dict[str, Any]](), FINE
    work = partial(rows_or_error, known, now_ms, log_start_offset, FUTURE_BY_FILE in rules)
    for log, found in on_each(logs, work, one_by_one, lambda amount: None, master=master):
        for one in found:
            if isinstance(one, KtsError):
                code = say(f"{log.topic}-{log.partition} is left out: {one}", UNREADABLE)
            else:
                rows += one
    if as_json:
        for row in rows:
            print_json(row)
        return code
    print_table(
        ["partition", "segment", "size", "max time", "deleted", "why"],
        [cells(row, now_ms) for row in rows],
        right=(1, 2),
    )
    gone = [row for row in rows if row["rule"] is not None]
    size = sum(row["sizeInBytes"] for row in gone)
    note(f"at {show_time(now_ms)}: {counted(len(gone), 'segment')} of {len(rows):,} would go, {show_bytes(size)}")
    return code


def rows_or_error(
    known: dict[tuple[str, str], KnownSettings],
    now_ms: int,
    log_start_offset: int | None,
    future_by_file: bool,
    log: PartitionLog,
    advance: Callable[[int], None],
) -> Iterator[list[dict[str, Any]] | KtsError]:
    """The rows of a partition; or the error of a damaged one, which is left out."""
    from kts.dataset.placement import home_of
    from kts.log.policies import RetentionPolicy
    from kts.segment.rereading import settled

    config, local = known[home_of(log), log.topic]
    limits = config.retention_ms, config.retention_bytes
    policy = RetentionPolicy(*limits, config.deletes, config.behaviour(), future_by_file)
    of_local = None
    if local is not None:
        deletes = config.deletes or not config.cleanup_policy
        limits = local.retention_ms, local.retention_bytes
        of_local = RetentionPolicy(*limits, deletes, config.behaviour(), future_by_file, is_local=local.own)
    try:
        yield settled(lambda: partition_rows(log, policy, of_local, config, now_ms, log_start_offset))
    except KtsError as error:
        yield error


def partition_rows(
    log: PartitionLog,
    policy: RetentionPolicy,
    of_local: RetentionPolicy | None,
    config: LogConfig,
    now_ms: int,
    log_start_offset: int | None,
) -> list[dict[str, Any]]:
    """The segments of a partition as rows for ``--json``; ``of_local`` is for those that are not read from a copy."""
    from kts.log import policies

    log = log.listed()
    facts = policies.facts_of(log, config.times, file_times=policy.future_by_file)
    if log_start_offset is not None:
        facts = facts._replace(log_start_offset=max(log_start_offset, facts.log_start_offset))
    segments = log.segments
    copies = len(segments) if of_local is None else sum(segment.remote for segment in segments)
    parts = [(facts, policy, range(copies))]  # what a policy looks at, and says something of
    if of_local is not None:
        here = facts._replace(segments=facts.segments[copies:], copied_until=log.copied_until)
        parts.append((here, of_local, range(len(segments) - copies)))
    found = [
        (one, None if one.rule else policies.bytes_missing(of, rules, number))
        for of, rules, numbers in parts
        for number, one in enumerate(policies.outlook(of, rules, now_ms))
        if number in numbers
    ]
    return [row_of(log, segment.path, now_ms, *one) for segment, one in zip(segments, found, strict=True)]


def row_of(log: PartitionLog, path: str, now_ms: int, one: Outlook, bytes_missing: int | None) -> dict[str, Any]:
    """A segment as a row for ``--json``."""
    return {
        "topic": log.topic,
        "partition": log.partition,
        "segment": one.segment.base_offset,
        "sizeInBytes": one.segment.size_bytes,
        "maxTimestamp": one.segment.largest_timestamp_ms,
        "fromFileTime": one.segment.from_file,
        "fromFuture": one.segment.largest_timestamp_ms > now_ms,
        "rule": one.rule,
        "deletableAt": one.expires_ms,
        "bytesMissing": bytes_missing,
        "keptBy": None if one.rule or one.kept_by is None else one.kept_by.base_offset,
        "why": one.why,
        "path": path,
    }


def cells(row: dict[str, Any], now_ms: int) -> list[object]:
    """A row of the table."""
    if row["rule"] is not None:
        when = "now"
    elif row["deletableAt"] is None:
        when = "never"
    else:
        away = row["deletableAt"] - now_ms
        when = f"{show_time(row['deletableAt'])}, in {show_length(away)}" if away > 0 else show_time(row["deletableAt"])
    source = " (file)" if row["fromFileTime"] else ""
    return [
        f"{row['topic']}-{row['partition']}",
        f"{row['segment']:,}",
        show_bytes(row["sizeInBytes"]),
        f"{show_time(row['maxTimestamp'])}{source}",
        when,
        row["why"],
    ]
