"""Leader epochs and their start offsets, as in ``leader-epoch-checkpoint``, and the end offset of an epoch (KIP-101).

Epochs are (epoch, start offset), oldest first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kts.codec.layout import Entries
from kts.segment import checkpoints
from kts.segment.entries import Slices
from kts.segment.names import LEADER_EPOCHS
from kts.store.source import Source, files

if TYPE_CHECKING:
    from kts.segment.log_segment import LogSegment

UNDEFINED = -1


class LeaderEpochs:
    """The epochs of a log. Every change is written to the file at once, except by ``begin``.

    Parameters
    ----------
    directory : str
        The partition's. A missing or malformed file counts as empty.
    kept : bool
        False for a release or message format without epochs: there are no entries, and no file is written.

    Attributes
    ----------
    fault : str or None
        What is wrong with the existing file.

    Notes
    -----
    Source: LeaderEpochFileCache (3.9).
    """

    def __init__(self, directory: str, *, kept: bool = True, source: Source = files) -> None:
        self.path = os.path.join(directory, LEADER_EPOCHS)
        self.kept, self._source = kept, source
        self.entries: list[tuple[int, int]] = []
        self.unwritten, self.fault = False, None
        if not kept:
            return
        found = checkpoints.read_leader_epochs(self.path, source)
        self.fault = checkpoints.fault_of(self.path, source) if found is None else None
        for epoch, start in found or ():
            if epoch >= 0 and start >= 0:
                self.entries = _with(self.entries, epoch, start) or self.entries

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if there is none."""
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that an epoch began at an offset. Entries that contradict it are dropped."""
        entries = _with(self.entries, epoch, start_offset) if epoch >= 0 else None
        if entries is not None:
            self._write(entries)

    def begin(self, epoch: int, start_offset: int) -> None:
        """Note that a leader starts at an offset. The file is written with its first batch, or when the log closes."""
        entries = _with(self.entries, epoch, start_offset) if epoch >= 0 else None
        if entries is not None and self.kept:
            self.entries, self.unwritten = entries, True

    def write(self) -> None:
        """Write the file if it is out of date."""
        if self.unwritten:
            self._write(self.entries)

    def follow(self, entries: Entries, epoch: int | None = None) -> None:
        """Note the epochs of a set that is about to be appended: each begins with its first batch.

        Parameters
        ----------
        epoch : int, optional
            The epoch of every batch; None reads the epochs from the batches.
        """
        if not self.kept:
            return
        if entries[0].magic < 2:
            self.clear()
            return
        if self.unwritten:
            self._write(self.entries)
        if epoch is None or not self.entries or epoch != self.entries[-1][0]:
            for entry in entries:
                if entry.magic == 2 and entry.leader_epoch != self.latest:
                    self.assign(entry.leader_epoch, entry.base_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that began at or after an offset."""
        kept = [entry for entry in self.entries if entry[1] < end_offset]
        if end_offset >= 0 and len(kept) != len(self.entries):
            self._write(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Start the epochs at a new log start offset: the epoch of that offset begins there, earlier ones go."""
        gone = [entry for entry in self.entries if entry[1] <= start_offset]
        if gone and (len(gone) > 1 or gone[-1][1] != start_offset):
            self._write([(gone[-1][0], start_offset), *self.entries[len(gone) :]])

    def replace(self, entries: list[tuple[int, int]]) -> None:
        """Replace all entries."""
        self._write(entries)

    def clear(self) -> None:
        """Drop all epochs."""
        if self.entries:
            self._write([])

    def _write(self, entries: list[tuple[int, int]]) -> None:
        if not self.kept:
            return
        checkpoints.write_leader_epochs(self.path, entries, self._source)
        self.entries, self.unwritten = entries, False


def end_offset_for(epochs: Sequence[tuple[int, int]], epoch: int, log_end_offset: int) -> tuple[int, int]:
    """The largest epoch up to the requested one, and its end offset; (-1, -1) if unknown.

    Notes
    -----
    For an epoch before all known ones, the answer is that epoch and the start of the first known one: the log was cut
    there, and a follower continues from it. Source: LeaderEpochFileCache.endOffsetFor (3.9).
    """
    if epoch == UNDEFINED or not epochs or epoch > epochs[-1][0]:
        return UNDEFINED, UNDEFINED
    if epoch == epochs[-1][0]:
        return epoch, log_end_offset
    later = next(number for number, (one, _) in enumerate(epochs) if one > epoch)
    return epochs[later - 1][0] if later else epoch, epochs[later][1]


def epoch_for(epochs: Sequence[tuple[int, int]], offset: int) -> int:
    """The epoch of the leader that wrote an offset, -1 if unknown. Source: LeaderEpochFileCache (3.9)."""
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), UNDEFINED)


def epochs_of(segments: Sequence[LogSegment], log_start_offset: int) -> list[tuple[int, int]]:
    """The epochs that the batches of segments have.

    The CRC does not cover the epoch of a batch: if a later batch has a lower epoch, that one counts for both.
    """
    pairs = []
    for segment in segments:
        for batches in Slices(segment.log_file(), 0, segment.size):
            chosen = (batches.column("magic") == 2) & (batches.column("leader_epoch") >= 0)
            chosen &= batches.column("last_offset") >= log_start_offset
            epochs, bases = batches.column("leader_epoch")[chosen], batches.column("base_offset")[chosen]
            changes = np.flatnonzero(np.diff(epochs, prepend=-1) != 0)
            pairs += list(zip(epochs[changes].tolist(), bases[changes].tolist(), strict=True))
    found: list[tuple[int, int]] = []
    for epoch, base in reversed(pairs):
        lowest = min(epoch, found[-1][0]) if found else epoch
        if found and found[-1][0] == lowest:
            found.pop()
        found.append((lowest, max(base, log_start_offset)))
    return found[::-1]


def _with(entries: list[tuple[int, int]], epoch: int, start_offset: int) -> list[tuple[int, int]] | None:
    """The entries with a new one, without those that contradict it; None if it adds nothing."""
    if entries and entries[-1][0] == epoch and start_offset >= entries[-1][1]:
        return None
    kept = list(entries)
    while kept and (kept[-1][0] >= epoch or kept[-1][1] >= start_offset):
        kept.pop()
    return [*kept, (epoch, start_offset)]
