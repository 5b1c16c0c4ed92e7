"""The codec's own checksums against the libraries', by the size of what a call is given."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import crc32c
import isal.isal_zlib
import numpy as np

from .floor import compiled
from .table import Report, cpu_seconds, medians

SIZES = (50, 130, 1100, 16 << 10, 1 << 20)
HEADER = ["bytes a call", "kts crc32c", "package crc32c", "kts crc32", "isal", "zlib"]


def calls(checksum: Callable[[memoryview], int], pieces: list[memoryview]) -> Callable[[], None]:
    def work() -> None:
        for piece in pieces:
            checksum(piece)

    return work


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    total_bytes = max(total_bytes, SIZES[-1])
    data = np.random.default_rng(seed).integers(0, 256, total_bytes, dtype=np.uint8)
    lines = []
    for size in SIZES:
        count = total_bytes // size

        def ours(kind: int, size: int = size, count: int = count) -> Callable[[], None]:
            return lambda: compiled().floor_checksums(data.ctypes.data, size, count, kind)

        pieces = [data.data[start : start + size] for start in range(0, count * size, size)]
        taken = medians(
            {
                "kts crc32c": cpu_seconds(ours(1)),
                "package crc32c": cpu_seconds(calls(crc32c.crc32c, pieces)),
                "kts crc32": cpu_seconds(ours(0)),
                "isal": cpu_seconds(calls(isal.isal_zlib.crc32, pieces)),
                "zlib": cpu_seconds(calls(zlib.crc32, pieces)),
            },
            rounds,
        )
        lines.append([f"{size:,}", *(f"{count * size / taken[name] / 2**30:.2f}" for name in HEADER[1:])])
        report.progress(" ".join(lines[-1]))
    report.table("Checksums, GiB/s: kts from C, the others from Python as they are called there", HEADER, lines)
