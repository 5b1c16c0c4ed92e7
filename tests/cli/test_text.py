"""Columns as text, against what json and base64 say value by value; and lines of JSON as columns again."""

from __future__ import annotations

import base64
import csv
import io
import json
import random
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kts
from kts.cli.output import NotTextError
from kts.cli.text import (
    BadLineError,
    Csv,
    JsonLines,
    NotBytesError,
    decode_column,
    encode_column,
    iso_column,
    json_lines,
    not_utf8,
    pieces,
    pieces_of_lines,
    records_of,
)
from kts.codec.columns import record_schema

CHARACTERS = [0, 1, 8, 9, 10, 13, 31, 32, 34, 44, 65, 92, 127, 0xE9, 0x2028, 0x20AC, 0x1F600]
COLUMNS = "topic partition offset timestamp timestampType key value headers control attributes baseTimestamp".split()
TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
SPELL = {"base64": lambda value: base64.b64encode(value).decode(), "hex": bytes.hex, "utf8": bytes.decode}


def some_bytes(rng: random.Random, text: bool) -> bytes | None:
    kind = rng.random()
    if kind < 0.2:
        return None if kind < 0.1 else b""
    if text:
        return "".join(chr(rng.choice(CHARACTERS)) for _ in range(rng.randrange(40))).encode()
    return rng.randbytes(rng.randrange(40))


def some_rows(rng: random.Random, text: bool) -> list[dict[str, Any]]:
    no_keys, no_headers = rng.random() < 0.3, rng.random() < 0.3

    def headers() -> list[dict[str, Any]] | None:
        if no_headers or rng.random() < 0.3:
            return None
        return [
            {"key": rng.choice(["h", 'q"', "é", ""]), "value": some_bytes(rng, False)} for _ in range(rng.randrange(4))
        ]

    return [
        {
            "topic": rng.choice(["a", 'b"x', "é"]),
            "partition": rng.randrange(2),
            "offset": rng.randrange(2**63),
            "timestamp": rng.randrange(-(2**63), 2**63),
            "timestampType": rng.choice([-1, 0, 1]),
            "key": None if no_keys else some_bytes(rng, text),
            "value": some_bytes(rng, text),
            "headers": headers(),
            "control": rng.random() < 0.5,
            "attributes": rng.choice([None, 3]),
            "baseTimestamp": rng.choice([None, -5]),
        }
        for _ in range(rng.randrange(30))
    ]


def as_batch(rows: list[dict[str, Any]], names: list[str], views: bool) -> pa.RecordBatch:
    arrays = []
    for field in record_schema(tuple(names), views):
        values = [row[field.name] for row in rows]
        plain = pa.array(values, pa.int64()).cast(field.type) if pa.types.is_timestamp(field.type) else None
        arrays.append(pa.array(values, field.type) if plain is None else plain)
    return pa.record_batch(arrays, schema=record_schema(tuple(names), views))


def expected(row: dict[str, Any], names: list[str], keys: str, values: str) -> dict[str, Any]:
    spelled = dict(row)
    for name, how in (("key", keys), ("value", values)):
        spelled[name] = None if row[name] is None else SPELL[how](row[name])
    spelled["timestampType"] = TYPES[row["timestampType"]]
    spelled["headers"] = [
        [pair["key"], None if pair["value"] is None else SPELL["base64"](pair["value"])]
        for pair in row["headers"] or []
    ]
    return {name: spelled[name] for name in names}


@pytest.mark.slow
def test_json_lines_say_what_json_would_for_random_batches(rng: random.Random) -> None:
    for _ in range(400):
        text = rng.random() < 0.5
        rows = some_rows(rng, text)
        names = rng.sample(COLUMNS, rng.randrange(1, len(COLUMNS) + 1))
        keys, values = (rng.choice(["base64", "hex", *["utf8"] * text]) for _ in range(2))
        cut = rng.randrange(len(rows) + 1)  # a slice, as record batches often are
        batch = as_batch(rows, names, rng.random() < 0.5).slice(cut)
        made = bytes(json_lines(batch, keys=keys, values=values)).decode().split("\n")
        assert made.pop() == ""
        parsed = [json.loads(line) for line in made]
        assert parsed == [expected(row, names, keys, values) for row in rows[cut:]]
        assert all(list(line) == names for line in parsed)


def test_csv_reads_back_and_tells_null_from_empty(rng: random.Random) -> None:
    for _ in range(60):
        rows = some_rows(rng, True)
        file = io.BytesIO()
        names = ["topic", "offset", "timestamp", "timestampType", "key", "value", "headers"]
        batch = as_batch(rows, names, False)
        writer = Csv(file, batch.schema, "utf8", "hex")
        writer.write(batch)
        writer.close()
        read = list(csv.reader(io.StringIO(file.getvalue().decode("utf-8"), newline="")))
        assert read[0] == names
        assert len(read) == len(rows) + 1
        for got, row in zip(read[1:], rows, strict=True):
            want = expected(row, names, "utf8", "hex")
            assert got[1:4] == [str(want["offset"]), str(want["timestamp"]), want["timestampType"]]
            assert got[4:6] == [want["key"] or "", want["value"] or ""]
            assert json.loads(got[6]) == want["headers"]
    file = io.BytesIO()
    batch = as_batch([{"key": None, "value": b""}], ["key", "value"], False)
    writer = Csv(file, batch.schema, "utf8", "utf8")
    writer.write(batch)
    writer.close()
    assert file.getvalue() == b'"key","value"\n,""\n'


def test_what_is_not_utf8_is_refused_and_named() -> None:
    rows = [
        {"topic": "t", "partition": 3, "offset": 70 + i, "value": value} for i, value in enumerate([b"a", b"\xff\x00"])
    ]
    batch = as_batch(rows, ["topic", "partition", "offset", "value"], False)
    message = r"the value of the record at offset 71 of t-3 is not UTF-8 \(byte 0xff at 0\): use --values base64 or hex"
    for writer in (JsonLines(io.BytesIO(), "utf8", "utf8"), Csv(io.BytesIO(), batch.schema, "utf8", "utf8")):
        with pytest.raises(NotTextError, match=message):
            writer.write(batch)
    assert json.loads(bytes(json_lines(batch.slice(0, 1), values="utf8")))["value"] == "a"


def test_pieces_are_small_and_lose_nothing() -> None:
    batch = pa.record_batch({"value": pa.array([b"x" * 1000] * 5000 + [b"y" * 3_000_000] + [b""] * 10)})
    parts = list(pieces(batch, 1 << 20))
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([batch]))
    assert all(part.nbytes <= 2 << 20 or part.num_rows == 1 for part in parts)
    assert list(pieces(batch.slice(0, 0))) == []


# --- lines of JSON that are read ---------------------------------------------------------------------


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
        read = records_of(lines, 7, keys=encoding, values=encoding, unit="ms")
        same(read, batch)
        assert read["line"].to_pylist() == list(range(7, 7 + count))
        # An empty line sends it the slow way, line by line.
        slow = records_of(b"\n" + lines, 6, keys=encoding, values=encoding, unit="ms")
        same(slow, batch)
        assert slow["line"].to_pylist() == list(range(7, 7 + count))


@pytest.mark.parametrize("slow", [b"", b"\n"])  # an empty line sends it the slow way
def test_times_are_guarded_integers_or_iso_8601(slow: bytes) -> None:
    time = 1_788_256_800_000
    spelled = ["1788256800000", '"2026-09-01T10:00Z"', '"2026-09-01 12:00:00.0009+02:00"', '"1788256800000"', "null"]
    wanted = [time, time, time, time, None]
    for several in (spelled, spelled[:1] * 3, spelled[1:]):
        lines = b"".join(b'{"timestamp":%s}\n' % one.encode() for one in several)
        read = records_of(lines + slow, 1)["timestamp"]
        assert (read.type, read.to_pylist()) == (pa.int64(), [wanted[spelled.index(one)] for one in several])
    lines = b'{"timestamp":5}\n{"timestamp":1788256800}\n{}\n'
    with pytest.raises(BadLineError, match="^line 8: timestamp: 1788256800 looks like seconds .*--unit s or --unit ms"):
        records_of(lines + slow, 7)
    assert records_of(lines + slow, 7, unit="s")["timestamp"].to_pylist() == [5000, time, None]
    assert records_of(lines + slow, 7, unit="ms")["timestamp"].to_pylist() == [5, time // 1000, None]


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
        (b'{"timestamp": "now"}', "timestamp: expected a time in ISO 8601 or an integer, found 'now'"),
        (b'{"timestamp": 1.5}', "timestamp: expected an integer or ISO 8601 text, found 1.5"),
        (b'{"timestamp": true}', "timestamp: expected an integer or ISO 8601 text, found True"),
        (b'{"timestamp": 9223372036854775808}', "timestamp: 9223372036854775808 is beyond the 64-bit"),
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


# --- values that may be no text -----------------------------------------------------------------


EDGES = [
    b"", b"a", "é€😀\0\x7f".encode(), b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\x80", b"\xc0\x80", b"\xc1\xbf",
    b"\xe0\x9f\xbf",
    b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xe2\x28\xa1", b"a\xe2\x82", b"\xac", b"\xf8\x88\x80\x80\x80",
]  # fmt: skip


def is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def test_what_is_not_utf8_is_found_as_python_finds_it(rng: random.Random) -> None:
    pieces = [piece for edge in EDGES for piece in (edge, edge[:1])]
    values = EDGES + [b"".join(rng.choices(pieces, k=rng.randrange(5))) for _ in range(3000)]
    values += [rng.randbytes(rng.randrange(1, 5)) for _ in range(3000)]
    column = pa.array(values, pa.binary())
    assert not_utf8(column).tolist() == [not is_utf8(value) for value in values]
    assert not_utf8(column.slice(7, 100)).tolist() == [not is_utf8(value) for value in values[7:107]]
    assert not_utf8(pa.array([], pa.binary())).tolist() == []


def test_auto_is_text_and_hex_for_each_value_that_is_none() -> None:
    values = [b"a", None, *EDGES]
    wanted = [None if v is None else v.decode() if is_utf8(v) else f"0x{v.hex()}" for v in values]
    assert encode_column(pa.array(values, pa.binary()), "auto", "value").to_pylist() == wanted
    assert encode_column(pa.array([b"a", None], pa.binary()), "auto", "value").to_pylist() == ["a", None]


def test_json_stays_as_it_was_written_on_one_line() -> None:
    values = [b'{"a": 1.50,\n "b":[1e400, 12345678901234567890]}', None, b" null\r\n", b'"x"', b"[]", b"7"]
    text = encode_column(pa.array(values, pa.binary()), "json", "value").to_pylist()
    assert text == ['{"a": 1.50,  "b":[1e400, 12345678901234567890]}', None, " null  ", '"x"', "[]", "7"]
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    read = [json.loads(line)["value"] for line in bytes(json_lines(batch, values="json")).splitlines()]
    assert read == [{"a": 1.5, "b": [float("inf"), 12345678901234567890]}, None, None, "x", [], 7]


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ([b"1", b""], 1), ([b"1", b"{"], 1), ([b"[1", b"2]", b"3,4"], 0), ([b"1,2"], 0), ([b'"a', b'b"'], 0),
        ([b"NaN"], 0),
        ([b"1", None, b"\xff"], 2), ([b"{}", b"\x00"], 1), ([b'"\n"'], 0), ([b"[" * 100_000], 0), ([b"1//"], 0),
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused_whatever_stands_beside_it(values: list[bytes | None], row: int) -> None:
    with pytest.raises(NotTextError) as found:
        encode_column(pa.array(values, pa.binary()), "json", "value")
    assert found.value.row == row


def test_times_are_iso_8601_where_they_can_be() -> None:
    times = pa.array([0, -1, 1_788_256_800_123, 2**62, -62_135_596_800_000, 253_402_300_799_999, 253_402_300_800_000])
    wanted = ["1970-01-01T00:00:00.000Z", None, "2026-09-01T10:00:00.123Z", str(2**62), "0001-01-01T00:00:00.000Z"]
    wanted += ["9999-12-31T23:59:59.999Z", "253402300800000"]
    assert iso_column(times).to_pylist() == wanted
    assert iso_column(times.slice(2, 1), "Asia/Kolkata").to_pylist() == ["2026-09-01T15:30:00.123+05:30"]
    batch = pa.record_batch({"timestamp": times.slice(1, 3).cast(pa.timestamp("ms", "UTC"))})
    lines = bytes(json_lines(batch, iso_times=True)).decode().splitlines()
    assert lines == ['{"timestamp":null}', '{"timestamp":"2026-09-01T10:00:00.123Z"}', f'{{"timestamp":{2**62}}}']
