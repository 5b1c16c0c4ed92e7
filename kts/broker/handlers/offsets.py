"""ListOffsets, DeleteRecords and OffsetForLeaderEpoch.

Source: KafkaApis, Partition.fetchOffsetForTimestamp, UnifiedLog (0.10.2, 3.9); KIP-79, KIP-107, KIP-320, KIP-734.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from kts.broker.broker import Broker, Handler
from kts.broker.codes import ApiError, ApiKey, ErrorCode
from kts.broker.fetching import why_closed
from kts.broker.listing import OffsetQuery, check_time, check_time_of_version_0, list_offset, offsets_before
from kts.broker.request import Request
from kts.broker.threads import in_thread, opened
from kts.broker.topics.partition import Partition
from kts.errors import KtsError, LogClosedError, LogStorageError
from kts.log.epochs import end_offset_for
from kts.model import EARLIEST, LATEST

logger = logging.getLogger(__name__)

HIGH_WATERMARK = -1  # DeleteRecords: delete up to the high watermark
CONSUMER = -1
LONG = 100  # partitions; longer requests use a thread


# --- ListOffsets ----------------------------------------------------------------------------------


async def handle_list_offsets(broker: Broker, request: Request) -> dict[str, Any] | None:
    """Offsets by time. Searches may read files, so they use a thread."""
    topics = request.body["topics"]
    await opened(_partitions(broker, topics, "name", "partition_index"))
    searches = any(one["timestamp"] not in (EARLIEST, LATEST) for topic in topics for one in topic["partitions"])
    if searches or request.version == 0 or _is_long(topics):
        return await in_thread(_list_offsets, broker, request)
    return _list_offsets(broker, request)


def _list_offsets(broker: Broker, request: Request) -> dict[str, Any]:
    topics = request.body["topics"]
    seen = Counter((topic["name"], one["partition_index"]) for topic in topics for one in topic["partitions"])
    list_one = _list_v0 if request.version == 0 else _list_one
    answers = []
    for topic in topics:
        rows = []
        for one in topic["partitions"]:
            index = one["partition_index"]
            try:  # Kafka checks this before it looks up the partition
                _check_one(broker, request, topic["name"], one, seen[topic["name"], index])
                row = _guarded(broker, topic["name"], index, list_one, request, one)
            except ApiError as error:
                row = {"error_code": error.code}
            rows.append({"partition_index": index, **row})
        answers.append({"name": topic["name"], "partitions": rows})
    return {"topics": answers}


def _check_one(broker: Broker, request: Request, topic: str, one: dict[str, Any], times: int) -> None:
    if request.version == 0:
        check_time_of_version_0(one["timestamp"])
        return
    if times > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"expected each partition once, found it {times} times")
    if broker.topics.partition(topic, one["partition_index"]) is None:  # a topic may allow negative timestamps
        check_time(one["timestamp"], request.version)


def _list_one(partition: Partition, broker: Broker, request: Request, one: dict[str, Any]) -> dict[str, Any]:
    body = request.body
    consumer = body["replica_id"] == CONSUMER
    query = OffsetQuery(one["timestamp"], request.version, consumer, body["isolation_level"] == 1)
    found = list_offset(partition, query, one["current_leader_epoch"], shipped=broker.config.shipped_search)
    answer = {"timestamp": found.timestamp_ms, "offset": found.offset, "leader_epoch": found.leader_epoch}
    return {"error_code": 0, **answer}


def _list_v0(partition: Partition, broker: Broker, request: Request, one: dict[str, Any]) -> dict[str, Any]:
    consumer = request.body["replica_id"] == CONSUMER
    offsets = offsets_before(partition.log, one["timestamp"], one["max_num_offsets"], broker.clock(), consumer)
    return {"error_code": 0, "old_style_offsets": offsets}


def _guarded(
    broker: Broker, topic: str, index: int, work: Callable[..., dict[str, Any]], request: Request, one: dict[str, Any]
) -> dict[str, Any]:
    """Call ``work`` with a partition. An error becomes its answer."""
    partition = broker.topics.partition(topic, index)
    if partition is None:
        return {"error_code": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    try:
        return work(partition, broker, request, one)
    except (LogClosedError, LogStorageError):
        return {"error_code": int(why_closed(broker.topics, partition))}
    except KtsError as error:
        if error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
            logger.warning("%s of %s: %s", ApiKey(request.api_key).name, partition, error)
        return {"error_code": int(error.code)}
    except Exception:  # a failure of one partition does not affect the others
        logger.exception("%s of %s", ApiKey(request.api_key).name, partition)
        return {"error_code": int(ErrorCode.UNKNOWN_SERVER_ERROR)}


def _is_long(topics: list[dict[str, Any]]) -> bool:
    return sum(len(topic["partitions"]) for topic in topics) > LONG


def _partitions(broker: Broker, topics: list[dict[str, Any]], name: str, index: str) -> list[Partition]:
    """The existing partitions of a request; ``name`` and ``index`` are the request's field names."""
    found = []
    for topic in topics:
        known = broker.topics.get(topic[name])
        if known is not None:
            found += [known.partitions[one[index]] for one in topic["partitions"] if one[index] in known.partitions]
    return found


# --- DeleteRecords --------------------------------------------------------------------------------


async def handle_delete_records(broker: Broker, request: Request) -> dict[str, Any] | None:
    """Advance log start offsets. The checkpoint is written once, before the answer."""
    return await in_thread(_delete_records, broker, request)


def _delete_records(broker: Broker, request: Request) -> dict[str, Any]:
    answers = []
    with broker.topics.checkpoints_at_once():
        for topic in request.body["topics"]:
            rows = []
            for one in topic["partitions"]:
                index = one["partition_index"]
                row = _guarded(broker, topic["name"], index, _delete_before, request, one)
                rows.append({"partition_index": index, "low_watermark": -1, **row})
            answers.append({"name": topic["name"], "partitions": rows})
    return {"topics": answers}


def _delete_before(partition: Partition, broker: Broker, request: Request, one: dict[str, Any]) -> dict[str, Any]:
    log, offset = partition.log, one["offset"]
    if broker.topics.is_internal(partition.topic):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"expected a topic of the user, found {partition.topic}")
    if not log.config.deletes:
        text = f"expected a cleanup.policy with delete, found {log.config.cleanup_policy}"
        raise ApiError(ErrorCode.POLICY_VIOLATION, text)
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"expected an offset, found {offset}")
    if log.advance_log_start_offset(offset):
        partition.changed()
    return {"error_code": 0, "low_watermark": log.log_start_offset}


# --- OffsetForLeaderEpoch -------------------------------------------------------------------------


async def handle_offset_for_leader_epoch(broker: Broker, request: Request) -> dict[str, Any] | None:
    """The end offsets of leader epochs."""
    topics = request.body["topics"]
    await opened(_partitions(broker, topics, "topic", "partition"))
    return await in_thread(_end_offsets, broker, request) if _is_long(topics) else _end_offsets(broker, request)


def _end_offsets(broker: Broker, request: Request) -> dict[str, Any]:
    answers = []
    for topic in request.body["topics"]:
        rows = []
        for one in topic["partitions"]:
            row = _guarded(broker, topic["topic"], one["partition"], _end_offset, request, one)
            rows.append({"partition": one["partition"], **row})
        answers.append({"topic": topic["topic"], "partitions": rows})
    return {"topics": answers}


def _end_offset(partition: Partition, broker: Broker, request: Request, one: dict[str, Any]) -> dict[str, Any]:
    partition.check_leader_epoch(one["current_leader_epoch"])
    log = partition.log
    epoch, end = end_offset_for(log.leader_epochs, one["leader_epoch"], log.log_end_offset)
    return {"error_code": 0, "leader_epoch": epoch, "end_offset": end}


HANDLERS: dict[int, Handler] = {
    ApiKey.LIST_OFFSETS: handle_list_offsets,
    ApiKey.DELETE_RECORDS: handle_delete_records,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: handle_offset_for_leader_epoch,
}
