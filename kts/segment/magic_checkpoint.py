"""The magics of closed segments, so that the first fetch of an old client after a start reads no headers.

A line for each segment with messages of magic 0 or 1, written at a clean stop::

    topic partition base-offset inode log-bytes changed-ns 0:magic [position:magic ...]

From each position on, no entry has a newer magic than the one after it; 3 means that they are not known. Inode, length
and time of the last change (ctime, which programs cannot set) are those of the ``.log`` when it was closed. A line is
believed after a clean stop only, if the file still has them, and if it was last changed before the line was written: a
time counts a few milliseconds as one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from kts.segment.magics import Runs
from kts.segment.segment_lines import SegmentLines
from kts.store.source import Source, files

State = tuple[int, ...]  # inode, bytes, and time of the last change in ns


class NotedMagics(NamedTuple):
    """The magics of a segment, and the state of its log when it was closed."""

    log: State
    runs: Runs


def state_of(path: str, source: Source = files) -> State:
    """The state of a file; it changes when the file is replaced or written."""
    return (source.identity(path) or ())[1:]


class MagicCheckpoint(SegmentLines):
    """The file of a log directory with the magics of its closed segments."""

    file = "kts-magic-checkpoint"
    line = re.compile(r"(?am)^(\S+) (\d{1,10}) (\d{1,19} \d{1,20} \d{1,19} -?\d{1,20} 0:[0-3](?: \d{1,10}:[0-3])*\n)")
    line_bytes = 2048
    expected = "a partition, four numbers and runs of magics"

    def __init__(self, directory: str, source: Source = files) -> None:
        super().__init__(directory, source)
        self._written = self._time()

    def _time(self) -> int:
        """When the file was written, in ns."""
        state = state_of(self.path, self._source) if self.fault is None else ()
        return state[-1] if state else 0

    def of(self, topic: str, partition: int) -> dict[int, NotedMagics]:
        """The segments of a partition by base offset, less those that may have changed after they were noted."""
        found: dict[int, NotedMagics] = {}
        for line in self._lines(topic, partition):
            base, inode, size, changed, *shown = line.split(" ")
            runs = tuple((int(position), int(magic)) for position, _, magic in (one.partition(":") for one in shown))
            rising = all(before[0] < after[0] for before, after in pairwise(runs))
            if int(changed) < self._written and rising:
                found[int(base)] = NotedMagics((int(inode), int(size), int(changed)), runs)
        return found

    def replace(self, topic: str, partition: int, segments: Mapping[int, NotedMagics]) -> None:
        """Replace the lines of a partition."""
        runs = {base: " ".join(f"{position}:{magic}" for position, magic in one.runs) for base, one in segments.items()}
        lines = {base: f"{' '.join(map(str, one.log))} {runs[base]}" for base, one in segments.items()}
        self._replace(topic, partition, lines)

    def write(self) -> None:
        """Write the file atomically, if its content changed."""
        if self._changed:
            super().write()
            self._written = self._time()
