"""Readers beside a writer: they see whole published batches, whatever is appended, rolled, retained or truncated."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.golden import PATIENCE_S
from support.sets.log_records import NOW, Clock, batch, opened

import kts

pytestmark = pytest.mark.slow

STEPS = 150


def value_of(offset: int) -> bytes:
    return b"%012d" % offset


def check(records: bytes, first: int) -> int:
    """Whole batches, each record with the value of its offset; how many records."""
    found = kts.decode(records[: kts.valid_bytes(records)], ["offset", "value"])
    offsets, values = found.column(0).to_pylist(), found.column(1).to_pylist()
    assert offsets == sorted(offsets)
    assert not offsets or offsets[-1] >= first
    for offset, value in zip(offsets, values, strict=True):
        assert value.startswith(value_of(offset)), (offset, value)
    return len(offsets)


def test_six_readers_see_whole_batches_while_one_writes_rolls_retains_and_truncates(
    tmp_path: Path, rng: random.Random
) -> None:
    clock = Clock()
    settings = {"segment_bytes": 900, "retention_ms": 50, "file_delete_delay_ms": 0}
    log = opened(tmp_path, clock, **settings)
    done = threading.Event()
    count = [0] * 6

    def write() -> None:
        try:
            for _ in range(STEPS):
                clock.now += 1
                end = log.log_end_offset
                log.append(batch(clock.now, value=value_of(end) + b"v" * rng.randint(0, 100)))
                chance = rng.random()
                if chance < 0.05:
                    log.roll()
                elif chance < 0.10:
                    log.truncate_to(rng.randint(max(end - 5, log.log_start_offset), end))
                elif chance < 0.30:
                    log.delete_old_segments()
                elif chance < 0.32:
                    log.flush()
        finally:
            done.set()

    def read(number: int) -> None:
        own = random.Random(number)
        while not done.is_set():
            start, end = log.log_start_offset, log.log_end_offset
            try:
                first = own.randint(start, end)
                found = log.read(first, own.choice([1, 200, 5000]), min_one_message=True)
                count[number] += check(found.records, first)
                answer = log.offset_for_timestamp(clock.now - own.randint(0, 60))
                assert answer is None or answer.timestamp_ms >= NOW
            except kts.OffsetOutOfRangeError:
                pass  # taken by retention, or truncated, since we looked

    with ThreadPoolExecutor(7) as pool:
        futures = [pool.submit(write), *(pool.submit(read, number) for number in range(6))]
        for future in futures:
            future.result(timeout=PATIENCE_S)
    log.close()
    assert all(count), count
