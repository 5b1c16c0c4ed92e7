"""Rows of any number appended at once: cut by the topic's limits, read back, and all of them or none."""

from __future__ import annotations

import errno
import itertools
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.disk.faultfs import WRITING, Fault, FaultyOs
from support.disk.scripted_lives import in_place_of_os, quick_directory
from support.golden import scaled
from support.sets.log_records import NOW, Clock, batch, names, offsets, opened

import kts
from kts.offline.verify import verify

VERSIONS = {0: "0.9.0", 1: "0.10.2", 2: "3.9"}
CODECS = {0: ("none", "gzip", "snappy", "lz4"), 1: ("none", "gzip", "snappy", "lz4")}
CODECS[2] = (*CODECS[1], "zstd")
FORMS = [(magic, codec) for magic, codecs in CODECS.items() for codec in codecs]


def rows_of(rng: random.Random, count: int, size: int) -> dict[str, Any]:
    """Values of which half cannot be compressed."""
    values = [rng.randbytes(size // 2) + b"v" * (size - size // 2) for _ in range(count)]
    return {"timestamp": np.arange(NOW, NOW + count), "key": [b"%d" % row for row in range(count)], "value": values}


def contents(log: Any, **how: Any) -> list[tuple[int, int, bytes, bytes]]:
    columns = ["offset", "timestamp", "key", "value"]
    table = log.scan(columns=columns, **how).read_all()
    return list(
        zip(*(table[name].cast("int64") if name == "timestamp" else table[name] for name in columns), strict=True)
    )


def check(log: kts.Log, rows: dict[str, Any], done: kts.Appended, before: int = 0) -> None:
    """The log has the rows from an offset on, in ``Log.scan``, in the files and after a start."""
    count = len(rows["value"])
    assert (done.first_offset, done.last_offset) == (before, before + count - 1)
    magic = log.config.magic
    wanted = pa.table(
        {
            "offset": np.arange(before, before + count),
            "timestamp": pa.array(rows["timestamp"]) if magic else pa.repeat(pa.scalar(-1, pa.int64()), count),
            "key": pa.array(rows["key"]),
            "value": pa.array(rows["value"]),
        }
    )
    for read in (log.scan, lambda **how: kts.scan(log.path, **how)):
        table = read(columns=wanted.column_names, starting_offsets=before).read_all()
        assert table.set_column(1, "timestamp", table["timestamp"].cast("int64")).equals(wanted)
    headers = kts.open(log.path).batches().read_all()
    mine = pa.compute.greater_equal(headers["lastOffset"], before)
    assert headers.filter(mine).num_rows == done.entries
    assert pa.compute.max(headers["sizeInBytes"]).as_py() <= min(log.config.max_message_bytes, log.config.segment_bytes)
    assert all(segment.size <= log.config.segment_bytes for segment in log.segments)
    assert done.max_timestamp_ms == (NOW + count - 1 if magic else -1)
    assert not list(verify(log.path, deep=True))


@pytest.mark.slow
@pytest.mark.parametrize(("magic", "codec"), FORMS)
@pytest.mark.parametrize("size", [20, 3000])
def test_rows_of_any_number_are_read_back(
    magic: int, codec: str, size: int, tmp_path: Path, rng: random.Random
) -> None:
    """One row, about 16 KiB, and beyond several segments."""
    settings = {"message_format_version": VERSIONS[magic], "segment_bytes": 100_000, "max_message_bytes": 40_000}
    with opened(tmp_path, segment_index_bytes=10_000, **settings) as log:
        before = 0
        for total in (1, 16_384, 16_384 + 5, 500_000):
            rows = rows_of(rng, -(-total // (size + 20)), size)
            check(log, rows, log.append_rows(rows, compression=codec), before)
            before = log.log_end_offset
        assert len(log.segments) > 2
        found = contents(log)
    with opened(tmp_path, segment_index_bytes=10_000, **settings) as log:
        assert (log.clean_start, log.recovered, contents(log)) == (True, [], found)


@pytest.mark.parametrize(("magic", "codec"), [(0, "none"), (1, "lz4"), (2, "none"), (2, "zstd")])
def test_a_mebibyte_and_more_under_kafkas_default_limits(
    magic: int, codec: str, tmp_path: Path, rng: random.Random
) -> None:
    settings = {"segment.bytes": 2**21, "message.format.version": VERSIONS[magic], "index.interval.bytes": 4096}
    for count in (1000, 5000):
        with kts.Log(tmp_path / f"t-{count}", settings, clock=Clock()) as log:
            rows = rows_of(rng, count, 1100)
            done = log.append_rows(rows, compression=codec)
            check(log, rows, done)
            assert done.entries > 1


def test_the_topics_codec_is_used_unless_one_is_given(tmp_path: Path) -> None:
    rows = {"value": [b"v" * 100] * 50}
    expected = {
        ("producer", None): 0,
        ("producer", "lz4"): 3,
        ("uncompressed", None): 0,
        ("uncompressed", "gzip"): 0,
        ("zstd", None): 4,
        ("gzip", "zstd"): 1,
    }
    for number, ((topic, given), codec) in enumerate(expected.items()):
        with opened(tmp_path, name=f"t-{number}", segment_bytes=10_000, compression_type=topic) as log:
            log.append_rows(rows, compression=given)
            assert set(log.scan(columns=["codec"]).read_all()["codec"].to_pylist()) == {codec}
    with opened(tmp_path, name="t-9", message_format_version="0.10.2") as log:
        with pytest.raises(kts.UnsupportedCompressionTypeError):
            log.append_rows(rows, compression="zstd")
        with pytest.raises(ValueError, match="compression"):
            log.append_rows(rows, compression="brotli")
        assert log.log_end_offset == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("magic", [1, 2])
def test_data_that_cannot_be_compressed_stays_within_the_limits(
    magic: int, codec: str, tmp_path: Path, rng: random.Random
) -> None:
    if (magic, codec) == (1, "zstd"):
        return
    for number, most in enumerate((2000, 70_000, 1_048_588)):
        settings = {"max.message.bytes": most, "message.format.version": VERSIONS[magic], "compression.type": codec}
        with kts.Log(tmp_path / f"t-{number}", settings, clock=Clock()) as log:
            done = log.append_rows({"value": [rng.randbytes(300) for _ in range(max(most // 150, 20))]})
            assert done.entries > 1


def test_a_row_without_a_time_gets_the_clock_and_minus_one_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append_rows({"value": [b"a", b"b"]})
        log.append_rows([{"timestamp": None}, {"timestamp": -1}, {"timestamp": "2026-09-01T10:00Z"}])
        assert [row[1].as_py() for row in contents(log)] == [NOW, NOW, NOW, -1, 1_788_256_800_000]
    with opened(tmp_path, name="t-1", message_timestamp_type="LogAppendTime") as log:
        assert log.append_rows({"timestamp": [5, -1], "value": [b"a", b"b"]}).max_timestamp_ms == NOW
        assert [row[1].as_py() for row in contents(log)] == [NOW, NOW]
    with opened(tmp_path, name="t-2", allow_negative_timestamps=True) as log:
        assert log.append_rows({"timestamp": [-9, -5, -1]}).max_timestamp_ms == -5
        assert log.append_rows({"timestamp": [-1]}).max_timestamp_ms == -1


def test_offsets_continue_between_other_appends(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append(batch(NOW, NOW))
        assert log.append_rows({"value": [b"v" * 60] * 30})[:2] == (2, 31)
        assert log.append(batch(NOW)).first_offset == 32
        assert log.append_rows({"value": [b"v"]}) == kts.Appended(33, 33, 1, NOW)
        assert offsets(log) == list(range(34))
        again = log.append_rows(log.scan())
        assert (again.first_offset, again.last_offset) == (34, 67)
        assert [row[1:] for row in contents(log)][:34] == [row[1:] for row in contents(log)][34:]


BAD: dict[str, tuple[dict[str, Any], type[Exception], int | None]] = {
    "a timestamp beyond the limit": ({"message_timestamp_after_max_ms": 1000}, kts.InvalidTimestampError, 300),
    "a row above max.message.bytes": ({"max_message_bytes": 1000}, kts.RecordTooLargeError, 300),
    "a row above segment.bytes": ({}, kts.RecordBatchTooLargeError, 300),
    "a row without a key in a compacted topic": ({"cleanup_policy": "compact"}, kts.InvalidRecordError, 300),
    "headers in an old format": ({"message_format_version": "0.10.2"}, kts.UnsupportedForMessageFormatError, None),
    "a time in seconds": ({}, ValueError, None),
    "a stream that fails": ({}, OSError, None),
}


def bad_rows(name: str) -> Any:
    rows: dict[str, Any] = {"timestamp": [NOW] * 400, "key": [b"k"] * 400, "value": [b"v" * 50] * 400}
    if name == "a timestamp beyond the limit":
        rows["timestamp"][300] = NOW + 1001
    if name.startswith("a row above"):
        rows["value"][300] = b"v" * 2000
    if "without a key" in name:
        rows["key"][300] = None
    if name == "headers in an old format":
        rows["headers"] = [None] * 300 + [[{"key": "h", "value": b""}]] + [None] * 99
    if name == "a time in seconds":
        rows["timestamp"][300] = NOW // 1000
    if name == "a stream that fails":
        table = pa.table(rows)

        def stream() -> Iterator[pa.RecordBatch]:
            yield from table.to_batches(100)
            raise OSError("the source is gone")

        return pa.RecordBatchReader.from_batches(table.schema, stream())
    return rows


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_in_the_middle_leaves_the_log_as_it_was(name: str, tmp_path: Path) -> None:
    settings, error, row = BAD[name]
    with opened(tmp_path, **settings) as log:
        log.append_rows({"key": [b"k"] * 5, "value": [b"v"] * 5})
        before = contents(log), names(tmp_path), [segment.size for segment in log.segments], log.leader_epochs
        with pytest.raises(error) as refused:
            log.append_rows(bad_rows(name))
        if isinstance(refused.value, kts.KtsError):
            assert refused.value.record_index == row
        assert "300" in str(refused.value) or row is None
        assert (contents(log), names(tmp_path), [segment.size for segment in log.segments], log.leader_epochs) == before
        assert log.append_rows({"key": [b"k"], "value": [b"v"]})[:2] == (5, 5)


def test_every_refused_row_of_a_batch_is_listed_by_its_number(tmp_path: Path) -> None:
    with opened(tmp_path, message_timestamp_after_max_ms=1000) as log:
        times = [NOW] * 100
        times[50] = times[52] = NOW + 5000
        with pytest.raises(
            kts.InvalidTimestampError, match=r"^row 50: timestamp .* out of range.*; 1 more row"
        ) as refused:
            log.append_rows({"timestamp": times})
        assert [row for row, _ in refused.value.record_errors] == [50, 52]
        assert (refused.value.record_index, refused.value.position) == (50, None)


def faults(calls: int, rng: random.Random) -> Iterator[Fault]:
    step = scaled(7, 1)
    for at in range(rng.randint(1, step), calls + 1, step):
        yield Fault(at, WRITING, errno.EIO)
        yield Fault(at, WRITING, errno.ENOSPC, lasting=True)
        yield Fault(at, frozenset({"pwrite"}), errno.ENOSPC, short=True)


@pytest.mark.parametrize("proposals", [(), ("bucket-index", "earliest-timestamp")], ids=["shipped", "proposals"])
def test_a_disk_that_fails_leaves_all_rows_or_none_unless_it_goes_on_to_fail(
    proposals: tuple[str, ...], rng: random.Random
) -> None:
    """Each write, sync and rename of an append over several segments fails. Costs a second, and tries real files."""
    old, new = [b"old"] * 3, [b"v" * 100] * 20
    kept = closed = 0
    for fault in itertools.chain([None], (fault for fault in faults(CALLS, rng))):
        with quick_directory() as folder:
            log = opened(Path(folder), proposals=proposals)
            log.append_rows({"value": old})
            system = FaultyOs(folder, fault)
            with in_place_of_os(system):
                try:
                    log.append_rows({"value": new})
                except kts.LogStorageError:
                    assert fault is not None
                    wanted = old
                else:
                    wanted = old + new
            if fault is None:
                assert sum(name in WRITING for name in system.calls) <= CALLS
            if log.closed:
                closed += 1
                log = opened(Path(folder), proposals=proposals)
                found = [row[3].as_py() for row in contents(log)]
                assert fault is not None
                if fault.lasting:  # whole batches, if the disk goes on to fail
                    assert found == (old + new)[: len(found)] and len(found) >= len(old)
                else:
                    assert found == old, fault
            else:
                kept += 1
                assert [row[3].as_py() for row in contents(log)] == wanted
                assert log.log_end_offset == len(wanted)
            end = log.log_end_offset
            assert log.append_rows({"value": [b"after"]}).first_offset == end
            log.close()
            assert not list(verify(os.path.join(folder, "t-0"), deep=True))
    assert kept > 3 and closed > 3


CALLS = 200  # at most, of such an append


def test_rows_of_several_threads_lie_together(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=2000) as log:
        done: list[tuple[bytes, kts.Appended]] = []

        def work(name: bytes) -> None:
            for _ in range(5):
                done.append((name, log.append_rows({"value": [name * 20] * 50})))

        threads = [threading.Thread(target=work, args=(b"%d" % number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        values = [row[3].as_py() for row in contents(log)]
        assert len(values) == 1000 == log.log_end_offset
        for name, one in done:
            assert values[one.first_offset : one.last_offset + 1] == [name * 20] * 50


def test_a_closed_log_takes_no_rows(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.close()
    with pytest.raises(kts.LogClosedError):
        log.append_rows({"value": [b"v"]})
    with pytest.raises(kts.LogClosedError):
        log.scan()


def test_a_scan_of_a_log_ends_where_the_log_ended_when_it_began(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append_rows({"timestamp": range(NOW, NOW + 50), "value": [b"v" * 30] * 50})
        begun = log.scan(columns=["offset"])
        log.append_rows({"value": [b"w"] * 10})
        assert begun.read_all()["offset"].to_pylist() == list(range(50))
        log.advance_high_watermark(20)
        assert log.scan(ending_offsets="high_watermark").read_all().num_rows == 20
        log.advance_log_start_offset(5)
        assert log.scan(columns=["offset"]).read_all()["offset"].to_pylist() == list(range(5, 60))
        assert log.scan(starting_timestamp=NOW + 10, ending_timestamp=NOW + 12).read_all().num_rows == 2
        assert log.scan(ending_timestamp=NOW + 10**6).read_all().num_rows == 55
