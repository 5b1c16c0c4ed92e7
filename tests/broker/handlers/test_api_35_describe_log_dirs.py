"""DescribeLogDirs: what a real 3.9.2 cannot be asked for.

What it can be asked for is compared with it in test_topics_kafka.py and test_two_brokers.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from support.broker.asking import Asking
from support.clients.raw_client import batch

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey
from kts.errors import LogStorageError


def log_dir(asking: Asking, topics: Any, version: int = 5) -> Any:
    [found] = asking.ask(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})["results"]
    return found


def sizes(found: Any) -> dict[tuple[str, int], int]:
    return {
        (topic["name"], one["partition_index"]): one["partition_size"]
        for topic in found["topics"]
        for one in topic["partitions"]
    }


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
