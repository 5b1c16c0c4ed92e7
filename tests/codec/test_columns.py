"""The Python surface of decoding: arguments, columns, views, pieces, threads, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.sets.batches import batches

import kts
from kts.codec.columns import BATCH_COLUMNS

DAY = 86_400_000


def test_none_means_the_first_six_columns_and_a_list_gives_those_named() -> None:
    data = batches()
    assert kts.decode(data).schema.names == ["offset", "timestamp", "timestampType", "key", "value", "headers"]
    assert kts.decode(data, ["value", "offset"]).schema.names == ["value", "offset"]
    assert kts.decode(data, []).schema.names == []
    everything = kts.decode(data, kts.ALL_COLUMNS)
    for name in kts.ALL_COLUMNS:
        assert kts.decode(data, [name]).column(0).equals(everything.column(name)), name


def test_column_types_are_the_pinned_ones() -> None:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    time = pa.timestamp("ms", tz="UTC")
    copied = [pa.int64(), time, pa.int32(), pa.binary(), pa.binary(), header, pa.int8(), pa.int8(), pa.int64()]
    copied += [pa.int16(), pa.int32(), pa.int32(), pa.bool_(), pa.bool_(), pa.int64(), time]
    copied += [pa.int64(), pa.int32(), pa.int16(), pa.int64(), pa.int64()]
    copied += [pa.dictionary(pa.int8(), pa.string()), pa.bool_()]
    assert kts.decode(b"", kts.ALL_COLUMNS).schema.types == copied
    views = [pa.binary_view() if kind == pa.binary() else kind for kind in copied]
    assert kts.decode(b"", kts.ALL_COLUMNS, views=True).schema.types == views
    assert tuple(kts.scan_batches(b"").schema.names) == BATCH_COLUMNS


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: kts.decode(b"", ["offsets"]), ValueError, "offsets"),
        (lambda: kts.decode(b"", ["offset", "offset"]), ValueError, "repeated"),
        (lambda: kts.decode(b"", "offset"), TypeError, "columns"),
        (lambda: kts.decode(b"", [1]), TypeError, "columns"),
        (lambda: kts.decode(b"", 3), TypeError, "columns"),
        (lambda: kts.decode(np.zeros(8, np.int8)[::2]), TypeError, "buf"),
        (lambda: kts.decode("text"), TypeError, "buf"),
        (lambda: kts.decode(None), TypeError, "buf"),
        (lambda: kts.decode(memoryview(b"abcd")[::2]), TypeError, "buf"),
        (lambda: kts.decode(b"", max_decompressed_bytes=-1), ValueError, "max_decompressed_bytes"),
        (lambda: kts.decode(b"", max_decompressed_bytes="1"), TypeError, "max_decompressed_bytes"),
        (lambda: kts.iter_decode(b"", slice_bytes=0), ValueError, "slice_bytes"),
        (lambda: kts.iter_decode(b"", slice_bytes=1.5), TypeError, "slice_bytes"),
        (lambda: kts.scan_batches(5), TypeError, "buf"),
        (lambda: kts.valid_bytes(5), TypeError, "buf"),
        (lambda: kts.max_timestamp(5), TypeError, "buf"),
    ],
)
def test_a_wrong_argument_is_named(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_damage_raises_after_the_pieces_before_it_and_decode_returns_nothing() -> None:
    data = bytearray(batches(300))
    scan = kts.scan_batches(data)
    bad = scan.num_rows // 2
    position = scan.column("position")[bad].as_py()
    data[position + 70] ^= 1
    first_bad = scan.column("baseOffset")[bad].as_py()
    for slice_bytes in (1, 1000, 10**9):
        got = []
        with pytest.raises(kts.CorruptRecordError) as caught:
            for piece in kts.iter_decode(data, ["offset"], slice_bytes=slice_bytes):
                got += piece.column(0).to_pylist()
        assert got == list(range(first_bad))
        assert (caught.value.position, caught.value.offset) == (position, first_bad)
    with pytest.raises(kts.CorruptRecordError, match=r"CRC.*expected.*at position"):
        kts.decode(data)
    flags = kts.scan_batches(data).column("crcOk").to_pylist()
    assert flags == [row != bad for row in range(scan.num_rows)]


def test_max_timestamp_is_the_first_record_with_the_greatest() -> None:
    times = [5, 9, 3, 9, -7, -1]
    for magic, shallow in ((1, 101), (2, 105)):
        data = kts.encode({"timestamp": pa.array(times, pa.int64())}, magic=magic, base_offset=100)
        assert kts.max_timestamp(data) == (9, 101, shallow)
    assert kts.max_timestamp(kts.encode({"timestamp": pa.array([-1, -5], pa.int64())})) == (-1, -1, -1)
    assert kts.max_timestamp(kts.encode({"value": [b"x"]}, magic=0)) == (-1, -1, -1)
    assert kts.max_timestamp(b"") == (-1, -1, -1)


def test_the_create_time_is_kept_under_log_append_time() -> None:
    data = batches(10, timestamp_type="LogAppendTime", log_append_time_ms=DAY, compression="lz4")
    decoded = kts.decode(data, ["timestamp", "createTimestamp", "timestampType"])
    assert set(decoded.column(0).cast(pa.int64()).to_pylist()) == {DAY}
    assert decoded.column(1).cast(pa.int64()).to_pylist() == [1_600_000_000_000 + i for i in range(10)]
    assert set(decoded.column(2).to_pylist()) == {1}


def test_a_plain_message_under_log_append_time_has_no_create_time() -> None:
    """It has room for one time, which the append time replaced; a wrapper's messages and records keep their own."""
    stamped = {"timestamp_type": "LogAppendTime", "log_append_time_ms": DAY}
    rows = {"timestamp": [5, -1, -7], "value": [b"a", b"b", b"c"]}
    plain = kts.encode(rows, magic=1, **stamped)
    parts = {
        plain: [None] * 3,
        kts.encode(rows, magic=1, compression="gzip", **stamped): [5, -1, -7],
        kts.encode(rows, magic=2, **stamped): [5, -1, -7],
        kts.encode(rows, magic=1): [5, -1, -7],
        kts.encode(rows, magic=0): [-1] * 3,
    }
    data = b"".join(parts) + plain
    expected = [time for times in parts.values() for time in times] + [None] * 3
    for names in (["createTimestamp"], ["value", "createTimestamp", "baseOffset"], list(kts.ALL_COLUMNS)):
        for views in (False, True):
            found = kts.decode(data, names, views=views)["createTimestamp"]
            assert (found.cast(pa.int64()).to_pylist(), found.null_count) == (expected, 6)
    pieces = [piece["createTimestamp"] for piece in kts.iter_decode(data, ["createTimestamp"], slice_bytes=1)]
    assert pa.chunked_array(pieces).cast(pa.int64()).to_pylist() == expected
    assert kts.encode(kts.decode(data, kts.ALL_COLUMNS), preserve_batches=True) == data
    converted = kts.decode(kts.convert(plain, 2), ["timestamp", "createTimestamp"])  # a record must have one
    assert converted["createTimestamp"].cast(pa.int64()).to_pylist() == [DAY] * 3


WRITTEN = [
    (magic, name)
    for magic in (0, 1, 2)
    for name in ("none", "gzip", "snappy", "lz4", "zstd")
    if magic == 2 or name != "zstd"
]


@pytest.mark.parametrize("views", [False, True])
def test_the_name_of_a_codec_is_a_column(views: bool) -> None:
    data = b"".join(kts.encode({"value": [b"a", b"b"]}, magic=magic, compression=name) for magic, name in WRITTEN)
    names = [name for _, name in WRITTEN for _ in range(2)]
    assert kts.decode(data, ["codecName"], views=views).column(0).to_pylist() == names
    pieces = list(kts.iter_decode(data, ["value", "codecName", "codec"], slice_bytes=1, views=views))
    assert [one for piece in pieces for one in piece.column("codecName").to_pylist()] == names
    assert all(piece.schema.names == ["value", "codecName", "codec"] for piece in pieces)
