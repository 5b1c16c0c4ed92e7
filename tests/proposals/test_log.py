"""The proposals as modes of a log that is appended to, rolled, truncated, retained and opened again."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.reference import reference

import kts
from kts.proposals.answers import ENTRY_BYTES
from kts.proposals.bucket_index import BucketIndexMode
from kts.proposals.comparing import Continuing, OneSegment, lookups
from kts.proposals.index import IndexMode

MINUTE = 60_000
T = 1_500_000_000_000 // MINUTE * MINUTE
INDEXES = ("bucket-index", "minute-map")
SHIPPED_FILES = {".log", ".index", ".timeindex", ".snapshot", ""}  # the leader epochs have no suffix


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, now_ms: int = T) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def messages(*timestamps: int, magic: int = 2, compression: str = "none") -> bytes:
    rows = {"timestamp": np.array(timestamps), "value": [b"x" * 20] * len(timestamps)}
    return kts.encode(rows, magic=magic, compression=compression, batch_bytes=2**20)


def mode(log: kts.Log, name: str) -> Any:
    assert log.proposals is not None
    return log.proposals[name]


def files_of(path: Path, suffix: str) -> dict[int, bytes]:
    return {int(file.name[:20]): file.read_bytes() for file in sorted(path.glob(f"*{suffix}"))}


def records(path: Path) -> Iterator[tuple[int, int]]:
    """(timestamp, offset) of every record, read slowly."""
    for file in sorted(path.glob("*.log")):
        for row in reference.decode(file.read_bytes()):
            yield row["timestamp"], row["offset"]


def reader(log: kts.Log) -> kts.PartitionLog:
    opened = kts.open(log.path, log_start_offset=log.log_start_offset)
    assert isinstance(opened, kts.PartitionLog)
    return opened


# --- what lies in the files -------------------------------------------------------------------------


def test_the_files_hold_what_the_kip_says_after_each_step(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", {"message.format.version": "0.10.2"}, clock=Clock(), proposals=INDEXES) as log:
        log.append(messages(T + 5, T + 50, T + MINUTE + 1, T + 30, T + 3 * MINUTE + 7, magic=1))
        path = tmp_path / "t-0"
        buckets = struct.pack(">qiqiqi", T, 0, T + MINUTE, 2, T + 3 * MINUTE, 4)
        assert files_of(path, ".time.index") == {0: buckets}
        minutes = struct.pack(">qiqiqi", T, 0, T + MINUTE, 2, T + 3 * MINUTE, 4)
        assert files_of(path, ".minute.index") == {0: minutes}
        log.roll()
        # The closing entry is the largest timestamp itself; a map has none.
        buckets += struct.pack(">qi", T + 3 * MINUTE + 7, 4)
        assert files_of(path, ".time.index") == {0: buckets, 5: b""}
        assert files_of(path, ".minute.index") == {0: minutes, 5: b""}
        log.append(messages(T + 8, T + 3 * MINUTE + 6, magic=1))
        # Older than what came before: no entry over all segments, but one for each minute of this segment.
        assert files_of(path, ".time.index")[5] == b""
        assert files_of(path, ".minute.index")[5] == struct.pack(">qiqi", T, 0, T + 3 * MINUTE, 1)
        log.roll()
        assert files_of(path, ".time.index") == {0: buckets, 5: b"", 7: b""}


def test_a_wrapper_or_batch_counts_with_its_greatest_timestamp_and_first_offset(tmp_path: Path) -> None:
    for magic in (1, 2):
        version = {"message.format.version": "0.10.2" if magic == 1 else "3.9"}
        with kts.Log(tmp_path / f"t-{magic}", version, clock=Clock(), proposals=INDEXES) as log:
            log.append(messages(T, magic=magic))
            log.append(messages(T + 2 * MINUTE, T + MINUTE, T + 5, magic=magic, compression="gzip"))
            log.append(messages(T + 4 * MINUTE, magic=magic, compression="gzip"))
            for name in INDEXES:
                pairs = mode(log, name).rule.segments[0].pairs()
                assert pairs == [(T, 0), (T + 2 * MINUTE, 1), (T + 4 * MINUTE, 4)]


def test_a_segment_of_the_old_format_is_closed_with_its_file_s_time(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", {"message.format.version": "0.9.0"}, proposals=INDEXES) as log:
        log.append(messages(-1, -1, -1, magic=0))
        log.roll()
        [entry] = mode(log, "bucket-index").rule.segments[0].pairs()
        assert entry == (reader(log).segments[0].modified_ms, 2)
        assert mode(log, "minute-map").rule.segments[0].pairs() == []


def test_what_a_broker_keeps_is_the_same_with_and_without_the_indexes(tmp_path: Path, rng: random.Random) -> None:
    sets = [messages(*(T + rng.randrange(10**7) for _ in range(rng.randrange(1, 9)))) for _ in range(60)]
    written = []
    for number, proposals in enumerate([(), INDEXES]):
        path = tmp_path / str(number) / "t-0"
        with kts.Log(path, {"segment.bytes": 3000}, clock=Clock(), proposals=proposals) as log:
            for one in sets:
                log.append(one)
        written.append({f.name: f.read_bytes() for f in path.iterdir() if "".join(f.suffixes) in SHIPPED_FILES})
    assert written[0] == written[1] and len(written[0]) > 12


# --- any history ------------------------------------------------------------------------------------


def history(rng: random.Random, path: Path, steps: int, allow_negative: bool) -> Iterator[kts.Log]:
    """A log after each of some random steps: appends, rolls, truncations, retention, restarts."""
    low = -30 * MINUTE if allow_negative else 0
    clock = Clock(T)
    magic = rng.choice([1, 2])
    config = {
        "message.format.version": "0.10.2" if magic == 1 else "3.9",
        "segment.bytes": rng.choice([600, 3000]),
        "index.interval.bytes": rng.choice([0, 200]),
        "segment.index.bytes": 200,
        "retention.bytes": 4000,
        "file.delete.delay.ms": 0,
        "allow.negative.timestamps": allow_negative,
    }

    def opened() -> kts.Log:
        interval = BucketIndexMode(rng.choice([MINUTE]), allow_negative=allow_negative)
        return kts.Log(path, config, clock=clock, proposals=(interval, "minute-map"))

    log, now = opened(), 0
    for _ in range(steps):
        step = rng.random()
        if step < 0.75:
            now += rng.choice([0, 1000, MINUTE])
            spread = rng.choice([1, 1000, 10 * MINUTE])
            some = [low + now + rng.randrange(spread) if rng.random() < 0.9 else -1 for _ in range(rng.randrange(1, 6))]
            log.append(messages(*some, magic=magic, compression=rng.choice(["none", "none", "gzip"])))
        elif step < 0.8:
            log.roll()
        elif step < 0.84:
            log.truncate_to(rng.randint(log.log_start_offset, log.log_end_offset))
        elif step < 0.86:
            log.truncate_fully_and_start_at(log.log_end_offset + rng.choice([-1, 0, 5]) * (log.log_end_offset > 0))
        elif step < 0.9:
            log.delete_old_segments()
        elif step < 0.95:
            log.close()
            log = opened()
        else:
            log.abandon()
            log = opened()
        yield log
    log.close()


@pytest.mark.slow
@pytest.mark.parametrize("allow_negative", [False, True])
def test_every_lookup_finds_what_a_linear_scan_finds_after_any_history(
    allow_negative: bool, tmp_path: Path, rng: random.Random
) -> None:
    asked = hits = 0
    for number in range(8):
        path = tmp_path / f"t-{number}"
        for step, log in zip(count(), history(rng, path, 40, allow_negative), strict=False):
            if step % 8 != 7:
                continue
            view = reader(log)
            every = [one for one in records(path) if one[1] >= log.log_start_offset]
            stamps = [time for time, _ in every] or [0]
            ways = [mode(log, name) for name in INDEXES] + lookups(view, allow_negative=allow_negative)
            assert all(mode(log, name).failed is None for name in INDEXES)
            for _ in range(12):
                near = rng.choice(stamps) + rng.choice([-1, 0, 1])
                target = rng.choice([near, rng.randint(min(stamps) - 5, max(stamps) + 5), rng.choice([-5, -1, 0])])
                young = [one for one in every if one[0] >= target]
                timed = [one for one in young if one[0] != -1]
                for way in ways:
                    if isinstance(way, OneSegment):
                        continue
                    numbers = not allow_negative or isinstance(way, Continuing)
                    hit = min(young if numbers else timed, key=lambda one: one[1], default=None)
                    assert way.search(view, target).found == hit, (number, step, target, way.name)
                    asked, hits = asked + 1, hits + (hit is not None)
    assert asked > 1500 and asked / 4 < hits < asked


@pytest.mark.slow
def test_the_index_is_rising_over_all_segments_after_any_history(tmp_path: Path, rng: random.Random) -> None:
    for number in range(5):
        for log in history(rng, tmp_path / f"t-{number}", 60, False):
            entries = [pair for one in mode(log, "bucket-index").rule.segments.values() for pair in one.pairs()]
            assert entries == sorted(set(entries)) and len({time for time, _ in entries}) == len(entries)
            assert [offset for _, offset in entries] == sorted(offset for _, offset in entries)


@pytest.mark.slow
def test_the_files_are_those_of_the_live_segments_and_hold_what_is_in_memory(
    tmp_path: Path, rng: random.Random
) -> None:
    for number in range(5):
        path = tmp_path / f"t-{number}"
        for log in history(rng, path, 60, False):
            view = reader(log)
            for name in INDEXES:
                one: IndexMode = mode(log, name)
                on_disk = files_of(path, one.suffix)
                assert on_disk == {base: entries.to_bytes() for base, entries in one.rule.segments.items()}
                assert sorted(on_disk) == [segment.base_offset for segment in log.segments]
                size = one.index_size(view)
                assert size.file_bytes == sum(map(len, on_disk.values())) == size.entries * ENTRY_BYTES


# --- start-up ---------------------------------------------------------------------------------------


def grown(path: Path) -> dict[str, bytes]:
    """A closed log of four segments with both indexes; their files' bytes."""
    with kts.Log(path, {"segment.bytes": 900}, clock=Clock(), proposals=INDEXES) as log:
        for i in range(40):
            log.append(messages(T + i * 20_000))
        assert len(log.segments) >= 4
    return index_files(path)


def index_files(path: Path) -> dict[str, bytes]:
    found = [*path.glob("*.time.index"), *path.glob("*.minute.index")]
    return {file.name: file.read_bytes() for file in sorted(found)}


def test_start_up_believes_the_files_of_closed_segments(tmp_path: Path) -> None:
    before = grown(tmp_path / "t-0")
    with kts.Log(tmp_path / "t-0", {"segment.bytes": 900}, clock=Clock(), proposals=INDEXES) as log:
        assert [mode(log, name).rebuilt for name in INDEXES] == [[], []]
        assert index_files(tmp_path / "t-0") == before


@pytest.mark.parametrize("damage", ["missing", "cut", "falling", "stale", "garbage"])
@pytest.mark.parametrize("name", INDEXES)
def test_a_file_that_cannot_be_believed_is_made_again(name: str, damage: str, tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    before = grown(path)
    suffix = {"bucket-index": ".time.index", "minute-map": ".minute.index"}[name]
    first, second = sorted(path.glob(f"*{suffix}"))[:2]
    data = second.read_bytes()
    if damage == "missing":
        second.unlink()
    else:
        changed = {
            "cut": data[:-5],
            "falling": data[12:24] + data[:12] + data[24:],
            "stale": data[:-12],
            "garbage": b"\xff" * len(data),
        }
        status = second.stat()
        second.write_bytes(changed[damage])
        if damage != "stale":  # what is wrong is seen though the file looks sealed
            os.utime(second, ns=(status.st_atime_ns, status.st_mtime_ns))
    with kts.Log(path, {"segment.bytes": 900}, clock=Clock(), proposals=INDEXES) as log:
        rebuilt = mode(log, name).rebuilt
        assert rebuilt[0] == int(second.name[:20])
        # An entry of the bucket index depends on the segments before it, one of the map does not.
        closed = [segment.base_offset for segment in log.segments[:-1]]
        assert rebuilt == (closed[1:] if name == "bucket-index" else [closed[1]])
        assert index_files(path) == before
    assert int(first.name[:20]) == 0


def test_segments_written_without_the_mode_are_read_when_it_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    grown(path)
    with kts.Log(path, {"segment.bytes": 900}, clock=Clock()) as log:
        for i in range(40, 60):
            log.append(messages(T + i * 20_000))
    with kts.Log(path, {"segment.bytes": 900}, clock=Clock(), proposals=INDEXES) as log:
        assert len(mode(log, "minute-map").rebuilt) >= 2
        view = reader(log)
        for i in (5, 39, 45, 59):
            for name in INDEXES:
                assert mode(log, name).search(view, T + i * 20_000).found == (T + i * 20_000, i)


def test_files_of_segments_that_are_gone_are_removed_at_start_up(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    grown(path)
    for suffix in (".log", ".index", ".timeindex"):
        (path / f"{0:020d}{suffix}").unlink()
    with kts.Log(path, clock=Clock(), proposals=INDEXES):
        assert not [name for name in index_files(path) if name.startswith("0" * 20)]


def test_the_same_index_comes_out_of_the_log_whether_appended_or_read(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "t-0"
    with kts.Log(path, {"segment.bytes": 900}, clock=Clock(), proposals=INDEXES) as log:
        for i in range(60):
            log.append(messages(*(T + i * 10_000 + rng.randrange(10**6) for _ in range(rng.randrange(1, 4)))))
    before = index_files(path)
    shutil.copytree(path, tmp_path / "t-1")
    for name in before:
        (tmp_path / "t-1" / name).unlink()
    with kts.Log(tmp_path / "t-1", {"segment.bytes": 900}, clock=Clock(), proposals=INDEXES):
        assert index_files(tmp_path / "t-1") == before


def test_a_disk_that_fails_under_an_index_does_not_harm_the_log(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with kts.Log(path, clock=Clock(), proposals=("minute-map",)) as log:
        (path / f"{1:020d}.minute.index").mkdir()  # the next segment's file cannot be made
        log.append(messages(T))
        log.roll()
        assert mode(log, "minute-map").failed is not None
        log.append(messages(T + 1))
        assert log.offset_for_timestamp(T + 1) == (T + 1, 1)


# --- rolling ----------------------------------------------------------------------------------------

HOUR = 60 * MINUTE
LIVE = [(i * 20 * MINUTE, i * 20 * MINUTE) for i in range(9)]  # (clock, timestamp): messages as they happen
REPLAY = [(i * MINUTE, -30 * HOUR + i * 20 * MINUTE) for i in range(9)]  # old ones, quickly
PAUSE = [(0, 0), (MINUTE, MINUTE), (3 * HOUR, 3 * HOUR), (3 * HOUR + 1, 3 * HOUR + 1)]
LATE = [(0, 0), (MINUTE, -2 * HOUR), (2 * MINUTE, MINUTE), (3 * MINUTE, 2 * MINUTE)]
FUTURE = [(0, 0), (MINUTE, 50 * HOUR), (2 * MINUTE, 2 * MINUTE), (90 * MINUTE, 90 * MINUTE), (91 * MINUTE, 91 * MINUTE)]


@pytest.mark.parametrize(
    "name, arrivals, expected",
    [
        (None, LIVE, [0, 4, 8]),
        ("wall-clock", LIVE, [0, 4, 8]),
        ("largest-timestamp", LIVE, [0]),
        ("earliest-timestamp", LIVE, [0, 4, 8]),
        (None, REPLAY, [0, 4, 8]),
        ("wall-clock", REPLAY, [0]),
        ("largest-timestamp", REPLAY, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ("earliest-timestamp", REPLAY, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        (None, PAUSE, [0, 2]),
        ("wall-clock", PAUSE, [0, 2]),
        ("largest-timestamp", PAUSE, [0, 2]),
        ("earliest-timestamp", PAUSE, [0, 2]),
        (None, LATE, [0]),
        ("wall-clock", LATE, [0]),
        ("largest-timestamp", LATE, [0]),
        ("earliest-timestamp", LATE, [0, 2]),
        (None, FUTURE, [0, 1]),  # then nothing is young enough any more
        ("wall-clock", FUTURE, [0, 3]),
        ("largest-timestamp", FUTURE, [0]),
        ("earliest-timestamp", FUTURE, [0, 3]),
    ],
)
def test_each_rule_rolls_where_it_says(
    name: str | None, arrivals: list[tuple[int, int]], expected: list[int], tmp_path: Path
) -> None:
    clock = Clock()
    with kts.Log(tmp_path / "t-0", {"segment.ms": HOUR}, clock=clock, proposals=(name,) if name else ()) as log:
        for now, timestamp in arrivals:
            clock.now_ms = T + now
            log.append(messages(T + timestamp))
        bases = [segment.base_offset for segment in log.segments]
    assert bases == expected


@pytest.mark.parametrize("name", ["largest-timestamp", "earliest-timestamp"])
def test_a_restart_finds_the_timestamps_again(name: str, tmp_path: Path) -> None:
    clock = Clock()
    with kts.Log(tmp_path / "t-0", {"segment.ms": HOUR}, clock=clock, proposals=(name,)) as log:
        log.append(messages(T + 10, T + 20))
        log.roll()
        log.append(messages(T + 5, T + 7))
    with kts.Log(tmp_path / "t-0", {"segment.ms": HOUR}, clock=clock, proposals=(name,)) as log:
        due = T + HOUR + {"largest-timestamp": 20, "earliest-timestamp": 5}[name]
        assert mode(log, name).due(due, T, HOUR) is None
        assert mode(log, name).due(due + 1, T, HOUR) is not None
        log.truncate_to(2)  # the active segment is empty now
        answer = mode(log, name).due(due + 1, T, HOUR)
        assert (answer is not None) == (name == "largest-timestamp" or due + 1 - T > HOUR)


def test_the_other_reasons_to_roll_stay(tmp_path: Path) -> None:
    config = {"segment.ms": HOUR, "segment.bytes": 300}
    with kts.Log(tmp_path / "t-0", config, clock=Clock(), proposals=("largest-timestamp",)) as log:
        for i in range(6):
            log.append(messages(T + i))
        assert [segment.base_offset for segment in log.segments] == [0, 3]
