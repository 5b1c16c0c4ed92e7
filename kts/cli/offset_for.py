"""``kts offset-for``: finds the first offset at or after a time, and explains it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .inputs import (
    INDEX_PROPOSALS,
    config_of,
    config_option,
    filter_options,
    json_option,
    open_logs,
    parse_settings,
    tiered_paths_argument,
    time_options,
)
from .output import counted, expand_option, print_json, print_table
from .times import SPELLINGS, resolve, show_time, zone_option

if TYPE_CHECKING:
    from kts.config import LogConfig
    from kts.dataset.partition import PartitionLog
    from kts.proposals.answers import Answer
    from kts.proposals.index import IndexMode
    from kts.segment.search import Explanation

EPILOG = f"""\b
Examples:
  kts offset-for DIR/orders-0 --time 2026-09-01T10:00
  kts offset-for DIR --topic orders --time 2026-09-01T10:00 --json
  kts offset-for DIR/orders-0 --time 2026-09-01T10:00 --explain
  kts offset-for DIR/orders-0 --time 2026-09-01 --proposal bucket-index

The answer is the first record with that timestamp or a later one, as a consumer's offsetsForTimes gives it; control
records count. If the log is out of order, later records may be older: --explain counts them.

--proposal searches by an index that KIP-33 proposed: by the files of closed segments if the log follows the proposal,
and by one in memory for the rest (with buckets of --config time.index.interval.ms=60000).

Times: {SPELLINGS}.
"""


@click.command("offset-for", short_help="The first offset at or after a time, and why.", epilog=EPILOG)
@tiered_paths_argument
@filter_options
@click.option("--time", "when", metavar="TIME", required=True, help="The time to look for.")
@time_options
@click.option(
    "--explain", is_flag=True, help="Show the segment, index entry and bytes that led there. Reads to the log's end."
)
@click.option(
    "--shipped-search", is_flag=True, help="Search as brokers do: in one segment, by its file time if need be."
)
@click.option(
    "--proposal",
    metavar="NAME",
    type=click.Choice(INDEX_PROPOSALS),
    help=f"Search by the index of a proposal: {' or '.join(INDEX_PROPOSALS)}.",
)
@config_option
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
    proposal: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Find the first record at or after a time, in each partition."""
    if shipped_search and (explain or proposal):
        raise click.UsageError("--explain and --proposal are for other searches; leave out --shipped-search")
    if settings and not proposal:
        raise click.UsageError("--config changes what a proposal does: give --proposal, or leave out --config")
    target = resolve(when, "--time", unit, now)
    if target is None:
        raise click.UsageError("--time is missing")
    config = config_of(parse_settings(settings))
    logs = open_logs(paths, topics=topics, partitions=partitions)
    rows = []
    for log in logs:
        index = None if proposal is None else index_of(log, proposal, config)
        if index is not None and explain:
            found = index.search(log, target)
            if as_json:
                print_json(as_object(log, target, found.found) | {"explanation": answer_object(index, found)})
            else:
                click.echo("\n".join(numbered(log, target, steps_by_index(index, found))))
            continue
        if explain:
            story = log.explain_offset_for_timestamp(target, unit="ms")
            if as_json:
                print_json(as_object(log, target, story.answer) | {"explanation": story_object(story)})
            else:
                click.echo("\n".join(numbered(log, target, steps_of(story))))
            continue
        if index is not None:
            answer = index.search(log, target).found
        else:
            answer = log.offset_for_timestamp(target, shipped_search=shipped_search, unit="ms")
        if as_json:
            print_json(as_object(log, target, answer))
        else:
            shown = ("none", "no record at or after it") if answer is None else (answer.offset, show_time(answer[0]))
            rows.append((f"{log.topic}-{log.partition}", *shown))
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


def numbered(log: PartitionLog, target: int, steps: Iterator[str]) -> Iterator[str]:
    """The explanation as numbered sentences."""
    yield f"{log.topic}-{log.partition}: first record at or after {show_time(target)}"
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
        yield f"later records that are older: {story.later_older_records:,}, {example}; kts dump leaves them out"
    else:
        yield "later records that are older: none"


# --- by the index of a proposal ---------------------------------------------------------------


def index_of(log: PartitionLog, proposal: str, config: LogConfig) -> IndexMode:
    """The index of a log that somebody else may write, from its files or built in memory."""
    from kts.proposals import read_index

    return read_index(proposal, log, config)


def answer_object(index: IndexMode, answer: Answer) -> dict[str, Any]:
    """The explanation for ``--json``, with camelCase names."""
    fields = {camel(name): value for name, value in answer._asdict().items() if name not in ("found", "start")}
    start = None if answer.start is None else {"segment": answer.start.base_offset, "offset": answer.start.offset}
    return {"proposal": index.name, "entries": index.entries, "segmentsRebuilt": index.rebuilt, "start": start} | fields


def steps_by_index(index: IndexMode, answer: Answer) -> Iterator[str]:
    """The steps of the search, in order."""
    built = f"; built here for {counted(len(index.rebuilt), 'closed segment')} without a valid file"
    yield f"index entries of {index.name}: {index.entries:,}{built if index.rebuilt else ''}"
    if answer.start is None:
        yield "the index alone says that no record is that young"
        return
    yield f"segment {answer.start.base_offset}: reading starts at offset {answer.start.offset:,}: all before is older"
    amounts = f"{counted(answer.batches_read, 'batch')}, {counted(answer.records_read, 'record')} decoded"
    yield f"read {answer.bytes_read:,} bytes of {counted(answer.segments_read, 'segment')}: {amounts}"
    found = answer.found
    if found is None:
        yield "no record is that young"
    else:
        yield f"answer: offset {found.offset:,}, its own time is {show_time(found.timestamp_ms)}"
