"""Whole records into Spark's `noop` sink, against a Python data source that yields ready-made Arrow batches."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .corpora import corpora
from .java import tool
from .table import Report, Seconds, medians

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENTS = 4
TICKS = os.sysconf("SC_CLK_TCK")


def descendants() -> Iterator[int]:
    """This process and all below it: the JVM and its Python workers."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        parents.setdefault(int(fields[1]), []).append(int(status.parent.name))
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        yield process
        waiting += parents.get(process, [])


def tree_cpu_seconds() -> float:
    """CPU time of the process tree, with the children that have ended and were waited for."""
    total = 0
    for process in descendants():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICKS


def measured(work: Callable[[], object]) -> Seconds:
    """CPU seconds of all processes that take part."""

    def once() -> float:
        start = tree_cpu_seconds()
        work()
        return tree_cpu_seconds() - start

    return once


def session() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def ready_made_source() -> type[Any]:
    """A data source whose tasks decode nothing: each yields the same prepared batch again and again."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class ReadyMadeReader(DataSourceReader):
        def __init__(self, options: dict[str, str]) -> None:
            self.path, self.repeats = options["path"], int(options["repeats"])

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(index) for index in range(SEGMENTS)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import pyarrow as pa

            with pa.ipc.open_file(self.path) as file:
                batch = file.get_batch(0)
                for _ in range(self.repeats):
                    yield batch

    class ReadyMade(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready_made"

        def schema(self) -> str:
            return (
                "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
                " timestampType int"
            )

        def reader(self, schema: Any) -> DataSourceReader:
            return ReadyMadeReader(dict(self.options))

    return ReadyMade


def write_partition(folder: Path, total_bytes: int, seed: int) -> tuple[Path, int]:
    """A partition directory with four segments of 100 B records; its path and the number of records."""
    partition = folder / "bench-0"
    partition.mkdir()
    [corpus] = corpora(2, "100 B", ["none"], total_bytes, seed)
    cuts = [round(len(corpus.entries) * part / SEGMENTS) for part in range(SEGMENTS + 1)]
    for start, end in zip(cuts, cuts[1:], strict=False):
        first, last = corpus.entries[start][0], sum(corpus.entries[end - 1])
        base = int.from_bytes(corpus.data[first : first + 8], "big")
        (partition / f"{base:020d}.log").write_bytes(corpus.data[first:last])
    return partition, corpus.records


def write_ready_made(partition: Path, path: Path, records: int) -> int:
    """One batch as kts would yield it, in an Arrow file; how often each task yields it."""
    import pyarrow as pa

    import kts

    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    batch = next(iter(kts.scan(partition, columns=columns)))
    micros = batch.column("timestamp").cast(pa.timestamp("us", "UTC"))  # what Spark takes
    batch = batch.set_column(columns.index("timestamp"), "timestamp", micros)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as file:
        file.write_batch(batch)
    return max(1, round(records / SEGMENTS / int(batch.num_rows)))


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    import shutil

    try:
        from pyspark.sql.datasource import DataSource  # noqa: F401
    except ImportError:
        report.text("Spark's table is left out: it needs pyspark 4 (pip install 'kts[spark]').")
        return
    if not shutil.which(tool("java")):
        report.text("Spark's table is left out: it needs a JDK 17.")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        partition, records = write_partition(folder, total_bytes, seed)
        repeats = write_ready_made(partition, folder / "batch.arrow", records)
        spark = session()
        try:
            spark.dataSource.register(ready_made_source())
            ours = spark.read.format("kts").load(str(partition))
            ready = spark.read.format("ready_made").option("path", str(folder / "batch.arrow"))
            theirs = ready.option("repeats", repeats).load()
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
    lines = [[name, f"{rate / 1e6:.2f}", f"{rate / rates['ready-made batches']:.0%}"] for name, rate in rates.items()]
    report.table(f"Spark local[1], {records:,} records of 100 B to noop", ["source", "Mrec per CPU s", "share"], lines)
