"""Spark on this machine, and the CPU time of all processes that it is made of."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICKS = os.sysconf("SC_CLK_TCK")


def processes(others: Iterable[int]) -> Iterator[int]:
    """This process, those others, and all below them: the JVM and its Python workers."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        parents.setdefault(int(fields[1]), []).append(int(status.parent.name))
    waiting = [os.getpid(), *others]
    while waiting:
        process = waiting.pop()
        yield process
        waiting += parents.get(process, [])


def tree_cpu_seconds(others: Iterable[int] = ()) -> float:
    """CPU time of the process trees, with the children that have ended and were waited for."""
    total = 0
    for process in processes(others):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICKS


def cpu_and_clock(work: Callable[[], object], others: Iterable[int] = ()) -> tuple[float, float]:
    """CPU seconds of all processes that take part, such as a broker, and seconds on the clock."""
    cpu, clock = tree_cpu_seconds(others), time.perf_counter()
    work()
    return tree_cpu_seconds(others) - cpu, time.perf_counter() - clock


def session(cores: int = 1, jars: str = "") -> SparkSession:
    """A session of local Spark whose workers run this Python."""
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC")
        .config("spark.jars", jars)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
