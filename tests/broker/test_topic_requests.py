"""CreateTopics, DeleteTopics, CreatePartitions and the three requests about settings, in every version, over the wire's
bytes. Codes and texts are those of a 3.9 controller."""

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

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


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


# --- DescribeConfigs --------------------------------------------------------------------------------


def described(ask: Asked, version: int, kind: int, name: str, keys: list[str] | None = None, **more: Any) -> Body:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (found,) = ask(ApiKey.DESCRIBE_CONFIGS, version, {"resources": [resource], **more})["results"]
    assert (found["resource_type"], found["resource_name"]) == (kind, name)
    return dict(found)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_a_topics_settings_are_described_with_their_sources(ask: Asked, version: int) -> None:
    ask.topics.create("t", 1, {"segment.bytes": " 500 ", "preallocate": "FALSE"})
    ask.topics.alter_broker({"log.index.interval.bytes": "9"}, cluster=True)
    ask.topics.alter_broker({"log.index.interval.bytes": "8"}, cluster=False)
    found = described(ask, version, TOPIC, "t", include_synonyms=True)
    assert (found["error_code"], found["error_message"]) == (0, None)
    configs = {one["name"]: one for one in found["configs"]}
    assert len(configs) == 36
    values = {name: configs[name]["value"] for name in ("segment.bytes", "retention.ms", "index.interval.bytes")}
    assert values == {"segment.bytes": "500", "retention.ms": "18000000", "index.interval.bytes": "8"}
    assert configs["preallocate"]["value"] == "false"
    assert not any(one["read_only"] or one["is_sensitive"] for one in configs.values())
    if version == 0:
        assert not any(one["is_default"] for one in configs.values())  # as 3.9 answers
        return
    sources = {name: one["config_source"] for name, one in configs.items()}
    assert (sources["segment.bytes"], sources["index.interval.bytes"], sources["flush.ms"]) == (1, 2, 5)
    told = [(one["name"], one["value"], one["source"]) for one in configs["index.interval.bytes"]["synonyms"]]
    name = "log.index.interval.bytes"
    assert told == [(name, "8", 2), (name, "9", 3), (name, "4096", 5)]
    assert [one["source"] for one in configs["segment.bytes"]["synonyms"]] == [1, 5]
    if version >= 3:
        types = {configs[name]["config_type"] for name in ("segment.bytes", "flush.ms", "cleanup.policy")}
        assert types == {3, 5, 7}


def test_only_the_settings_that_were_asked_for_are_described_and_each_resource_once(ask: Asked) -> None:
    ask.topics.create("t")
    found = described(ask, 4, TOPIC, "t", ["segment.ms", "no.such", "segment.ms"])
    assert [(one["name"], one["synonyms"]) for one in found["configs"]] == [("segment.ms", [])]
    same = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": None}
    assert len(ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [same] * 1000})["results"]) == 1


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [(TOPIC, "none", 3), (TOPIC, "no/name", 17), (BROKER, "7", 42), (BROKER, "x", 42), (16, "", 42), (0, "t", 42)],
)
def test_what_cannot_be_described_is_refused(ask: Asked, kind: int, name: str, code: int) -> None:
    assert described(ask, 4, kind, name)["error_code"] == code


def test_the_broker_describes_itself(ask: Asked) -> None:
    found = {one["name"]: one for one in described(ask, 4, BROKER, "1", include_synonyms=True)["configs"]}
    assert (found["node.id"]["value"], found["node.id"]["read_only"]) == ("1", True)
    assert (found["log.retention.hours"]["value"], found["log.retention.hours"]["config_source"]) == ("5", 4)
    assert not found["log.segment.bytes"]["read_only"]
    assert described(ask, 4, BROKER, "")["configs"] == []
    ask.topics.alter_broker({"log.segment.bytes": "99"}, cluster=True)
    (one,) = described(ask, 4, BROKER, "")["configs"]
    assert (one["name"], one["value"], one["config_source"]) == ("log.segment.bytes", "99", 3)


# --- AlterConfigs, IncrementalAlterConfigs ----------------------------------------------------------


def altered(ask: Asked, api: ApiKey, version: int, *resources: Body, **more: Any) -> list[int]:
    found = ask(api, version, {"resources": list(resources), **more})["responses"]
    assert [(one["resource_type"], one["resource_name"]) for one in found] == [
        (one["resource_type"], one["resource_name"]) for one in resources
    ]
    return [one["error_code"] for one in found]


def resource(name: str, *configs: tuple[Any, ...], kind: int = TOPIC) -> Body:
    keys = ("name", "value") if not configs or len(configs[0]) == 2 else ("name", "config_operation", "value")
    entries = [dict(zip(keys, config, strict=True)) for config in configs]
    return {"resource_type": kind, "resource_name": name, "configs": entries}


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
def test_settings_are_replaced_as_a_whole(ask: Asked, version: int) -> None:
    ask.topics.create("t", 1, {"segment.bytes": "500"})
    api = ApiKey.ALTER_CONFIGS
    assert altered(ask, api, version, resource("t", ("retention.ms", "7")), validate_only=True) == [0]
    assert ask.topics.get("t").configs == {"segment.bytes": "500"}  # type: ignore[union-attr]
    found = altered(
        ask,
        api,
        version,
        resource("t", ("retention.ms", "7")),
        resource("none", ("retention.ms", "7")),
        resource("no/name", ("retention.ms", "7")),
        resource("", ("retention.ms", "7")),
        resource("x", ("a", "b"), kind=8),
        resource("1", ("log.segment.bytes", "77"), kind=BROKER),
        resource("2", ("log.segment.bytes", "77"), kind=BROKER),
        resource("", ("node.id", "77"), kind=BROKER),
    )
    assert found == [0, 3, 17, 42, 42, 0, 42, 42]
    topic = ask.topics.get("t")
    assert topic is not None
    assert (topic.configs, topic.config.segment_bytes) == ({"retention.ms": "7"}, 77)
    bad = [resource("t", ("retention.ms", "x")), resource("none", ("retention.ms", "x"))]
    assert altered(ask, api, version, *bad) == [40, 40]
    assert altered(ask, api, version, resource("t", ("retention.ms", None))) == [42]
    assert altered(ask, api, version, resource("t", ("segment.ms", "1"), ("segment.ms", "2"))) == [42]
    assert altered(ask, api, version, resource("t", ("segment.ms", "1")), resource("t", ("segment.ms", "2"))) == [
        42,
        42,
    ]
    assert topic.configs == {"retention.ms": "7"}


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_single_settings_are_set_deleted_appended_to_and_subtracted_from(ask: Asked, version: int) -> None:
    ask.topics.create("t", 1, {"segment.bytes": "500", "retention.ms": "9"})
    api, topic = ApiKey.INCREMENTAL_ALTER_CONFIGS, ask.topics.get("t")
    assert topic is not None
    first = resource(
        "t", ("segment.bytes", DELETE, None), ("flush.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")
    )
    assert altered(ask, api, version, first, validate_only=True) == [0]
    assert topic.configs == {"segment.bytes": "500", "retention.ms": "9"}
    assert altered(ask, api, version, first) == [0]
    assert topic.configs == {"retention.ms": "9", "flush.ms": "5", "cleanup.policy": "delete,compact"}
    assert altered(ask, api, version, resource("t", ("cleanup.policy", SUBTRACT, "delete,none"))) == [0]
    assert topic.config.cleanup_policy == "compact"
    refused = [
        resource("t", ("flush.ms", APPEND, "6")),
        resource("t", ("flush.ms", 9, "6")),
        resource("t", ("flush.ms", SET, None)),
        resource("t", ("flush.ms", SET, "-1")),
        resource("none", ("flush.ms", SET, "1")),
        resource("1", ("log.roll.hours", SET, "1"), kind=BROKER),
    ]
    assert [altered(ask, api, version, one)[0] for one in refused] == [40, 42, 42, 40, 3, 42]
    both = [resource("", ("log.flush.interval.messages", SET, "8"), kind=BROKER)]
    both.append(resource("1", ("log.flush.interval.messages", SET, "7"), kind=BROKER))
    assert altered(ask, api, version, *both) == [0, 0]
    assert topic.config.flush_messages == 7
    assert altered(ask, api, version, resource("1", ("log.flush.interval.messages", DELETE, None), kind=BROKER)) == [0]
    assert topic.config.flush_messages == 8
