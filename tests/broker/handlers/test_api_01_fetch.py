"""Fetch: limits, waiting, fencing, sessions and topic ids, in every version."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.asking import Asking, answer

import kts
from kts.broker.broker import Broker
from kts.broker.downconversion import PSEUDO_ENTRY
from kts.broker.handlers import handle
from kts.broker.metrics import FETCH
from kts.broker.request import Request
from kts.broker.wire.messages import ApiKey
from kts.store.local import FileRange

NOW = 1_500_000_000_000
ALL = range(19)
FOREVER_MS = 600_000  # of a wait that something else ends


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as found:
        yield found


def batch(*times: int, size: int = 10, **more: Any) -> bytes:
    return kts.encode({"timestamp": list(times), "value": [b"v" * size] * len(times)}, **more)


def fill(asking: Asking, name: str = "t", count: int = 10, partition: int = 0, **more: Any) -> kts.Log:
    found = asking.broker.topics.get(name).partitions[partition]
    for number in range(count):
        found.append(batch(NOW + number, **more))
    return found.log


def offsets(row: Any) -> list[int]:
    return kts.decode(row["records"], ["offset"]).column("offset").to_pylist()


def magics(row: Any) -> set[int]:
    return set(kts.scan_batches(row["records"]).column("magic").to_pylist())


@pytest.mark.parametrize("version", ALL)
def test_every_version_gets_what_it_can_read_and_says_what_it_has_fields_for(asking: Asking, version: int) -> None:
    asking.create()
    log = fill(asking, count=7)
    assert asking.delete_records(2) == (0, 2)
    row = asking.fetch("t", 3, version=version)
    assert (row["error_code"], row["high_watermark"], offsets(row)) == (0, 7, [3, 4, 5, 6])
    assert magics(row) == {0 if version <= 1 else 1 if version <= 3 else 2}
    assert row["last_stable_offset"] == (7 if version >= 4 else -1)
    assert row["log_start_offset"] == (2 if version >= 5 else -1)
    assert row["aborted_transactions"] == (None if version >= 4 else [])
    assert row["preferred_read_replica"] == -1
    assert asking.fetch("t", 3, version=version, isolation_level=1)["aborted_transactions"] == []
    if version >= 4:
        assert bytes(row["records"]) == log.read(3, 2**20).records


def test_a_partition_whose_first_batch_exceeds_its_limit_has_no_list_of_aborted_transactions(asking: Asking) -> None:
    """Null, as Kafka answers where it leaves out a cut batch; with no limit left at all the list is empty."""
    for name in ("t", "u"):
        asking.create(name)
        fill(asking, name, 2)
    for limit, expected in ((0, []), (1, None)):
        topics = {"t": {0: {}}, "u": {0: {"partition_max_bytes": limit}}}
        found = asking.fetch_all(12, topics, isolation_level=1)["responses"]
        assert [one["partitions"][0]["aborted_transactions"] for one in found] == [[], expected]
        assert found[1]["partitions"][0]["records"] == b""


@pytest.mark.parametrize("version", ALL)
def test_offsets_outside_of_the_log_are_refused_and_its_end_is_empty(asking: Asking, version: int) -> None:
    asking.create()
    fill(asking, count=5)
    assert asking.delete_records(2) == (0, 2)
    row = asking.fetch("t", 5, version=version)
    assert (row["error_code"], row["high_watermark"], bytes(row["records"])) == (0, 5, b"")
    for wrong in (-1, 0, 1, 6, 2**62):
        row = asking.fetch("t", wrong, version=version, max_wait_ms=FOREVER_MS)
        assert (row["error_code"], row["high_watermark"], bytes(row["records"])) == (1, -1, b"")


@pytest.mark.parametrize("version", ALL)
def test_unknown_topics_partitions_and_ids(asking: Asking, version: int) -> None:
    asking.create()
    fill(asking, count=1)
    found = asking.fetch_all(version, {"u": {0: {}}, "t": {3: {}, 0: {}}}, max_wait_ms=FOREVER_MS)["responses"]
    codes = [[row["error_code"] for row in one["partitions"]] for one in found]
    assert codes == [[100 if version >= 13 else 3], [3, 0]]
    assert offsets(found[1]["partitions"][1]) == [0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_up_to_version_2_a_limit_is_hard_and_may_cut_the_first_entry(asking: Asking, version: int) -> None:
    asking.create(partitions=2, message_format_version="0.9.0")
    log = fill(asking, magic=0)
    fill(asking, partition=1, magic=0)
    whole = log.read(0, 2**20).records
    size = kts.scan_batches(whole).column("sizeInBytes")[0].as_py()
    for limit in (0, 1, 10, size - 1, size, size + 5, 3 * size):
        rows = {at: {"partition_max_bytes": limit} for at in (0, 1)}
        found = asking.fetch_all(version, {"t": rows}, min_bytes=0)["responses"][0]["partitions"]
        assert [bytes(row["records"]) for row in found] == [whole[:limit]] * 2


@pytest.mark.parametrize("version", [3, 4, 7, 12, 18])
def test_from_version_3_on_the_first_partition_with_records_gives_a_whole_entry(asking: Asking, version: int) -> None:
    asking.create(partitions=4, **({"message_format_version": "0.10.0"} if version == 3 else {}))
    log = fill(asking, partition=1, magic=1 if version == 3 else 2)
    for partition in (2, 3):
        fill(asking, partition=partition, magic=1 if version == 3 else 2)
    whole = log.read(0, 2**20).records
    size = kts.scan_batches(whole).column("sizeInBytes")[0].as_py()

    def sizes(limit: int, total: int) -> list[int]:
        rows = {at: {"partition_max_bytes": limit} for at in range(4)}
        found = asking.fetch_all(version, {"t": rows}, min_bytes=0, max_bytes=total)["responses"][0]["partitions"]
        return [len(row["records"]) for row in found]

    for small in (0, 1, size - 1):
        assert sizes(small, 2**20) == sizes(2**20, small) == [0, size, 0, 0]
    assert sizes(size, 2**20) == [0, size, size, size]
    assert sizes(size + 3, 2**20) == [0, size + 3, size + 3, size + 3]
    assert sizes(size + 3, 2 * size + 3) == [0, size + 3, size, 0]
    assert sizes(2**20, 2 * size) == [0, 2 * size, 0, 0]


def test_the_broker_has_a_limit_of_its_own(asking: Asking) -> None:
    asking.create()
    fill(asking, count=40, size=1000)
    asking.broker.config = type("Small", (), {"fetch_max_bytes": 5000, "node_id": 0})()
    row = asking.fetch("t", version=12)
    assert 0 < len(row["records"]) <= 5000


@pytest.mark.parametrize("version", [0, 12, 18])
def test_a_partition_that_is_named_often_is_read_once(asking: Asking, version: int) -> None:
    """As in Kafka, which keeps them in a map; else one request could ask for the same work 200,000 times."""
    made = asking.create()
    fill(asking, count=3)
    rows = [{"partition": 0, "fetch_offset": at, "partition_max_bytes": 2**20} for at in (0, 99, 1)]
    topics = [{"topic": "t", "topic_id": made.topic_id, "partitions": rows}] * 3
    body = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2**30, "topics": topics}
    (found,) = asking.ask(ApiKey.FETCH, version, body)["responses"]
    assert [offsets(row) for row in found["partitions"]] == [[1, 2]]


def test_unforeseen_errors_are_the_partitions_own(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    made = asking.create(partitions=2)
    for partition in (0, 1):
        fill(asking, count=2, partition=partition)

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("nobody thought of this")

    for name in ("slice", "offset_for_timestamp"):
        monkeypatch.setattr(made.partitions[0].log, name, fails)
    rows = asking.fetch_all(12, {"t": {0: {}, 1: {}}})["responses"][0]["partitions"]
    assert [row["error_code"] for row in rows] == [-1, 0]
    assert asking.list_offsets("t", NOW)["error_code"] == -1


# --- sessions, epochs, isolation ------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7, 19))
def test_there_are_no_sessions_and_clients_go_on_without(asking: Asking, version: int) -> None:
    asking.create()
    fill(asking, count=2)
    for session, epoch in ((0, 0), (0, -1), (77, -1), (77, 0)):  # full fetches
        found = asking.fetch_all(version, {"t": {0: {}}}, session_id=session, session_epoch=epoch)
        assert (found["error_code"], found["session_id"]) == (0, 0)
        assert offsets(found["responses"][0]["partitions"][0]) == [0, 1]
    for session in (0, 77):
        found = asking.fetch_all(
            version, {"t": {0: {}}}, session_id=session, session_epoch=1, max_wait_ms=FOREVER_MS, min_bytes=9999
        )
        assert (found["error_code"], found["session_id"], found["responses"]) == (70, 0, [])
    closing = asking.fetch_all(version, {}, session_id=77, session_epoch=-1, max_wait_ms=FOREVER_MS, min_bytes=1)
    assert (closing["error_code"], closing["responses"]) == (0, [])


def test_clients_that_know_another_leader_are_fenced(tmp_path: Path) -> None:
    for _ in range(3):
        with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as asking:
            if asking.broker.topics.get("t") is None:
                asking.create()
            fill(asking, count=2)
            epoch = asking.broker.topics.get("t").partitions[0].leader_epoch
    with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as asking:
        now = asking.broker.topics.get("t").partitions[0].leader_epoch
        assert now == epoch + 1 >= 3
        for version in range(9, 19):
            for told, code in ((now, 0), (-1, 0), (now - 1, 74), (now + 1, 75)):
                row = asking.fetch("t", version=version, current_leader_epoch=told, max_wait_ms=FOREVER_MS)
                assert row["error_code"] == code
                leader = row["current_leader"]
                wanted = (asking.broker.node_id, now) if code == 74 and version >= 16 else (-1, -1)
                assert (leader["leader_id"], leader["leader_epoch"]) == wanted
        one = {"current_leader_epoch": now - 1}
        endpoints = asking.fetch_all(16, {"t": {0: one}})["node_endpoints"]
        assert [(one["node_id"], bool(one["host"])) for one in endpoints] == [(asking.broker.node_id, True)]


def test_a_log_that_left_the_leaders_is_told_where(tmp_path: Path) -> None:
    """KIP-595: the follower's last epoch and its end here, as soon as they differ."""
    for _ in range(3):  # epochs e, e+1, e+2 with two offsets each
        with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as asking:
            if asking.broker.topics.get("t") is None:
                asking.create()
            fill(asking, count=2)
            known = asking.broker.topics.get("t").partitions[0].log.leader_epochs
    assert [start for _, start in known] == [0, 2, 4]
    first, second, third = (epoch for epoch, _ in known)
    with Asking(Broker(tmp_path / "data", clock=lambda: NOW)) as asking:
        for version in range(12, 19):

            def fetch(offset: int, epoch: int, version: int = version) -> tuple[int, int, int, int]:
                row = asking.fetch("t", offset, version=version, last_fetched_epoch=epoch, max_wait_ms=FOREVER_MS)
                left = row["diverging_epoch"]
                return row["error_code"], left["epoch"], left["end_offset"], len(offsets(row))

            assert fetch(2, first) == (0, -1, -1, 4)
            assert fetch(4, second) == (0, -1, -1, 2)
            assert fetch(5, third) == (0, -1, -1, 1)
            assert fetch(3, first) == (0, first, 2, 0)
            assert fetch(6, second) == (0, second, 4, 0)
            assert fetch(7, third) == (0, third, 6, 0)
            assert fetch(0, third + 50)[0] == 1  # nobody knows that epoch
            assert fetch(0, -1) == (0, -1, -1, 6)


def test_a_consumer_reads_to_the_high_watermark_and_a_follower_to_the_end(asking: Asking) -> None:
    asking.create()
    log = fill(asking, count=6)
    log.advance_high_watermark(4)
    for version in ALL:
        follower: dict[str, Any] = {"replica_state": {"replica_id": 3}} if version >= 15 else {"replica_id": 3}
        consumer: dict[str, Any] = {"replica_state": {"replica_id": -1}} if version >= 15 else {"replica_id": -1}
        assert offsets(asking.fetch("t", version=version, **consumer)) == [0, 1, 2, 3]
        row = asking.fetch("t", version=version, **follower)
        assert (row["high_watermark"], offsets(row)) == (4, list(range(6)))
        assert bytes(asking.fetch("t", 5, version=version, **consumer)["records"]) == b""


# --- conversion -----------------------------------------------------------------------------------


def test_records_are_converted_by_what_they_are_not_by_the_setting(asking: Asking) -> None:
    """The format of a topic was lowered; brokers send what is newer as it is to clients that cannot read it."""
    made = asking.create()
    fill(asking, count=2)
    asking.broker.topics.alter("t", {"message.format.version": "0.9.0"})
    asking.broker.topics.get("t").partitions[0].append(batch(NOW, magic=0))
    assert made is not None
    for version, wanted in ((0, {0}), (1, {0}), (2, {1, 0}), (3, {1, 0}), (4, {2, 0}), (18, {2, 0})):
        row = asking.fetch("t", version=version)
        assert (magics(row), offsets(row)) == (wanted, [0, 1, 2])


def test_what_was_converted_is_counted(asking: Asking) -> None:
    asking.create(message_format_version="0.10.0")
    log = fill(asking, count=5, magic=1)
    size = log.size_bytes
    for version in (2, 4, 18):
        asking.fetch("t", version=version)
    assert asking.broker.metrics.conversions(FETCH).sets == 0
    row = asking.fetch("t", version=1)
    done = asking.broker.metrics.conversions(FETCH, "t")
    assert (done.messages, done.sets, done.bytes_in, done.bytes_out) == (5, 1, size, len(row["records"]))


def test_a_topic_that_is_not_to_be_converted_is_refused(asking: Asking) -> None:
    asking.create(message_downconversion_enable="false")
    fill(asking, count=2)
    for version in (0, 1, 2, 3):
        row = asking.fetch("t", version=version)
        assert (row["error_code"], row["high_watermark"], bytes(row["records"])) == (35, -1, b"")
        assert asking.fetch("t", 2, version=version)["error_code"] == 35
        assert offsets(asking.fetch("t", version=version, replica_id=1)) == [0, 1]  # a follower's needs it
    assert offsets(asking.fetch("t", version=4)) == [0, 1]
    asking.create("old", message_downconversion_enable="false", message_format_version="0.9.0")
    fill(asking, "old", count=2, magic=0)
    assert offsets(asking.fetch("old", version=0)) == [0, 1]


def test_zstd_is_told_to_clients_that_do_not_know_it(asking: Asking) -> None:
    asking.create()
    fill(asking, count=2, compression="zstd")
    asking.create("z", compression_type="zstd")
    fill(asking, "z", count=2)
    for version in ALL:
        assert asking.fetch("t", version=version)["error_code"] == (76 if version <= 3 else 0)
        assert asking.fetch("z", version=version)["error_code"] == (76 if version <= 9 else 0)


def test_control_batches_are_not_for_old_clients(asking: Asking) -> None:
    asking.create()
    partition = asking.broker.topics.get("t").partitions[0]
    ours = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    partition.log.append(batch(NOW, base_sequence=0, **ours), origin="coordinator")
    marker = {"timestamp": [NOW], "key": [b"\0\0\0\1"], "value": [b"\0\0\0\0\0\0"]}
    partition.log.append(kts.encode(marker, control=True, **ours), origin="coordinator")
    for version in (0, 1, 2, 3):
        assert offsets(asking.fetch("t", version=version)) == [0]
        assert bytes(asking.fetch("t", 1, version=version)["records"]) == PSEUDO_ENTRY
    assert offsets(asking.fetch("t", version=4)) == [0, 1]


# --- bytes as they lie ----------------------------------------------------------------------------


def test_large_sets_go_out_as_ranges_of_the_file_and_small_ones_as_bytes(asking: Asking) -> None:
    made = asking.create(partitions=2)
    fill(asking, count=1, size=100_000)
    fill(asking, count=1, partition=1)
    rows = [{"partition": at, "fetch_offset": 0, "partition_max_bytes": 2**20, "current_leader_epoch": -1,
             "last_fetched_epoch": -1, "log_start_offset": -1} for at in (0, 1)]  # fmt: skip
    body = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2**30, "isolation_level": 0, "session_id": 0,
            "session_epoch": -1, "replica_id": -1, "replica_state": {"replica_id": -1},
            "topics": [{"topic": "t", "topic_id": made.topic_id, "partitions": rows}]}  # fmt: skip
    found = asking.runner.run(handle(asking.broker, Request(ApiKey.FETCH, 12, None, body)))
    assert found is not None
    large, small = (row["records"] for row in found["responses"][0]["partitions"])
    assert isinstance(large, FileRange)
    assert isinstance(small, bytes)
    assert large.read() == made.partitions[0].log.read(0, 2**20).records


# --- waiting --------------------------------------------------------------------------------------


async def waiting(asking: Asking, *, version: int = 12, partitions: int = 2, **more: Any) -> asyncio.Task[Any]:
    """A fetch at the ends of all partitions of a topic that has begun to wait."""
    found = asking.broker.topics.get("t")
    rows = [
        {"partition": at, "fetch_offset": found.partitions[at].log.log_end_offset, "partition_max_bytes": 2**20}
        for at in range(partitions)
    ]
    topics = [{"topic": "t", "topic_id": found.topic_id, "partitions": rows}]
    body = {"max_wait_ms": FOREVER_MS, "min_bytes": 1, "topics": topics, **more}
    task = asyncio.create_task(answer(asking.broker, ApiKey.FETCH, version, body))
    while not found.partitions[0].on_change:
        await asyncio.sleep(0.001)
        assert not task.done()
    return task


def test_an_append_ends_the_wait_from_whatever_thread(asking: Asking) -> None:
    made = asking.create(partitions=2)

    async def run(how: str) -> Any:
        task = await waiting(asking)
        if how == "thread":
            await asyncio.to_thread(made.partitions[1].append, batch(NOW))
        elif how == "foreign thread":
            thread = threading.Thread(target=made.partitions[1].append, args=(batch(NOW),))
            thread.start()
            thread.join()
        else:
            made.partitions[1].append(batch(NOW))
        return await task

    for at, how in enumerate(("loop", "thread", "foreign thread")):
        rows = asking.runner.run(run(how))["responses"][0]["partitions"]
        assert [len(row["records"]) > 0 for row in rows] == [False, True]
        assert offsets(rows[1]) == [at]
        assert not made.partitions[0].on_change and not made.partitions[1].on_change


def test_it_waits_for_min_bytes(asking: Asking) -> None:
    made = asking.create(partitions=2)

    async def run(version: int) -> int:
        task = await waiting(asking, min_bytes=600, version=version)
        appended = 0
        while made.partitions[0].on_change:
            made.partitions[appended % 2].append(batch(NOW))
            appended += 1
            for _ in range(20):
                await asyncio.sleep(0)
        assert (await task)["responses"][0]["partitions"][0]["error_code"] == 0
        return appended

    size = len(batch(NOW))
    for version in (0, 4, 12, 18):
        assert asking.runner.run(run(version)) == -(-600 // size)


def test_the_high_watermark_ends_the_wait_of_a_consumer(asking: Asking) -> None:
    made = asking.create(partitions=2)
    log = fill(asking, count=3)
    log.advance_high_watermark(3)

    async def run() -> Any:
        task = await waiting(asking)
        made.partitions[0].append(batch(NOW))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not task.done()
        log.advance_high_watermark(4)
        made.partitions[0].changed()
        return await task

    rows = asking.runner.run(run())["responses"][0]["partitions"]
    assert (rows[0]["high_watermark"], offsets(rows[0])) == (4, [3])


def test_a_deletion_ends_the_wait(asking: Asking) -> None:
    asking.create(partitions=2)

    async def run(version: int) -> Any:
        task = await waiting(asking, version=version)
        asking.broker.topics.delete("t")
        return await task

    rows = asking.runner.run(run(12))["responses"][0]["partitions"]
    assert [row["error_code"] for row in rows] == [3, 3]
    made = asking.create()
    fill(asking, count=3)

    async def cut_off() -> Any:
        task = await waiting(asking, partitions=1)
        made.partitions[0].append(batch(NOW))
        made.partitions[0].log.advance_log_start_offset(4)
        made.partitions[0].changed()
        return await task

    row = asking.runner.run(cut_off())["responses"][0]["partitions"][0]
    assert row["error_code"] == 1


@pytest.mark.slow
def test_the_time_ends_the_wait_and_gives_what_is_there(asking: Asking) -> None:
    made = asking.create(partitions=2)

    async def run() -> Any:
        task = await waiting(asking, max_wait_ms=700, min_bytes=100_000)
        made.partitions[1].append(batch(NOW))
        return await task

    rows = asking.runner.run(run())["responses"][0]["partitions"]
    assert [offsets(row) for row in rows if len(row["records"])] == [[0]]


def test_who_goes_away_while_waiting_leaves_nothing_behind(asking: Asking) -> None:
    made = asking.create(partitions=2)

    async def run() -> None:
        tasks = [await waiting(asking) for _ in range(5)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asking.runner.run(run())
    assert not made.partitions[0].on_change and not made.partitions[1].on_change


def test_a_fetch_of_nothing_or_without_a_wait_is_answered_at_once(asking: Asking) -> None:
    asking.create()
    for version in ALL:
        assert asking.fetch_all(version, {}, max_wait_ms=FOREVER_MS)["responses"] == []
        for wait in (0, -5):
            assert bytes(asking.fetch("t", version=version, max_wait_ms=wait)["records"]) == b""
        assert bytes(asking.fetch("t", version=version, min_bytes=0, max_wait_ms=FOREVER_MS)["records"]) == b""


@pytest.mark.slow
@pytest.mark.parametrize("magic", [1, 2])
def test_what_is_read_for_an_old_client_at_once_is_bounded_but_its_first_entry_is_whole(
    asking: Asking, magic: int
) -> None:
    asking.create(max_message_bytes="40000000")
    log = fill(asking, count=20, size=1_000_000, magic=magic)
    asking.broker.topics.get("t").partitions[0].append(batch(NOW, size=18_000_000, magic=magic))
    got: list[int] = []
    while len(got) < log.log_end_offset:
        row = asking.fetch("t", len(got), version=2, partition_max_bytes=2**30)
        assert row["error_code"] == 0
        records = row["records"]
        last = len(got) == 20
        assert last or len(records) <= 1 << 24
        got += offsets(row)
        assert magics(row) == {1}
    assert got == list(range(21))
