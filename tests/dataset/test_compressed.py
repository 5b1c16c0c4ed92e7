"""A partition whose logs were compressed by gzip or zstd answers as the plain one, at each door."""

from __future__ import annotations

import gzip
import io
import operator
import os
import threading
from pathlib import Path

import pytest
import zstandard
from support.buckets.s3 import TestBucket
from support.golden import Golden, golden, golden_partitions, scaled
from support.processes.cli_runs import run
from support.sets.biglog import FIRST_MS, write_log
from support.sets.compressed import WAYS, compress_logs

import kts
from kts import compression
from kts.offline.reindex import locked
from kts.offline.verify import verify


def answers(path: Path) -> list[object]:
    """What the doors of Python say of a partition, without the names of its files."""
    log = kts.open_partition(path)
    found: list[object] = [log.log_start_offset, log.log_end_offset, log.last_stable_offset, log.max_timestamp()]
    found += [(one.base_offset, one.size_bytes, one.modified_ms) for one in log.segments]
    found += [log.scan().read_all(), log.batches().read_all()]
    greatest = log.max_timestamp()
    first, last = FIRST_MS, FIRST_MS if greatest is None else greatest.timestamp_ms
    for time in {*range(min(first, last), last, max((last - first) // 5, 1)), last - 1, last, last + 1}:
        found += [log.offset_for_timestamp(time), log.offset_for_timestamp(time, shipped_search=True)]
    found.append(log.scan(isolation="read_committed", columns=["offset"]).read_all())
    found += [(one.position, one.offset, one.kind, one.message) for one in verify(path, deep=True)]
    return found


@pytest.mark.parametrize(("scenario", "partition"), golden_partitions()[:: scaled(8, 1)], ids=str)
def test_answers_are_those_of_the_plain_partition(scenario: Golden, partition: str, tmp_path: Path) -> None:
    """Each door reads its bytes another way, so each is asked on each kind of log that brokers wrote."""
    plain = scenario.copy(tmp_path / "plain").partition_dir(partition)
    other = scenario.copy(tmp_path / "other").partition_dir(partition)
    compress_logs(other, ".gz" if len(partition) % 2 else ".zst")
    assert answers(other) == answers(plain)


def test_lone_files_and_log_directories_are_read(tmp_path: Path) -> None:
    scenario = golden("demo", "orders")
    folder = compress_logs(scenario.copy(tmp_path).log_dir)
    expected = kts.scan(scenario.log_dir).read_all()
    assert kts.scan(folder).read_all() == expected
    one = min((folder / "orders-0").glob("*.log.*"))
    plain = scenario.logs("orders-0")[0]
    assert kts.scan(one).read_all() == kts.scan(plain).read_all()
    other = tmp_path / "renamed.log.zst"
    other.write_bytes(zstandard.compress(plain.read_bytes()))
    columns = ["offset", "timestamp", "value"]
    assert kts.scan(other, columns=columns).read_all() == kts.scan(plain, columns=columns).read_all()
    assert kts.open_partition(other).segments[0].base_offset == 0


def test_of_a_log_and_its_compressed_copy_the_plain_one_is_taken(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", 2, 500)
    expected = kts.scan(tmp_path / "t-0").read_all()
    (tmp_path / "t-0" / f"{0:020}.log.gz").write_bytes(b"not gzip at all")
    (tmp_path / "t-0" / f"{500:020}.log.zst").write_bytes(b"nor zstd")
    log = kts.open_partition(tmp_path / "t-0")
    assert [Path(one.path).name for one in log.segments] == [f"{0:020}.log", f"{500:020}.log"]
    assert log.scan().read_all() == expected


COMMANDS = [
    ["dump", "--format", "jsonl"],
    ["ls", "--json", "--segments"],
    ["batches", "--json"],
    ["stats", "--json"],
    ["verify", "--deep"],
    ["offset-for", "--time", "2023-11-14T22:13:20.700Z", "--json"],
    ["retention", "--now", "2026-09-20", "--json"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_says_what_it_says_of_the_plain_partition(command: list[str], tmp_path: Path) -> None:
    printed = []
    for name in ("plain", "compressed"):
        folder = tmp_path / name
        write_log(folder / "t-0", 3, 500)
        for path in folder.rglob("*.log"):
            os.utime(path, (1_700_000_000, 1_700_000_000))
        if name == "compressed":
            compress_logs(folder)
        said = run(command[0], folder, *command[1:]).output
        printed.append(said.replace(str(folder), "F").replace(".log.gz", ".log").replace(".log.zst", ".log"))
    assert printed[0] == printed[1]


@pytest.mark.slow
def test_a_bucket_of_compressed_logs_is_read(bucket: TestBucket, tmp_path: Path) -> None:
    """A real server: the decompressor takes its bytes from requests that are made ahead."""
    scenario = golden("demo", "orders")
    there = bucket.put_folder(compress_logs(scenario.copy(tmp_path).log_dir), "orders")
    assert kts.scan(there).read_all() == kts.scan(scenario.log_dir).read_all()
    run("verify", there)
    one = min(Path(segment.path).name for segment in kts.open(there)["orders", 0].segments)
    lone = kts.scan(f"{there}/orders-0/{one}").read_all()
    assert lone == kts.scan(scenario.logs("orders-0")[0]).read_all()


# --- damage ----------------------------------------------------------------------------------------


def damaged(kind: str, suffix: str, data: bytes) -> bytes:
    """Compressed data of which one thing is wrong."""
    sound = WAYS[suffix](data)
    if kind == "cut":
        return sound[: len(sound) * 2 // 3]
    if kind == "flipped":
        place = len(sound) // 3
        return sound[:place] + bytes([sound[place] ^ 0xFF]) + sound[place + 1 :]
    if kind == "longer than it says":  # ISIZE of the last member; content size of a frame
        frame = zstandard.compress(data)
        return sound[:-4] + (len(data) - 1).to_bytes(4, "little") if suffix == ".gz" else frame[:5] + b"\1" + frame[6:]
    if kind == "empty":
        return b""
    return sound + b"and what does not belong there"


@pytest.mark.filterwarnings("ignore:.*damaged and left out", "ignore:expected entries up to offset")
@pytest.mark.parametrize("suffix", WAYS)
@pytest.mark.parametrize("kind", ["cut", "flipped", "longer than it says", "empty", "followed by other bytes"])
def test_damage_is_an_error_with_its_position_or_is_left_out_and_reported(
    kind: str, suffix: str, tmp_path: Path
) -> None:
    write_log(tmp_path / "t-0", 3, 500)
    expected = kts.scan(tmp_path / "t-0", columns=["offset"]).read_all().column("offset").to_pylist()
    plain = tmp_path / "t-0" / f"{500:020}.log"
    size = plain.stat().st_size
    headers = kts.scan_batches(plain.read_bytes()).to_pydict()
    ends = map(operator.add, headers["position"], headers["sizeInBytes"])
    batches = [*zip(ends, headers["count"], strict=True)]
    path = plain.with_name(plain.name + suffix)
    path.write_bytes(damaged(kind, suffix, plain.read_bytes()))
    plain.unlink()
    log = kts.open_partition(tmp_path / "t-0")
    for door in (lambda: log.scan().read_all(), lambda: log.batches().read_all(), log.max_timestamp):
        with pytest.raises(kts.CorruptRecordError) as error:
            door()
        assert error.value.path == str(path)
        assert error.value.position is not None and 0 <= error.value.position <= size
        assert f"{error.value.position} bytes of the log come before" in str(error.value)
    found = [one for one in verify(tmp_path / "t-0") if one.kind == "compression"]
    assert [(one.path, one.position) for one in found] == [(str(path), error.value.position)]
    with pytest.warns(kts.DamageWarning, match="left out from position"):
        left = log.scan(on_error="skip", columns=["offset"]).read_all().column("offset").to_pylist()
    assert left == [offset for offset in expected if offset in set(left)]
    assert {*expected[:500], *expected[1000:]} <= set(left)
    assert len(left) == 1000 + sum(count for end, count in batches if end <= error.value.position)


def test_the_most_that_a_piece_of_a_zstd_file_gives_is_bounded() -> None:
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"  # a byte, repeated
    frame = b"\x28\xb5\x2f\xfd\x00\x38" + block * 4096
    pieces = compression.expanded("zstd", io.BytesIO(frame))
    assert max(len(next(pieces)) for _ in range(4)) <= compression.ZSTD_PIECE_BYTES // 4 * 128 * 1024
    wide = b"\x28\xb5\x2f\xfd\x00\xff" + block  # a window of 3.75 TiB
    with pytest.raises(kts.CorruptRecordError, match=r"zstd data is damaged"):
        list(compression.expanded("zstd", io.BytesIO(wide)))


@pytest.mark.parametrize("zeros", [5, 1 << 17])
def test_zeros_behind_a_gzip_member_are_passed_over(zeros: int) -> None:
    data = b"a" + bytes(40_000)
    file = gzip.compress(data) + bytes(zeros)
    assert b"".join(compression.expanded("gzip", io.BytesIO(file + gzip.compress(data) + bytes(zeros)))) == 2 * data


# --- files that change, threads, writers ---------------------------------------------------------------


def test_a_file_that_is_replaced_is_read_anew_and_many_threads_read_one(tmp_path: Path) -> None:
    path = tmp_path / "t-0" / f"{0:020}.log.gz"
    path.parent.mkdir()
    for count in (10, 20):
        data = kts.encode({"timestamp": [*range(count)], "value": [b"v"] * count})
        path.write_bytes(gzip.compress(data))
        counts: list[int] = []

        def count_rows(into: list[int] = counts) -> None:
            into.append(kts.scan(path).read_all().num_rows)

        threads = [threading.Thread(target=count_rows) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts == [count] * 8


def test_writers_refuse_a_partition_with_compressed_logs(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", 2, 100)
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"")
    compress_logs(tmp_path / "t-0", ".zst")
    before = sorted(tmp_path.rglob("*"))
    for write in (
        lambda: kts.Log(tmp_path / "t-0"),
        lambda: locked(kts.open_partition(tmp_path / "t-0")).__enter__(),
    ):
        with pytest.raises(kts.LogStorageError, match=r"decompress it first: zstd -d --rm"):
            write()
    for command in (["truncate", "--to-offset", "5"], ["reindex"]):
        assert "decompress it first" in run(*command, tmp_path / "t-0", "--in-place", code=3).stderr
    assert sorted(tmp_path.rglob("*")) == before
