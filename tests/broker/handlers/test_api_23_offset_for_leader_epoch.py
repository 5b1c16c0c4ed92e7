"""OffsetForLeaderEpoch, in every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.broker.asking import Asking

from kts.broker.broker import Broker
from kts.broker.wire.messages import ApiKey

NOW = 1_500_000_000_000


def test_where_leader_epochs_ended(tmp_path: Path) -> None:
    for at in range(3):
        with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as asking:
            if not at:
                asking.create()
            asking.append(at, at)
    with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as asking:
        partition = asking.broker.topics.get("t").partitions[0]
        now, (first, second, third) = partition.leader_epoch, [epoch for epoch, _ in partition.log.leader_epochs[:3]]
        for version in range(5):

            def ask(epoch: int, partition: int = 0, name: str = "t", version: int = version, **more: int) -> Any:
                rows = [{"partition": partition, "leader_epoch": epoch, **more}]
                body = {"replica_id": -1, "topics": [{"topic": name, "partitions": rows}]}
                row = asking.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body)["topics"][0]["partitions"][0]
                return row["error_code"], row["leader_epoch"], row["end_offset"]

            told = version >= 1
            assert ask(first) == (0, first if told else -1, 2)
            assert ask(second) == (0, second if told else -1, 4)
            assert ask(third) == (0, third if told else -1, 6)
            assert ask(third + 9) == ask(-1) == (0, -1, -1)
            assert ask(first, partition=3) == ask(first, name="u") == (3, -1, -1)
            if version >= 2:
                assert ask(first, current_leader_epoch=now)[0] == 0
                assert ask(first, current_leader_epoch=now - 1) == (74, -1, -1)
                assert ask(first, current_leader_epoch=now + 1) == (75, -1, -1)
        assert asking.delete_records(4) == (0, 4)
        assert partition.log.leader_epochs == [(third, 4), (now, 6)]
        rows = [{"partition": 0, "leader_epoch": first}]
        body = {"replica_id": -1, "topics": [{"topic": "t", "partitions": rows}]}
        row = asking.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, body)["topics"][0]["partitions"][0]
        assert (row["leader_epoch"], row["end_offset"]) == (first, 4)  # older than all that is left
