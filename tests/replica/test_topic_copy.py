"""The copy of a topic: the leader's settings and id are its own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.follow_play import files, log_bytes
from support.broker.follow_serving import SMALL, KtsLeader
from support.processes.cli_runs import run

import kts
from kts.broker.topics import topic_file
from kts.replica.client import Client
from kts.replica.fetcher import Fetcher
from kts.replica.topic_copy import TopicCopy, log_settings


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[KtsLeader]:
    with KtsLeader(tmp_path / "leader") as leader:
        yield leader


def test_a_copy_can_be_served_with_the_leaders_settings(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    leader.create("t", 2, retention_bytes="123456")
    leader.produce("t", rng, 10)
    run("follow", "--bootstrap-server", leader.address, "--topic", "t", "--once", tmp_path / "copy")
    theirs = leader.broker.topics.get("t")
    with KtsLeader(tmp_path / "copy") as second:
        ours = second.broker.topics.get("t")
        assert ours is not None and theirs is not None
        assert ours.topic_id == theirs.topic_id and ours.config == theirs.config and len(ours.partitions) == 2
        before = second.log("t").log_end_offset
        second.produce("t", rng, 1)
        assert second.log("t").log_end_offset > before == leader.log("t").log_end_offset


def test_the_leaders_settings_as_far_as_a_log_has_them() -> None:
    told: list[str] = []
    described = {"retention.ms": "5", "internal.segment.bytes": "300", "segment.bytes": "1073741824"}
    described |= {
        "message.format.version": "3.0-IV1",
        "min.cleanable.dirty.ratio": "0.5",
        "cleanup.policy": "later,delete",
    }
    found = log_settings(described, None, told.append)
    assert found == {
        "retention.ms": "5",
        "segment.bytes": "300",
        "message.format.version": "3.0-IV1",
        "min.cleanable.dirty.ratio": "0.5",
    }
    assert told == [
        "the leader's cleanup.policy: expected compact, delete or both, found 'later,delete'; the default is taken"
    ]
    for magic, version in ((0, "0.9.0"), (1, "0.10.2"), (2, "3.9")):  # a leader that tells nothing deletes nothing here
        forever = {"retention.ms": "-1", "retention.bytes": "-1"}
        assert log_settings({}, magic) == forever | {"message.format.version": version}


def test_a_refresh_takes_over_new_partitions_and_settings(
    leader: KtsLeader, tmp_path: Path, rng: random.Random
) -> None:
    leader.create("t")
    leader.produce("t", rng, 5)
    told: list[str] = []
    folder = tmp_path / "copy"
    with Client(leader.address) as client, TopicCopy(client, str(folder), "t", tell=told.append) as copy:
        copy.find()
        fetcher = Fetcher(client, copy.open(), max_wait_ms=1)
        fetcher.catch_up()
        assert copy.refresh() == [] and told == []
        leader.broker.topics.add_partitions("t", 3)
        leader.broker.topics.alter("t", SMALL | {"segment.bytes": "2500"})
        leader.produce("t", rng, 20, partition=2)
        leader.produce("t", rng, 20)
        fetcher.followers += copy.refresh()
        fetcher.catch_up()
        assert told == [
            "t: the copy has the leader's new settings",
            "t-1: the topic has a new partition",
            "t-2: the topic has a new partition",
        ]
        assert {each.log.config.segment_bytes for each in copy.followers} == {2500}
        for partition in range(3):
            assert log_bytes(files(folder / f"t-{partition}")) == log_bytes(leader.files("t", partition))
    kept = topic_file.read(str(folder)).topics["t"]
    assert kept.partitions == [0, 1, 2] and kept.configs == SMALL | {"segment.bytes": "2500"}


def test_a_given_difference_limit_replaces_the_leader_s_by_any_name(leader: KtsLeader, tmp_path: Path) -> None:
    leader.create("t")
    for name in ("max.message.time.difference.ms", "message.timestamp.difference.max.ms"):
        with Client(leader.address) as client:
            copy = TopicCopy(client, str(tmp_path / "copy"), "t", settings={name: "7"})
            copy.find()
            assert copy.config.message_timestamp_difference_max_ms == 7


def test_what_is_not_there_or_is_another_topic_is_refused(leader: KtsLeader, tmp_path: Path) -> None:
    leader.create("t", 2)
    with Client(leader.address) as client:
        for topic, partitions in (("u", ()), ("t", (0, 2))):
            with pytest.raises(kts.UnknownTopicOrPartitionError):
                TopicCopy(client, str(tmp_path / "copy"), topic, partitions=partitions).find()
        with pytest.raises(ValueError, match="retention.ms"):
            TopicCopy(client, str(tmp_path / "copy"), "t", settings={"retention.ms": "x"}).find()
        assert not (tmp_path / "copy").exists()
        with TopicCopy(client, str(tmp_path / "copy"), "t") as copy:
            copy.find()
            copy.open()
            leader.broker.topics.delete("t")
            leader.create("t", 2)
            copy.find()
            with pytest.raises(kts.InvalidRequestError, match="expected topic id"):
                copy.open()
