"""A segment of 1 GiB goes through a scan in less than 200 MiB of anonymous memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kts

pytestmark = pytest.mark.slow

LIMIT_MIB = 200
PROGRAM = """
import sys
import kts, pyarrow, pyarrow.compute

def anonymous_mib():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

before, peak, rows = anonymous_mib(), 0.0, 0
for batch in kts.scan(sys.argv[1], views=sys.argv[2] == "views"):
    rows += batch.num_rows
    peak = max(peak, anonymous_mib() - before)
print(rows, round(peak))
"""


def large_segment(directory: Path, size: int, compression: str) -> int:
    """A segment of one batch over and over, offsets patched (no CRC covers them); returns the number of records."""
    directory.mkdir()
    count = 130
    rng = np.random.default_rng(1)
    values = [rng.choice(np.frombuffer(b"abcdefgh", np.uint8), 100).tobytes() for _ in range(count)]
    batch = np.frombuffer(
        kts.encode({"timestamp": range(count), "value": values}, compression=compression, batch_bytes=1 << 20), np.uint8
    )
    per_write = (32 << 20) // len(batch)
    block = np.tile(batch, (per_write, 1))
    written = 0
    with (directory / f"{0:020}.log").open("wb") as file:
        while file.tell() < size:
            numbers = (np.arange(written, written + per_write) * count).astype(">i8")
            block[:, :8] = numbers.view(np.uint8).reshape(per_write, 8)
            file.write(block.tobytes())
            written += per_write
    return written * count


@pytest.mark.parametrize(
    ("size", "compression", "how"),
    [(1 << 30, "none", "copied"), (1 << 28, "none", "views"), (1 << 28, "lz4", "copied")],
)
def test_a_large_segment_streams_through_little_memory(size: int, compression: str, how: str, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    records = large_segment(directory, size, compression)
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(directory), how], capture_output=True, text=True, check=True
        )
    finally:
        for path in directory.iterdir():
            path.unlink()
    rows, peak = map(int, done.stdout.split())
    print(f"{size >> 20} MiB {compression} {how}: {peak} MiB above the interpreter")
    assert rows == records
    assert peak < LIMIT_MIB
