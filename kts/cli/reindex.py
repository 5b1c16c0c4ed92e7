"""``kts reindex``: rebuild index files from their logs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kts.behaviour import DEFAULT, GENERATIONS, Behaviour, TimeRules

from .inputs import (
    advice_on_locks,
    filter_options,
    index_options,
    json_option,
    log_bytes,
    negative_times_options,
    open_logs,
    out_option,
    paths_argument,
    remember_in_place,
)
from .output import FINDINGS, counted, expand_option, note, print_json, print_table, progress, target_directory
from .work import on_each, spark_option

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog
    from kts.offline.reindex import IndexFinding, RebuiltSegment
    from kts.segment.rebuild import IndexConfig

EPILOG = """\b
Examples:
  kts reindex DIR --out new
  kts reindex DIR/orders-0 --dry-run --json

Without --out and --in-place nothing is written; the exit code is 1 if an index is missing, empty or contradicts its
log. An index that is sound but differs from a rebuilt one stays unless --all is given: a broker writes an entry for a
set of batches, and a rebuild cannot see the sets. With the broker stopped, kts reindex DIR --in-place replaces files.
With --spark write to --out, where no logs are: executors cannot hold the lock that keeps a broker away from logs.
"""
STATES = {
    "equal": "as it would be rebuilt",
    "missing": "missing",
    "empty": "empty, the log has timestamps",
    "differs": "contradicts the log",
    "sound": "sound, differs from a rebuilt one",
}


@click.command("reindex", short_help="Rebuild .index, .timeindex and .txnindex from the logs.", epilog=EPILOG)
@paths_argument
@filter_options
@click.option("--dry-run", is_flag=True, help="Show what would change. This is the default.")
@out_option("Write all rebuilt files into this directory.")
@click.option(
    "--in-place",
    is_flag=True,
    is_eager=True,
    callback=remember_in_place,
    help="Replace files that are missing, empty or wrong, each atomically.",
)
@click.option(
    "--all", "everything", is_flag=True, help="With --in-place: also replace indexes that are sound but differ."
)
@index_options
@click.option(
    "--release",
    "--generation",
    "release",
    type=click.Choice(GENERATIONS),
    help="Write entries with first offsets (0.10.2) or last offsets (3.9, 4.3). Default: by the log's magic.",
)
@negative_times_options
@spark_option
@expand_option
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    dry_run: bool,
    out: str | None,
    in_place: bool,
    everything: bool,
    index_interval_bytes: int,
    segment_index_bytes: int,
    release: str | None,
    allow_negative_timestamps: bool,
    minus_one_is_a_time: bool,
    master: str | None,
    as_json: bool,
) -> int:
    """Rebuild the indexes of all segments from their logs, also of segments that never had a time index."""
    from kts.segment.rebuild import IndexConfig

    if dry_run + in_place + (out is not None) > 1:
        raise click.UsageError("--dry-run, --out and --in-place exclude each other")
    if everything and not in_place:
        raise click.UsageError("--all needs --in-place")
    if master is not None and in_place:
        raise click.UsageError("--in-place holds locks of this machine; with --spark, write to --out")
    logs = open_logs(paths, topics=topics, partitions=partitions)
    refuse_inputs(out, logs)
    times = TimeRules.of(allow_negative_timestamps, minus_one_is_a_time)
    config = IndexConfig(index_interval_bytes, segment_index_bytes, Behaviour.of(DEFAULT.release, times=times))
    report = ReindexReport(as_json)
    target = None if out is None else os.path.abspath(out)  # executors have other working directories
    replacing = Replacing(target, in_place, everything)
    work, fold = partial(rebuilt, config, release, replacing), partial(with_transactions, config, replacing)
    if master is not None and any(has_log(out, log) for log in logs):
        message = f"{out} has logs of its own, which only this machine can lock; with --spark, name another directory"
        raise click.BadParameter(message, param_hint="--out")
    with progress("rebuilt", log_bytes(logs), quiet=master is not None) as advance:
        for _, segments in on_each(logs, work, fold, advance, master=master, parts=True):
            for segment in segments:
                report.add(segment)
    return report.end(bool(out) or in_place)


class Replacing(NamedTuple):
    """Where index files are written, and which."""

    out: str | None
    in_place: bool
    everything: bool

    def lock(self, log: PartitionLog) -> AbstractContextManager[None]:
        """Keep a broker away from what is written."""
        from kts.log.directory import held
        from kts.offline.reindex import locked

        if self.in_place:
            return locked(log)
        if self.out is not None and has_log(self.out, log):
            return held(target_directory(self.out, log))
        return nullcontext()

    def facts(self, log: PartitionLog, one: IndexFinding) -> dict[str, Any]:
        """Write an index file according to the options; what ``--json`` says of it."""
        return {
            "path": one.path,
            "state": one.state,
            "entries": one.entries,
            "rebuiltEntries": one.rebuilt_entries,
            "written": self.write(log, one),
        }

    def write(self, log: PartitionLog, one: IndexFinding) -> bool:
        """Write an index file according to the options; True if it was."""
        from kts.offline.reindex import EQUAL, replace, write_aside
        from kts.store.local import make_directory

        if self.out is not None:
            directory = target_directory(self.out, log)
            make_directory(directory)
            write_aside(one, directory)
            return True
        if self.in_place and (one.is_finding or (self.everything and one.state != EQUAL)):
            replace(one)
            return True
        return False


class Rebuilt(NamedTuple):
    """What the report says of a segment."""

    path: str
    valid_bytes: int
    size_bytes: int
    reason: str | None
    indexes: list[dict[str, Any]]  # as for --json


def rebuilt(
    config: IndexConfig,
    release: str | None,
    replacing: Replacing,
    log: PartitionLog,
    advance: Callable[[int], None],
) -> Iterator[tuple[Rebuilt, RebuiltSegment]]:
    """Rebuild the indexes of a partition, or a part of one, but for transactions, and write what the options say."""
    from kts.offline.reindex import generation_of, rebuilt_segments

    behaviour = Behaviour.of(release or generation_of(log), times=config.behaviour.times)
    for segment in rebuilt_segments(log, config._replace(behaviour=behaviour), advance):
        found = segment.found
        facts = [replacing.facts(log, one) for one in found.indexes]
        row = Rebuilt(found.path, found.valid_bytes, found.size_bytes, found.reason, facts)
        yield row, segment._replace(found=found._replace(indexes=()))


def with_transactions(
    config: IndexConfig, replacing: Replacing, log: PartitionLog, facts: Iterable[tuple[Rebuilt, RebuiltSegment]]
) -> Iterator[Rebuilt]:
    """Add the transaction indexes of a partition, whose other indexes were rebuilt and written."""
    from kts.offline.reindex import TransactionIndexes, forget_checksums

    with advice_on_locks(), replacing.lock(log):
        transactions, replaced = TransactionIndexes(config), list[str]()
        for row, segment in facts:
            index = transactions.index_of(segment)
            if index is not None:
                row.indexes.append(replacing.facts(log, index))
            if replacing.in_place:
                replaced += [one["path"] for one in row.indexes if one["written"]]
            yield row
        forget_checksums(log, replaced)


def refuse_inputs(out: str | None, logs: Sequence[PartitionLog]) -> None:
    """Refuse an ``--out`` that is a directory of the input."""
    if out is None:
        return
    for log in logs:
        inside = os.path.dirname(log.path) if log.lone else log.path
        targets = {os.path.realpath(out), os.path.realpath(target_directory(out, log))}
        if os.path.realpath(inside) in targets:
            message = f"{out} is where the logs are; name another directory, or use --in-place"
            raise click.BadParameter(message, param_hint="--out")


def has_log(out: str | None, log: PartitionLog) -> bool:
    """True if a partition's target in ``--out`` has a log of its own."""
    target = None if out is None else target_directory(out, log)
    return target is not None and os.path.isdir(target) and any(name.endswith(".log") for name in os.listdir(target))


class ReindexReport:
    """Collects the output and prints it at the end, so that a closed pipe does not stop the work."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.rows: list[list[str]] = []
        self.facts: list[dict[str, Any]] = []
        self.counts = dict.fromkeys(STATES, 0)
        self.written = 0
        self.segments = 0
        self.damaged = 0

    def add(self, segment: Rebuilt) -> None:
        """Add one segment."""
        self.segments += 1
        if segment.reason is not None:
            self.damaged += 1
            sound = f"sound up to position {segment.valid_bytes} of {segment.size_bytes}"
            note(f"{segment.path}: {sound}: {segment.reason}; its indexes are those of that part")
        for facts in segment.indexes:
            self.counts[facts["state"]] += 1
            self.written += facts["written"]
            if self.as_json:
                self.facts.append(facts)
            elif facts["state"] != "equal":
                entries = "-" if facts["entries"] is None else f"{facts['entries']:,}"
                self.rows.append([facts["path"], entries, f"{facts['rebuiltEntries']:,}", STATES[facts["state"]]])

    def end(self, writes: bool) -> int:
        """Print everything with a summary; returns the exit code."""
        findings = self.counts["missing"] + self.counts["empty"] + self.counts["differs"]
        if self.as_json:
            for facts in self.facts:
                print_json(facts)
            print_json({"segments": self.segments, **self.counts, "written": self.written, "damaged": self.damaged})
        else:
            if self.rows:
                print_table(["file", "entries", "rebuilt", "state"], self.rows, right=[1, 2])
            known = ", ".join(f"{count} {state}" for state, count in self.counts.items() if count)
            click.echo(f"{counted(self.segments, 'segment')}: {known or 'no indexes'}; {self.written} written")
        return 0 if writes or not findings + self.damaged else FINDINGS
