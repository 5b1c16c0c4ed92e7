"""CreateTopics, DeleteTopics, CreatePartitions.

Source: ControllerApis, ReplicationControlManager (3.9).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kts.broker.broker import Broker, Handler
from kts.broker.codes import ApiError, ApiKey, ErrorCode, failed, refusal
from kts.broker.request import Request
from kts.broker.settings.describe import topic_entries
from kts.broker.threads import in_thread
from kts.broker.topics import NewTopic, Topic, Topics
from kts.errors import KtsError, UnknownTopicOrPartitionError
from kts.model import ZERO_UUID

Answer = dict[str, Any]
MAX_RECORDS = 10_000  # of one request to a KRaft controller
CONTROLLERS_TOPIC = "__cluster_metadata"


# --- CreateTopics -----------------------------------------------------------------------------------


async def handle_create_topics(broker: Broker, request: Request) -> Answer:
    """Create topics independently; duplicate names are refused."""
    return {"topics": await in_thread(_create_topics, broker.topics, request.body)}


def _create_topics(topics: Topics, body: Answer) -> list[Answer]:
    asked = body["topics"]
    count = Counter(one["name"] for one in asked)
    each = [one for one in asked if count[one["name"]] == 1 and one["name"] != CONTROLLERS_TOPIC]
    if sum(_records(topics, one) for one in each) > MAX_RECORDS:
        told = "Excessively large number of partitions per request."
        return [{"name": name, **refusal(ErrorCode.POLICY_VIOLATION, told)} for name in count]
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
        elif name == CONTROLLERS_TOPIC:
            told = f"Creation of internal topic {name} is prohibited."
            answers.append({"name": name, **refusal(ErrorCode.INVALID_REQUEST, told)})
    return answers


def _records(topics: Topics, one: Answer) -> int:
    """The number of records that a controller would write for a topic."""
    partitions = len(one["assignments"]) or one["num_partitions"]
    return 1 + len(one["configs"]) + (partitions if partitions > 0 else topics.config.num_partitions)


def _checked(topics: Topics, one: Answer) -> NewTopic | KtsError:
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


def _partitions_asked(topics: Topics, one: Answer) -> int:
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


def check_replicas(topics: Topics, replicas: list[int]) -> None:
    """Check an assignment: this node, once."""
    begin = "The manual partition assignment includes"
    if not replicas:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{begin} an empty replica list.")
    for replica in sorted(replicas):
        if replica < 0:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{begin} an invalid broker id {replica}.")
        if replica != topics.node_id:
            message = f"{begin} broker {replica}, but no such broker is registered."
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if len(replicas) > 1:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{begin} the broker {topics.node_id} more than once.")


def _created(topics: Topics, topic: Topic, count: int) -> Answer:
    entries = topic_entries(topic.configs, topics.levels, None, synonyms=False)
    for entry in entries:
        entry["value"] = topic.configs.get(entry["name"], entry["value"])  # as the request has it
    keys = ("name", "value", "read_only", "config_source", "is_sensitive")
    return {
        "topic_id": topic.topic_id,
        "error_code": 0,
        "error_message": None,
        "num_partitions": count,
        "replication_factor": 1,
        "configs": [{key: entry[key] for key in keys} for entry in entries],
    }


# --- DeleteTopics -----------------------------------------------------------------------------------


async def handle_delete_topics(broker: Broker, request: Request) -> Answer:
    """Delete topics by name, or by id from version 6 on."""
    names: set[str] = set()
    answers = await in_thread(_delete_topics, broker.topics, request, names)
    if names:
        broker.coordinator.topics_deleted(sorted(names))
    return {"responses": answers}


def _delete_topics(topics: Topics, request: Request, deleted: set[str]) -> list[Answer]:
    body = request.body
    asked = body.get("topics") or [{"name": name, "topic_id": ZERO_UUID} for name in body.get("topic_names") or ()]
    if not topics.config.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if request.version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        return [_deleted(one["name"], one["topic_id"], refusal(code, "Topic deletion is disabled.")) for one in asked]
    answers, chosen = [], dict[bytes, str]()
    names = Counter(one["name"] for one in asked if one["topic_id"] == ZERO_UUID and one["name"] is not None)
    ids = Counter(bytes(one["topic_id"]) for one in asked if one["name"] is None and one["topic_id"] != ZERO_UUID)
    invalid = ErrorCode.INVALID_REQUEST
    for one in asked:
        if one["name"] is None and one["topic_id"] == ZERO_UUID:
            told = refusal(invalid, "Neither topic name nor id were specified.")
            answers.append(_deleted(None, ZERO_UUID, told))
        elif one["name"] is not None and one["topic_id"] != ZERO_UUID:
            told = refusal(invalid, "You may not specify both topic name and topic id.")
            answers.append(_deleted(one["name"], one["topic_id"], told))
    for topic_id, times in ids.items():
        topic = topics.by_id(topic_id)
        if times > 1:
            answers.append(_deleted(None, topic_id, refusal(invalid, "Duplicate topic id.")))
        elif topic is None:
            answers.append(_deleted(None, topic_id, refusal(ErrorCode.UNKNOWN_TOPIC_ID)))
        else:
            chosen[topic_id] = topic.name
    for name, times in names.items():
        topic = topics.get(name)
        if times > 1:
            answers.append(_deleted(name, ZERO_UUID, refusal(invalid, "Duplicate topic name.")))
        elif topic is None:
            answers.append(_deleted(name, ZERO_UUID, refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        elif topic.topic_id in ids:
            chosen.pop(topic.topic_id, None)
            told = refusal(invalid, "The provided topic name maps to an ID that was already supplied.")
            answers.append(_deleted(name, topic.topic_id, told))
        else:
            chosen[topic.topic_id] = name
    for (topic_id, name), error in zip(chosen.items(), topics.delete_all(chosen.values()), strict=True):
        if error is not None:
            answers.append(_deleted(name, topic_id, failed(error)))
        else:
            deleted.add(name)
            answers.append(_deleted(name, topic_id, {"error_code": 0, "error_message": None}))
    return answers


def _deleted(name: str | None, topic_id: bytes, told: Answer) -> Answer:
    return {"name": name, "topic_id": topic_id, **told}


# --- CreatePartitions -------------------------------------------------------------------------------


async def handle_create_partitions(broker: Broker, request: Request) -> Answer:
    """Add partitions to topics."""
    return {"results": await in_thread(_create_partitions, broker.topics, request.body)}


def _create_partitions(topics: Topics, body: Answer) -> list[Answer]:
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
            answers.append({"name": one["name"], "error_code": 0, "error_message": None})
    return answers


def _add_partitions(topics: Topics, one: Answer, validate_only: bool) -> None:
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


HANDLERS: dict[int, Handler] = {
    ApiKey.CREATE_TOPICS: handle_create_topics,
    ApiKey.DELETE_TOPICS: handle_delete_topics,
    ApiKey.CREATE_PARTITIONS: handle_create_partitions,
}
