"""What many partitions, segments and topics cost: every row at three sizes, each as a ratio to the smaller one."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import kts
from kts.broker.topics import NewTopic, Topics

from .corpora import START_MS
from .plot import plot_growth
from .table import Report

ROOT = Path(__file__).parent.parent
HEADER = ["measured", "number", "cost", "of one", "against the smaller", "linear", "goal", "reached"]
RECORDS = 10
FULL_MIB = 32  # the size of a corpus with which the numbers are as they are written here
SEGMENTS, PARTITIONS = (625, 2_500, 10_000), (312, 1_250, 5_000)
SEGMENTS_WRITTEN = (125, 500, 2_000)


@dataclass(frozen=True)
class Growth:
    """Something that is measured at three sizes.

    Attributes
    ----------
    name : str
        As the table and the plot call it.
    sizes : tuple of int
        How many there are of what grows, ascending.
    cost : callable
        Of one size, in a folder that all rows share; seconds of CPU time, MiB, or open files.
    unit : "s", "MiB" or "files"
        Of the cost.
    goal : float, optional
        The cost at the greatest size is to be no more.
    """

    name: str
    sizes: tuple[int, ...]
    cost: Callable[[Path, int], float]
    unit: str = "s"
    goal: float | None = None


# --- what is measured ------------------------------------------------------------------------------------------


def small_set() -> bytearray:
    """A batch of ten records at offset 0; its base offset may be changed, no CRC covers it."""
    times = [START_MS + i for i in range(RECORDS)]
    return bytearray(kts.encode({"timestamp": times, "value": [b"x" * 40] * RECORDS}))


def own_segments(folder: Path, count: int) -> Path:
    """A partition of so many small segments, a new one each time: for what changes it."""
    partition = Path(tempfile.mkdtemp(dir=folder), "orders-0")
    partition.mkdir()
    write_small_segments(partition, count)
    return partition


def own_topics(folder: Path, count: int) -> Path:
    """A log directory with so many topics, a new one each time."""
    directory = own_directory(folder, count)
    with Topics(directory) as topics:
        topics.create_all([NewTopic(f"t{number}") for number in range(count)])
    return directory


def own_directory(folder: Path, _: int) -> Path:
    """An empty log directory, a new one each time."""
    return Path(tempfile.mkdtemp(dir=folder))


def write_small_segment(partition: Path | str, number: int, one: bytearray) -> None:
    """The segment of that number, ten records each, with indexes as a broker closes them."""
    base = number * RECORDS
    struct.pack_into(">q", one, 0, base)
    stem = os.path.join(partition, f"{base:020d}")
    last_entry = struct.pack(">qi", START_MS + RECORDS - 1, RECORDS - 1)
    for suffix, data in ((".log", one), (".index", b""), (".timeindex", last_entry)):
        with open(stem + suffix, "wb") as file:
            file.write(data)


def many_segments(folder: Path, count: int) -> Path:
    """A partition of so many small segments, made once."""
    partition = folder / f"segments-{count}"
    if not partition.exists():
        partition.mkdir()
        write_small_segments(partition, count)
    return partition


def write_small_segments(partition: Path, count: int) -> None:
    one = small_set()
    for number in range(count):
        write_small_segment(partition, number, one)


def many_partitions(folder: Path, count: int) -> Path:
    """A log directory of so many partitions, each of one small segment, with its checkpoints; made once."""
    directory = folder / f"partitions.{count}"
    if not directory.exists():
        one = small_set()
        for number in range(count):
            partition = directory / f"orders-{number}"
            partition.mkdir(parents=True)
            write_small_segment(partition, 0, one)
        for name, offset in (
            ("log-start-offset", 0),
            ("replication-offset", RECORDS),
            ("recovery-point-offset", RECORDS),
        ):
            lines = [f"orders {number} {offset}\n" for number in range(count)]
            (directory / f"{name}-checkpoint").write_text("".join(["0\n", f"{count}\n", *lines]))
    return directory


FRESH = """
import os, resource, sys, time

import kts, pyarrow.compute
from bench.rss import anonymous_mib

def cpu():
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])

def work(path, count):
    {work}

work(sys.argv[1], {warm})
started = {measured}
kept = work(sys.argv[2], int(sys.argv[3]))
print({measured} - started, file=sys.stderr)
"""
MEASURED = {"s": "cpu()", "MiB": "anonymous_mib()", "files": "len(os.listdir('/proc/self/fd'))"}
WARM = 8


def fresh(work: str, make: Callable[[Path, int], Path], folder: Path, count: int, unit: str = "s") -> float:
    """What statements cost in a process of their own, which has done the same to a few before.

    Parameters
    ----------
    work : str
        The body of a function of ``path`` and ``count``; lines behind the first are indented by four.
    make : callable
        Makes ``path`` in the folder, of so many.
    unit : "s", "MiB" or "files"
        CPU time of the process and its children; or anonymous memory or descriptors that it holds with what ``work``
        returned.
    """
    program = FRESH.format(work=work, measured=MEASURED[unit], warm=WARM)
    given = [make(folder, WARM), make(folder, count), count]
    command = [sys.executable, "-c", program, *map(str, given)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{work}: {done.stderr}")
    return float(done.stderr.split()[-1])


def command_seconds(*arguments: str) -> Callable[[Path, int], float]:
    """CPU time of a ``kts`` command over many partitions, without the start of Python."""
    work = f"from kts.cli.app import cli\n    cli.main([*{arguments!r}, path], standalone_mode=False)"
    return lambda folder, count: fresh(work, many_partitions, folder, count)


def of_segments(work: str, unit: str = "s") -> Callable[[Path, int], float]:
    """What statements cost over a partition of many segments."""
    return lambda folder, count: fresh(work, many_segments, folder, count, unit)


def of_own(work: str, make: Callable[[Path, int], Path], unit: str = "s") -> Callable[[Path, int], float]:
    """What statements cost over what is made for them."""
    return lambda folder, count: fresh(work, make, folder, count, unit)


READ_ALL = f"""table = kts.scan(path).read_all()
    assert table.num_rows == {RECORDS} * count, table.num_rows
    return table"""
PLAN = """from kts.spark import options, planning
    assert planning.plan_tasks(options.parse_options({"path": path}))"""
GREATEST = "assert kts.open(path).max_timestamp() is not None"
NO_HIT = "assert kts.open(path).offset_for_timestamp(2**60) is None"
UNCLEAN = """log = kts.Log(path, {"retention.ms": -1})
    assert len(log.segments) == count and not log.clean_start
    return log"""
CLOSE = UNCLEAN.replace("return log", "log.close()")
MAKE = """from kts.broker.topics import Topics
    with Topics(path) as topics:
        for number in range(count):
            topics.create(f"t{number}")"""
DELETE = """from kts.broker.topics import Topics
    with Topics(path) as topics:
        for name in topics.names():
            topics.delete(name)"""
METADATA = """import asyncio
    from kts.broker.broker import Broker
    from kts.broker.wire.messages import ApiKey
    from kts.broker.handlers import handle
    from kts.broker.request import Request
    body = {"topics": [{"name": f"t{number}", "topic_id": bytes(16)} for number in range(count)]}
    body["allow_auto_topic_creation"] = True
    with Broker(path) as broker:
        made = asyncio.run(handle(broker, Request(ApiKey.METADATA, 4, "bench", body)))
        assert len(broker.topics.names()) == len(made["topics"]) == count"""
LOGS = """from kts.broker.topics import Topics
    with Topics(path) as topics:
        assert len([partition.log for partition in topics.partitions()]) == count"""
ROWS = [
    Growth("unclean open and close, segments", SEGMENTS_WRITTEN, of_own(CLOSE, own_segments), goal=2.0),
    Growth("open files after it", SEGMENTS_WRITTEN, of_own(UNCLEAN, own_segments, "files"), "files", 10),
    Growth("topics made, a request each", PARTITIONS, of_own(MAKE, own_directory)),
    Growth("topics made, one Metadata request", PARTITIONS, of_own(METADATA, own_directory)),
    Growth("topics deleted, a request each", PARTITIONS, of_own(DELETE, own_topics)),
    Growth("a broker's logs opened and closed", PARTITIONS, of_own(LOGS, own_topics)),
    Growth("kts ls, partitions", PARTITIONS, command_seconds("ls")),
    Growth("kts verify, partitions", PARTITIONS, command_seconds("verify")),
    Growth("kts verify --jobs 2, partitions", PARTITIONS, command_seconds("verify", "--jobs", "2")),
    Growth("scan().read_all(), segments", SEGMENTS, of_segments(READ_ALL, "MiB"), "MiB", 100),
    Growth("Spark's planning, segments", SEGMENTS, of_segments(PLAN)),
    Growth("max_timestamp, segments", SEGMENTS, of_segments(GREATEST)),
    Growth("a search without a hit, segments", SEGMENTS, of_segments(NO_HIT)),
]


# --- the table and the plot ------------------------------------------------------------------------------------


def shown(cost: float, unit: str) -> str:
    return {"s": f"{cost:.2f} s", "MiB": f"{cost:.1f} MiB", "files": f"{cost:.0f} files"}[unit]


def shown_each(cost: float, unit: str) -> str:
    return {"s": f"{cost * 1e6:.0f} us", "MiB": f"{cost * 1024:.1f} KiB", "files": f"{cost:.3f}"}[unit]


def growth_lines(row: Growth, sizes: tuple[int, ...], costs: list[float]) -> list[list[str]]:
    """A line a size."""
    lines = []
    for place, (size, cost) in enumerate(zip(sizes, costs, strict=True)):
        cells = [row.name, f"{size:,}", shown(cost, row.unit), shown_each(cost / size, row.unit)]
        if place:
            cells += [f"{cost / max(costs[place - 1], 1e-9):.1f}x", f"{size / sizes[place - 1]:.1f}x"]
        else:
            cells += ["-", "-"]
        if row.goal is not None and place == len(sizes) - 1:
            cells += [f"< {shown(row.goal, row.unit)}", "yes" if cost < row.goal else f"{cost / row.goal:.1f} times it"]
        else:
            cells += ["-", "-"]
        lines.append(cells)
    return lines


def run(report: Report, mib: float, plot: Path) -> None:
    """Every row at its sizes; a smaller corpus asks for smaller numbers."""
    lines, points = [], {}
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # what waits for a disk costs no CPU time
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        for row in ROWS:
            sizes = tuple(dict.fromkeys(max(WARM, round(size * mib / FULL_MIB)) for size in row.sizes))
            costs = [row.cost(Path(folder), size) for size in sizes]
            points[row.name] = {size: cost / size for size, cost in zip(sizes, costs, strict=True)}
            lines += growth_lines(row, sizes, costs)
            report.progress(" / ".join(" ".join(line[:4]) for line in lines[-len(sizes) :]))
    report.table("Growth: what many of them cost, CPU time of all processes that take part", HEADER, lines)
    plot_growth(points, plot)
    report.figure("The cost of one over their number, against that at the smallest number", plot)
