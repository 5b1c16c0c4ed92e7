"""Leader epochs as requests ask for them: fencing, and where an epoch ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kts.broker.codes import ApiError, ErrorCode

if TYPE_CHECKING:
    from kts import Log
    from kts.broker.topics.partition import Partition

UNDEFINED = -1


def check_leader_epoch(partition: Partition, current: int) -> None:
    """Refuse a client that knows another leader than this one; -1 is a client that does not say.

    Raises
    ------
    ApiError
        FENCED_LEADER_EPOCH (74): its leader is older; UNKNOWN_LEADER_EPOCH (75): it knows a newer one.
    """
    known = partition.leader_epoch
    if current not in (UNDEFINED, known):
        error = ErrorCode.FENCED_LEADER_EPOCH if current < known else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise ApiError(error, f"expected leader epoch {known}, found {current}")


def end_offset_for_epoch(log: Log, epoch: int) -> tuple[int, int]:
    """The largest known epoch up to one that is asked for, and the offset where it ended; (-1, -1) if none is known.

    Notes
    -----
    An epoch before all known ones is answered with itself and the start of the first: the log was cut there, and a
    follower goes on from it. Source: LeaderEpochFileCache.endOffsetFor (3.9).
    """
    known = log.leader_epochs
    if epoch == UNDEFINED or not known:
        return UNDEFINED, UNDEFINED
    if epoch == known[-1][0]:
        return epoch, log.log_end_offset
    floor = epoch
    for one, start in known:
        if one > epoch:
            return floor, start
        floor = one
    return UNDEFINED, UNDEFINED  # a newer one than all


def epoch_of(log: Log, offset: int) -> int:
    """The epoch of the leader that wrote an offset, -1 if that is not known."""
    found = UNDEFINED
    for epoch, start in log.leader_epochs:
        if start > offset:
            break
        found = epoch
    return found
