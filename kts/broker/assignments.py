"""Assignments of replicas to brokers: the one broker that there is must have each, once."""

from __future__ import annotations

from kts.broker.codes import ApiError, ErrorCode
from kts.broker.topics import Topics


def check_replicas(topics: Topics, replicas: list[int]) -> None:
    """Check an assignment: this node, once.

    Raises
    ------
    ApiError
        INVALID_REPLICA_ASSIGNMENT.
    """
    begin = "The manual partition assignment includes"
    if not replicas:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{begin} an empty replica list.")
    for replica in sorted(replicas):
        if replica < 0:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{begin} an invalid broker id {replica}.")
        if replica != topics.node_id:
            message = f"{begin} broker {replica}, but no such broker is registered."
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if len(replicas) > 1:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{begin} the broker {topics.node_id} more than once.")
