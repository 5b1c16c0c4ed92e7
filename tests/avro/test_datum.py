"""What the compiled reader hands over: memory that lives as long as arrays, from any thread; ids in front of values."""

from __future__ import annotations

import gc
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

import kts.avro
from kts.avro._datum import COLUMN_KINDS, NO_ID, OPS, Program, Shape, ids_of


def edges_of(values: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum([0, *map(len, values)], dtype=np.int32), np.frombuffer(b"".join(values), np.uint8)


def test_ids_are_those_in_front_of_values() -> None:
    values = [b"\0\0\0\0\1x", b"\0\xff\xff\xff\xff", b"\0\0\0\1", b"\1\0\0\0\1", b"", b"\0\0\1\0\0"]
    assert ids_of(*edges_of(values)).tolist() == [1, 2**32 - 1, NO_ID, NO_ID, NO_ID, 65_536]
    assert ids_of(*edges_of([])).tolist() == []


def node(op: str, column: int = -1) -> tuple[object, ...]:
    return OPS[op], column, (), 0, 0, 0, 0, 0, b"", ()


def test_a_program_fills_a_column_and_says_what_it_refuses() -> None:
    shape = Shape([(COLUMN_KINDS["fixed"], 8, [])])
    programs = [Program(0, [node("LONG", 0)]), Program(0, [node("REFUSED")])]
    edges, data = edges_of([b"\2", b"\2", b"\x80", b"", b"x\4"])
    codes, heads = np.array([0, 1, 0, -1, 0], np.int32), np.array([0, 0, 0, 0, 1], np.uint8)
    [column], refused = shape.read(programs, edges, data, None, 0, codes, heads, False)
    rows, nulls, valid, made, offsets, twice = column
    assert (rows, nulls, offsets, twice) == (5, 3, None, [])
    assert np.frombuffer(made, np.int64).tolist() == [1, 0, 0, 0, 2] and bytes(valid)[0] & 31 == 0b10001
    assert refused == [(1, None, 0, 1, 0), (2, "it ends within a number", 0, 0, 0)]
    with pytest.raises(ValueError, match="codes: expected 5, found 4"):
        shape.read(programs, edges, data, None, 0, codes[:4], heads, False)


def test_arrays_keep_their_memory(rng: random.Random) -> None:
    values = [b"\2" + bytes([2 * size]) + b"x" * size for size in [rng.randrange(60) for _ in range(1000)]]
    told = {"type": "array", "items": "string"}
    made = kts.avro.decode(pa.array([one + b"\0" for one in values]), told)
    part = made.slice(900)
    right = part.to_pylist()
    del made
    gc.collect()
    assert part.to_pylist() == right == [[one[2:].decode()] for one in values[900:]]


def test_threads_share_a_decoder() -> None:
    decoder = kts.avro.AvroDecoder({"type": "map", "values": "string"})
    columns = [pa.array([b"\2\2k\2%c\0" % (97 + number)] * 20_000) for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(decoder.decode, columns)]
    for number, array in enumerate(found):
        assert array.to_pylist() == [[("k", chr(97 + number))]] * 20_000
