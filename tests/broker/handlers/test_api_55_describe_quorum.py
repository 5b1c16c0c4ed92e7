"""DescribeQuorum: there is none."""

from __future__ import annotations

from support.broker.asking import Asking

from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


def test_there_is_no_quorum_and_clients_are_told_so(asking: Asking) -> None:
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    found = asking.ask(ApiKey.DESCRIBE_QUORUM, 2, {"topics": asked})
    assert (found["error_code"], found["topics"]) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert "no metadata quorum" in found["error_message"]
