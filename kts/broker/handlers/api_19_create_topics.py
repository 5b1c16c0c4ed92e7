"""CreateTopics (key 19), versions 0 to 7.

Creates topics, each for itself; duplicate names are refused.

Versions::

    1: a request that only validates; error messages
    2: throttle time, always 0
    3, 6: as before
    4: default numbers of partitions and replicas (KIP-464), which kts accepts in every version
    5: flexible; the numbers and settings of the new topic (KIP-525)
    7: topic id (KIP-516)

Source: ControllerApis, ReplicationControlManager (3.9).
"""

from __future__ import annotations

from collections import Counter

from kts.broker.assignments import check_replicas
from kts.broker.broker import Broker
from kts.broker.codes import DONE, ApiError, ErrorCode, failed, refusal
from kts.broker.request import Body, Request
from kts.broker.settings.describe import topic_entries
from kts.broker.threads import in_thread
from kts.broker.topics import NewTopic, Topic, Topics
from kts.errors import KtsError
from kts.log.directory import CONTROLLER

MAX_RECORDS = 10_000  # of one request to a KRaft controller


async def handle(broker: Broker, request: Request) -> Body:
    return {"topics": await in_thread(_create_topics, broker.topics, request.body)}


def _create_topics(topics: Topics, body: Body) -> list[Body]:
    asked = body["topics"]
    count = Counter(one["name"] for one in asked)
    each = [one for one in asked if count[one["name"]] == 1 and one["name"] != CONTROLLER]
    if sum(_records(topics, one) for one in each) > MAX_RECORDS:
        message = "Excessively large number of partitions per request."
        return [{"name": name, **refusal(ErrorCode.POLICY_VIOLATION, message)} for name in count]
    checked = [_checked(topics, one) for one in each]
    wanted = [new for new in checked if isinstance(new, NewTopic)]
    made = iter(topics.create_all(wanted, validate_only=body["validate_only"]))
    answers = []
    for one, new in zip(each, checked, strict=True):
        if isinstance(new, KtsError):
            fields = failed(new)
        elif isinstance(topic := next(made), KtsError):
            fields = failed(topic)
        else:
            fields = _created(topics, topic, new.num_partitions)
        answers.append({"name": one["name"], **fields})
    for name, times in count.items():
        if times > 1:
            answers.append({"name": name, **refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")})
        elif name == CONTROLLER:
            message = f"Creation of internal topic {name} is prohibited."
            answers.append({"name": name, **refusal(ErrorCode.INVALID_REQUEST, message)})
    return answers


def _records(topics: Topics, one: Body) -> int:
    """The number of records that a controller would write for a topic."""
    partitions = len(one["assignments"]) or one["num_partitions"]
    return 1 + len(one["configs"]) + (partitions if partitions > 0 else topics.config.num_partitions)


def _checked(topics: Topics, one: Body) -> NewTopic | KtsError:
    """The topic to create, or why it is refused."""
    try:
        topics.check_new(one["name"])
        nulls = [config["name"] for config in one["configs"] if config["value"] is None]
        if nulls:
            message = f"Null value not supported for topic configs: {','.join(nulls)}"
            raise ApiError(ErrorCode.INVALID_CONFIG, message)
        configs = {config["name"]: config["value"] for config in one["configs"]}
        topics.check_configs(configs)
        count = _partitions_asked(topics, one)
    except KtsError as error:
        return error
    return NewTopic(one["name"], topics.config.num_partitions if count == -1 else count, configs)


def _partitions_asked(topics: Topics, one: Body) -> int:
    """The number of partitions, -1 for the default. Replicas must be on this node."""
    assigned, factor = one["assignments"], one["replication_factor"]
    if assigned:
        if factor != -1:
            message = "A manual partition assignment was specified, but replication factor was not set to -1."
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if one["num_partitions"] != -1:
            message = "A manual partition assignment was specified, but numPartitions was not set to -1."
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        indexes = Counter(each["partition_index"] for each in assigned)
        for each in assigned:
            if indexes[each["partition_index"]] > 1:
                message = f"Found multiple manual partition assignments for partition {each['partition_index']}"
                raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            check_replicas(topics, each["broker_ids"])
        if set(indexes) != set(range(len(assigned))):
            message = "partitions should be a consecutive 0-based integer sequence"
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        return len(assigned)
    if factor < -1 or factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    count: int = one["num_partitions"]
    if count < -1 or count == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
    factor = topics.config.default_replication_factor if factor == -1 else factor
    if factor > 1:
        reason = f"The target replication factor of {factor} cannot be reached because only 1 broker(s) are registered."
        message = f"Unable to replicate the partition {factor} time(s): {reason}"
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return count


def _created(topics: Topics, topic: Topic, count: int) -> Body:
    entries = topic_entries(topic.configs, topics.levels, None, synonyms=False)
    for entry in entries:
        entry["value"] = topic.configs.get(entry["name"], entry["value"])  # as the request has it
    keys = ("name", "value", "read_only", "config_source", "is_sensitive")
    return {
        "topic_id": topic.topic_id,
        **DONE,
        "num_partitions": count,
        "replication_factor": 1,
        "configs": [{key: entry[key] for key in keys} for entry in entries],
    }
