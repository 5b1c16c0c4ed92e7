"""Cutting the end of a partition off on disk, so that whatever stops it, a whole log is there.

While nothing else writes to the log directory: the marker of a clean shutdown goes and the recovery point is lowered,
so that whoever opens the log next recovers it; then the segments behind go, newest first; then the segment that is cut
gets a shorter copy in its place, by a rename. In between the log is the old one, one that ends earlier, or the cut one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kts.config import LogConfig
from kts.dataset.partition import PartitionLog
from kts.errors import LogStorageError
from kts.log.directory import RECOVERY_POINTS, LogDirectory
from kts.log.log import Log
from kts.offline.truncation import TruncationPlan, plan_truncation
from kts.segment import files
from kts.segment.names import LOG_START_OFFSETS, parse_directory_name

COPY_BYTES = 4 * 2**20
UNFINISHED = ".cleaned"  # brokers delete files of this name when they start
OTHERS = (".index", ".timeindex", ".txnindex", ".snapshot")


def truncate_in_place(
    path: str,
    to_offset: int,
    config: LogConfig | Mapping[str, Any] | None = None,
    *,
    clock: Callable[[], int] | None = None,
    opened: Callable[[Log], None] | None = None,
) -> TruncationPlan:
    """Take away what ``plan_truncation`` names, and close the log cleanly.

    Parameters
    ----------
    path : str
        The partition directory.
    config : LogConfig or mapping, optional
        The topic's settings.
    clock : callable, optional
        As for ``Log``.
    opened : callable, optional
        Called with the log before anything is cut: what start-up recovered is in there.

    Raises
    ------
    LogLockedError
        A broker or another program has the log directory.
    LogStorageError
        The disk fails; the log is whole, and is recovered when it is opened.

    Notes
    -----
    The log ends behind the last record that is left, as ``TruncationPlan.next_offset`` has it.
    """
    parent, name = os.path.split(os.path.abspath(path))
    parsed = parse_directory_name(name)
    if parsed is None or parsed.state:
        raise ValueError(f"path: expected a directory called <topic>-<partition>, found {name!r}")
    topic, partition = parsed.topic, parsed.partition
    with _held(LogDirectory(parent, f"{name} is truncated", topic, partition)):
        with Log(path, config, create=False, clock=clock) as log:
            if opened is not None:
                opened(log)
        plan = plan_truncation(PartitionLog(path, topic, partition), to_offset)
        if plan.cuts:
            directory = LogDirectory(parent, name, topic, partition)
            try:
                _cut(directory, path, plan)
            finally:
                directory.leave(clean=False)
            Log(path, config, create=False, clock=clock).close()
    return plan


@contextmanager
def _held(directory: LogDirectory) -> Iterator[None]:
    """Keep the lock of a log directory, and what its marker said of the other partitions."""
    clean = False
    try:
        yield
        clean = True
    finally:
        directory.leave(clean=clean)


def _cut(directory: LogDirectory, path: str, plan: TruncationPlan) -> None:
    end = plan.next_offset
    directory.write_checkpoint(RECOVERY_POINTS, min(directory.checkpoint(RECOVERY_POINTS) or 0, end))
    if (directory.checkpoint(LOG_START_OFFSETS) or 0) > end:
        directory.write_checkpoint(LOG_START_OFFSETS, None)
    if plan.log_start_offset > end and all(cut.whole for cut in plan.cuts):  # nothing is left, it goes on before
        files.WritableFile(os.path.join(path, f"{end:020d}.log"), create=True).close()
        files.sync_directory(path)
    for cut in reversed(plan.cuts):
        if cut.whole:
            files.remove(cut.path)
            files.sync_directory(path)
            for suffix in OTHERS:
                files.remove(cut.path.removesuffix(".log") + suffix, missing_ok=True)
        else:
            _shorten(cut.path, cut.position)


def _shorten(path: str, size: int) -> None:
    """Put the first bytes of a file in its place; its mode and time stay."""
    unfinished = path + UNFINISHED
    try:
        with files.File(path) as source, files.WritableFile(unfinished, create=True) as copy:
            copy.truncate(0)
            for position in range(0, size, COPY_BYTES):
                copy.write(source.read(position, min(COPY_BYTES, size - position)), position)
            copy.sync()
        files.copy_mode(path, unfinished)
        files.set_modified_ms(unfinished, files.modified_ms(path))
        files.rename(unfinished, path)
    except LogStorageError:
        with suppress(LogStorageError):
            files.remove(unfinished, missing_ok=True)
        raise
    files.sync_directory(os.path.dirname(path))
