"""Lookups in a time index as it lies in the file, against NumPy's search in a native copy of it."""

from __future__ import annotations

import random

import numpy as np

import kts

from .table import Report, cpu_seconds, medians

ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
SINGLES = 20_000
BATCHED = 1_000_000


def run(report: Report, seed: int, rounds: int) -> None:
    lines = []
    for title, entries in (("1,000 entries", 1000), ("10 MiB", (10 << 20) // ENTRY.itemsize)):
        numbers = np.random.default_rng(seed)
        native = np.cumsum(numbers.integers(1, 2000, entries)) + 1_700_000_000_000
        file = np.empty(entries, ENTRY)
        file["timestamp"], file["offset"] = native, np.arange(entries) * 10
        index = kts.TimeIndex(file.tobytes(), 0)
        targets = numbers.integers(native[0], native[-1], BATCHED)
        ordered = np.sort(targets)
        singles = random.Random(seed).choices(targets.tolist(), k=SINGLES)
        check(index, native, targets)

        def each_by_kts(index: kts.TimeIndex = index, singles: list[int] = singles) -> None:
            lookup = index.lookup
            for target in singles:
                lookup(target)

        def each_by_numpy(native: np.ndarray = native, singles: list[int] = singles) -> None:
            search = native.searchsorted
            for target in singles:
                search(target)

        def many_by_kts(targets: np.ndarray, index: kts.TimeIndex = index) -> None:
            index.lookup_many(targets)

        def many_by_numpy(targets: np.ndarray, native: np.ndarray = native) -> None:
            native.searchsorted(targets, side="right")

        pairs = [
            ("one at a time", SINGLES, each_by_kts, each_by_numpy),
            ("a million, random", BATCHED, lambda t=targets: many_by_kts(t), lambda t=targets: many_by_numpy(t)),
            ("a million, sorted", BATCHED, lambda t=ordered: many_by_kts(t), lambda t=ordered: many_by_numpy(t)),
        ]
        for how, count, ours, theirs in pairs:
            taken = medians({"kts": cpu_seconds(ours), "numpy": cpu_seconds(theirs)}, rounds)
            nanoseconds = {name: seconds / count * 1e9 for name, seconds in taken.items()}
            ratio = f"{taken['numpy'] / taken['kts']:.1f}x"
            lines.append([f"{title}, {how}", f"{nanoseconds['numpy']:.0f}", f"{nanoseconds['kts']:.0f}", ratio])
    report.table("Time index lookups", ["index", "searchsorted ns", "kts ns", "kts is faster by"], lines)


def check(index: kts.TimeIndex, native: np.ndarray, targets: np.ndarray) -> None:
    """Both answer the same: the last entry that is not later than the target."""
    found, _ = index.lookup_many(targets)
    if not np.array_equal(np.asarray(found), native[native.searchsorted(targets, side="right") - 1]):
        raise ValueError("lookup_many and searchsorted differ")
