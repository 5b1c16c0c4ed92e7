"""Two checkouts of kts against each other: the micro-benchmarks of both in one run on one core.

For each process pair, one process runs the old checkout and one the new. Both do the same round of the same case, one
directly after the other, so that a busy machine slows both. A process has its own memory layout, which alone may make
a call some percent slower: so a ratio counts once a process pair, and the interval comes from the ratios of all pairs.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .micro import MODULES, cases_of
from .micro.cases import Case, Settings, Work, shown
from .table import Report, pin_to_one_core

ROOT = Path(__file__).parent.parent
LIMIT = 0.97  # a ratio whose interval lies wholly below this is marked
LEAST_PAIRS = 6  # of processes; the range of fewer ratios covers less than 95 %
LEAST_SECONDS = 0.005  # of a measurement
UNCOMPARED = ("checksums",)  # they call the C code of this checkout alone, through the floor
HEADER = ["case", "kts", "old", "new", "new / old", "interval", ""]
# kts comes from the one checkout, the benchmark itself always from this one.
PROGRAM = """
import sys
sys.path.insert(0, {checkout!r})
import kts
sys.path[0] = {root!r}
from bench.compare import serve
serve({settings!r})
"""


# --- in the processes that measure -----------------------------------------------------------------------------


def once(work: Work) -> float:
    """CPU seconds of a call; one without arguments is repeated, for the clock and the caches."""
    given = work.make() if work.make else ()
    calls, taken = 0, 0.0
    gc.disable()
    try:
        start = time.thread_time()
        while not calls or (taken < LEAST_SECONDS and not given):
            found = work.call(*given)
            calls, taken = calls + 1, time.thread_time() - start
    finally:
        gc.enable()
    if work.drop:
        work.drop(*given)
    if work.expected not in (None, found):
        raise ValueError(f"expected {work.expected}, found {found}")
    return taken / calls


def serve(given: tuple[int, int]) -> None:
    """Answer each request on standard input: a round of a contender, with its amount and CPU seconds."""
    import kts

    print(json.dumps(str(Path(kts.__file__).resolve().parent.parent)), flush=True)
    title, works = "", dict[str, Work]()
    for line in sys.stdin:
        module, asked, contender = json.loads(line)
        try:
            if asked != title:
                [case] = [case for case in cases_of(module, Settings(*given)) if case.title == asked]
                title, works = asked, {}
                works = case.prepare()
            answer = [works[contender].amount, once(works[contender])]
        except Exception as error:  # an old checkout may lack what a case needs
            answer = [f"{type(error).__name__}: {error}"]
        print(json.dumps(answer), flush=True)


# --- in the process that compares ------------------------------------------------------------------------------


class Refused(Exception):
    """A checkout cannot run a case; the words say why."""


@dataclass(frozen=True)
class Checkout:
    """A process that measures one checkout."""

    path: Path
    requests: IO[str]
    answers: IO[str]

    def round(self, module: str, case: Case, contender: str) -> tuple[float, float]:
        self.requests.write(json.dumps([module, case.title, contender]) + "\n")
        self.requests.flush()
        line = self.answers.readline()
        if not line:
            raise RuntimeError(f"the process of {self.path} ended in {case.title}")
        answer = json.loads(line)
        if len(answer) == 1:
            raise Refused(f"{self.path}: {answer[0]}")
        return answer[0], answer[1]


@contextlib.contextmanager
def running(path: Path, settings: Settings) -> Iterator[Checkout]:
    program = PROGRAM.format(checkout=str(path), root=str(ROOT), settings=tuple(settings))
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        loaded = process.stdout.readline()
        if not loaded or Path(json.loads(loaded)) != path:
            raise RuntimeError(f"expected the kts of {path}, found {loaded or 'an error, see above'}")
        yield Checkout(path, process.stdin, process.stdout)
        process.stdin.close()


@dataclass
class Compared:
    """What was measured of one contender.

    Attributes
    ----------
    ratios : list of float
        How many times as fast the new checkout is: of each process pair, from the medians of its rounds.
    speeds : tuple of two lists of (amount, seconds)
        Of every round of the old and of the new checkout.
    refused : str, optional
        Why it could not be compared.
    """

    case: Case
    contender: str
    ratios: list[float]
    speeds: tuple[list[tuple[float, float]], list[tuple[float, float]]]
    refused: str | None = None

    def add(self, module: str, sides: tuple[Checkout, Checkout], rounds: int) -> None:
        """The rounds of one process pair; the first of each checkout does not count."""
        taken: tuple[list[float], list[float]] = [], []
        try:
            for side in sides:
                side.round(module, self.case, self.contender)
            for number in range(rounds):
                for place in (0, 1) if number % 2 else (1, 0):
                    found = sides[place].round(module, self.case, self.contender)
                    self.speeds[place].append(found)
                    taken[place].append(found[1])
            self.ratios.append(statistics.median(taken[0]) / statistics.median(taken[1]))
        except Refused as error:
            self.refused = str(error)

    def row(self) -> list[str]:
        if self.refused is not None:
            return [self.case.name, self.contender, "-", "-", "-", "-", "not compared"]
        low, high = interval(self.ratios)
        verdict = f"below {LIMIT:.0%}" if high < LIMIT else "faster" if low > 1 else ""
        verdict = verdict if len(self.ratios) >= LEAST_PAIRS else ""
        speeds = []
        for found in self.speeds:
            seconds = statistics.median(taken for _, taken in found)
            speeds.append(f"{shown(self.case.unit, found[0][0], seconds)} {self.case.unit}")
        ratio = statistics.median(self.ratios)
        return [self.case.name, self.contender, *speeds, f"{ratio:.1%}", f"{low:.1%} to {high:.1%}", verdict]


def rank(count: int) -> int:
    """How far from the ends of ``count`` ordered values the bounds of a 95 % interval of the median lie."""
    outside, k = 2 * 0.5**count, 1
    while (outside := outside + 2 * math.comb(count, k) * 0.5**count) <= 0.05:
        k += 1
    return k


def interval(ratios: list[float]) -> tuple[float, float]:
    """The interval of the median by order statistics; below six values it covers less than 95 %."""
    ordered, k = sorted(ratios), rank(len(ratios))
    return ordered[k - 1], ordered[-k]


def run(report: Report, old: Path, mib: float, rounds: int, processes: int, seed: int, only: str) -> bool:
    """Print a table of each kind of case; whether no ratio lies wholly below the limit."""
    rounds *= 2  # each checkout goes first in every second one
    settings = Settings(round(mib * 2**20), seed)
    found: dict[str, list[Compared]] = {}
    for module in MODULES:
        if module not in UNCOMPARED:
            cases = [case for case in cases_of(module, settings) if only in case.title]
            ours = [(case, name) for case in cases for name in dict.fromkeys(pair.ours for pair in case.pairs)]
            found[module] = [Compared(case, name, [], ([], [])) for case, name in ours]
    pin_to_one_core()
    coverage = 1 - 2 * sum(math.comb(processes, k) for k in range(rank(processes))) / 2**processes
    report.text(
        f"{old} against {ROOT}: {processes} pairs of processes, {rounds} rounds in each, corpora of {mib:g} MiB."
        f" The interval is that of the median of the pairs' ratios, at {coverage:.0%}."
    )
    for number in range(1, processes + 1):
        report.progress(f"pair of processes {number} of {processes}")
        with running(old, settings) as before, running(ROOT, settings) as after:
            for module, compared in found.items():
                for one in compared:
                    if one.refused is None:
                        one.add(module, (before, after), rounds)
    every = [one for compared in found.values() for one in compared]
    for table in dict.fromkeys(one.case.table for one in every):
        report.table(table[0].upper() + table[1:], HEADER, [one.row() for one in every if one.case.table == table])
    for one in every:
        if one.refused is not None:
            report.text(f"{one.case.title}, {one.contender} is not compared: {one.refused}")
    slower = [one for one in every if one.row()[-1].startswith("below")]
    report.text(f"{len(every)} compared, {len(slower)} with an interval wholly below {LIMIT:.0%}.")
    return not slower
