"""ListOffsets, in every version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.asking import NOT_FOUND, Asking, listed

import kts
from kts.broker.broker import Broker
from kts.broker.wire.messages import ApiKey

NOW = 1_500_000_000_000


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as found:
        yield found


@pytest.mark.parametrize("form", ["0.10.2", "3.9"])
def test_consumers_see_offsets_up_to_the_high_watermark(asking: Asking, old: Asking, form: str) -> None:
    """0.10.2 lets the high watermark itself pass, 3.9 does not."""
    asking = old if form == "0.10.2" else asking
    asking.create()
    for at in range(5):
        log = asking.append(NOW + at, magic=1)
    log.advance_high_watermark(3)
    passes = form == "0.10.2"
    for version in range(1, 12):
        for replica, wanted in ((-1, 3), (0, 5), (-2, 5)):
            assert listed(asking.list_offsets("t", -1, version=version, replica_id=replica)) == (0, -1, wanted)
        assert listed(asking.list_offsets("t", NOW + 2, version=version)) == (0, NOW + 2, 2)
        assert listed(asking.list_offsets("t", NOW + 3, version=version)) == ((0, NOW + 3, 3) if passes else NOT_FOUND)
        assert listed(asking.list_offsets("t", NOW + 4, version=version)) == NOT_FOUND
        assert listed(asking.list_offsets("t", NOW + 4, version=version, replica_id=1)) == (0, NOW + 4, 4)


def test_read_committed_ends_at_the_open_transaction(asking: Asking) -> None:
    asking.create()
    asking.append(1, 2)
    log = asking.broker.topics.get("t").partitions[0].log
    ours = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.append(kts.encode({"timestamp": [3], "value": [b"x"]}, **ours), origin="coordinator")
    asking.append(4)
    for version in range(2, 12):
        for isolation, end, four in ((0, 4, (0, 4, 3)), (1, 2, NOT_FOUND)):
            assert listed(asking.list_offsets("t", -1, version=version, isolation_level=isolation)) == (0, -1, end)
            assert listed(asking.list_offsets("t", 4, version=version, isolation_level=isolation)) == four
        assert listed(asking.list_offsets("t", -1, version=version, isolation_level=1, replica_id=2)) == (0, -1, 4)


@pytest.mark.parametrize("version", range(1, 12))
def test_unknown_and_repeated_partitions(asking: Asking, version: int) -> None:
    asking.create(partitions=2)
    rows = [{"partition_index": at, "timestamp": -1} for at in (0, 1, 0, 5)]
    body = {"replica_id": -1, "topics": [{"name": "t", "partitions": rows}, {"name": "u", "partitions": rows[1:2]}]}
    answers = asking.ask(ApiKey.LIST_OFFSETS, version, body)["topics"]
    codes = [[row["error_code"] for row in one["partitions"]] for one in answers]
    assert codes == [[42, 0, 42, 3], [3]]


def test_by_4_3_a_repeated_partition_is_told_once(tmp_path: Path) -> None:
    rows = [{"partition_index": at, "timestamp": -1} for at in (0, 1, 0)]
    with Asking(Broker(tmp_path / "data", {"release": "4.3"})) as asking:
        asking.create(partitions=2)
        body = {"replica_id": -1, "topics": [{"name": "t", "partitions": rows}, {"name": "t", "partitions": rows}]}
        answers = asking.ask(ApiKey.LIST_OFFSETS, 11, body)["topics"]
    assert [[(row["partition_index"], row["error_code"]) for row in one["partitions"]] for one in answers] == [
        [(0, 42), (1, 42)],
        [],
    ]


def test_epochs_are_told_from_version_4_on_and_others_fenced(tmp_path: Path) -> None:
    known = []
    for at in range(3):
        with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as asking:
            if not at:
                asking.create()
            asking.append(10 * at, 10 * at + 5)
            known.append(asking.broker.topics.get("t").partitions[0].leader_epoch)
    with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as asking:
        now = asking.broker.topics.get("t").partitions[0].leader_epoch
        assert known == sorted(set(known)) and now == known[-1] + 1
        for version in range(4, 12):

            def epoch(target: int, version: int = version, **more: Any) -> tuple[int, int]:
                row = asking.list_offsets("t", target, version=version, **more)
                return row["error_code"], row["leader_epoch"]

            assert [epoch(target)[1] for target in (-2, 0, 5, 6, 15, 16, 25, 26)] == [
                known[0], known[0], known[0], known[1], known[1], known[2], known[2], -1,
            ]  # fmt: skip
            assert epoch(-1) == (0, now)
            assert epoch(5, current_leader_epoch=now) == (0, known[0])
            assert epoch(5, current_leader_epoch=now - 1) == (74, -1)
            assert epoch(-1, current_leader_epoch=now + 1) == (75, -1)
