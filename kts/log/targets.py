"""The targets of a search by time that are no times: Kafka's negative numbers for places in a log."""

from __future__ import annotations

from kts.errors import UnsupportedForMessageFormatError
from kts.log.log import Log
from kts.model import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    TimestampOffset,
)

PLACES = (LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)


def offset_of_target(log: Log, target: int, *, shipped_search: bool | None = None) -> TimestampOffset | None:
    """What a log answers to a time or to a negative number for a place; it has no tiers.

    Parameters
    ----------
    target : int
        Below ``Behaviour.least_target`` a negative number is a time.
    shipped_search : bool, optional
        As in ``Log.offset_for_timestamp``.

    Raises
    ------
    UnsupportedForMessageFormatError
        The message format of the topic has no timestamps.

    Notes
    -----
    Source: UnifiedLog.fetchOffsetByTimestamp (3.9, 4.3).
    """
    if log.config.magic == 0 and target not in (EARLIEST, LATEST):
        raise UnsupportedForMessageFormatError("a search by timestamp needs format 0.10.0 or later, found magic 0")
    if target < log.behaviour.least_target or not (target == MAX_TIMESTAMP or target in PLACES):
        return log.offset_for_timestamp(target, shipped_search=shipped_search, unit="ms")
    if target == MAX_TIMESTAMP:
        return log.max_timestamp()
    starts = {LATEST: log.log_end_offset, LATEST_TIERED: -1, EARLIEST_PENDING_UPLOAD: -1}
    return TimestampOffset(NO_TIMESTAMP, starts.get(target, log.log_start_offset))
