"""CreateTopics, DeleteTopics and CreatePartitions, in every version. Codes and texts are those of a 3.9 controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.broker_asking import Asked, Body

import kts
from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ApiKey


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Asked]:
    with Broker(tmp_path, {"log.retention.hours": 5}) as broker:
        yield Asked(broker)


def versions(api: ApiKey) -> list[int]:
    low, high = wire.versions(api)
    return list(range(low, high + 1))


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


def codes(found: list[Body]) -> dict[str, int]:
    return {one["name"]: one["error_code"] for one in found}


# --- CreateTopics -----------------------------------------------------------------------------------


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
    found = ask(ApiKey.CREATE_PARTITIONS, 3, {"topics": [{"name": "x", "count": 2**31 - 1}], "timeout_ms": 1})
    assert codes(found["results"]) == {"x": 3}
    ask.topics.create("t")
    found = ask(ApiKey.CREATE_PARTITIONS, 3, {"topics": [{"name": "t", "count": 2**31 - 1}], "timeout_ms": 1})
    assert codes(found["results"]) == {"t": 44}


# --- DeleteTopics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
def test_topics_are_deleted_by_name(ask: Asked, version: int) -> None:
    for name in ("a", "b", "c"):
        ask.topics.create(name)
    names = ["a", "b", "none", "c", "c"]
    body: Body = {"topic_names": names} if version < 6 else {"topics": [{"name": name} for name in names]}
    found = ask(ApiKey.DELETE_TOPICS, version, {**body, "timeout_ms": 1})["responses"]
    assert codes(found) == {"a": 0, "b": 0, "none": 3, "c": 42}
    assert ask.topics.names() == ["c"]


def test_topics_are_deleted_by_id_and_not_twice(ask: Asked) -> None:
    ids = {name: ask.topics.create(name).topic_id for name in ("a", "b", "c")}
    topics = [
        {"name": None, "topic_id": ids["a"]},
        {"name": None, "topic_id": b"?" * 16},
        {"name": None, "topic_id": bytes(16)},
        {"name": "b", "topic_id": ids["b"]},
        {"name": None, "topic_id": ids["c"]},
        {"name": "c"},
    ]
    found = ask(ApiKey.DELETE_TOPICS, 6, {"topics": topics, "timeout_ms": 1})["responses"]
    told = sorted((one["name"] or "", one["topic_id"], one["error_code"]) for one in found)
    expected = [("", b"?" * 16, 100), ("", bytes(16), 42), ("a", ids["a"], 0), ("b", ids["b"], 42), ("c", ids["c"], 42)]
    assert told == sorted(expected)
    assert ask.topics.names() == ["b", "c"]


@pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73)])
def test_deletion_can_be_switched_off(tmp_path: Path, version: int, code: int) -> None:
    with Broker(tmp_path, {"delete.topic.enable": "false"}) as broker:
        ask = Asked(broker)
        ask.topics.create("t")
        found = ask(ApiKey.DELETE_TOPICS, version, {"topic_names": ["t"], "timeout_ms": 1})["responses"]
        assert codes(found) == {"t": code}
        assert ask.topics.names() == ["t"]


# --- CreatePartitions -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
def test_partitions_are_added(ask: Asked, version: int) -> None:
    for name in ("more", "same", "less", "assigned", "wrong", "elsewhere", "double"):
        ask.topics.create(name, 2)
    here, there = {"broker_ids": [1]}, {"broker_ids": [4]}
    asked = [
        ("more", 4, None),
        ("same", 2, None),
        ("less", 1, None),
        ("none", 3, None),
        ("assigned", 4, [here, here]),
        ("wrong", 4, [here]),
        ("elsewhere", 3, [there]),
        ("double", 3, None),
        ("double", 4, None),
    ]
    topics = [{"name": name, "count": count, "assignments": assigned} for name, count, assigned in asked]
    found = ask(ApiKey.CREATE_PARTITIONS, version, {"topics": topics, "timeout_ms": 1})["results"]
    assert codes(found) == {
        "more": 0,
        "same": 37,
        "less": 37,
        "none": 3,
        "assigned": 0,
        "wrong": 39,
        "elsewhere": 39,
        "double": 42,
    }
    sizes = {name: len(topic.partitions) for name in ask.topics.names() if (topic := ask.topics.get(name))}
    assert sizes == {"more": 4, "assigned": 4, **dict.fromkeys(("same", "less", "wrong", "elsewhere", "double"), 2)}
    more = ask.topics.get("more")
    assert more is not None
    data = kts.encode({"timestamp": [1], "value": [b"v"]})
    assert more.partitions[3].append(data).first_offset == 0
