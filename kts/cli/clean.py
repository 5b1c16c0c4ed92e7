"""``kts clean``: compacts logs that nobody writes, as a broker's cleaner does, or shows what that would remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .inputs import (
    advice_on_locks,
    config_option,
    filter_options,
    json_option,
    log_bytes,
    make_config,
    open_logs,
    parse_settings,
    paths_argument,
    release_option,
    say_what_was_recovered,
)
from .output import counted, expand_option, note, print_json, print_table, progress, remark, show_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kts.dataset.partition import PartitionLog
    from kts.model import Cleaned

EPILOG = """\b
Examples:
  kts clean DIR/orders-0 --dry-run
  kts clean DIR --topic orders --json
  kts clean DIR/orders-0 --config min.compaction.lag.ms=3600000

The last record of each key stays, with its offset and time, and so does the active segment. A tombstone stays in the
first pass that meets it, and goes in one that begins delete.retention.ms later. A crash leaves each group of segments
old or new. A broker that starts on the directory cleans on where this command ended. With --dry-run no segment changes;
the log is opened as a broker opens it all the same, and closed cleanly.
"""
REMOVED = {
    "superseded": "superseded by a later record of the key",
    "tombstones": "tombstones after their delete horizon",
    "aborted": "of aborted transactions",
    "markers": "markers of transactions",
    "without_key": "without a key",
}
KEPT = {
    "tombstones": "{}, which go in a pass after their delete horizon",
    "markers": "{}, which go after the records of their transactions",
    "unmapped": "{} behind the keys that the memory has room for: run the command again",
}


@click.command("clean", short_help="Compact logs: keep the last record of each key.", epilog=EPILOG)
@paths_argument
@filter_options
@click.option("--dry-run", is_flag=True, help="Show what would go; no segment changes.")
@config_option
@release_option
@expand_option
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    dry_run: bool,
    settings: tuple[str, ...],
    release: str | None,
    as_json: bool,
) -> None:
    """Compact partitions as the cleaner of a broker does, whatever the ratio of what is dirty.

    No broker may be running on them. A topic counts as compacted, whatever its own policy is: of several, name those to
    clean with --topic. Other settings are given with --config, as delete.retention.ms. Run it as the broker's user,
    because it creates files.
    """
    from kts.store.addresses import require_local

    for path in paths:
        require_local(path, "cleaning")
    logs = open_logs(paths, topics=topics, partitions=partitions)
    require_names(logs, topics)
    rows = []
    with progress("read", 2 * log_bytes(logs)) as advance, advice_on_locks():
        for log in logs:
            done = cleaned(log, settings, release, dry_run, advance)
            if as_json:
                print_json(as_object(log, done, dry_run))
            else:
                rows.append((log, done))
    if not as_json:
        show(rows, dry_run)


def require_names(logs: Sequence[PartitionLog], topics: tuple[str, ...]) -> None:
    """Refuse several topics that were not named: one that is not compacted would lose records."""
    found = sorted({log.topic for log in logs})
    if len(found) > 1 and not topics:
        names = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise click.UsageError(
            f"expected one topic, or --topic for those that are compacted, found {len(found)} ({names}): cleaning"
            " leaves the last record of each key, whatever the topic's own cleanup.policy is"
        )


def cleaned(log: PartitionLog, settings: tuple[str, ...], release: str | None, dry_run: bool, advance: Any) -> Cleaned:
    """Clean one partition."""
    from kts.log.log import Log

    is_named = bool({"cleanup.policy", "log.cleanup.policy"} & parse_settings(settings).keys())
    if not is_named:
        settings = (*settings, "cleanup.policy=compact")
    config = make_config(settings, log.path, release)
    with Log(log.path, config, release=release, create=False) as opened:
        say_what_was_recovered(opened)
        if not is_named:
            refuse_without_keys(log, opened.clean(force=True, dry_run=True), dry_run)
        return opened.clean(force=True, dry_run=dry_run, on_progress=advance)


def refuse_without_keys(log: PartitionLog, planned: Cleaned, dry_run: bool) -> None:
    """Refuse to remove records without a key, unless the policy was given: a compacted topic has none."""
    count = planned.removed.get("without_key", 0)
    if count and not dry_run:
        raise click.UsageError(
            f"{log.topic}-{log.partition} has {counted(count, 'record')} without a key, which would go: brokers take"
            " none for a compacted topic. If it is one, add --config cleanup.policy=compact; --dry-run shows what goes"
        )


def as_object(log: PartitionLog, done: Cleaned, dry_run: bool) -> dict[str, Any]:
    """A partition for ``--json``."""
    return {
        "topic": log.topic,
        "partition": log.partition,
        "path": log.path,
        "done": done.reason is None and not dry_run,
        "reason": done.reason,
        "firstDirtyOffset": done.first_dirty_offset,
        "nextDirtyOffset": done.next_dirty_offset,
        "keys": done.keys,
        "mapBytes": done.map_bytes,
        "segmentsBefore": done.segments_before,
        "segmentsAfter": done.segments_after,
        "recordsBefore": done.records_before,
        "recordsAfter": done.records_after,
        "bytesBefore": done.bytes_before,
        "bytesAfter": done.bytes_after,
        "removed": done.removed,
        "kept": done.kept,
    }


def show(rows: list[tuple[PartitionLog, Cleaned]], dry_run: bool) -> None:
    """Print a line for each partition, and why records went or stay."""
    lines, removed, kept = [], dict.fromkeys(REMOVED, 0), dict.fromkeys(KEPT, 0)
    for log, done in rows:
        name = f"{log.topic}-{log.partition}"
        if done.reason is not None:
            note(f"{name}: {done.reason}")
            continue
        lines.append(
            [
                name,
                f"{done.segments_before} to {done.segments_after}",
                f"{done.records_before:,} to {done.records_after:,}",
                f"{show_bytes(done.bytes_before)} to {show_bytes(done.bytes_after)}",
            ]
        )
        for sums, counts in ((removed, done.removed), (kept, done.kept)):
            for one in sums:
                sums[one] += counts[one]
    if lines:
        print_table(["partition", "segments", "records", "size"], lines, right=(1, 2, 3))
    for name, words in REMOVED.items():
        if removed[name]:
            click.echo(f"{'would go' if dry_run else 'gone'}: {removed[name]:,} {words}")
    for name, words in KEPT.items():
        if kept[name]:
            what = {"tombstones": "tombstone", "markers": "marker", "unmapped": "record"}[name]
            click.echo(f"kept: {words.format(counted(kept[name], what))}")
    if dry_run and lines:
        remark("nothing was changed; without --dry-run it is done")
