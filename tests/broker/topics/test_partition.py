"""A partition: its log is opened on first use, with a greater leader epoch; a log that fails takes it offline."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from pathlib import Path

import pytest

import kts
from kts.broker.topics import Topics
from kts.model import uuid_text
from kts.store import descriptors

NOW = 1_700_000_000_000


def batch(number: int = 0, value: bytes = b"v") -> bytes:
    return kts.encode({"timestamp": [NOW + number], "key": [b"k"], "value": [value]})


def test_each_start_leads_with_a_greater_epoch(tmp_path: Path) -> None:
    told = []
    for _ in range(3):
        with Topics(tmp_path) as topics:
            partition = (topics.get("t") or topics.create("t")).partitions[0]
            partition.append(batch())
            told.append(partition.leader_epoch)
            assert partition.log.leader_epochs == [(epoch, epoch) for epoch in told]
    assert told == [0, 1, 2]
    path = tmp_path / "t-0/leader-epoch-checkpoint"
    path.write_text("0\n1\n70 0\n")
    with Topics(tmp_path) as topics:
        assert topics.create("u").partitions[0].leader_epoch == 71


def test_a_thousand_partitions_open_without_their_logs_and_with_bounded_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "most_holders", lambda: 10)
    with Topics(tmp_path) as topics:
        topics.create("t", 1000)
    before = len(os.listdir("/proc/self/fd"))
    with Topics(tmp_path) as topics:
        partitions = topics.partitions()
        assert len(partitions) == 1000
        assert not any(one.is_open for one in partitions)
        for partition in partitions[:60]:
            partition.append(batch())
        assert sum(one.is_open for one in partitions) == 60
        assert len(os.listdir("/proc/self/fd")) <= before + 3 * 10 + 1
        for partition in partitions[:60]:
            assert partition.append(batch()).first_offset == 1


def test_partitions_that_kts_made_get_their_topics_id_also_when_they_are_opened_after_a_restart(tmp_path: Path) -> None:
    with Topics(tmp_path) as topics:
        topic_id = topics.create("t").topic_id
        topics.add_partitions("t", 2)
    with Topics(tmp_path) as topics:
        for partition in topics.partitions():
            assert partition.log.topic_id == uuid_text(topic_id)
    for index in range(2):
        assert uuid_text(topic_id) in (tmp_path / f"t-{index}" / "partition.metadata").read_text()


def test_a_log_that_found_no_descriptor_left_is_opened_by_the_next_who_asks(tmp_path: Path) -> None:
    with Topics(tmp_path) as topics:
        topics.create("t").partitions[0].append(batch())
    with Topics(tmp_path) as topics:
        [partition] = topics.partitions()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            with pytest.raises(kts.LogStorageError, match=os.strerror(errno.EMFILE)) as raised:
                _ = partition.log
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert raised.value.errno == errno.EMFILE
        assert not partition.is_offline
        partition.append(batch())
        assert partition.log.log_end_offset == 2


def test_links_inside_a_partition_take_it_offline_and_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"keep me")
    data = tmp_path / "data"
    with Topics(data) as topics:
        for name in ("good", "log", "index", "checkpoint"):
            topics.create(name).partitions[0].append(batch())
    for name, file in (("log", "0" * 20 + ".log"), ("index", "0" * 20 + ".index"), ("checkpoint", "x.tmp")):
        (data / f"{name}-0" / file).unlink(missing_ok=True)
        (data / f"{name}-0" / file).symlink_to(secret)
    with Topics(data) as topics:
        for name in ("log", "index", "checkpoint"):
            partition = topics.get(name).partitions[0]  # type: ignore[union-attr]
            with pytest.raises(kts.LogStorageError, match="symbolic link") as raised:
                partition.append(batch())
            assert raised.value.code == 56
            assert partition.is_offline
        assert topics.get("good").partitions[0].append(batch()).first_offset == 1  # type: ignore[union-attr]
        topics.run_retention()
    assert secret.read_bytes() == b"keep me"


def test_a_damaged_partition_is_offline_and_the_others_are_served(tmp_path: Path) -> None:
    with Topics(tmp_path) as topics:
        topics.create("t", 3)
        for partition in topics.partitions():
            partition.append(batch())
    shutil.rmtree(tmp_path / "t-1")
    (tmp_path / "t-1").mkdir()
    os.mkfifo(tmp_path / "t-1" / ("0" * 20 + ".log"))
    with Topics(tmp_path) as topics:
        partitions = topics.get("t").partitions  # type: ignore[union-attr]
        for _ in range(2):
            with pytest.raises(kts.LogStorageError) as raised:
                partitions[1].append(batch())
            assert raised.value.code == 56
        assert [partitions[index].append(batch()).first_offset for index in (0, 2)] == [1, 1]
        assert topics.run_retention()
        assert [partitions[index].is_offline for index in range(3)] == [False, True, False]
        topics.delete("t")
        assert topics.names() == []
