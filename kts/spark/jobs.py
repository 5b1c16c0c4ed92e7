"""Spreads the work of a command over a Spark cluster: each task takes partitions, the results come back in order."""

from __future__ import annotations

import os
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import chdir, nullcontext
from typing import Any, NamedTuple, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from kts.dataset.partition import PartitionLog
from kts.errors import KtsError
from kts.remote.buckets import known_options, use_all
from kts.segment import files
from kts.segment.rereading import settled
from kts.spark.planning import grouped, in_parts, unseen
from kts.spark.shipping import ship

Result = TypeVar("Result")
# On one partition, with a function that counts the bytes read; pickle must find it by name.
Work = Callable[[PartitionLog, Callable[[int], None]], Iterable[Result]]

_ERROR = re.compile(r"^(?:: )?(?:\w+\.)*(\w+(?:Error|Exception): .+)", re.MULTILINE)


def spread(
    master: str, work: Work[Result], logs: Sequence[PartitionLog], *, parts: bool = False
) -> Iterator[tuple[PartitionLog, Iterator[Result]]]:
    """The results of some work on each partition, in the order of the partitions; the executors of Spark do the work.

    Parameters
    ----------
    master : str
        Spark's master URL: ``local[2]``, ``spark://HOST:7077``, ``yarn``, ``k8s://...``. Everything else is set where
        Spark reads it: ``spark-defaults.conf``, ``PYSPARK_SUBMIT_ARGS``, ``PYSPARK_PYTHON`` (default: this Python).
    work : callable
        What it raises of kts or of the system, and its warnings, come here in the partition's turn.
    logs : sequence of PartitionLog
        Neighbours share a task up to its size, by bytes and number of files.
    parts : bool
        Cut a partition that is larger than a task between segments; its results are those of its parts, in order.

    Raises
    ------
    KtsError
        Spark does not start, or cannot do the work.
    LogStorageError
        An executor does not see a partition.
    """
    pieces = [settled(lambda log=log: in_parts(log)) if parts else [log] for log in logs]  # type: ignore[misc]
    groups = list(grouped([piece for one in pieces for piece in one]))
    tasks = [pickle.dumps(group) for group in groups]
    context = _context(master)
    try:
        job = _Job(work, os.getcwd(), known_options())
        done: list[list[_Outcome]] = context.parallelize(tasks, len(tasks) or 1).map(job).collect()
    except (Py4JError, PySparkException) as error:
        raise KtsError(f"Spark at {master} could not do the work: {_reason(error)}") from error
    outcomes = iter([outcome for one in done for outcome in one])
    for log, own in zip(logs, pieces, strict=True):
        yield log, _told([next(outcomes) for _ in own])


class _Outcome(NamedTuple):
    """What became of one partition."""

    results: list[Any]
    warnings: list[Warning]
    error: KtsError | OSError | None


def _told(outcomes: Iterable[_Outcome]) -> Iterator[Any]:
    """The results of a partition, with the warnings and the error as if the work were done here."""
    for one in outcomes:
        for warning in one.warnings:
            warnings.warn(warning, stacklevel=3)
        yield from one.results
        if one.error is not None:
            raise one.error


class _Job:
    """The work of a task."""

    def __init__(self, work: Work[Any], folder: str, buckets: dict[str, dict[str, Any]]) -> None:
        self.work = work
        self.folder = folder  # the driver's: results name relative paths as the user did
        self.buckets = buckets

    def __reduce__(self) -> tuple[Any, ...]:
        return ship(self)

    def __call__(self, task: bytes) -> list[_Outcome]:
        use_all(self.buckets)
        logs: list[PartitionLog] = pickle.loads(task)
        return [self.outcome(log) for log in logs]

    def outcome(self, log: PartitionLog) -> _Outcome:
        """Do the work on one partition. An error is an outcome too: Spark would try again, and show a traceback."""
        results: list[Any] = []
        raised: KtsError | OSError | None = None
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                with self.in_folder(log):
                    results.extend(self.work(log, lambda amount: None))
            except (KtsError, OSError) as error:
                raised = error
        return _Outcome(results, [one.message for one in told if isinstance(one.message, Warning)], raised)

    def in_folder(self, log: PartitionLog) -> Any:
        """Go where a relative path of the driver is; a context manager."""
        if log.remote_alone or files.scheme_of(log.path) is not None:
            return nullcontext()
        if not files.exists(os.path.join(self.folder, log.path)):
            raise unseen(os.path.join(self.folder, log.path))
        return nullcontext() if os.path.isabs(log.path) else chdir(self.folder)


def _context(master: str) -> SparkContext:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SparkConf().setMaster(master).setAppName("kts")
    settings.set("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    try:
        return SparkContext.getOrCreate(settings)
    except (PySparkException, Py4JError) as error:
        raise KtsError(f"Spark does not start with the master {master}: {_reason(error)}; it needs a JDK 17") from error


def _reason(error: Exception) -> str:
    """The last error that Spark's message names: that of Python, behind the JVM's."""
    found = _ERROR.findall(str(error))
    return found[-1] if found else str(error).splitlines()[0]
