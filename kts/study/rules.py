"""When the options of KIP-32 roll and delete segments: their rules without files, over many partitions at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.arguments import INT64_MAX

from .workloads import START_MS

if TYPE_CHECKING:
    import numpy.typing as npt

    from .workloads import MessageStream, Settings, Times


class SegmentRule(NamedTuple):
    """How segments roll and expire.

    Attributes
    ----------
    name : str
    append_time : bool
        The time that counts: LogAppendTime, else CreateTime.
    rolls : str
        What is compared with ``segment.ms`` before an append: ``first`` (the incoming message's time less that of the
        segment's first message), or the clock less the ``earliest`` time of the segment, the ``largest`` time of the
        log, or the time when the segment was ``created``.
    """

    name: str
    append_time: bool
    rolls: str


class ProposedOption(NamedTuple):
    """One of the paper's options, or a rule for option 4 that was written but not shipped.

    Attributes
    ----------
    number : int
        1 to 4.
    create_time, append_time : bool
        What a consumer sees.
    rule : SegmentRule
    modes : tuple of str
        The modes of ``kts.proposals`` that play it in a ``kts.Log``.
    """

    number: int
    create_time: bool
    append_time: bool
    rule: SegmentRule
    modes: tuple[str, ...] = ()


LOG_APPEND_TIME = SegmentRule("LogAppendTime", True, "first")
CREATE_TIME = SegmentRule("CreateTime", False, "first")
EARLIEST = SegmentRule("earliest-timestamp", False, "earliest")
LARGEST = SegmentRule("largest-timestamp", False, "largest")
WALL_CLOCK = SegmentRule("wall-clock", False, "created")
RULES = (LOG_APPEND_TIME, CREATE_TIME, EARLIEST, LARGEST, WALL_CLOCK)
OPTIONS = {
    "option 1": ProposedOption(1, True, True, LOG_APPEND_TIME),
    "option 2": ProposedOption(2, False, True, LOG_APPEND_TIME),
    "option 3": ProposedOption(3, True, False, LOG_APPEND_TIME),
    "option 4 CreateTime": ProposedOption(4, True, False, CREATE_TIME),
    "option 4 LogAppendTime": ProposedOption(4, False, True, LOG_APPEND_TIME),
    **{rule.name: ProposedOption(4, True, False, rule, (rule.name,)) for rule in (EARLIEST, LARGEST, WALL_CLOCK)},
}
TABLE = tuple(OPTIONS)[:5]  # the columns of the paper's table: option 4 is configured as one or the other


class Played(NamedTuple):
    """What became of the messages of some partitions, a row each.

    Attributes
    ----------
    stored_ms : array
        The time of each message that the rule uses.
    begins : array of bool
        The first message of each segment.
    deleted_ms : array
        When its segment was deleted, by the first check that found it expired.
    """

    stored_ms: Times
    begins: npt.NDArray[np.bool_]
    deleted_ms: Times


def play(rule: SegmentRule, create_ms: Times, arrival_ms: Times, settings: Settings) -> Played:
    """Roll and delete the segments of each row.

    Notes
    -----
    A check deletes segments from the oldest on, up to the first whose largest time has not expired; so a message goes
    when all largest times up to the end of its segment have. Once the active segment expires, too, it is rolled.
    """
    stored = np.maximum.accumulate(arrival_ms, axis=1) if rule.append_time else create_ms
    top = np.maximum.accumulate(stored, axis=1)
    expired = first_check(np.maximum(arrival_ms, top + settings.retention_ms + 1), settings.check_ms)
    begins = np.zeros(stored.shape, bool)
    begins[:, :1] = True
    begins[:, 1:] = expired[:, :-1] < arrival_ms[:, 1:]  # nothing was left when the message arrived
    rolled(rule, stored, top, arrival_ms, expired, begins, settings.roll_ms)
    ends = np.ones(stored.shape, bool)
    ends[:, :-1] = begins[:, 1:]
    at_end = np.where(ends, expired, INT64_MAX)
    return Played(stored, begins, np.minimum.accumulate(at_end[:, ::-1], axis=1)[:, ::-1])


def rolled(
    rule: SegmentRule,
    stored: Times,
    top: Times,
    arrival: Times,
    expired: Times,
    begins: npt.NDArray[np.bool_],
    roll_ms: int,
) -> None:
    """Mark where segments begin because the one before was rolled: message by message, all rows at once."""
    stored, top, arrival, expired = (np.ascontiguousarray(each.T) for each in (stored, top, arrival, expired))
    counted = arrival[0] if rule.rolls == "created" else stored[0]
    for number in range(1, len(stored)):
        begun, now, time = begins[:, number], arrival[number], stored[number]
        if rule.rolls == "created":
            created = np.where(begun, expired[number - 1], now)  # a check began the segment, or this message does
            begun = begun | (now - counted > roll_ms)
            counted = np.where(begun, created, counted)
        elif rule.rolls == "largest":
            begun = begun | (now - top[number - 1] > roll_ms)
        elif rule.rolls == "earliest":
            begun = begun | (now - counted > roll_ms)
            counted = np.where(begun, time, np.minimum(counted, time))
        else:
            begun = begun | (time - counted > roll_ms)
            counted = np.where(begun, time, counted)
        begins[:, number] = begun


def first_check(times: Times, every_ms: int) -> Times:
    """The first check at or after each time."""
    return START_MS - (START_MS - times) // every_ms * every_ms


def at_source(rule: SegmentRule, stream: MessageStream, settings: Settings) -> Times:
    """When each message is deleted from the cluster that it was copied from; each such cluster has a log."""
    rows, count = stream.arrival_ms.shape
    clusters = int(stream.source.max()) + 1
    order = np.lexsort((stream.source_ms, stream.source), axis=-1)
    split = (rows * clusters, count // clusters)
    create, arrival = (
        np.take_along_axis(times, order, axis=1).reshape(split) for times in (stream.create_ms, stream.source_ms)
    )
    deleted = play(rule, create, arrival, settings).deleted_ms.reshape(rows, count)
    back = np.empty_like(deleted)
    np.put_along_axis(back, order, deleted, axis=1)
    return back
