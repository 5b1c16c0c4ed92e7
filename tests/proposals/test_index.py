"""The entries of a proposed index: their file, their order, and what every lookup promises."""

from __future__ import annotations

import random
import struct

import pytest
from support.sets.shallow_entries import MINUTE, T, of_entries

from kts.arguments import INT64_MAX, INT64_MIN
from kts.errors import CorruptIndexError
from kts.proposals.bucket_index import BucketIndex
from kts.proposals.index import IndexEntries
from kts.proposals.minute_map import MinuteMap


def test_entries_lie_in_the_file_as_the_kip_says() -> None:
    entries = IndexEntries(100)
    entries.extend([T, T + MINUTE], [100, 103])
    assert entries.to_bytes() == struct.pack(">qiqi", T, 0, T + MINUTE, 3)
    assert entries.to_bytes(1) == struct.pack(">qi", T + MINUTE, 3)
    assert IndexEntries.of_bytes(entries.to_bytes(), 100).pairs() == [(T, 100), (T + MINUTE, 103)]


@pytest.mark.parametrize(
    "data", [b"\0" * 13, struct.pack(">qi", T, -1), struct.pack(">qiqi", T, 3, T + 1, 2)], ids=["cut", "below", "falls"]
)
def test_entries_that_cannot_be_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndexError, match="expected"):
        IndexEntries.of_bytes(data, 100)


def test_an_offset_beyond_the_relative_range_is_refused_and_nothing_is_added() -> None:
    entries = IndexEntries(0)
    with pytest.raises(CorruptIndexError, match="offset 2147483648: expected 5 to 2147483647"):
        entries.extend([T, T], [5, 2**31])
    assert len(entries) == 0


def test_truncation_removes_entries_at_the_offset_and_behind() -> None:
    entries = IndexEntries(0)
    entries.extend([1, 2, 3], [5, 7, 9])
    assert not entries.truncate(10)
    assert entries.truncate(7)
    assert entries.pairs() == [(1, 5)]


@pytest.mark.parametrize("allow_negative", [False, True])
@pytest.mark.parametrize("kind", [BucketIndex, MinuteMap])
def test_nothing_that_is_left_out_is_at_or_after_the_target(
    kind: type[BucketIndex | MinuteMap], allow_negative: bool, rng: random.Random
) -> None:
    for _ in range(60):
        index = kind(allow_negative=allow_negative)
        log: dict[int, list[tuple[int, int]]] = {}
        offset = 0
        low = -20 * MINUTE if allow_negative else 0
        for _ in range(rng.randrange(1, 6)):
            base = offset
            index.create(base)
            log[base] = []
            for _ in range(rng.randrange(8)):
                times = [rng.choice([-1, low + rng.randrange(40 * MINUTE)]) for _ in range(rng.randrange(1, 5))]
                log[base] += [(time, offset + i) for i, time in enumerate(times)]
                index.add(base, of_entries(offset, times))
                offset += len(times)
            index.close(base, rng.randrange(40 * MINUTE))
            offset = max(offset, base + 1)
        if rng.random() < 0.3:
            gone = next(iter(log))
            index.remove(gone)
            del log[gone]
        for _ in range(30):
            target = low + rng.randrange(-5, 42 * MINUTE) if rng.random() < 0.9 else rng.choice([INT64_MIN, INT64_MAX])
            starts = {start.base_offset: start.offset for start in index.starts(target)}
            first = min(starts, default=None)
            for base, records in log.items():
                for time, place in records:
                    if time >= target and (time != -1 or not allow_negative):
                        assert first is not None and base in starts, (target, time, place)
                        assert starts[base] <= place, (target, time, place, starts)
