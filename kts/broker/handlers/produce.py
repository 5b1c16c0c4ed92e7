"""Produce: record sets go to their partitions, each with an answer of its own.

Source: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords (3.9, 0.10.2); KIP-32, KIP-98, KIP-467, KIP-951.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from kts.broker.codes import ApiError, ApiKey, ErrorCode
from kts.broker.fetching import why_closed
from kts.broker.handlers.types import Handler
from kts.broker.metrics import PRODUCE
from kts.broker.produced import check_one_batch, head, in_topic_format, takes_long, whole_entry
from kts.broker.request import ConnectionClose
from kts.broker.threads import InThreads, in_thread, opened
from kts.broker.turns import Turns
from kts.errors import CorruptRecordError, InvalidRecordError, KtsError, LogClosedError, LogStorageError

if TYPE_CHECKING:
    from kts.broker.broker import Broker
    from kts.broker.request import Request
    from kts.broker.topics.partition import Partition
    from kts.codec.validate import Validated

logger = logging.getLogger(__name__)

_in_threads = InThreads()  # appends under way: the event loop must not wait for their lock

ADMIN_CLIENT = "__admin_client"  # may write to internal topics
TOPIC_IDS_FROM = 13
# Kafka tells the log start offset beside all errors of a log but these.
WITHOUT_LOG_START = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


async def handle_produce(broker: Broker, request: Request) -> dict[str, Any] | None:
    """Append what was sent; None for acks 0.

    Raises
    ------
    ConnectionClose
        Something was refused, and the client wants no answer: so that it notices.
    """
    body = request.body
    turns = Turns()
    refusal = await _refusal(body, turns)
    responses, refused = [], False
    for topic in body["topic_data"]:
        rows = []
        for one in topic["partition_data"]:
            await turns.next()
            try:
                row = await _append_one(broker, request, topic, one, refusal)
            except KtsError as error:
                row = _refused(one["index"], error)
            refused = refused or row["error_code"] != 0
            rows.append(row)
        responses.append({"name": topic["name"], "topic_id": topic["topic_id"], "partition_responses": rows})
    if body["acks"] != 0:
        return {"responses": responses}
    if refused:
        raise ConnectionClose(f"acks 0 from {request.client_id} has no answer to say what was refused")
    return None


async def _refusal(body: dict[str, Any], turns: Turns) -> ApiError | None:
    """Why nothing of a request is appended: as Kafka, which looks for transactions in the sets' first entries before
    anything else, and gives up the whole request where one of them cannot be read."""
    for one in (one for topic in body["topic_data"] for one in topic["partition_data"]):
        await turns.next()
        try:
            first = head(one["records"]) if one["records"] is not None and whole_entry(one["records"], 0) else None
        except CorruptRecordError as error:
            return ApiError(ErrorCode.CORRUPT_MESSAGE, error.message)
        if first is not None and first.transactional:
            return ApiError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported by this broker"
            )
    if body["acks"] not in (-1, 0, 1):
        return ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks: expected -1, 0 or 1, found {body['acks']}")
    return None


async def _append_one(
    broker: Broker, request: Request, topic: dict[str, Any], one: dict[str, Any], refusal: ApiError | None
) -> dict[str, Any]:
    """Append one partition's set and say what became of it.

    Raises
    ------
    KtsError
        It was refused before the log was asked; ``code`` says why.
    """
    if refusal is not None and refusal.error != ErrorCode.INVALID_REQUIRED_ACKS:
        raise refusal
    partition = _partition(broker, request, topic, one["index"])
    records = one["records"]
    if records is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "records: expected a record set, found null")
    check_one_batch(records, request.version)
    if refusal is not None:
        raise refusal
    if broker.topics.is_internal(partition.topic) and request.client_id != ADMIN_CLIENT:
        text = f"expected a topic of the user, found the internal topic {partition.topic}"
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    await opened([partition])
    config = partition.config
    if request.body["acks"] == -1 and config.generation == "0.10.2" and config.min_insync_replicas > 1:
        text = f"expected {config.min_insync_replicas} in-sync replicas, found 1"
        raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, text)
    try:
        done = await _append(broker, partition, records)
    except KtsError as error:
        row = _refused(one["index"], error)
        if error.code not in WITHOUT_LOG_START and partition.is_open:
            row["log_start_offset"] = partition.log.log_start_offset
        return row
    return {
        "index": one["index"],
        "error_code": 0,
        "base_offset": done.first_offset,
        "log_append_time_ms": done.log_append_time_ms,
        "log_start_offset": partition.log.log_start_offset,
    }


def _partition(broker: Broker, request: Request, topic: dict[str, Any], index: int) -> Partition:
    if request.version >= TOPIC_IDS_FROM:
        known = broker.topics.by_id(topic["topic_id"])
        if known is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"expected the id of a topic, found {topic['topic_id'].hex()}")
    else:
        known = broker.topics.get(topic["name"])
    partition = None if known is None else known.partitions.get(index)
    if partition is None:
        name = topic["name"] if known is None else known.name
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {index} of a topic {name!r}")
    return partition


async def _append(broker: Broker, partition: Partition, records: memoryview) -> Validated:
    try:
        quick = not takes_long(records, partition.config) and partition.is_quick(records)
        if quick and partition not in _in_threads:
            return _append_now(broker, partition, records)
        with _in_threads.one(partition):
            return await in_thread(_append_now, broker, partition, records)
    except (LogClosedError, LogStorageError) as error:
        raise ApiError(why_closed(broker.topics, partition), error.message) from error
    except KtsError:
        raise
    except Exception as error:  # one partition's trouble is not the others'
        logger.exception("appending to %s", partition)
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"unforeseen: {type(error).__name__}") from error


def _append_now(broker: Broker, partition: Partition, records: memoryview) -> Validated:
    begun = time.thread_time_ns()
    ready = in_topic_format(records, partition.config)
    done = partition.append(ready)
    if ready is not records or done.size_maybe_changed:
        cpu_ns, messages = time.thread_time_ns() - begun, done.last_offset - done.first_offset + 1
        sizes = {"bytes_in": len(records), "bytes_out": len(done.records)}
        broker.metrics.add(PRODUCE, partition.topic, messages=messages, cpu_ns=cpu_ns, **sizes)
    return done


def _refused(index: int, error: KtsError) -> dict[str, Any]:
    errors = error.record_errors if isinstance(error, InvalidRecordError) else ()
    return {
        "index": index,
        "error_code": int(error.code),
        "base_offset": -1,
        "log_append_time_ms": -1,
        "log_start_offset": -1,
        "record_errors": [{"batch_index": at, "batch_index_error_message": reason} for at, reason in errors],
        "error_message": error.message,
    }


HANDLERS: dict[int, Handler] = {ApiKey.PRODUCE: handle_produce}
