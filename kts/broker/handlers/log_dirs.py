"""DescribeLogDirs: sizes of partitions, and the space of the log directory.

Source: KafkaApis.handleDescribeLogDirsRequest, ReplicaManager.describeLogDirs (3.9); KIP-113, KIP-827.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from kts.broker.broker import Broker, Handler
from kts.broker.codes import ApiKey, ErrorCode
from kts.broker.request import Request
from kts.broker.threads import in_thread
from kts.broker.topics import Topics
from kts.broker.topics.partition import Partition
from kts.errors import KtsError


async def handle_describe_log_dirs(broker: Broker, request: Request) -> dict[str, Any]:
    """The log directory with the requested partitions, each once."""
    return await in_thread(_describe, broker.topics, request.body["topics"])


def _describe(topics: Topics, asked: list[dict[str, Any]] | None) -> dict[str, Any]:
    try:
        room = shutil.disk_usage(topics.directory)
    except OSError:
        result: dict[str, Any] = {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "log_dir": topics.directory}
        return {"results": [result]}
    found: dict[str, list[dict[str, Any]]] = {}
    for partition in topics.partitions() if asked is None else _asked(topics, asked):
        with suppress(KtsError):  # it was deleted, or the disk fails; as in Kafka, offline partitions are left out
            if not partition.is_offline:
                row = {"partition_index": partition.index, "partition_size": partition.size_bytes}
                found.setdefault(partition.topic, []).append(row)
    result = {
        "error_code": ErrorCode.NONE,
        "log_dir": topics.directory,
        "topics": [{"name": name, "partitions": rows} for name, rows in found.items()],
        "total_bytes": room.total,
        "usable_bytes": room.free,
    }
    return {"results": [result]}


def _asked(topics: Topics, asked: list[dict[str, Any]]) -> Iterable[Partition]:
    pairs = dict.fromkeys((one["topic"], index) for one in asked for index in one["partitions"])
    for name, index in pairs:
        topic = topics.get(name)
        if topic is not None and index in topic.partitions:
            yield topic.partitions[index]


HANDLERS: dict[int, Handler] = {ApiKey.DESCRIBE_LOG_DIRS: handle_describe_log_dirs}
