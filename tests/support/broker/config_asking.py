"""Requests that alter the settings of topics and brokers."""

from __future__ import annotations

from typing import Any

from support.broker.broker_asking import Asked, Body

from kts.broker.wire.messages import ApiKey

TOPIC, BROKER = 2, 4  # types of resources


def altered(ask: Asked, api: ApiKey, version: int, *resources: Body, **more: Any) -> list[int]:
    """The error codes of altered resources."""
    found = ask(api, version, {"resources": list(resources), **more})["responses"]
    assert [(one["resource_type"], one["resource_name"]) for one in found] == [
        (one["resource_type"], one["resource_name"]) for one in resources
    ]
    return [one["error_code"] for one in found]


def resource(name: str, *configs: tuple[Any, ...], kind: int = TOPIC) -> Body:
    """A resource with settings: (name, value) or (name, operation, value)."""
    keys = ("name", "value") if not configs or len(configs[0]) == 2 else ("name", "config_operation", "value")
    entries = [dict(zip(keys, config, strict=True)) for config in configs]
    return {"resource_type": kind, "resource_name": name, "configs": entries}
