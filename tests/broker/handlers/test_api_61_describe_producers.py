"""DescribeProducers: the producers of a partition."""

from __future__ import annotations

import shutil
from pathlib import Path

from support import TESTS
from support.broker.asking import Asking

import kts
from kts.broker.broker import Broker
from kts.broker.wire.messages import ApiKey

OPEN = TESTS / "data" / "golden" / "3.9.2" / "txn-open" / "txn-open-0"
NOW = 1_795_231_400_000  # a while after the records of OPEN


def test_an_open_transaction_of_a_real_broker_is_told_with_its_producer(tmp_path: Path) -> None:
    shutil.copytree(OPEN, tmp_path / "txn-open-0")
    with Asking(Broker(tmp_path, {"log.retention.ms": -1}, clock=lambda: NOW)) as asking:
        body = {"topics": [{"name": "txn-open", "partition_indexes": [0]}]}
        [row] = asking.ask(ApiKey.DESCRIBE_PRODUCERS, 0, body)["topics"][0]["partitions"]
        starts = sorted(one["current_txn_start_offset"] for one in row["active_producers"])
        assert starts[-1] == asking.broker.topics.get("txn-open").partitions[0].log.last_stable_offset == 18
        assert starts[:-1] == [-1] * (len(starts) - 1) != []
        ended = [one for one in row["active_producers"] if one["coordinator_epoch"] >= 0]
        assert ended != []
        found = asking.ask(ApiKey.LIST_TRANSACTIONS, 2, {"transactional_id_pattern": ".*"})
        assert (found["error_code"], found["transaction_states"]) == (0, [])


def test_many_questions_about_one_partitions_producers_have_one_answer(asking: Asking) -> None:
    partition = asking.broker.topics.get("a").partitions[0]
    for producer in range(50):
        partition.append(kts.encode({"value": [b"v"]}, producer_id=producer, producer_epoch=0, base_sequence=0))
    one = {"name": "a", "partition_indexes": [0, 0, 1] * 1000}
    found = asking.ask(
        ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [one] * 3 + [{"name": "", "partition_indexes": [0] * 9}]}
    )
    told = [(topic["name"], [each["partition_index"] for each in topic["partitions"]]) for topic in found["topics"]]
    assert told == [("a", [0, 1]), ("a", []), ("a", []), ("", [0])]
    assert sorted(each["producer_id"] for each in found["topics"][0]["partitions"][0]["active_producers"]) == [
        *range(50)
    ]
