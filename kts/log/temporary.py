"""Files that a crash left half way: deletions to finish, cleanings to forget, swaps to complete."""

from __future__ import annotations

import os

from kts.config import LogConfig
from kts.segment import files
from kts.segment.names import FileName, parse_file_name
from kts.segment.recovery import Recovered, Rules, rebuild


def finish(path: str, config: LogConfig, *, shipped: bool) -> list[Recovered]:
    """Remove ``.deleted`` and ``.cleaned`` files, and put ``.swap`` files in the place of the segments they cover.

    Returns
    -------
    list of Recovered
        What was removed or renamed.

    Notes
    -----
    Source: Log.loadSegments (0.10.2), LogLoader.removeTempFilesAndCollectSwapFiles (3.9).
    """
    old = config.generation == "0.10.2"
    found: list[Recovered] = []
    names = _names(path)
    cleaned = [name.base_offset for name in names.values() if name.transition == ".cleaned"]
    for file, name in names.items():
        late_swap = name.transition == ".swap" and not old and name.base_offset >= min(cleaned, default=2**63)
        if name.transition in (".deleted", ".cleaned") or late_swap:
            found.append(_remove(os.path.join(path, file), f"left over: a file called {name.transition}"))
    swaps = {file: name for file, name in _names(path).items() if name.transition == ".swap"}
    logs = {file: name for file, name in swaps.items() if name.suffix == ".log"}
    for file, name in swaps.items():
        covered = any(log.base_offset == name.base_offset for log in logs.values())
        if not covered or (old and name.suffix in (".index", ".timeindex")):
            found.append(_remove(os.path.join(path, file), "a swapped index that has to be made anew"))
    for file, name in logs.items():
        found += _swap(path, file, name, config, shipped)
    return found


def _swap(path: str, file: str, swap: FileName, config: LogConfig, shipped: bool) -> list[Recovered]:
    """Remove the segments that a swapped log covers, then give it its name."""
    found = []
    rules = Rules(config.index_interval_bytes, config.segment_index_bytes, config.generation, shipped)
    with files.File(os.path.join(path, file)) as log:
        end = rebuild(log, log.size(), swap.base_offset, rules).next_offset
    for other, name in _names(path).items():
        if (
            not name.transition
            and not name.tier_id
            and swap.base_offset <= name.base_offset < max(end, swap.base_offset + 1)
        ):
            found.append(_remove(os.path.join(path, other), f"covered by {file}"))
    files.sync_directory(path)
    for other, name in _names(path).items():
        if name.transition == ".swap" and name.base_offset == swap.base_offset:
            source = os.path.join(path, other)
            found.append(Recovered(source, 0, 0, "renamed: an interrupted swap is completed", 0))
            files.rename(source, source.removesuffix(".swap"))
    return found


def _remove(path: str, why: str) -> Recovered:
    size = files.size_of(path)
    files.remove(path)
    return Recovered(path, 0, size, why, 0)


def _names(path: str) -> dict[str, FileName]:
    names = {entry.name: parse_file_name(entry.name) for entry in files.list_directory(path)}
    return {file: name for file, name in names.items() if name is not None}
