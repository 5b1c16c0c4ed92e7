"""Runs a function over tasks on the executors of a Spark cluster."""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from kts.errors import KtsError
from kts.spark.shipping import ship

Given = TypeVar("Given")
Result = TypeVar("Result")

_ERROR = re.compile(r"^(?:: )?(?:\w+\.)*(\w+(?:Error|Exception): .+)", re.MULTILINE)


def run(master: str, job: Callable[[Given], Result], tasks: Sequence[Given]) -> list[Result]:
    """What a function returns for each task, in order.

    Parameters
    ----------
    master : str
        Spark's master URL: ``local[2]``, ``spark://HOST:7077``, ``yarn``, ``k8s://...``. Everything else is set where
        Spark reads it: ``spark-defaults.conf``, ``PYSPARK_SUBMIT_ARGS``, ``PYSPARK_PYTHON`` (default: this Python).
    job : callable
        Pickle must find it by name.

    Raises
    ------
    KtsError
        Spark does not start, or cannot do the work.
    """
    return run_in(_context(master), job, tasks)


def run_in(context: SparkContext, job: Callable[[Given], Result], tasks: Sequence[Given]) -> list[Result]:
    """As ``run``, in a context that is there."""
    pickled = [pickle.dumps(task) for task in tasks]
    try:
        done: list[Result] = context.parallelize(pickled, len(pickled) or 1).map(_Shipped(job)).collect()
    except (Py4JError, PySparkException) as error:
        ended = "; it ended the application: look at its master and workers" if _is_stopped(context) else ""
        raise KtsError(f"Spark at {context.master} could not do the work: {_reason(error)}{ended}") from error
    return done


def _is_stopped(context: SparkContext) -> bool:
    with suppress(Py4JError):
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    return True


class _Shipped:
    """A function as executors get it."""

    def __init__(self, job: Callable[[Any], Any]) -> None:
        self.job = job

    def __reduce__(self) -> tuple[Any, ...]:
        return ship(self)

    def __call__(self, task: bytes) -> Any:
        return self.job(pickle.loads(task))


def _context(master: str) -> SparkContext:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SparkConf().setMaster(master).setAppName("kts")
    settings.set("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    try:
        return SparkContext.getOrCreate(settings)
    except (PySparkException, Py4JError) as error:
        ended = isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED"
        needs = "; it needs a JDK 17" if ended else ""
        raise KtsError(f"Spark does not start with the master {master}: {_reason(error)}{needs}") from error


def _reason(error: Exception) -> str:
    """The last error that Spark's message names: that of Python, behind the JVM's."""
    found = _ERROR.findall(str(error))
    return found[-1] if found else str(error).splitlines()[0]
