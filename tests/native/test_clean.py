"""The filter of the cleaner, through the compiled surface: against a model in Python, and on damaged bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.damage.guard import GuardedBuffer
from support.damage.mutations import MOST_BYTES, Mutator, seed_of
from support.golden import scaled

import kts
from kts._codec import Cleaner
from kts.codec.layout import Entries

NOW, RETENTION = 5_000_000, 1000
CODECS = {0: ("none", "gzip", "snappy", "lz4"), 1: ("none", "gzip", "snappy", "lz4")}


def cleaner(start: int = 0, now: int = NOW, end: int = 2**62, verify: bool = True, keep_last: bool = True) -> Cleaner:
    return Cleaner(
        slots=1000,
        keys=900,
        secret=bytes(16),
        start=start,
        now=now,
        retention=RETENTION,
        end=end,
        verify=verify,
        keep_last=keep_last,
        none=None,
        max_decompressed_bytes=2**24,
    )


def rows(rng: random.Random, count: int, magic: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        "timestamp": [rng.randrange(NOW) for _ in range(count)],
        "key": [rng.choice([b"", b"k%d" % rng.randrange(20), b"k%d" % rng.randrange(20)]) for _ in range(count)],
        "value": [rng.choice([None, b"", rng.randbytes(rng.choice([3, 40, 300]))]) for _ in range(count)],
    }
    if magic == 2:
        headers = [{"key": "h" * rng.randrange(3), "value": rng.choice([None, b"x" * rng.randrange(200)])}]
        made["headers"] = [rng.choice([None, headers * rng.randrange(3)]) for _ in range(count)]
    return made


def seen(data: bytes) -> list[dict[str, Any]]:
    columns = ["offset", "timestamp", "key", "value", "headers", "magic"]
    return kts.decode(data, columns).to_pylist()


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_stays_is_the_last_record_of_each_key_as_it_was(magic: int, rng: random.Random) -> None:
    for _ in range(scaled(60, 600)):
        codec = rng.choice(CODECS.get(magic, ("none", "gzip", "snappy", "lz4", "zstd")))
        data = kts.encode(rows(rng, rng.randrange(1, 60), magic), magic=magic, compression=codec, batch_bytes=700)
        made, before = cleaner(), seen(data)
        made.keep_deletes(True)
        assert made.map(data) == (len(data), False)
        assert made.filter(data) == len(data)
        out = bytes(made.take())
        last = {row["key"]: row["offset"] for row in before}
        assert seen(out) == [row for row in before if last[row["key"]] == row["offset"]]
        counts = made.counts()
        assert counts["records_written"] == len(last)
        assert counts["superseded"] == len(before) - len(last)
        assert counts["bytes_read"], counts["bytes_written"] == (len(data), len(out))
        assert {entry.codec for entry in Entries(out)} <= {entry.codec for entry in Entries(data)}


def test_a_tombstone_gets_a_delete_horizon_and_goes_after_it() -> None:
    table = {"timestamp": [7, 8], "key": [b"a", b"b"], "value": [None, b"v"]}
    first = cleaner()
    data = kts.encode(table, compression="zstd")
    first.map(data)
    first.filter(data)
    out = bytes(first.take())
    [entry] = Entries(out)
    assert entry.attributes & 0x40 and entry.base_timestamp == NOW + RETENTION
    assert seen(out) == seen(data)
    for now, left in ((NOW + RETENTION - 1, 2), (NOW + RETENTION, 1)):
        second = cleaner(now=now)
        second.map(out)
        second.filter(out)
        again = bytes(second.take())
        assert len(seen(again)) == left
        assert (again == out) == (left == 2)  # what loses nothing is copied


def test_the_last_batch_of_a_pass_and_of_a_producer_is_emptied_and_the_others_go() -> None:
    one = {"timestamp": [7], "key": [b"a"], "value": [b"v"]}
    data = b"".join(
        kts.encode(one, base_offset=offset, producer_id=9, producer_epoch=1, base_sequence=offset)
        for offset in range(4)
    )
    made = cleaner(end=2)
    made.know_producers([(9, 1, 2)])
    made.map(data)
    made.filter(data)
    left = list(Entries(bytes(made.take())))
    assert [(entry.base_offset, entry.count, entry.base_sequence) for entry in left] == [
        (1, 0, 1),
        (2, 0, 2),
        (3, 1, 3),
    ]
    assert [entry.max_timestamp for entry in left] == [7, 7, 7]


def test_a_wrapper_of_another_inner_magic_is_written_anew_with_its_own() -> None:
    inner = kts.encode({"timestamp": [5], "key": [b"a"], "value": [b"v"]}, magic=0)
    outer = kts.encode({"timestamp": [5], "value": [inner]}, magic=1)
    import gzip
    import zlib

    packed = gzip.compress(inner)
    body = b"\1\1" + outer[18:26] + b"\xff\xff\xff\xff" + len(packed).to_bytes(4, "big") + packed
    data = outer[:8] + (len(body) + 4).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    made = cleaner()
    made.map(data)
    made.filter(data)
    [row] = seen(bytes(made.take()))
    assert (row["magic"], row["key"], row["value"]) == (1, b"a", b"v")


def test_damaged_bytes_are_an_error_or_entries_that_can_be_read(rng: random.Random) -> None:
    """Whatever the bytes say: no other error, and no byte behind the buffer is read."""
    seeds = []
    for magic in (0, 1, 2):
        for codec in CODECS.get(magic, ("none", "gzip", "snappy", "lz4", "zstd")):
            flags: dict[str, Any] = {"producer_id": 3, "producer_epoch": 0, "base_sequence": 0} if magic == 2 else {}
            for control in (False, True) if magic == 2 else (False,):
                flags |= {"transactional": True, "control": control} if magic == 2 else {}
                table = rows(rng, 8, magic) | ({"key": [bytes(3) + b"%c" % rng.randrange(3)] * 8} if control else {})
                seeds.append(seed_of(kts.encode(table, magic=magic, compression=codec, **flags)))
    mutator, guard, refused = Mutator(rng, seeds), GuardedBuffer(2 * MOST_BYTES), 0
    wanted = scaled(3000, 60_000)
    for number in range(wanted):
        data = guard.put(mutator.next()) if number & 1 else guard.put_first(mutator.next())
        made = cleaner(verify=rng.random() < 0.3, keep_last=rng.random() < 0.5, end=rng.choice([8, 2**62]))
        made.know_producers([(3, 0, 7)] * rng.randrange(2))
        aborted = [(3, 0, 50, 51)] * rng.randrange(2)
        try:
            made.add_aborted(aborted)
            made.map(data)
            made.begin()
            made.add_aborted(aborted)
            made.filter(data)
        except kts.KtsError:
            refused += 1
            continue
        out = bytes(made.take())
        assert Entries(out).end == len(out)
    assert 0 < refused < wanted
