"""DescribeConfigs (key 32), versions 0 to 4.

Describes the settings of topics and the broker, with their sources. Duplicate resources are answered once.

Versions::

    0: whether a value is the default; as in 3.9, never set
    1: sources, and synonyms on request (KIP-226)
    2: as before
    3: types, and documentation on request (KIP-569)
    4: flexible

Source: ConfigHelper (3.9); KIP-133.
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.codes import DONE, ErrorCode, failed
from kts.broker.request import Body, Request
from kts.broker.resources import ResourceType, invalid, is_cluster
from kts.broker.settings.describe import Levels, broker_entries, topic_entries
from kts.broker.threads import in_thread
from kts.broker.topics import Topics
from kts.errors import KtsError, UnknownTopicOrPartitionError
from kts.segment.names import check_topic


async def handle(broker: Broker, request: Request) -> Body:
    levels = broker.topics.levels
    levels = levels._replace(static={**levels.static, **broker.addresses(request)})
    return {"results": await in_thread(_describe, broker.topics, levels, request.body)}


def _describe(topics: Topics, levels: Levels, body: Body) -> list[Body]:
    asked = {(one["resource_type"], one["resource_name"]): one for one in body["resources"]}
    wanted = {"synonyms": body["include_synonyms"], "documentation": body["include_documentation"]}
    return [_describe_one(topics, levels, one, wanted) for one in asked.values()]


def _describe_one(topics: Topics, levels: Levels, one: Body, wanted: dict[str, bool]) -> Body:
    resource = {"resource_type": one["resource_type"], "resource_name": one["resource_name"]}
    try:
        configs = _entries(topics, levels, one, wanted)
    except KtsError as error:
        result = failed(error)
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            result["error_message"] = None
        return {**result, **resource, "configs": []}
    return {**DONE, **resource, "configs": configs}


def _entries(topics: Topics, levels: Levels, one: Body, wanted: dict[str, bool]) -> list[Body]:
    kind, name, keys = one["resource_type"], one["resource_name"], one["configuration_keys"]
    if kind == ResourceType.TOPIC:
        check_topic(name)
        topic = topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"no topic {name!r}")
        return topic_entries(topic.configs, levels, keys, **wanted)
    if kind == ResourceType.BROKER:
        cluster = is_cluster(topics, name)
        return broker_entries(topics.config, levels, keys, **wanted, cluster_only=cluster)
    raise invalid(f"Unsupported resource type: {kind}")
