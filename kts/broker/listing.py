"""ListOffsets for one partition: special timestamps, and the search by time."""

from __future__ import annotations

from typing import NamedTuple

from kts.broker.codes import ApiError, ErrorCode
from kts.broker.topics.partition import Partition
from kts.log.epochs import epoch_for
from kts.log.log import Log
from kts.log.targets import PLACES, offset_of_target
from kts.model import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
)

# Special timestamps, with the first version that has each.
SPECIAL = {EARLIEST: 1, LATEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


class OffsetQuery(NamedTuple):
    """A query for one partition."""

    timestamp_ms: int
    version: int
    consumer: bool
    read_committed: bool


class ListedOffset(NamedTuple):
    """The answer; all -1 if no record was found."""

    timestamp_ms: int = -1
    offset: int = -1
    leader_epoch: int = -1


def check_time(timestamp_ms: int, version: int) -> None:
    """Refuse a negative timestamp that the version does not know.

    Raises
    ------
    ApiError
        UNSUPPORTED_VERSION.
    """
    if timestamp_ms < 0 and not (timestamp_ms in SPECIAL and version >= SPECIAL[timestamp_ms]):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"version {version} has no time {timestamp_ms}")


def check_time_of_version_0(timestamp_ms: int) -> None:
    """Refuse a negative timestamp that version 0 does not know.

    Raises
    ------
    ApiError
        UNSUPPORTED_VERSION.
    """
    if timestamp_ms < EARLIEST:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"version 0 has no time {timestamp_ms}")


def list_offset(
    partition: Partition, query: OffsetQuery, current_leader_epoch: int = -1, *, shipped: bool = False
) -> ListedOffset:
    """Answer versions 1 and later.

    Parameters
    ----------
    shipped : bool
        Search as Kafka's releases do, in one segment.

    Raises
    ------
    ApiError
        UNSUPPORTED_VERSION for a negative timestamp without a meaning, unless the topic allows negative timestamps;
        fenced and unknown leader epochs.
    UnsupportedForMessageFormatError
        The message format of the topic has no timestamps.

    Notes
    -----
    Source: Partition.fetchOffsetForTimestamp, UnifiedLog.fetchOffsetByTimestamp (3.9).
    """
    log, target = partition.log, query.timestamp_ms
    if not (log.behaviour.times.before_1970 and target not in SPECIAL):
        check_time(target, query.version)
    partition.check_leader_epoch(current_leader_epoch)
    end = log.log_end_offset
    if query.consumer:
        end = log.last_stable_offset if query.read_committed else log.high_watermark
    if target == LATEST:
        return ListedOffset(NO_TIMESTAMP, end, partition.leader_epoch)
    found = offset_of_target(log, target, shipped_search=shipped or None)
    if found is None or (target not in PLACES and found.offset >= end + log.behaviour.lists_end_offset):
        return ListedOffset()
    return ListedOffset(found.timestamp_ms, found.offset, epoch_for(log.leader_epochs, found.offset))


def offsets_before(log: Log, time_ms: int, count: int, now_ms: int, consumer: bool) -> list[int]:
    """Answer version 0: base offsets of segments modified at or before a time, newest first.

    Parameters
    ----------
    count : int
        The maximum number of offsets.
    now_ms : int
        The time of the log end offset.
    consumer : bool
        Limit the answer to the high watermark.

    Raises
    ------
    ApiError
        UNSUPPORTED_VERSION for times below -2.

    Notes
    -----
    The times are those of the files, so the answer is as coarse as the segments. Source:
    UnifiedLog.legacyFetchOffsetsBefore (3.9).
    """
    check_time_of_version_0(time_ms)
    start, segments = log.log_start_offset, log.segments
    known = [(max(segment.base_offset, start), segment.modified_ms) for segment in segments]
    if segments[-1].size:
        known.append((log.log_end_offset, now_ms))
    if time_ms == LATEST:
        last = len(known) - 1
    elif time_ms == EARLIEST:
        last = 0
    else:
        last = max((at for at, (_, modified) in enumerate(known) if modified <= time_ms), default=-1)
    found = sorted((offset for offset, _ in known[max(last + 1 - max(count, 0), 0) : last + 1]), reverse=True)
    mark = log.high_watermark
    if consumer and found and found[0] > mark:
        return [mark, *(offset for offset in found if offset <= mark)]
    return found
