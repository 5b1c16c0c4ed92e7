"""Prints all tables of one run on one pinned core (but where threads are measured), and writes them to a file."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from . import (
    append,
    checksums,
    columns,
    decode,
    dump,
    encode,
    growth,
    kafka_source,
    linear,
    memory,
    rebuild,
    scan,
    spark,
    threads,
    timeindex,
    wire_speed,
)
from .table import Report, pin_to_one_core

HERE = Path(__file__).parent
SCRATCH = HERE.parent / "build" / "bench"


@dataclass(frozen=True)
class Settings:
    """What every part is run with."""

    mib: int
    rounds: int
    seed: int
    only: str
    output: Path

    @property
    def bytes(self) -> int:
        return self.mib << 20


Part = Callable[[Report, Settings], None]
PARTS: dict[str, Part] = {
    "decode": lambda report, s: decode.run(report, s.bytes, s.seed, s.rounds, s.only),
    "columns": lambda report, s: columns.run(report, s.bytes, s.seed, s.rounds),
    "threads": lambda report, s: threads.run(report, s.bytes, s.seed, s.rounds),
    "linear": lambda report, s: linear.run(report, s.bytes, s.seed, s.rounds, 32, s.output.parent / "batch_size.svg"),
    "scan": lambda report, s: scan.run(report, s.bytes, s.seed, s.rounds),
    "rebuild": lambda report, s: rebuild.run(report, s.bytes, s.seed, s.rounds),
    "checksums": lambda report, s: checksums.run(report, s.bytes // 4, s.seed, s.rounds),
    "encode": lambda report, s: encode.run(report, s.bytes // 4, s.seed, s.rounds),
    "append": lambda report, s: append.run(report, s.bytes, s.seed, s.rounds, SCRATCH),
    "memory": lambda report, s: memory.run(report, s.bytes, s.seed, 32 * s.bytes),
    "timeindex": lambda report, s: timeindex.run(report, s.seed, s.rounds),
    "dump": lambda report, s: dump.run(report, 3 * s.bytes, s.seed, s.rounds),
    "spark": lambda report, s: spark.run(report, 4 * s.bytes, s.seed, s.rounds),
    "growth": lambda report, s: growth.run(report, s.mib, s.output.parent / "growth.svg"),
    "broker": lambda report, s: wire_speed.run(report, 2 * s.bytes, s.rounds),
    "kafka": lambda report, s: kafka_source.run(report, 4 * s.bytes, s.seed, s.rounds),
}


@click.command()
@click.option("--mib", default=32, show_default=True, help="Size of each corpus.")
@click.option("--rounds", default=5, show_default=True, help="Rounds; the median of them counts.")
@click.option("--seed", default=20161, show_default=True, help="Seed of the corpora.")
@click.option("--only", default="", help="Only corpora of the decode table whose name has this in it, as 'v2 lz4'.")
@click.option("--part", "parts", multiple=True, type=click.Choice(list(PARTS)), help="Only these parts; default: all.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where the tables and the plot go; default: bench/results.md, or build/bench/results.md of a part.",
)
def main(mib: int, rounds: int, seed: int, only: str, parts: tuple[str, ...], output: Path | None) -> None:
    """Compare kts with aiokafka, kafka-python, Kafka's Java classes, NumPy, and with what the machine can do at most.

    Ratios are what counts: CPU time of the measuring thread, one pinned core, median of interleaved rounds.
    """
    report, chosen = Report(), parts or tuple(PARTS)
    settings = Settings(mib, rounds, seed, only, output or (SCRATCH if parts or only else HERE) / "results.md")
    core = pin_to_one_core()
    report.text(
        f"Core {core} of {platform.machine()}, Python {platform.python_version()}, median of {rounds} rounds,"
        f" seed {seed}. The floor is the CRC, the fastest library's decompression and one copy. Goals are printed with"
        ' what was reached: "yes", or how much of them.'
    )
    start = time.monotonic()
    for number, name in enumerate(chosen, 1):
        report.progress(f"{name}, part {number} of {len(chosen)}, after {time.monotonic() - start:.0f} s")
        PARTS[name](report, settings)
        report.write(settings.output)
    print(f"Written to {settings.output} after {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
