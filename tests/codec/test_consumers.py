"""Tables in other libraries' hands (polars, DuckDB, Arrow's C interfaces) when what they came from is gone."""

from __future__ import annotations

import gc
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

import kts

pytestmark = pytest.mark.slow

ROWS = 20_000
VALUES = [b"a value that is longer than a view holds inline %d" % number for number in range(ROWS)]
ENCODED = kts.encode(
    {
        "timestamp": list(range(ROWS)),
        "value": VALUES,
        "headers": pa.array([[("h", value)] for value in VALUES], pa.map_(pa.string(), pa.binary())),
    },
    compression="none",
)


def churn() -> None:
    """Use again what memory is free."""
    gc.collect()
    for size in (1 << 12, 1 << 16, 1 << 20, len(ENCODED)):
        [bytearray(b"\xaa" * size) for _ in range(8)]
    gc.collect()


def capsules(batch: pa.RecordBatch) -> Callable[[], list[bytes]]:
    """What is left of a batch is in the C structures."""
    held = batch.__arrow_c_array__()
    return lambda: pa.RecordBatch._import_from_c_capsule(*held)["value"].to_pylist()


def in_polars(batch: pa.RecordBatch) -> Callable[[], list[bytes]]:
    frame = polars.from_arrow(batch)
    return lambda: frame["value"].to_list()


def in_duckdb(batch: pa.RecordBatch) -> Callable[[], list[bytes]]:
    """A relation that is not run before it is asked."""
    connection = duckdb.connect()
    relation = connection.from_arrow(pa.table(batch)).project("value")
    return lambda: [value for (value,) in relation.fetchall()]


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("hand_over", [capsules, in_polars, in_duckdb])
def test_a_consumer_keeps_what_it_reads(hand_over: Callable[[Any], Callable[[], list[bytes]]], views: bool) -> None:
    """The buffer, the batch and the iterator are dropped, and their memory is used again."""
    held = hand_over(kts.decode(bytearray(ENCODED), views=views))
    pieces = [hand_over(piece) for piece in kts.iter_decode(bytearray(ENCODED), views=views, slice_bytes=1 << 18)]
    churn()
    assert len(pieces) > 3
    assert held() == VALUES
    assert [value for piece in pieces for value in piece()] == VALUES


def test_a_buffer_that_views_need_cannot_be_resized() -> None:
    buffer = bytearray(ENCODED)
    held = polars.from_arrow(kts.decode(buffer, ["value"], views=True))
    with pytest.raises(BufferError):
        buffer.clear()
    del held
    gc.collect()
    buffer.clear()


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition of several segments."""
    with kts.Log(tmp_path / "data" / "t-0", {"segment.bytes": 300_000, "retention.ms": -1}) as log:
        for piece in range(0, ROWS, 1000):
            log.append(kts.encode({"value": VALUES[piece : piece + 1000]}, batch_bytes=1 << 20))
        assert len(log.segments) > 3
    return tmp_path / "data" / "t-0"


def streamed(partition: Path) -> pa.RecordBatchReader:
    return kts.scan(partition, columns=["value"], batch_bytes=65536)


def test_a_stream_lives_on_when_its_python_objects_are_gone(partition: Path) -> None:
    held = streamed(partition).__arrow_c_stream__()
    churn()
    assert polars.from_arrow(pa.RecordBatchReader._import_from_c_capsule(held))["value"].to_list() == VALUES
    churn()
    assert polars.DataFrame(streamed(partition))["value"].to_list() == VALUES
    reader = streamed(partition)
    assert duckdb.connect().from_arrow(reader).aggregate("count(*), count(distinct value)").fetchall() == [(ROWS, ROWS)]


def test_a_stream_gives_its_rows_once(partition: Path) -> None:
    reader = streamed(partition)
    assert polars.from_arrow(reader)["value"].to_list() == VALUES
    assert reader.read_all().num_rows == 0


@pytest.mark.parametrize("what", ["deleted", "truncated"])
def test_batches_stay_when_their_files_go(partition: Path, what: str) -> None:
    """What was given is kept; what is gone is told, or left out with a warning that names the file."""
    reader = streamed(partition)
    first = polars.from_arrow(reader.read_next_batch())
    logs = sorted(partition.glob("*.log"))
    for log in logs[1:]:
        os.truncate(log, log.stat().st_size // 2) if what == "truncated" else log.unlink()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            rest = [value for piece in reader for value in piece["value"].to_pylist()]
        except kts.KtsError as error:
            assert what == "truncated" and error.path in map(str, logs)
            rest = []
    churn()
    found = first["value"].to_list()
    assert found == VALUES[: len(found)] and found
    if what == "deleted":
        assert {str(one.message).split(": ")[0] for one in told} == set(map(str, logs[1:]))
    assert set(rest) <= set(VALUES)


@pytest.mark.parametrize(
    "consume", [polars.from_arrow, polars.DataFrame, lambda each: duckdb.from_arrow(each).fetchall()]
)
def test_damage_behind_the_first_batches_is_an_error_in_the_consumer_too(
    partition: Path, consume: Callable[[Any], Any]
) -> None:
    """Never a shorter table."""
    last = max(partition.glob("*.log"))
    data = bytearray(last.read_bytes())
    data[-100] ^= 1
    last.write_bytes(data)
    with pytest.raises(Exception, match=f"CRC.*{last.name}"):
        consume(streamed(partition))


def test_a_partition_that_is_removed_is_an_error_before_the_first_row(partition: Path) -> None:
    reader = streamed(partition)
    shutil.rmtree(partition)
    with pytest.raises(kts.LogStorageError, match="No such file"):
        reader.read_all()
