"""One pinned core, interleaved rounds, medians, and the tables that come of them."""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

Seconds = Callable[[], float]  # runs once and gives the seconds that it took
GIVEN_CORES = os.sched_getaffinity(0)


def pin_to_one_core() -> int:
    """Binds this process and its children to the last core that it may use."""
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


@contextlib.contextmanager
def all_cores() -> Iterator[None]:
    """Off the one core for a while: threads that start here may run on every core that the process was given."""
    pinned = os.sched_getaffinity(0)
    os.sched_setaffinity(0, GIVEN_CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, pinned)


def wall_seconds(work: Callable[[], object]) -> Seconds:
    """Time on the clock, for what runs in several threads."""

    def once() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return once


def reached(found: float, goal: float) -> str:
    """Whether a figure has its goal, at the precision that is printed; if not, how much of it."""
    share = found / goal
    return "yes" if share >= 0.995 else f"{share:.0%} of it"


def cpu_seconds(work: Callable[[], object]) -> Seconds:
    """CPU time of the measuring thread."""

    def once() -> float:
        start = time.thread_time()
        work()
        return time.thread_time() - start

    return once


def medians(contenders: dict[str, Seconds], rounds: int) -> dict[str, float]:
    """The median seconds of each, one round after the other, so that a noisy minute hits all of them."""
    for contender in contenders.values():
        contender()
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    gc.freeze()  # what is there by now stays: a collection before each measurement need not look at it
    for _ in range(rounds):
        for name, contender in contenders.items():
            gc.collect()
            taken[name].append(contender())
    gc.unfreeze()
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


class Report:
    """Tables on the terminal as they come, and all of them in one Markdown file at the end."""

    def __init__(self) -> None:
        self.console = Console(width=140)
        self.markdown: list[str] = []

    def text(self, line: str) -> None:
        self.console.print(line, highlight=False)
        self.markdown += [line, ""]

    def once(self, line: str) -> None:
        """A line that many rows have reason to say."""
        if line not in self.markdown:
            self.text(line)

    def progress(self, line: str) -> None:
        """Shown while it runs, not kept."""
        self.console.print(f"[dim]{line}[/dim]", highlight=False)

    def table(self, title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        lines = list(rows)
        if not lines:
            return
        shown = Table(title=title, title_justify="left")
        for index, name in enumerate(header):
            shown.add_column(name, justify="left" if index == 0 else "right")
        for line in lines:
            shown.add_row(*line)
        self.console.print(shown)
        self.markdown += [f"### {title}", "", "| " + " | ".join(header) + " |"]
        self.markdown += ["|---|" + "---:|" * (len(header) - 1)]
        self.markdown += ["| " + " | ".join(line) + " |" for line in lines] + [""]

    def figure(self, title: str, path: Path) -> None:
        self.console.print(f"{title}: {path}")
        self.markdown += [f"![{title}]({path.name})", ""]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(self.markdown), encoding="utf-8")
