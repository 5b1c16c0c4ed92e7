"""The codec's own checksums against the libraries', by the size of what a call is given."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import crc32c
import isal.isal_zlib
import numpy as np

from bench.floor import compiled

from .cases import Case, Pair, Settings, Work

SIZES = (50, 130, 1100, 16 << 10, 1 << 20)
CONTENDERS = ("kts crc32c", "package crc32c", "kts crc32", "isal", "zlib")
PAIRS = (Pair("kts crc32c", "package crc32c"), Pair("kts crc32", "isal"), Pair("kts crc32", "zlib"))


def checksum_case(size: int, settings: Settings) -> Case:
    """The codec's are called from C, the others from Python, as each is in its place."""

    def prepare() -> dict[str, Work]:
        total = max(settings.bytes // 4, SIZES[-1])
        data = np.random.default_rng(settings.seed).integers(0, 256, total, dtype=np.uint8)
        count = total // size
        pieces = [data.data[start : start + size] for start in range(0, count * size, size)]

        def ours(kind: int) -> Work:
            return Work(lambda: compiled().floor_checksums(data.ctypes.data, size, count, kind), count * size)

        def theirs(checksum: Callable[[memoryview], int]) -> Work:
            def call() -> None:
                for piece in pieces:
                    checksum(piece)

            return Work(call, count * size)

        return {
            "kts crc32c": ours(1),
            "package crc32c": theirs(crc32c.crc32c),
            "kts crc32": ours(0),
            "isal": theirs(isal.isal_zlib.crc32),
            "zlib": theirs(zlib.crc32),
        }

    return Case("checksums", f"{size:,} bytes a call", "GiB/s", CONTENDERS, PAIRS, prepare)


def cases(settings: Settings) -> Iterator[Case]:
    for size in SIZES:
        yield checksum_case(size, settings)
