"""InitProducerId, DescribeProducers, ListTransactions, DescribeTransactions. There are no transactions.

Source: KafkaApis, TransactionCoordinator, ReplicaManager.activeProducerState (3.9); KIP-98, KIP-360, KIP-664.
"""

from __future__ import annotations

import logging
from typing import Any

from kts.broker.broker import Broker, Handler
from kts.broker.codes import NO_TRANSACTIONS, ApiKey, ErrorCode, failed, refusal
from kts.broker.fetching import why_closed
from kts.broker.request import Request
from kts.broker.threads import in_thread
from kts.broker.topics import Topics
from kts.errors import KtsError, LogClosedError, LogStorageError

logger = logging.getLogger(__name__)

NO_ID = -1
# The states of a transaction.
STATES = frozenset(
    "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence".split()
)


# --- producer ids -----------------------------------------------------------------------------------


async def handle_init_producer_id(broker: Broker, request: Request) -> dict[str, Any] | None:
    """Assign a new id with epoch 0, also to a producer that has one, as Kafka does without transactions.

    Transactions are refused with an error that clients do not retry.
    """
    body = request.body
    if body["transactional_id"] is not None:
        logger.warning("a producer was refused: %s", NO_TRANSACTIONS)
        empty = not body["transactional_id"]
        return _refused_id(ErrorCode.INVALID_REQUEST if empty else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (body["producer_id"] == NO_ID) != (body["producer_epoch"] == NO_ID):
        return _refused_id(ErrorCode.INVALID_REQUEST)
    ids = broker.producer_ids
    try:
        producer_id = ids.next() if ids.left else await in_thread(ids.next)
    except KtsError as error:
        logger.warning("cannot assign a producer id: %s", error)
        return _refused_id(error.code)
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}


def _refused_id(error: int) -> dict[str, Any]:
    return {"error_code": int(error), "producer_id": NO_ID, "producer_epoch": NO_ID}


# --- producers --------------------------------------------------------------------------------------


async def handle_describe_producers(broker: Broker, request: Request) -> dict[str, Any]:
    """The active producers of partitions. Duplicate partitions are answered once."""
    return {"topics": await in_thread(_describe, broker.topics, request.body["topics"])}


def _describe(topics: Topics, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answers = []
    told: set[tuple[str, int]] = set()
    for one in asked:
        name = one["name"]
        new = [index for index in dict.fromkeys(one["partition_indexes"]) if (name, index) not in told]
        told.update((name, index) for index in new)
        rows = [{"partition_index": index, **_producers(topics, name, index)} for index in new]
        answers.append({"name": name, "partitions": rows})
    return answers


def _producers(topics: Topics, name: str, index: int) -> dict[str, Any]:
    try:
        topics.check_name(name)
    except KtsError as error:
        return failed(error)
    partition = topics.partition(name, index)
    if partition is None:
        return refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        known = partition.log.producers()
    except (LogClosedError, LogStorageError):
        return refusal(why_closed(topics, partition))
    return {
        "error_code": 0,
        "active_producers": [
            {
                "producer_id": one.producer_id,
                "producer_epoch": one.epoch,
                "last_sequence": one.last.last_sequence,
                "last_timestamp": one.timestamp_ms,
                "coordinator_epoch": one.coordinator_epoch,
                "current_txn_start_offset": one.first_offset,
            }
            for one in known
        ],
    }


# --- transactions -----------------------------------------------------------------------------------


async def handle_list_transactions(_: Broker, request: Request) -> dict[str, Any]:
    """No transactions, and the filter states that do not exist."""
    unknown = dict.fromkeys(state for state in request.body["state_filters"] if state not in STATES)
    return {"error_code": 0, "unknown_state_filters": list(unknown), "transaction_states": []}


async def handle_describe_transactions(_: Broker, request: Request) -> dict[str, Any]:
    """No transaction is found; an empty name is invalid."""
    rows = []
    for name in request.body["transactional_ids"]:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name else ErrorCode.INVALID_REQUEST
        rows.append({"error_code": error, "transactional_id": name})
    return {"transaction_states": rows}


HANDLERS: dict[int, Handler] = {
    ApiKey.INIT_PRODUCER_ID: handle_init_producer_id,
    ApiKey.DESCRIBE_PRODUCERS: handle_describe_producers,
    ApiKey.LIST_TRANSACTIONS: handle_list_transactions,
    ApiKey.DESCRIBE_TRANSACTIONS: handle_describe_transactions,
}
