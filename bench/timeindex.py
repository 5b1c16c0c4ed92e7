"""Lookups in a time index as it lies in the file, against NumPy's search in a native copy of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

import kts

from .table import Report, cpu_seconds, medians

ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
SINGLES = 20_000
PASSES = 5  # times the single targets are asked for in a round
BATCHED = 1_000_000
FULL = (10 << 20) // ENTRY.itemsize  # entries of an index file of 10 MiB, the broker's limit


def run(report: Report, seed: int, rounds: int) -> None:
    lines = []
    for title, entries, rise in (
        ("1,000 entries", 1000, even),
        ("10 MiB", FULL, even),
        ("10 MiB, traffic in bursts", FULL, bursts),
    ):
        numbers = np.random.default_rng(seed)
        native = np.cumsum(rise(numbers, entries)) + 1_700_000_000_000
        file = np.empty(entries, ENTRY)
        file["timestamp"], file["offset"] = native, np.arange(entries) * 10
        index = kts.TimeIndex(file.tobytes(), 0)
        targets = numbers.integers(native[0], native[-1], BATCHED)
        # Made one after the other, so that both sides find the integers side by side and not strewn over the heap.
        singles = numbers.integers(native[0], native[-1], SINGLES).tolist()
        check(index, native, targets)
        pairs = [("one at a time", SINGLES * PASSES, each(index.lookup, singles), each(native.searchsorted, singles))]
        for how, asked in (("random", targets), ("sorted", np.sort(targets))):
            theirs = partial(native.searchsorted, asked, side="right")
            pairs.append((f"a million, {how}", BATCHED, partial(index.lookup_many, asked), theirs))
        for how, count, ours, theirs in pairs:
            taken = medians({"kts": cpu_seconds(ours), "numpy": cpu_seconds(theirs)}, 2 * rounds + 1)
            nanoseconds = {name: seconds / count * 1e9 for name, seconds in taken.items()}
            ratio = f"{taken['numpy'] / taken['kts']:.1f}x"
            lines.append([f"{title}, {how}", f"{nanoseconds['numpy']:.0f}", f"{nanoseconds['kts']:.0f}", ratio])
    report.table("Time index lookups", ["index", "searchsorted ns", "kts ns", "kts is faster by"], lines)


def even(numbers: np.random.Generator, entries: int) -> np.ndarray:
    """Milliseconds between entries, all from one range."""
    return numbers.integers(1, 2000, entries)


def bursts(numbers: np.random.Generator, entries: int) -> np.ndarray:
    """Milliseconds between entries, mostly few and now and then very many."""
    return np.ceil(numbers.lognormal(5, 2, entries)).astype(np.int64)


def each(search: Callable[[int], object], singles: Sequence[int]) -> Callable[[], None]:
    """One call a target. The loop and the call, about 25 ns, count on both sides."""

    def work() -> None:
        for _ in range(PASSES):
            for target in singles:
                search(target)

    return work


def check(index: kts.TimeIndex, native: np.ndarray, targets: np.ndarray) -> None:
    """Both answer the same: the last entry that is not later than the target."""
    expected = native[native.searchsorted(targets, side="right") - 1]
    found, _ = index.lookup_many(targets)
    if not np.array_equal(np.asarray(found), expected):
        raise ValueError("lookup_many and searchsorted differ")
    if [index.lookup(target)[0] for target in targets[:SINGLES].tolist()] != expected[:SINGLES].tolist():
        raise ValueError("lookup and searchsorted differ")
