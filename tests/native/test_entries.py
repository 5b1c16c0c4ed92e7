"""The walk over entries: where each begins, which sizes and magics stop it, and what is a cut tail."""

from __future__ import annotations

import random
import struct

import pytest
from support.reference import reference
from support.sets import generate

import kts
from kts.codec.layout import Entries

SOUND = generate.message(7, 1, 0, 5, b"k", b"v")


def changed(entry: bytes, *, size: int | None = None, magic: int | None = None) -> bytes:
    out = bytearray(entry)
    if size is not None:
        struct.pack_into(">i", out, 8, size)
    if magic is not None:
        out[16] = magic
    return bytes(out)


def test_every_entry_begins_where_the_size_before_it_says(rng: random.Random) -> None:
    for _ in range(50):
        data, _ = generate.random_buffer(rng)
        walked = [(entry.position, entry.size, entry.magic) for entry in Entries(data)]
        assert walked == [tuple(entry) for entry in reference.entries(data)]
        assert walked[-1][0] + walked[-1][1] == kts.valid_bytes(data) <= len(data)


@pytest.mark.parametrize(
    ("bad", "reason", "words"),
    [
        (changed(SOUND, size=13), "BAD_SIZE", "size 13 is below"),
        (changed(SOUND, size=-1), "BAD_SIZE", "size -1 is below"),
        (changed(SOUND, size=2**31 - 1), "SIZE_OVERFLOW", "size 2147483647 exceeds"),
        (changed(SOUND, size=2**31 - 12), "SIZE_OVERFLOW", "size 2147483636 exceeds"),
        (changed(SOUND, magic=3), "BAD_MAGIC", "magic 3 is unknown"),
        (changed(SOUND, magic=255), "BAD_MAGIC", "magic -1 is unknown"),
        (changed(SOUND, size=21), "SHORT_MESSAGE", "message size 21 is below the 22"),
        (changed(SOUND, magic=2), "SHORT_BATCH", "batch length 24 is below the 49"),
    ],
)
def test_a_size_or_magic_that_no_entry_has_stops_the_walk(bad: bytes, reason: str, words: str) -> None:
    data = SOUND + bad + SOUND
    for walk in (kts.valid_bytes, kts.scan_batches, kts.decode, kts.max_timestamp, Entries):
        if walk is kts.valid_bytes and reason.startswith("SHORT"):
            continue  # it looks at sizes and magics alone
        with pytest.raises(kts.CorruptRecordError, match=words) as caught:
            walk(data)
        assert (caught.value.reason, caught.value.position, caught.value.offset) == (reason, len(SOUND), 7)
    before = Entries(data, until_damage=True)
    assert [entry.position for entry in before] == [0]


def test_the_largest_size_that_kafka_can_hold_is_a_cut_tail() -> None:
    assert kts.valid_bytes(SOUND + changed(SOUND, size=2**31 - 13)) == len(SOUND)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_an_entry_is_a_cut_tail_until_its_last_byte_is_there(magic: int) -> None:
    entry = kts.encode({"value": [b"v" * 40]}, magic=magic, base_offset=8)
    for length in range(len(entry)):
        data = SOUND + entry[:length]
        assert kts.valid_bytes(data) == Entries(data).end == len(SOUND)
        assert kts.scan_batches(data).num_rows == kts.decode(data).num_rows == 1
    assert kts.valid_bytes(SOUND + entry) == len(SOUND) + len(entry)


def test_a_stray_magic_byte_counts_only_once_it_is_there() -> None:
    """Up to 16 bytes say nothing of their magic: a cut tail. The seventeenth decides."""
    bad = changed(SOUND, magic=9)
    assert kts.valid_bytes(SOUND + bad[:16]) == len(SOUND)
    with pytest.raises(kts.CorruptRecordError, match="magic 9"):
        kts.valid_bytes(SOUND + bad[:17])
