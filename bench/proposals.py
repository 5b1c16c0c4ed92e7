"""What ``kts.Log`` costs in a process that uses KIP-32's options beside it, against one that never loaded them.

Each round starts a process of each kind, one after the other; ``python -m bench.proposals KIND BYTES`` is such a one.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import kts

from .table import Report, cpu_seconds

ROOT = Path(__file__).parent.parent
START_MS = 1_700_000_000_000
ALONE, BESIDE = "alone", "beside"
SEARCHES = 300


def run(report: Report, total_bytes: int, rounds: int) -> None:
    """The table."""
    found: dict[str, list[dict[str, float]]] = {ALONE: [], BESIDE: []}
    for number in range(rounds):
        report.progress(f"kts.Log alone and beside KIP-32's options, round {number + 1} of {rounds}")
        for kind in (ALONE, BESIDE) if number % 2 else (BESIDE, ALONE):
            command = [sys.executable, "-m", "bench.proposals", kind, str(total_bytes)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            found[kind].append(json.loads(done.stdout))
    rows = []
    for what in found[ALONE][0]:
        alone, beside = (statistics.median(one[what] for one in found[kind]) for kind in (ALONE, BESIDE))
        rows.append([what, f"{alone * 1e3:.1f}", f"{beside * 1e3:.1f}", f"{beside / alone:.2f}x"])
    header = ["kts.Log", "alone, CPU ms", "beside KIP-32's options, CPU ms", "of alone"]
    report.table("kts.Log with and without the proposals", header, rows)


def measured(kind: str, total_bytes: int) -> dict[str, float]:
    """CPU seconds of each work, the least of five."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == BESIDE:
            from kts.proposals import options

            beside = options.OptionLog(f"{folder}/options/beside-0", option=3)
            beside.append(options.encode({"createTimestamp": [START_MS], "value": [b"v"]}, option=3))
        elif any(name.startswith("kts.proposals") for name in sys.modules):
            raise RuntimeError("kts.proposals is loaded")
        sets = max(1, total_bytes // 65536)
        record_set = kts.encode(
            {"timestamp": [START_MS + i for i in range(64)], "value": [bytes(1000)] * 64}, batch_bytes=2**20
        )

        def append() -> None:
            with kts.Log(f"{folder}/kts/{next(numbers)}-0") as log:
                for _ in range(sets):
                    log.append(record_set)

        numbers = iter(range(10**6))
        append()
        with kts.Log(f"{folder}/kts/0-0") as log:
            works: dict[str, Callable[[], object]] = {
                f"append of {sets} sets of 64 KiB": append,
                "read and decode": lambda: [batch for batch in log.scan()],  # noqa: C416
                f"{SEARCHES} searches by time": lambda: [
                    log.offset_for_timestamp(START_MS + i % 64) for i in range(SEARCHES)
                ],
            }
            taken = {what: min(cpu_seconds(work)() for _ in range(5)) for what, work in works.items()}
        return taken


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
