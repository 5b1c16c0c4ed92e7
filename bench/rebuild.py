"""Both indexes of a segment made anew from its log, against a scan of the same file's headers and CRCs."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kts.segment import files
from kts.segment.recovery import Rules, rebuild
from kts.segment.shallow import Slices

from .corpora import corpora
from .table import Report, cpu_seconds, medians, reached

GOAL = 0.90
HEADER = ["segment", "entries", "index entries", "scan GiB/s", "rebuild GiB/s", "share", "goal", "reached"]


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    lines = []
    for magic in (2, 1):
        for corpus in corpora(magic, "100 B", ["none", "lz4"], total_bytes, seed):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, f"{0:020}.log")
                path.write_bytes(corpus.data)
                rules = Rules()

                def scan(path: str = str(path)) -> int:
                    with files.File(path) as file:
                        return sum(map(len, Slices(file, 0, file.size())))

                def again(path: str = str(path), rules: Rules = rules) -> int:
                    with files.File(path) as file:
                        found = rebuild(file, file.size(), 0, rules)
                    if found.reason is not None:
                        raise ValueError(f"{path}: {found.reason} at {found.valid_bytes}")
                    return len(found.offset_index) // 8

                entries, made = scan(), again()
                taken = medians({"scan": cpu_seconds(scan), "rebuild": cpu_seconds(again)}, 2 * rounds + 1)
            gib, share = len(corpus.data) / 2**30, taken["scan"] / taken["rebuild"]
            rates = [f"{gib / taken[name]:.2f}" for name in ("scan", "rebuild")]
            wanted = [f"{GOAL:.0%}", reached(share, GOAL)] if corpus.name == "v2 none 100 B" else ["-", "-"]
            lines.append([corpus.name, f"{entries:,}", f"{made:,}", *rates, f"{share:.0%}", *wanted])
            report.progress(" ".join(lines[-1]))
    report.table("Rebuild of both indexes of a segment, against a shallow scan", HEADER, lines)
