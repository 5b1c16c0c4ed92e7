"""The table of entries says what the headers say, whichever way it is asked."""

from __future__ import annotations

import random

import numpy as np
import pytest

import kts
from kts.codec import layout
from kts.codec.layout import ENTRY, HEADER_BYTES, SMALLEST_ENTRY_BYTES, Entries, read_header
from kts.errors import CorruptRecordError

NAMES = {
    "sizeInBytes": "size",
    "timestampType": "timestamp_type",
    "partitionLeaderEpoch": "leader_epoch",
    "crcOk": "crc_ok",
}


def snake(name: str) -> str:
    """``baseOffset`` is ``base_offset``."""
    return NAMES.get(name) or "".join("_" + c.lower() if c.isupper() else c for c in name)


def some_entries(seed: int) -> bytes:
    """Entries of all magics, plain and compressed, transactional and not."""
    rng = random.Random(seed)
    data, offset = b"", 0
    for _ in range(rng.randrange(1, 100)):
        magic = rng.choice((0, 1, 2, 2))
        count = rng.randrange(1, 5)
        rows = {
            "offset": list(range(offset, offset + count)),
            "timestamp": [rng.randrange(2**40) for _ in range(count)],
            "value": [rng.randbytes(rng.randrange(50)) for _ in range(count)],
        }
        codec = rng.choice(("none", "gzip", "snappy"))
        producer = {"producer_id": rng.randrange(9), "producer_epoch": 3, "base_sequence": 7} if magic == 2 else {}
        data += kts.encode(rows, magic=magic, compression=codec, base_offset=offset, **producer)
        offset += count
    return data


@pytest.mark.parametrize("seed", range(20))
def test_columns_and_entries_are_those_of_the_header_scan(seed: int) -> None:
    data = some_entries(seed)
    table, scanned = Entries(data, verify_crc=True), kts.scan_batches(data)
    assert len(table) == scanned.num_rows and table.end == len(data) and table.all_sound and table.error is None
    for name in scanned.schema.names:
        column = scanned.column(name)
        if str(column.type).startswith("timestamp"):
            column = column.cast("int64")
        expected = [-1 if value is None else value for value in column.to_pylist()]
        assert table.column(snake(name)).tolist() == expected, name
        assert [getattr(entry, snake(name)) for entry in table] == expected, name
    assert ENTRY.names is not None
    for name in ENTRY.names:
        assert table.column(name).dtype == (np.bool_ if name == "crc_ok" else ENTRY[name])
        assert table.column(name).tolist() == [getattr(table[i], name) for i in range(-len(table), 0)]


@pytest.mark.parametrize("seed", range(5))
def test_a_header_is_read_without_the_end_of_its_entry(seed: int) -> None:
    data = some_entries(seed)
    for entry in Entries(data, start=1000):
        at = entry.position - 1000
        same = read_header(data[at : at + HEADER_BYTES], start=entry.position)
        assert same is not None
        assert repr(same) == repr(entry) == repr(read_header(data, at, start=1000))
        assert entry.crc_ok is None and entry.end == entry.position + entry.size
        assert read_header(data[: at + SMALLEST_ENTRY_BYTES - 1], at) is None
        assert Entries(data[: at + entry.size - 1]).end == at


@pytest.mark.parametrize(("at", "byte", "text"), [(11, 1, "size 1 is below"), (16, 3, "magic 3 is unknown")])
def test_damage_is_raised_or_kept(at: int, byte: int, text: str) -> None:
    one = kts.encode({"offset": [0], "timestamp": [1], "value": [b"a"]})
    bad = bytearray(one)
    bad[8:12] = bytes(4) if at == 11 else bad[8:12]
    bad[at] = byte
    data = one + bytes(bad)
    with pytest.raises(CorruptRecordError, match=text) as raised:
        Entries(data, start=500)
    with pytest.raises(CorruptRecordError, match=text):
        read_header(data, len(one))
    table = Entries(data, start=500, until_damage=True)
    assert len(table) == 1 and table.end == 500 + len(one)
    assert table.error is not None and table.error.position == raised.value.position == 500 + len(one)


def test_a_wrong_crc_is_told_and_stops_nothing() -> None:
    data = bytearray(some_entries(3))
    data[-1] ^= 1
    table = Entries(data, verify_crc=True)
    assert not table.all_sound and table.column("crc_ok").tolist() == [True] * (len(table) - 1) + [False]
    assert table[-1].crc_ok is False
    with pytest.raises(ValueError, match="not verified"):
        Entries(data).column("crc_ok")


def test_what_cannot_be_asked_is_refused() -> None:
    table = Entries(b"")
    assert len(table) == 0 and table.end == 0 and list(table) == []
    with pytest.raises(IndexError, match="one of 0 entries, found 0"):
        table[0]
    with pytest.raises(ValueError, match="no field of name"):
        table.column("baseOffset")
    with pytest.raises(TypeError, match="read from bytes"):
        layout.Entry()
    with pytest.raises(ValueError, match="at: expected 0 to 3"):
        read_header(b"abc", 4)
