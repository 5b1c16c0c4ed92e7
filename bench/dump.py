"""`kts dump` of a million records against Kafka's own `kafka-dump-log`: whole commands, start-up included."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from .broker import NotHere, kafka_java
from .corpora import corpora
from .table import GIVEN_CORES, Report, all_cores, medians, reached

JAVA = "kafka-dump-log --print-data-log"
GOALS = {"kts dump, JSON lines": 6.0, "kts dump, Parquet": 12.0}
TEXT = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz")
GZIP_GOAL = 1.5  # times the time of plain text, at most
# As an installed package is: its modules are compiled once, whatever this shell says.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@dataclass
class Command:
    """A command whose output goes to a file; each run gives its CPU seconds, and the clock's are kept."""

    arguments: list[str]
    output: Path
    clock: list[float] = field(default_factory=list)

    def once(self) -> float:
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        with self.output.with_suffix(".out").open("wb") as out:
            subprocess.run(self.arguments, stdout=out, stderr=subprocess.DEVNULL, env=ENVIRONMENT, check=True)
        self.clock.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def records_in(name: str, command: Command) -> int:
    """How many records an output holds, so that all commands are known to do the same job."""
    if name == JAVA:
        with command.output.with_suffix(".out").open("rb") as file:
            return sum(line.startswith(b"| offset: ") for line in file)
    if command.output.suffix == ".parquet":
        from pyarrow import parquet

        return int(parquet.read_metadata(command.output).num_rows)
    with command.output.open("rb") as file:
        return sum(1 for _ in file)


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    """Dump one segment of 100 B records with each command."""
    with tempfile.TemporaryDirectory() as folder:
        segment = Path(folder, "bench-0", f"{0:020d}.log")
        segment.parent.mkdir()
        [corpus] = corpora(2, "100 B", ["none"], total_bytes, seed)
        segment.write_bytes(corpus.data)
        kts = [sys.executable, "-m", "kts.cli", "dump", str(segment.parent), "-o"]
        text(report, kts, Path(folder), corpus.records, rounds)
        try:
            java = kafka_java("kafka.tools.DumpLogSegments", "--print-data-log", "--files", str(segment))
        except NotHere as missing:
            report.text(f"The table of dumps is left out: it needs {missing}.")
            return
        outputs = [Path(folder, name) for name in ("java.txt", "kts.jsonl", "kts.parquet")]
        starts: list[list[str]] = [java, *([*kts, str(output)] for output in outputs[1:])]
        commands = {
            name: Command(arguments, output)
            for name, arguments, output in zip((JAVA, *GOALS), starts, outputs, strict=True)
        }
        cpu = medians({name: command.once for name, command in commands.items()}, rounds)
        for name, command in commands.items():
            if records_in(name, command) != corpus.records:
                raise ValueError(f"{name} wrote {records_in(name, command)} of {corpus.records} records")
        sizes = {
            name: max(command.output.with_suffix(".out").stat().st_size, size_of(command.output))
            for name, command in commands.items()
        }
        clock = {name: statistics.median(command.clock[1:]) for name, command in commands.items()}
    rows = []
    for name, seconds in cpu.items():
        ratio, goal = cpu[JAVA] / seconds, GOALS.get(name)
        row = [name, f"{sizes[name] / 2**20:.0f}", f"{seconds:.2f}", f"{clock[name]:.2f}", f"{ratio:.1f}x"]
        row += [f"{clock[JAVA] / clock[name]:.1f}x"]
        rows.append([*row, *(["", ""] if goal is None else [f"{goal:.0f}x", reached(ratio, goal)])])
    report.table(
        f"Dump of {corpus.records:,} records of 100 B into a file, whole commands",
        ["command", "MiB written", "CPU s", "clock s", "less CPU", "sooner", "goal", "reached"],
        rows,
    )


def text(report: Report, kts: list[str], folder: Path, records: int, rounds: int) -> None:
    """Text with and without gzip, on one core and on all that there are."""
    made = {suffix: Command([*kts, str(folder / f"text{suffix}")], folder / f"text{suffix}") for suffix in TEXT}
    work = {suffix: command.once for suffix, command in made.items()}
    cpu = medians(work, rounds)
    one = {suffix: statistics.median(command.clock[1:]) for suffix, command in made.items()}
    for command in made.values():
        command.clock.clear()
    with all_cores():
        medians(work, rounds)
    every = {suffix: statistics.median(command.clock[1:]) for suffix, command in made.items()}
    rows = []
    for suffix, command in made.items():
        plain = suffix.removesuffix(".gz")
        row = [f"-o x{suffix}", f"{size_of(command.output) / 2**20:.0f}", f"{cpu[suffix]:.2f}", f"{one[suffix]:.2f}"]
        row += [f"{every[suffix]:.2f}"]
        ratios = [one[suffix] / one[plain], every[suffix] / every[plain]]
        met = reached(GZIP_GOAL, max(ratios))
        rows.append([*row, *(["", "", ""] if suffix == plain else [*(f"{one:.2f}x" for one in ratios), met])])
    report.table(
        f"Dump of {records:,} records of 100 B as text; with gzip in at most {GZIP_GOAL}x of the time without",
        [
            "kts dump",
            "MiB written",
            "CPU s",
            "clock s, 1 core",
            f"{len(GIVEN_CORES)} cores",
            "of plain, 1 core",
            f"{len(GIVEN_CORES)} cores",
            "reached",
        ],
        rows,
    )


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
