"""The offset map of the cleaner, through the compiled surface: which keys it has, when it is full."""

from __future__ import annotations

import random

import pytest

import kts
from kts._codec import SLOT_BYTES, Cleaner


def cleaner(slots: int, keys: int, start: int = 0) -> Cleaner:
    return Cleaner(
        slots=slots,
        keys=keys,
        secret=bytes(16),
        start=start,
        now=1000,
        retention=0,
        end=2**62,
        verify=True,
        keep_last=True,
        none=None,
        max_decompressed_bytes=2**27,
    )


def batches(keys: list[bytes]) -> bytes:
    return kts.encode({"timestamp": [1] * len(keys), "key": keys, "value": [b"v"] * len(keys)})


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9, 1.0])
def test_the_map_has_the_last_offset_of_each_key_at_any_load(load: float, rng: random.Random) -> None:
    keys = [rng.randbytes(rng.randrange(24)) for _ in range(30_000)]
    last = {key: offset for offset, key in enumerate(keys)}
    slots = max(int(len(last) / load), len(last))
    made = cleaner(slots, slots)
    data = batches(keys)
    assert made.map(data) == (len(data), False) or load == 1.0
    assert made.keys == len(last)
    made.latest = len(keys) - 1
    assert made.filter(data) == len(data)
    kept = kts.decode(bytes(made.take()), ["offset", "key"])
    assert kept.column(0).to_pylist() == sorted(last.values())
    assert all(last[row["key"]] == row["offset"] for row in kept.to_pylist())


def test_keys_that_differ_in_one_bit_or_in_length_are_different(rng: random.Random) -> None:
    base = rng.randbytes(16)
    keys = [base, *(base[:n] for n in range(16)), *(base + bytes(n) for n in range(1, 9))]
    keys += [(int.from_bytes(base) ^ 1 << bit).to_bytes(16) for bit in range(128)]
    made = cleaner(4096, 4096)
    made.map(batches(keys))
    assert made.keys == len(set(keys)) == len(keys)


def test_a_full_map_stops_before_the_next_key_also_if_it_has_it() -> None:
    made = cleaner(10, 3)
    keys = [b"a", b"b", b"a", b"c", b"a", b"d"]
    assert made.map(batches(keys)) == (0, True)
    assert (made.keys, made.latest) == (3, 3)  # not the third a, which the map would have had room for


def test_records_below_the_first_dirty_offset_are_not_mapped() -> None:
    made = cleaner(10, 9, start=2)
    data = batches([b"a", b"b", b"c"])
    assert made.map(data) == (len(data), False)
    assert (made.keys, made.latest) == (1, 2)


def test_a_slot_has_24_bytes_as_kafkas() -> None:
    assert SLOT_BYTES == 24


@pytest.mark.parametrize(("slots", "keys"), [(0, 0), (1, 2), (2**31, 1), (5, -1)])
def test_an_impossible_size_is_refused(slots: int, keys: int) -> None:
    with pytest.raises((ValueError, OverflowError), match="slots|int"):
        cleaner(slots, keys)
