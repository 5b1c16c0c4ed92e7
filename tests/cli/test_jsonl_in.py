"""Lines of JSON as record columns: the inverse of ``dump``, and every bad line named."""

from __future__ import annotations

import base64
import io
import json
import random
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kts
from kts.cli.text import BadLineError, NotBytesError, decode_column, json_lines, pieces_of_lines, records_of


def random_records(rng: random.Random, count: int, *, text: bool = False) -> Any:
    def some(limit: int) -> bytes | None:
        size = rng.choice([None, 0, rng.randrange(limit)])
        if size is None:
            return None
        return "".join(rng.choices('aé"\\\n\u2028😀\0', k=size)).encode() if text else rng.randbytes(size)

    headers = [rng.choice([None, [("a", some(9))], [("é", b""), ("", None), ("a", b"x")]]) for _ in range(count)]
    rows = {
        "timestamp": np.array([rng.choice([-1, rng.randrange(2**41)]) for _ in range(count)]),
        "key": [some(12) for _ in range(count)],
        "value": [some(50) for _ in range(count)],
        "headers": headers,
    }
    return kts.decode(kts.encode(rows, base_offset=rng.randrange(1000)), list(kts.ALL_COLUMNS))


def same(read: Any, written: Any) -> None:
    assert read["offset"].to_pylist() == written["offset"].to_pylist()
    assert read["timestamp"].to_pylist() == written["timestamp"].cast(pa.int64()).to_pylist()
    assert read["key"].to_pylist() == written["key"].to_pylist()
    assert read["value"].to_pylist() == written["value"].to_pylist()
    headers = [row or [] for row in written["headers"].to_pylist()]
    assert read["headers"].to_pylist() == headers


@pytest.mark.parametrize("encoding", ["base64", "hex", "utf8"])
def test_what_dump_writes_comes_back(encoding: str, rng: random.Random) -> None:
    for count in (1, 2, 300):
        batch = random_records(rng, count, text=encoding == "utf8")
        lines = bytes(json_lines(batch, keys=encoding, values=encoding))
        read = records_of(lines, 7, keys=encoding, values=encoding)
        same(read, batch)
        assert read["line"].to_pylist() == list(range(7, 7 + count))
        # An empty line sends it the slow way, line by line.
        slow = records_of(b"\n" + lines, 6, keys=encoding, values=encoding)
        same(slow, batch)
        assert slow["line"].to_pylist() == list(range(7, 7 + count))


def test_every_field_may_be_left_out_or_null_or_of_dump_s_other_columns() -> None:
    lines = b'{}\n {"key": null, "headers": null, "timestamp": null}\r\n{"magic": 2, "control": false, "sequence": -1}'
    read = records_of(lines, 1)
    assert read["timestamp"].to_pylist() == read["key"].to_pylist() == read["value"].to_pylist() == [None] * 3
    assert read["headers"].to_pylist() == [[], [], []]
    assert records_of(b"", 1).num_rows == records_of(b"\n \n", 1).num_rows == 0


@pytest.mark.parametrize(
    "line, reason",
    [
        (b"{", "expected a JSON object, found Expecting property name"),
        (b"[1]", "expected a JSON object, found list"),
        (b"null", "expected a JSON object, found NoneType"),  # these crash Arrow's reader
        (b"{}null", "expected a JSON object, found Extra data at character 3"),
        (b"{} null {}", "expected a JSON object, found Extra data at character 4"),
        (b"{}{}", "expected a JSON object, found Extra data at character 3"),
        (b'{"vaule": "eA=="}', "field 'vaule' is unknown; there are topic, partition, offset, timestamp, key, value"),
        (b'{"timestamp": "now"}', "timestamp: expected a 64-bit integer, found 'now'"),
        (b'{"timestamp": 1.5}', "timestamp: expected a 64-bit integer, found 1.5"),
        (b'{"timestamp": true}', "timestamp: expected a 64-bit integer, found True"),
        (b'{"timestamp": 9223372036854775808}', "timestamp: expected a 64-bit integer, found 9223372036854775808"),
        (b'{"key": 5}', "key: expected text or null, found int"),
        (b'{"value": "a"}', "value: expected base64, found 'a'"),
        (b'{"value": "YQ=a"}', "value: expected base64, found 'YQ=a'"),
        (b'{"value": "Y=Q="}', "value: expected base64, found 'Y=Q='"),
        (b'{"value": "YWJj\\n"}', "value: expected base64"),
        (b'{"value": "_-8="}', "value: expected base64, found '_-8='"),
        (b'{"value": "\\ud800"}', "value: expected Unicode text, found half a surrogate pair"),
        (b'{"value": "\xff"}', "expected a JSON object, found 'utf-8' codec"),
        (b'{"headers": {}}', "headers: expected [[name, base64 or null], ...], found dict"),
        (b'{"headers": [["a"]]}', 'headers: expected [[name, base64 or null], ...], found ["a"]'),
        (b'{"headers": [["a", "YQ==", "b", null]]}', "headers: expected [[name, base64 or null], ...]"),
        (b'{"headers": [["a", 5]]}', 'headers: expected [[name, base64 or null], ...], found ["a", 5]'),
        (b'{"headers": [[null, "YQ=="]]}', "headers: expected [[name, base64 or null], ...]"),
        (b'{"headers": [["a", "!"]]}', "headers: expected base64, found '!'"),
        (b'{"control": 1}', "control: expected true or false, found 1"),
        (b'{"key": "YQ==",' + b"[" * 100_000, "expected a JSON object"),
    ],
)
def test_a_bad_line_is_named_and_the_good_ones_before_it_are_kept(line: bytes, reason: str) -> None:
    with pytest.raises(BadLineError) as caught:
        records_of(b'{"value":"YQ=="}\n\n{}\n' + line + b'\n{"value":"Yg=="}\n', 40)
    assert str(caught.value).startswith(f"line 43: {reason}"), caught.value
    assert caught.value.line == 43
    assert caught.value.good["value"].to_pylist() == [b"a", None]
    assert caught.value.good["line"].to_pylist() == [40, 42]


@pytest.mark.parametrize("text", ["0", "0g", "0x00", "00 11", "é0"])
def test_what_is_not_hex_is_refused(text: str) -> None:
    with pytest.raises(BadLineError, match="line 1: key: expected hex, two digits a byte"):
        records_of(json.dumps({"key": text}).encode(), 1, keys="hex")


def test_upper_case_hex_is_hex() -> None:
    assert records_of(b'{"key": "aBfF"}', 1, keys="hex")["key"].to_pylist() == [b"\xab\xff"]


def test_base64_columns_are_what_python_decodes(rng: random.Random) -> None:
    for _ in range(50):
        values = [rng.choice([None, b"", rng.randbytes(rng.randrange(1, 8))]) for _ in range(rng.randrange(30))]
        texts = pa.array([None if v is None else base64.b64encode(v).decode() for v in values], pa.string())
        assert decode_column(texts, "base64").to_pylist() == values
        part = texts.slice(len(values) // 2)
        assert decode_column(part, "base64").to_pylist() == values[len(values) // 2 :]


def test_damaged_base64_is_refused_and_named(rng: random.Random) -> None:
    sound = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
    refused = 0
    for _ in range(500):
        texts = [base64.b64encode(rng.randbytes(rng.randrange(7))).decode() for _ in range(5)]
        row = rng.randrange(5)
        damaged = list(texts[row] or "=")
        damaged[rng.randrange(len(damaged))] = rng.choice("=A-é \n")
        texts[row] = "".join(damaged)
        column = pa.array(texts, pa.string())
        if sound.fullmatch(texts[row]):
            assert decode_column(column, "base64").to_pylist()[row] == base64.b64decode(texts[row])
            continue
        refused += 1
        with pytest.raises(NotBytesError) as caught:
            decode_column(column, "base64")
        assert caught.value.row == row, texts
    assert 100 < refused < 500


def test_lines_are_given_whole_however_the_input_is_cut(rng: random.Random) -> None:
    data = b"".join(b"x" * rng.randrange(40) + b"\n" for _ in range(100)) + b"the end"

    class Dripping(io.RawIOBase):
        def __init__(self) -> None:
            self.at = 0

        def read(self, size: int = -1) -> bytes:
            piece = data[self.at : self.at + rng.randrange(1, 60)]
            self.at += len(piece)
            return piece

    pieces = list(pieces_of_lines(Dripping()))  # type: ignore[arg-type]
    assert b"".join(piece for _, piece in pieces) == data
    assert all(piece.endswith(b"\n") for _, piece in pieces[:-1])
    before = b""
    for number, piece in pieces:
        assert number == before.count(b"\n") + 1
        before += piece
