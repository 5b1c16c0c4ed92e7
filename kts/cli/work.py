"""The work of a command on partitions: one after the other, in processes of this machine, or on executors of Spark."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from kts.errors import KtsError

from .inputs import log_bytes

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog

Fact = TypeVar("Fact")
Result = TypeVar("Result")
# On one partition or a part of it, with a function that counts the bytes read; pickle must find it by name, and the
# fold, which makes the results of a partition of what the work on all its parts gave.
PartitionWork = Callable[["PartitionLog", Callable[[int], None]], Iterable[Fact]]
Fold = Callable[["PartitionLog", Iterable[Fact]], Iterator[Result]]

PIECES = 8  # for each process, so that all of them end at about the same time
LEAST_BYTES = 4 << 20  # of a piece of work that is worth sending to a process


def known_master(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse what is no master, before Spark starts, and Spark Connect, which has no tasks for the work of commands."""
    if value is not None and not re.match(r"local\b|yarn$|(?!sc:)[a-z][a-z0-9+.-]*://", value):
        raise click.BadParameter(f"expected a master such as spark://HOST:7077, yarn or local[4], found {value}")
    return value


spark_option = click.option(
    "--spark", "master", metavar="MASTER", callback=known_master,
    help="Spread the work over a Spark cluster: spark://HOST:7077, yarn, k8s://URL; local[4] is this machine.",
)  # fmt: skip


def one_by_one(log: PartitionLog, facts: Iterable[Fact]) -> Iterator[Fact]:
    """The fold of work whose facts are its results."""
    return iter(facts)


def on_each(
    logs: Sequence[PartitionLog],
    work: PartitionWork[Fact],
    fold: Fold[Fact, Result],
    advance: Callable[[int], None],
    *,
    master: str | None = None,
    jobs: int = 1,
    parts: bool = False,
) -> Iterator[tuple[PartitionLog, Iterator[Result]]]:
    """The results of some work on each partition, in the order of the partitions.

    Parameters
    ----------
    work : callable
        Called with a partition, and with a function to call with the bytes that were just read. What it raises of kts
        or of the system, and its warnings, come here in the partition's turn.
    fold : callable
        Makes the results of a partition of what the work gave, its facts. It runs where the work was done, and for a
        partition that was cut, here.
    advance : callable
        Called with bytes that were read.
    master : str, optional
        Spark's master: executors do the work.
    jobs : int
        So many processes do it; 1 is this one.
    parts : bool
        Cut a partition that is larger than a task between segments.

    Raises
    ------
    KtsError
        Spark does not start, or cannot do the work.
    LogStorageError
        An executor does not see a partition.
    """
    if master is None and jobs == 1:
        for log in logs:
            yield log, fold(log, work(log, advance))
        return
    from kts.spark.planning import grouped, in_parts

    job = _Job(work, fold, None if master is None else os.getcwd())
    room = max(LEAST_BYTES, log_bytes(logs) // (PIECES * jobs)) if master is None else None

    def outcomes(pieces: Iterable[PartitionLog]) -> Iterator[_Outcome]:
        groups = list(grouped(pieces, room))
        if groups:
            done = _by_processes(jobs, job, groups) if master is None else _by_executors(master, job, groups)
            for one in chain.from_iterable(done):
                advance(one.size_bytes)
                yield one

    pieces = [in_parts(log, room) if parts else [log] for log in logs]
    found = outcomes(chain.from_iterable(pieces))
    for log, own in zip(logs, pieces, strict=True):
        told = _told([next(found) for _ in own])
        yield log, fold(log, told) if own[0].is_part else told


class _Outcome(NamedTuple):
    """What became of one partition, or a part of it."""

    results: list[Any]  # of a part, its facts
    warnings: list[Warning]
    error: Exception | None
    size_bytes: int  # read


def _told(outcomes: Iterable[_Outcome]) -> Iterator[Any]:
    """The results of a partition, with the warnings and the error as if the work were done here."""
    for one in outcomes:
        for warning in one.warnings:
            warnings.warn(warning, stacklevel=3)
        yield from one.results
        if one.error is not None:
            raise one.error


class _Job:
    """The work on a group of partitions, in another process.

    Parameters
    ----------
    folder : str, optional
        The working directory of the command, where executors have another one: relative paths are in it.
    """

    def __init__(self, work: PartitionWork[Any], fold: Fold[Any, Any], folder: str | None) -> None:
        self.work = work
        self.fold = fold
        self.folder = folder

    def __call__(self, logs: list[PartitionLog]) -> list[_Outcome]:
        return [self.outcome(log) for log in logs]

    def outcome(self, log: PartitionLog) -> _Outcome:
        """Do the work on one partition. An error is an outcome too: Spark would try again, and show a traceback."""
        results: list[Any] = []
        sizes: list[int] = []
        raised: Exception | None = None
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                with self.in_folder(log):
                    facts = self.work(log, sizes.append)
                    results.extend(facts if log.is_part else self.fold(log, facts))
            except (KtsError, OSError) as error:
                raised = error
        said = [one.message for one in told if isinstance(one.message, Warning)]
        return _Outcome(results, said, raised, sum(sizes))

    def in_folder(self, log: PartitionLog) -> AbstractContextManager[None]:
        """Go where a relative path of the command is."""
        from kts.spark.planning import unseen
        from kts.store.source import files

        if self.folder is None or not log.source.is_here:
            return nullcontext()
        if not files.exists(os.path.join(self.folder, log.path)):
            raise unseen(os.path.join(self.folder, log.path))
        return nullcontext() if os.path.isabs(log.path) else chdir(self.folder)


def _by_executors(master: str, job: _Job, groups: list[list[PartitionLog]]) -> list[list[_Outcome]]:
    try:
        from kts.spark.jobs import run
    except ImportError as error:
        raise click.UsageError(f"--spark needs pyspark: pip install 'kafka-timestamps[spark]' ({error})") from error
    return run(master, job, groups)


def _by_processes(count: int, job: _Job, groups: list[list[PartitionLog]]) -> Iterator[list[_Outcome]]:
    context = multiprocessing.get_context("spawn")
    with _deaf_to_interrupts():
        pool = context.Pool(min(count, len(groups)))
    with pool:
        yield from pool.imap(job, groups)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Make processes that start here ignore Ctrl-C, which a terminal sends to all; the parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
