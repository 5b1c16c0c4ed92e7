"""Topics and partitions of a request: found by name or id, and a failure stays with its partition."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kts.broker.broker import Broker
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.leaders import LONG, answer_of, existing, find_topic, is_long, why_closed
from kts.broker.request import Body
from kts.broker.topics import Topics
from kts.broker.topics.partition import Partition
from kts.broker.wire.messages import ApiKey
from kts.errors import CorruptRecordError, KtsError, LogClosedError


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    with Broker(tmp_path) as broker:
        broker.topics.create("t", 2)
        yield broker.topics


def test_a_topic_is_found_by_its_name_or_its_id(topics: Topics) -> None:
    topic = topics.get("t")
    assert topic is not None
    assert find_topic(topics, {"name": "t"}, False) == find_topic(topics, {"topic": "t"}, False, "topic") == (topic, 0)
    assert find_topic(topics, {"name": "", "topic_id": topic.topic_id}, True) == (topic, 0)
    assert find_topic(topics, {"name": "u"}, False) == (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert find_topic(topics, {"topic_id": bytes(16)}, True) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


def test_the_partitions_that_exist_are_found(topics: Topics) -> None:
    asked = [{"topic": name, "partitions": [{"partition": index} for index in (1, 2)]} for name in ("t", "u")]
    assert [str(one.index) for one in existing(topics, asked, "topic", "partition")] == ["1"]
    assert not is_long([{"partitions": [0] * LONG}])
    assert is_long([{"partitions": [0] * LONG}, {"partitions": [0]}])


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (ApiError(ErrorCode.FENCED_LEADER_EPOCH), 74, []),
        (CorruptRecordError("damage"), 2, []),
        (KtsError("?"), -1, ["LIST_OFFSETS of"]),
        (LogClosedError("closed"), 56, []),
        (ZeroDivisionError(), -1, ["LIST_OFFSETS of"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failure_is_the_answer_of_its_partition(
    topics: Topics, caplog: pytest.LogCaptureFixture, failure: Exception, code: int, said: list[str]
) -> None:
    def work(_: Partition) -> Body:
        raise failure

    with caplog.at_level(logging.WARNING, "kts.broker.leaders"):
        assert answer_of(topics, "t", 1, work, ApiKey.LIST_OFFSETS) == {"error_code": code}
    assert [record.getMessage()[: len("LIST_OFFSETS of")] for record in caplog.records] == said


def test_a_partition_that_does_not_exist_is_not_asked(topics: Topics) -> None:
    for name, index in (("t", 2), ("u", 0)):
        found = answer_of(topics, name, index, lambda _: {"error_code": 0}, ApiKey.LIST_OFFSETS)
        assert found == {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert answer_of(topics, "t", 1, lambda one: {"error_code": 0, "at": one.index}, ApiKey.FETCH)["at"] == 1


def test_a_closed_log_is_a_deleted_topics_or_a_failed_disks(topics: Topics) -> None:
    topic = topics.get("t")
    assert topic is not None
    partition = topic.partitions[1]
    assert why_closed(topics, partition) == ErrorCode.KAFKA_STORAGE_ERROR
    topics.delete("t")
    assert why_closed(topics, partition) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
