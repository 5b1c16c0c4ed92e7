"""Anonymous memory that streaming a large segment takes above an interpreter with the libraries loaded."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from .corpora import corpora
from .table import Report, reached

ROOT = Path(__file__).parent.parent
GOAL_MIB = 200
HEADER = ["segment", "read by", "MiB", "records", "peak RssAnon above the interpreter, MiB", "goal", "reached"]
PROGRAM = """
import mmap, sys
import kts, pyarrow.compute
from bench.rss import anonymous_mib

path, how = sys.argv[1:]
before, peak, rows = anonymous_mib(), 0.0, 0
if how == "scan":
    batches = kts.scan(path)
else:
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    batches = kts.iter_decode(data, views=how == "views")
for batch in batches:
    rows += batch.num_rows
    peak = max(peak, anonymous_mib() - before)
print(rows, peak)
"""
WAYS = {"copied": "kts.iter_decode", "views": "kts.iter_decode, views", "scan": "kts.scan"}


def run(report: Report, total_bytes: int, seed: int, large_bytes: int) -> None:
    lines = []
    for corpus in corpora(2, "100 B", ["none", "lz4"], total_bytes, seed):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{0:020}.log")
            repeats = -(-large_bytes // len(corpus.data))
            with path.open("wb") as file:
                for _ in range(repeats):
                    file.write(corpus.data)
            for how, title in WAYS.items():
                command = [sys.executable, "-c", PROGRAM, str(path), how]
                done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
                rows, peak = map(float, done.stdout.split())
                if rows != repeats * corpus.records:
                    raise ValueError(f"{corpus.name}: expected {repeats * corpus.records} records, found {rows:.0f}")
                size = f"{repeats * len(corpus.data) / 2**20:,.0f}"
                verdict = "yes" if peak < GOAL_MIB else reached(GOAL_MIB, peak)
                lines.append([corpus.name, title, size, f"{rows:,.0f}", f"{peak:.1f}", f"< {GOAL_MIB}", verdict])
                report.progress(" ".join(lines[-1]))
    report.table("Memory of a stream over a large segment", HEADER, lines)
