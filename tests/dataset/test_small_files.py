"""The small files beside the records, damaged: every door that goes by one tells it, and what it means."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.processes.cli_runs import run

import kts
from kts import tables
from kts.broker.topics import Topics
from kts.dataset.increments import reach_of
from kts.offline.copy import copy
from kts.offline.verify import verify
from kts.spark.options import STREAM, parse_options
from kts.spark.planning import plan_tasks
from kts.spark.streaming import Stream

START, STABLE, END = 15, 20, 30
STARTS, MARKS, POINTS = (
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
)
ID = "QUJDREVGR0hJSktMTU5PUA"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory whose records below START were deleted, and of which those from STABLE on are not stable."""
    with kts.Log(tmp_path / "logs" / "t-0", {"segment.bytes": 300}, clock=lambda: 1000, topic_id=ID) as log:
        for n in range(END):
            log.append_rows({"timestamp": [1000 + n], "value": [b"%d" % n]})
    (tmp_path / "logs" / STARTS).write_text(f"0\n1\nt 0 {START}\n")
    (tmp_path / "logs" / MARKS).write_text(f"0\n1\nt 0 {STABLE}\n")
    return tmp_path / "logs"


def damaged(offset: int) -> list[bytes]:
    """Texts of a checkpoint that no broker wrote."""
    line = f"t 0 {offset}\n"
    texts = [
        f"0\n1\n{line}x\n", f"0\n2\n{line}", "0\n1\nt 0 1x5\n", f"1\n1\n{line}", "0\n1\nt 0\n", "0\n1\nt 0 -5\n", "",
        f"x\n1\n{line}", f"0\n\n1\n{line}", f"0\n1\n\n{line}", f"0\n1\nt 0 {10**19}\n", f"0\n1\nt x {offset}\n",
        f" 0\n1\n{line}",
        f"0\n1\n{line}{line}", "0\n", "0", f"0\n-1\n{line}", "0\n1\nt 0 \u0665\n", f"0\n1\n 0 {offset}\n", "{}",
    ]  # fmt: skip
    return [*(text.encode() for text in texts), b"\0" * 20, b"\xff\xfe0\n1\n", b"\0"]


SOUND = [  # what Kafka reads, too, as a run of 3.9.2 over each shows
    "0\n1\nt 0 {}\n", "0\n1\nt 0 {}", "0\r\n1\r\nt 0 {}\r\n", "0\n2\nu 1 7\nt 0 {}\n", "0\n2\nt 0 3\nt 0 {}\n",
]  # fmt: skip

Door = Callable[[Path], Any]


def streamed(path: Path) -> int:
    query = Stream(parse_options({"path": str(path), "startingOffsets": "earliest"}, STREAM))
    end: int = query.latest(query.initial(), None, None, 0.0)["t"]["0"]
    return end


READERS: dict[str, Door] = {  # by what they give of the records below START, if nothing else keeps them out
    "scan": lambda path: kts.scan(path).read_all().num_rows,
    "PartitionLog": lambda path: kts.open(path / "t-0").scan().read_all().num_rows,
    "log_start_offset": lambda path: END - kts.open_log_dirs(path)["t", 0].log_start_offset,
    "Spark": lambda path: END - plan_tasks(parse_options({"path": str(path)}))[0].ranges[0].start_offset,
}


@pytest.mark.slow
@pytest.mark.parametrize("door", READERS)
@pytest.mark.parametrize("text", damaged(START), ids=lambda text: repr(text)[:30])
def test_readers_tell_a_malformed_log_start_offset_and_that_deleted_records_are_back(
    text: bytes, door: str, logs: Path
) -> None:
    (logs / STARTS).write_bytes(text)
    with pytest.warns(kts.KtsWarning) as told:
        assert READERS[door](logs) == END
    (said,) = {str(one.message) for one in told}
    assert said.startswith(f"{logs / STARTS}: ") and "expected" in said and "found" in said
    assert "records that DeleteRecords removed are read again" in said


@pytest.mark.parametrize("door", READERS)
@pytest.mark.parametrize("text", SOUND)
def test_what_kafka_reads_is_read_in_silence(text: str, door: str, logs: Path) -> None:
    for name, offset in ((STARTS, START), (MARKS, STABLE)):
        (logs / name).write_bytes(text.format(offset).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert READERS[door](logs) == END - START
        assert kts.open_log_dirs(logs)["t", 0].high_watermark == STABLE
        assert list(verify(logs)) == []


WRITERS: dict[str, Door] = {
    "sync": lambda path: tables.sync(path, path.parent / "table"),
    "stream": streamed,
    "reach": lambda path: reach_of(kts.open_log_dirs(path)["t", 0], "read_uncommitted"),
}


@pytest.mark.slow
@pytest.mark.parametrize("door", WRITERS)
@pytest.mark.parametrize("name", [STARTS, MARKS])
@pytest.mark.parametrize("text", damaged(STABLE), ids=lambda text: repr(text)[:30])
def test_what_goes_by_an_unknown_offset_for_good_is_refused(text: bytes, name: str, door: str, logs: Path) -> None:
    """A table and a stream keep what they read: not what was deleted, nor what may still be truncated."""
    (logs / name).write_bytes(text)
    with warnings.catch_warnings(), pytest.raises(kts.LogStorageError, match="expected") as refused:
        warnings.simplefilter("ignore", kts.KtsWarning)
        WRITERS[door](logs)
    assert refused.value.path == str(logs / name) and "restore" in str(refused.value)
    assert not list(logs.parent.glob("table/day=*"))


def test_to_the_end_needs_no_high_watermark_and_the_sound_ones_hold_back(logs: Path, tmp_path: Path) -> None:
    done = tables.sync(logs, tmp_path / "table")
    assert (done.tables[0].records, done.held_back) == (STABLE - START, {("t", 0): END - STABLE})
    assert streamed(logs) == STABLE
    (logs / MARKS).write_text("0\n2\n")
    with pytest.raises(kts.LogStorageError, match="--to-end"):
        tables.sync(logs, tmp_path / "table")
    with pytest.raises(kts.LogStorageError, match="no high watermark is known"):
        kts.scan(logs, ending_offsets="high_watermark").read_all()
    assert tables.sync(logs, tmp_path / "table", to_end=True).tables[0].records == END - STABLE
    (logs / MARKS).unlink()
    assert kts.scan(logs, ending_offsets="high_watermark").read_all().num_rows == END - START


@pytest.mark.parametrize("command", ["ls", "dump", "offset-for", "copy", "verify"])
def test_commands_tell_it_once(command: str, logs: Path) -> None:
    (logs / STARTS).write_text("0\n9\n")
    more = {"offset-for": ["--time", 1], "copy": [logs.parent / "copied"]}.get(command, [])
    done = run(command, logs, *more, code=1 if command == "verify" else 0)
    assert done.stderr.count("line 2: expected 9 lines, found 0") == 1
    assert done.stdout.count("line 2: expected 9 lines, found 0") == (command == "verify")


def test_a_log_that_starts_beyond_its_end_or_has_a_later_high_watermark_is_told(logs: Path, tmp_path: Path) -> None:
    (logs / MARKS).write_text("0\n1\nt 0 99\n")
    with pytest.warns(kts.KtsWarning, match="the high watermark is 99, and the files end at offset 30"):
        assert tables.sync(logs, tmp_path / "table").tables[0].records == END - START
    (logs / STARTS).write_text("0\n1\nt 0 99\n")
    for read in (lambda: kts.scan(logs).read_all().num_rows, lambda: END + 69 - kts.open(logs)["t", 0].log_end_offset):
        with pytest.warns(
            kts.KtsWarning, match="start offset 99 is after the log's end 30, as log-start-offset"
        ) as told:
            assert read() == 0
        assert len(told) == 1
    with pytest.raises(kts.CorruptRecordError, match="expected t-0 to end at offset 99"):
        tables.sync(logs, tmp_path / "table")
    found = {one.path: one.message for one in verify(logs) if one.kind == "checkpoint"}
    assert found.keys() == {str(logs / STARTS), str(logs / MARKS)}
    assert "starts at offset 99" in found[str(logs / STARTS)] and "is 99" in found[str(logs / MARKS)]
    (logs / STARTS).write_text(f"0\n1\nt 0 {END}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kts.scan(logs).read_all().num_rows == 0, "all of it was deleted"


def test_a_checkpoint_that_is_newer_than_a_list_of_segments_is_no_contradiction(logs: Path) -> None:
    listed = kts.open_log_dirs(logs)["t", 0].listed()
    with kts.Log(logs / "t-0", {"segment.bytes": 300}, clock=lambda: 1000, log_start_offset=START) as log:
        log.append_rows({"timestamp": [1000] * 20, "value": [b"later"] * 20})
    assert (listed.end_before(END + 20), listed.end_before(END + 21)) == (None, END + 20)
    (logs / STARTS).write_text(f"0\n1\nt 0 {END + 10}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert listed.log_start_offset == END + 10


@pytest.mark.parametrize("name", [STARTS, MARKS, POINTS])
def test_who_writes_tells_it_keeps_the_file_aside_and_goes_on(name: str, logs: Path) -> None:
    for write in (
        lambda: kts.Log(logs / "t-0", clock=lambda: 1000).close(),
        lambda: Topics(logs).close(),
        lambda: copy(logs / "t-0", logs.parent / "copied" / "logs"),
    ):
        (logs.parent / "copied" / "logs").mkdir(parents=True, exist_ok=True)
        for path in (logs, logs.parent / "copied" / "logs"):
            (path / name).write_text("0\n9\n")
        with pytest.warns(kts.KtsWarning, match=name) as told:
            write()
        asides = [one for one in map(str, told.list) if "kept as" in one]
        assert len(asides) == 1 and "line 2: expected 9 lines, found 0" in asides[0]
    assert kts.scan(logs.parent / "copied" / "logs").read_all().num_rows > 0
    assert len(list(logs.glob(f"{name}.aside-*"))) == 2, "the file of each writer"


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_a_log_and_a_broker_tell_the_small_files_of_a_partition(name: str, logs: Path) -> None:
    (logs / "t-0" / name).write_bytes(b"\0" * 16)
    with pytest.warns(kts.KtsWarning, match=f"{name}: .*16 bytes of zeros"):
        Topics(logs).close()
    with kts.Log(logs / "t-0", clock=lambda: 1000) as log:
        (told,) = [one.reason for one in log.recovered if one.path.endswith(name)]
    assert told.startswith("malformed: ") and "16 bytes of zeros" in told


@pytest.mark.slow
@pytest.mark.parametrize("name", [STARTS, MARKS, POINTS, "cleaner-offset-checkpoint"])
@pytest.mark.parametrize("text", damaged(STABLE), ids=lambda text: repr(text)[:30])
def test_verify_says_what_is_wrong(text: bytes, name: str, logs: Path) -> None:
    (logs / name).write_bytes(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kts.KtsWarning)
        found = [(one.path, one.kind) for one in verify(logs)]
    normal = not text and name in (POINTS, "cleaner-offset-checkpoint")  # a broker makes the file so
    assert found == ([] if normal else [(str(logs / name), "checkpoint")])


@pytest.mark.parametrize("name", [STARTS, MARKS])
def test_a_file_that_cannot_be_read_counts_as_damaged(name: str, logs: Path, tmp_path: Path) -> None:
    ways: list[Callable[[Path], None]] = [
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to(tmp_path / "gone"),
        lambda path: path.mkdir(),
    ]
    for way in ways:
        path = logs / name
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        way(path)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert kts.scan(logs).read_all().num_rows == (END if name == STARTS else END - START)
        assert [str(one.message).startswith(f"{path}: ") for one in told] == [True] * (name == STARTS)
        with pytest.raises(kts.LogStorageError) as refused:
            tables.sync(logs, tmp_path / "table")
        assert refused.value.path == str(path)
        assert [one.path for one in verify(logs)] == [str(path)]


EPOCHS = [
    b"0\n1\n0 0\n1 3\n",
    b"0\n2\n0 0\n",
    b"\0" * 16,
    b"0\n1\n0 x\n",
    b"1\n1\n0 0\n",
    b"0\n1\n-1 0\n",
    b"0\n1\n0 -1\n",
]
METADATA = [b"\0" * 16, b"", b"version: 0\ntopic_id:", b"version: 0\n", b"topic_id: " + ID.encode(), b"\xff"]


@pytest.mark.parametrize(
    ("name", "text"),
    [*(("leader-epoch-checkpoint", text) for text in EPOCHS), *(("partition.metadata", text) for text in METADATA)],
)
def test_the_small_files_of_a_partition_are_told_where_they_are_asked_for(
    name: str, text: bytes, logs: Path, tmp_path: Path
) -> None:
    path = logs / "t-0" / name
    path.write_bytes(text)
    log = kts.open_log_dirs(logs)["t", 0]
    asked: Callable[[], object] = (lambda: log.leader_epochs) if name.startswith("l") else (lambda: log.topic_id)
    with pytest.warns(kts.KtsWarning) as told:
        assert not asked() and not asked()
    (said,) = [str(one.message) for one in told]
    assert said.startswith(f"{path}: ") and "expected" in said and "found" in said and "known" in said
    with pytest.warns(kts.KtsWarning, match=name):
        copy(logs, tmp_path / "copied")
    assert [one.path for one in verify(logs) if one.kind in ("leader-epoch", "partition-metadata")] == [str(path)]
