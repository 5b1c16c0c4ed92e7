"""ApiVersions, Metadata, DescribeCluster, DescribeQuorum."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any

from kts.behaviour import Behaviour
from kts.broker import wire
from kts.broker.broker import Broker, Handler
from kts.broker.codes import ApiKey, ErrorCode
from kts.broker.request import Request
from kts.broker.topics import NewTopic, Topic
from kts.errors import InvalidTopicError, KtsError, UnknownTopicOrPartitionError
from kts.model import ZERO_UUID

AT_ONCE = 200  # topics looked up before other requests run
CREATED_AT_ONCE = 100  # topics that one call creates for a request
BROKERS, CONTROLLERS = 1, 2  # endpoint types
METADATA_LOG = ("__cluster_metadata", [0])
# All operations, as bits: every client may do everything.
TOPIC_OPERATIONS, CLUSTER_OPERATIONS = 3576, 8096
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
# Newest versions of a 0.10.2 broker: clients must not send what its logs cannot store.
_BEFORE_MAGIC_2 = {
    ApiKey.PRODUCE: 2,
    ApiKey.FETCH: 3,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.INIT_PRODUCER_ID: -1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: -1,
}


def _api_keys(most: dict[ApiKey, int]) -> list[dict[str, int]]:
    served = [(key, low, min(high, most.get(key, high))) for key, (low, high) in sorted(wire.SERVED.items())]
    return [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in served if high >= low]


_API_KEYS = {1: _api_keys(_BEFORE_MAGIC_2), 2: _api_keys({})}  # by the newest message format


async def handle_api_versions(broker: Broker, request: Request) -> dict[str, Any]:
    """The served versions; there are no cluster features.

    Source: ApiVersionsRequest, DefaultApiVersionManager.
    """
    if request.version >= 3:
        names = (request.body["client_software_name"], request.body["client_software_version"])
        if not all(map(_SOFTWARE.fullmatch, names)):
            return {"error_code": ErrorCode.INVALID_REQUEST, "api_keys": []}
    return {"error_code": ErrorCode.NONE, "api_keys": _API_KEYS[Behaviour.of(broker.config.generation).greatest_magic]}


async def handle_metadata(broker: Broker, request: Request) -> dict[str, Any]:
    """The broker and the requested topics. Unknown topics are created if ``auto.create.topics.enable`` is set.

    Source: KafkaApis.handleTopicMetadataRequest, DefaultAutoTopicCreationManager.
    """
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


def _metadata(broker: Broker, request: Request, topics: list[dict[str, Any]]) -> dict[str, Any]:
    host, port = broker.advertised(request)
    found: dict[str, Any] = {
        "brokers": [{"node_id": broker.node_id, "host": host, "port": port}],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "topics": topics,
    }
    if request.version in (8, 9, 10) and request.body["include_cluster_authorized_operations"]:
        found["cluster_authorized_operations"] = CLUSTER_OPERATIONS
    return found


def _by_id(broker: Broker, ids: Iterable[bytes]) -> list[dict[str, Any]]:
    known = [(topic_id, broker.topics.by_id(topic_id)) for topic_id in ids]
    unknown = [_refused(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id) for topic_id, topic in known if topic is None]
    return unknown + [_described(broker, topic) for _, topic in known if topic is not None]


async def _by_name(broker: Broker, request: Request, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


def _created(broker: Broker, names: list[str]) -> list[dict[str, Any]]:
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


def _refused(
    error: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID, *, is_internal: bool = False
) -> dict[str, Any]:
    return {"error_code": error, "name": name, "topic_id": topic_id, "is_internal": is_internal, "partitions": []}


async def _described_all(broker: Broker, names: list[str]) -> list[dict[str, Any]]:
    """The existing topics among the names."""
    found: list[dict[str, Any]] = []
    for number, name in enumerate(names, 1):
        topic = broker.topics.get(name)
        if topic is not None:
            found.append(_described(broker, topic))
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)  # let other requests run
    return found


def _described(broker: Broker, topic: Topic) -> dict[str, Any]:
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


async def handle_describe_cluster(broker: Broker, request: Request) -> dict[str, Any]:
    """The broker, which is its own controller.

    Source: AuthHelper.computeDescribeClusterResponse.
    """
    endpoint = request.body["endpoint_type"]
    if endpoint != BROKERS:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if endpoint == CONTROLLERS else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"expected endpoint type {BROKERS} (brokers), found {endpoint}"
        return {"error_code": error, "error_message": message, "cluster_id": broker.cluster_id, "brokers": []}
    host, port = broker.advertised(request)
    found: dict[str, Any] = {
        "error_code": ErrorCode.NONE,
        "endpoint_type": BROKERS,
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "brokers": [{"broker_id": broker.node_id, "host": host, "port": port}],
    }
    if request.body["include_cluster_authorized_operations"]:
        found["cluster_authorized_operations"] = CLUSTER_OPERATIONS
    return found


async def handle_describe_quorum(_: Broker, request: Request) -> dict[str, Any]:
    """Refuse the request: this broker has no metadata quorum.

    Source: KafkaRaftClient.handleDescribeQuorumRequest, DescribeQuorumRequest.
    """
    asked = [
        (one["topic_name"], [each["partition_index"] for each in one["partitions"]]) for one in request.body["topics"]
    ]
    if asked == [METADATA_LOG]:
        message = "this broker has no metadata quorum; it stores its topics in a file of the log directory"
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "error_message": message, "topics": []}
    unknown = {
        "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "error_message": "only the metadata log has a quorum",
    }
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": index, **unknown} for index in indexes]}
        for name, indexes in asked
    ]
    return {"error_code": ErrorCode.NONE, "error_message": "", "topics": topics}


HANDLERS: dict[int, Handler] = {
    ApiKey.API_VERSIONS: handle_api_versions,
    ApiKey.METADATA: handle_metadata,
    ApiKey.DESCRIBE_CLUSTER: handle_describe_cluster,
    ApiKey.DESCRIBE_QUORUM: handle_describe_quorum,
}
