"""What the study counts: segments, times of deletion, late messages, as sums over chunks of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kts.config import HOUR_MS

from .rules import at_source, play
from .workloads import START_MS

if TYPE_CHECKING:
    import numpy.typing as npt

    from .rules import Played, SegmentRule
    from .workloads import MessageStream, Settings

STEPS = 100  # of a spread, in each factor of 2.72: a quantile is right within 1 %
POWERS = 44  # e^44 is more than the greatest time


class Spread:
    """A distribution of lengths of time in bounded memory: counts by size, and the exact least and greatest."""

    def __init__(self) -> None:
        self._counts = np.zeros(2 * STEPS * POWERS + 1, np.int64)
        self.least: int | None = None
        self.greatest: int | None = None

    def add(self, lengths: npt.NDArray[np.int64]) -> None:
        """Count lengths in ms."""
        if not lengths.size:
            return
        places = np.rint(np.log1p(np.abs(lengths.astype(float))) * STEPS).astype(np.int64) * np.sign(lengths)
        self._counts += np.bincount((places + STEPS * POWERS).ravel(), minlength=len(self._counts))
        least, greatest = int(lengths.min()), int(lengths.max())
        self.least = least if self.least is None else min(least, self.least)
        self.greatest = greatest if self.greatest is None else max(greatest, self.greatest)

    def quantile(self, part: float) -> int | None:
        """The length that is not exceeded by a part of those counted, within 1 %; None if nothing was counted."""
        if self.least is None or self.greatest is None:
            return None
        sums = np.cumsum(self._counts)
        place = int(np.searchsorted(sums, max(part * sums[-1], 1))) - STEPS * POWERS
        found = round(float(np.expm1(abs(place) / STEPS)))
        return min(max(-found if place < 0 else found, self.least), self.greatest)

    def below_zero(self) -> float:
        """The part below 0."""
        count = int(self._counts.sum())
        return int(self._counts[: STEPS * POWERS].sum()) / count if count else 0.0

    def as_object(self) -> dict[str, Any]:
        """Quantiles, in ms."""
        named = {"median": 0.5, "p90": 0.9, "p99": 0.99}
        found = {name: self.quantile(part) for name, part in named.items()}
        return {"least": self.least, **found, "greatest": self.greatest}

    def curve(self) -> list[int | None]:
        """The lengths that 0 %, 2 % ... 100 % do not exceed."""
        return [self.quantile(part / 100) for part in range(0, 101, 2)]


class Figures:
    """What one rule does to the streams of one pattern."""

    def __init__(self, rule: SegmentRule, settings: Settings) -> None:
        self._rule, self._settings = rule, settings
        self.partitions = self.messages = self.segments = self.single = self.closed = self.early = self.late = 0
        self.open, self.after_creation, self.after_arrival, self.apart, self.lateness = (Spread() for _ in range(5))
        self.right_window = 0
        self._begun = np.zeros(-(-settings.duration_ms // HOUR_MS), np.int64)

    def add(self, stream: MessageStream) -> Played:
        """Play some partitions and count."""
        settings, arrival = self._settings, stream.arrival_ms
        played = play(self._rule, stream.create_ms, arrival, settings)
        rows, count = arrival.shape
        starts = np.flatnonzero(played.begins)
        sizes = np.diff(np.append(starts, rows * count))
        first = arrival.ravel()[starts]
        in_row = (starts + sizes) % count != 0  # another segment of the partition follows
        until = np.where(in_row, np.append(first[1:], 0), arrival.ravel()[starts + sizes - 1])
        self.partitions += rows
        self.messages += rows * count
        self.segments += len(starts)
        self.single += int((sizes == 1).sum())
        self.closed += int(in_row.sum())
        self.early += int((in_row & (2 * (until - first) < settings.roll_ms)).sum())
        self.open.add(until - first)
        self.after_creation.add(played.deleted_ms - stream.created_ms - settings.retention_ms)
        self.after_arrival.add(played.deleted_ms - arrival - settings.retention_ms)
        self.apart.add(np.abs(played.deleted_ms - at_source(self._rule, stream, settings)))
        behind = np.maximum.accumulate(played.stored_ms, axis=1) - played.stored_ms
        self.late += int((behind > 0).sum())
        self.lateness.add(behind[behind > 0])
        self.right_window += int((played.stored_ms // HOUR_MS == stream.created_ms // HOUR_MS).sum())
        hours = (first - START_MS) // HOUR_MS
        self._begun += np.bincount(np.clip(hours, 0, len(self._begun) - 1), minlength=len(self._begun))
        return played

    def as_object(self) -> dict[str, Any]:
        """All figures; lengths of time in ms."""
        hours = self._settings.duration_ms / HOUR_MS
        return {
            "messages": self.messages,
            "segments": self.segments,
            "messagesPerSegment": self.messages / max(self.segments, 1),
            "segmentsPerPartition": self.segments / max(self.partitions, 1),
            "segmentsPerHour": self.segments / max(self.partitions, 1) / hours,
            "segmentsOfOneMessage": self.single,
            "closedEarly": self.early / max(self.closed, 1),
            "openMs": self.open.as_object(),
            "deletedAfterCreationMs": self.after_creation.as_object() | {"early": self.after_creation.below_zero()},
            "deletedAfterArrivalMs": self.after_arrival.as_object() | {"early": self.after_arrival.below_zero()},
            "deletedApartMs": self.apart.as_object(),
            "lateMessages": self.late,
            "latenessMs": self.lateness.as_object(),
            "inRightHour": self.right_window / max(self.messages, 1),
            "begunByHour": self._begun.tolist(),
            "deletedAfterCreationCurveMs": self.after_creation.curve(),
        }
