"""Metadata (key 3), versions 0 to 13.

Describes the broker and topics. Unknown topics are created if ``auto.create.topics.enable`` is set.

Versions::

    0: an empty list means all topics
    1: null means all topics; racks, always null; the controller; which topics are internal
    2: cluster id (KIP-78)
    3: throttle time, always 0
    4: whether topics may be created
    5: offline replicas (KIP-112)
    6: as before
    7: leader epochs (KIP-320)
    8: authorized operations of topics and the cluster (KIP-430)
    9: flexible
    10: topic ids in the answer (KIP-516)
    11: authorized operations of the cluster only from DescribeCluster (KIP-700)
    12: topics are found by id, too (KIP-516)
    13: an error of the whole answer (KIP-1102), never set

Source: KafkaApis.handleTopicMetadataRequest, DefaultAutoTopicCreationManager (3.9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kts.broker.authorizer import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.request import Body, Request
from kts.broker.topics import NewTopic, Topic
from kts.errors import InvalidTopicError, KtsError, UnknownTopicOrPartitionError
from kts.model import ZERO_UUID

AT_ONCE = 200  # topics looked up before other requests run
CREATED_AT_ONCE = 100  # topics that one call creates for a request


async def handle(broker: Broker, request: Request) -> Body:
    body, version = request.body, request.version
    asked = body["topics"]
    if asked is None or (version == 0 and not asked):
        topics = await _described_all(broker, broker.topics.names())
    elif version < 12 and any(each["name"] is None or each["topic_id"] != ZERO_UUID for each in asked):
        topics = [_refused(ErrorCode.INVALID_REQUEST, each["name"] or "", each["topic_id"]) for each in asked]
        return {"brokers": [], "topics": topics}  # as in Kafka, without brokers
    else:
        ids = dict.fromkeys(each["topic_id"] for each in asked if each["topic_id"] != ZERO_UUID)
        topics = _by_id(broker, ids) if ids else await _by_name(broker, request, asked)
    if version >= 8 and body["include_topic_authorized_operations"]:
        for topic in topics:
            topic["topic_authorized_operations"] = TOPIC_OPERATIONS
    return _metadata(broker, request, topics)


def _metadata(broker: Broker, request: Request, topics: list[Body]) -> Body:
    host, port = broker.advertised(request)
    found: Body = {
        "brokers": [{"node_id": broker.node_id, "host": host, "port": port}],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "topics": topics,
    }
    if request.version in (8, 9, 10) and request.body["include_cluster_authorized_operations"]:
        found["cluster_authorized_operations"] = CLUSTER_OPERATIONS
    return found


def _by_id(broker: Broker, ids: Iterable[bytes]) -> list[Body]:
    known = [(topic_id, broker.topics.by_id(topic_id)) for topic_id in ids]
    unknown = [_refused(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id) for topic_id, topic in known if topic is None]
    return unknown + [_described(broker, topic) for _, topic in known if topic is not None]


async def _by_name(broker: Broker, request: Request, asked: list[Body]) -> list[Body]:
    names = list(dict.fromkeys(each["name"] for each in asked if each["name"] is not None))
    found = [_refused(ErrorCode.INVALID_REQUEST, None) for each in asked if each["name"] is None]
    found += await _described_all(broker, names)
    missing = [name for name in names if broker.topics.get(name) is None]
    if not missing:
        return found
    if broker.config.auto_create_topics_enable and request.body["allow_auto_topic_creation"]:
        for start in range(0, len(missing), CREATED_AT_ONCE):
            found += await asyncio.to_thread(_created, broker, missing[start : start + CREATED_AT_ONCE])
        return found
    for start in range(0, len(missing), AT_ONCE):
        found += [_refused(_why_not(broker, name), name) for name in missing[start : start + AT_ONCE]]
        await asyncio.sleep(0)  # let other requests run
    return found


def _created(broker: Broker, names: list[str]) -> list[Body]:
    """Create topics. As in Kafka, the answer says that they have no leader yet."""
    errors = {name: _why_not(broker, name) for name in names}
    valid = [name for name in names if errors[name] != ErrorCode.INVALID_TOPIC_EXCEPTION]
    for name, made in zip(valid, broker.topics.create_all(map(NewTopic, valid)), strict=True):
        errors[name] = ErrorCode.LEADER_NOT_AVAILABLE
        if isinstance(made, KtsError) and made.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            errors[name] = ErrorCode(made.code)
    return [_refused(error, name, is_internal=broker.topics.is_internal(name)) for name, error in errors.items()]


def _why_not(broker: Broker, name: str) -> ErrorCode:
    try:
        broker.topics.check_name(name)
    except InvalidTopicError:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    except UnknownTopicOrPartitionError:
        pass
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refused(error: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID, *, is_internal: bool = False) -> Body:
    return {"error_code": error, "name": name, "topic_id": topic_id, "is_internal": is_internal, "partitions": []}


async def _described_all(broker: Broker, names: list[str]) -> list[Body]:
    """The existing topics among the names."""
    found: list[Body] = []
    for number, name in enumerate(names, 1):
        topic = broker.topics.get(name)
        if topic is not None:
            found.append(_described(broker, topic))
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)  # let other requests run
    return found


def _described(broker: Broker, topic: Topic) -> Body:
    node = [broker.node_id]
    partitions = []
    for index, partition in topic.partitions.items():
        offline = partition.is_offline
        partitions.append(
            {
                "error_code": ErrorCode.LEADER_NOT_AVAILABLE if offline else ErrorCode.NONE,
                "partition_index": index,
                "leader_id": -1 if offline else broker.node_id,
                "leader_epoch": partition.leader_epoch,
                "replica_nodes": node,
                "isr_nodes": node,
                "offline_replicas": node if offline else [],
            }
        )
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": partitions,
    }
