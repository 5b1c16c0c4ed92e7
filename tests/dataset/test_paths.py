"""Which partitions of a path are read."""

from __future__ import annotations

import ast
import os
import pickle
import pydoc
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kts
from kts import tables
from kts.dataset.paths import log_directories, select
from kts.offline.copy import CopyOptions, copy
from kts.offline.verify import verify

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
    with pytest.raises(FileNotFoundError, match="no partition directories"):
        kts.open(tmp_path / "dbus-1")


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
    with pytest.raises(FileNotFoundError, match=r"no partition directories .*empty"):
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
    for door in DOORS.values():
        with pytest.raises(FileNotFoundError, match=re.escape(hint)) as refused:
            door(str(tmp_path))
        assert str(tmp_path) in refused.value.filename
    assert kts.scan(tmp_path / "a").read_all().num_rows == 1


DOORS: dict[str, Callable[[str], Any]] = {
    "open": kts.open,
    "open_partition": kts.open_partition,
    "open_log_dirs": kts.open_log_dirs,
    "a list": lambda path: kts.open([path, path]),
    "scan": kts.scan,
    "scan of a topic": lambda path: kts.scan(path, topics="x"),
    "scan with a store": lambda path: kts.scan(path, remote=path, remote_options={"layout": "local"}),
    "committed_offsets": kts.committed_offsets,
    "verify": lambda path: list(verify(path)),
    "copy": lambda path: copy(path, path + "-copy"),
    "sync": lambda path: tables.sync(path, path + "-table"),
}


@pytest.mark.parametrize("content", ["", "x/y/", "meta.properties", "notes.txt", f"gone-0.{'0' * 32}-delete/x"])
@pytest.mark.parametrize("door", DOORS)
def test_nothing_found_is_an_error_at_every_door(door: str, content: str, tmp_path: Path) -> None:
    folder = made(tmp_path / "folder", content or "./")
    with pytest.raises(FileNotFoundError, match="no partition directories") as refused:
        DOORS[door](str(folder))
    assert str(folder) in str(refused.value)
    assert [one.name for one in tmp_path.iterdir()] == ["folder"], "nothing was made"


def test_of_several_paths_one_that_holds_nothing_is_told(log_directory: Path, tmp_path: Path) -> None:
    made(tmp_path, "bare/", "above/logs/", "fresh/meta.properties")
    shutil.copytree(log_directory / "a-0", tmp_path / "above" / "logs" / "a-5")
    with pytest.warns(kts.KtsWarning) as told:
        logs = kts.open([log_directory, tmp_path / "bare", tmp_path / "above", tmp_path / "fresh"])
    assert len(logs) == len(NAMES)
    bare, above = sorted((str(one.message) for one in told), key=len)
    assert bare.startswith(f"{tmp_path}/bare: no partition directories")
    assert above.startswith(f"{tmp_path}/above: no partition") and f"there are some in {tmp_path}/above/logs" in above


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.txt", b"hello"),
        ("empty", b""),
        (f"{0:020d}", b"\0" * 11),
        ("notes.md", b"# what we know of the broker that died"),
        ("zeros", b"\0" * 500),
        ("meta.properties", b"#\nversion=1\nnode.id=1\ncluster.id=QUJDREVGR0hJSktMTU5PUA\n"),
        ("x.parquet", b"PAR1" + bytes(range(256))),
    ],
)
def test_a_file_that_does_not_begin_as_a_segment_and_is_not_called_a_log_is_named(
    name: str, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for door in (kts.open, kts.open_partition, kts.scan):
        with pytest.raises(ValueError, match="expected a directory or a segment file, found") as refused:
            door(path)
        assert str(path) in str(refused.value)
    path.write_bytes(kts.encode({"value": [b"v"]}))
    assert kts.scan(path).read_all().num_rows == 1, "a segment under any name"
    path.write_bytes(b"")
    path.rename(tmp_path / "t-0.log")
    assert kts.open(tmp_path / "t-0.log").log_end_offset == 0


def test_a_pattern_of_paths_means_partitions_and_segments_and_not_what_lies_beside_them(tmp_path: Path) -> None:
    gone = f"t-1.{'0' * 32}-delete"
    for name in ("t-0", gone, "u-0"):
        made(tmp_path, f"logs/{name}/leader-epoch-checkpoint", f"logs/{name}/{0:020d}.index")
        (tmp_path / "logs" / name / f"{0:020d}.log").write_bytes(kts.encode({"value": [name.encode()]}))
        (tmp_path / "logs" / name / f"{1:020d}.log.deleted").write_bytes(
            kts.encode({"value": [b"deleted"]}, base_offset=1)
        )
    made(
        tmp_path, "logs/meta.properties", "logs/recovery-point-offset-checkpoint", "logs/kts-index-checksum-checkpoint"
    )
    for pattern in ("logs/*", "logs/[tu]*", "logs/*-0/*"):
        assert kts.scan(tmp_path / pattern).read_all()["value"].to_pylist() == [b"t-0", b"u-0"], pattern
    assert kts.scan(tmp_path / "logs" / gone).read_all()["value"].to_pylist() == [gone.encode()], "its own path"
    for pattern in ("logs/*-delete", "logs/*.properties", "logs/t-0/*.index"):
        with pytest.raises(FileNotFoundError, match="nothing matches the pattern"):
            kts.scan(tmp_path / pattern)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a", ["a"]),
        ("*", ["a", "b"]),
        ("[ab]", ["a", "b"]),
        ("?", ["a", "b"]),
        (["a*", "b"], ["a", "b"]),
        (["b", "*"], ["a", "b"]),
        ("__*", ["__consumer_offsets"]),
        ("[!a]*", ["b"]),
    ],
)
def test_a_pattern_of_topics_is_what_it_matches(
    pattern: str | list[str], found: list[str], log_directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("a-0", "b-2"):
        shutil.copytree(log_directory / name, tmp_path / "logs" / name)
    shutil.copytree(log_directory / "a-0", tmp_path / "logs" / "__consumer_offsets-0")
    rows = kts.scan(tmp_path / "logs", topics=pattern, columns=["topic"]).read_all()
    assert sorted(set(rows["topic"].to_pylist())) == found


@pytest.mark.parametrize("pattern", ["z*", "A", "?b", "__z*", "[]"])
def test_a_pattern_that_matches_nothing_is_an_error(pattern: str, log_directory: Path) -> None:
    with pytest.raises(kts.UnknownTopicOrPartitionError, match="there are|did you mean"):
        kts.scan(log_directory, topics=[pattern, "a"])


def test_internal_topics_alone_are_not_an_empty_answer(log_directory: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    shutil.copytree(log_directory / "a-0", tmp_path / "logs" / "__consumer_offsets-0")
    with pytest.raises(kts.UnknownTopicOrPartitionError, match="only Kafka's internal topics .*: __consumer_offsets;"):
        kts.scan(tmp_path / "logs")
    assert kts.scan(tmp_path / "logs" / "__consumer_offsets-0").read_all().num_rows > 0


# Root, with no more rights to files than their modes give; a clone may lie in a folder that is closed to others.
BOUND = ["setpriv", "--inh-caps=-dac_override,-dac_read_search", "--bounding-set=-dac_override,-dac_read_search"]
NOBODY = 65534
READ = """
import sys, warnings
import kts
from kts.dataset.paths import log_directories, paths_of
warnings.simplefilter("always")
path = sys.argv[1]
print([log.path for log in kts.open(path).values()])
print(log_directories(path + "/.."))
print(paths_of(path + "/*"))
try:
    kts.scan(path).read_all()
except kts.LogStorageError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, to give up its rights")
def test_a_folder_that_another_user_closed_is_told_and_passed_over_but_not_a_partition(tmp_path: Path) -> None:
    """A process of its own (a second): root may read everything."""
    made(tmp_path, "logs/lost+found/x", f"logs/t-0/{0:020d}.log", f"logs/u-0/{0:020d}.log")
    logs = str(tmp_path / "logs")
    for closed in ("lost+found", "u-0"):
        os.chmod(f"{logs}/{closed}", 0o700)
        os.chown(f"{logs}/{closed}", NOBODY, NOBODY)
    run = subprocess.run([*BOUND, sys.executable, "-c", READ, logs], capture_output=True, text=True, check=True)
    opened, below, matched, refused = run.stdout.splitlines()
    assert ast.literal_eval(opened) == [f"{logs}/t-0", f"{logs}/u-0"]
    assert ast.literal_eval(below) == [f"{logs}/../logs"]
    assert ast.literal_eval(matched) == [f"{logs}/t-0"]
    assert "Permission denied" in refused and f"{logs}/u-0" in refused
    told = [line for line in run.stderr.splitlines() if "passed over" in line]
    assert len([line for line in told if "lost+found" in line]) == 2 and "Permission denied" in told[0]


REACHING: dict[str, Callable[..., Any]] = {
    "open": kts.open,
    "open_partition": lambda path, **given: kts.open_partition(f"{path}/a-0", **given),
    "open_log_dirs": kts.open_log_dirs,
    "scan": kts.scan,
    "sync": lambda path, **given: tables.sync(path, f"{path}-table", **given),
    "copy": lambda path, **given: copy(path, f"{path}-copy", **given),
}


@pytest.mark.parametrize("address", ["", "file://"])
@pytest.mark.parametrize("door", REACHING)
def test_storage_options_that_reach_nothing_are_told(door: str, address: str, log_directory: Path) -> None:
    with pytest.warns(kts.KtsWarning, match="storage_options has no effect") as told:
        REACHING[door](f"{address}{log_directory}", storage_options={"region": "eu-west-1"})
    assert [one.filename for one in told] == [__file__]


@pytest.mark.slow
def test_storage_options_of_a_target_or_a_catalog_have_an_effect(log_directory: Path, tmp_path: Path) -> None:
    """They say how the bucket of a copy is reached, and how long a catalog may take."""
    reaching = {"storage_options": {"time_limit": 9}}
    assert CopyOptions(log_directory, "s3://bucket/key", **reaching).reaches_more
    assert not CopyOptions(log_directory, f"file://{tmp_path}", **reaching).reaches_more
    with warnings.catch_warnings():
        warnings.simplefilter("error", kts.KtsWarning)
        tables.sync(log_directory, "lake.db.rows", catalog=tmp_path / "lake.db", **reaching)
        kts.scan(log_directory)


def test_a_function_has_the_name_that_users_know() -> None:
    assert pydoc.render_doc(kts.open, renderer=pydoc.plaintext).splitlines()[2].startswith("open(")
    assert pickle.loads(pickle.dumps(kts.open)) is kts.open
