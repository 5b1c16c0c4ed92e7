"""LogAppendTime over a change of leader whose clock is behind: offsets go on, times go back.

What that does to searches, rolling and retention, and what KIP-32's first option would do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.clients.client_kafka_python import KafkaPython
from support.clients.client_librdkafka import Confluent
from support.clients.client_records import Record
from support.clients.clients import Client
from support.processes.cli_runs import run

import kts
from kts.cli.times import parse_time
from kts.testing import KtsBroker

MINUTE_MS, DAY_MS = 60_000, 86_400_000
SETTINGS = {"message.timestamp.type": "LogAppendTime", "retention.ms": DAY_MS, "index.interval.bytes": 0}


def at(time: str, day: int = 1) -> int:
    """A time of day, in September 2026."""
    return parse_time(f"2026-09-{day:02d}T{time}:00Z")


class Clock:
    """Stands where it is put."""

    def __init__(self, time: str) -> None:
        self.now_ms = at(time)

    def __call__(self) -> int:
        return self.now_ms


def produce(log: kts.Log, clock: Clock, first: str, count: int, epoch: int) -> list[int]:
    """A record a minute, from a time of the leader's clock on; the times that producers are told."""
    told = []
    for minute in range(count):
        clock.now_ms = at(first) + minute * MINUTE_MS
        done = log.append(kts.encode({"value": pa.array([b"x" * 50])}), leader_epoch=epoch)
        told.append(done.log_append_time_ms)
    return told


def times(log: kts.Log) -> list[int]:
    columns = kts.scan(log.path, columns=["offset", "timestamp"]).read_all()
    assert columns["offset"].to_pylist() == list(range(log.log_end_offset))
    return columns["timestamp"].cast(pa.int64()).to_pylist()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the follower's copy lies of what a leader appended from 10:00 to 10:09."""
    clock = Clock("10:00")
    with (
        kts.Log(tmp_path / "a" / "t-0", SETTINGS, clock=clock) as leader,
        kts.Log(tmp_path / "b" / "t-0", SETTINGS, clock=clock) as follower,
    ):
        produce(leader, clock, "10:00", 10, 0)
        follower.append_as_follower(leader.read(0, 1 << 20).records)
    return tmp_path / "b" / "t-0"


class Second:
    """The copy with the new leader's clock, nineteen minutes behind."""

    def __init__(self, folder: Path, **named: object) -> None:
        self.clock = Clock("09:50")
        settings = SETTINGS | named.pop("settings", {})  # type: ignore[operator]
        self.log = kts.Log(folder, settings, clock=self.clock, **named)  # type: ignore[arg-type]

    def lead(self, first: str, count: int) -> list[int]:
        return produce(self.log, self.clock, first, count, 1)

    def find(self, time: str) -> int | None:
        """The offset for a time, on which our search and the shipped one agree."""
        found, shipped = (self.log.offset_for_timestamp(at(time), shipped_search=each) for each in (False, True))
        assert found == shipped
        return None if found is None else found.offset


@pytest.fixture
def second(folder: Path) -> Iterator[Second]:
    second = Second(folder)
    with second.log:
        yield second


def test_offsets_grow_and_times_go_back(second: Second) -> None:
    told = second.lead("09:50", 15)
    assert told[0] == at("09:50") < at("10:09") == times(second.log)[9]
    assert times(second.log)[10:] == told
    assert second.log.leader_epochs == [(0, 0), (1, 10)]


def test_a_search_finds_nothing_that_the_slow_clock_stamped_until_it_has_caught_up(second: Second) -> None:
    second.lead("09:50", 25)  # until 10:14: offsets 10 to 34
    assert second.find("09:50") == second.find("09:55") == second.find("10:00") == 0
    assert second.find("10:05") == 5  # the old leader's, not offset 25 of the new one's 10:05
    assert second.find("10:10") == 30
    assert second.find("10:15") is None
    index = (Path(second.log.path) / f"{0:020d}.timeindex").read_bytes()
    entries = [entry for entry in kts.TimeIndex(index, 0).entries()[0].tolist() if entry]
    assert entries == [at("10:00") + minute * MINUTE_MS for minute in range(1, 15)]  # none for the slow clock's


def test_a_search_still_loses_nothing_behind_its_answer(second: Second) -> None:
    second.lead("09:50", 25)
    stamped = times(second.log)
    for minute in range(-15, 20):
        target = at("10:00") + minute * MINUTE_MS
        found = second.log.offset_for_timestamp(target)
        before = stamped if found is None else stamped[: found.offset]
        assert all(time < target for time in before)


def test_a_range_of_times_is_whole_unless_it_is_one_of_offsets(second: Second) -> None:
    second.lead("09:50", 10)
    asked = {"starting_timestamp": at("09:50"), "ending_timestamp": at("10:00"), "columns": ["offset"]}
    assert kts.scan(second.log.path, **asked, strict_time_range=False).read_all().num_rows == 0
    exact = kts.scan(second.log.path, **asked).read_all()
    assert exact["offset"].to_pylist() == list(range(10, 20))


def test_segments_of_the_slow_clock_wait_for_the_one_before(second: Second) -> None:
    second.log.roll()
    second.lead("09:50", 5)  # 09:50 to 09:54
    second.log.roll()
    second.lead("10:20", 1)
    second.clock.now_ms = at("10:09", day=2)  # 24 h 15 min after the newest record of the second segment
    assert second.log.delete_old_segments() == []
    second.clock.now_ms += 1
    gone = second.log.delete_old_segments()
    assert [(each.base_offset, each.largest_timestamp_ms) for each in gone] == [(0, at("10:09")), (10, at("09:54"))]


def test_a_segment_rolls_late_by_as_much_as_the_clock_is_behind(folder: Path) -> None:
    second = Second(folder, settings={"segment.ms": 15 * MINUTE_MS})
    with second.log as log:
        second.lead("09:50", 26)  # up to 10:15: as old as may be, after the first record's 10:00
        assert [segment.base_offset for segment in log.segments] == [0]
        second.lead("10:16", 1)  # 26 minutes after the new leader's first record, not 15
        assert [segment.base_offset for segment in log.segments] == [0, 36]


def test_with_kip_32s_first_option_times_stand_still_instead(folder: Path) -> None:
    second = Second(folder, proposals=("monotonic-append-time",))
    with second.log as log:
        told = second.lead("09:50", 25)
        assert told == [at("10:09")] * 20 + [at("10:10") + minute * MINUTE_MS for minute in range(5)]
        stamped = times(log)
        assert stamped == sorted(stamped)
        assert second.find("10:09") == 9 and second.find("10:10") == 30
        log.truncate_to(32)
    again = Second(folder, proposals=("monotonic-append-time",))
    with again.log:
        assert again.lead("09:59", 2) == [at("10:11")] * 2


def test_the_option_leaves_create_time_alone(tmp_path: Path) -> None:
    clock = Clock("10:00")
    with kts.Log(tmp_path / "t-0", {}, clock=clock, proposals=("monotonic-append-time",)) as log:
        for time in ("10:05", "09:00"):
            stamps = pa.array([at(time)], pa.timestamp("ms", "UTC"))
            log.append(kts.encode({"timestamp": stamps, "value": pa.array([b"x"])}))
        assert times(log) == [at("10:05"), at("09:00")]


# --- over the wire --------------------------------------------------------------------------------

OF_BROKER = {"log.message.timestamp.type": "LogAppendTime", "log.index.interval.bytes": 0}


def send(client: Client, broker: KtsBroker, first: str, count: int) -> list[int | None]:
    """A record a minute from a real producer; the times that it is told."""
    told: list[int | None] = []
    for minute in range(count):
        broker.set_time(at(first) + minute * MINUTE_MS)
        told += [sent.timestamp for sent in client.produce(broker.bootstrap_servers, "t", [Record(None, b"x", 1)])]
    return told


def copy(leader: KtsBroker, folder: Path) -> None:
    """Another broker's replica of the topic, as `kts follow` makes it."""
    run("follow", "--bootstrap-server", leader.bootstrap_servers, "--topic", "t", "--once", folder)


@pytest.mark.slow
@pytest.mark.parametrize("client", [KafkaPython(), Confluent()], ids=lambda client: client.name)
def test_two_brokers_that_lead_in_turn_stamp_times_that_never_go_back(client: Client, tmp_path: Path) -> None:
    with KtsBroker(tmp_path / "a", OF_BROKER | {"log.proposals": "monotonic-append-time"}) as first:
        first.create_topic("t")
        assert send(client, first, "10:05", 3) == [at("10:05"), at("10:06"), at("10:07")]
        copy(first, tmp_path / "b")
        first.kill()
    with KtsBroker(tmp_path / "b") as second:  # the replica has the settings of its leader
        told = send(client, second, "10:04", 6)
        assert told == [at("10:07")] * 4 + [at("10:08"), at("10:09")]
        copy(second, tmp_path / "a")
    with KtsBroker(tmp_path / "a") as first:
        assert send(client, first, "10:00", 1) == [at("10:09")]
        seen = [row.timestamp for row in client.consume(first.bootstrap_servers, "t")]
        assert seen == [*(at(f"10:0{minute}") for minute in (5, 6, 7)), *told, at("10:09")] == sorted(seen)  # type: ignore[type-var]
        found = client.times(first.bootstrap_servers, "t", [at("10:07"), at("10:08"), at("10:09") + 1])
        assert [answer and answer[0] for answer in found] == [2, 7, None]


@pytest.mark.slow
def test_two_brokers_without_the_proposal_each_stamp_by_their_own_clock(tmp_path: Path) -> None:
    client = KafkaPython()
    with KtsBroker(tmp_path / "a", OF_BROKER) as first:
        first.create_topic("t")
        send(client, first, "10:05", 3)
        copy(first, tmp_path / "b")
    with KtsBroker(tmp_path / "b") as second:
        assert send(client, second, "10:04", 2) == [at("10:04"), at("10:05")]
