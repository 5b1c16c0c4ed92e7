"""ListOffsets, DeleteRecords and OffsetForLeaderEpoch, in every version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.asking import Asking

import kts
from kts.broker.broker import Broker
from kts.broker.codes import ApiKey

NOW = 1_500_000_000_000
NOTHING = (0, -1, -1)


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as found:
        yield found


def found(row: Any) -> tuple[int, int, int]:
    return row["error_code"], row["timestamp"], row["offset"]


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Asking]:
    """A broker of the 0.10.2 protocol."""
    settings = {"inter.broker.protocol.version": "0.10.2"}
    with Asking(Broker(tmp_path / "old", settings, clock=lambda: NOW)) as found:
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
            assert found(asking.list_offsets("t", -1, version=version, replica_id=replica)) == (0, -1, wanted)
        assert found(asking.list_offsets("t", NOW + 2, version=version)) == (0, NOW + 2, 2)
        assert found(asking.list_offsets("t", NOW + 3, version=version)) == ((0, NOW + 3, 3) if passes else NOTHING)
        assert found(asking.list_offsets("t", NOW + 4, version=version)) == NOTHING
        assert found(asking.list_offsets("t", NOW + 4, version=version, replica_id=1)) == (0, NOW + 4, 4)


def test_read_committed_ends_at_the_open_transaction(asking: Asking) -> None:
    asking.create()
    asking.append(1, 2)
    log = asking.broker.topics.get("t").partitions[0].log
    ours = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.append(kts.encode({"timestamp": [3], "value": [b"x"]}, **ours), origin="coordinator")
    asking.append(4)
    for version in range(2, 12):
        for isolation, end, four in ((0, 4, (0, 4, 3)), (1, 2, NOTHING)):
            assert found(asking.list_offsets("t", -1, version=version, isolation_level=isolation)) == (0, -1, end)
            assert found(asking.list_offsets("t", 4, version=version, isolation_level=isolation)) == four
        assert found(asking.list_offsets("t", -1, version=version, isolation_level=1, replica_id=2)) == (0, -1, 4)


@pytest.mark.parametrize("version", range(1, 12))
def test_unknown_and_repeated_partitions(asking: Asking, version: int) -> None:
    asking.create(partitions=2)
    rows = [{"partition_index": at, "timestamp": -1} for at in (0, 1, 0, 5)]
    body = {"replica_id": -1, "topics": [{"name": "t", "partitions": rows}, {"name": "u", "partitions": rows[1:2]}]}
    answers = asking.ask(ApiKey.LIST_OFFSETS, version, body)["topics"]
    codes = [[row["error_code"] for row in one["partitions"]] for one in answers]
    assert codes == [[42, 0, 42, 3], [3]]


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


# --- DeleteRecords --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_are_deleted_up_to_an_offset(asking: Asking, version: int) -> None:
    asking.create()
    log = asking.append(*range(10))
    log.advance_high_watermark(8)
    for offset, wanted in ((0, (0, 0)), (3, (0, 3)), (2, (0, 3)), (9, (1, -1)), (11, (1, -1)), (-2, (1, -1)),
                           (-1, (0, 8))):  # fmt: skip
        assert asking.delete_records(offset, version=version) == wanted
    assert log.log_start_offset == 8
    assert asking.fetch("t", 7)["error_code"] == 1
    assert found(asking.list_offsets("t", -2)) == (0, -1, 8)
    assert found(asking.list_offsets("t", 0)) == NOTHING


def test_what_cannot_be_deleted(asking: Asking, old: Asking) -> None:
    asking.create("compacted", cleanup_policy="compact")
    asking.create("both", cleanup_policy="compact,delete")
    asking.create("__consumer_offsets")
    for name in ("compacted", "both"):
        asking.append(1, name=name, magic=1)
    old.create()
    old.append(1, magic=1)
    assert asking.delete_records(1, name="compacted") == (44, -1)
    assert asking.delete_records(1, name="both") == (0, 1)
    assert asking.delete_records(0, name="__consumer_offsets") == (17, -1)
    assert asking.delete_records(0, name="missing") == (3, -1)
    assert asking.delete_records(0, name="both", partition=4) == (3, -1)
    assert old.delete_records(1) == (35, -1)  # 0.10.2 has no log start offset of its own


# --- OffsetForLeaderEpoch -------------------------------------------------------------------------


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
