"""Whole columns as text, against what json and base64 say value by value."""

from __future__ import annotations

import base64
import csv
import io
import json
import random
from typing import Any

import pyarrow as pa
import pytest

from kts.cli.output import NotTextError
from kts.cli.text import Csv, JsonLines, json_lines, pieces
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
