"""DescribeProducers (key 61), version 0.

Describes the active producers of partitions. Duplicate partitions are answered once.

Source: KafkaApis, ReplicaManager.activeProducerState (3.9); KIP-664.
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode, failed, refusal
from kts.broker.leaders import why_closed
from kts.broker.request import Body, Request
from kts.broker.threads import in_thread
from kts.broker.topics import Topics
from kts.errors import KtsError, LogClosedError, LogStorageError


async def handle(broker: Broker, request: Request) -> Body:
    return {"topics": await in_thread(_describe, broker.topics, request.body["topics"])}


def _describe(topics: Topics, asked: list[Body]) -> list[Body]:
    answers = []
    described: set[tuple[str, int]] = set()
    for one in asked:
        name = one["name"]
        new = [index for index in dict.fromkeys(one["partition_indexes"]) if (name, index) not in described]
        described.update((name, index) for index in new)
        rows = [{"partition_index": index, **_producers(topics, name, index)} for index in new]
        answers.append({"name": name, "partitions": rows})
    return answers


def _producers(topics: Topics, name: str, index: int) -> Body:
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
