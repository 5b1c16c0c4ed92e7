"""Reads for Fetch: bytes of partitions by limits, isolation level and leader epochs; aborted transactions."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from kts.broker.codes import ApiError, ErrorCode
from kts.broker.leaders import why_closed
from kts.broker.threads import TimeSlice
from kts.broker.topics import Topics
from kts.broker.topics.partition import Partition
from kts.errors import CorruptIndexError, KtsError, LogClosedError, LogStorageError, OffsetOutOfRangeError
from kts.log.epochs import UNDEFINED, end_offset_for
from kts.log.log import Log
from kts.log.view import Fetched, Sliced
from kts.segment.log_segment import LogSegment
from kts.segment.magics import UNREAD
from kts.segment.transactions import AbortedTransaction, read_txn_index
from kts.store.descriptors import NO_DESCRIPTOR
from kts.store.local import FileRange
from kts.store.source import files

logger = logging.getLogger(__name__)

SMALL_BYTES = 32 * 1024  # smaller ranges are read at once, to save file descriptors


class FetchParams(NamedTuple):
    """The parameters of a request for all its partitions."""

    replica_id: int
    max_bytes: int
    hard_limit: bool  # versions 0 to 2: never exceed a partition's limit, even if no entry fits
    read_committed: bool
    magic: int = 2  # the newest that the client knows

    @property
    def up_to(self) -> str:
        """The end of the records that the client may see."""
        if self.replica_id >= 0:
            return "log_end"
        return "last_stable" if self.read_committed else "high_watermark"


class PartitionFetch(NamedTuple):
    """A partition of the request; if ``partition`` is None, ``error`` says why."""

    partition: Partition | None
    topic: dict[str, Any]
    body: dict[str, Any]
    error: ErrorCode = ErrorCode.NONE


class ReadResult(NamedTuple):
    """The result of reading a partition."""

    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: FileRange | bytes = b""
    aborted: list[dict[str, int]] | None = None
    diverging: tuple[int, int] | None = None
    stored: Sliced | None = None  # where the records are stored

    @property
    def ends_wait(self) -> bool:
        """Whether the client must be answered at once."""
        return self.error != 0 or self.diverging is not None


async def read_partitions(topics: Topics, params: FetchParams, wanted: Iterable[PartitionFetch]) -> list[ReadResult]:
    """Read partitions in order up to the limit. The first one with records returns at least one whole entry.

    Notes
    -----
    Source: ReplicaManager.readFromLog (3.9), KIP-74.
    """
    left, min_one, found = params.max_bytes, not params.hard_limit, []
    time_slice = TimeSlice()
    for one in wanted:
        await time_slice.give_way()
        read = _read(topics, params, one, left, min_one)
        if len(read.records):
            min_one = False
        left = max(left - len(read.records), 0)
        found.append(read)
    return found


def _read(topics: Topics, params: FetchParams, wanted: PartitionFetch, left: int, min_one: bool) -> ReadResult:
    if wanted.partition is None:
        return ReadResult(wanted.error)
    try:
        return _read_log(params, wanted.partition, wanted.body, left, min_one)
    except (LogClosedError, LogStorageError):
        return ReadResult(why_closed(topics, wanted.partition))
    except KtsError as error:
        if not isinstance(error, ApiError | OffsetOutOfRangeError):
            logger.warning("fetching from %s: %s", wanted.partition, error)
        return ReadResult(error.code)
    except Exception:  # a failure of one partition does not affect the others
        logger.exception("fetching from %s", wanted.partition)
        return ReadResult(ErrorCode.UNKNOWN_SERVER_ERROR)


def _read_log(params: FetchParams, partition: Partition, body: dict[str, Any], left: int, min_one: bool) -> ReadResult:
    partition.check_leader_epoch(body["current_leader_epoch"])
    log, offset, last_epoch = partition.log, body["fetch_offset"], body["last_fetched_epoch"]
    marks = log.high_watermark, log.last_stable_offset, log.log_start_offset
    aborted: list[dict[str, int]] | None = [] if params.up_to == "last_stable" else None
    if last_epoch != UNDEFINED:
        diverging = _diverging(log, offset, last_epoch)
        if diverging is not None:
            return ReadResult(0, *marks, diverging=diverging)
    limit = max(min(body["partition_max_bytes"], left), 0)
    found = _records(log, offset, limit, min_one, params.up_to)
    records, stored = found.records, found if isinstance(found, Sliced) else None
    if stored is not None and len(records) <= SMALL_BYTES:
        records = _read_at_once(stored, params.magic)
    if found.first_entry_incomplete and not params.hard_limit:
        records, aborted = b"", None if limit else aborted
    if aborted is not None and len(records):
        aborted = aborted_transactions(log, offset, found.base_offset)
    return ReadResult(0, *marks, records, aborted, stored=stored)


def _records(log: Log, offset: int, limit: int, min_one: bool, up_to: str) -> Fetched | Sliced:
    try:
        return log.slice(offset, limit, min_one_message=min_one, up_to=up_to)
    except LogStorageError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
    return log.read(offset, limit, min_one_message=min_one, up_to=up_to)  # no descriptor is left for a range


def _read_at_once(stored: Sliced, magic: int) -> bytes:
    lent, segment = stored.records, stored.segment
    if magic < 2 and segment.newest_magic(lent, magic) == UNREAD:
        segment.read_magics(lent, magic)
    data = lent.read()
    lent.close()
    return data


def _diverging(log: Log, offset: int, last_epoch: int) -> tuple[int, int] | None:
    """The epoch and end offset where the client's log diverges from this one; None if it does not.

    Notes
    -----
    Source: Partition.readRecords (3.9), KIP-595.
    """
    epoch, end = end_offset_for(log.leader_epochs, last_epoch, log.log_end_offset)
    if UNDEFINED in (epoch, end):
        message = f"expected a known epoch as the last fetched one, found {last_epoch}"
        raise OffsetOutOfRangeError(message, offset=offset)
    if offset < log.log_start_offset:
        message = f"expected an offset from {log.log_start_offset} on, found {offset}"
        raise OffsetOutOfRangeError(message, offset=offset)
    return (epoch, end) if epoch < last_epoch or end < offset else None


# --- aborted transactions -------------------------------------------------------------------------

# The size of a closed segment and the entries of its .txnindex file, which does not change.
_known: WeakKeyDictionary[LogSegment, tuple[int, list[AbortedTransaction]]] = WeakKeyDictionary()


def aborted_transactions(log: Log, fetch_offset: int, base_offset: int) -> list[dict[str, int]]:
    """Aborted transactions that overlap a fetched range, by first offset.

    Parameters
    ----------
    fetch_offset : int
        The start of the range.
    base_offset : int
        Of the segment that was read; the range ends with it.

    Notes
    -----
    Missing or damaged ``.txnindex`` files count as empty; ``kts verify`` reports them. Source:
    LocalLog.collectAbortedTransactions (3.9), which ends the list with the answer.
    """
    segments = log.segments
    number = max(bisect_right([segment.base_offset for segment in segments], base_offset) - 1, 0)
    end = segments[number + 1].base_offset if number + 1 < len(segments) else log.log_end_offset
    found = {one for at in range(number, len(segments)) for one in _listed(segments[at], at + 1 < len(segments))}
    hit = [one for one in found if one.last_offset >= fetch_offset and one.first_offset < end]
    return [
        {"producer_id": one.producer_id, "first_offset": one.first_offset}
        for one in sorted(hit, key=lambda one: (one.first_offset, one.last_offset, one.producer_id))
    ]


def _listed(segment: LogSegment, closed: bool) -> list[AbortedTransaction]:
    """The entries of a segment's file; those of closed segments are cached."""
    size = segment.size
    known = _known.get(segment) if closed else None
    if known is not None and known[0] == size:
        return known[1]
    try:
        listed = read_txn_index(segment.txn_index_path) if files.exists(segment.txn_index_path) else []
    except (CorruptIndexError, LogStorageError):
        listed = []
    if closed:
        _known[segment] = (size, listed)
    return listed
