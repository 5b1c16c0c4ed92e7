"""IncrementalAlterConfigs (key 44), versions 0 to 1.

Changes single settings of topics or the broker.

Versions::

    1: flexible

Source: ConfigAdminManager, ConfigurationControlManager (3.9); KIP-339.
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.request import Body, Request
from kts.broker.resources import Operation, ResourceType, alter, invalid
from kts.broker.settings.topic import ALL_SETTINGS, BROKER_NAMES, ConfigType, merged
from kts.broker.threads import in_thread
from kts.broker.topics import Topics


async def handle(broker: Broker, request: Request) -> Body:
    return {"responses": await in_thread(alter, broker.topics, request.body, _changed)}


def _changed(topics: Topics, one: Body) -> dict[str, str]:
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
                message = f"Can't {Operation(operation).name} to key {name} because its type is not LIST."
                raise ApiError(ErrorCode.INVALID_CONFIG, message)
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


def _current(topics: Topics, one: Body) -> dict[str, str]:
    if one["resource_type"] == ResourceType.TOPIC:
        topic = topics.get(one["resource_name"])
        return dict(topic.configs) if topic is not None else {}
    of_broker = topics.levels
    return dict(of_broker.node if one["resource_name"] else of_broker.cluster)
