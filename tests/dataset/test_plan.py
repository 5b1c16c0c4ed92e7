"""Ranges as offsets, and the pieces that they are read in."""

from __future__ import annotations

import pickle
import random
import shutil
import struct
from pathlib import Path

import pytest
from support.golden import Golden, golden_partitions
from support.sets.partitions import log_of, offsets

import kts
from kts.dataset.plan import SegmentRange, plan, resolve_range
from kts.dataset.reader import read_range
from kts.segment.transactions import TXN_ENTRY
from kts.store.source import Source

PARTITIONS = golden_partitions()


def indexed_log(tmp_path: Path, count: int, interval: int) -> Path:
    """One segment of single-record batches with an offset index as 2.0 and later write it."""
    directory = tmp_path / "t-0"
    directory.mkdir(parents=True)
    position, since, index = 0, 0, b""
    with (directory / f"{0:020}.log").open("wb") as file:
        for offset in range(count):
            data = kts.encode({"timestamp": [1000 + offset], "value": [bytes(80)]}, base_offset=offset)
            if since > interval:
                index += struct.pack(">ii", offset, position)
                since = 0
            file.write(data)
            position += len(data)
            since += len(data)
    (directory / f"{0:020}.index").write_bytes(index)
    return directory


@pytest.mark.parametrize("range_bytes", [None, 1, 1000, 10_000, 10**9])
def test_ranges_are_cut_at_index_entries_and_lose_nothing(range_bytes: int | None, tmp_path: Path) -> None:
    log = kts.open(indexed_log(tmp_path, 500, 1000))
    assert isinstance(log, kts.PartitionLog)
    size = log.segments[0].size_bytes
    for start, end in ((0, 500), (0, 2**63 - 1), (123, 456), (7, 8), (499, 500)):
        parts = plan(log, start, end, range_bytes=range_bytes)
        found: list[int] = []
        for part in parts:
            assert pickle.loads(pickle.dumps(part)) == part
            for batch in read_range(part, columns=["offset"]):
                found += batch.column(0).to_pylist()
        assert found == list(range(start, min(end, 500)))
        assert all(a.end_position == b.start_position for a, b in zip(parts, parts[1:], strict=False))
        read = sum(part.end_position - part.start_position for part in parts)
        assert read <= size * (min(end, 500) - start) / 500 + 2 * 1300
    if range_bytes == 10_000:
        assert 4 < len(plan(log, 0, 500, range_bytes=range_bytes)) <= size // 10_000 + 1
    assert plan(log, 5, 5) == [] and plan(log, 500, 600)[0].end_offset == 600


@pytest.mark.parametrize(("scenario", "name"), PARTITIONS[::3], ids=str)
def test_pieces_of_golden_logs_lose_nothing(scenario: Golden, name: str, rng: random.Random) -> None:
    log = kts.open(scenario.partition_dir(name), log_start_offset=scenario.log_start_offset(name))
    assert isinstance(log, kts.PartitionLog)
    expected = [row.offset for row in scenario.expected(name)]
    end = log.log_end_offset
    for range_bytes in (1, 500, 2000, None):
        first, last = sorted(rng.randint(0, end + 1) for _ in "ab")
        parts = plan(log, first, last, range_bytes=range_bytes)
        found = [
            offset
            for part in parts
            for batch in read_range(part, columns=["offset"])
            for offset in batch.column(0).to_pylist()
        ]
        assert found == [offset for offset in expected if first <= offset < last]


def test_an_index_that_points_into_batches_is_not_believed(tmp_path: Path) -> None:
    directory = indexed_log(tmp_path, 500, 1000)
    index = directory / f"{0:020}.index"
    data = bytearray(index.read_bytes())
    for at in range(7, len(data), 8):
        data[at] ^= 1
    index.write_bytes(data)
    log = kts.open(directory)
    assert isinstance(log, kts.PartitionLog)
    assert log.log_end_offset == 500
    assert offsets(directory, starting_offsets=321, ending_offsets=400) == list(range(321, 400))
    assert [part.start_position for part in plan(log, 321, 400, range_bytes=1000)] == [0]


def test_a_resolved_range_is_plain_offsets(tmp_path: Path) -> None:
    log = kts.open(log_of(tmp_path, [100, 200, 300]))
    assert isinstance(log, kts.PartitionLog)
    assert resolve_range(log) == (0, 2**63 - 1)
    assert resolve_range(log, starting_timestamp=150, ending_timestamp=250) == (1, 2)
    assert resolve_range(log, starting_timestamp=150, ending_timestamp=250, strict_time_range=True) == (1, 2**63 - 1)
    assert resolve_range(log, starting_offset=-1) == (3, 2**63 - 1)
    assert resolve_range(log, starting_timestamp=999, ending_timestamp=150) == (2**63 - 1, 1)


def test_a_piece_says_what_it_is_in_plain_types(tmp_path: Path) -> None:
    log = kts.open(log_of(tmp_path, [5, 6]))
    assert isinstance(log, kts.PartitionLog)
    part = plan(log, 0, 2)[0]
    assert isinstance(part, SegmentRange)
    assert all(isinstance(value, (str, int, tuple, Source)) for value in vars(part).values())
    shutil.rmtree(log.path)
    with pytest.raises(kts.LogStorageError):
        list(read_range(part))


@pytest.mark.parametrize("lost", [None, b"", b"x" * 34])
def test_a_lost_transaction_index_gives_no_aborted_record_of_an_earlier_segment(
    tmp_path: Path, lost: bytes | None
) -> None:
    """A transaction begins in a segment whose index is sound, and is aborted in the next one."""

    def batch(offset: int, producer: int, sequence: int = 0, abort: bool = False) -> bytes:
        rows = {"key": [b"\0\0\0\0"], "value": [b"\0\0\0\0\0\0"]} if abort else {"value": [b"v"]}
        return kts.encode(
            rows, base_offset=offset, producer_id=producer, producer_epoch=0, transactional=True, control=abort,
            base_sequence=-1 if abort else sequence,
        )  # fmt: skip

    path = tmp_path / "t-0"
    path.mkdir()
    first = [batch(0, 1), batch(1, 2), batch(2, 1, abort=True), batch(3, 2, 1)]
    (path / f"{0:020}.log").write_bytes(b"".join(first))
    (path / f"{0:020}.txnindex").write_bytes(TXN_ENTRY.pack(0, 1, 0, 2, 1))
    (path / f"{4:020}.log").write_bytes(batch(4, 2, abort=True) + kts.encode({"value": [b"v"]}, base_offset=5))
    if lost is not None:
        (path / f"{4:020}.txnindex").write_bytes(lost)
    found = kts.open_partition(path).scan(columns=["offset"], isolation="read_committed").read_all()
    assert found["offset"].to_pylist() == [5]
