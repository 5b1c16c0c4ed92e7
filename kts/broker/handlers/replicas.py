"""DescribeLogDirs, AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders: one node has all replicas, in
one log directory, and leads them all.

Source: KafkaApis, ReplicaManager.describeLogDirs, ControllerApis, ReplicationControlManager (3.9); KIP-113, KIP-455,
KIP-460, KIP-827.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from kts.broker.broker import Broker, Handler
from kts.broker.codes import ApiError, ApiKey, ErrorCode, failed, refusal
from kts.broker.handlers.topics import check_replicas
from kts.broker.request import Request
from kts.broker.threads import in_thread
from kts.broker.topics import Topics
from kts.broker.topics.partition import Partition
from kts.errors import KtsError

Answer = dict[str, Any]
PREFERRED, UNCLEAN = 0, 1  # election types
DONE: Answer = {"error_code": 0, "error_message": None}
UNKNOWN = refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


# --- log directories --------------------------------------------------------------------------------


async def handle_describe_log_dirs(broker: Broker, request: Request) -> Answer:
    """The log directory with the requested partitions, each once."""
    return await in_thread(_describe_log_dirs, broker.topics, request.body["topics"])


def _describe_log_dirs(topics: Topics, asked: list[Answer] | None) -> Answer:
    try:
        room = shutil.disk_usage(topics.directory)
    except OSError:
        result: Answer = {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "log_dir": topics.directory}
        return {"results": [result]}
    found: dict[str, list[Answer]] = {}
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


def _asked(topics: Topics, asked: list[Answer]) -> Iterable[Partition]:
    pairs = dict.fromkeys((one["topic"], index) for one in asked for index in one["partitions"])
    for name, index in pairs:
        partition = topics.partition(name, index)
        if partition is not None:
            yield partition


# --- reassignments ----------------------------------------------------------------------------------


async def handle_alter_partition_reassignments(broker: Broker, request: Request) -> Answer:
    """Accept assignments to this node, where all partitions are; refuse others."""
    return await in_thread(_alter_reassignments, broker.topics, request.body)


def _alter_reassignments(topics: Topics, body: Answer) -> Answer:
    answers = []
    for topic in body["topics"]:
        rows = [
            {"partition_index": one["partition_index"], **_reassigned(topics, topic["name"], one)}
            for one in topic["partitions"]
        ]
        answers.append({"name": topic["name"], "partitions": rows})
    return {"allow_replication_factor_change": body["allow_replication_factor_change"], "responses": answers, **DONE}


def _reassigned(topics: Topics, name: str, one: Answer) -> Answer:
    if topics.partition(name, one["partition_index"]) is None:
        return UNKNOWN
    if one["replicas"] is None:  # cancels a reassignment
        return refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    try:
        check_replicas(topics, one["replicas"])
    except ApiError as error:
        return failed(error)
    return DONE


async def handle_list_partition_reassignments(_: Broker, __: Request) -> Answer:
    """There are none: a reassignment completes at once."""
    return {**DONE, "topics": []}


# --- elections --------------------------------------------------------------------------------------


async def handle_elect_leaders(broker: Broker, request: Request) -> Answer:
    """Not needed for a partition with a leader; an offline partition gets none."""
    kind = request.body["election_type"] if request.version > 0 else PREFERRED
    return await in_thread(_elect_leaders, broker.topics, request.body["topic_partitions"], kind)


def _elect_leaders(topics: Topics, asked: list[Answer] | None, kind: int) -> Answer:
    if kind not in (PREFERRED, UNCLEAN) and asked != []:
        message = f"expected election type {PREFERRED} (preferred) or {UNCLEAN} (unclean), found {kind}"
        refused = refusal(ErrorCode.INVALID_REQUEST, message)
        results = [(one["topic"], [(index, refused) for index in one["partitions"]]) for one in asked or ()]
        return {"error_code": ErrorCode.INVALID_REQUEST, "replica_election_results": _results(results)}
    if asked is not None:
        told = [
            (one["topic"], [(index, _elected(topics, one["topic"], index, kind)) for index in one["partitions"]])
            for one in asked
        ]
        return {"error_code": 0, "replica_election_results": _results(told)}
    found = []
    for name in topics.names():  # Kafka answers only partitions that needed an election
        topic = topics.get(name)
        every = [(index, _elected(topics, name, index, kind)) for index in (topic.partitions if topic else ())]
        needed = [(index, row) for index, row in every if row["error_code"] != ErrorCode.ELECTION_NOT_NEEDED]
        found.append((name, needed))
    return {"error_code": 0, "replica_election_results": _results(found)}


def _results(found: list[tuple[str, list[tuple[int, Answer]]]]) -> list[Answer]:
    return [
        {"topic": name, "partition_result": [{"partition_id": index, **row} for index, row in rows]}
        for name, rows in found
    ]


def _elected(topics: Topics, name: str, index: int, kind: int) -> Answer:
    partition = topics.partition(name, index)
    if partition is None:
        return UNKNOWN
    if not partition.is_offline:
        return refusal(ErrorCode.ELECTION_NOT_NEEDED, "the partition has its leader already")
    none = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if kind == PREFERRED else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return refusal(none, "the only replica is offline")


HANDLERS: dict[int, Handler] = {
    ApiKey.DESCRIBE_LOG_DIRS: handle_describe_log_dirs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: handle_alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: handle_list_partition_reassignments,
    ApiKey.ELECT_LEADERS: handle_elect_leaders,
}
