"""``kts offset-for``: finds the first offset at or after a time, and explains it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .inputs import filter_options, json_option, open_logs, paths_argument
from .output import counted, expand_option, print_json, print_table
from .times import SPELLINGS, resolve, show_time, time_options, zone_option

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog
    from kts.segment.search import Explanation

EPILOG = f"""\b
Examples:
  kts offset-for DIR/orders-0 --time 2026-09-01T10:00
  kts offset-for DIR --topic orders --time 2026-09-01T10:00 --json
  kts offset-for DIR/orders-0 --time 2026-09-01T10:00 --explain

The answer is the first record with that timestamp or a later one, as a consumer's offsetsForTimes gives it; control
records count. If the log is out of order, later records may be older: --explain counts them.

Times: {SPELLINGS}.
"""


@click.command("offset-for", short_help="The first offset at or after a time, and why.", epilog=EPILOG)
@paths_argument
@filter_options
@click.option("--time", "when", metavar="TIME", required=True, help="The time to look for.")
@time_options
@click.option(
    "--explain", is_flag=True, help="Show the segment, index entry and bytes that led there. Reads to the log's end."
)
@click.option(
    "--shipped-search", is_flag=True, help="Search as brokers do: in one segment, by its file time if need be."
)
@zone_option
@expand_option
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    when: str,
    unit: str | None,
    now: str | None,
    explain: bool,
    shipped_search: bool,
    as_json: bool,
) -> None:
    """Find the first record at or after a time, in each partition."""
    if explain and shipped_search:
        raise click.UsageError("--explain is for the default search; leave out --shipped-search")
    target = resolve(when, "--time", unit, now)
    if target is None:
        raise click.UsageError("--time is missing")
    logs = open_logs(paths, topics=topics, partitions=partitions)
    rows = []
    for log in logs:
        if explain:
            story = log.explain_offset_for_timestamp(target)
            if as_json:
                print_json(as_object(log, target, story.answer) | {"explanation": story_object(story)})
            else:
                click.echo("\n".join(told(log, story)))
            continue
        answer = log.offset_for_timestamp(target, shipped_search=shipped_search)
        if as_json:
            print_json(as_object(log, target, answer))
        else:
            found = ("none", "no record at or after it") if answer is None else (answer.offset, show_time(answer[0]))
            rows.append((f"{log.topic}-{log.partition}", *found))
    if rows:
        print_table(("partition", "offset", "timestamp"), rows, right=(1,))


def as_object(log: PartitionLog, target: int, answer: Any) -> dict[str, Any]:
    """An answer for ``--json``; offset and timestamp are null if no record is at or after the time."""
    return {
        "topic": log.topic,
        "partition": log.partition,
        "time": target,
        "offset": None if answer is None else answer.offset,
        "timestamp": None if answer is None else answer.timestamp_ms,
    }


def story_object(story: Explanation) -> dict[str, Any]:
    """The explanation for ``--json``, with camelCase names."""
    fields = {camel(name): value for name, value in asdict(story).items() if name not in ("timestamp_ms", "answer")}
    return fields | {"examples": [{"timestamp": time, "offset": offset} for time, offset in story.examples]}


def camel(name: str) -> str:
    """``segment_base_offset`` as ``segmentBaseOffset``."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def told(log: PartitionLog, story: Explanation) -> Iterator[str]:
    """The explanation as numbered sentences."""
    yield f"{log.topic}-{log.partition}: first record at or after {show_time(story.timestamp_ms)}"
    steps = list(steps_of(story))
    yield from (f"  {number}. {step}" for number, step in enumerate(steps, start=1))


def steps_of(story: Explanation) -> Iterator[str]:
    """The steps of the search, in order."""
    if story.segments_skipped:
        which = "segment ends" if story.segments_skipped == 1 else "segments end"
        yield f"{story.segments_skipped} {which} before that time: not searched"
    if story.segment is None:
        yield "no segment is left: no record is that young"
        return
    name = os.path.basename(story.segment)
    if story.time_index_entry is None:
        yield f"{name}: its time index has no entry at or before it that the log confirms: start at the beginning"
    else:
        time, offset = story.time_index_entry
        yield f"{name}: its time index says {show_time(time)} was reached by offset {offset:,}: all before is older"
    amounts = f"{counted(story.batches_read, 'batch')}, {counted(story.records_read, 'record')} decoded"
    yield f"read from position {story.start_position:,} to {story.end_position:,}: {amounts}"
    if story.answer is None:
        yield "no record is that young"
        return
    yield f"answer: offset {story.answer.offset:,}, its own time is {show_time(story.answer.timestamp_ms)}"
    if story.later_older_records:
        first = story.examples[0]
        example = f"the first at offset {first.offset:,} is from {show_time(first.timestamp_ms)}"
        yield f"later records that are older: {story.later_older_records:,}, {example}; dump --strict leaves them out"
    else:
        yield "later records that are older: none"
