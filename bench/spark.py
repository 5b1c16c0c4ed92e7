"""Spark: whole records into the `noop` sink against ready-made Arrow batches, and how little a range of times opens."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from .corpora import Corpus, corpora
from .java import tool
from .ready_made import SEGMENTS, ready_made_source, write_ready_made
from .spark_session import cpu_and_clock, session
from .table import Report, Seconds, medians, reached
from .time_range import INDEX_INTERVAL, most_opened, seconds_of_later_data, write_segments

GOAL = 0.80  # of what Spark makes of batches that cost nothing
LATER_S = 0.3  # a GiB of later data
MOST_OPENED = 0.02  # of the log, by 1 % of its time; and an index interval a segment


def measured(work: Callable[[], object]) -> Seconds:
    """CPU seconds of all processes that take part."""
    return lambda: cpu_and_clock(work)[0]


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    """Both tables, of one partition."""
    with tempfile.TemporaryDirectory() as name:
        partition = Path(name, "bench-0")
        [corpus] = corpora(2, "100 B", ["none"], total_bytes, seed)
        write_segments(partition, corpus, SEGMENTS)
        to_noop(report, partition, corpus.records, rounds)
        range_of_times(report, partition, corpus)
        later_data(report, partition, corpus, rounds)


def to_noop(report: Report, partition: Path, records: int, rounds: int) -> None:
    """Whole records by kts, against batches that are there already."""
    try:
        from pyspark.sql.datasource import DataSource  # noqa: F401
    except ImportError:
        report.text("Spark's table is left out: it needs pyspark 4 (pip install 'kafka-timestamps[spark]').")
        return
    if not shutil.which(tool("java")):
        report.text("Spark's table is left out: it needs a JDK 17.")
        return
    batch = partition.parent / "batch.arrow"
    repeats = write_ready_made(partition, batch, records)
    spark = session()
    try:
        spark.dataSource.register(ready_made_source())
        ours = spark.read.format("kts").load(str(partition))
        theirs = spark.read.format("ready_made").option("path", str(batch)).option("repeats", repeats).load()
        if ours.count() != records:
            raise ValueError(f"Spark counted {ours.count()} of {records} records")
        counts = {"kts": records, "ready-made batches": theirs.count()}
        contenders = {
            "kts": measured(lambda: ours.write.format("noop").mode("overwrite").save()),
            "ready-made batches": measured(lambda: theirs.write.format("noop").mode("overwrite").save()),
        }
        taken = medians(contenders, rounds)
    finally:
        spark.stop()
    rates = {name: counts[name] / seconds for name, seconds in taken.items()}
    share = rates["kts"] / rates["ready-made batches"]
    report.table(
        f"Spark local[1], {records:,} records of 100 B to noop",
        ["source", "Mrec per CPU s", "share", "goal", "reached"],
        [
            ["kts", f"{rates['kts'] / 1e6:.2f}", f"{share:.0%}", f"{GOAL:.0%}", reached(share, GOAL)],
            ["ready-made batches", f"{rates['ready-made batches'] / 1e6:.2f}", "100%", "", ""],
        ],
    )


def later_data(report: Report, partition: Path, corpus: Corpus, rounds: int) -> None:
    """What a range costs that leaves nothing out after its end."""
    seconds = seconds_of_later_data(partition, corpus.records, rounds) * 2**30 / len(corpus.data)
    report.table(
        "kts.scan, allowed_lateness=None: the rest of the log is read for late records",
        ["what", "CPU s a GiB of later data, warm", "goal", "reached"],
        [["the first hundredth of the time", f"{seconds:.2f}", f"{LATER_S}", reached(LATER_S, seconds)]],
    )


def range_of_times(report: Report, partition: Path, corpus: Corpus) -> None:
    """How much of the log a hundredth of its time opens."""
    total, opened = len(corpus.data), most_opened(partition, corpus.records)
    most = MOST_OPENED + SEGMENTS * INDEX_INTERVAL / total
    report.table(
        f"Spark, 1 % of the time of a log of {total >> 20} MiB in {SEGMENTS} segments",
        ["what", "KiB opened", "share of the log", "goal: under", "reached"],
        [
            [
                "planning and reading",
                f"{opened >> 10:,}",
                f"{opened / total:.2%}",
                f"{most:.2%}",
                reached(most, opened / total),
            ]
        ],
    )
