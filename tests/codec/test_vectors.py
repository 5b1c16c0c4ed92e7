"""Bytes that Kafka's formats prescribe, written out: decoded, and where the encoder decides every byte, encoded."""

from __future__ import annotations

from typing import Any

import pytest
from support.golden import Row, rows

import kts

T = 1500000000000
NO_TYPE, CREATE, APPEND = -1, 0, 1
H = (("h", b"x"), ("n", None))

# name: bytes, what they hold, and how kts.encode makes them (None: compressed or a control batch of a broker)
VECTORS: dict[str, tuple[str, list[Row], dict[str, Any] | None]] = {
    "v0": (
        "0000000000000005000000101fecd70a0000000000016b0000000176",
        [Row(5, -1, NO_TYPE, b"k", b"v", None)],
        {"magic": 0},
    ),
    "v0 of nulls": (
        "00000000000000000000000ea7ec68030000ffffffffffffffff",
        [Row(0, -1, NO_TYPE, None, None, None)],
        {"magic": 0},
    ),
    "v0 without a key": (
        "000000000000000000000011feb01dbf0000ffffffff00000003313233",
        [Row(0, -1, NO_TYPE, None, b"123", None)],
        {"magic": 0},
    ),
    "v1 CreateTime": (
        "000000000000000500000018bf070c1c01000000015d3ef79800000000016b0000000176",
        [Row(5, T, CREATE, b"k", b"v", None)],
        {"magic": 1},
    ),
    "v1 LogAppendTime": (
        "000000000000000500000018b6a6119901080000015d3ef79800000000016b0000000176",
        [Row(5, T, APPEND, b"k", b"v", None)],
        {"magic": 1, "timestamp_type": "LogAppendTime", "log_append_time_ms": T},
    ),
    "v1 without a time": (
        "0000000000000000000000165b41f4e30100ffffffffffffffffffffffffffffffff",
        [Row(0, -1, CREATE, None, None, None)],
        {"magic": 1},
    ),
    "v1 without a key": (
        "000000000000000000000019478628c201000000015e1867abaeffffffff00000003313233",
        [Row(0, 1503648000942, CREATE, None, b"123", None)],
        {"magic": 1},
    ),
    "v2 with headers": (
        "00000000000000070000004800000000026d750bf20000000000010000015d3ef798000000015d3ef79805"
        "ffffffffffffffffffffffffffff0000000210000000026b0276001a000a0201010402680278026e01",
        [Row(7, T, CREATE, b"k", b"v", None), Row(8, T + 5, CREATE, None, None, H)],
        {"magic": 2, "partition_leader_epoch": 0},
    ),
    "v2 commit marker": (
        "000000000000000900000042000000030234dfc1d30030000000000000015d3ef798000000015d3ef79800"
        "0000000000000fa00002ffffffff000000012000000008000000010c00000000000700",
        [Row(9, T, CREATE, bytes([0, 0, 0, 1]), bytes([0, 0, 0, 0, 0, 7]), None)],
        {"partition_leader_epoch": 3, "producer_id": 4000, "producer_epoch": 2, "transactional": True, "control": True},
    ),
    "lz4 wrapper v1": (
        "00000000000000010000006bb26874c601030000015d3ef79801ffffffff0000005504224d186040824600008000000000000000"
        "0000000017b0e654d201000000015d3ef79800ffffffff0000000161000000000000000100000017c62d6e5601000000015d3ef798"
        "01ffffffff000000016200000000",
        [Row(0, T, CREATE, None, b"a", None), Row(1, T + 1, CREATE, None, b"b", None)],
        None,
    ),
    "lz4 wrapper v0, the broken header checksum": (
        "000000000000000b00000053800310130003ffffffff0000004504224d1860401a36000080000000000000000a0000000f51df3a32"
        "0000ffffffff0000000161000000000000000b0000000fc8d66b880000ffffffff000000016200000000",
        [Row(10, -1, NO_TYPE, None, b"a", None), Row(11, -1, NO_TYPE, None, b"b", None)],
        None,
    ),
    "snappy wrapper v1": (
        "00000000000000050000004f84df2a4601020000015d3ef79800ffffffff0000003982534e41505059000000000100000001000000"
        "252388000000000000000000000017b0e654d201000000015d3ef79800ffffffff0000000161",
        [Row(5, T, CREATE, None, b"a", None)],
        None,
    ),
    "snappy wrapper v1, one raw block": (
        "00000000000000050000003bc831809401020000015d3ef79800ffffffff0000002523880000000000000000000000"
        "17b0e654d201000000015d3ef79800ffffffff0000000161",
        [Row(5, T, CREATE, None, b"a", None)],
        None,
    ),
}
every_vector = pytest.mark.parametrize("name", VECTORS)


@every_vector
def test_the_bytes_are_decoded(name: str) -> None:
    data, expected, _ = VECTORS[name]
    assert rows(kts.decode(bytes.fromhex(data))) == expected


@every_vector
@pytest.mark.parametrize("views", [False, True])
def test_cut_anywhere_the_entry_is_left_out(name: str, views: bool) -> None:
    data = bytes.fromhex(VECTORS[name][0])
    for length in range(len(data)):
        assert kts.decode(data[:length], views=views).num_rows == 0
        assert kts.valid_bytes(data[:length]) == 0


@pytest.mark.parametrize("name", [name for name, vector in VECTORS.items() if vector[2] is not None])
def test_the_rows_are_encoded_to_the_bytes(name: str) -> None:
    data, records, how = VECTORS[name]
    columns = {
        "offset": [record.offset for record in records],
        "timestamp": [record.timestamp for record in records],
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "headers": [record.headers for record in records],
    }
    assert kts.encode(columns, **(how or {})).hex() == data


def test_all_vectors_in_one_buffer_are_decoded_in_order() -> None:
    data = b"".join(bytes.fromhex(data) for data, _, _ in VECTORS.values())
    expected = [record for _, records, _ in VECTORS.values() for record in records]
    assert rows(kts.decode(data)) == expected
    assert [record for piece in kts.iter_decode(data, slice_bytes=1) for record in rows(piece)] == expected
