"""How long the driver plans a read, and the work of a command on a cluster, as the partitions become many."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import kts

from .corpora import corpora
from .table import Report
from .time_range import write_segments

PARTITIONS = (250, 500, 1000, 2000)
SEGMENTS, SEGMENT_BYTES = 50, 256 << 10


def linked(source: Path, folder: Path, count: int) -> None:
    """As many partitions with the files of one, which are links."""
    names = os.listdir(source)
    for number in range(count):
        (folder / f"t-{number}").mkdir(exist_ok=True)
        if len(os.listdir(folder / f"t-{number}")) < len(names):
            for name in names:
                os.link(source / name, folder / f"t-{number}" / name)


def of_a_read(folder: Path) -> Iterator[tuple[int, int]]:
    """Segments and bytes of each task of `spark.read.format("kts")`."""
    from kts.spark.options import parse_options
    from kts.spark.planning import plan_tasks

    for task in plan_tasks(parse_options({"path": str(folder)})):
        yield len(task.ranges), sum(part.end_position - part.start_position for part in task.ranges)


def of_a_command(folder: Path) -> Iterator[tuple[int, int]]:
    """The same of the tasks of `kts verify --spark`."""
    from kts.spark.planning import grouped, in_parts

    logs = kts.open_log_dirs(folder).values()
    for group in grouped([part for log in logs for part in in_parts(log)]):
        segments = [segment for log in group for segment in log.segments]
        yield len(segments), sum(segment.size_bytes for segment in segments)


def row(name: str, work: Callable[[Path], Iterator[tuple[int, int]]], folder: Path, count: int) -> list[str]:
    cpu, start = time.process_time(), time.perf_counter()
    tasks = list(work(folder))
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - start
    if sum(segments for segments, _ in tasks) != count * SEGMENTS:
        raise ValueError(f"expected {count * SEGMENTS} segments in the tasks, found {sum(one for one, _ in tasks)}")
    segments, sizes = (sorted(one) for one in zip(*tasks, strict=True))
    return [
        f"{count:,}",
        name,
        f"{count * SEGMENTS:,}",
        f"{seconds:.1f}",
        f"{cpu:.1f}",
        f"{1e6 * cpu / count / SEGMENTS:.0f}",
        f"{len(tasks):,}",
        f"{segments[0]} to {segments[-1]}",
        f"{sizes[0] / 2**20:.0f} to {sizes[-1] / 2**20:.0f}",
    ]


def run(report: Report, seed: int, scratch: Path) -> None:
    """One table: partitions of 50 segments, in growing number, each file a link to one of the first partition."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        report.text("The table of planning is left out: it needs pyspark (pip install 'kafka-timestamps[spark]').")
        return
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "one").mkdir(parents=True)
    [corpus] = corpora(2, "100 B", ["none"], SEGMENTS * SEGMENT_BYTES, seed)
    write_segments(scratch / "one" / "t-0", corpus, SEGMENTS)
    folder = scratch / "many"
    folder.mkdir()
    rows = []
    for count in PARTITIONS:
        linked(scratch / "one" / "t-0", folder, count)
        rows.append(row('format("kts")', of_a_read, folder, count))
        rows.append(row("verify --spark", of_a_command, folder, count))
        report.progress(" ".join(rows[-1]))
    shutil.rmtree(scratch)
    report.table(
        f"Planning on the driver, partitions of {SEGMENTS} segments of {SEGMENT_BYTES >> 10} KiB",
        [
            "partitions",
            "work",
            "segments",
            "seconds",
            "CPU s",
            "CPU us a segment",
            "tasks",
            "segments a task",
            "MiB a task",
        ],
        rows,
    )
