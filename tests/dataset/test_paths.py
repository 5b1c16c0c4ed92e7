"""Which partitions of a path are read."""

from __future__ import annotations

import pickle
import pydoc
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import kts
from kts.dataset.paths import log_directories, select

NAMES = ("a-0", "a-1", "b-0", "b-2", "__consumer_offsets-0")


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(kts.encode({"value": [name.encode()]}))
    return tmp_path


def selected(path: Any, **chosen: Any) -> list[str]:
    return [f"{log.topic}-{log.partition}" for log in select(kts.open(path), path, **chosen)]


def test_an_internal_topic_is_read_if_it_is_named_or_its_own_path_is_given(log_directory: Path) -> None:
    offsets = str(log_directory / "__consumer_offsets-0")
    assert selected(log_directory) == ["a-0", "a-1", "b-0", "b-2"]
    assert selected(log_directory, internal=True)[0] == "__consumer_offsets-0"
    assert selected(log_directory, topics="__consumer_offsets") == ["__consumer_offsets-0"]
    assert selected(log_directory, partitions={"__consumer_offsets": [0]}) == ["__consumer_offsets-0"]
    assert selected(offsets) == ["__consumer_offsets-0"]
    assert selected([offsets, str(log_directory / "a-1")]) == ["__consumer_offsets-0", "a-1"]


def test_partitions_are_those_of_the_topics_that_are_asked_for(log_directory: Path) -> None:
    assert selected(log_directory, partitions=[0]) == ["a-0", "b-0"]
    assert selected(log_directory, topics=["b"], partitions=[2]) == ["b-2"]
    assert selected(log_directory, partitions={"a": [1], "b": [0]}) == ["a-1", "b-0"]
    assert selected(log_directory, topics=["a"], partitions={"a": [1], "b": [0]}) == ["a-1"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"topics": ["bb"]}, "there is no topic bb in .*; did you mean b?"),
        ({"topics": ["other"]}, "there is no topic other in .*; there are __consumer_offsets, a, b"),
        ({"partitions": {"a": [0, 7]}}, "there is no a-7 in .*; there are the partitions 0, 1"),
        ({"partitions": [1, 9]}, "there is no partition 9 in .*; there are the partitions 0, 1, 2"),
        ({"topics": ["a"], "partitions": [2]}, "there is no partition 2 in .*; there are the partitions 0, 1"),
    ],
)
def test_what_does_not_exist_is_refused_and_what_there_is_is_named(
    log_directory: Path, chosen: dict[str, Any], message: str
) -> None:
    with pytest.raises(kts.UnknownTopicOrPartitionError, match=message):
        selected(log_directory, **chosen)


def made(folder: Path, *names: str) -> Path:
    """A folder with these files, all empty; a name that ends in / is a directory."""
    for name in names:
        path = folder / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.touch()
    return folder


@pytest.mark.parametrize(
    "file",
    [
        f"{0:020d}.log",
        f"{7:020d}.index",
        f"{7:020d}.timeindex",
        f"{7:020d}.snapshot",
        f"{0:020d}.log.deleted",
        "partition.metadata",
        "leader-epoch-checkpoint",
    ],
)
def test_a_directory_with_a_file_of_a_partition_is_one(file: str, tmp_path: Path) -> None:
    made(tmp_path, f"new-0/{file}", "dbus-1/session.conf", "dbus-1/session.d/x", "empty-2/")
    logs = kts.open(tmp_path)
    assert isinstance(logs, kts.LogDirs) and list(logs) == [("new", 0)]
    assert kts.scan(tmp_path, topics=["new"]).read_all().num_rows == 0
    assert kts.open(tmp_path / "empty-2").topic == "empty", "its own path was given, and a broker starts on it"
    assert len(kts.open(tmp_path / "dbus-1")) == 0


@pytest.mark.parametrize("beside", ["meta.properties", "replication-offset-checkpoint", ".kafka_cleanshutdown"])
def test_where_a_broker_wrote_every_directory_with_a_partition_s_name_is_one(beside: str, tmp_path: Path) -> None:
    """A broker that is killed between two calls leaves an empty one, and starts on it."""
    made(tmp_path, beside, "new-0/", "topic/", f"gone-0.{'0' * 32}-delete/{0:020d}.log")
    logs = kts.open(tmp_path)
    assert isinstance(logs, kts.LogDirs) and list(logs) == [("new", 0)]


def test_log_directories_are_found_at_any_depth_and_not_inside_of_partitions(tmp_path: Path) -> None:
    log = f"{0:020d}.log"
    made(tmp_path, f"a/x-0/{log}", f"a/x-0/b-0/{log}", f"c/d-1/y-0/{log}", f"c/backup/{log}", "e/f/", "e/g-1/")
    made(tmp_path, f"a/x-1.{'0' * 32}-delete/{log}", f"h-3/{log}")
    (tmp_path / "e" / "loop").symlink_to(tmp_path)
    found = [str(Path(path).relative_to(tmp_path)) for path in log_directories(str(tmp_path))]
    assert found == [".", "a", "c/backup", "c/d-1"]
    assert [Path(path).name for path in log_directories(str(tmp_path), 0)] == [tmp_path.name]
    assert [Path(path).name for path in log_directories(str(tmp_path / "c"), 1)] == ["backup", "d-1"]
    assert log_directories(str(tmp_path / "e")) == []


def test_each_of_the_two_doors_opens_what_it_says(log_directory: Path) -> None:
    partition = log_directory / "b-2"
    for path in (partition, str(partition / f"{0:020d}.log")):
        opened, either = kts.open_partition(path, log_start_offset=1), kts.open(path, log_start_offset=1)
        assert isinstance(either, kts.PartitionLog)
        assert (opened.topic, opened.partition, opened.log_start_offset) == ("b", 2, 1)
        assert (either.topic, either.partition, either.log_start_offset) == ("b", 2, 1)
        assert list(kts.open_log_dirs(path)) == list(kts.open([path])) == [("b", 2)]
    for paths in (log_directory, str(log_directory), [log_directory]):
        opened_all = kts.open_log_dirs(paths, log_start_offset={"a": {1: 1}})
        assert list(opened_all) == list(kts.open(paths)) and len(opened_all) == len(NAMES)
        assert opened_all["a", 1].log_start_offset == 1


def test_what_is_no_partition_is_not_opened_as_one(log_directory: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"found the log directory .*a-0, a-1, .*kts\.open_log_dirs"):
        kts.open_partition(log_directory)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"found the log directory .*empty, without partitions"):
        kts.open_partition(tmp_path / "empty")
    with pytest.raises(TypeError, match="path: expected a path, found list"):
        kts.open_partition([str(log_directory / "a-0")])  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        kts.open_partition(tmp_path / "none-0")


def test_a_folder_of_log_directories_is_not_read_and_they_are_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name / "x-0").mkdir(parents=True)
        (tmp_path / name / "x-0" / f"{0:020d}.log").write_bytes(kts.encode({"value": [b"v"]}))
    hint = f"there are some in {tmp_path}/a, {tmp_path}/b, {tmp_path}/c, ...: name one of these"
    with pytest.warns(kts.KtsWarning, match=re.escape(hint)) as warned:
        assert kts.scan(tmp_path).read_all().num_rows == 0
    assert warned[0].filename == __file__
    with pytest.raises(kts.UnknownTopicOrPartitionError, match=re.escape(hint)):
        kts.scan(tmp_path, topics="x")
    (tmp_path / "empty").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kts.scan(tmp_path / "empty").read_all().num_rows == 0
        assert kts.scan(tmp_path / "a").read_all().num_rows == 1


def test_a_function_has_the_name_that_users_know() -> None:
    assert pydoc.render_doc(kts.open, renderer=pydoc.plaintext).splitlines()[2].startswith("open(")
    assert pickle.loads(pickle.dumps(kts.open)) is kts.open
