"""A scan in two threads, beside two processes that scan one partition each, and one thread that scans both."""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
from multiprocessing.connection import Connection
from pathlib import Path

import kts

from .corpora import CODECS, Corpus, Shape, corpora
from .table import GIVEN_CORES, Report, all_cores, reached, wall_seconds

GOAL = 1.8 / 1.9  # of what two processes reach
KIB = (16, 64)
HEADER = [
    "corpus", "batches", "one thread MiB/s", "two threads", "two processes", "threads / processes", "goal", "reached",
]  # fmt: skip


def written(corpus: Corpus, folder: Path) -> list[Path]:
    """Two partitions with the records of the corpus in each."""
    shutil.rmtree(folder, ignore_errors=True)
    paths = [folder / f"t-{number}" for number in range(2)]
    for path in paths:
        path.mkdir(parents=True)
        (path / f"{0:020}.log").write_bytes(corpus.data)
    return paths


def scanned(path: Path, records: int, threads: int = 1) -> None:
    rows = sum(batch.num_rows for batch in kts.scan(path, threads=threads))
    if rows != records:
        raise ValueError(f"{path}: expected {records} records, found {rows}")


def scanner(asked: Connection, path: Path, records: int) -> None:
    """A process that scans its partition whenever it is asked to."""
    while asked.recv():
        scanned(path, records)
        asked.send(True)


class Pair:
    """Two processes that wait for work."""

    def __init__(self, paths: list[Path], records: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.ends = []
        for path in paths:
            mine, theirs = context.Pipe()
            context.Process(target=scanner, args=(theirs, path, records), daemon=True).start()
            self.ends.append(mine)

    def scan(self) -> None:
        for end in self.ends:
            end.send(True)
        for end in self.ends:
            end.recv()

    def stop(self) -> None:
        for end in self.ends:
            end.send(False)


def row(corpus: Corpus, kib: int, folder: Path, rounds: int) -> list[str]:
    paths = written(corpus, folder)
    records = 2 * corpus.records
    pair = Pair(paths, corpus.records)
    contenders = [
        wall_seconds(lambda: scanned(folder, records)),
        wall_seconds(lambda: scanned(folder, records, threads=2)),
        wall_seconds(pair.scan),
    ]
    taken = [[once() for once in contenders] for _ in range(rounds + 1)][1:]  # neighbours change by the second
    pair.stop()
    threads, processes = ([one[0] / one[at] for one in taken] for at in (1, 2))
    share = statistics.median(one[2] / one[1] for one in taken)
    return [
        corpus.name,
        f"{kib} KiB",
        f"{2 * len(corpus.data) / statistics.median(one[0] for one in taken) / 2**20:.0f}",
        f"{statistics.median(threads):.2f}x",
        f"{statistics.median(processes):.2f}x",
        f"{share:.0%}",
        f"{GOAL:.0%}",
        reached(share, GOAL),
    ]


def run(report: Report, total_bytes: int, seed: int, rounds: int, folder: Path) -> None:
    if len(GIVEN_CORES) < 2:
        report.text("The table of scans in two threads is left out: this process was given one core.")
        return
    lines = []
    with all_cores():
        for kib in KIB:
            for corpus in corpora(2, "100 B", list(CODECS), total_bytes, seed, Shape(kib << 10)):
                lines.append(row(corpus, kib, folder, 3 * rounds))
                report.progress(" ".join(lines[-1]))
    shutil.rmtree(folder)
    report.table("kts.scan of two partitions in two threads, against one, by the clock", HEADER, lines)
