"""Prints one table in one run on one pinned core, and writes it to bench/results.md."""

from __future__ import annotations

import platform
from pathlib import Path

import click

from . import decode, spark, timeindex
from .table import Report, pin_to_one_core

PARTS = ("decode", "timeindex", "spark")


@click.command()
@click.option("--mib", default=32, show_default=True, help="Size of each corpus.")
@click.option("--rounds", default=5, show_default=True, help="Rounds; the median of them counts.")
@click.option("--seed", default=20161, show_default=True, help="Seed of the corpora.")
@click.option("--only", default="", help="Only corpora whose name has this in it, as 'v2 lz4'.")
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Only these parts; default: all.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path(__file__).parent / "results.md")
def main(mib: int, rounds: int, seed: int, only: str, parts: tuple[str, ...], output: Path) -> None:
    """Compare kts with aiokafka, kafka-python, Kafka's Java classes, NumPy, and with what the machine can do at most.

    Ratios are what counts: CPU time of the measuring thread, one pinned core, median of interleaved rounds.
    """
    report, chosen = Report(), parts or PARTS
    core = pin_to_one_core()
    report.text(
        f"Core {core} of {platform.machine()}, Python {platform.python_version()}, median of {rounds} rounds,"
        f" seed {seed}. The floor is the CRC, the fastest library's decompression and one copy."
    )
    if "decode" in chosen:
        decode.run(report, mib << 20, seed, rounds, only)
    if "timeindex" in chosen:
        timeindex.run(report, seed, rounds)
    if "spark" in chosen:
        spark.run(report, 4 * mib << 20, seed, rounds)
    report.write(output)
    print(f"Written to {output}")


if __name__ == "__main__":
    main()
