"""An interrupted swap: which files of a partition directory count after a crash, as a broker completes it.

The cleaner, and the split of a segment, write new segments as ``.cleaned``, rename them ``.swap`` from the last one to
the first, delete the segments that they replace, and give them their names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kts.segment.damage import next_offset
from kts.segment.names import FileName, parse_file_name
from kts.segment.segment import Segment
from kts.store.expanded import without_compression
from kts.store.source import Source, files


class Swaps(NamedTuple):
    """The files of a directory that a start removes or renames, each group in the order of the names.

    Attributes
    ----------
    left_over : list of str
        What a crash left of a clean or a split that did not get as far as a swap.
    logs : list of str
        The ``.log.swap`` files that replace segments.
    covered : list of str
        The files of the segments that they replace.
    """

    left_over: list[str]
    logs: list[str]
    covered: list[str]


def swaps_in(names: Mapping[str, FileName], next_offset: Callable[[str], int], *, one_by_one: bool = False) -> Swaps:
    """The interrupted swaps among the files of a directory.

    Parameters
    ----------
    names : mapping of str to FileName
        The segment files.
    next_offset : callable
        The offset after the last entry of a ``.log.swap`` file.
    one_by_one : bool
        As in 0.10.2, each swap replaces the segments from its base offset to its end, also beside a ``.cleaned`` file.

    Notes
    -----
    A swap at or above a ``.cleaned`` file is one of several whose first is not complete: the old segments count. The
    others together replace the segments from the first one's base offset to the last one's end.

    Source: Log.loadSegments (0.10.2), LogLoader.load (3.9, KAFKA-6264, KAFKA-12520).
    """
    moving = {file: name for file, name in sorted(names.items()) if name.transition}
    if not moving:
        return Swaps([], [], [])
    cleaned = min((name.base_offset for name in moving.values() if name.transition == ".cleaned"), default=2**63)
    left_over = [
        file
        for file, name in moving.items()
        if name.transition != ".swap" or (not one_by_one and name.base_offset >= cleaned)
    ]
    logs = [file for file, name in moving.items() if name.suffix == ".log" and file not in left_over]
    # An empty one replaces the segment of its name alone.
    spans = [(names[file].base_offset, max(next_offset(file), names[file].base_offset + 1)) for file in logs]
    if spans and not one_by_one:
        spans = [(min(first for first, _ in spans), max(end for _, end in spans))]
    covered = [
        file
        for file, name in sorted(names.items())
        if not (name.transition or name.tier_id) and any(first <= name.base_offset < end for first, end in spans)
    ]
    return Swaps(left_over, logs, covered)


def end_of_swap(path: str, name: FileName, source: Source = files) -> int:
    """The offset after the last entry of a ``.log.swap`` file."""
    return next_offset(Segment(path, "", 0, name.base_offset, source=source))


def live_logs(folder: str, names: Iterable[str], source: Source = files) -> dict[tuple[int, str], str]:
    """The paths of the logs that count in a directory, by base offset and id in tiered storage.

    A ``.log.gz`` or ``.log.zst`` counts if its ``.log`` is not there.
    """
    folder = os.path.join(folder, "")
    plain: dict[tuple[int, str], str] = {}
    compressed: dict[tuple[int, str], str] = {}
    is_moving = False
    names = list(names)
    for one in names:
        is_moving = is_moving or one.endswith((".swap", ".cleaned"))
        if not one.endswith((".log", ".gz", ".zst")):
            continue
        name = parse_file_name(without_compression(one))
        if name is not None and name.suffix == ".log" and not name.transition:
            kind = plain if one.endswith(".log") else compressed
            kind[name.base_offset, name.tier_id] = folder + one
    found = compressed | plain
    if is_moving:
        parsed = {one: name for one in names if (name := parse_file_name(one)) is not None}
        swaps = swaps_in(parsed, lambda file: end_of_swap(folder + file, parsed[file], source))
        for file in swaps.covered:
            found.pop((parsed[file].base_offset, ""), None)
        found |= {(parsed[file].base_offset, ""): folder + file for file in swaps.logs}
    return found
