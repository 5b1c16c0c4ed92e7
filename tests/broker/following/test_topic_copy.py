"""The copy of a topic: the leader's settings and id are its own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.follow_serving import KtsLeader
from support.processes.cli_runs import run

from kts.broker.following.topic_copy import log_settings


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[KtsLeader]:
    with KtsLeader(tmp_path / "leader") as leader:
        yield leader


def test_a_copy_can_be_served_with_the_leaders_settings(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    leader.create("t", 2, retention_bytes="123456")
    leader.produce("t", rng, 10)
    run("follow", "--from", leader.address, "--topic", "t", "--once", tmp_path / "copy")
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
    assert found == {"retention.ms": "5", "segment.bytes": "300", "message.format.version": "3.0-IV1"}
    assert told == [
        "the leader's cleanup.policy: expected compact, delete or both, found 'later,delete'; the default is taken"
    ]
    for magic, version in ((0, "0.9.0"), (1, "0.10.2"), (2, "3.9")):  # a leader that tells nothing deletes nothing here
        forever = {"retention.ms": "-1", "retention.bytes": "-1"}
        assert log_settings({}, magic) == forever | {"message.format.version": version}
