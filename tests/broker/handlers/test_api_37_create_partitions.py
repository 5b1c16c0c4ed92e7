"""CreatePartitions, in every version. Codes and texts are those of a 3.9 controller."""

from __future__ import annotations

import pytest
from support.broker.asking import versions
from support.broker.broker_asking import Asked, codes

import kts
from kts.broker.wire.messages import ApiKey


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


def test_too_many_partitions_of_one_topic_are_refused(ask: Asked) -> None:
    found = ask(ApiKey.CREATE_PARTITIONS, 3, {"topics": [{"name": "x", "count": 2**31 - 1}], "timeout_ms": 1})
    assert codes(found["results"]) == {"x": 3}
    ask.topics.create("t")
    found = ask(ApiKey.CREATE_PARTITIONS, 3, {"topics": [{"name": "t", "count": 2**31 - 1}], "timeout_ms": 1})
    assert codes(found["results"]) == {"t": 44}
