"""Assignments of replicas: one broker has each partition, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kts.broker.assignments import check_replicas
from kts.broker.broker import Broker
from kts.broker.codes import ApiError, ErrorCode


@pytest.mark.parametrize(
    ("replicas", "reason"),
    [
        ([], "an empty replica list"),
        ([7, -1], "an invalid broker id -1"),
        ([9], "broker 9"),
        ([7, 7], "more than once"),
    ],
)
def test_only_this_node_can_be_assigned_and_once(tmp_path: Path, replicas: list[int], reason: str) -> None:
    with Broker(tmp_path, {"node.id": 7}) as broker:
        check_replicas(broker.topics, [7])
        with pytest.raises(ApiError, match=reason) as refused:
            check_replicas(broker.topics, replicas)
    assert refused.value.error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
