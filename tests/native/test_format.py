"""Varints of every value and every width: zig-zag, at most five or ten bytes, as Java's ByteUtils reads them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from support.sets import generate

import kts

BASE_TIME = 1_000_000
NULL_KEY_NULL_VALUE_NO_HEADERS = generate.varint(-1) * 2 + generate.varint(0)
EDGES = sorted({sign * (1 << bit) + more for bit in range(64) for sign in (1, -1) for more in (-1, 0, 1)})


def one_record(time_delta: bytes, offset_delta: bytes = b"\0") -> bytes:
    """A batch of one record whose deltas are these bytes."""
    body = b"\0" + time_delta + offset_delta + NULL_KEY_NULL_VALUE_NO_HEADERS
    return generate.batch(generate.varint(len(body)) + body, 1, base=0, base_time=BASE_TIME, last_delta=2**31 - 1)


def read(data: bytes) -> tuple[int, int]:
    """Timestamp and offset of the one record."""
    [row] = kts.decode(data, ["timestamp", "offset"]).set_column(0, "timestamp", times(data)).to_pylist()
    return row["timestamp"], row["offset"]


def times(data: bytes) -> pa.Array:
    return kts.decode(data, ["timestamp"]).column(0).cast(pa.int64())


@pytest.mark.parametrize("bits", [32, 64])
def test_every_value_is_read_in_every_width_that_holds_it(bits: int) -> None:
    lowest = 0 if bits == 32 else -(2**63)  # no offset lies below its batch's
    for value in (edge for edge in EDGES if lowest <= edge < 1 << (bits - 1)):
        shortest = generate.varint(value)
        for pad in range((5 if bits == 32 else 10) - len(shortest) + 1):
            padded = generate.varint(value, pad)
            data = one_record(b"\0", padded) if bits == 32 else one_record(padded)
            expected = (BASE_TIME, value) if bits == 32 else (generate.wrap(BASE_TIME + value), 0)
            assert read(data) == expected, (value, pad)


def test_what_the_last_byte_has_beyond_the_width_is_dropped() -> None:
    assert read(one_record(b"\0", b"\x82\x80\x80\x80\x70")) == (BASE_TIME, 1)
    assert read(one_record(b"\x82" + b"\x80" * 8 + b"\x7e")) == (BASE_TIME + 1, 0)


@pytest.mark.parametrize(("where", "most"), [("offset", 5), ("time", 10)])
def test_a_varint_without_an_end_is_refused(where: str, most: int) -> None:
    endless = b"\x80" * most + b"\0"
    data = one_record(b"\0", endless) if where == "offset" else one_record(endless)
    with pytest.raises(kts.CorruptRecordError, match=f"a varint has no end within {most} bytes") as caught:
        kts.decode(data)
    assert (caught.value.reason, caught.value.record_index) == ("VARINT", 0)


@pytest.mark.parametrize("width", range(1, 5))
def test_a_varint_that_the_bytes_cut_is_refused(width: int) -> None:
    """The last field of the last record of a batch."""
    data = generate.batch(b"\x80" * width, 1)
    with pytest.raises(kts.CorruptRecordError):
        kts.decode(data)
