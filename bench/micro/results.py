"""The micro-benchmarks as tables: every ratio with its goal."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import click

from bench.table import Report, reached

from . import all_cases
from .cases import Case, Settings, shown

ROOT = Path(__file__).parent.parent.parent
HEADER = ["kts", "speed", "against", "speed", "ratio", "goal", "reached"]
Measured = dict[tuple[str, str], tuple[float, float]]  # amount and median seconds, by title and contender


def measure(mib: float, rounds: int, seed: int, only: str, path: Path) -> Measured:
    """Run pytest-benchmark in a process of its own; ``path`` gets what it saves."""
    command = [sys.executable, "-m", "pytest", "bench/micro", "--quiet", "--exitfirst", "-p", "no:cacheprovider"]
    command += ["--disable-warnings"]
    command += [f"--mib={mib}", f"--rounds={rounds}", f"--seed={seed}", f"--only={only}", f"--benchmark-json={path}"]
    command += ["--benchmark-columns=median,min,max,rounds"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise click.ClickException("a micro-benchmark failed; pytest says why above")
    found = json.loads(path.read_text(encoding="utf-8"))["benchmarks"]
    return {(one["group"], one["name"]): (one["extra_info"]["amount"], one["stats"]["median"]) for one in found}


def rows(case: Case, measured: Measured) -> list[list[str]]:
    """A line for each ratio."""
    lines = []
    for pair in case.pairs:
        ours, peer = (measured[case.title, name] for name in (pair.ours, pair.peer))
        ratio = (ours[0] / ours[1]) / (peer[0] / peer[1])
        form = "{:.0%}" if pair.share else "{:.1f}x"
        speeds = [f"{shown(case.unit, *one)} {case.unit}" for one in (ours, peer)]
        wanted = ["-", "-"] if pair.goal is None else [form.format(pair.goal), reached(ratio, pair.goal)]
        lines.append([case.name, pair.ours, speeds[0], pair.peer, speeds[1], form.format(ratio), *wanted])
    return lines


def run(report: Report, mib: float, rounds_: int, seed: int, only: str, scratch: Path) -> None:
    measured = measure(mib, rounds_, seed, only, scratch / "micro.json")
    cases = all_cases(Settings(round(mib * 2**20), seed), only)
    for table, group in groupby(cases, lambda case: case.table):
        lines = [line for case in group for line in rows(case, measured)]
        report.table(table[0].upper() + table[1:], [table, *HEADER], lines)
