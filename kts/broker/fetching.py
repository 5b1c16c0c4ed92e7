"""What a fetch reads: which bytes of which partitions, by limits, isolation and leader epochs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from kts.broker.aborted import aborted_transactions
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.epochs import check_leader_epoch
from kts.broker.turns import Turns
from kts.errors import KtsError, LogClosedError, LogStorageError, OffsetOutOfRangeError
from kts.log.epochs import UNDEFINED, end_offset_for
from kts.segment.files import NO_DESCRIPTOR, FileRange

if TYPE_CHECKING:
    from kts import Log
    from kts.broker.topics import Topics
    from kts.broker.topics.partition import Partition

logger = logging.getLogger(__name__)

SMALL_BYTES = 32 * 1024  # up to here bytes are read at once: a descriptor for each would be too many


class FetchParams(NamedTuple):
    """What holds for all partitions of a request."""

    replica_id: int
    max_bytes: int
    hard_limit: bool  # versions 0 to 2: no byte more than a partition's limit, also where no entry fits
    read_committed: bool

    @property
    def up_to(self) -> str:
        """Where records end that the client may see."""
        if self.replica_id >= 0:
            return "log_end"
        return "last_stable" if self.read_committed else "high_watermark"


class Wanted(NamedTuple):
    """A partition of the request; ``partition`` is None where ``error`` says why."""

    partition: Partition | None
    topic: dict[str, Any]
    body: dict[str, Any]
    error: ErrorCode = ErrorCode.NONE


class Read(NamedTuple):
    """What was read of a partition."""

    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: FileRange | bytes = b""
    aborted: list[dict[str, int]] | None = None
    diverging: tuple[int, int] | None = None

    @property
    def ends_wait(self) -> bool:
        """Whether the client has to know at once."""
        return self.error != 0 or self.diverging is not None


async def read_partitions(topics: Topics, params: FetchParams, wanted: Iterable[Wanted]) -> list[Read]:
    """Read the partitions in their order until the limit is reached; the first that has records gives a whole entry.

    Notes
    -----
    Source: ReplicaManager.readFromLog (3.9), KIP-74.
    """
    left, min_one, found = params.max_bytes, not params.hard_limit, []
    turns = Turns()
    for one in wanted:
        await turns.next()
        read = _read(topics, params, one, left, min_one)
        if len(read.records):
            min_one = False
        left = max(left - len(read.records), 0)
        found.append(read)
    return found


def _read(topics: Topics, params: FetchParams, wanted: Wanted, left: int, min_one: bool) -> Read:
    if wanted.partition is None:
        return Read(wanted.error)
    try:
        return _read_log(params, wanted.partition, wanted.body, left, min_one)
    except (LogClosedError, LogStorageError):
        return Read(why_closed(topics, wanted.partition))
    except KtsError as error:
        if not isinstance(error, ApiError | OffsetOutOfRangeError):
            logger.warning("fetching from %s: %s", wanted.partition, error)
        return Read(error.code)
    except Exception:  # one partition's trouble is not the others'
        logger.exception("fetching from %s", wanted.partition)
        return Read(ErrorCode.UNKNOWN_SERVER_ERROR)


def _read_log(params: FetchParams, partition: Partition, body: dict[str, Any], left: int, min_one: bool) -> Read:
    check_leader_epoch(partition, body["current_leader_epoch"])
    log, offset, last_epoch = partition.log, body["fetch_offset"], body["last_fetched_epoch"]
    marks = log.high_watermark, log.last_stable_offset, log.log_start_offset
    aborted: list[dict[str, int]] | None = [] if params.up_to == "last_stable" else None
    if last_epoch != UNDEFINED:
        diverging = _diverging(log, offset, last_epoch)
        if diverging is not None:
            return Read(0, *marks, diverging=diverging)
    limit = max(min(body["partition_max_bytes"], left), 0)
    records, incomplete, base_offset = _records(log, offset, limit, min_one, params.up_to)
    if incomplete and not params.hard_limit:
        records = b""
    if aborted is not None and len(records):
        aborted = aborted_transactions(log, offset, base_offset)
    return Read(0, *marks, records, aborted)


def _records(log: Log, offset: int, limit: int, min_one: bool, up_to: str) -> tuple[FileRange | bytes, bool, int]:
    try:
        found = log.slice(offset, limit, min_one_message=min_one, up_to=up_to)
    except LogStorageError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
        read = log.read(offset, limit, min_one_message=min_one, up_to=up_to)  # no descriptor is left to lend
        return read.records, read.first_entry_incomplete, read.base_offset
    if len(found.records) > SMALL_BYTES:
        return found.records, found.first_entry_incomplete, found.base_offset
    data = found.records.read()
    found.records.close()
    return data, found.first_entry_incomplete, found.base_offset


def why_closed(topics: Topics, partition: Partition) -> ErrorCode:
    """The error of a partition whose log is of no use: its topic was deleted meanwhile, or the disk failed."""
    topic = topics.get(partition.topic)
    if topic is None or topic.partitions.get(partition.index) is not partition:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.KAFKA_STORAGE_ERROR


def _diverging(log: Log, offset: int, last_epoch: int) -> tuple[int, int] | None:
    """Epoch and end offset where the client's log left this one; None as long as it did not.

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
