"""Lookups in indexes as they lie in the file, against NumPy's search in a native copy of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import kts
from bench.corpora import START_MS

from .cases import Case, Pair, Settings, Work

TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
FULL = 10 << 20  # bytes of an index file, the broker's limit
SINGLES, PASSES = 20_000, 5  # targets that are looked up one at a time, and how often in a round
KEPT, DROPPED, RANDOM, SORTED = "one at a time, kept", "one at a time, dropped", "many, random", "many, sorted"
# Rows: name, bytes of the file, how the entries rise, goals of KEPT, DROPPED, RANDOM and SORTED.
Goals = tuple[float | None, float | None, float | None, float | None]
TIME_ROWS: list[tuple[str, int, str, Goals]] = [
    ("time index, 1,000 entries", 1000 * TIME_ENTRY.itemsize, "even", (4.0, None, 3.5, 3.5)),
    ("time index, 10 MiB", FULL, "even", (2.0, None, 3.5, 3.5)),
    ("time index, 10 MiB, traffic in bursts", FULL, "bursts", (2.0, None, 3.5, 3.5)),
]
OFFSET_ROWS: list[tuple[str, int, str, Goals]] = [
    ("offset index, 1,000 entries", 1000 * OFFSET_ENTRY.itemsize, "even", (None,) * 4),
    ("offset index, 10 MiB", FULL, "even", (None,) * 4),
]


def rises(kind: str, numbers: np.random.Generator, entries: int) -> Any:
    """What lies between entries: all from one range, or mostly little and now and then very much."""
    if kind == "even":
        return numbers.integers(1, 2000, entries)
    return np.ceil(numbers.lognormal(5, 2, entries)).astype(np.int64)


def kept(search: Callable[[int], object], targets: Sequence[int]) -> Callable[[], None]:
    """One call a target, every result kept in a list. The loop counts on both sides, about 25 ns."""

    def call() -> None:
        for _ in range(PASSES):
            [search(target) for target in targets]

    return call


def dropped(search: Callable[[int], object], targets: Sequence[int]) -> Callable[[], None]:
    """One call a target, no result kept."""

    def call() -> None:
        for _ in range(PASSES):
            for target in targets:
                search(target)

    return call


def lookup_case(name: str, file_bytes: int, kind: str, how: str, goal: float | None, settings: Settings) -> Case:
    entry = TIME_ENTRY if name.startswith("time") else OFFSET_ENTRY

    def prepare() -> dict[str, Work]:
        entries = file_bytes // entry.itemsize
        numbers = np.random.default_rng(settings.seed)
        native = np.cumsum(rises(kind, numbers, entries)) + (START_MS if entry is TIME_ENTRY else 0)
        file = np.empty(entries, entry)
        first, second = entry.names or ()
        file[first], file[second] = native, np.arange(entries) * 10
        index = (kts.TimeIndex if entry is TIME_ENTRY else kts.OffsetIndex)(file.tobytes(), 0)
        count = min(SINGLES if how in (KEPT, DROPPED) else 1_000_000, settings.bytes // 16)
        targets = numbers.integers(native[0], native[-1], count)
        check(index, native, targets)
        if how in (KEPT, DROPPED):
            # Made one after the other, so that both sides find the integers side by side and not strewn over the heap.
            singles, repeat = targets.tolist(), kept if how == KEPT else dropped
            return {
                "lookup": Work(repeat(index.lookup, singles), PASSES * count),
                "searchsorted": Work(repeat(native.searchsorted, singles), PASSES * count),
            }
        asked = np.sort(targets) if how == SORTED else targets
        return {
            "lookup": Work(lambda: index.lookup_many(asked), count),
            "searchsorted": Work(lambda: native.searchsorted(asked, side="right"), count),
        }

    pairs = (Pair("lookup", "searchsorted", goal),)
    return Case("indexes", f"{name}, {how}", "ns", ("lookup", "searchsorted"), pairs, prepare)


def check(index: kts.TimeIndex | kts.OffsetIndex, native: Any, targets: Any) -> None:
    """Both answer the same: the last entry that is not later than the target."""
    expected = native[native.searchsorted(targets, side="right") - 1]
    found, _ = index.lookup_many(targets)
    if not np.array_equal(np.asarray(found), expected):
        raise ValueError("lookup_many and searchsorted differ")
    if [index.lookup(target)[0] for target in targets[:SINGLES].tolist()] != expected[:SINGLES].tolist():
        raise ValueError("lookup and searchsorted differ")


def cases(settings: Settings) -> Iterator[Case]:
    for name, file_bytes, kind, goals in TIME_ROWS + OFFSET_ROWS:
        for how, goal in zip((KEPT, DROPPED, RANDOM, SORTED), goals, strict=True):
            yield lookup_case(name, file_bytes, kind, how, goal, settings)
