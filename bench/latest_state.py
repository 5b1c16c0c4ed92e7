"""The latest state of a topic: records a second and memory; and a table that is kept equal to it."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import kts
import kts.tables
from kts.tables.iceberg import open_catalog

from .table import Report, medians, reached, wall_seconds

if TYPE_CHECKING:
    import numpy.typing as npt

ROOT = Path(__file__).parent.parent
ROWS = 500_000  # that are appended at once
GOAL_MREC, GOAL_MIB = 2.0, 300
NAMES = ("topic", "partition", "offset", "key", "value")  # of a plain table
PROGRAM = """
import re, sys, time
from pathlib import Path
import kts, pyarrow.compute

def most_mib():
    return int(re.search("VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

before, rows = most_mib(), 0
start = time.process_time()
for batch in kts.latest(sys.argv[1], columns=["key", "value"]):
    rows += batch.num_rows
print(rows, most_mib() - before, time.process_time() - start)
"""


def written(folder: Path, records: int, keys: int, seed: int) -> None:
    """A partition of records of 88 B, with random keys of 8 B."""
    rng = np.random.default_rng(seed)
    with kts.Log(folder / "t-0", {"segment.bytes": 2**28}) as log:
        grown(log, rng.integers(0, keys, records), rng)


def run(report: Report, records: int, seed: int, rounds: int, scratch: Path) -> None:
    """Two logs: a key has ten records, or one or two. A process of its own for each round."""
    lines = []
    for keys in (records // 10, 10 * records):
        shutil.rmtree(scratch, ignore_errors=True)
        written(scratch, records, keys, seed)
        found = []
        for _ in range(rounds):
            command = [sys.executable, "-c", PROGRAM, str(scratch)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            found.append(tuple(map(float, done.stdout.split())))
        rows, peak, seconds = (statistics.median(one) for one in zip(*found, strict=True))
        rate = records / seconds / 1e6
        lines.append(
            [
                f"{records:,}",
                f"{rows:,.0f}",
                f"{rate:.2f}",
                f"{GOAL_MREC}",
                reached(rate, GOAL_MREC),
                f"{peak:.0f}",
                f"< {GOAL_MIB}",
                "yes" if peak < GOAL_MIB else reached(GOAL_MIB, peak),
            ]
        )
    shutil.rmtree(scratch)
    header = ["records", "keys", "Mrec per CPU s", "goal", "reached", "peak memory added, MiB", "goal", "reached"]
    report.table("kts.latest of records of 88 B", header, lines)


def grown(log: kts.Log, numbers: npt.NDArray[np.int64], rng: np.random.Generator) -> None:
    """Records of 88 B with these keys and random values."""
    for first in range(0, len(numbers), ROWS):
        part = numbers[first : first + ROWS]
        key = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(part), [None, pa.py_buffer(part)])
        value = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(80), len(part), [None, pa.py_buffer(rng.bytes(80 * len(part)))]
        )
        log.append_rows({"key": key.cast(pa.binary()), "value": value.cast(pa.binary())})


def process_seconds(work: Callable[[], object]) -> float:
    """CPU time of all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def run_tables(report: Report, keys: int, seed: int, scratch: Path) -> None:
    """A table of the latest state: its first run, few changes, a tenth of the keys changed, and a scan afterwards."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    rng, few, many = np.random.default_rng(seed), max(1, keys // 10_000), max(1, keys // 10)
    catalog = open_catalog("lake", scratch / "c.sqlite")
    new = partial(kts.scan, scratch / "logs", columns=NAMES)
    sync = partial(kts.tables.sync, scratch / "logs", "lake.db.state", catalog=catalog, mode="latest", to_end=True)

    with kts.Log(scratch / "logs" / "t-0", {"segment.bytes": 2**28}) as log:
        grown(log, rng.permutation(keys), rng)
        first = process_seconds(sync)
        plain = catalog.create_table("db.plain", (rows := new().read_all()).schema)
        plain.append(rows)
        grown(log, rng.choice(keys, few, replace=False), rng)
        some = process_seconds(sync)
        changed = new(starting_offsets={"t": {0: keys}}).read_all()
        upsert = process_seconds(lambda: plain.upsert(changed, join_cols=["key"]))
        grown(log, rng.choice(keys, many, replace=False), rng)
        tenth = process_seconds(sync)

    def scan(name: str) -> None:
        rows = catalog.load_table(f"db.{name}").scan(selected_fields=NAMES).to_arrow()
        if rows.num_rows != keys:
            raise ValueError(f"{name}: expected {keys} rows, found {rows.num_rows}")

    taken = medians({name: wall_seconds(partial(scan, name)) for name in ("state", "plain")}, 3)
    ratio, most, least = taken["state"] / taken["plain"], 20 * keys / 10**7, 3 * keys / 10**7
    lines = [
        ["kts.tables.sync, first run", f"{keys:,}", f"{first:.2f} s", "", ""],
        ["kts.tables.sync, few keys changed", f"{few:,}", f"{some:.2f} s", f"{least:.2f} s", reached(least, some)],
        ["pyiceberg's upsert of those few", f"{few:,}", f"{upsert:.2f} s", "", ""],
        ["kts.tables.sync, a tenth of the keys", f"{many:,}", f"{tenth:.2f} s", f"{most:.2f} s", reached(most, tenth)],
        ["a scan then / of a plain table", f"{keys:,}", f"{ratio:.2f}x", "1.20x", reached(1.2, ratio)],
    ]
    shutil.rmtree(scratch)
    header = ["what", "rows", "CPU time or ratio", "goal", "reached"]
    report.table(f"An Iceberg table of the latest state of {keys:,} keys, records of 88 B", header, lines)
