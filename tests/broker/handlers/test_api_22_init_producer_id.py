"""InitProducerId: ids, and the transactions that there are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.broker.asking import Asking

import kts
from kts.broker.broker import Broker
from kts.broker.wire.messages import ApiKey

NOW = 1_795_231_400_000  # a while after the records of OPEN


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
