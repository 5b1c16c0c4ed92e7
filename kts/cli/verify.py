"""``kts verify``: CRCs, offsets, and both indexes against the log."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

import click

from .codes import FINDINGS
from .inputs import filter_options, json_option, open_logs, paths_argument
from .output import counted, note, print_json, progress, show_bytes

if TYPE_CHECKING:
    from ..storage.directory import PartitionLog
    from ..storage.verify import Violation

EPILOG = """\b
Examples:
  kts verify DIR
  kts verify DIR/orders-0 --deep
  kts verify DIR --jobs 4 --json

Prints OK, or every violation with its file, position and offset; exit code 1 then. With --json: one object a
violation, and a last one that sums up.
"""


@click.command("verify", short_help="Check CRCs, offsets and indexes: OK, or every violation.", epilog=EPILOG)
@paths_argument
@filter_options
@click.option("--deep", is_flag=True, help="Also decompress and read every record.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="So many partitions at a time. Default 1.")
@click.option("--allow-negative-timestamps", is_flag=True, help="Times before 1970 count; only -1 is none.")
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    deep: bool,
    jobs: int,
    allow_negative_timestamps: bool,
    as_json: bool,
) -> int:
    """Check that batches are whole and sound, offsets rise, and both indexes agree with the log."""
    logs = open_logs(paths, topics=topics, partitions=partitions)
    size = sum(segment.size_bytes for log in logs for segment in log.segments)
    count = 0
    with progress("checked", size) as advance:
        how = deep, allow_negative_timestamps
        found = in_turn(logs, how, advance) if jobs == 1 or len(logs) == 1 else at_once(logs, how, jobs, advance)
        for violation in chain(beside(paths, logs), found):
            count += 1
            print_violation(violation, as_json)
    segments = sum(len(log.segments) for log in logs)
    if as_json:
        summary = {"ok": not count, "violations": count, "partitions": len(logs), "segments": segments}
        print_json(summary | {"sizeInBytes": size, "deep": deep})
    elif count:
        note(f"{counted(count, 'violation')} in {counted(len(logs), 'partition')}")
    else:
        checked = f"{counted(len(logs), 'partition')}, {counted(segments, 'segment')}, {show_bytes(size)}"
        click.echo(f"OK: {checked}{', every record' * deep}")
    return FINDINGS if count else 0


def paths_of(log: PartitionLog) -> list[str]:
    """What to check of a partition: its directory, or the segments that were given by name."""
    return [segment.path for segment in log.segments] if log.lone else [log.path]


def beside(paths: Sequence[str], logs: Sequence[PartitionLog]) -> Iterator[Violation]:
    """Check what lies in log directories next to the partitions: the checkpoint files."""
    from ..storage.verify import verify_checkpoints

    partitions = {log.path for log in logs}
    for path in paths:
        if os.path.isdir(path) and path not in partitions:
            yield from verify_checkpoints(path)


def in_turn(
    logs: Sequence[PartitionLog], how: tuple[bool, bool], advance: Callable[[int], None]
) -> Iterator[Violation]:
    """Check the partitions one after the other."""
    from ..storage.verify import verify

    for log in logs:
        for path in paths_of(log):
            yield from verify(path, deep=how[0], progress=advance, allow_negative_timestamps=how[1])


def at_once(
    logs: Sequence[PartitionLog], how: tuple[bool, bool], jobs: int, advance: Callable[[int], None]
) -> Iterator[Violation]:
    """Check several partitions at a time, each in a process; the order of the findings stays."""
    tasks = [(paths_of(log), how) for log in logs]
    context = multiprocessing.get_context("spawn")
    with deaf_to_interrupts():
        pool = context.Pool(min(jobs, len(tasks)))
    with pool:
        for log, found in zip(logs, pool.imap(check, tasks), strict=True):
            advance(sum(segment.size_bytes for segment in log.segments))
            yield from found


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes started here ignore Ctrl-C, which goes to all of a terminal's; the parent hears it and ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def check(task: tuple[Sequence[str], tuple[bool, bool]]) -> list[Violation]:
    """One partition, in a worker."""
    from ..storage.verify import verify

    paths, (deep, negative) = task
    return [one for path in paths for one in verify(path, deep=deep, allow_negative_timestamps=negative)]


def print_violation(violation: Violation, as_json: bool) -> None:
    """One line."""
    if as_json:
        names = ("path", "position", "offset", "kind", "message")
        print_json({name: getattr(violation, name) for name in names})
        return
    where = [f"position {violation.position}"] if violation.position is not None else []
    where += [f"offset {violation.offset}"] if violation.offset is not None else []
    click.echo(f"{violation.path}: {violation.kind}{' at ' * bool(where)}{', '.join(where)}: {violation.message}")
