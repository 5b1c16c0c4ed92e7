"""What is opened as which partition, and that opening and reading changes nothing."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.golden import RECORD_COLUMNS, Golden, golden, golden_partitions, rows

import kts


def batch(offset: int, timestamp: int = 1_600_000_000_000, value: bytes = b"v") -> bytes:
    return kts.encode({"timestamp": [timestamp], "value": [value]}, base_offset=offset)


def partition(parent: Path, name: str, *offsets: int) -> Path:
    """A partition directory with one segment an offset, each of one record."""
    directory = parent / name
    directory.mkdir(parents=True)
    for offset in offsets:
        (directory / f"{offset:020}.log").write_bytes(batch(offset, value=b"%d" % offset))
    return directory


def values(reader: Any) -> list[bytes]:
    return [value for batch in reader for value in batch.column("value").to_pylist()]


def demo() -> Golden:
    return golden("demo", "orders")


# --- kinds of paths -------------------------------------------------------------------------------


def test_a_partition_directory_is_a_partition_log(tmp_path: Path) -> None:
    with kts.open(partition(tmp_path, "my-topic.x_y-12", 0, 5)) as log:
        assert isinstance(log, kts.PartitionLog)
        assert (log.topic, log.partition, log.log_start_offset, log.log_end_offset) == ("my-topic.x_y", 12, 0, 6)
        assert [segment.base_offset for segment in log.segments] == [0, 5]
        assert values(log.scan()) == [b"0", b"5"]
    with pytest.raises(kts.LogClosedError):
        _ = log.segments


def test_its_repr_says_offsets_and_times_and_never_fails(tmp_path: Path) -> None:
    log = kts.open_partition(partition(tmp_path, "t-3", 0, 5))
    where = f"PartitionLog({log.path!r}, topic='t', partition=3, "
    times = "first_time=2020-09-13T12:26:40.000Z, last_time=2020-09-13T12:26:40.000Z"
    assert repr(log) == f"{where}log_start_offset=0, log_end_offset=6, {times}, segments=2)"
    first, last = log.segments
    said = f"size_bytes={first.size_bytes}, next_offset=1, {times}"
    assert repr(first) == f"Segment({first.path!r}, base_offset=0, {said})"
    os.truncate(last.path, 5)
    assert repr(log) == f"{where}log_start_offset=0, log_end_offset=5, {times[:36]} last_time=..., segments=2)"
    Path(last.path).write_bytes(b"?" * 99)
    assert repr(last) == f"Segment({last.path!r}, base_offset=5, unreadable: CorruptRecordError)"
    shutil.rmtree(log.path)
    assert repr(log) == f"{where}unreadable: LogStorageError)"
    assert "unreadable: LogStorageError" in repr(first)
    log.close()
    assert repr(log) == f"{where}closed)"


@pytest.mark.slow
def test_the_end_that_its_repr_says_is_its_end() -> None:
    for scenario, name in golden_partitions():
        with kts.open_partition(scenario.log_dir / name) as log:
            assert f"log_start_offset={log.log_start_offset}, log_end_offset={log.log_end_offset}, " in repr(log)


def test_the_repr_of_log_directories_shows_the_first_partitions(tmp_path: Path) -> None:
    for number in range(12):
        partition(tmp_path, f"t-{number}", 0)
    with kts.open_log_dirs(tmp_path) as logs:
        lines = repr(logs).splitlines()
        assert (len(lines), lines[0], lines[-1]) == (12, "LogDirs of 12 partitions", "    and 2 more")
        assert lines[1].startswith(
            "    t-0: log_start_offset=0, log_end_offset=1, first_time=2020-09-13T12:26:40.000Z, last"
        )
    assert repr(logs).splitlines()[1] == "    t-0: closed"


def test_a_log_directory_is_a_mapping_in_order(tmp_path: Path) -> None:
    for name in ("b-1", "b-10", "b-2", "a-0"):
        partition(tmp_path, name, 0)
    (tmp_path / "meta.properties").write_text("version=1\n")
    (tmp_path / ".lock").write_bytes(b"")
    logs = kts.open(tmp_path)
    assert isinstance(logs, kts.LogDirs)
    assert list(logs) == [("a", 0), ("b", 1), ("b", 2), ("b", 10)]
    assert logs["b", 10].partition == 10 and ("b", 3) not in logs and "b" not in logs and len(logs) == 4
    table = kts.scan(tmp_path, columns=["topic", "partition"]).read_all()
    assert [tuple(row.values()) for row in table.to_pylist()] == [("a", 0), ("b", 1), ("b", 2), ("b", 10)]


def test_a_partition_has_the_name_of_its_directory_too(tmp_path: Path) -> None:
    for name in ("a-b-3", "orders-0"):
        partition(tmp_path, name, 0)
    logs = kts.open_log_dirs(tmp_path)
    assert logs["orders-0"] is logs["orders", 0] and logs["a-b-3"] is logs["a-b", 3]
    assert "orders-0" in logs and logs.get("orders-1") is None
    for missing in ("orders", "orders-7", "orders-0.00000000000000000000000000000001-delete", ("orders",), 5):
        assert missing not in logs


def test_arrow_takes_a_log_and_log_directories_again_and_again(tmp_path: Path) -> None:
    import duckdb
    import polars

    for name in ("orders-0", "orders-1", "__consumer_offsets-0"):
        partition(tmp_path, name, 0, 1, 2)
    logs = kts.open_log_dirs(tmp_path)
    log = logs["orders-0"]
    for taken, expected in ((log, log.scan().read_all()), (logs, kts.scan(tmp_path).read_all())):
        for _ in range(2):
            assert pa.table(taken) == expected
            assert duckdb.sql("SELECT count(*) FROM taken").fetchall() == [(expected.num_rows,)]
            found = polars.DataFrame(taken) if taken is log else polars.from_arrow(taken).struct.unnest()
            assert found["offset"].to_list() == expected["offset"].to_pylist()
    (tmp_path / "orders-0" / f"{3:020}.log").write_bytes(batch(3))
    assert pa.table(log).num_rows == 4, "what was appended meanwhile is there"


def test_a_topic_spread_over_disks_is_one_mapping(tmp_path: Path) -> None:
    partition(tmp_path / "disk1", "t-0", 0)
    partition(tmp_path / "disk2", "t-1", 0)
    logs = kts.open([tmp_path / "disk1", str(tmp_path / "disk2")])
    assert isinstance(logs, kts.LogDirs) and list(logs) == [("t", 0), ("t", 1)]
    assert kts.scan([tmp_path / "disk1", tmp_path / "disk2"]).read_all().column("partition").to_pylist() == [0, 1]


ID, OTHER_ID = "QUJDREVGR0hJSktMTU5PUA", "UVJTVFVWV1hZWjAxMjM0NQ"


def replica(disk: Path, count: int, epoch: int = 0, topic_id: str | None = None, tag: bytes = b"v") -> str:
    """A replica of one partition: its first records, from a leader of an epoch on."""
    path = disk / "t-0"
    with kts.Log(path, {"segment.bytes": 400}, clock=lambda: 1000, topic_id=topic_id) as log:
        for n in range(count):
            rows = {"timestamp": [1000 + n], "value": [tag + b"%d" % n]}
            log.append_as_follower(kts.encode(rows, base_offset=n, partition_leader_epoch=epoch))
    return str(path)


@pytest.mark.parametrize("topic_id", [ID, None])
@pytest.mark.parametrize(
    ("older", "newer"),
    [((3, 0), (5, 0)), ((5, 0), (3, 1)), ((0, 0), (3, 0))],
    ids=["a later end", "a later epoch", "one is empty"],
)
@pytest.mark.parametrize("turned", [False, True])
def test_of_two_replicas_in_two_directories_the_newer_is_read_and_told(
    older: tuple[int, int], newer: tuple[int, int], topic_id: str | None, turned: bool, tmp_path: Path
) -> None:
    """As a broker leaves them that died while it replaced one by the other."""
    disks = [tmp_path / "disk1", tmp_path / "disk2"]
    where = disks[::-1] if turned else disks
    old = replica(where[0], *older, topic_id=topic_id)
    new = replica(where[1], *newer, topic_id=topic_id)
    partition(disks[0], "u-0", 9)
    for door in (kts.open, kts.open_log_dirs, kts.scan):
        with pytest.warns(kts.KtsWarning, match="t-0 is in 2 directories") as told:
            found: Any = door(disks)
        assert len(told) == 1 and old in str(told[0].message) and f"{new} is read" in str(told[0].message)
    assert values(found) == [b"v%d" % n for n in range(newer[0])] + [b"9"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert values(kts.scan([*disks, old])) == [b"v%d" % n for n in range(older[0])] + [b"9"]
        assert values(kts.scan([*disks, Path(new)], topics="t")) == [b"v%d" % n for n in range(newer[0])]
        assert values(kts.scan([disks[0], disks[0] / "t-0"])) == values(kts.scan(disks[0]))


@pytest.mark.parametrize(("ids", "tags"), [((ID, OTHER_ID), (b"v", b"v")), ((None, None), (b"v", b"w"))])
def test_two_logs_of_one_name_are_refused_and_block_no_other(
    ids: tuple[str | None, str | None], tags: tuple[bytes, bytes], tmp_path: Path
) -> None:
    disks = [tmp_path / "disk1", tmp_path / "disk2"]
    both = [replica(*one) for one in zip(disks, (3, 5), (0, 0), ids, tags, strict=True)]
    partition(disks[0], "u-0", 9)
    assert values(kts.scan(disks, topics="u")) == [b"9"]
    assert list(kts.open(disks)) == [("t", 0), ("u", 0)]
    with pytest.raises(kts.InvalidRequestError) as refused:
        kts.scan(disks).read_all()
    assert all(path in str(refused.value) for path in both) and "name the partition's own" in str(refused.value)
    assert values(kts.scan([*disks, both[1]], topics="t")) == [tags[1] + b"%d" % n for n in range(5)]


def test_a_replica_on_its_way_does_not_count(tmp_path: Path) -> None:
    one, two = partition(tmp_path / "disk1", "t-0", 0), partition(tmp_path / "disk2", "t-0", 0)
    shutil.move(two, tmp_path / "disk2" / f"t-0.{'ab' * 16}-future")
    with pytest.warns(kts.KtsWarning, match="disk2: no partition directories"):
        logs = kts.open([tmp_path / "disk1", tmp_path / "disk2"])
    assert isinstance(logs, kts.LogDirs) and [log.path for log in logs.values()] == [str(one)]


@pytest.mark.parametrize("state", ["delete", "future", "stray"])
def test_directories_on_their_way_are_left_out_but_open_by_name(state: str, tmp_path: Path) -> None:
    moved = partition(tmp_path, f"t-3.{'0f' * 16}-{state}", 7)
    partition(tmp_path, "u-0", 0)
    logs = kts.open(tmp_path)
    assert isinstance(logs, kts.LogDirs) and list(logs) == [("u", 0)]
    log = kts.open(moved)
    assert isinstance(log, kts.PartitionLog) and (log.topic, log.partition) == ("t", 3)


def test_links_that_lead_nowhere_are_left_out(tmp_path: Path) -> None:
    partition(tmp_path, "t-0", 5)
    (tmp_path / "u-0").symlink_to(tmp_path / "u-0")
    (tmp_path / "v-0").symlink_to(tmp_path / "gone")
    (tmp_path / "w-0").symlink_to(tmp_path / "t-0")
    with pytest.warns(kts.KtsWarning, match="leads to no directory") as told:
        assert list(kts.open(tmp_path)) == [("t", 0), ("w", 0)]
    assert [str(one.message).partition(":")[0] for one in told] == [str(tmp_path / "u-0"), str(tmp_path / "v-0")]
    with pytest.raises(kts.LogStorageError):
        kts.open(tmp_path / "u-0")


def test_internal_topics_are_there_but_not_scanned_unasked(tmp_path: Path) -> None:
    metadata = partition(tmp_path, "__cluster_metadata-0", 0)
    (metadata / "00000000000000000000-0000000000.checkpoint").write_bytes(b"snapshot")
    (metadata / "quorum-state").write_text("{}")
    partition(tmp_path, "__consumer_offsets-49", 3)
    partition(tmp_path, "t-0", 5)
    logs = kts.open(tmp_path)
    assert isinstance(logs, kts.LogDirs) and ("__cluster_metadata", 0) in logs
    assert values(kts.scan(tmp_path)) == [b"5"]
    assert values(kts.scan(tmp_path, topics=["__consumer_offsets", "t"])) == [b"3", b"5"]
    assert values(kts.scan(metadata)) == [b"0"]


@pytest.mark.parametrize(
    ("where", "topic", "number"),
    [
        ("orders-3/00000000000000000007.log", "orders", 3),
        ("orders-3/00000000000000000007-oAtiIQ95REujbuzNd_lkLQ.log", "orders", 3),
        ("orders-3-tyBvNQkTTRG3hvqpdBnbGQ/00000000000000000007-oAtiIQ95REujbuzNd_lkLQ.log", "orders", 3),
        ("orders-tyBvNQkTTRG3hvqpdBnbGQ/3/00000000000000000007-oAtiIQ95REujbuzNd_lkLQ.log", "orders", 3),
        ("backup/orders-3.log", "orders", 3),
        ("backup/segment.bin", "backup", 0),
        ("backup/00000000000000000007.log.swap", "backup", 0),
    ],
)
def test_a_single_file_opens_under_any_name(where: str, topic: str, number: int, tmp_path: Path) -> None:
    path = tmp_path / where
    path.parent.mkdir(parents=True)
    path.write_bytes(batch(7) + batch(8))
    log = kts.open(path)
    assert isinstance(log, kts.PartitionLog)
    assert (log.topic, log.partition, log.log_start_offset, log.log_end_offset) == (topic, number, 7, 9)
    assert log.scan(columns=["topic", "partition", "offset"]).read_all().to_pylist() == [
        {"topic": topic, "partition": number, "offset": offset} for offset in (7, 8)
    ]
    assert list(kts.open([path])) == [(topic, number)]


def test_a_single_file_of_wrapper_messages_knows_its_first_offset(tmp_path: Path) -> None:
    data = kts.encode({"value": [b"a", b"b", b"c"]}, magic=1, compression="gzip", base_offset=40)
    (tmp_path / "x").write_bytes(data)
    log = kts.open(tmp_path / "x")
    assert isinstance(log, kts.PartitionLog) and (log.log_start_offset, log.log_end_offset) == (40, 43)


def test_a_directory_of_tiered_files_is_a_partition(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    for offset, name in ((0, "aaaaaaaaaaaaaaaaaaaaaa"), (1, "bbbbbbbbbbbbbbbbbbbbbb")):
        (directory / f"{offset:020}-{name}.log").write_bytes(batch(offset, value=b"%d" % offset))
    assert values(kts.scan(directory)) == [b"0", b"1"]


@pytest.mark.parametrize("suffix", [".deleted", ".cleaned"])
def test_only_live_files_count_beside_those_on_their_way(suffix: str, tmp_path: Path) -> None:
    directory = partition(tmp_path, "t-0", 0, 5)
    (directory / f"{0:020}.log{suffix}").write_bytes(batch(0, value=b"old"))
    (directory / f"{3:020}.log.deleted").write_bytes(batch(3, value=b"deleted"))
    assert values(kts.scan(directory)) == [b"0", b"5"]


def test_a_swap_whose_log_is_gone_counts_as_a_broker_would_finish_it(tmp_path: Path) -> None:
    directory = partition(tmp_path, "t-0", 0, 5)
    (directory / f"{0:020}.log").rename(directory / f"{0:020}.log.deleted")
    (directory / f"{0:020}.log.swap").write_bytes(batch(0, value=b"0") + batch(3, value=b"3") + batch(5, value=b"5"))
    assert values(kts.scan(directory)) == [b"0", b"3", b"5"]


def test_empty_directories_are_empty(tmp_path: Path) -> None:
    log = kts.open(partition(tmp_path, "t-0"))
    assert isinstance(log, kts.PartitionLog) and log.segments == []
    assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (0, 0, 0)
    assert log.scan().read_all().num_rows == 0 and log.batches().read_all().num_rows == 0
    (tmp_path / "kafka-0").mkdir()
    (tmp_path / "kafka-0" / "meta.properties").write_text("version=1\n")
    partition(tmp_path / "kafka-0", "t-0")
    assert isinstance(kts.open(tmp_path / "kafka-0"), kts.LogDirs)


def test_the_working_directory_has_a_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(partition(tmp_path, "t-4", 0))
    log = kts.open(".")
    assert isinstance(log, kts.PartitionLog) and (log.topic, log.partition) == ("t", 4)


# --- wrong paths and arguments --------------------------------------------------------------------


def test_what_is_not_there_is_a_file_not_found_error(tmp_path: Path) -> None:
    for call in (kts.open, kts.scan):
        with pytest.raises(FileNotFoundError):
            call(tmp_path / "none")
        with pytest.raises(FileNotFoundError):
            call([tmp_path, tmp_path / "none"])


@pytest.mark.parametrize("path", [None, 5, b"bytes", [b"bytes"], object()])
def test_a_path_of_another_type_is_refused_by_name(path: Any) -> None:
    with pytest.raises(TypeError, match="path"):
        kts.open(path)
    with pytest.raises(ValueError, match="path"):
        kts.open([])


def test_an_index_is_not_a_segment(tmp_path: Path) -> None:
    index = partition(tmp_path, "t-0") / f"{0:020}.timeindex"
    index.write_bytes(bytes(12))
    with pytest.raises(ValueError, match="path.*timeindex.*no records"):
        kts.open(index)


def test_a_fifo_and_an_unreadable_file_are_storage_errors_with_their_errno(tmp_path: Path) -> None:
    directory = partition(tmp_path, "t-0")
    os.mkfifo(directory / f"{0:020}.log")
    with pytest.raises(kts.LogStorageError, match="regular file"):
        kts.scan(directory).read_all()
    (directory / f"{0:020}.log").unlink()
    (directory / f"{0:020}.log").symlink_to(tmp_path / "gone")
    with pytest.raises(kts.LogStorageError) as error:
        kts.scan(directory).read_all()
    assert error.value.errno == 2 and isinstance(error.value.__cause__, OSError)


# --- offsets that lie outside ---------------------------------------------------------------------


def test_checkpoints_beside_the_directory_give_start_and_high_watermark(tmp_path: Path) -> None:
    directory = partition(tmp_path, "t-0", 0, 1, 2, 3)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n2\nt 0 1\nu 0 9\n")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    log = kts.open(directory)
    assert isinstance(log, kts.PartitionLog)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1, 3, 4)
    assert values(log.scan()) == [b"1", b"2", b"3"]
    assert values(log.scan(ending_offsets="high_watermark")) == [b"1", b"2"]
    assert values(kts.scan(directory, log_start_offset=2)) == [b"2", b"3"]
    assert values(kts.scan(tmp_path, log_start_offset={"t": {0: 3}})) == [b"3"]
    assert values(kts.scan(tmp_path, log_start_offset={("t", 0): 3})) == [b"3"]
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n5\nnonsense\n")
    assert log.log_start_offset == 0


def test_a_log_start_offset_after_the_end_is_not_silent(tmp_path: Path) -> None:
    directory = partition(tmp_path, "t-0", 0, 1)
    for offset in ("99999999999999999999", "9223372036854775808"):
        (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
        assert values(kts.scan(directory)) == [b"0", b"1"]
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 999999\n")
    with pytest.warns(UserWarning, match="999999 is after the log's end 2"):
        assert values(kts.scan(directory)) == []
    assert values(kts.scan(directory, log_start_offset=0)) == [b"0", b"1"]


def test_wrong_log_start_offsets_are_refused_by_name(tmp_path: Path) -> None:
    partition(tmp_path, "t-0", 0)
    partition(tmp_path, "t-1", 0)
    for given, error in (
        (5, ValueError),
        ("5", TypeError),
        ({"t": 5}, TypeError),
        ({"t": {0: "5"}}, TypeError),
        ({"t": {0: -1}}, ValueError),
        ({"t": {7: 1}}, kts.UnknownTopicOrPartitionError),
    ):
        with pytest.raises(error, match="log_start_offset"):
            kts.open(tmp_path, log_start_offset=given)


@pytest.mark.parametrize(("scenario", "name"), golden_partitions()[::9], ids=str)
def test_leader_epochs_and_topic_ids_are_read(scenario: Golden, name: str) -> None:
    directory = scenario.partition_dir(name)
    log = kts.open(directory)
    assert isinstance(log, kts.PartitionLog)
    if (directory / "leader-epoch-checkpoint").exists():
        lines = (directory / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        assert [f"{epoch} {start}" for epoch, start in log.leader_epochs] == lines
    if (directory / "partition.metadata").exists():
        assert log.topic_id == (directory / "partition.metadata").read_text().split()[-1]


# --- read-only ------------------------------------------------------------------------------------


def state(root: Path) -> dict[str, tuple[Any, ...]]:
    found = {}
    for path in sorted([root, *root.rglob("*")]):
        s = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(s.st_mode) else b""
        found[str(path)] = (s.st_mode, s.st_size, s.st_mtime_ns, s.st_ctime_ns, data)
    return found


def read_everything(root: Path) -> int:
    count = 0
    logs = kts.open(root)
    assert isinstance(logs, kts.LogDirs)
    for log in logs.values():
        count += log.scan(isolation="read_committed").read_all().num_rows
        log.batches().read_all()
        log.max_timestamp()
        log.explain_offset_for_timestamp(0)
        log.offset_for_timestamp(10**12, shipped_search=True)
    from kts.offline.verify import verify

    assert list(verify(root, deep=True)) == []
    return count


def test_reading_changes_no_byte_mtime_or_ctime(writable: Callable[[Golden], Golden]) -> None:
    copy = writable(demo())
    before = state(copy.log_dir)
    assert read_everything(copy.log_dir) > 1000
    assert state(copy.log_dir) == before


@pytest.mark.slow
def test_nothing_is_opened_for_writing(writable: Callable[[Golden], Golden]) -> None:
    """In a process of its own, where an audit hook cannot hurt other tests."""
    program = """
import os, sys
def refuse(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
        if str(args[0]).startswith(sys.argv[1]):
            raise SystemExit(f"opened for writing: {args}")
    if event in ("os.utime", "os.remove", "os.rename", "os.mkdir", "os.truncate", "os.chmod"):
        raise SystemExit(f"{event}: {args}")
import kts, pyarrow
from kts.offline.verify import verify
sys.addaudithook(refuse)
for log in kts.open(sys.argv[1]).values():
    log.scan().read_all(), log.max_timestamp(), log.last_stable_offset, log.offset_for_timestamp(5)
list(verify(sys.argv[1], deep=True))
print("fine")
"""
    copy = writable(demo())
    done = subprocess.run(
        [sys.executable, "-c", program, str(copy.log_dir)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "fine", done.stderr


def test_a_read_only_tree_is_enough(writable: Callable[[Golden], Golden]) -> None:
    copy = writable(demo())
    paths = sorted([copy.log_dir, *copy.log_dir.rglob("*")], reverse=True)
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert read_everything(copy.log_dir) > 1000
    finally:
        for path in reversed(paths):
            path.chmod(0o755 if path.is_dir() else 0o644)


# --- while a broker appends -----------------------------------------------------------------------


def test_a_growing_log_is_read_again(tmp_path: Path) -> None:
    directory = partition(tmp_path, "t-0", 0)
    log = kts.open(directory)
    assert isinstance(log, kts.PartitionLog)
    assert (log.log_end_offset, values(log.scan())) == (1, [b"0"])
    with (directory / f"{0:020}.log").open("ab") as file:
        file.write(batch(1, 1_600_000_000_500, b"1"))
        file.write(batch(2, value=b"2")[:40])
    assert (log.log_end_offset, values(log.scan())) == (2, [b"0", b"1"])
    assert log.max_timestamp() == (1_600_000_000_500, 1)
    (directory / f"{2:020}.log").write_bytes(batch(2, value=b"2"))
    (directory / f"{0:020}.log").write_bytes(batch(0, value=b"0") + batch(1, value=b"1"))
    assert (log.log_end_offset, values(log.scan())) == (3, [b"0", b"1", b"2"])
    assert log.offset_for_timestamp(1_600_000_000_000) == (1_600_000_000_000, 0)


def test_a_file_that_shrinks_while_it_is_read_ends_the_scan(tmp_path: Path) -> None:
    directory = partition(tmp_path, "t-0")
    path = directory / f"{0:020}.log"
    path.write_bytes(b"".join(batch(offset, value=bytes(1000)) for offset in range(2000)))
    reader = kts.scan(directory, batch_bytes=100_000)
    first = reader.read_next_batch()
    with path.open("r+b") as file:
        file.truncate(len(batch(0, value=bytes(1000))) * 500)
    total = first.num_rows + sum(one.num_rows for one in reader)
    assert first.num_rows <= total <= 500


def test_records_are_the_golden_ones_after_opening_by_list() -> None:
    scenario = demo()
    logs = kts.open([scenario.partition_dir(name) for name in scenario.partitions])
    assert isinstance(logs, kts.LogDirs)
    for name, log in zip(scenario.partitions, logs.values(), strict=True):
        assert rows(log.scan().read_all().select(RECORD_COLUMNS)) == scenario.expected(name)
