"""ElectLeaders: what a real 3.9.2 cannot be asked for.

What it can be asked for is compared with it in test_topics_kafka.py and test_two_brokers.py.
"""

from __future__ import annotations

from support.broker.asking import Asking

from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey
from kts.errors import LogStorageError


def test_nobody_is_elected_for_a_partition_that_is_offline(asking: Asking) -> None:
    asking.broker.topics.get("a").partitions[1].failure = LogStorageError("the disk fails")
    no_leader = {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, 1: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    for kind, code in no_leader.items():
        asked = [{"topic": "a", "partitions": [0, 1]}]
        found = asking.ask(ApiKey.ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": asked})
        [topic] = found["replica_election_results"]
        assert [one["error_code"] for one in topic["partition_result"]] == [ErrorCode.ELECTION_NOT_NEEDED, code]
        found = asking.ask(ApiKey.ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": None})
        told = {
            topic["topic"]: [(one["partition_id"], one["error_code"]) for one in topic["partition_result"]]
            for topic in found["replica_election_results"]
        }
        assert told == {"a": [(1, code)], "b": []}
