"""Log directories, reassignments and elections: what a real 3.9.2 cannot be asked for.

What it can be asked for is compared with it in test_topics_kafka.py and test_two_brokers.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.asking import Asking
from support.clients.raw_client import batch

from kts.broker.broker import Broker
from kts.broker.codes import ApiKey, ErrorCode
from kts.errors import LogStorageError

NOW = 1_795_231_400_000  # a while after the records of OPEN


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data")) as found:
        for name in ("a", "b"):
            found.broker.topics.create(name, 2)
        yield found


def log_dir(asking: Asking, topics: Any, version: int = 5) -> Any:
    [found] = asking.ask(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})["results"]
    return found


def sizes(found: Any) -> dict[tuple[str, int], int]:
    return {
        (topic["name"], one["partition_index"]): one["partition_size"]
        for topic in found["topics"]
        for one in topic["partitions"]
    }


# --- log directories --------------------------------------------------------------------------------


def test_a_partition_has_the_same_size_before_and_after_it_is_opened(tmp_path: Path) -> None:
    with Asking(Broker(tmp_path, {"log.segment.bytes": 200})) as asking:
        topic = asking.broker.topics.create("a", 2)
        for number in range(9):
            topic.partitions[1].append(batch([b"%d" % number * 50]))
        written = topic.partitions[1].log.size_bytes
        assert len(list((tmp_path / "a-1").glob("*.log"))) > 3
        (tmp_path / "a-1" / f"{7:020}.log.deleted").write_bytes(bytes(1000))
    with Asking(Broker(tmp_path)) as asking:
        topic = asking.broker.topics.get("a")
        assert sizes(log_dir(asking, None)) == {("a", 0): 0, ("a", 1): written}
        assert not topic.partitions[1].is_open
        assert topic.partitions[1].log.size_bytes == written
        found = log_dir(asking, [{"topic": "a", "partitions": [1, 1, 5]}, {"topic": "a", "partitions": [1]}])
        assert sizes(found) == {("a", 1): written}
        assert [len(each["partitions"]) for each in found["topics"]] == [1]
        room = shutil.disk_usage(tmp_path)
        assert found["log_dir"] == str(tmp_path)
        assert (found["error_code"], found["total_bytes"], found["is_cordoned"]) == (0, room.total, False)
        assert 0 < found["usable_bytes"] < room.total


def test_what_is_offline_is_left_out_and_a_directory_that_is_gone_is_an_error(asking: Asking) -> None:
    asking.broker.topics.get("a").partitions[1].failure = LogStorageError("the disk fails")
    assert set(sizes(log_dir(asking, None))) == {("a", 0), ("b", 0), ("b", 1)}
    folder = Path(asking.broker.topics.directory)
    folder.rename(folder.with_name("away"))
    found = log_dir(asking, None)
    folder.with_name("away").rename(folder)
    assert (found["error_code"], found["topics"], found["total_bytes"]) == (ErrorCode.KAFKA_STORAGE_ERROR, [], -1)


# --- replicas ---------------------------------------------------------------------------------------


def test_nobody_is_elected_for_a_partition_that_is_offline(asking: Asking) -> None:
    asking.broker.topics.get("a").partitions[1].failure = LogStorageError("the disk fails")
    no_leader = {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    for kind, code in no_leader.items():
        asked = [{"topic": "a", "partitions": [0, 1]}]
        found = asking.ask(ApiKey.ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": asked})
        [topic] = found["replica_election_results"]
        assert [one["error_code"] for one in topic["partition_result"]] == [ErrorCode.ELECTION_NOT_NEEDED, code]
        found = asking.ask(ApiKey.ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": None})
        told = {
            topic["topic"]: [(one["partition_id"], one["error_code"]) for one in topic["partition_result"]]
            for topic in found["replica_election_results"]
        }
        assert told == {"a": [(1, code)], "b": []}


@pytest.mark.parametrize("allowed", [True, False])
def test_kafka_4s_version_of_a_reassignment_is_answered_in_kind(asking: Asking, allowed: bool) -> None:
    partitions = [{"partition_index": 0, "replicas": [1]}, {"partition_index": 1, "replicas": [1, 2]}]
    body = {"allow_replication_factor_change": allowed, "topics": [{"name": "a", "partitions": partitions}]}
    found = asking.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, body)
    assert found["allow_replication_factor_change"] is allowed
    codes = [one["error_code"] for one in found["responses"][0]["partitions"]]
    assert codes == [0, ErrorCode.INVALID_REPLICA_ASSIGNMENT]
