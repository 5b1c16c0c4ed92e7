"""The latest state of a topic: records a second, and the memory above an interpreter with the libraries loaded."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import kts

from .table import Report, reached

ROOT = Path(__file__).parent.parent
ROWS = 500_000  # that are appended at once
GOAL_MREC, GOAL_MIB = 2.0, 300
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
        for first in range(0, records, ROWS):
            numbers = rng.integers(0, keys, min(ROWS, records - first))
            key = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(numbers), [None, pa.py_buffer(numbers)])
            log.append_rows({"key": key.cast(pa.binary()), "value": pa.repeat(b"x" * 80, len(numbers))})


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
