"""The file of topics: a change costs what changed, a killed process leaves all of it or nothing, damage is refused."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.broker_asking import Asked
from support.disk.counting import counting, more_than_linear
from support.disk.scripted_lives import quick_directory

import kts
from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.handlers import handle
from kts.broker.handlers.api_03_metadata import CREATED_AT_ONCE
from kts.broker.request import Request
from kts.broker.topics import NewTopic, Topics
from kts.broker.topics.topic_file import LEAST_CHANGES, TopicEntry, TopicFile, TopicStore, read
from kts.broker.wire.messages import ApiKey

FILE = "kts-topics.json"
ID = "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture
def quick() -> Iterator[Path]:
    with quick_directory() as path:
        yield Path(path)


def batch() -> bytes:
    return bytes(kts.encode({"timestamp": [1], "value": [b"v"]}))


# --- growth ---------------------------------------------------------------------------------------


def changed(folder: Path, there: int) -> dict[str, Counter[str]]:
    """What ten topics cost, where so many are."""
    counted = {}
    names = [f"new{number}" for number in range(10)]
    with Topics(folder) as topics:
        topics.create_all([NewTopic(f"old{number}") for number in range(there)])
        for number in range(there):
            topics.get(f"old{number}").partitions[0].append(batch())  # type: ignore[union-attr]
        topics.checkpoint()
        with counting() as counted["made one by one"]:
            for name in names:
                topics.create(name)
        with counting() as counted["opened"]:
            for name in names:
                assert topics.get(name).partitions[0].append(batch()).first_offset == 0  # type: ignore[union-attr]
        with counting() as counted["given partitions"]:
            for name in names:
                topics.add_partitions(name, 2)
        with counting() as counted["altered"]:
            for name in names:
                topics.alter(name, {"retention.ms": "5"})
        with counting() as counted["deleted one by one"]:
            for name in names:
                topics.delete(name)
        with counting() as counted["made at once"]:
            topics.create_all(map(NewTopic, names))
        with counting() as counted["deleted at once"]:
            topics.delete_all(names)
        assert len(topics.names()) == there
    return counted


def test_a_topic_costs_the_same_among_few_and_many(quick: Path) -> None:
    small, large = changed(quick / "small", 5), changed(quick / "large", 80)
    for what in small:
        assert more_than_linear(small[what], large[what], 1) == {}, what
    for what in ("made", "deleted"):
        assert small[f"{what} one by one"]["fsync"] == 20
        assert small[f"{what} at once"]["fsync"] == 2


def test_a_start_and_a_stop_cost_the_same_for_each_of_few_and_many_partitions(quick: Path) -> None:
    counted: dict[int, Counter[str]] = {}
    for count in (10, 40):
        with Topics(quick / str(count)) as topics:
            topics.create("t", count)
            for partition in topics.partitions():
                partition.append(batch())
        with counting() as counted[count], Topics(quick / str(count)) as topics:
            for partition in topics.partitions():
                assert partition.log.clean_start
                partition.append(batch())
            topics.checkpoint()
    assert more_than_linear(counted[10], counted[40], 4) == {}


def test_logs_that_are_flushed_leave_the_checkpoints_to_the_broker(quick: Path) -> None:
    """Each writes them itself once a minute where nobody does it for all."""
    now = [10**12]
    with Topics(quick, clock=lambda: now[0]) as topics:
        logs = [partition.log for partition in topics.create("t", 20, {"flush.messages": "1"}).partitions.values()]
        for log in logs:
            log.append(batch())
        now[0] += 10**6
        with counting() as counted:
            for log in logs:
                log.append(batch())
        assert counted["replace"] == 0 and counted["fsync"] >= 20
        with counting() as counted:
            topics.checkpoint()
        assert 0 < counted["replace"] <= 3
        assert (quick / "recovery-point-offset-checkpoint").read_text().count(" 2\n") == 20


def test_records_of_many_partitions_are_deleted_with_one_checkpoint(quick: Path) -> None:
    with Broker(quick) as broker:
        topic = broker.topics.create("t", 20)
        for partition in topic.partitions.values():
            partition.append(batch())
        partitions = [{"partition_index": index, "offset": 1} for index in range(20)]
        body = {"topics": [{"name": "t", "partitions": partitions}], "timeout_ms": 1000}
        with counting() as counted:
            [told] = Asked(broker)(ApiKey.DELETE_RECORDS, 2, body)["topics"]
        assert [one["low_watermark"] for one in told["partitions"]] == [1] * 20
        assert counted["replace"] <= 20 + 3  # the epochs of each, and the checkpoints
        assert (quick / "log-start-offset-checkpoint").read_text().count("\nt ") == 20


@pytest.mark.slow
def test_many_changes_keep_the_file_short_and_each_is_written_a_few_times_at_most(quick: Path) -> None:
    with Topics(quick) as topics:
        topics.create("t")
        with counting() as counted:
            for number in range(1500):
                topics.alter("t", {"retention.ms": str(number + 1)})
        assert (quick / FILE).stat().st_size < 2 * LEAST_CHANGES
        assert counted["replace"] == counted["bytes written"] // LEAST_CHANGES > 1
    assert (quick / FILE).read_bytes().count(b"\n") == 1
    assert read(str(quick)).topics["t"].configs == {"retention.ms": "1500"}


def test_others_are_answered_while_a_request_makes_many_topics(quick: Path) -> None:
    """Each round of the loop answers another client; the topics are made in a thread, some at a time."""

    def request(api: ApiKey, version: int, body: dict[str, object]) -> Request:
        header, decoded = wire.decode_request(memoryview(wire.encode_request(api, version, 5, "test", body))[4:])
        return Request(header.api_key, header.api_version, header.client_id, decoded)

    async def ask(broker: Broker) -> tuple[int, int]:
        topics = [{"name": f"t{number}"} for number in range(3 * CREATED_AT_ONCE)]
        body = {"topics": topics, "allow_auto_topic_creation": True}
        making = asyncio.ensure_future(handle(broker, request(ApiKey.METADATA, 4, body)))
        others = 0
        while not making.done():
            found = await handle(
                broker, request(ApiKey.METADATA, 4, {"topics": [], "allow_auto_topic_creation": False})
            )
            assert found is not None
            others += 1
            await asyncio.sleep(0.001)
        made = making.result()
        assert made is not None
        return others, len(made["topics"])

    with Broker(quick) as broker:
        others, made = asyncio.run(ask(broker))
        assert made == 3 * CREATED_AT_ONCE == len(broker.topics.names())
        assert others > 3


# --- stops, and damage ----------------------------------------------------------------------------


def store_of(folder: Path) -> TopicStore:
    """A file with two topics, and one change that makes one, alters one and drops one."""
    store = TopicStore(str(folder))
    store.content = TopicFile("c", 3, {"log.retention.ms": "7"}, {}, {})
    store.content.topics = {name: TopicEntry(ID, [0, 1], {"retention.ms": "5"}, {1}) for name in ("a", "b")}
    store.replace()
    store.content.topics["a"].configs["retention.ms"] = "6"
    store.content.topics["c"] = TopicEntry(ID, [0], {}, {0})
    store.drop(["b"])
    store.write(["a", "c"])
    return store


def test_a_change_that_was_cut_anywhere_was_not_made_and_one_that_is_whole_was(
    quick: Path, caplog: pytest.LogCaptureFixture
) -> None:
    after = store_of(quick).content
    whole = (quick / FILE).read_bytes()
    first = whole.index(b"\n") + 1
    (quick / FILE).write_bytes(whole[:first])
    before = read(str(quick))
    assert sorted(before.topics) == ["a", "b"] and sorted(after.topics) == ["a", "c"]
    for end in range(first, len(whole) - 1):
        for tail in (b"", bytes(len(whole) - end), bytes(len(whole) - end) + b"\n"):
            caplog.clear()
            (quick / FILE).write_bytes(whole[:end] + tail)
            assert read(str(quick)) == before
            assert len(caplog.records) == (end + len(tail) > first)
    for end in (len(whole) - 1, len(whole)):
        (quick / FILE).write_bytes(whole[:end])
        assert read(str(quick)) == after
    (quick / FILE).write_bytes(whole[:-2])
    store = TopicStore(str(quick))
    store.content.topics["d"] = TopicEntry(ID, [0], {}, {0})
    store.write(["d"])  # behind what was cut
    assert sorted(read(str(quick)).topics) == ["a", "b", "d"]


def test_no_damage_at_rest_is_believed(quick: Path, rng: random.Random, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    store = store_of(quick)
    store.content.topics["d"] = TopicEntry(ID, [0], {}, {0})
    store.write(["d"])
    content = store.content
    changes = (quick / FILE).read_bytes()
    store.replace()
    refused = 0
    for whole in ((quick / FILE).read_bytes(), changes):
        last = whole[:-1].rfind(b"\n") + 1
        for _ in range(300):
            damaged = bytearray(whole)
            at = rng.randrange(last or len(whole))  # a last change may be one that was cut
            damaged[at] ^= 1 << rng.randrange(8)
            (quick / FILE).write_bytes(damaged)
            try:
                assert read(str(quick)) == content
            except kts.LogStorageError:
                refused += 1
    assert refused > 550


def test_a_file_that_was_written_before_there_were_changes_is_served(quick: Path) -> None:
    entry = {"topic_id": ID, "partitions": [0], "configs": {"retention.ms": "5"}, "made": [0], "deleted": False}
    content = {"version": 1, "cluster_id": "c", "leader_epoch": 4, "node": {}, "cluster": {}, "topics": {"t": entry}}
    for indent in (None, 2):
        (quick / FILE).write_text(json.dumps(content, indent=indent) + "\n")
        with Topics(quick) as topics:
            assert topics.names() == ["t"] and topics.cluster_id == "c" and topics.leader_epoch == 5
            topics.create("u")
        assert sorted(read(str(quick)).topics) == ["t", "u"]
        (quick / "u-0").rmdir()


@pytest.mark.parametrize("dies", ["before it is made again", "after it is made again"])
def test_a_topic_of_the_name_of_one_that_was_deleted_has_none_of_its_offsets_whenever_the_process_dies(
    quick: Path, dies: str
) -> None:
    with Topics(quick) as topics:
        partition = topics.create("t").partitions[0]
        for _ in range(5):
            partition.append(batch())
        assert partition.log.advance_log_start_offset(5)
    topics = Topics(quick)
    assert topics.get("t").partitions[0].log.log_start_offset == 5  # type: ignore[union-attr]
    topics.delete("t")
    if dies == "after it is made again":
        topics.create("t")
    topics.abandon()
    with Topics(quick) as topics:
        topic = topics.get("t") or topics.create("t")
        assert topic.partitions[0].append(batch()).first_offset == 0
        topics.abandon()
    with Topics(quick) as topics:
        log = topics.get("t").partitions[0].log  # type: ignore[union-attr]
        assert (log.log_start_offset, log.log_end_offset) == (0, 1)


def test_topics_of_one_request_are_made_each_for_itself(quick: Path) -> None:
    with Topics(quick) as topics:
        topics.create("there")
        wanted = [
            NewTopic("a.b"),
            NewTopic("there"),
            NewTopic("a_b"),
            NewTopic("c", 0),
            NewTopic("d", 2),
            NewTopic("d"),
        ]
        found = topics.create_all(wanted)
        assert [type(one).__name__ for one in found] == ["Topic", "ApiError", *["InvalidTopicError", "ApiError"]] + [
            "Topic",
            "ApiError",
        ]
        assert topics.names() == ["a.b", "d", "there"]
        assert [error is None for error in topics.delete_all(["d", "nothing", "there"])] == [True, False, True]
        assert topics.create("a-b").name == "a-b"
        topics.delete("a.b")
        assert topics.create("a_b").name == "a_b"


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version": 2}', "\xff", '{"version":1,"topics":{"t":{"partitions":[-1]}}}']
)
def test_a_damaged_file_of_topics_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / "kts-topics.json").write_text(text)
    with pytest.raises(kts.LogStorageError, match="kts-topics.json"):
        Topics(tmp_path)
    assert (tmp_path / "kts-topics.json").read_text() == text


def test_names_in_a_hostile_file_of_topics_make_nothing_outside(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Topics(data) as topics:
        topics.create("t")
    path = data / "kts-topics.json"
    for name in ("../evil", "/evil", "..", "a/../../evil"):
        content = json.loads(path.read_text())
        content["topics"][name] = content["topics"]["t"]
        hostile = json.dumps(content)
        (data / "copy.json").write_text(path.read_text())
        path.write_text(hostile)
        with pytest.raises(kts.LogStorageError):
            Topics(data)
        path.write_text((data / "copy.json").read_text())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data"]
