"""``kts verify``: checks CRCs, offsets, and both indexes against the log."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .inputs import filter_options, json_option, on_each, open_logs, spark_option, tiered_paths_argument
from .output import FINDINGS, counted, note, print_json, print_line, progress, show_bytes

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog
    from kts.offline.verify import PartFound, Violation

# Rough costs of a check: opening files, reading bytes. The work must be worth starting a process for, and a piece of
# work worth sending to one.
SEGMENT_SECONDS, RATE, DEEP_RATE = 2e-4, 1e9, 1e8
PROCESS_SECONDS, PIECE_SECONDS = 1.5, 0.2

EPILOG = """\b
Examples:
  kts verify DIR
  kts verify DIR/orders-0 --deep
  kts verify DIR --jobs 4 --json

Prints OK, or every violation with its file, position and offset; then the exit code is 1. With --json: one object per
violation, and a summary at the end.
"""


@click.command("verify", short_help="Check CRCs, offsets and indexes: OK, or every violation.", epilog=EPILOG)
@tiered_paths_argument
@filter_options
@click.option("--deep", is_flag=True, help="Also decompress and read every record.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="Use up to this many processes. Default 1.")
@spark_option
@click.option("--allow-negative-timestamps", is_flag=True, help="Timestamps before 1970 count; only -1 means none.")
@click.option("--minus-one-is-a-time", is_flag=True, help="The same, and -1 is 1969-12-31T23:59:59.999Z.")
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    deep: bool,
    jobs: int,
    master: str | None,
    allow_negative_timestamps: bool,
    minus_one_is_a_time: bool,
    as_json: bool,
) -> int:
    """Check that batches are whole and sound, offsets rise, and both indexes agree with the log."""
    if master is not None and jobs > 1:
        raise click.UsageError("--jobs is for this machine and --spark for a cluster; leave out one")
    logs = open_logs(paths, topics=topics, partitions=partitions)
    amounts = [amount_of(log) for log in logs]
    size, segments, count = sum(one.size_bytes for one in amounts), sum(one.segments for one in amounts), 0
    with progress("checked", size, quiet=master is not None) as advance:
        how = deep, allow_negative_timestamps, minus_one_is_a_time
        pieces = pieces_of(logs, amounts, deep)
        workers = min(jobs, len(pieces), int(sum(one.seconds(deep) for one in amounts) / PROCESS_SECONDS))
        found: Iterable[Violation]
        if master is not None:
            found = on_executors(logs, how, master)
        elif workers > 1:
            found = at_once(pieces, how, workers, advance)
        else:
            found = chain.from_iterable(one for _, one in on_each(logs, partial(check_one, how), advance, None))
        for violation in chain(beside(paths, logs), found):
            count += 1
            print_violation(violation, as_json)
    if as_json:
        summary = {"ok": not count, "violations": count, "partitions": len(logs), "segments": segments}
        print_json(summary | {"sizeInBytes": size, "deep": deep})
    elif count:
        note(f"{counted(count, 'violation')} in {counted(len(logs), 'partition')}")
    else:
        checked = f"{counted(len(logs), 'partition')}, {counted(segments, 'segment')}, {show_bytes(size)}"
        click.echo(f"OK: {checked}{', every record' * deep}")
    return FINDINGS if count else 0


class Amount(NamedTuple):
    """The amount to check in a partition."""

    segments: int
    size_bytes: int

    def seconds(self, deep: bool) -> float:
        """The estimated time of the check."""
        return SEGMENT_SECONDS * (1 + self.segments) + self.size_bytes / (DEEP_RATE if deep else RATE)


def amount_of(log: PartitionLog) -> Amount:
    """The amount to check in a partition now."""
    from kts.segment.rereading import settled

    def amount() -> Amount:
        segments = log.segments
        return Amount(len(segments), sum(segment.size_bytes for segment in segments))

    return settled(amount)


def check_part(
    how: tuple[bool, bool, bool], log: PartitionLog, advance: Callable[[int], None]
) -> Iterator[Violation | PartFound]:
    """Check one partition, or a part of one."""
    from kts.offline.verify import verify_part

    if log.is_part:
        yield verify_part(log, *how)
    else:
        yield from check_one(how, log, advance)


def on_executors(logs: Sequence[PartitionLog], how: tuple[bool, bool, bool], master: str) -> Iterator[Violation]:
    """Check partitions on a cluster: large ones in parts, then as a whole if there are transactions in them."""
    from kts.offline.verify import PartFound, verify_joined

    def told(log: PartitionLog, results: Iterator[Violation | PartFound]) -> Iterable[Violation] | None:
        found = list(results)
        parts = [one for one in found if isinstance(one, PartFound)]
        return verify_joined(log, parts) if parts else [one for one in found if not isinstance(one, PartFound)]

    def work(function: Callable[..., Any], logs: Sequence[PartitionLog], parts: bool) -> Iterator[Any]:
        return on_each(logs, partial(function, how), lambda amount: None, master, parts=parts)

    found = [told(log, results) for log, results in work(check_part, logs, True)]
    again = work(check_one, [log for log, one in zip(logs, found, strict=True) if one is None], False)
    for one in found:
        yield from next(again)[1] if one is None else one


def pieces_of(
    logs: Sequence[PartitionLog], amounts: Sequence[Amount], deep: bool
) -> list[tuple[list[PartitionLog], int]]:
    """Groups of neighbouring partitions, each large enough to send to a process, with its bytes."""
    pieces: list[tuple[list[PartitionLog], int]] = []
    members: list[PartitionLog] = []
    size, seconds = 0, 0.0
    for log, amount in zip(logs, amounts, strict=True):
        members.append(log)
        size += amount.size_bytes
        seconds += amount.seconds(deep)
        if seconds >= PIECE_SECONDS or log is logs[-1]:
            pieces.append((members, size))
            members, size, seconds = [], 0, 0.0
    return pieces


def beside(paths: Sequence[str], logs: Sequence[PartitionLog]) -> Iterator[Violation]:
    """Check the checkpoint files of log directories."""
    from kts.offline.verify import verify_checkpoints
    from kts.segment.files import directory_exists

    partitions = {log.path for log in logs}
    for path in paths:
        if directory_exists(path) and path not in partitions:
            yield from verify_checkpoints(path)


def check_one(how: tuple[bool, bool, bool], log: PartitionLog, advance: Callable[[int], None]) -> Iterator[Violation]:
    """Check one partition."""
    from kts.offline.verify import apart, verify_partition

    deep, *times = how
    for one in apart(log):
        yield from verify_partition(one, deep, advance, *times)


def at_once(
    pieces: Sequence[tuple[Sequence[PartitionLog], int]],
    how: tuple[bool, bool, bool],
    workers: int,
    advance: Callable[[int], None],
) -> Iterator[Violation]:
    """Check several pieces at a time, each in a process; violations keep their order."""
    from kts.remote.buckets import known_options, use_all

    context = multiprocessing.get_context("spawn")
    with deaf_to_interrupts():
        pool = context.Pool(workers, use_all, (known_options(),))
    with pool:
        found_of = pool.imap(check, [(logs, how) for logs, _ in pieces])
        for (_, size), found in zip(pieces, found_of, strict=True):
            advance(size)
            yield from found


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Make processes that start here ignore Ctrl-C, which a terminal sends to all; the parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def check(task: tuple[Sequence[PartitionLog], tuple[bool, bool, bool]]) -> list[Violation]:
    """Check one piece in a worker process."""
    logs, how = task
    return [found for log in logs for found in check_one(how, log, lambda amount: None)]


def print_violation(violation: Violation, as_json: bool) -> None:
    """Print one violation as a line."""
    if as_json:
        names = ("path", "position", "offset", "kind", "message")
        print_json({name: getattr(violation, name) for name in names})
        return
    where = [f"position {violation.position}"] if violation.position is not None else []
    where += [f"offset {violation.offset}"] if violation.offset is not None else []
    print_line(f"{violation.path}: {violation.kind}{' at ' * bool(where)}{', '.join(where)}: {violation.message}")
