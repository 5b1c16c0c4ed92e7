"""Each codec's odd payloads are read as Kafka reads them, or refused: see ``streams``."""

from __future__ import annotations

import pytest
from support.reference import reference
from support.sets import generate
from support.sets.streams import READ, TABLES, Case, batch_of, frame, packed, stored

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
