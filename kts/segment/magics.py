"""What a log knows of its entries' magics, so that a fetch for an old client need not read what it sends unchanged.

Runs are pairs of a position where an entry begins and a magic: no entry from there to the next run has a newer magic.
They are tuples, replaced as a whole: readers need no lock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from kts.codec.layout import HEADER_BYTES, Entries, read_header
from kts.store.local import File

Runs = tuple[tuple[int, int], ...]

UNREAD = 3  # newer than every magic
NOTHING_READ: Runs = ((0, UNREAD),)
MOST_RUNS = 100  # of a segment: only a change of the message format begins a new one, or a hostile leader
READ_BYTES = 1 << 19
MOST_TURNS = 4  # in bytes that are read at once


def newest(runs: Runs, start: int, end: int, enough: int) -> int:
    """The newest known magic between two positions; ``UNREAD`` if some are not known, and none above ``enough`` is."""
    first = bisect_right(runs, (start, UNREAD)) - 1
    found = [magic for _, magic in runs[first : bisect_left(runs, (end,))]]
    return max([magic for magic in found if enough < magic < UNREAD] or found, default=0)


def appended(runs: Runs, position: int, magic: int) -> Runs:
    """The runs of a log that continues at a position, where it may have been truncated, with entries of a magic."""
    before = runs[: bisect_left(runs, (position,))]
    if before and before[-1][1] == magic:
        return before
    return (*(before if len(before) < MOST_RUNS else NOTHING_READ), (position, magic))


def learned(runs: Runs, found: Runs, end: int) -> Runs:
    """The runs with those that ``read`` found up to a position."""
    last = bisect_right(runs, (end, UNREAD))
    joined = _merged((*runs[: bisect_left(runs, found[0][:1])], *found, (end, runs[last - 1][1]), *runs[last:]))
    return joined if len(joined) <= MOST_RUNS else learned(NOTHING_READ, found, end)


def _merged(runs: Iterable[tuple[int, int]]) -> Runs:
    return tuple(run for before, run in pairwise(((-1, -1), *runs)) if run[1] != before[1])


def read(file: File, start: int, end: int, size: int, enough: int) -> tuple[Runs, int]:
    """The runs of the entries that begin between two positions, from their headers, and the end of the last one.

    Parameters
    ----------
    size : int
        The end of the log.
    enough : int
        Stop behind an entry of a newer magic.

    Notes
    -----
    The runs also stop at damage and at an incomplete entry. Where magics alternate, one run covers many entries.
    """
    found: list[tuple[int, int]] = []
    position, top = start, 0
    memory = memoryview(bytearray(min(READ_BYTES, end - start)))
    while position < end and top <= enough:
        count = file.read_into(memory[: end - position], position)
        entries = Entries(memory[:count], start=position, until_damage=True)
        if len(entries):
            magics = entries.column("magic")
            here = int(magics.max())
            turns = np.flatnonzero(magics[1:] != magics[:-1]) + 1
            if len(turns) <= MOST_TURNS:
                found.append((position, int(magics[0])))
                found += zip(entries.column("position")[turns].tolist(), magics[turns].tolist(), strict=True)
            else:
                found.append((position, here))
            position, top = entries.end, max(top, here)
            continue
        head = file.read(position, min(HEADER_BYTES, size - position))  # it ends behind what was read
        entry = read_header(head, start=position) if entries.error is None else None
        if entry is None or entry.end > size:
            break
        found.append((position, entry.magic))
        position, top = entry.end, max(top, entry.magic)
    runs = _merged(found)
    return (runs if len(runs) <= MOST_RUNS // 2 else ((start, top),)), position
