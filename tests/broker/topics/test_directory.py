"""Log directories that others left: what is served, what is kept, what is left alone; nothing else is touched."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from support.golden import data_root

import kts
from kts.broker.codes import ApiError
from kts.broker.topics import Topics

ANCIENT = 10**13  # ms since the epoch: far behind all that is in the golden data


def golden(target: Path, *names: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        source = data_root() / "golden" / name
        for path in source.iterdir():
            if path.is_dir():
                shutil.copytree(path, target / path.name)


def state(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    """Everything below a folder, links as such."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for root, directories, files in os.walk(folder):
        for name in [*directories, *files]:
            path = Path(root, name)
            if path.is_symlink():
                found[str(path)] = path.lstat().st_mode, os.readlink(path)
            elif path.is_file():
                found[str(path)] = path.stat().st_mode, path.read_bytes()
            else:
                found[str(path)] = path.stat().st_mode, ""
    return found


# --- real brokers' data -----------------------------------------------------------------------------


def test_topics_of_other_brokers_keep_all_they_have_in_the_format_they_have(tmp_path: Path) -> None:
    names = ["0.10.2.2/ct-gzip", "0.10.2.2/lat-none", "0.10.2.2/fmt09-none", "3.9.2/ct-zstd", "4.3.1/txn-none"]
    for name in names:
        version, scenario = name.split("/")
        golden(tmp_path / version, name)
        with Topics(tmp_path / version, clock=lambda: ANCIENT) as topics:
            ends = [(one.topic, one.log.log_end_offset) for one in topics.partitions()]
            assert topics.run_retention() == []
            assert all(one.log.log_end_offset > one.log.log_start_offset for one in topics.partitions())
            assert topics.adopted == topics.names()
            assert not any(one.is_offline for one in topics.partitions())
        with Topics(tmp_path / version, clock=lambda: ANCIENT) as topics:
            assert topics.adopted == []
            assert [(one.topic, one.log.log_end_offset) for one in topics.partitions()] == ends
        shutil.rmtree(tmp_path / version)
        assert scenario


def test_what_was_found_is_set_to_what_its_data_say(tmp_path: Path) -> None:
    golden(tmp_path, "0.10.2.2/ct-gzip", "0.10.2.2/lat-none", "0.10.2.2/fmt09-none", "3.9.2/ct-zstd")
    with Topics(tmp_path) as topics:
        kept = {"retention.ms": "-1", "retention.bytes": "-1"}
        assert {name: topic.configs for name in topics.names() if (topic := topics.get(name))} == {
            "ct-gzip": {**kept, "message.format.version": "0.10.2"},
            "ct-zstd": kept,
            "fmt09-none": {**kept, "message.format.version": "0.9.0"},
            "lat-none": {**kept, "message.format.version": "0.10.2", "message.timestamp.type": "LogAppendTime"},
        }
        magics = {one.topic: one.append(batch()).records[16] for one in topics.partitions()}
        assert magics == {"ct-gzip": 1, "ct-zstd": 2, "fmt09-none": 0, "lat-none": 1}


def test_retention_that_the_broker_was_given_holds_for_what_was_found(tmp_path: Path) -> None:
    golden(tmp_path, "3.9.2/ct-zstd")
    with Topics(tmp_path, {"log.retention.hours": 1}, clock=lambda: ANCIENT) as topics:
        assert [one.segment.rule for one in topics.run_retention()]


def test_kafkas_own_topics_are_compacted_and_never_deleted_from_by_time(tmp_path: Path) -> None:
    for directory in ("__consumer_offsets-0", "__transaction_state-0"):
        golden(tmp_path / "golden", "3.9.2/ct-none")
        found = next(path for path in (tmp_path / "golden").iterdir() if path.is_dir())
        shutil.copytree(found, tmp_path / "data" / directory)
        (tmp_path / "data" / directory / "partition.metadata").unlink()
        shutil.rmtree(tmp_path / "golden")
    with Topics(tmp_path / "data", {"log.retention.ms": 1}, clock=lambda: ANCIENT) as topics:
        for name in ("__consumer_offsets", "__transaction_state"):
            topic = topics.get(name)
            assert topic is not None
            assert topic.is_internal
            assert topic.config.cleanup_policy == "compact"
        assert topics.run_retention() == []


def test_topic_ids_of_brokers_are_kept_and_partitions_of_another_id_are_not_served(tmp_path: Path) -> None:
    golden(tmp_path, "3.9.2/ct-none")
    shutil.copytree(tmp_path / "ct-none-0", tmp_path / "ct-none-1")
    (tmp_path / "ct-none-1/partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAABB")
    before = state(tmp_path / "ct-none-1")
    with Topics(tmp_path) as topics:
        topic = topics.get("ct-none")
        assert topic is not None
        assert list(topic.partitions) == [0]
        told = (tmp_path / "ct-none-0/partition.metadata").read_text().split("topic_id: ")[1]
        assert json.loads((tmp_path / "kts-topics.json").read_text())["topics"]["ct-none"]["topic_id"] == told
        assert any(name == "ct-none-1" for name, _ in topics.left_alone)
    assert state(tmp_path / "ct-none-1") == before


def test_a_partition_without_a_topic_id_gets_none_in_its_directory(tmp_path: Path) -> None:
    golden(tmp_path, "0.10.2.2/ct-none")
    with Topics(tmp_path) as topics:
        first = topics.get("ct-none").topic_id  # type: ignore[union-attr]
        topics.partitions()[0].append(batch())
    assert not (tmp_path / "ct-none-0/partition.metadata").exists()
    with Topics(tmp_path) as topics:
        assert topics.get("ct-none").topic_id == first  # type: ignore[union-attr]


# --- what is no partition, or damaged ---------------------------------------------------------------


def batch() -> bytes:
    return kts.encode({"timestamp": [1], "key": [b"k"], "value": [b"v"]})


def test_links_fifos_files_and_foreign_directories_are_left_alone_and_said(tmp_path: Path) -> None:
    outside, data = tmp_path / "outside", tmp_path / "data"
    with Topics(outside) as topics:
        topics.create("elsewhere").partitions[0].append(batch())
    data.mkdir()
    (data / "linked-0").symlink_to(outside / "elsewhere-0")
    os.mkfifo(data / "pipe-0")
    (data / "file-0").write_bytes(b"x")
    for name in (
        "lost+found",
        "t-x",
        "t-99999999999",
        "..-0",
        "sp ace-0",
        "t-00",
        "__cluster_metadata-0",
        "old-0-stray",
    ):
        (data / name).mkdir()
        (data / name / "keep").write_bytes(b"k")
    before = state(tmp_path)
    with Topics(data) as topics:
        assert topics.names() == []
        said = {name for name, _ in topics.left_alone}
        assert {"linked-0", "pipe-0", "file-0", "__cluster_metadata-0", "old-0-stray"} <= said
        for name in ("linked", "pipe", "file"):
            with pytest.raises(ApiError, match="not served") as raised:
                topics.create(name)
            assert raised.value.code == 36
        topics.create("mine").partitions[0].append(batch())
        topics.run_retention()
        topics.delete("mine")
    after = state(tmp_path)
    assert {path: after[path] for path in before} == before


def test_a_partition_that_became_a_link_is_not_served_and_not_followed(tmp_path: Path) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    with Topics(data) as topics:
        topics.create("t", 2).partitions[1].append(batch())
    shutil.move(data / "t-1", outside)
    (data / "t-1").symlink_to(outside)
    before = state(outside)
    with Topics(data) as topics:
        assert list(topics.get("t").partitions) == [0]  # type: ignore[union-attr]
        topics.run_retention()
    assert state(outside) == before


def test_what_came_into_the_directory_later_is_not_taken_for_a_new_topics(tmp_path: Path) -> None:
    with Topics(tmp_path / "data") as topics:
        topics.create("t")
        for name in ("late-1", "t-1"):
            (tmp_path / "data" / name).mkdir()
            (tmp_path / "data" / name / "keep").write_bytes(b"k")
        for make in (lambda: topics.create("late", 2), lambda: topics.add_partitions("t", 2)):
            with pytest.raises(ApiError, match="exists and is not served"):
                make()
        assert topics.names() == ["t"]
        assert (tmp_path / "data/late-1/keep").exists()
        assert not (tmp_path / "data/late-0").exists()


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "kts-topics.json.tmp", "meta.properties", ".lock"]
)
def test_a_link_in_place_of_the_directorys_own_files_is_refused(tmp_path: Path, name: str) -> None:
    secret, data = tmp_path / "secret", tmp_path / "data"
    secret.write_bytes(b"keep me")
    data.mkdir()
    (data / name).symlink_to(secret)
    with pytest.raises(kts.LogStorageError, match="symbolic link"):
        Topics(data)
    assert secret.read_bytes() == b"keep me"


def test_directories_to_be_deleted_go_with_their_files_and_what_has_others_inside_stays(tmp_path: Path) -> None:
    for name in ("t-0.0123456789abcdef0123456789abcdef-delete", "u-0.0123456789abcdef0123456789abcdef-delete"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ("0" * 20 + ".log")).write_bytes(b"x")
    (tmp_path / "u-0.0123456789abcdef0123456789abcdef-delete/inside").mkdir()
    for name in ("kts-write", "kts-copy"):  # what a writer that was killed left
        (tmp_path / f"{name}-0.0123456789abcdef0123456789abcdef-delete/attempt/t-0").mkdir(parents=True)
    clock = [0]
    with Topics(tmp_path, clock=lambda: clock[0]) as topics:
        clock[0] = 60_000
        topics.delete_due()
        assert [path.name[:3] for path in tmp_path.iterdir() if path.is_dir()] == ["u-0"]
        assert topics.left_alone
