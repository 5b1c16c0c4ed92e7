"""The rules by which a partition's times are bad: another unit, the future, the past, none, out of order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts.arguments import INT64_MAX
from kts.behaviour import NEWEST
from kts.config import LogConfig
from kts.model import NO_TIMESTAMP
from kts.times import LIKELY_UNITS, UNIT_NAMES, UNITS, YEAR_2000_MS

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

NEIGHBOURS, LEAST_NEIGHBOURS = 11, 3  # batches on each side, with the median of which one is compared
FUTURE, PAST, NONE, AHEAD, LATE, STEPS_BACK = (
    "future",
    "past",
    "no-timestamp",
    "ahead",
    "late",
    "append-time-steps-back",
)
KINDS = (*UNIT_NAMES.values(), FUTURE, PAST, NONE, AHEAD, LATE, STEPS_BACK)
TOO_LATE = tuple(KINDS.index(kind) + 1 for kind in ("microseconds", "nanoseconds", FUTURE, AHEAD))  # they keep segments
FINE = 0


class TimeLimits(NamedTuple):
    """By how much times may differ.

    Attributes
    ----------
    now_ms : int
        The clock.
    after_ms : int
        How far a time may be ahead of the clock, or of the modification time of its file.
    disorder_ms : int
        How far a record may lie behind others before it: the least of the roll time and the retention.
    """

    now_ms: int
    after_ms: int
    disorder_ms: int

    @classmethod
    def of(cls, config: LogConfig, now_ms: int) -> TimeLimits:
        """The limits of a topic."""
        own = config.message_timestamp_after_max_ms
        after = own if own < INT64_MAX else LogConfig(release=NEWEST.release).message_timestamp_after_max_ms
        expires = config.deletes and config.retention_ms >= 0
        return cls(now_ms, after, min(config.max_segment_ms, config.retention_ms) if expires else config.max_segment_ms)

    def future_from(self, ms: int) -> int:
        """The greatest time that is not in the future of a clock."""
        return min(ms + self.after_ms, INT64_MAX)


class Points(NamedTuple):
    """Times of a partition in the order of its offsets: of records, or the first and the greatest of a batch.

    Attributes
    ----------
    time, offset, batch
        Each point's time, its offset, and the number of its batch.
    appended, control, timed
        Whether its batch has the type LogAppendTime; is a control batch; and has a format with timestamps.
    latest_ms
        The greatest time that is not in the future of its segment's file.
    """

    time: Int64s
    offset: Int64s
    batch: Int64s
    appended: Bools
    control: Bools
    timed: Bools
    latest_ms: Int64s


def judged(points: Points, limits: TimeLimits) -> tuple[npt.NDArray[np.int8], Int64s]:
    """The kind of each point, ``FINE`` or one more than its place in ``KINDS``; and by how many ms it is too early.

    Notes
    -----
    The first rule that fits counts.

    - Another unit: the number looks like seconds, micro- or nanoseconds (``kts.times.LIKELY_UNITS``), and read so it
      is from the year 2000 on and not in the future.
    - ``future``: more than ``after_ms`` ahead of the clock, or of the modification time of the segment's file.
    - ``past``: before the year 2000.
    - ``no-timestamp``: -1, where others have a timestamp.
    - ``ahead``: more than ``disorder_ms`` ahead of batches after it, and these are right: see ``_ahead``.
    - ``late``: more than ``disorder_ms`` behind a record before it.
    - ``append-time-steps-back``: an append time that is below one before it.

    The last two rules and ``past`` leave out control records, and all but ``future`` and the last one are about
    CreateTime.
    """
    time, kinds = points.time, np.zeros(len(points.time), np.int8)
    behind = np.zeros(len(time), np.int64)

    def mark(kind: str, where: Bools) -> None:
        kinds[where & (kinds == FINE)] = KINDS.index(kind) + 1

    created = points.timed & ~points.appended & ~points.control
    for unit in UNIT_NAMES:
        mark(UNIT_NAMES[unit], created & in_unit(time, unit, limits))
    mark(FUTURE, points.timed & (time > np.minimum(points.latest_ms, limits.future_from(limits.now_ms))))
    mark(PAST, created & (time < YEAR_2000_MS) & (time != NO_TIMESTAMP))
    if (time[created] != NO_TIMESTAMP).any():
        mark(NONE, created & (time == NO_TIMESTAMP))
    fine = np.flatnonzero(created & (kinds == FINE) & (time != NO_TIMESTAMP))
    if len(fine) and (_greatest_before(time[fine]) - time[fine] > limits.disorder_ms).any():
        mark(AHEAD, _chosen(fine[_ahead(time[fine], points.batch[fine], limits.disorder_ms)], len(time)))
        fine = fine[kinds[fine] == FINE]
        late = _greatest_before(time[fine]) - time[fine]
        behind[fine] = np.maximum(late, 0)
        mark(LATE, _chosen(fine[late > limits.disorder_ms], len(time)))
    stamped = np.flatnonzero(points.appended & ~points.control & (kinds == FINE) & (time >= 0))
    if len(stamped):
        late = _greatest_before(time[stamped]) - time[stamped]
        behind[stamped] = np.maximum(late, 0)
        mark(STEPS_BACK, _chosen(stamped[late > 0], len(time)))
    return kinds, behind


def in_unit(times: Int64s, unit: str, limits: TimeLimits) -> Bools:
    """Whether numbers look like a unit other than ms, and are likely times in it."""
    found = np.zeros(len(times), np.bool_)
    for least, end, likely in LIKELY_UNITS:
        if likely == unit:
            found |= (times >= least) & (times <= min(end - 1, INT64_MAX))
    read: Int64s = read_in(np.where(found, times, 0), unit)
    return found & (read >= YEAR_2000_MS) & (read <= limits.future_from(limits.now_ms))


def read_in(times: Any, unit: str) -> Any:
    """Numbers of a unit in ms."""
    return times * UNITS[unit].numerator // UNITS[unit].denominator


def unit_of(kind: str) -> str | None:
    """The unit that a kind is about."""
    return next((unit for unit, name in UNIT_NAMES.items() if name == kind), None)


def _chosen(numbers: Any, count: int) -> Bools:
    found = np.zeros(count, np.bool_)
    found[numbers] = True
    return found


def _greatest_before(times: Int64s) -> Int64s:
    """The greatest up to each; differences of times from the year 2000 on cannot overflow."""
    return np.maximum.accumulate(times)


def _least_after(times: Int64s) -> Int64s:
    """The least after each; beyond the last one the greatest number, less the room that a difference needs."""
    found = np.full(len(times), INT64_MAX >> 1, np.int64)
    found[:-1] = np.minimum.accumulate(times[:0:-1])[::-1]
    return found


def _ahead(times: Int64s, batches: Int64s, limit_ms: int) -> Bools:
    """Which times are ahead of later ones, where it is not the later ones that are late.

    A batch that is ahead of, or behind, the medians of those before and after it is wrong, and not these. Of longer
    rows, between which there is no order either, the shorter one is wrong.
    """
    starts = np.flatnonzero(np.diff(batches, prepend=-1))
    greatest = np.maximum.reduceat(times, starts)
    least = np.minimum.reduceat(times, starts)
    before, after = _medians_before(greatest), _medians_before(greatest[::-1])[::-1]
    enough = np.arange(len(greatest)) >= LEAST_NEIGHBOURS
    enough_after = enough[::-1]
    far = limit_ms // 2  # a batch may be near the limit, and its neighbours differ
    ahead = enough & (greatest - before > far) & (~enough_after | (greatest - after > far))
    ahead &= greatest - _least_after(least) > limit_ms
    late = enough & enough_after & (before - greatest > far) & (after - greatest > far) & ~ahead
    left = np.flatnonzero(~ahead & ~late)
    rest = greatest[left]
    if len(rest):
        before, after = _greatest_before(rest), _least_after(rest)
        group = np.concatenate([[0], np.cumsum(before[:-1] - after[:-1] <= limit_ms)])
        too_high, too_low = rest - after > limit_ms, before - rest > limit_ms
        high, low = (np.bincount(group, weights=those) for those in (too_high, too_low))
        ahead[left[too_high & (high < low)[group]]] = True
    lowest = np.full(len(greatest), INT64_MAX >> 1, np.int64)
    lowest[~ahead] = greatest[~ahead]
    of_point = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(times))))
    return ahead[of_point] & (times - _least_after(lowest)[of_point] > limit_ms)


def _medians_before(values: Int64s) -> Int64s:
    """The median of the neighbours before each value, as many as there are; that of the first one means nothing."""
    padded = np.concatenate([np.full(NEIGHBOURS, INT64_MAX, np.int64), values[:-1]])
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS), axis=1)
    known = np.minimum(np.arange(len(values)), NEIGHBOURS)
    found: Int64s = windows[np.arange(len(values)), np.maximum(known - 1, 0) // 2]
    return found


def producer_of(producers: Int64s) -> int | None:
    """The one producer of some batches; None if there are several, or it is not known."""
    found = np.unique(producers)
    return int(found[0]) if len(found) == 1 and found[0] >= 0 else None


def latest_by_file(latest: Int64s, by_broker: Bools, modified_ms: int | None, limits: TimeLimits) -> int:
    """The greatest time that is not in the future of a segment's file.

    A file's time is not that of the last append, and not used, if most batches are ahead of it, or one to which a
    broker's clock gave its time: an append time, or a control batch.

    Parameters
    ----------
    latest : array
        The greatest times of the segment's batches.
    by_broker : array
        Which of them are of a broker's clock.
    """
    if modified_ms is None or not len(latest):
        return INT64_MAX
    bound = limits.future_from(modified_ms)
    ahead = latest > bound
    contradicted = (ahead & by_broker & (latest <= limits.future_from(limits.now_ms))).any()
    return INT64_MAX if contradicted or 2 * int(ahead.sum()) >= len(latest) else bound
