"""ApiVersions, Metadata, DescribeCluster, DescribeQuorum: what a broker says of itself, version by version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.asking import Asking

from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ApiKey, ErrorCode

NO_ID = bytes(16)
LOW, HIGH = wire.versions(ApiKey.METADATA)


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data", {"node.id": 5, "num.partitions": 3})) as found:
        yield found


@pytest.mark.parametrize("version", range(5))
def test_all_served_apis_are_listed_with_their_versions(asking: Asking, version: int) -> None:
    names = {"client_software_name": "kts", "client_software_version": "1.0"}
    found = asking.ask(ApiKey.API_VERSIONS, version, names)
    assert found["error_code"] == 0
    listed = {each["api_key"]: (each["min_version"], each["max_version"]) for each in found["api_keys"]}
    assert listed == wire.SERVED
    assert list(listed) == sorted(listed)


@pytest.mark.parametrize("name", ["", "-", "a b", "x-", "ü"])
def test_a_client_that_does_not_say_what_it_is_is_refused(asking: Asking, name: str) -> None:
    for names in ((name, "1"), ("kts", name)):
        body = dict(zip(("client_software_name", "client_software_version"), names, strict=True))
        assert asking.ask(ApiKey.API_VERSIONS, 3, body)["error_code"] == ErrorCode.INVALID_REQUEST


def test_a_broker_of_0_10_does_not_offer_what_its_logs_cannot_keep(tmp_path: Path) -> None:
    with Asking(Broker(tmp_path / "data", {"inter.broker.protocol.version": "0.10.2"})) as asking:
        found = asking.ask(ApiKey.API_VERSIONS, 0, {})
    listed = {each["api_key"]: each["max_version"] for each in found["api_keys"]}
    assert (listed[ApiKey.PRODUCE], listed[ApiKey.FETCH], listed[ApiKey.LIST_OFFSETS]) == (2, 3, 1)
    assert ApiKey.INIT_PRODUCER_ID not in listed


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


@pytest.mark.parametrize("version", range(wire.versions(ApiKey.DESCRIBE_CLUSTER)[1] + 1))
def test_the_cluster_is_one_broker(asking: Asking, version: int) -> None:
    found = asking.ask(ApiKey.DESCRIBE_CLUSTER, version, {"include_cluster_authorized_operations": True})
    assert (found["error_code"], found["controller_id"]) == (0, 5)
    assert found["cluster_id"] == asking.broker.cluster_id
    assert [each["broker_id"] for each in found["brokers"]] == [5]
    assert found["cluster_authorized_operations"] == 8096


def test_of_controllers_there_is_nothing_to_say(asking: Asking) -> None:
    for endpoint, error in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        assert asking.ask(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": endpoint})["error_code"] == error


def test_there_is_no_quorum_and_clients_are_told_so(asking: Asking) -> None:
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    found = asking.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": asked})
    assert (found["error_code"], found["topics"]) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert "no metadata quorum" in found["error_message"]
