"""DescribeConfigs, in every version. Codes and texts are those of a 3.9 controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.broker.asking import Asking, versions
from support.broker.broker_asking import Asked, Body
from support.broker.config_asking import BROKER, TOPIC
from support.clients.raw_client import RawClient

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey
from kts.server.server import ServerThread


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


def test_where_it_is_and_listens_is_told_as_it_is(tmp_path: Path) -> None:
    given = {"log.dirs": "/nowhere", "listeners": "PLAINTEXT://:9092"}
    with Broker(tmp_path, given) as broker, ServerThread(broker, "localhost") as server:
        port = server.address[1]
        body = {"resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]}
        with RawClient(("127.0.0.1", port)) as client:
            found = {
                one["name"]: one["value"]
                for one in client.ask(ApiKey.DESCRIBE_CONFIGS, 4, body)["results"][0]["configs"]
            }
        assert found["log.dirs"] == str(tmp_path)
        assert found["listeners"] == found["advertised.listeners"] == f"PLAINTEXT://localhost:{port}"


def test_a_node_has_one_name_so_that_its_settings_are_told_once(asking: Asking) -> None:
    names = ["1", *("0" * count + "1" for count in range(1, 9)), "+1"]
    resources = [{"resource_type": 4, "resource_name": name, "configuration_keys": None} for name in names]
    told = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources * 3})["results"]
    assert [one["error_code"] for one in told] == [0] + [ErrorCode.INVALID_REQUEST] * 9
    assert [one["resource_name"] for one in told if one["configs"]] == ["1"]
