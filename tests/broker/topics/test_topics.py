"""Topics in a log directory: made, changed, deleted, kept over restarts, and nothing else touched."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from support.disk.faultfs import WRITING, Fault, FaultyOs
from support.disk.scripted_lives import in_place_of_os

import kts
from kts.broker.codes import ApiError
from kts.broker.topics import Topics
from kts.broker.topics.topic_file import TopicStore
from kts.store import descriptors

NOW = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def batch(number: int = 0, value: bytes = b"v") -> bytes:
    return kts.encode({"timestamp": [NOW + number], "key": [b"k"], "value": [value]})


def directories(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir()}


def code_of(raised: pytest.ExceptionInfo[kts.KtsError]) -> int:
    return raised.value.code


# --- names ------------------------------------------------------------------------------------------

LEGAL = ["a", "A.b_c-9", "x" * 249, "...", "-", "__consumer_offsets", "a-0", "0"]
ILLEGAL = ["", ".", "..", "x" * 250, "a/b", "../a", "a b", "a\0b", "é", "a\n", "\u0661", "a:b", "*"]


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_name_is_made_served_and_found_again(tmp_path: Path, name: str) -> None:
    with Topics(tmp_path) as topics:
        topics.create(name).partitions[0].append(batch())
    with Topics(tmp_path) as topics:
        assert topics.names() == [name]
        found = topics.get(name)
        assert found is not None
        assert found.partitions[0].log.log_end_offset == 1
        topics.delete(name)
        assert topics.names() == []
    assert name not in {one.rpartition("-")[0] for one in directories(tmp_path) if not one.endswith("-delete")}


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_name_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "inside"
    with Topics(folder) as topics:
        with pytest.raises(kts.InvalidTopicError) as raised:
            topics.create(name)
        assert code_of(raised) == 17
        assert topics.names() == []
    assert directories(folder) == set()
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_names_that_differ_by_dot_and_underscore_alone_collide(tmp_path: Path) -> None:
    with Topics(tmp_path) as topics:
        topics.create("a.b_c")
        for name in ("a_b_c", "a.b.c", "a_b.c"):
            with pytest.raises(kts.InvalidTopicError, match="collides with existing topic: a.b_c"):
                topics.create(name)
        topics.create("a-b-c")


# --- making -----------------------------------------------------------------------------------------


def test_what_cannot_be_made_is_refused_with_kafkas_code(tmp_path: Path) -> None:
    with Topics(tmp_path, {"num.partitions": 3}) as topics:
        topics.create("t")
        asked: list[tuple[int, dict[str, Any]]] = [
            (36, {"name": "t"}),
            (37, {"name": "n", "num_partitions": 0}),
            (37, {"name": "n", "num_partitions": -2}),
            (44, {"name": "n", "num_partitions": 10_001}),
            (40, {"name": "n", "configs": {"segment.bytes": "1"}}),
            (40, {"name": "n", "configs": {"no.such": "1"}}),
            (40, {"name": "n", "configs": {"log.retention.hours": "1"}}),
            (40, {"name": "n", "configs": {"min.cleanable.dirty.ratio": "1.5"}}),
            (40, {"name": "n", "configs": {"retention.ms": "soon"}}),
            (40, {"name": "n", "configs": {"segment.index.bytes": "3"}}),
        ]
        for code, arguments in asked:
            with pytest.raises(ApiError) as raised:
                topics.create(**arguments)
            assert code_of(raised) == code, arguments
        assert topics.names() == ["t"]
        assert directories(tmp_path) == {"t-0", "t-1", "t-2"}


def test_validate_only_makes_and_changes_nothing(tmp_path: Path) -> None:
    with Topics(tmp_path) as topics:
        topics.create("t", 2, {"retention.ms": "5"})
        before = sorted((str(path), path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
        topics.create("u", 3, validate_only=True)
        topics.add_partitions("t", 5, validate_only=True)
        topics.alter("t", {}, validate_only=True)
        topics.alter_broker({"log.segment.bytes": "99"}, cluster=True, validate_only=True)
        assert sorted((str(path), path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before
        with pytest.raises(ApiError):
            topics.alter("t", {"retention.ms": "x"}, validate_only=True)


def test_topics_keep_settings_ids_and_data_over_a_restart(tmp_path: Path) -> None:
    with Topics(tmp_path) as topics:
        made = topics.create("t", 2, {"segment.bytes": "500", "cleanup.policy": "compact,delete"})
        made.partitions[1].append(batch())
        topics.add_partitions("t", 4)
        topics.alter("t", {"segment.bytes": "700"})
        topics.alter_broker({"log.retention.ms": "777"}, cluster=True)
        identity = made.topic_id, topics.cluster_id
    with Topics(tmp_path) as topics:
        found = topics.by_id(identity[0])
        assert found is topics.get("t")
        assert found is not None
        assert (found.topic_id, topics.cluster_id) == identity
        assert (found.configs, found.config.segment_bytes) == ({"segment.bytes": "700"}, 700)
        assert found.config.retention_ms == 777
        assert [len(one.log.read(0, 1000).records) > 0 for one in found.partitions.values()] == [0, 1, 0, 0]
        assert found.partitions[1].log.clean_start


def test_changed_settings_hold_for_the_next_append(tmp_path: Path) -> None:
    clock = Clock()
    with Topics(tmp_path, clock=clock) as topics:
        partition = topics.create("t").partitions[0]
        assert partition.append(batch()).log_append_time_ms == -1
        topics.alter("t", {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "100"})
        assert partition.append(batch()).log_append_time_ms == NOW
        with pytest.raises(kts.RecordTooLargeError):
            partition.append(batch(value=b"x" * 200))
        topics.alter("t", {"message.timestamp.before.max.ms": "10"})
        with pytest.raises(kts.InvalidTimestampError):
            partition.append(batch(-1000))
        topics.alter("t", {"message.format.version": "0.10.0"})
        assert partition.append(batch()).records[16] == 1
        topics.alter_broker({"message.max.bytes": "120"}, cluster=False)
        with pytest.raises(kts.RecordTooLargeError):
            partition.append(batch(value=b"x" * 200))


def test_index_sizes_that_kafka_accepts_and_cannot_use_work(tmp_path: Path) -> None:
    """A broker 3.9.2 accepts 4 to 11 in both requests: a new partition gets no leader, an old one fails to roll."""
    with Topics(tmp_path) as topics:
        for size in ("4", "11"):
            new = topics.create(f"t{size}", 1, {"segment.index.bytes": size})
            assert [new.partitions[0].append(batch(number)).first_offset for number in range(3)] == [0, 1, 2]
        old = topics.create("old")
        old.partitions[0].append(batch())
        topics.alter("old", {"segment.index.bytes": "8"})
        old.partitions[0].log.roll()
        assert [old.partitions[0].append(batch(number)).first_offset for number in range(2)] == [1, 2]
        assert old.configs == {"segment.index.bytes": "8"}
    with Topics(tmp_path) as topics:
        found = {name: topics.get(name) for name in topics.names()}
        assert [found[name].partitions[0].log.log_end_offset for name in sorted(found)] == [3, 3, 3]  # type: ignore[union-attr]


def test_settings_of_the_broker_that_cannot_change_are_refused(tmp_path: Path) -> None:
    with Topics(tmp_path) as topics:
        for configs in ({"node.id": "7"}, {"log.retention.hours": "7"}, {"log.segment.bytes": "1"}, {"x": "y"}):
            with pytest.raises(ApiError) as raised:
                topics.alter_broker(configs, cluster=False)
            assert code_of(raised) == 42
        assert topics.dynamic == {}


# --- deleting and keeping ---------------------------------------------------------------------------


def test_a_deleted_topic_goes_at_once_and_its_files_after_the_delay(tmp_path: Path) -> None:
    clock = Clock()
    with Topics(tmp_path, {"log.segment.delete.delay.ms": 1000}, clock) as topics:
        topics.create("t", 2).partitions[0].append(batch())
        topics.checkpoint()
        assert "t 0 " in (tmp_path / "replication-offset-checkpoint").read_text()
        woken = []
        partition = topics.get("t").partitions[0]  # type: ignore[union-attr]
        partition.on_change.add(lambda: woken.append(1))
        topics.delete("t")
        assert woken
        assert topics.get("t") is None
        with pytest.raises(kts.LogStorageError, match="deleted"):
            partition.append(batch())
        with pytest.raises(kts.UnknownTopicOrPartitionError):
            topics.delete("t")
        assert all(name.endswith("-delete") for name in directories(tmp_path))
        assert len(directories(tmp_path)) == 2
        again = topics.create("t")
        assert again.partitions[0].log.log_end_offset == 0
        clock.now += 999
        topics.delete_due()
        assert len(directories(tmp_path)) == 3
        clock.now += 1
        topics.delete_due()
        assert directories(tmp_path) == {"t-0"}
        assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n0\n"


def test_a_deletion_that_was_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    clock = Clock()
    topics = Topics(tmp_path, {"log.segment.delete.delay.ms": 0}, clock)
    topics.create("t", 2)
    topics.abandon()
    store = TopicStore(str(tmp_path))
    store.content.topics["t"].deleted = True
    store.write(["t"])
    with Topics(tmp_path, {"log.segment.delete.delay.ms": 0}, clock) as topics:
        assert topics.names() == []
        topics.delete_due()
        assert directories(tmp_path) == set()


def test_a_creation_that_was_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    topics = Topics(tmp_path)
    topics.create("t", 3, {"retention.ms": "5"})
    topics.abandon()
    os.rmdir(tmp_path / "t-1")
    with Topics(tmp_path) as topics:
        found = topics.get("t")
        assert found is not None
        assert (sorted(found.partitions), found.config.retention_ms) == ([0, 1, 2], 5)
        assert found.partitions[1].append(batch()).first_offset == 0
    assert f"topic_id: {read_id(tmp_path / 't-0')}" == f"topic_id: {read_id(tmp_path / 't-1')}"


def read_id(folder: Path) -> str:
    """The topic's id as kts-topics.json or partition.metadata has it."""
    from kts.segment.checkpoints import read_topic_id

    with kts.open(folder):
        return read_topic_id(str(folder)) or read_topic_id(str(folder.with_name("t-1"))) or ""


def test_retention_says_what_it_took_and_why(tmp_path: Path) -> None:
    clock = Clock()
    with Topics(tmp_path, clock=clock) as topics:
        by_time = topics.create("by-time", 1, {"retention.ms": "1000", "segment.bytes": "100"}).partitions[0]
        kept = {"retention.bytes": str(2 * len(batch())), "segment.bytes": "100"}
        by_size = topics.create("by-size", 2, kept).partitions[1]
        for number in range(4):
            by_time.append(batch(number))
            by_size.append(batch(number))
        clock.now += 1001
        taken = topics.run_retention()
        assert {(one.topic, one.partition, one.segment.rule) for one in taken} == {
            ("by-size", 1, "retention.bytes"),
            ("by-time", 0, "retention.ms"),
        }
        assert [(one.topic, one.segment.base_offset) for one in taken] == [
            ("by-size", 0),
            ("by-size", 1),
            ("by-time", 0),
        ]
        assert (by_time.log.log_start_offset, by_size.log.log_start_offset) == (1, 2)


@pytest.mark.parametrize("name", ["local.retention.ms", "local.retention.bytes", "delete.retention.ms", "flush.ms"])
def test_no_other_setting_than_retention_deletes_anything(tmp_path: Path, name: str) -> None:
    clock = Clock()
    with Topics(tmp_path, clock=clock) as topics:
        partition = topics.create("t", 1, {name: "1", "segment.bytes": "100", "retention.ms": "-1"}).partitions[0]
        for number in range(4):
            partition.append(batch(number))
        clock.now += 10**12
        assert topics.run_retention() == []
        assert partition.log.log_start_offset == 0


def test_logs_are_flushed_when_flush_ms_is_over(tmp_path: Path) -> None:
    clock = Clock()
    with Topics(tmp_path, clock=clock) as topics:
        partition = topics.create("t", 1, {"flush.ms": "100"}).partitions[0]
        partition.append(batch())
        assert partition.log.recovery_point == 0
        topics.flush_due()
        assert partition.log.recovery_point == 0
        clock.now += 100
        topics.flush_due()
        assert partition.log.recovery_point == 1
        topics.checkpoint()
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 1\n"


def test_a_killed_directory_is_recovered_and_what_was_written_is_there(tmp_path: Path) -> None:
    topics = Topics(tmp_path)
    for index in range(3):
        partition = topics.create(f"t{index}", 2).partitions[1]
        for number in range(10):
            partition.append(batch(number))
    path = Path(partition.log.segments[-1].path)
    topics.abandon()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 3)
    with Topics(tmp_path) as topics:
        ends = [topics.get(f"t{index}").partitions[1].log.log_end_offset for index in range(3)]  # type: ignore[union-attr]
        assert ends == [10, 10, 9]
    assert not (tmp_path / ".kafka_cleanshutdown").exists()  # t0-0 and others were never opened
    with Topics(tmp_path) as topics:
        for partition in topics.partitions():
            assert not partition.log.clean_start or partition.index == 1
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_many_threads_make_write_and_delete_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "most_holders", lambda: 3)
    failures: list[BaseException] = []
    with Topics(tmp_path, {"log.segment.delete.delay.ms": 0}) as topics:
        shared = topics.create("shared", 4)

        def work(number: int) -> None:
            try:
                for turn in range(6):
                    made = topics.create(f"t{number}-{turn}", 2)
                    for index in range(2):
                        made.partitions[index].append(batch())
                        shared.partitions[(index + number) % 4].append(batch())
                    topics.alter(made.name, {"segment.bytes": "100"})
                    topics.run_retention()
                    if turn % 2:
                        topics.delete(made.name)
            except BaseException as error:  # noqa: BLE001
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert sum(one.log.log_end_offset for one in shared.partitions.values()) == 4 * 6 * 2
        assert len(topics.names()) == 1 + 4 * 3
    with Topics(tmp_path) as topics:
        assert len(topics.names()) == 1 + 4 * 3


def test_a_second_process_or_the_same_one_twice_is_refused(tmp_path: Path) -> None:
    with Topics(tmp_path), pytest.raises(kts.LogLockedError):
        Topics(tmp_path)
    with Topics(tmp_path):
        pass


def test_closed_topics_refuse_changes(tmp_path: Path) -> None:
    with Topics(tmp_path) as topics:
        partition = topics.create("t").partitions[0]
    topics.close()
    for change in (lambda: topics.create("u"), lambda: topics.alter("t", {}), lambda: topics.delete("t")):
        with pytest.raises(kts.LogClosedError):
            change()
    with pytest.raises(kts.LogStorageError, match="closed"):
        partition.append(batch())


def test_a_change_that_could_not_be_written_is_not_made_by_a_later_one(tmp_path: Path) -> None:
    with Topics(tmp_path) as topics:
        topics.create("t", 1, {"retention.ms": "5"}).partitions[0].append(batch())
        no_room = FaultyOs(str(tmp_path), Fault(1, WRITING, errno.ENOSPC, lasting=True))
        for change in (
            lambda: topics.delete("t"),
            lambda: topics.alter("t", {"retention.ms": "6"}),
            lambda: topics.alter_broker({"log.segment.bytes": "99"}, cluster=True),
            lambda: topics.add_partitions("t", 3),
            lambda: topics.create("u"),
        ):
            with in_place_of_os(no_room), pytest.raises(kts.LogStorageError):
                change()
        topics.create("v")
    with Topics(tmp_path) as topics:
        assert topics.names() == ["t", "v"]
        topic = topics.get("t")
        assert topic is not None
        assert (topic.configs, list(topic.partitions), topics.dynamic) == ({"retention.ms": "5"}, [0], {})
        assert topic.partitions[0].log.log_end_offset == 1


def test_a_topic_deleted_while_checkpoints_are_collected_leaves_none_for_the_next_of_that_name(tmp_path: Path) -> None:
    with Topics(tmp_path) as topics:
        logs = [topics.create(name).partitions[0] for name in ("t", "u")]
        for partition in logs:
            for number in range(5):
                partition.append(batch(number))
        assert logs[0].log.advance_log_start_offset(5)
        with topics._log_directory.checkpoints_at_once():  # as topics.checkpoint() in another thread
            assert logs[1].log.advance_log_start_offset(3)
            topics.delete("t")
        made = topics.create("t").partitions[0].log
        assert (made.log_start_offset, made.log_end_offset) == (0, 0)
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nu 0 3\n"


def test_checkpoints_that_two_threads_collect_are_all_written(tmp_path: Path) -> None:
    with Topics(tmp_path) as topics:
        logs = [topics.create(name).partitions[0] for name in ("t", "u")]
        for partition in logs:
            partition.append(batch())
        with topics._log_directory.checkpoints_at_once():
            logs[0].log.advance_log_start_offset(1)
            with topics._log_directory.checkpoints_at_once():
                logs[1].log.advance_log_start_offset(1)
        assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n2\nt 0 1\nu 0 1\n"
