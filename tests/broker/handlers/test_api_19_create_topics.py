"""CreateTopics, in every version. Codes and texts are those of a 3.9 controller."""

from __future__ import annotations

from typing import Any

import pytest
from support.broker.asking import versions
from support.broker.broker_asking import Asked, Body, codes

from kts.broker.wire.messages import ApiKey


def new(name: str, partitions: int = 1, factor: int = 1, assigned: Any = (), **configs: Any) -> Body:
    entries = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    assignments = [{"partition_index": index, "broker_ids": brokers} for index, brokers in assigned]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": assignments,
        "configs": entries,
    }


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_topics_are_made_and_refused_each_for_itself(ask: Asked, version: int) -> None:
    ask.topics.create("there")
    ask.topics.create("a.b")
    asked = [
        (0, new("made", 2, 1, retention_ms="77")),
        (0, new("defaults", -1, -1)),
        (0, new("assigned", -1, -1, [(1, [1]), (0, [1])])),
        (36, new("there")),
        (17, new("no/name")),
        (17, new("")),
        (17, new("a_b")),
        (37, new("none", 0)),
        (37, new("negative", -3)),
        (38, new("copies", 1, 2)),
        (38, new("copies0", 1, 0)),
        (38, new("copies-", 1, -2)),
        (40, new("bad", segment_bytes="3")),
        (40, new("null", segment_bytes=None)),
        (40, new("unknown", some_thing="3")),
        (42, new("both", 1, -1, [(0, [1])])),
        (42, new("both2", -1, 1, [(0, [1])])),
        (39, new("elsewhere", -1, -1, [(0, [9])])),
        (39, new("nowhere", -1, -1, [(0, [])])),
        (39, new("twice", -1, -1, [(0, [1, 1])])),
        (39, new("hole", -1, -1, [(1, [1])])),
        (39, new("again", -1, -1, [(0, [1]), (0, [1])])),
        (42, new("__cluster_metadata")),
    ]
    topics = [*(one for _, one in asked), new("double"), new("double")]
    found = ask(ApiKey.CREATE_TOPICS, version, {"topics": topics, "timeout_ms": 1000})["topics"]
    assert codes(found) == {**{one["name"]: code for code, one in asked}, "double": 42}
    assert ask.topics.names() == ["a.b", "assigned", "defaults", "made", "there"]
    made = next(one for one in found if one["name"] == "made")
    topic = ask.topics.get("made")
    assert topic is not None
    assert (len(topic.partitions), topic.config.retention_ms) == (2, 77)
    if version >= 1:
        told = {one["name"]: one["error_message"] for one in found}
        assert told["made"] is None
        assert told["there"] == "Topic 'there' already exists."
        assert told["null"] == "Null value not supported for topic configs: segment.bytes"
        assert "only 1 broker(s) are registered" in told["copies"]
        assert told["double"] == "Duplicate topic name."
    if version >= 5:
        configs = {one["name"]: (one["value"], one["config_source"]) for one in made["configs"]}
        assert (made["num_partitions"], made["replication_factor"]) == (2, 1)
        assert (configs["retention.ms"], configs["segment.bytes"]) == (("77", 1), ("1073741824", 5))
        assert sorted(configs) == list(configs)
    if version >= 7:
        assert made["topic_id"] == topic.topic_id


def test_validate_only_says_what_would_be(ask: Asked) -> None:
    body = {"topics": [new("t", 3), new("bad", 1, 1, segment_bytes="1")], "timeout_ms": 1, "validate_only": True}
    found = ask(ApiKey.CREATE_TOPICS, 7, body)["topics"]
    assert codes(found) == {"t": 0, "bad": 40}
    assert found[0]["num_partitions"] == 3
    assert ask.topics.names() == []


def test_too_many_partitions_in_one_request_are_refused_before_any_is_made(ask: Asked) -> None:
    for topics in ([new("t", 2**31 - 1)], [new(f"t{number}", 100) for number in range(100)]):
        found = ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 1})["topics"]
        assert {one["error_code"] for one in found} == {44}
    assert ask.topics.names() == []
