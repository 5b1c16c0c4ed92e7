"""AlterPartitionReassignments: what a real 3.9.2 cannot be asked for.

What it can be asked for is compared with it in test_topics_kafka.py and test_two_brokers.py.
"""

from __future__ import annotations

import pytest
from support.broker.asking import Asking

from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("allowed", [True, False])
def test_kafka_4s_version_of_a_reassignment_is_answered_in_kind(asking: Asking, allowed: bool) -> None:
    partitions = [{"partition_index": 0, "replicas": [1]}, {"partition_index": 1, "replicas": [1, 2]}]
    body = {"allow_replication_factor_change": allowed, "topics": [{"name": "a", "partitions": partitions}]}
    found = asking.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, body)
    assert found["allow_replication_factor_change"] is allowed
    codes = [one["error_code"] for one in found["responses"][0]["partitions"]]
    assert codes == [0, ErrorCode.INVALID_REPLICA_ASSIGNMENT]
