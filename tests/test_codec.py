"""The surface of the compiled core: buffers, decompression within bounds, threads, and each codec's odd payloads, which
are read as Kafka reads them or refused (see ``streams``)."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pyarrow as pa
import pytest
from support.reference import reference
from support.sets import generate
from support.sets.batches import batches
from support.sets.codec_streams import READ, TABLES, Case, batch_of, frame, packed, stored

import kts


def cases() -> list[object]:
    return [
        pytest.param(codec, case, id=f"{name}: {case.name}")
        for name, (codec, table) in TABLES.items()
        for case in table
    ]


@pytest.mark.parametrize(("codec", "case"), cases())
def test_a_payload_is_read_as_kafka_reads_it_or_refused(codec: int, case: Case) -> None:
    data = batch_of(codec, case)
    values = [b"v", b"V"][: case.count]
    if case.verdict == READ:
        assert [row["value"] for row in reference.decode(data)] == values
        assert kts.decode(data, ["value"]).column(0).to_pylist() == values
        assert kts.decode(data, ["value"], views=True).column(0).to_pylist() == values
    else:
        with pytest.raises(reference.Corrupt):
            reference.decode(data)
        with pytest.raises(kts.CorruptRecordError) as caught:
            kts.decode(data)
        assert caught.value.position == 0
        with pytest.raises(kts.CorruptRecordError):
            kts.decode(data, views=True)


@pytest.mark.parametrize("check", [0x82, 0x1A, 0x77])
def test_any_lz4_header_checksum_is_read_in_magic_0_and_only_the_right_one_in_magic_1(check: int) -> None:
    for magic in (0, 1):
        inner = generate.message(3, magic, 0, 7, b"k", b"v")
        data = generate.message(3, magic, 3, 7, None, frame(stored(inner), check=check))
        if magic == 0 or check == 0x82:
            assert kts.decode(data, ["offset", "value"]).to_pylist() == [{"offset": 3, "value": b"v"}]
        else:
            with pytest.raises(kts.CorruptRecordError):
                kts.decode(data)


def test_an_lz4_match_at_distance_0_is_zeros() -> None:
    """The LZ4 library's answer, in Java and in Python."""
    record = generate.record(0, 0, generate.Rec(0, 0, b"k", bytes(40)))
    literals = record[:-41]
    block = bytes([len(literals) << 4 | 15]) + literals + b"\0\0" + bytes([36 - 15 - 4]) + b"\x50" + bytes(5)
    data = generate.batch(frame(packed(block)), 1, attributes=3)
    assert [row["value"] for row in reference.decode(data)] == [bytes(40)]
    assert kts.decode(data, ["value"]).column(0).to_pylist() == [bytes(40)]


# --- buffers, bounds, threads ------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: pa.py_buffer(data)])
def test_any_contiguous_buffer_is_read(wrap: Any) -> None:
    data = batches()
    assert kts.decode(wrap(data)).equals(kts.decode(data))
    assert kts.valid_bytes(wrap(data)) == len(data)


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
