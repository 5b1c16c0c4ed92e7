"""AlterPartitionReassignments (key 45), versions 0 to 1.

Accepts assignments to this node, where all partitions are; refuses others.

Versions::

    1: whether the number of replicas may change (KIP-860), which is answered as it was asked

Source: ControllerApis, ReplicationControlManager (3.9); KIP-455.
"""

from __future__ import annotations

from kts.broker.assignments import check_replicas
from kts.broker.broker import Broker
from kts.broker.codes import DONE, ApiError, ErrorCode, failed, refusal
from kts.broker.request import Body, Request
from kts.broker.threads import in_thread
from kts.broker.topics import Topics


async def handle(broker: Broker, request: Request) -> Body:
    return await in_thread(_alter_reassignments, broker.topics, request.body)


def _alter_reassignments(topics: Topics, body: Body) -> Body:
    answers = []
    for topic in body["topics"]:
        rows = [
            {"partition_index": one["partition_index"], **_reassigned(topics, topic["name"], one)}
            for one in topic["partitions"]
        ]
        answers.append({"name": topic["name"], "partitions": rows})
    return {"allow_replication_factor_change": body["allow_replication_factor_change"], "responses": answers, **DONE}


def _reassigned(topics: Topics, name: str, one: Body) -> Body:
    if topics.partition(name, one["partition_index"]) is None:
        return refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if one["replicas"] is None:  # cancels a reassignment
        return refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    try:
        check_replicas(topics, one["replicas"])
    except ApiError as error:
        return failed(error)
    return DONE
