"""ListPartitionReassignments: there is none."""

from __future__ import annotations

from support.broker.asking import Asking

from kts.broker.wire.messages import ApiKey


def test_no_reassignment_is_under_way_also_after_one(asking: Asking) -> None:
    partitions = [{"partition_index": 0, "replicas": [1]}]
    asking.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": [{"name": "a", "partitions": partitions}]})
    for topics in (None, [{"name": "a", "partition_indexes": [0]}]):
        found = asking.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": topics})
        assert (found["error_code"], found["error_message"], found["topics"]) == (0, None, [])
