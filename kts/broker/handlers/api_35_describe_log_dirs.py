"""DescribeLogDirs (key 35), versions 0 to 5.

Describes the one log directory, with the requested partitions, each once.

Versions::

    1: as before
    2: flexible
    3: an error of the whole answer, never set
    4: the size of the disk and what is free (KIP-827)
    5: whether the directory is cordoned (KIP-1066): never

Source: KafkaApis, ReplicaManager.describeLogDirs (3.9); KIP-113.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.request import Body, Request
from kts.broker.threads import in_thread
from kts.broker.topics import Topics
from kts.broker.topics.partition import Partition
from kts.errors import KtsError


async def handle(broker: Broker, request: Request) -> Body:
    return await in_thread(_describe_log_dirs, broker.topics, request.body["topics"])


def _describe_log_dirs(topics: Topics, asked: list[Body] | None) -> Body:
    try:
        room = shutil.disk_usage(topics.directory)
    except OSError:
        result: Body = {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "log_dir": topics.directory}
        return {"results": [result]}
    found: dict[str, list[Body]] = {}
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


def _asked(topics: Topics, asked: list[Body]) -> Iterable[Partition]:
    pairs = dict.fromkeys((one["topic"], index) for one in asked for index in one["partitions"])
    for name, index in pairs:
        partition = topics.partition(name, index)
        if partition is not None:
            yield partition
