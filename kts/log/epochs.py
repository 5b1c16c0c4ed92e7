"""Leader epochs: which began at which offset, as ``leader-epoch-checkpoint`` keeps it, and where one ended (KIP-101).

Epochs are (epoch, start offset), oldest first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kts.codec.layout import Entries
from kts.segment import checkpoints, files
from kts.segment.entries import Slices
from kts.segment.names import LEADER_EPOCHS

if TYPE_CHECKING:
    from kts.segment.log_segment import LogSegment

UNDEFINED = -1


class LeaderEpochs:
    """The epochs of a log. Every change is written to the file.

    Parameters
    ----------
    directory : str
        The partition's. A missing or malformed file counts as empty.
    kept : bool
        False for a release or message format without epochs: none is ever known, and no file is written.

    Attributes
    ----------
    is_malformed : bool
        The file was there, and could not be understood.

    Notes
    -----
    Source: LeaderEpochFileCache (3.9).
    """

    def __init__(self, directory: str, *, kept: bool = True) -> None:
        self.path = os.path.join(directory, LEADER_EPOCHS)
        self.kept = kept
        self.entries: list[tuple[int, int]] = []
        self.unwritten = self.is_malformed = False
        if not kept:
            return
        found = checkpoints.read_leader_epochs(self.path)
        self.is_malformed = found is None and files.exists(self.path) and files.size_of(self.path) > 0
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
        """Note that a leader starts at an offset. The file follows with its first batch, or when the log closes."""
        entries = _with(self.entries, epoch, start_offset) if epoch >= 0 else None
        if entries is not None and self.kept:
            self.entries, self.unwritten = entries, True

    def write(self) -> None:
        """Bring the file up to date."""
        if self.unwritten:
            self._write(self.entries)

    def follow(self, entries: Entries, epoch: int | None = None) -> None:
        """A set is about to be appended: an epoch begins with its first batch of that epoch.

        Parameters
        ----------
        epoch : int, optional
            That of every batch; None reads them from the batches.
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
        """Drop the epochs that began at or behind an offset."""
        kept = [entry for entry in self.entries if entry[1] < end_offset]
        if end_offset >= 0 and len(kept) != len(self.entries):
            self._write(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins at an offset now: drop the epochs before the one it lies in, which begins there."""
        gone = [entry for entry in self.entries if entry[1] <= start_offset]
        if gone and (len(gone) > 1 or gone[-1][1] != start_offset):
            self._write([(gone[-1][0], start_offset), *self.entries[len(gone) :]])

    def replace(self, entries: list[tuple[int, int]]) -> None:
        """Have these entries in place of the others."""
        self._write(entries)

    def clear(self) -> None:
        """Drop all epochs."""
        if self.entries:
            self._write([])

    def _write(self, entries: list[tuple[int, int]]) -> None:
        if not self.kept:
            return
        checkpoints.write_leader_epochs(self.path, entries)
        self.entries, self.unwritten = entries, False


def end_offset_for(epochs: Sequence[tuple[int, int]], epoch: int, log_end_offset: int) -> tuple[int, int]:
    """The largest epoch up to one that is asked for, and the offset where it ended; (-1, -1) if that is unknown.

    Notes
    -----
    An epoch before all known ones is answered with itself and the start of the first: the log was cut there, and a
    follower goes on from it. Source: LeaderEpochFileCache.endOffsetFor (3.9).
    """
    if epoch == UNDEFINED or not epochs or epoch > epochs[-1][0]:
        return UNDEFINED, UNDEFINED
    if epoch == epochs[-1][0]:
        return epoch, log_end_offset
    later = next(number for number, (one, _) in enumerate(epochs) if one > epoch)
    return epochs[later - 1][0] if later else epoch, epochs[later][1]


def epoch_for(epochs: Sequence[tuple[int, int]], offset: int) -> int:
    """The epoch of the leader that wrote an offset, -1 if that is unknown. Source: LeaderEpochFileCache (3.9)."""
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), UNDEFINED)


def epochs_of(segments: Sequence[LogSegment], log_start_offset: int) -> list[tuple[int, int]]:
    """The epochs that the batches of some segments show.

    No CRC covers an epoch in a batch: if later batches contradict it, theirs counts.
    """
    pairs = []
    for segment in segments:
        for batches in Slices(segment.log_file(), 0, segment.size):
            chosen = (batches.column("magic") == 2) & (batches.column("partitionLeaderEpoch") >= 0)
            chosen &= batches.column("lastOffset") >= log_start_offset
            epochs, bases = batches.column("partitionLeaderEpoch")[chosen], batches.column("baseOffset")[chosen]
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
