"""DeleteTopics, in every version. Codes and texts are those of a 3.9 controller."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.broker.asking import versions
from support.broker.broker_asking import Asked, Body, codes

from kts.broker.broker import Broker
from kts.broker.wire.messages import ApiKey


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
