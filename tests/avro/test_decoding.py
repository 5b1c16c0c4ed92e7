"""Avro values into columns: equal to fastavro's, refused where the specification refuses, and within bounds."""

from __future__ import annotations

import io
import json
import pickle
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from support.golden import scaled
from support.reference.avro_reference import (
    AvroCursor,
    SchemaMaker,
    Unsound,
    column_value,
    random_value,
    shown,
    stripped,
)

import kts.avro
from kts.errors import InvalidRecordError


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def column(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def varint(number: int) -> bytes:
    return written("long", number)


@pytest.mark.slow
def test_every_value_is_that_of_fastavro(rng: random.Random) -> None:
    """300 schemas of all types and logical types; the check of 20 values each takes two seconds."""
    for _ in range(scaled(300, 3000)):
        schema = SchemaMaker(rng).record()
        raw = stripped(schema)
        values: list[bytes | None] = [written(raw, random_value(rng, schema)) for _ in range(20)]
        expected = [
            column_value(schema, fastavro.schemaless_reader(io.BytesIO(one), schema, None)) for one in values if one
        ] if all(values) else None  # fmt: skip
        if expected is None:  # records that take no bytes
            continue
        values.insert(7, None)
        found = kts.avro.decode(column(values), schema)
        found.validate(full=True)
        expected.insert(7, None)
        assert repr(shown(found)) == repr(expected), schema


MANY: dict[str, Any] = {
    "type": "record",
    "name": "Many",
    "fields": [
        {"name": "b", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "d", "type": "double"},
        {"name": "f", "type": "float"},
        {"name": "s", "type": "string"},
        {"name": "y", "type": "bytes"},
        {"name": "x", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["P", "Q"]}},
        {"name": "a", "type": {"type": "array", "items": ["null", "long"]}},
        {
            "name": "m",
            "type": {
                "type": "map",
                "values": {"type": "record", "name": "I", "fields": [{"name": "v", "type": "int"}]},
            },
        },
        {"name": "u", "type": ["string", "null", "long"]},
        {"name": "again", "type": "I"},
        {"name": "n", "type": {"type": "array", "items": {"type": "map", "values": ["null", "boolean"]}}},
    ],
}
PIECES = [b"\x80", b"\xff" * 9 + b"\1", b"\xff" * 10, b"\x80" * 20 + b"\0", b"\3\2", b"\2k\2", b"\0", b"\xc3\xa9"]


def mutated(rng: random.Random, seeds: list[bytes]) -> bytes:
    value = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(0, 2)):
        at = rng.randrange(len(value) or 1)
        match rng.randrange(4):
            case 0 if value:
                value[at] = rng.choice([0, 1, 2, 3, 127, 128, 255, rng.randrange(256)])
            case 1:
                value[at:at] = rng.choice(PIECES)
            case 2 if value:
                del value[at]
            case _:
                value += b"\0"
    return bytes(value)


@pytest.mark.slow
def test_mutated_values_are_what_the_specification_makes_of_them(rng: random.Random) -> None:
    row = {"b": True, "i": -5, "l": 2**40, "d": 1.5, "f": 0.25, "s": "text", "y": b"\0\1", "x": b"abc", "e": "Q"}
    row |= {"a": [1, None, 3], "m": {"k": {"v": 1}, "j": {"v": -1}}, "u": None, "again": {"v": 300}}
    row["n"] = [{}, {"z": True, "y": None}]
    seeds = [written(MANY, row), written(MANY, row | {"a": [], "m": {}, "u": "x", "n": []})]
    blocks = bytearray(seeds[1])
    at = blocks.rindex(b"\0\0\0")  # the array, the map and the branch of the union
    blocks[at : at + 1] = b"\3\6\2\x0a\0\0"  # an array of -2 items in 3 bytes
    seeds.append(bytes(blocks))
    values = [*seeds, *(mutated(rng, seeds) for _ in range(scaled(6_000, 200_000)))]
    found = kts.avro.decode(column([*values]), MANY, on_error="null")
    found.validate(full=True)
    sound = 0
    for value, made in zip(values, shown(found), strict=True):
        try:
            right = AvroCursor(value).whole(MANY)
        except Unsound:
            right = None
        sound += right is not None
        assert repr(made) == repr(right), value
    assert len(values) // 20 < sound < len(values)


@pytest.mark.slow
def test_random_bytes_of_random_schemas_are_judged_as_by_the_specification(rng: random.Random) -> None:
    for _ in range(scaled(150, 3000)):
        schema = stripped(SchemaMaker(rng).record())
        seeds = [written(schema, random_value(rng, schema)) for _ in range(4)]
        values = [mutated(rng, seeds) if rng.random() < 0.9 else rng.randbytes(rng.randrange(20)) for _ in range(30)]
        right = []
        for value in values:
            try:
                right.append(AvroCursor(value).whole(schema))
            except Unsound:
                right.append(None)
        found = kts.avro.decode(column([*values]), schema, on_error="null")
        found.validate(full=True)
        assert repr(shown(found)) == repr(right), (schema, values)


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": told} for name, told in fields.items()]}


@pytest.mark.parametrize(
    ("told", "data", "why"),
    [
        ("long", b"", "it ends within a number, at position 0"),
        ("long", b"\x80" * 20 + b"\0", "a number has too many bytes, at position 0"),
        ("long", b"\xff" * 9 + b"\2", "a number is out of range, at position 0"),
        ("int", b"\xff\xff\xff\xff\x10", "a number is out of range, at position 0"),
        ("boolean", b"\2", "a boolean is neither 0 nor 1, at position 0"),
        ("double", b"\0" * 7, "a length exceeds the bytes left, at position 0"),
        ("string", b"\3x", "a length exceeds the bytes left, at position 1"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1x", "a length exceeds the bytes left, at position 10"),
        ("string", b"\4\xc3x", "a string is not UTF-8, at position 1"),
        ("string", b"\6\xed\xa0\x80", "a string is not UTF-8, at position 1"),
        ("long", b"\2\2", "bytes follow the Avro value, at position 1"),
        (["null", "int"], b"\3", "a union has no such branch, at position 1"),
        (["null", "int"], b"\4", "a union has no such branch, at position 1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\2", "an enum has no such symbol, at position 1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\1", "an enum has no such symbol, at position 1"),
        (record(a="int", b={"type": "array", "items": "boolean"}), b"\0\2\7\0",
         "a boolean is neither 0 nor 1, at position 2 in the field b[]"),
        (record(a=record(b="string") | {"name": "S"}), b"\2", "a length exceeds the bytes left, at position 1 in the"
         " field a.b"),
        ({"type": "array", "items": "int"}, b"\1\4\2\0", "a block has another size than it says, at position 3"),
        ({"type": "array", "items": "int"}, b"\1\x14\2\0", "a block exceeds the bytes left, at position 2"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\2\x64",
         "a decimal has more digits than its precision, at position 2"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x22" + b"\0" + b"\xff" * 16,
         "a decimal has more digits than its precision, at position 18"),
        ({"type": "int", "logicalType": "time-millis"}, b"\1", "a time is out of range, at position 1"),
    ],
)  # fmt: skip
def test_an_error_names_the_row_the_position_and_the_field(told: Any, data: bytes, why: str) -> None:
    values = pa.chunked_array([column([None]), column([None, data])])
    with pytest.raises(InvalidRecordError) as caught:
        kts.avro.decode(values, told)
    assert str(caught.value) == f"row 2 is not Avro of its schema: {why}"
    assert caught.value.record_errors == ((2, why),)
    assert kts.avro.decode(values, told, on_error="null").null_count == 3


@pytest.mark.parametrize("items", [record(), {"type": "fixed", "name": "Z", "size": 0}])
@pytest.mark.parametrize("data", [varint(2**60) + b"\0", varint(-(2**60)) + b"\0\0", varint(-(2**63)) + b"\0\0"])
def test_a_count_of_items_that_take_no_bytes_is_not_believed(items: Any, data: bytes) -> None:
    array = {"type": "array", "items": items}
    with pytest.raises(InvalidRecordError, match="65,536 items take no bytes|a count is out of range"):
        kts.avro.decode(column([data]), array)
    few = varint(65_536) + b"\0"
    assert len(kts.avro.decode(column([few]), array)[0]) == 65_536


def test_a_deep_value_ends_at_a_bound() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    with pytest.raises(ValueError, match="the field next has the type Node, which contains itself"):
        kts.avro.decode(column([b"\0"]), node)
    writer, reader = record(a="int", b=node), record(a="int")
    deep = [b"\2" + b"\2" * levels + b"\0" for levels in (0, 100, 1_000_000)]
    found = kts.avro.decode(column([*deep]), writer, reader_schema=reader, on_error="null")
    assert found.to_pylist() == [{"a": 1}, {"a": 1}, None]


def test_of_two_equal_keys_the_last_counts() -> None:
    schema = record(m={"type": "map", "values": {"type": "map", "values": "int"}}, after="int")
    inner = b"\6\2a\2\2b\4\2a\6\0"  # a 1, b 2, a 3
    value = b"\4\2x\0\2x" + inner + b"\0\4"
    many = varint(20) + b"".join(b"\2%c\0" % (97 + number % 10) for number in range(20)) + b"\0\2"
    found = kts.avro.decode(column([value, many, value]), schema)
    found.validate(full=True)
    right = {"m": [("x", [("a", 3), ("b", 2)])], "after": 2}
    assert found.to_pylist() == [right, {"m": [(chr(97 + number), []) for number in range(10)], "after": 1}, right]


def test_each_value_is_decoded_by_the_schema_of_its_id_in_the_columns_order() -> None:
    older, newer = record(a="int"), record(b="string", a="long")
    reader = record(a="long") | {
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "-"}]
    }
    schemas = {1: older, 70_000: json.dumps(newer), 3: kts.avro.AvroSchema(record(a="string"))}
    decoder = kts.avro.AvroDecoder(schemas, reader_schema=reader)
    values = [
        b"\0\0\0\0\1\2", None, b"\0\0\1\x11\x70\2x\6", b"\0\0\0\0\1\4", b"\0\0\0\0\2\4", b"\1\0\0\0\1\2", b"",
        b"\0\0\0\0\3\0",
    ]  # fmt: skip
    found = decoder.decode_all(column(values))
    assert found.values.to_pylist() == [
        {"a": 1, "b": "-"}, None, {"a": 3, "b": "x"}, {"a": 2, "b": "-"}, None, None, None, None,
    ]  # fmt: skip
    assert found.refused == {
        4: "the registry has no schema 2",
        5: "the value does not begin with the id of a schema",
        6: "the value does not begin with the id of a schema",
        7: "string cannot be read as long, at position 0 in the field a",
    }
    assert decoder.decode(column(values).slice(1, 3)).to_pylist() == [None, {"a": 3, "b": "x"}, {"a": 2, "b": "-"}]
    with pytest.raises(InvalidRecordError, match="row 4 .*no schema 2"):
        decoder.decode(column(values))


def test_a_schema_of_a_registry_that_is_none_refuses_its_values() -> None:
    decoder = kts.avro.AvroDecoder({1: "{", 2: "int"}, reader_schema="int")
    found = decoder.decode_all(column([b"\0\0\0\0\1\2", b"\0\0\0\0\2\2"]))
    assert found.values.to_pylist() == [None, 1]
    assert found.refused[0].startswith("the schema 1: expected JSON, found '{'")


def test_a_decoder_goes_to_other_processes() -> None:
    for decoder in (kts.avro.AvroDecoder({5: "int"}, reader_schema="long"), kts.avro.AvroDecoder("int")):
        again = pickle.loads(pickle.dumps(decoder))
        values = column([b"\0\0\0\0\5\2", b"\2"])
        assert again.type == decoder.type and again.decode_all(values) == decoder.decode_all(values)


def test_any_binary_column_is_taken() -> None:
    values = [b"\2", None, b"\4"]
    for array in (column(values), pa.array(values, pa.large_binary()), pa.array(values, pa.binary_view())):
        assert kts.avro.decode(array, "int").to_pylist() == [1, None, 2]
        assert kts.avro.decode(array.slice(2), "int").to_pylist() == [2]
    empty = kts.avro.decode(column([]), MANY)
    assert len(empty) == 0 and empty.type == kts.avro.AvroDecoder(MANY).type
    assert kts.avro.decode(pa.chunked_array([], pa.binary()), "int").num_chunks == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"schema": {1: "int"}}, "reader_schema: give the schema"),
        ({"schema": "int", "on_error": "skip"}, "on_error: expected raise or null, found 'skip'"),
        ({"schema": "null"}, "the value has the type null"),
        ({"schema": '{"type":"strange"}'}, "the type strange is unknown"),
    ],
)
def test_what_cannot_be_meant_is_a_value_error(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kts.avro.decode(column([]), **arguments)


@pytest.mark.slow
def test_a_column_that_would_pass_arrows_2_gib_is_an_error() -> None:
    """An enum of long symbols makes much of few bytes: two seconds and 2 GiB, for an end that no smaller test meets."""
    schema = {"type": "enum", "name": "E", "symbols": ["A" * 1_000_000]}
    with pytest.raises(ValueError, match="a column would pass Arrow's 2 GiB"):
        kts.avro.decode(column([b"\0"] * 2200), schema)
