"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, of topics and of the broker itself.

Source: ConfigHelper, ConfigAdminManager, ConfigurationControlManager (3.9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from kts.broker.broker import Broker, Handler
from kts.broker.codes import ApiError, ApiKey, ErrorCode, failed
from kts.broker.request import Request
from kts.broker.settings.describe import Levels, broker_entries, topic_entries
from kts.broker.settings.topic import ALL_SETTINGS, BROKER_NAMES, ConfigType, merged
from kts.broker.threads import in_thread
from kts.broker.topics import Topics
from kts.errors import KtsError, UnknownTopicOrPartitionError
from kts.segment.names import check_topic

Answer = dict[str, Any]


class ResourceType(IntEnum):
    """The types of resources with settings."""

    TOPIC = 2
    BROKER = 4


class Operation(IntEnum):
    """The operations of an incremental change."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def invalid(message: str) -> ApiError:
    """An INVALID_REQUEST error."""
    return ApiError(ErrorCode.INVALID_REQUEST, message)


# --- DescribeConfigs --------------------------------------------------------------------------------


async def handle_describe_configs(broker: Broker, request: Request) -> Answer:
    """The settings of topics and the broker, with their sources. Duplicate resources are answered once."""
    levels = broker.topics.levels
    levels = levels._replace(static={**levels.static, **broker.addresses(request)})
    return {"results": await in_thread(_describe, broker.topics, levels, request.body)}


def _describe(topics: Topics, levels: Levels, body: Answer) -> list[Answer]:
    asked = {(one["resource_type"], one["resource_name"]): one for one in body["resources"]}
    wanted = {"synonyms": body["include_synonyms"], "documentation": body["include_documentation"]}
    return [_describe_one(topics, levels, one, wanted) for one in asked.values()]


def _describe_one(topics: Topics, levels: Levels, one: Answer, wanted: dict[str, bool]) -> Answer:
    resource = {"resource_type": one["resource_type"], "resource_name": one["resource_name"]}
    try:
        configs = _entries(topics, levels, one, wanted)
    except KtsError as error:
        told = failed(error)
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            told["error_message"] = None
        return {**told, **resource, "configs": []}
    return {"error_code": 0, "error_message": None, **resource, "configs": configs}


def _entries(topics: Topics, levels: Levels, one: Answer, wanted: dict[str, bool]) -> list[Answer]:
    kind, name, keys = one["resource_type"], one["resource_name"], one["configuration_keys"]
    if kind == ResourceType.TOPIC:
        check_topic(name)
        topic = topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"no topic {name!r}")
        return topic_entries(topic.configs, levels, keys, **wanted)
    if kind == ResourceType.BROKER:
        cluster = _is_cluster(topics, name)
        return broker_entries(topics.config, levels, keys, **wanted, cluster_only=cluster)
    raise invalid(f"Unsupported resource type: {kind}")


def _is_cluster(topics: Topics, name: str) -> bool:
    """True for the settings of all brokers, False for those of this broker."""
    if not name:
        return True
    if name != str(topics.node_id):  # not 01, 001, ...: each spelling would get its own long answer
        raise invalid(f"expected the node id {topics.node_id}, found {name[:40]!r}")
    return False


# --- AlterConfigs, IncrementalAlterConfigs ----------------------------------------------------------


async def handle_alter_configs(broker: Broker, request: Request) -> Answer:
    """Replace all settings of topics, or all dynamic settings of the broker."""
    return {"responses": await in_thread(_alter, broker.topics, request.body, _replaced)}


async def handle_incremental_alter_configs(broker: Broker, request: Request) -> Answer:
    """Change single settings of topics or the broker."""
    return {"responses": await in_thread(_alter, broker.topics, request.body, _changed)}


def _alter(topics: Topics, body: Answer, how: Callable[[Topics, Answer], dict[str, str]]) -> list[Answer]:
    count = Counter((one["resource_type"], one["resource_name"]) for one in body["resources"])
    answers = []
    for one in body["resources"]:
        resource = {"resource_type": one["resource_type"], "resource_name": one["resource_name"]}
        told: Answer = {"error_code": 0, "error_message": None}
        try:
            if count[one["resource_type"], one["resource_name"]] > 1:
                raise invalid("Each resource must appear at most once.")
            _alter_one(topics, one, how, body["validate_only"])
        except KtsError as error:
            told = failed(error)
        answers.append({**told, **resource})
    return answers


def _alter_one(
    topics: Topics, one: Answer, how: Callable[[Topics, Answer], dict[str, str]], validate_only: bool
) -> None:
    names = [config["name"] for config in one["configs"]]
    if len(set(names)) != len(names):
        raise invalid("Error due to duplicate config keys")
    operations = [(config, config.get("config_operation", Operation.SET)) for config in one["configs"]]
    nulls = [config["name"] for config, how_so in operations if how_so != Operation.DELETE and config["value"] is None]
    if nulls:
        raise invalid(f"Null value not supported for : {', '.join(nulls)}")
    name = one["resource_name"]
    with topics.changing:
        if one["resource_type"] == ResourceType.BROKER:
            cluster = _is_cluster(topics, name)
            topics.alter_broker(how(topics, one), cluster=cluster, validate_only=validate_only)
        elif one["resource_type"] == ResourceType.TOPIC:
            if not name:
                raise invalid("Default topic resources are not allowed.")
            check_topic(name)
            configs = how(topics, one)
            topics.check_configs(configs)
            topics.alter(name, configs, validate_only=validate_only)
        else:
            raise invalid(f"Unknown resource type {one['resource_type']}")


def _replaced(topics: Topics, one: Answer) -> dict[str, str]:
    return {config["name"]: config["value"] for config in one["configs"]}


def _current(topics: Topics, one: Answer) -> dict[str, str]:
    if one["resource_type"] == ResourceType.TOPIC:
        topic = topics.get(one["resource_name"])
        return dict(topic.configs) if topic is not None else {}
    of_broker = topics.levels
    return dict(of_broker.node if one["resource_name"] else of_broker.cluster)


def _changed(topics: Topics, one: Answer) -> dict[str, str]:
    set_now = {each["name"]: each["value"] for each in one["configs"] if each["config_operation"] == Operation.SET}
    configs = merged(_current(topics, one), set_now)  # all at once: two names of one limit are one level's
    settings = ALL_SETTINGS if one["resource_type"] == ResourceType.TOPIC else BROKER_NAMES
    for config in one["configs"]:
        name, value, operation = config["name"], config["value"], config["config_operation"]
        if operation == Operation.SET:
            continue
        if operation == Operation.DELETE:
            configs.pop(name, None)
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            setting = settings.get(name)
            if setting is None or setting.type is not ConfigType.LIST:
                told = f"Can't {Operation(operation).name} to key {name} because its type is not LIST."
                raise ApiError(ErrorCode.INVALID_CONFIG, told)
            parts = [part for part in configs.get(name, setting.default).split(",") if part]
            for part in value.split(","):
                if operation == Operation.APPEND and part not in parts:
                    parts.append(part)
                elif operation == Operation.SUBTRACT and part in parts:
                    parts.remove(part)
            configs[name] = ",".join(parts)
        else:
            raise invalid(f"Unknown operations type {operation}")
    return configs


HANDLERS: dict[int, Handler] = {
    ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
    ApiKey.ALTER_CONFIGS: handle_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
}
