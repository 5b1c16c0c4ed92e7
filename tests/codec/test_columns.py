"""The Python surface of decoding: arguments, columns, views, pieces, threads, errors."""

from __future__ import annotations

import gc
import pickle
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kts
from kts.codec.columns import BATCH_COLUMNS

DAY = 86_400_000


def batches(count: int = 40, **how: Any) -> bytes:
    columns = {
        "timestamp": pa.array([1_600_000_000_000 + i for i in range(count)], pa.int64()),
        "key": [b"key-%d" % i if i % 3 else None for i in range(count)],
        "value": [b"value of record number %d" % i * (i % 4) for i in range(count)],
        "headers": [[(f"h{i}", b"%d" % i)] if i % 5 == 0 else None for i in range(count)],
    }
    return kts.encode(columns, **{"batch_bytes": 300, **how})


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


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: pa.py_buffer(data)])
def test_any_contiguous_buffer_is_read(wrap: Any) -> None:
    data = batches()
    assert kts.decode(wrap(data)).equals(kts.decode(data))
    assert kts.valid_bytes(wrap(data)) == len(data)


def test_views_keep_the_source_alive_and_copies_do_not() -> None:
    source = bytearray(batches(compression="none"))
    copied = kts.decode(source)
    views = kts.decode(source, views=True)
    with pytest.raises(BufferError):
        source.extend(b"x")
    value = views.column("value")
    del views
    gc.collect()
    assert value.cast(pa.binary()).equals(copied.column("value"))
    del value
    gc.collect()
    source.extend(b"x")


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_views_are_what_copies_are(compression: str) -> None:
    data = batches(500, compression=compression) + batches(7)
    copied, views = kts.decode(data, kts.ALL_COLUMNS), kts.decode(data, kts.ALL_COLUMNS, views=True)
    views.validate(full=True)
    assert pa.RecordBatch.from_arrays(
        [c.cast(k) for c, k in zip(views.columns, copied.schema.types, strict=True)], schema=copied.schema
    ).equals(copied)


@pytest.mark.parametrize("slice_bytes", [1, 299, 1000, 10**9])
@pytest.mark.parametrize("views", [False, True])
def test_pieces_are_whole_batches_and_all_of_the_buffer(slice_bytes: int, views: bool) -> None:
    data = batches(300)
    starts = set(kts.scan_batches(data).column("position").to_pylist())
    pieces = list(kts.iter_decode(data, ["position", "value"], slice_bytes=slice_bytes, views=views))
    assert all(piece.num_rows and piece.column("position")[0].as_py() in starts for piece in pieces)
    whole = pa.Table.from_batches([kts.decode(data, ["position", "value"], views=views)])
    assert pa.Table.from_batches(pieces).combine_chunks().equals(whole.combine_chunks())


def test_a_piece_stays_as_it_is_while_later_ones_are_read() -> None:
    data = batches(3000)
    held = list(kts.iter_decode(data, slice_bytes=2000))
    again = kts.iter_decode(data, slice_bytes=2000)
    for piece in held:
        fresh = next(again)
        assert fresh.equals(piece)
        del fresh  # its memory is used for the next one, never that of a held piece


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


def test_an_error_tells_the_record_and_survives_pickling() -> None:
    data = bytearray(kts.encode({"value": [b"a", b"b", b"c"]}))
    third = data.rindex(b"c")
    data[third - 1] = 0x7E  # its value's length
    with pytest.raises(kts.CorruptRecordError, match="record 2 of 3: value length 63 exceeds the 2 bytes left") as e:
        kts.decode(data, verify_crc=False)
    assert (e.value.code, e.value.position, e.value.offset, e.value.record_index) == (2, 0, 0, 2)
    copy = pickle.loads(pickle.dumps(e.value))
    assert (str(copy), copy.position, copy.record_index) == (str(e.value), 0, 2)


def test_what_holds_a_buffer_says_so_when_it_is_pickled() -> None:
    data = batches(3)
    for holder in (kts.iter_decode(data), kts.TimeIndex(b"", 0), kts.OffsetIndex(b"", 0)):
        with pytest.raises(TypeError, match="holds a buffer and cannot be pickled; send the bytes"):
            pickle.dumps(holder)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_the_bound_is_exact_and_names_its_setting(compression: str) -> None:
    data = kts.encode({"value": [bytes(100_000)]}, compression=compression)
    size = len(kts.encode({"value": [bytes(100_000)]})) - 61
    assert kts.decode(data, max_decompressed_bytes=size).num_rows == 1
    with pytest.raises(kts.DecompressionLimitError, match="max_decompressed_bytes"):
        kts.decode(data, max_decompressed_bytes=size - 1)


def test_a_decoder_is_shared_by_threads_without_harm() -> None:
    data = batches(20_000)
    pieces = kts.iter_decode(data, ["offset"], slice_bytes=5000)
    lock, got, errors = threading.Lock(), [], []

    def work() -> None:
        while True:
            try:
                piece = next(pieces, None)
            except ValueError:  # "generator already executing": another thread is inside
                continue
            except BaseException as error:
                errors.append(error)
                return
            if piece is None:
                return
            with lock:
                got.extend(piece.column(0).to_pylist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(got) == list(range(20_000))


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
