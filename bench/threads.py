"""Two threads on two cores, each with data of its own, against one thread that does the work of both."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import kts

from .corpora import CODECS, Corpus, Shape, corpora
from .floor import Floor
from .libraries import candidates
from .table import GIVEN_CORES, Report, Seconds, all_cores, medians, reached, wall_seconds

LEAST_SECONDS = 0.1 / (32 << 20)  # for each byte of a corpus: work is repeated up to that, so that starts do not count
QUIET = 1.7  # speed-up of plain C below which something else uses the cores
KIB = (16, 64, 256)
GOALS = {"none": 1.7, "lz4": 1.5, "zstd": 1.5}
HEADER = [
    "corpus", "batches", "one thread GiB/s", "us a batch", "speed-up", "goal", "reached", "of plain C",
    "of the library", "waits a batch", "held back by",
]  # fmt: skip
LIBRARY_HEADER = ["codec", "call", *(f"{kib} KiB" for kib in KIB)]
Work = Callable[[bool], object]  # of the first or the second thread


def both(work: Work) -> tuple[Callable[[], None], Callable[[], None]]:
    """The work of both in one thread, and in two."""

    def one() -> None:
        for second in (False, True):
            work(second)

    def two() -> None:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(work, (False, True)))  # an error of either comes out here

    return one, two


def repeated(corpus: Corpus, work: Work) -> tuple[Work, int]:
    """The work as often as the clock needs it, and how often that is."""
    start = time.perf_counter()
    work(False)
    repeats = max(1, round(len(corpus.data) * LEAST_SECONDS / (time.perf_counter() - start)))

    def again(second: bool) -> None:
        for _ in range(repeats):
            work(second)

    return again, repeats


@dataclass
class Waits:
    """Runs the work and counts how often its threads gave up their core."""

    work: Callable[[], None]
    waits: int = 0
    runs: int = 0

    def once(self) -> float:
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw, time.perf_counter()
        self.work()
        taken = time.perf_counter() - start
        self.waits += resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before
        self.runs += 1
        return taken


def decoding(corpus: Corpus) -> Work:
    data = corpus.data, bytes(bytearray(corpus.data))  # two places

    def work(second: bool) -> None:
        rows = sum(batch.num_rows for batch in kts.iter_decode(data[second]))
        if rows != corpus.records:
            raise ValueError(f"{corpus.name}: expected {corpus.records} records, found {rows}")

    return work


def decompressing(corpus: Corpus, number: int) -> Work:
    """One of the libraries' calls in a plain loop, with contexts of its own in each thread."""
    floors = [Floor(corpus, candidates(corpus.codec)[number]) for _ in range(2)]
    return lambda second: floors[second].decompression()


def library_speed_ups(corpus: Corpus, rounds: int) -> dict[str, float]:
    """Of every call that decompresses this codec; none where there is nothing to decompress."""
    found = {}
    for number, call in enumerate(candidates(corpus.codec)):
        one, two = both(repeated(corpus, decompressing(corpus, number))[0])
        taken = medians({"one": wall_seconds(one), "two": wall_seconds(two)}, rounds)
        found[call.__name__] = taken["one"] / taken["two"]
    return found


def held_back_by(found: float, machine: float, library: float | None) -> str:
    if found >= 0.9 * machine:
        return "the machine"
    if library is not None and library <= found + 0.15:
        return "the library's calls"
    return "the lock around and between calls"


def row(corpus: Corpus, kib: int, libraries: dict[str, float], rounds: int, machines: list[float]) -> list[str]:
    floors = Floor(corpus), Floor(corpus)
    work, repeats = repeated(corpus, decoding(corpus))
    one, two = both(work)
    waits = Waits(two)
    # a call by ctypes gives up the lock: what two threads of the machine are worth at this minute
    c_one, c_two = both(repeated(corpus, lambda second: floors[second].entry_crcs())[0])
    contenders: dict[str, Seconds] = {"one": wall_seconds(one), "two": waits.once}
    contenders |= {"C one": wall_seconds(c_one), "C two": wall_seconds(c_two)}
    taken = medians(contenders, rounds)
    found, machine = taken["one"] / taken["two"], taken["C one"] / taken["C two"]
    machines.append(machine)
    library = libraries.get(floors[0].decompressor)
    batches = 2 * repeats * len(corpus.entries)
    goal = GOALS.get(corpus.codec) if kib >= 64 or corpus.codec == "none" else None
    return [
        corpus.name,
        f"{kib} KiB",
        f"{2 * repeats * len(corpus.data) / taken['one'] / 2**30:.2f}",
        f"{taken['one'] / batches * 1e6:.1f}",
        f"{found:.2f}x",
        *(["-", "-"] if goal is None else [f"{goal:g}x", reached(found, goal)]),
        f"{machine:.2f}x",
        "-" if library is None else f"{library:.2f}x",
        f"{waits.waits / waits.runs / batches:.2f}",
        held_back_by(found, machine, library),
    ]


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    if len(GIVEN_CORES) < 2:
        report.text("The table of two threads is left out: this process was given one core.")
        return
    lines, machines, calls = [], list[float](), dict[tuple[str, str], list[str]]()
    with all_cores():
        for kib in KIB:
            for corpus in corpora(2, "100 B", list(CODECS), total_bytes, seed, Shape(kib << 10)):
                libraries = library_speed_ups(corpus, rounds)
                for name, found in libraries.items():
                    calls.setdefault((corpus.codec, name), []).append(f"{found:.2f}x")
                lines.append(row(corpus, kib, libraries, rounds, machines))
                report.progress(" ".join(lines[-1]))
    lines.sort(key=lambda line: CODECS.index(line[0].split()[1]))
    report.text(
        f"Two threads are measured by the clock, on {len(GIVEN_CORES)} cores. Beside their speed-up are those of plain"
        " C without the interpreter (CRCs of the same bytes) and of the fastest decompressor called in a plain loop,"
        " and how often a thread gave up its core, for each batch."
    )
    if statistics.median(machines) < QUIET:
        worth = f"{statistics.median(machines):.2f}x"
        report.text(f"The machine was busy: two threads of plain C were worth {worth}. These figures say little.")
    report.table("Two threads against one, columns copied", HEADER, lines)
    title = "Decompressors alone, two threads against one, by the size of batches"
    report.table(title, LIBRARY_HEADER, [[*names, *found] for names, found in calls.items()])
