"""The memory of columns: what a caller holds stays as it is, alone or as views of the source."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest
from support.sets.batches import batches

import kts


@pytest.mark.slow
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
