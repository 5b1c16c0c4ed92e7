"""What has settings that requests describe and alter: topics, this broker, and all brokers.

Source: ConfigAdminManager, ConfigurationControlManager (3.9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import IntEnum

from kts.broker.codes import DONE, ApiError, ErrorCode, failed
from kts.broker.request import Body
from kts.broker.topics import Topics
from kts.errors import KtsError
from kts.segment.names import check_topic


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


def is_cluster(topics: Topics, name: str) -> bool:
    """True for the settings of all brokers, False for those of this broker."""
    if not name:
        return True
    if name != str(topics.node_id):  # not 01, 001, ...: each spelling would get its own long answer
        raise invalid(f"expected the node id {topics.node_id}, found {name[:40]!r}")
    return False


def alter(topics: Topics, body: Body, how: Callable[[Topics, Body], dict[str, str]]) -> list[Body]:
    """Alter the settings of resources, each for itself.

    Parameters
    ----------
    body : dict
        Of a request of AlterConfigs or IncrementalAlterConfigs.
    how : function
        The new settings of a resource, from its struct of the request.
    """
    count = Counter((one["resource_type"], one["resource_name"]) for one in body["resources"])
    answers = []
    for one in body["resources"]:
        resource = {"resource_type": one["resource_type"], "resource_name": one["resource_name"]}
        result = DONE
        try:
            if count[one["resource_type"], one["resource_name"]] > 1:
                raise invalid("Each resource must appear at most once.")
            _alter_one(topics, one, how, body["validate_only"])
        except KtsError as error:
            result = failed(error)
        answers.append({**result, **resource})
    return answers


def _alter_one(topics: Topics, one: Body, how: Callable[[Topics, Body], dict[str, str]], validate_only: bool) -> None:
    names = [config["name"] for config in one["configs"]]
    if len(set(names)) != len(names):
        raise invalid("Error due to duplicate config keys")
    operations = [(config, config.get("config_operation", Operation.SET)) for config in one["configs"]]
    nulls = [
        config["name"] for config, operation in operations if operation != Operation.DELETE and config["value"] is None
    ]
    if nulls:
        raise invalid(f"Null value not supported for : {', '.join(nulls)}")
    name = one["resource_name"]
    with topics.changing:
        if one["resource_type"] == ResourceType.BROKER:
            cluster = is_cluster(topics, name)
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
