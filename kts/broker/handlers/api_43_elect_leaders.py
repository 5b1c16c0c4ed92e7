"""ElectLeaders (key 43), versions 0 to 2.

Elects none: a partition with a leader needs no election, and an offline one has no other replica.

Versions::

    1: unclean elections (KIP-460); an error of the whole answer
    2: flexible

Source: ControllerApis, ReplicationControlManager (3.9); KIP-183.
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode, refusal
from kts.broker.request import Body, Request
from kts.broker.threads import in_thread
from kts.broker.topics import Topics

PREFERRED, UNCLEAN = 0, 1  # election types


async def handle(broker: Broker, request: Request) -> Body:
    kind = request.body["election_type"] if request.version > 0 else PREFERRED
    return await in_thread(_elect_leaders, broker.topics, request.body["topic_partitions"], kind)


def _elect_leaders(topics: Topics, asked: list[Body] | None, kind: int) -> Body:
    if kind not in (PREFERRED, UNCLEAN) and asked != []:
        message = f"expected election type {PREFERRED} (preferred) or {UNCLEAN} (unclean), found {kind}"
        refused = refusal(ErrorCode.INVALID_REQUEST, message)
        results = [(one["topic"], [(index, refused) for index in one["partitions"]]) for one in asked or ()]
        return {"error_code": ErrorCode.INVALID_REQUEST, "replica_election_results": _results(results)}
    if asked is not None:
        rows = [
            (one["topic"], [(index, _elected(topics, one["topic"], index, kind)) for index in one["partitions"]])
            for one in asked
        ]
        return {"error_code": 0, "replica_election_results": _results(rows)}
    found = []
    for name in topics.names():  # Kafka answers only partitions that needed an election
        topic = topics.get(name)
        every = [(index, _elected(topics, name, index, kind)) for index in (topic.partitions if topic else ())]
        needed = [(index, row) for index, row in every if row["error_code"] != ErrorCode.ELECTION_NOT_NEEDED]
        found.append((name, needed))
    return {"error_code": 0, "replica_election_results": _results(found)}


def _results(found: list[tuple[str, list[tuple[int, Body]]]]) -> list[Body]:
    return [
        {"topic": name, "partition_result": [{"partition_id": index, **row} for index, row in rows]}
        for name, rows in found
    ]


def _elected(topics: Topics, name: str, index: int, kind: int) -> Body:
    partition = topics.partition(name, index)
    if partition is None:
        return refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not partition.is_offline:
        return refusal(ErrorCode.ELECTION_NOT_NEEDED, "the partition has its leader already")
    none = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if kind == PREFERRED else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return refusal(none, "the only replica is offline")
