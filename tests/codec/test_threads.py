"""Threads that use one thing at once, or each its own: the results are those of one thread.

What is shared is read as each thread gets to it; where one call runs inside another, the second says so (ValueError).
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kts
from kts import _codec
from kts._timeindex import TimeIndex
from kts.codec.columns import ALL_COLUMNS

THREADS = 8
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def in_threads(work: Callable[[int], Any]) -> list[Any]:
    """What `work` returns in each of THREADS threads, which begin together; the first error is raised."""
    start = threading.Barrier(THREADS)
    results: list[Any] = [None] * THREADS
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            start.wait()
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def records(rows: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table(
        {
            "timestamp": pa.array([1_000_000 + 7 * n % 4_001 for n in numbers], pa.int64()),
            "key": pa.array([None if n % 5 == 0 else b"k%d" % n for n in numbers], pa.binary()),
            "value": pa.array([b"%d-" % n * (n % 40) for n in numbers], pa.binary()),
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_each_thread_decodes_and_encodes_its_own(codec: str, views: bool) -> None:
    tables = [records(500 + 100 * number, first=number) for number in range(THREADS)]
    buffers = [kts.encode(table, compression=codec, batch_bytes=4096) for table in tables]
    alone = [kts.decode(buffer, ALL_COLUMNS, views=views) for buffer in buffers]
    greatest = [kts.max_timestamp(buffer) for buffer in buffers]

    def work(number: int) -> bool:
        data = buffers[number]
        for _ in range(6):
            pieces = pa.Table.from_batches(kts.iter_decode(data, ALL_COLUMNS, slice_bytes=2000, views=views))
            right = kts.decode(data, ALL_COLUMNS, views=views).equals(alone[number])
            right = right and pieces.combine_chunks().to_batches()[0].equals(alone[number])
            right = right and kts.encode(tables[number], compression=codec, batch_bytes=4096) == data
            if not right or kts.max_timestamp(data) != greatest[number]:
                return False
        return True

    assert in_threads(work) == [True] * THREADS


@pytest.mark.parametrize("codec", CODECS)
def test_threads_share_a_decoder(codec: str) -> None:
    data = kts.encode(records(4000), compression=codec, batch_bytes=1000)
    decoder = _codec.Decoder(data, bytes([0, 3, 4]), False, True, 1 << 20)
    schema = kts.decode(b"", ["offset", "key", "value"]).schema

    def work(_: int) -> list[int]:
        got: list[int] = []
        while True:
            try:
                address = decoder.next(2000)
            except ValueError as error:
                assert "another thread" in str(error)
                time.sleep(0)
                continue
            if not address:
                return got
            got += pa.RecordBatch._import_from_c(address, schema).column(0).to_pylist()

    results = in_threads(work)
    assert sorted(offset for got in results for offset in got) == list(range(4000))
    for got in results:
        assert got == sorted(got)


def test_threads_share_an_iterator() -> None:
    pieces = kts.iter_decode(kts.encode(records(4000), batch_bytes=1000), ["offset"], slice_bytes=2000)

    def work(_: int) -> list[int]:
        got: list[int] = []
        while True:
            try:
                got += next(pieces).column(0).to_pylist()
            except ValueError:  # another thread is inside
                time.sleep(0)
            except StopIteration:
                return got

    assert sorted(offset for got in in_threads(work) for offset in got) == list(range(4000))


def test_pieces_are_dropped_by_other_threads_than_made_them() -> None:
    """The memory of dropped pieces is used again, by whoever comes next: never while somebody reads it."""
    data = kts.encode(records(4000), batch_bytes=2000)
    alone = [piece.column(1).to_pylist() for piece in kts.iter_decode(data, ["offset", "value"], slice_bytes=4000)]
    kept: list[list[pa.RecordBatch]] = [[] for _ in range(THREADS)]

    def work(number: int) -> bool:
        for _ in range(5):
            for at, piece in enumerate(kts.iter_decode(data, ["offset", "value"], slice_bytes=4000)):
                kept[(number + at) % THREADS].append(piece)
                if at % 3 == 0 and kept[number]:
                    kept[number].pop()
                if piece.column(1).to_pylist() != alone[at]:
                    return False
        return True

    assert all(in_threads(work))


def test_threads_share_damage() -> None:
    data = bytearray(kts.encode(records(200), batch_bytes=500))
    data[-1] ^= 1
    with pytest.raises(kts.CorruptRecordError) as alone:
        kts.decode(data)

    def work(_: int) -> set[str]:
        found = set()
        for _ in range(200):
            with pytest.raises(kts.CorruptRecordError) as error:
                kts.decode(data)
            found.add(str(error.value))
        return found

    assert in_threads(work) == [{str(alone.value)}] * THREADS


def test_threads_share_a_time_index() -> None:
    entries = [(10 * n, 3 * n) for n in range(5000)]
    index = TimeIndex(b"".join(struct.pack(">qi", *entry) for entry in entries), 100)
    queries = np.arange(-5, 60_000, 7)
    alone = index.lookup_many(queries)

    def work(number: int) -> bool:
        for at in range(number, len(queries), 97):
            if index.lookup(int(queries[at])) != (alone[0][at], alone[1][at]):
                return False
        many = index.lookup_many(queries)
        every = index.entries()
        return all(np.array_equal(*pair) for pair in zip(many, alone, strict=True)) and len(every[0]) == 5000

    assert all(in_threads(work))
