"""Produce (key 0), versions 0 to 13; a broker of 0.10.2 lists 0 to 2.

Appends record sets to partitions; each partition has its own answer.

Versions::

    0: record sets of every magic
    1: throttle time, always 0
    2: log append time (KIP-32)
    3: exactly one batch of magic 2 for each partition; a transactional id (KIP-98)
    4, 6, 11, 12: as before
    5: log start offset
    7: zstd (KIP-110)
    8: the records that were refused, and a message (KIP-467)
    9: flexible
    10: current leader and node endpoints (KIP-951), never set
    13: topic ids instead of names (KIP-516)

The data and not the version says which magic a set has; it is converted to the topic's format. Acks of 0 get no answer:
a refusal closes the connection. Transactions are refused.

Source: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords (3.9, 0.10.2).
"""

from __future__ import annotations

import logging
import time

from kts.broker.broker import Broker
from kts.broker.codes import NO_TRANSACTIONS, ApiError, ErrorCode
from kts.broker.leaders import find_topic, why_closed
from kts.broker.metrics import PRODUCE
from kts.broker.produced import ProducedRecords
from kts.broker.request import Body, ConnectionClose, Request
from kts.broker.threads import InFlight, TimeSlice, in_thread, opened
from kts.broker.topics.partition import Partition
from kts.codec.validate import NOTHING, Validated
from kts.errors import CorruptRecordError, InvalidRecordError, KtsError, LogClosedError, LogStorageError

logger = logging.getLogger(__name__)

_in_flight = InFlight()  # appends in threads; the event loop must not wait for their lock
ADMIN_CLIENT = "__admin_client"  # may write to internal topics
TOPIC_IDS_FROM = 13
# Errors that Kafka answers without the log start offset.
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


async def handle(broker: Broker, request: Request) -> Body | None:
    """Append the records; None for acks 0.

    Raises
    ------
    ConnectionClose
        Records with acks 0 were refused; closing the connection tells the client.
    """
    body = request.body
    produced, refusal = await _read_headers(body)
    time_slice = TimeSlice()
    responses, refused = [], False
    for topic, sets in zip(body["topic_data"], produced, strict=True):
        rows = []
        for one, records in zip(topic["partition_data"], sets, strict=True):
            await time_slice.give_way()
            try:
                row = await _append_one(broker, request, topic, one["index"], records, refusal)
            except KtsError as error:
                row = _refused(one["index"], error)
            refused = refused or row["error_code"] != 0
            rows.append(row)
        responses.append({"name": topic["name"], "topic_id": topic["topic_id"], "partition_responses": rows})
    if body["acks"] != 0:
        return {"responses": responses}
    if refused:
        raise ConnectionClose(f"records of {request.client_id} with acks 0 were refused")
    return None


async def _read_headers(body: Body) -> tuple[list[list[ProducedRecords | None]], ApiError | None]:
    """The record sets by topic and partition, None for null; and why none of them is appended, if there is a reason.

    Kafka first looks for transactions in the first entry of each set. It refuses the whole request if it cannot read
    one of these entries, or if one belongs to a transaction.
    """
    produced, refusal, time_slice = [], None, TimeSlice()
    for topic in body["topic_data"]:
        sets = []
        for one in topic["partition_data"]:
            await time_slice.give_way()
            records = None if one["records"] is None else ProducedRecords(one["records"])
            sets.append(records)
            if records is not None and refusal is None:
                refusal = _refusal_of(records)
        produced.append(sets)
    if refusal is None and body["acks"] not in (-1, 0, 1):
        refusal = ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks: expected -1, 0 or 1, found {body['acks']}")
    return produced, refusal


def _refusal_of(records: ProducedRecords) -> ApiError | None:
    try:
        records.check_readable()
    except CorruptRecordError as error:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, error.message)
    if records.is_transactional:
        return ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
    return None


async def _append_one(
    broker: Broker,
    request: Request,
    topic: Body,
    index: int,
    records: ProducedRecords | None,
    refusal: ApiError | None,
) -> Body:
    """Append the records of one partition; returns its answer.

    Raises
    ------
    KtsError
        Refused before the append; ``code`` says why.
    """
    if refusal is not None and refusal.error != ErrorCode.INVALID_REQUIRED_ACKS:
        raise refusal
    partition = _partition(broker, request, topic, index)
    if records is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "records: expected a record set, found null")
    records.check_one_batch(request.version)
    if refusal is not None:
        raise refusal
    if broker.topics.is_internal(partition.topic) and request.client_id != ADMIN_CLIENT:
        text = f"expected a topic of the user, found the internal topic {partition.topic}"
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
    await opened([partition])
    config = partition.config
    counted = request.body["acks"] == -1 and config.behaviour().counts_missing_replicas
    if counted and config.min_insync_replicas > 1:
        text = f"expected {config.min_insync_replicas} in-sync replicas, found 1"
        raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, text)
    try:
        done = await _append(broker, partition, records)
    except KtsError as error:
        row = _refused(index, error)
        if error.code not in WITHOUT_LOG_START and partition.is_open:
            row["log_start_offset"] = partition.log.log_start_offset
        return row
    return {
        "index": index,
        "error_code": 0,
        "base_offset": done.first_offset,
        "log_append_time_ms": done.log_append_time_ms,
        "log_start_offset": partition.log.log_start_offset,
    }


def _partition(broker: Broker, request: Request, topic: Body, index: int) -> Partition:
    known, error = find_topic(broker.topics, topic, request.version >= TOPIC_IDS_FROM)
    if error == ErrorCode.UNKNOWN_TOPIC_ID:
        raise ApiError(error, f"expected the id of a topic, found {topic['topic_id'].hex()}")
    partition = None if known is None else known.partitions.get(index)
    if partition is None:
        name = topic["name"] if known is None else known.name
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {index} of a topic {name!r}")
    return partition


async def _append(broker: Broker, partition: Partition, produced: ProducedRecords) -> Validated:
    try:
        at_once = not produced.needs_thread(partition.config) and partition.appends_at_once(
            len(produced.records), produced.max_timestamp
        )
        if at_once and partition not in _in_flight:
            return _append_now(broker, partition, produced)
        with _in_flight.one(partition):
            return await in_thread(_append_now, broker, partition, produced)
    except (LogClosedError, LogStorageError) as error:
        raise ApiError(why_closed(broker.topics, partition), error.message) from error
    except KtsError:
        raise
    except Exception as error:  # a failure of one partition does not affect the others
        logger.exception("appending to %s", partition)
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"unforeseen: {type(error).__name__}") from error


def _append_now(broker: Broker, partition: Partition, produced: ProducedRecords) -> Validated:
    if produced.is_empty:
        return NOTHING
    begun = time.thread_time_ns()
    records = produced.in_topic_format(partition.config)
    done = partition.append(records)
    if records is not produced.records or done.size_maybe_changed:
        cpu_ns, messages = time.thread_time_ns() - begun, done.last_offset - done.first_offset + 1
        sizes = {"bytes_in": len(produced.records), "bytes_out": len(done.records)}
        broker.metrics.add(PRODUCE, partition.topic, messages=messages, cpu_ns=cpu_ns, **sizes)
    return done


def _refused(index: int, error: KtsError) -> Body:
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
