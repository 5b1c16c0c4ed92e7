"""Rows that tasks write aside: their partitions, formats, order; what a commit makes of them, and what stays behind."""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

import kts
from kts.log import staging
from kts.offline.verify import verify

T = 1_700_000_000_000
COUNTS = {"two": 2, "some": None}
V0, V1 = {"message.format.version": "0.9.0"}, {"message.format.version": "0.10.2"}


def task(
    directory: Path, rows: dict[str, Any], settings: dict[str, Any] | None = None, **more: Any
) -> list[staging.StagedLog]:
    root = staging.staging_root(str(directory), "0" * 32)
    os.makedirs(root, exist_ok=True)
    with staging.StagedWriter(root, settings or {}, more.pop("counts", COUNTS), clock=lambda: T, **more) as writer:
        writer.append(pa.table(rows))
        return writer.finish()


def commit(
    directory: Path, staged: list[staging.StagedLog], settings: dict[str, Any] | None = None, **more: Any
) -> list[staging.CommittedRange]:
    done = staging.commit(str(directory), staged, settings or {}, **more)
    staging.remove_staging(str(directory), write_id="0" * 32)
    return done


def values(directory: Path, topic: str, partition: int) -> list[bytes]:
    return kts.open_log_dirs(directory)[topic, partition].scan(columns=["value"]).read_all().column(0).to_pylist()


def test_each_row_goes_to_its_partition_or_that_of_its_key_or_with_others_without_both(tmp_path: Path) -> None:
    keys = [b"k%d" % n if n % 2 else None for n in range(40)]
    given = [n % 5 if n % 4 == 0 else None for n in range(40)]
    topics = ["two" if n % 3 else "new" for n in range(40)]
    rows = {
        "topic": topics,
        "key": keys,
        "partition": pa.array(given, pa.int32()),
        "value": [b"%d" % n for n in range(40)],
    }
    commit(tmp_path, task(tmp_path, rows, default_count=3))
    found = {
        int(value): (key.topic, key.partition)
        for key, log in kts.open_log_dirs(tmp_path).items()
        for value in log.scan(columns=["value"]).read_all().column(0).to_pylist()
    }
    assert sorted(found) == list(range(40))
    without: dict[str, set[int]] = {}
    for n, (topic, partition) in found.items():
        assert topic == topics[n]
        if given[n] is not None:
            assert partition == given[n]
        elif keys[n] is not None:
            assert partition == (murmur2(keys[n]) & 0x7FFFFFFF) % {"two": 2, "new": 3}[topic]
        else:
            without.setdefault(topic, set()).add(partition)
    assert {topic: len(partitions) for topic, partitions in without.items()} == {"two": 1, "new": 1}


def test_a_new_topic_has_all_its_partitions_though_some_get_no_rows(tmp_path: Path) -> None:
    """Else the next write could not tell which partition a key belongs to."""
    settings = {"segment.bytes": 2000}
    key = next(b"%d" % n for n in range(99) if (murmur2(b"%d" % n) & 0x7FFFFFFF) % 4 == 2)
    rows = {"topic": ["new"], "key": [key], "value": [b"0"]}
    done = commit(tmp_path, task(tmp_path, rows, default_count=4), settings)
    assert [tuple(one) for one in done] == [("new", 2, 0, 1), ("new", 0, 0, 0), ("new", 1, 0, 0), ("new", 3, 0, 0)]
    counts = staging.partition_counts(str(tmp_path))
    assert counts == {"new": 4}
    keys = [b"k%d" % n for n in range(50)]
    commit(tmp_path, task(tmp_path, {"topic": ["new"] * 50, "key": keys, "value": keys}, counts=counts), settings)
    assert [str(one) for one in verify(tmp_path, deep=True)] == []
    for partition in range(4):
        wanted = [one for one in keys if (murmur2(one) & 0x7FFFFFFF) % 4 == partition]
        assert values(tmp_path, "new", partition) == ([b"0"] if partition == 2 else []) + wanted
    given = {"topic": ["given"], "partition": pa.array([3], pa.int32()), "value": [b"0"]}
    commit(tmp_path, task(tmp_path, given, default_count=9))
    assert staging.partition_counts(str(tmp_path))["given"] is None  # the rows said which partitions there are


@pytest.mark.parametrize("settings", [{}, V1, V0], ids=["2", "1", "0"])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_offsets_go_on_where_the_partition_ends(
    tmp_path: Path, settings: dict[str, Any], codec: str, rng: random.Random
) -> None:
    small = {**settings, "segment.bytes": 2000}
    sent: list[bytes] = []
    for _ in range(3):
        tasks = [[rng.randbytes(rng.randrange(1, 90)) for _ in range(50)] for _ in range(2)]
        staged = [
            log
            for part in tasks
            for log in task(tmp_path, {"value": part}, small, topic="t", compression=codec, batch_bytes=500)
        ]
        first = len(sent)
        sent += [value for part in tasks for value in part]
        assert commit(tmp_path, staged, small) == [staging.CommittedRange("t", 0, first, len(sent))]
        log = kts.open_log_dirs(tmp_path)["t", 0]
        assert log.scan(columns=["offset"]).read_all().column(0).to_pylist() == list(range(len(sent)))
        assert values(tmp_path, "t", 0) == sent
        assert [str(one) for one in verify(tmp_path, deep=True)] == []
        with kts.Log(tmp_path / "t-0", small) as writer:
            assert (writer.clean_start, writer.recovered, writer.log_end_offset) == (True, [], len(sent))
    assert len(log.segments) > 6
    assert [name for name in os.listdir(tmp_path) if name.startswith(("kts-write", "kts-commit-0"))] == []


def test_new_batches_have_the_partitions_newest_leader_epoch(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", topic_id="AAAAAAAAQACAAAAAAAAAAA") as log:
        log.append(kts.encode({"value": [b"a"]}), leader_epoch=7)
    commit(tmp_path, task(tmp_path, {"value": [b"b"], "partition": pa.array([0], pa.int32())}, topic="t"))
    commit(tmp_path, task(tmp_path, {"value": [b"c"], "partition": pa.array([1], pa.int32())}, topic="t"))
    opened = kts.open_log_dirs(tmp_path)
    assert [log.leader_epochs for log in opened.values()] == [[(7, 0)], [(0, 0)]]
    epochs = opened["t", 0].scan(columns=["partitionLeaderEpoch"]).read_all().column(0).to_pylist()
    assert epochs == [7, 7]
    assert [log.topic_id for log in opened.values()] == ["AAAAAAAAQACAAAAAAAAAAA"] * 2


def test_producers_of_before_are_known_after(tmp_path: Path) -> None:
    now = time.time_ns() // 1_000_000
    sent = kts.encode({"timestamp": [now], "value": [b"a"]}, producer_id=5, producer_epoch=0, base_sequence=0)
    with kts.Log(tmp_path / "t-0") as log:
        log.append(sent)
    commit(tmp_path, task(tmp_path, {"value": [b"b"]}, topic="t"))
    with kts.Log(tmp_path / "t-0") as log:
        assert [one.producer_id for one in log.producers()] == [5]
        assert log.append(sent).entries == 0  # a duplicate


def test_a_sorted_partition_is_sorted_over_tasks_or_refused(tmp_path: Path) -> None:
    later = {"timestamp": pa.array([T + 9, T + 7, T + 8], pa.int64()), "value": [b"9", b"7", b"8"]}
    earlier = {"timestamp": pa.array([T + 2, T + 1, T + 1], pa.int64()), "value": [b"2", b"1a", b"1b"]}
    staged = [log for rows in (later, earlier) for log in task(tmp_path, rows, topic="t", sort=True)]
    commit(tmp_path, staged, sorted_by_time=True)
    assert values(tmp_path, "t", 0) == [b"1a", b"1b", b"2", b"7", b"8", b"9"]
    staged = [log for rows in (later, later) for log in task(tmp_path, rows, topic="t", sort=True)]
    with pytest.raises(kts.InvalidRequestError, match="repartition the rows by topic and partition first"):
        commit(tmp_path, staged, sorted_by_time=True)
    assert len(values(tmp_path, "t", 0)) == 6


def test_a_batch_of_a_stream_is_committed_once(tmp_path: Path) -> None:
    for batch, count in [(0, 1), (0, 1), (1, 2), (0, 2), (1, 2), (2, 3)]:
        done = commit(tmp_path, task(tmp_path, {"value": [b"%d" % batch]}, topic="t"), query="q", batch=batch)
        assert len(values(tmp_path, "t", 0)) == count
        assert bool(done) == (count > batch and done != [])
    commit(tmp_path, task(tmp_path, {"value": [b"of another"]}, topic="t"), query="r", batch=0)
    assert values(tmp_path, "t", 0) == [b"0", b"1", b"2", b"of another"]


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    root = Path(staging.staging_root(str(tmp_path), "0" * 32))
    with pytest.raises(kts.RecordTooLargeError):
        task(tmp_path, {"value": [b"a", bytes(2_000_000)]}, topic="t")
    assert list(root.iterdir()) == []


def test_a_task_that_outlives_its_write_fails_and_leaves_nothing(tmp_path: Path) -> None:
    root = staging.staging_root(str(tmp_path), "0" * 32)
    os.mkdir(root)
    with pytest.raises(kts.KtsError), staging.StagedWriter(root, {}, {}, topic="t") as late:
        late.append(pa.table({"value": [b"x"]}))
        staging.remove_staging(str(tmp_path), write_id="0" * 32)
        late.finish()
    with pytest.raises(kts.LogStorageError, match="the write is over"):
        staging.StagedWriter(root, {}, {}, topic="t")
    assert os.listdir(tmp_path) == []


def test_a_write_that_is_over_at_any_system_call_of_its_task_leaves_nothing(tmp_path: Path) -> None:
    root, calls, last = staging.staging_root(str(tmp_path), "0" * 32), 0, 0
    named = ("mkdir", "open", "replace", "unlink", "stat", "_path_isdir", "_path_exists")

    def over(_: FrameType, event: str, called: Any) -> None:
        nonlocal calls
        if event == "c_call" and called.__module__ in ("posix", "io") and called.__name__ in named:
            calls += 1
            if calls == last:
                staging.remove_staging(str(tmp_path), write_id="0" * 32)

    while last <= calls:
        os.mkdir(root)
        calls, last = 0, last + 1
        sys.setprofile(over)
        try:
            with suppress(kts.KtsError, FileNotFoundError), staging.StagedWriter(root, {}, {}, topic="t") as late:
                late.append(pa.table({"value": [b"x"]}))
                late.finish()
        finally:
            sys.setprofile(None)
        assert os.listdir(tmp_path) == [] or last > calls, last
    assert last > 20


def test_what_a_killed_write_left_goes_with_a_later_write_once_nothing_changed_for_a_week(tmp_path: Path) -> None:
    """Its files are looked at, too: a task may write to one for days."""
    week_ago = time.time() - staging.IDLE_MS / 1000
    for number, ages in enumerate([(1, 1, 1), (1, 1, -9), (1, -9, 1), (-9, 1, 1)]):
        root = Path(staging.staging_root(str(tmp_path), f"{number:032x}"))
        tree = [root, root / "attempt" / "t-0", root / "attempt" / "t-0" / f"{0:020d}.log"]
        tree[1].mkdir(parents=True)
        tree[2].write_bytes(b"x")
        for path, age in zip([*tree, root / "attempt"], [*ages, 1], strict=True):
            os.utime(path, (week_ago - age * 10,) * 2)
    (tmp_path / "kts-write-0").mkdir()  # a partition of a topic of that name
    os.utime(tmp_path / "kts-write-0", (week_ago - 10,) * 2)
    staging.check_free(str(tmp_path))
    left = [f"kts-write-0.{number:032x}-delete" for number in (1, 2, 3)]
    assert sorted(name for name in os.listdir(tmp_path) if name.startswith("kts-write")) == ["kts-write-0", *left]


@pytest.mark.parametrize(
    ("rows", "more", "expected"),
    [
        ({"value": [b"a"]}, {}, "expected a topic in each row, or option topic for all rows, found no column topic"),
        ({"value": [b"a"], "topic": pa.array([None], pa.string())}, {}, "found a null topic"),
        ({"value": [b"a"], "partition": [-1]}, {"topic": "t"}, "column partition: expected 0 or more, found -1"),
        ({"value": [b"a"]}, {"topic": "some"}, "topic some: expected partitions from 0 on without a gap"),
        ({"value": [b"a"]}, {"topic": "a/b"}, "expected a topic of 1 to 249 .*, found 'a/b'"),
        ({"value": [b"a"]}, {"topic": "t", "sort": True}, "sorted rows need a timestamp each"),
    ],
)
def test_a_row_that_has_no_place_is_refused(tmp_path: Path, rows: Any, more: Any, expected: str) -> None:
    with pytest.raises((ValueError, kts.KtsError), match=expected):
        task(tmp_path, rows, **more)


def test_a_directory_that_is_held_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PATIENCE_S", 0.1)
    staged = task(tmp_path, {"value": [b"a"]}, topic="t")
    held = staging.LogDirectory(str(tmp_path))
    with pytest.raises(kts.LogLockedError):
        commit(tmp_path, staged)
    held.leave()
    commit(tmp_path, staged)
    assert values(tmp_path, "t", 0) == [b"a"]


def test_a_write_waits_for_the_commit_of_another_and_not_for_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "CHECK_PATIENCE_S", 0.01)
    held = staging.LogDirectory(str(tmp_path))
    with pytest.raises(kts.LogLockedError):
        staging.check_free(str(tmp_path))
    (tmp_path / f"kts-commit-00000000-{0:020d}.log").write_bytes(b"")
    tries: list[int] = []

    def slept(_: float) -> None:
        tries.append(1)
        if len(tries) == 5:
            held.leave()

    monkeypatch.setattr(staging.time, "sleep", slept)
    monkeypatch.setattr(staging, "CHECK_PATIENCE_S", -1.0)
    staging.check_free(str(tmp_path))
    assert len(tries) == 5
