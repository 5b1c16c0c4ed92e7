"""CreatePartitions (key 37), versions 0 to 3.

Adds partitions to topics.

Versions::

    1, 3: as before
    2: flexible

Source: ControllerApis, ReplicationControlManager (3.9); KIP-195.
"""

from __future__ import annotations

from collections import Counter

from kts.broker.assignments import check_replicas
from kts.broker.broker import Broker
from kts.broker.codes import DONE, ApiError, ErrorCode, failed, refusal
from kts.broker.request import Body, Request
from kts.broker.threads import in_thread
from kts.broker.topics import Topics
from kts.errors import KtsError, UnknownTopicOrPartitionError


async def handle(broker: Broker, request: Request) -> Body:
    return {"results": await in_thread(_create_partitions, broker.topics, request.body)}


def _create_partitions(topics: Topics, body: Body) -> list[Body]:
    count = Counter(one["name"] for one in body["topics"])
    answers = [
        {"name": name, **refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")}
        for name, times in count.items()
        if times > 1
    ]
    for one in body["topics"]:
        if count[one["name"]] > 1:
            continue
        try:
            _add_partitions(topics, one, body["validate_only"])
        except UnknownTopicOrPartitionError as error:
            answers.append({"name": one["name"], "error_code": error.code, "error_message": None})
        except KtsError as error:
            answers.append({"name": one["name"], **failed(error)})
        else:
            answers.append({"name": one["name"], **DONE})
    return answers


def _add_partitions(topics: Topics, one: Body, validate_only: bool) -> None:
    topics.add_partitions(one["name"], one["count"], validate_only=True)
    assigned = one["assignments"]
    if assigned is not None:
        topic = topics.get(one["name"])
        additional = one["count"] - (len(topic.partitions) if topic is not None else 0)
        if len(assigned) != additional:
            message = f"Attempted to add {additional} additional partition(s), but only {len(assigned)} "
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message + "assignment(s) were specified.")
        for each in assigned:
            check_replicas(topics, each["broker_ids"])
    topics.add_partitions(one["name"], one["count"], validate_only=validate_only)
