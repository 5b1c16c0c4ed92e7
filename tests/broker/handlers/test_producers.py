"""The ids of producers, the producers of a partition, and the transactions that there are not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import TESTS
from support.broker.asking import Asking

import kts
from kts.broker.broker import Broker
from kts.broker.codes import ApiKey

OPEN = TESTS / "data" / "golden" / "3.9.2" / "txn-open" / "txn-open-0"
NOW = 1_795_231_400_000  # a while after the records of OPEN


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data")) as found:
        for name in ("a", "b"):
            found.broker.topics.create(name, 2)
        yield found


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


@pytest.mark.parametrize("version", range(7))
def test_producers_get_fresh_ids_with_epoch_0(asking: Asking, version: int) -> None:
    def ask(transactional_id: str | None = None, **more: int) -> tuple[int, int, int]:
        body = {"transactional_id": transactional_id, "transaction_timeout_ms": 1000, **more}
        row = asking.ask(ApiKey.INIT_PRODUCER_ID, version, body)
        return row["error_code"], row["producer_id"], row["producer_epoch"]

    given = [ask() for _ in range(3)]
    assert [(code, epoch) for code, _, epoch in given] == [(0, 0)] * 3
    assert len({number for _, number, _ in given}) == 3
    assert ask("mine") == (53, -1, -1)
    assert ask("") == (42, -1, -1)
    if version >= 3:  # a producer that has an id gets another one, as outside of transactions in Kafka
        code, number, epoch = ask(producer_id=given[0][1], producer_epoch=4)
        assert (code, epoch) == (0, 0) and number not in {one[1] for one in given}
        assert ask(producer_id=5) == ask(producer_epoch=5) == (42, -1, -1)


def test_ids_are_fresh_after_a_restart_and_in_a_directory_with_producers(tmp_path: Path) -> None:
    def ask(asking: Asking) -> int:
        body = {"transactional_id": None, "transaction_timeout_ms": 1000}
        return asking.ask(ApiKey.INIT_PRODUCER_ID, 4, body)["producer_id"]

    with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as asking:
        used = kts.encode({"timestamp": [NOW], "value": [b"v"]}, producer_id=123456, producer_epoch=0, base_sequence=0)
        asking.broker.topics.create("t").partitions[0].append(used)
    seen = []
    for _ in range(3):
        with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as asking:
            seen += [ask(asking), ask(asking)]
    assert min(seen) > 123456
    assert len(set(seen)) == 6
