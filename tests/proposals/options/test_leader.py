"""The leader of options 1, 2 and 3 behind a broker's socket: what it answers to whom, and what it does not believe."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.broker.option_replicas import LAYOUTS, TOPIC, Replica, replicas
from support.golden import PATIENCE_S

import kts
from kts.broker.wire.messages import ApiKey
from kts.errors import CorruptRecordError, InvalidRequestError, LogClosedError, LogStorageError
from kts.proposals import options
from kts.proposals.options import OptionLeader, OptionLog, TimeIndexEntry
from kts.proposals.options.leader import MOST_ENTRIES
from kts.proposals.options.wire import FETCH, LIST_OFFSETS, PRODUCE, VERSION, ask_partition
from kts.replica.client import Connection
from kts.server import background
from kts.store import local
from kts.testing import Expired, KtsBroker

T = 1_500_000_000_000 - 1_500_000_000_000 % 60_000
MINUTE_MS = 60_000


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Replica]:
    with replicas(tmp_path, 1, start_ms=T) as [found]:
        found.lead()
        yield found


def fetch(connection: Connection, offset: int, replica_id: int, **fields: int) -> dict[str, Any]:
    one = {"fetch_offset": offset, "partition_max_bytes": 1 << 20, **fields}
    return ask_partition(connection, FETCH, TOPIC, 0, one, replica_id=replica_id, max_bytes=1 << 20)


def test_the_array_of_index_entries_is_always_empty_if_the_fetch_request_is_not_from_followers(leader: Replica) -> None:
    for _ in range(3):
        leader.produce(2)
        leader.clock.now_ms += MINUTE_MS
    with leader.connect() as connection:
        consumer, follower = (fetch(connection, 0, replica_id) for replica_id in (-1, 7))
        assert consumer["time_index"] == []
        assert fetch(connection, 0, -1, index_last_offset=5)["time_index"] == []
    assert consumer["records"] == follower["records"]
    assert follower["time_index"] == [
        {"log_append_time": T + number * MINUTE_MS, "offset": 2 * number} for number in range(3)
    ]


def test_offsets_of_index_entries_count_from_the_fetch_offset(leader: Replica) -> None:
    leader.produce(2)
    leader.clock.now_ms += 1
    leader.produce(2)
    leader.log.roll()
    leader.clock.now_ms += MINUTE_MS
    leader.produce(2)
    with leader.connect() as connection:
        found = fetch(connection, 4, 7)
    assert found["time_index"] == [
        {"log_append_time": T + 1, "offset": -1},  # of the last message of the segment before
        {"log_append_time": T + 1 + MINUTE_MS, "offset": 0},
    ]
    assert found["segment_base_offset"] == 4


def test_an_answer_has_a_limited_number_of_index_entries_and_says_how_far_they_go(leader: Replica) -> None:
    count = MOST_ENTRIES + 10
    entries = [TimeIndexEntry(T + number * MINUTE_MS, number) for number in range(count)]
    leader.log.append_as_follower(options.encode({"value": [b"x"] * count}, option=3), entries)
    leader.lead()
    with leader.connect() as connection:
        first = fetch(connection, 0, 7, partition_max_bytes=0, index_last_offset=MOST_ENTRIES + 9)
        assert (len(first["time_index"]), first["index_last_offset"]) == (MOST_ENTRIES, MOST_ENTRIES - 1)
        rest = fetch(connection, MOST_ENTRIES, 7, partition_max_bytes=0, index_last_offset=MOST_ENTRIES + 9)
        assert (len(rest["time_index"]), rest["index_last_offset"]) == (11, MOST_ENTRIES + 9)  # and the one before
        assert not first["records"]


def test_no_records_come_without_their_index_entries(leader: Replica) -> None:
    count = MOST_ENTRIES + 10
    entries = [TimeIndexEntry(T + number * MINUTE_MS, 2 * number) for number in range(count)]
    leader.log.append_as_follower(options.encode({"value": [b"x"] * 2 * count}, option=3), entries)
    leader.lead()
    with leader.connect() as connection:
        first = fetch(connection, 0, 7)
        assert options.decode(first["records"])["offset"].to_pylist() == [*range(2 * MOST_ENTRIES)]
        assert first["index_last_offset"] == 2 * MOST_ENTRIES - 1
        rest = fetch(connection, 2 * MOST_ENTRIES, 7)
        assert options.decode(rest["records"])["offset"].to_pylist() == [*range(2 * MOST_ENTRIES, 2 * count)]
        found = [
            (one["offset"] + at)
            for answer, at in ((first, 0), (rest, 2 * MOST_ENTRIES))
            for one in answer["time_index"]
        ]
        assert found == [entry.offset for entry in entries]
        assert options.decode(fetch(connection, 0, -1)["records"]).num_rows == 2 * count  # a consumer needs none


def test_the_number_of_index_entries_is_that_of_an_answer_whatever_the_partitions(tmp_path: Path) -> None:
    half = MOST_ENTRIES // 2 + 10
    data = options.encode({"value": [b"x"] * half}, option=3)
    with ExitStack() as stack:
        logs = [stack.enter_context(OptionLog(tmp_path / f"{TOPIC}-{number}", option=3)) for number in range(4)]
        for log in logs:
            log.append_as_follower(data, [TimeIndexEntry(T + number * MINUTE_MS, number) for number in range(half)])
        rows = [
            {"partition": number, "fetch_offset": 0, "last_fetched_epoch": -1, "partition_max_bytes": 1 << 20,
             "index_last_offset": -1}
            for number in range(4)
        ]  # fmt: skip
        asked = {"replica_id": 7, "max_bytes": 1 << 20, "topics": [{"topic": TOPIC, "partitions": rows}]}
        answer = OptionLeader(logs).answer(FETCH, asked)
        assert answer is not None
        found = answer["topics"][0]["partitions"]
        assert [len(row["time_index"]) for row in found] == [half, MOST_ENTRIES - half, 0, 0]
        for row in found:
            assert options.decode(row["records"]).num_rows == len(row["time_index"])


def test_a_segment_that_retention_takes_during_a_fetch_is_out_of_range(tmp_path: Path) -> None:
    now = T
    with OptionLog(tmp_path / "a-0", option=3, config={"retention.ms": 1}, clock=lambda: now) as log:
        leader = OptionLeader([log])
        log.append(options.encode({"value": [b"x"]}, option=3))
        read = log.index_entries

        def late(*offsets: int | None) -> list[TimeIndexEntry]:
            nonlocal now
            found = read(*offsets)
            now += 10
            assert log.delete_old_segments()
            return found

        log.index_entries = late  # type: ignore[method-assign]  # a race, decided
        one = {
            "partition": 0,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "partition_max_bytes": 100,
            "index_last_offset": -1,
        }
        answer = leader.answer(
            FETCH, {"replica_id": 1, "max_bytes": 100, "topics": [{"topic": "a", "partitions": [one]}]}
        )
        assert answer is not None
        [row] = answer["topics"][0]["partitions"]
        assert (row["error_code"], row["records"]) == (1, b"")
        assert row["error_message"].startswith("expected an offset from 1 on, found 0")


def test_the_records_of_an_answer_are_of_one_leader_epoch(leader: Replica) -> None:
    leader.produce(2)
    leader.lead()
    leader.produce(3)
    with leader.connect() as connection:
        first, second = fetch(connection, 0, 7), fetch(connection, 2, 7)
    assert (first["leader_epoch"], first["records_epoch"], second["records_epoch"]) == (1, 0, 1)
    assert options.decode(first["records"])["offset"].to_pylist() == [0, 1]
    assert options.decode(second["records"])["offset"].to_pylist() == [2, 3, 4]


def test_an_epoch_is_never_used_twice_even_if_a_crash_took_its_messages(leader: Replica) -> None:
    leader.produce(2)
    leader.lead()
    leader.produce(2)
    leader.kill()
    log = leader.path / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 4])
    leader.open()
    assert leader.log.log_end_offset < 2
    leader.lead()
    assert leader.leader is not None
    assert leader.leader.leader_epoch(TOPIC) == 2


def test_kafkas_own_records_and_other_options_are_refused_by_name(leader: Replica) -> None:
    sets = {
        "magic is 2, expected 35": kts.encode({"value": [b"x"]}),
        "magic is 1, expected 35": kts.encode({"value": [b"x"]}, magic=1),
        "magic is 33, expected 35": options.encode({"value": [b"x"]}, option=1),
    }
    with leader.connect() as connection:
        for words, data in sets.items():
            with pytest.raises(CorruptRecordError, match=words):
                ask_partition(connection, PRODUCE, TOPIC, 0, {"records": data}, acks=-1)
    assert leader.log.log_end_offset == 0


def test_a_topic_of_an_option_is_no_topic_of_the_broker(leader: Replica) -> None:
    leader.produce(1)
    assert leader.broker.topics() == []
    with leader.connect() as connection:
        body = {"topics": None, "allow_auto_topic_creation": False}
        assert connection.ask(ApiKey.METADATA, 9, body)["topics"] == []


def test_partitions_are_answered_each_for_itself(tmp_path: Path) -> None:
    with (
        OptionLog(tmp_path / "a-0", option=1) as first,
        OptionLog(tmp_path / "a-1", option=2) as second,
        KtsBroker(extensions=[OptionLeader([first, second])]) as broker,
        Connection(broker.host, broker.port, private=LAYOUTS) as connection,
    ):
        data = options.encode({"value": [b"x"]}, option=1)
        rows = [{"partition": number, "records": data} for number in range(3)]
        [topic] = connection.ask(PRODUCE, VERSION, {"acks": -1, "topics": [{"topic": "a", "partitions": rows}]})[
            "topics"
        ]
        assert [row["error_code"] for row in topic["partitions"]] == [0, 2, 6]
        assert [row["base_offset"] for row in topic["partitions"]] == [0, -1, -1]
        with pytest.raises(InvalidRequestError, match="expected each partition once, found a-0 twice"):
            OptionLeader([first, first])
        silent = {"acks": 0, "topics": [{"topic": "a", "partitions": rows[:1]}]}
        assert OptionLeader([first]).answer(PRODUCE, silent) is None
        assert first.log_end_offset == 2


def test_a_closed_log_leads_nothing_and_one_that_waits_has_its_index_when_it_leads(leader: Replica) -> None:
    leader.produce(2)
    leader.kill()
    with pytest.raises(LogClosedError):
        OptionLeader([leader.log])
    leader.open()
    assert leader.log.waits_for_leader == ((0, 1),)
    leader.lead()
    assert leader.log.waits_for_leader == ()
    assert leader.log.search(T).found == (T, 0)


def test_no_number_of_a_client_breaks_the_leader_or_takes_memory(leader: Replica, rng: random.Random) -> None:
    for _ in range(5):
        leader.produce(5)
        leader.clock.now_ms += MINUTE_MS
    edges = [-(2**63), -(2**31), -2, -1, 0, 1, 7, 24, 25, 26, 2**31 - 1, 2**63 - 1]
    small = [one for one in edges if -(2**31) <= one < 2**31]
    with leader.connect() as connection:
        for _ in range(500):
            one = {
                "partition": 0,
                "fetch_offset": rng.choice(edges),
                "last_fetched_epoch": rng.choice(small),
                "partition_max_bytes": rng.choice(small),
                "index_last_offset": rng.choice(edges),
            }
            limits = {"replica_id": rng.choice(small), "max_bytes": rng.choice(small)}
            [topic] = connection.ask(FETCH, VERSION, {**limits, "topics": [{"topic": TOPIC, "partitions": [one]}]})[
                "topics"
            ]
            [row] = topic["partitions"]
            assert row["error_code"] in (0, 1, 6), row
            assert not row["time_index"] or limits["replica_id"] != -1
        for time in edges:
            asked = {"partition": 0, "timestamp": time}
            [topic] = connection.ask(LIST_OFFSETS, VERSION, {"topics": [{"topic": TOPIC, "partitions": [asked]}]})[
                "topics"
            ]
            assert topic["partitions"][0]["error_code"] == 0
    assert leader.log.log_end_offset == 25


@pytest.mark.parametrize("option", [1, 2, 3])
def test_the_brokers_housekeeping_rolls_and_deletes_without_a_request(tmp_path: Path, option: int) -> None:
    broker = KtsBroker(time=T)
    settings = {"segment.ms": MINUTE_MS, "retention.ms": 3 * MINUTE_MS}
    with OptionLog(tmp_path / "a-0", option=option, config=settings, clock=broker.clock) as log:
        closed = OptionLog(tmp_path / "a-1", option=option, clock=broker.clock)
        broker._extensions = (OptionLeader([closed, log]),)  # type: ignore[attr-defined]
        closed.close()
        with broker:
            data = options.encode({"value": [b"x"]}, option=option)
            log.append(data)
            size = log.size_bytes
            assert broker.run_retention() == []
            broker.advance(MINUTE_MS + 1)
            assert broker.run_retention() == []
            assert [one.base_offset for one in log.segments] == [0, 1]  # idle, and rolled
            broker.advance(2 * MINUTE_MS)
            assert broker.run_retention() == [Expired("a", 0, 0, size, T, "retention.ms")]
            assert (log.log_start_offset, log.log_end_offset) == (1, 1)


def test_the_housekeeping_runs_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "TICK_S", 0.01)
    with OptionLog(tmp_path / "a-0", option=1, config={"segment.ms": 1}, clock=lambda: T) as log:
        log.append(options.encode({"value": [b"x"]}, option=1))
    with (
        OptionLog(tmp_path / "a-0", option=1, config={"segment.ms": 1}, clock=lambda: T + 10) as log,
        KtsBroker(config={"log.retention.check.interval.ms": 1}, extensions=[OptionLeader([log])]),
    ):
        until = time.monotonic() + PATIENCE_S
        while len(log.segments) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert [one.base_offset for one in log.segments] == [0, 1]


def test_a_disk_that_fails_ends_one_log_and_the_others_are_cared_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = T
    with ExitStack() as stack:
        settings = {"segment.ms": MINUTE_MS}
        logs = [OptionLog(tmp_path / f"a-{n}", option=1, config=settings, clock=lambda: now) for n in range(2)]
        for log in logs:
            stack.callback(log.abandon)
            log.append(options.encode({"value": [b"x"]}, option=1))
        leader = OptionLeader(logs)
        now += MINUTE_MS + 1
        with monkeypatch.context() as patch:

            def full(path: str) -> None:
                raise LogStorageError("the disk is full", path=path)

            before = local.sync_directory
            patch.setattr(local, "sync_directory", lambda path: (full if path.endswith("a-0") else before)(path))
            with pytest.raises(LogStorageError, match="the disk is full"):
                leader.run_retention()
        assert [log.closed for log in logs] == [True, False]
        assert len(logs[1].segments) == 2
        assert leader.run_retention() == []
