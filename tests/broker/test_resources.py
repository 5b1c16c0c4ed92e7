"""Resources with settings: topics, this broker and all brokers, each altered for itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kts.broker.broker import Broker
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.request import Body
from kts.broker.resources import ResourceType, alter, is_cluster
from kts.broker.topics import Topics


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    with Broker(tmp_path, {"node.id": 7}) as broker:
        broker.topics.create("t")
        yield broker.topics


def test_no_name_means_all_brokers_and_a_node_has_one_spelling(topics: Topics) -> None:
    assert is_cluster(topics, "")
    assert not is_cluster(topics, "7")
    for name in ("07", "8", "x"):
        with pytest.raises(ApiError, match="expected the node id 7") as refused:
            is_cluster(topics, name)
        assert refused.value.error == ErrorCode.INVALID_REQUEST


def test_a_resource_that_is_refused_leaves_the_others_alone(topics: Topics) -> None:
    def settings(_: Topics, one: Body) -> dict[str, str]:
        return {config["name"]: config["value"] for config in one["configs"]}

    def resource(kind: int, name: str, value: str) -> Body:
        key = "retention.ms" if kind == ResourceType.TOPIC else "log.retention.ms"
        return {"resource_type": kind, "resource_name": name, "configs": [{"name": key, "value": value}]}

    kinds = (ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER, ResourceType.BROKER, 9)
    names = ("t", "none", "7", "8", "8", "x")
    resources = [resource(kind, name, str(at + 1)) for at, (kind, name) in enumerate(zip(kinds, names, strict=True))]
    found = alter(topics, {"resources": resources, "validate_only": False}, settings)
    assert [one["error_code"] for one in found] == [0, 3, 0, 42, 42, 42]
    assert [one["resource_name"] for one in found] == list(names)
    assert topics.get("t").configs == {"retention.ms": "1"}  # type: ignore[union-attr]
    assert topics.levels.node == {"log.retention.ms": "3"}
