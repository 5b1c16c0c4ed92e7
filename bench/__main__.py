"""Prints all tables of one run on one pinned core (but where threads are measured), and writes them to a file."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from . import (
    avro_values,
    buckets,
    cleaning,
    compare,
    dump,
    growth,
    kafka_classes,
    kafka_sink,
    kafka_source,
    kafka_stream,
    latest_state,
    linear,
    memory,
    planning,
    proposals,
    scanning,
    spark,
    tables,
    threads,
    udfs,
    wire_speed,
)
from .micro import results
from .table import Report, pin_to_one_core

HERE = Path(__file__).parent
SCRATCH = HERE.parent / "build" / "bench"


@dataclass(frozen=True)
class Settings:
    """What every part is run with."""

    mib: float
    rounds: int
    seed: int
    only: str
    output: Path

    @property
    def bytes(self) -> int:
        return round(self.mib * 2**20)


def pipeline(report: Report, settings: Settings) -> None:
    """The small codecs, planning, the threads of a scan, buckets, then Spark's streams and writes."""
    for codec in ("lz4", "snappy"):
        results.run(report, settings.mib, settings.rounds, settings.seed, f"decode: v2 {codec}", SCRATCH)
    planning.run(report, settings.seed, SCRATCH / "planning")
    scanning.run(report, 4 * settings.bytes, settings.seed, settings.rounds, SCRATCH / "scan")
    buckets.run(report, 8 * settings.bytes, settings.rounds, SCRATCH / "bucket")
    kafka_stream.run(report, 32 * settings.bytes, settings.seed, settings.rounds)
    kafka_sink.run(report, 8 * settings.bytes, settings.seed, settings.rounds)


def of_tables(report: Report, settings: Settings) -> None:
    """A topic that becomes a table, Avro values that become columns, and the latest state of a topic."""
    tables.run(report, settings.bytes, settings.seed, settings.rounds, SCRATCH / "tables")
    avro_values.run(report, settings.bytes, settings.seed, settings.rounds)
    records = settings.bytes * 10 // 32
    latest_state.run(report, records, settings.seed, settings.rounds, SCRATCH / "latest")
    latest_state.run_tables(report, records, settings.seed, SCRATCH / "state")


def both_threads(report: Report, settings: Settings) -> None:
    """Threads that decode data of their own, then those of one scan."""
    threads.run(report, settings.bytes, settings.seed, settings.rounds)
    scanning.run(report, 4 * settings.bytes, settings.seed, settings.rounds, SCRATCH / "scan")


Part = Callable[[Report, Settings], None]
PARTS: dict[str, Part] = {
    "micro": lambda report, s: results.run(report, s.mib, s.rounds, s.seed, s.only, SCRATCH),
    "java": lambda report, s: kafka_classes.run(report, s.bytes, s.seed, s.rounds),
    "threads": lambda report, s: both_threads(report, s),
    "linear": lambda report, s: linear.run(report, s.bytes, s.seed, s.rounds, 32, s.output.parent / "batch_size.svg"),
    "memory": lambda report, s: memory.run(report, s.bytes, s.seed, 32 * s.bytes),
    "dump": lambda report, s: dump.run(report, 3 * s.bytes, s.seed, s.rounds),
    "spark": lambda report, s: spark.run(report, 4 * s.bytes, s.seed, s.rounds),
    "udfs": lambda report, s: udfs.run(report, s.bytes, s.seed, s.rounds),
    "growth": lambda report, s: growth.run(report, s.mib, s.output.parent / "growth.svg"),
    "proposals": lambda report, s: proposals.run(report, s.bytes, s.rounds),
    "broker": lambda report, s: wire_speed.run(report, 2 * s.bytes, s.rounds),
    "kafka": lambda report, s: kafka_source.run(report, 4 * s.bytes, s.seed, s.rounds),
    "tables": lambda report, s: of_tables(report, s),
    "cleaner": lambda report, s: cleaning.run(report, 3 * s.bytes, s.seed, s.rounds, SCRATCH / "cleaner"),
    "pipeline": lambda report, s: pipeline(report, s),
}


@click.command()
@click.option("--mib", default=32.0, show_default=True, help="Size of each corpus.")
@click.option("--rounds", default=5, show_default=True, help="Rounds; the median of them counts.")
@click.option("--seed", default=20161, show_default=True, help="Seed of the corpora.")
@click.option("--only", default="", help="Only micro-benchmarks with this in their title, as 'decode: v2 lz4'.")
@click.option("--part", "parts", multiple=True, type=click.Choice(list(PARTS)), help="Only these parts; default: all.")
@click.option(
    "--compare",
    "old",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    help="Compare the micro-benchmarks of this checkout with those of another one, whose extensions are built.",
)
@click.option("--processes", default=6, show_default=True, help="Pairs of processes of a comparison.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where the tables and plots go; default: bench/results.md, or a file in build/bench for less than all parts.",
)
def main(
    mib: float,
    rounds: int,
    seed: int,
    only: str,
    parts: tuple[str, ...],
    old: Path | None,
    processes: int,
    output: Path | None,
) -> None:
    """Compare kts with aiokafka, kafka-python, Kafka's Java classes, NumPy, and with what the machine can do at most.

    Ratios are what counts: CPU time of the measuring thread, one pinned core, median of interleaved rounds.
    """
    report = Report()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    if old is not None:
        sound = compare.run(report, old, mib, rounds, processes, seed, only)
        report.write(output or SCRATCH / "compare.md")
        sys.exit(not sound)
    chosen = parts or (("micro",) if only else tuple(PARTS))
    settings = Settings(mib, rounds, seed, only, output or (SCRATCH if parts or only else HERE) / "results.md")
    core = pin_to_one_core()
    report.text(
        f"Core {core} of {platform.machine()}, Python {platform.python_version()}, median of {rounds} rounds,"
        f" seed {seed}. The floor is the CRC, the fastest library's decompression and one copy. Everyone checks CRCs."
        " aiokafka and kafka-python make Python objects, kts makes Arrow columns with all bytes copied, or views of"
        " them. kts checks the CRCs of messages inside wrappers too, aiokafka does not; the floor with inner CRCs has"
        ' them. Goals are printed with what was reached: "yes", or how much of them.'
    )
    start = time.monotonic()
    for number, name in enumerate(chosen, 1):
        report.progress(f"{name}, part {number} of {len(chosen)}, after {time.monotonic() - start:.0f} s")
        PARTS[name](report, settings)
        report.write(settings.output)
    print(f"Written to {settings.output} after {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
