"""Sets for clients of an older magic, as ``downconversion`` makes them from the bytes of a log."""

from __future__ import annotations

import random
import struct
from typing import Any

import lz4.frame
import pytest

import kts
from kts.behaviour import Behaviour, TimeRules
from kts.broker.downconversion import PSEUDO_ENTRY, DownConverted, down_convert, needs_conversion

Rows = list[tuple[int, int, bytes | None, bytes | None]]


def batch(first: int, count: int, codec: str = "none", *, magic: int = 2, value: bytes = b"v", **more: Any) -> bytes:
    numbers = range(first, first + count)
    times, keys = [1000 + at for at in numbers], [b"k%d" % at for at in numbers]
    rows = {"timestamp": times, "key": keys, "value": [value] * count}
    return kts.encode(rows, magic=magic, compression=codec, base_offset=first, batch_bytes=2**20, **more)


def seen(data: bytes) -> Rows:
    table = kts.decode(data, ["offset", "timestamp", "key", "value"])
    times = table.column("timestamp").cast("int64").to_pylist()
    rest = (table.column(name).to_pylist() for name in ("key", "value"))
    return list(zip(table.column("offset").to_pylist(), times, *rest, strict=True))


def magics(data: bytes) -> set[int]:
    return set(kts.scan_batches(data).column("magic").to_pylist())


def test_what_the_client_can_read_stays_as_it_is() -> None:
    data = batch(0, 3, magic=0) + batch(3, 3, "gzip", magic=1) + batch(6, 1, magic=1)[:-3]
    assert not needs_conversion(data, 1)
    assert down_convert(data, 1, 0) == DownConverted(data)
    assert needs_conversion(data, 0)
    assert down_convert(b"", 0, 5) == DownConverted(b"")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_offsets_keys_values_stay_and_times_as_far_as_the_magic_has_them(codec: str) -> None:
    appended: Any = {"timestamp_type": "LogAppendTime", "log_append_time_ms": 77}
    for data in (batch(0, 4, codec), batch(4, 3, codec, **appended)):
        whole = seen(data)
        for magic in (0, 1):
            done = down_convert(data + b"cut", magic, 0)
            wanted = whole if magic else [(row[0], -1, *row[2:]) for row in whole]
            assert (seen(done.records), magics(done.records)) == (wanted, {magic})
            assert (done.messages, done.bytes_in) == (len(whole), len(data))


def test_magic_1_becomes_one_set_for_0_10_2_and_keeps_its_entries_for_3_9() -> None:
    data = batch(0, 3, "gzip", magic=1) + batch(3, 2, magic=1) + batch(5, 2, "snappy", magic=1)
    for generation, codecs in (("0.10.2", [1]), ("3.9", [1, 0, 0, 2])):
        done = down_convert(data, 0, 0, Behaviour.of(generation))
        table = kts.scan_batches(done.records)
        assert (table.column("codec").to_pylist(), done.messages) == (codecs, 7)
        assert seen(done.records) == [(row[0], -1, *row[2:]) for row in seen(data)]


def test_lz4_of_magic_0_has_the_broken_header_checksum() -> None:
    """KIP-57: clients up to 0.9 count the magic number into it."""
    for data in (batch(0, 5, "lz4"), batch(0, 5, "lz4", magic=1)):
        record = down_convert(data, 0, 0).records
        value = record[record.index(struct.pack("<I", 0x184D2204)) :]
        with pytest.raises(RuntimeError, match="headerChecksum"):
            lz4.frame.decompress(value)
    magic1 = down_convert(batch(0, 5, "lz4"), 1, 0).records
    assert lz4.frame.decompress(magic1[magic1.index(struct.pack("<I", 0x184D2204)) :])


def test_uncompressed_records_below_the_fetch_offset_are_left_out_and_compressed_ones_stay() -> None:
    assert [row[0] for row in seen(down_convert(batch(0, 5), 1, 3).records)] == [3, 4]
    assert [row[0] for row in seen(down_convert(batch(0, 5, "lz4"), 1, 3).records)] == [0, 1, 2, 3, 4]


def test_what_cannot_be_converted_is_told_only_when_it_comes_first() -> None:
    zstd, sound = batch(2, 2, "zstd"), batch(0, 2)
    with pytest.raises(kts.UnsupportedCompressionTypeError):
        down_convert(zstd, 1, 2)
    assert [row[0] for row in seen(down_convert(sound + zstd, 1, 0).records)] == [0, 1]
    damaged = bytearray(batch(2, 2))
    damaged[-1] ^= 1
    with pytest.raises(kts.CorruptRecordError):
        down_convert(bytes(damaged), 0, 2)
    assert [row[0] for row in seen(down_convert(sound + bytes(damaged), 0, 0).records)] == [0, 1]


def test_where_nothing_can_be_sent_the_client_gets_a_cut_entry() -> None:
    marker = kts.encode(
        {"timestamp": [5], "key": [b"\0\0\0\1"], "value": [b"\0\0\0\0\0\0"]},
        control=True, transactional=True, producer_id=1, producer_epoch=0,
    )  # fmt: skip
    assert down_convert(marker + batch(1, 9)[:-1], 1, 0).records == PSEUDO_ENTRY
    assert kts.valid_bytes(PSEUDO_ENTRY) == 0
    for cut in (batch(0, 9)[:-1], batch(0, 9)[:20], batch(0, 9)[:5]):
        assert down_convert(cut, 1, 0) == DownConverted(cut)
    assert down_convert(marker + batch(1, 1), 0, 0).records != PSEUDO_ENTRY


def test_a_set_grows_no_larger_than_the_log_gave_but_for_its_first_batch(rng: random.Random) -> None:
    """Small records need more bytes in old magics; a client goes on from what it got."""
    sizes = [rng.randrange(1, 400) for _ in range(30)]
    data, offset, edges = b"", 0, []
    for count in sizes:
        edges.append((len(data), offset))
        data += batch(offset, count, rng.choice(["none", "lz4", "gzip"]), value=b"")
        offset += count
    for magic in (0, 1):
        got, position, rounds = list[tuple[int, ...]](), 0, 0
        while position < offset:
            start = max(at for at, first in edges if first <= position)
            limit = rng.choice([400, 5000, 10**6])
            given = data[start : start + limit]
            done = down_convert(given, magic, position)
            if not kts.valid_bytes(done.records):
                assert not kts.valid_bytes(given)
                continue
            first = given[: kts.scan_batches(given).column("sizeInBytes")[0].as_py()]
            one = len(down_convert(first, magic, 0).records)
            assert len(done.records) <= max(len(given), one)
            rows = [row for row in seen(done.records) if row[0] >= position]
            got += rows
            position = rows[-1][0] + 1
            rounds += 1
        assert [row[0] for row in got] == list(range(offset))
        assert rounds > 2


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_times_before_1970_are_sent_where_the_topic_allows_them(codec: str) -> None:
    """An old client of such a topic got an error, and waited for ever."""
    data = kts.encode({"timestamp": [-386_380_800_000, -5, 7], "value": [b"v"] * 3}, compression=codec)
    with pytest.raises(kts.KtsError, match="lies before 1970"):
        down_convert(data, 1, 0)
    done = down_convert(data, 1, 0, Behaviour.of("3.9", times=TimeRules(before_1970=True))).records
    assert (seen(done), magics(done)) == (seen(data), {1})
