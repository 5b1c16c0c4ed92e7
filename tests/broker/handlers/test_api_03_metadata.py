"""Metadata: topics, their partitions and leaders, in every version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.asking import Asking

from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey

NO_ID = bytes(16)
LOW, HIGH = wire.versions(ApiKey.METADATA)


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data", {"node.id": 5, "num.partitions": 3})) as found:
        yield found


@pytest.mark.parametrize("version", range(LOW, HIGH + 1))
def test_metadata_of_all_of_none_and_of_some_topics(asking: Asking, version: int) -> None:
    topics = asking.broker.topics
    made = {name: topics.create(name, count) for name, count in (("a", 1), ("b", 2))}

    def ask(names: list[str] | None) -> dict[str, object]:
        asked = None if names is None else [{"name": name} for name in names]
        found: dict[str, object] = asking.ask(ApiKey.METADATA, version, {"topics": asked})
        return found

    every = ask([] if version == 0 else None)
    assert [each["name"] for each in every["topics"]] == ["a", "b"]
    if version:
        assert ask([])["topics"] == []
        assert every["controller_id"] == 5
    [one] = ask(["b"])["topics"]
    assert (one["name"], one["error_code"], len(one["partitions"])) == ("b", 0, 2)
    assert one["partitions"][1] == {
        **one["partitions"][1],
        "error_code": 0,
        "partition_index": 1,
        "leader_id": 5,
        "replica_nodes": [5],
        "isr_nodes": [5],
        "offline_replicas": [],
    }
    assert one["topic_id"] == (made["b"].topic_id if version >= 10 else NO_ID)
    assert every["cluster_id"] == (asking.broker.cluster_id if version >= 2 else None)
    [node] = every["brokers"]
    assert (node["node_id"], node["rack"]) == (5, None)


def test_an_unknown_topic_is_made_where_that_is_set_and_its_leader_is_known_the_next_time(asking: Asking) -> None:
    [first] = asking.ask(ApiKey.METADATA, 4, {"topics": [{"name": "new"}]})["topics"]
    assert (first["error_code"], first["partitions"]) == (ErrorCode.LEADER_NOT_AVAILABLE, [])
    [second] = asking.ask(ApiKey.METADATA, 4, {"topics": [{"name": "new"}]})["topics"]
    assert (second["error_code"], len(second["partitions"])) == (0, 3)


def test_an_unknown_topic_is_not_made_where_the_client_or_the_setting_says_no(tmp_path: Path) -> None:
    for allowed, setting in ((False, "true"), (True, "false")):
        folder = tmp_path / f"{allowed}"
        with Asking(Broker(folder, {"auto.create.topics.enable": setting})) as asking:
            body = {"topics": [{"name": "new"}, {"name": "?"}], "allow_auto_topic_creation": allowed}
            found = asking.ask(ApiKey.METADATA, 4, body)["topics"]
            codes = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]
            assert [each["error_code"] for each in found] == codes
            assert asking.broker.topics.names() == []


def test_topics_are_found_by_their_ids_from_version_12_on(asking: Asking) -> None:
    topic = asking.broker.topics.create("a")
    unknown = bytes(15) + b"\1"
    both = [{"name": None, "topic_id": topic.topic_id}, {"name": None, "topic_id": unknown}]
    found = {each["topic_id"]: each for each in asking.ask(ApiKey.METADATA, 12, {"topics": both})["topics"]}
    assert (found[topic.topic_id]["name"], found[topic.topic_id]["error_code"]) == ("a", 0)
    assert (found[unknown]["name"], found[unknown]["error_code"]) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    for version in (10, 11):
        named = [{"name": "a", "topic_id": topic.topic_id}]
        [refused] = asking.ask(ApiKey.METADATA, version, {"topics": named})["topics"]
        assert refused["error_code"] == ErrorCode.INVALID_REQUEST


def test_a_partition_whose_log_failed_has_no_leader(asking: Asking) -> None:
    topic = asking.broker.topics.create("a", 2)
    topic.partitions[1].log.close()
    [found] = asking.ask(ApiKey.METADATA, 5, {"topics": [{"name": "a"}]})["topics"]
    assert [each["leader_id"] for each in found["partitions"]] == [5, -1]
    assert found["partitions"][1]["error_code"] == ErrorCode.LEADER_NOT_AVAILABLE
    assert found["partitions"][1]["offline_replicas"] == [5]
