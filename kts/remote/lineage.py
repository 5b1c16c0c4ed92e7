"""Which copy in tiered storage holds an offset of the log: the leader epochs decide between copies.

The lineage is a list of (epoch, start offset): the branch of history that the log followed. Copies may overlap (after
a change of leaders, or a copy that failed), and may hold records of a branch that an unclean election cut off.

Source: RemoteLogLeaderEpochState, RemoteLogMetadataCache, LeaderEpochFileCache.epochForOffset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kts.arguments import INT64_MAX
from kts.remote.metadata import COPY_FINISHED, Copy

Lineage = Sequence[tuple[int, int]]


class Piece(NamedTuple):
    """The offsets of the log that are read from one copy; ``end`` is not included. No copy: none has these offsets."""

    copy: Copy | None
    start: int
    end: int


class _Epoch:
    """The copies of one epoch: the offset from which each is used, in order."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.copies: list[tuple[Copy, int]] = []  # with the last offset that it has of the epoch
        self.highest = -1

    def finished(self, copy: Copy, first: int, last: int) -> None:
        while self.starts and self.starts[-1] >= first and self.highest <= last:  # replaced
            self.starts.pop()
            self.copies.pop()
        at = bisect_right(self.starts, first)
        if at and self.starts[at - 1] == first:
            self.copies[at - 1] = copy, last
        else:
            self.starts.insert(at, first)
            self.copies.insert(at, (copy, last))
        self.highest = max(self.highest, last)

    def deleted(self, copy: Copy, first: int) -> None:
        at = bisect_right(self.starts, first) - 1
        if at >= 0 and self.starts[at] == first and self.copies[at][0].segment_id == copy.segment_id:
            del self.starts[at], self.copies[at]


class Epochs:
    """The copies by leader epoch.

    Parameters
    ----------
    changes : iterable of Copy
        Each copy when it was finished, and when its deletion began, in order.
    """

    def __init__(self, changes: Iterable[Copy]) -> None:
        self._epochs: dict[int, _Epoch] = {}
        for copy in changes:
            for epoch, first, last in copy.epoch_ends():
                known = self._epochs.setdefault(epoch, _Epoch())
                if copy.state == COPY_FINISHED:
                    known.finished(copy, first, last)
                else:
                    known.deleted(copy, first)

    def find(self, epoch: int, offset: int) -> tuple[Copy, int] | None:
        """The copy with an offset of an epoch, and its last offset of that epoch."""
        known = self._epochs.get(epoch)
        at = -1 if known is None else bisect_right(known.starts, offset) - 1
        if known is None or at < 0 or known.copies[at][1] < offset:
            return None
        return known.copies[at]

    def next_start(self, epoch: int, offset: int) -> int | None:
        """The first offset after a given one from which a copy of an epoch is used."""
        known = self._epochs.get(epoch)
        at = 0 if known is None else bisect_right(known.starts, offset)
        return None if known is None or at == len(known.starts) else known.starts[at]

    def pieces(self, lineage: Lineage, start: int, stop: int = INT64_MAX) -> list[Piece]:
        """The pieces of the log from the first offset at or after ``start`` that a copy has, up to ``stop``.

        Notes
        -----
        A copy is left where the lineage leaves its epoch: what it has after a fork is not part of the log. Offsets that
        no copy has are a piece without a copy, unless no later ones are there and ``stop`` is open.
        """
        found: list[Piece] = []
        offset = max(start, lineage[0][1]) if lineage else stop
        lost: int | None = None
        at = 0
        while offset < stop:
            while at + 1 < len(lineage) and lineage[at + 1][1] <= offset:
                at += 1
            end = lineage[at + 1][1] if at + 1 < len(lineage) else INT64_MAX
            one = self.find(lineage[at][0], offset)
            if one is None:
                lost = offset if lost is None and found else lost
                following = self.next_start(lineage[at][0], offset)
                offset = end if following is None else min(following, end)
                continue
            copy, last = one
            end = min(last + 1, end, stop)
            if lost is not None:
                found.append(Piece(None, lost, offset))
                lost = None
            if found and found[-1].copy is copy:
                found[-1] = found[-1]._replace(end=end)
            else:
                found.append(Piece(copy, offset, end))
            offset = end
        if lost is not None and stop < INT64_MAX:
            found.append(Piece(None, lost, stop))
        return found


class Part(NamedTuple):
    """A copy as a segment of the log: ``end`` is where the next one begins, None if all of it is read."""

    copy: Copy | None
    base_offset: int
    end: int | None


def parts_of(pieces: Sequence[Piece], stop: int = INT64_MAX) -> list[Part]:
    """The pieces as segments that follow one another: each is cut at its end alone.

    Notes
    -----
    A segment begins before its piece where the one before it was left late. Replicas with the same epoch at an offset
    have the same records before it, so the earlier segment can as well be left where the later one begins.
    """
    found: list[Part] = []
    for piece in reversed(pieces):
        base = piece.start if piece.copy is None else piece.copy.start_offset
        following = found[-1].base_offset if found else stop
        if base >= following:
            continue
        end = min(piece.end, following)
        whole = piece.copy is not None and piece.copy.end_offset < end
        found.append(Part(piece.copy, base, None if whole else end))
    return found[::-1]


def best_end(copies: Iterable[Copy]) -> Copy | None:
    """The copy whose leader epochs are the lineage where no log directory tells it: the newest epoch, then the end."""
    return max(copies, key=lambda copy: (copy.leader_epochs[-1][0], copy.end_offset), default=None)
