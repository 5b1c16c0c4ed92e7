"""Values of one schema in the columns of another: what is promoted, renamed, added, dropped, and what is refused."""

from __future__ import annotations

import copy
import datetime
import io
import json
import random
import re
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from support.golden import scaled
from support.reference.avro_reference import SchemaMaker, column_value, random_value, shown, stripped

import kts.avro
from kts.avro.resolution import MOST_NODES, AvroColumns, encoded
from kts.avro.schema import AvroTypes

E = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def read(writer: Any, reader: Any, *values: Any) -> list[Any]:
    """Each value, or the reason why there is none."""
    decoder = kts.avro.AvroDecoder(writer, reader_schema=reader)
    found = decoder.decode_all(pa.array([written(stripped(writer), one) for one in values], pa.binary()))
    found.values.validate(full=True)
    assert found.values.type == decoder.type
    return [found.refused.get(row, value) for row, value in enumerate(shown(found.values))]


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)} | more


@pytest.mark.parametrize(
    ("writer", "reader", "value", "right"),
    [
        ("int", "long", -5, -5),
        ("int", "float", 2**30, float(2**30)),
        ("int", "double", 7, 7.0),
        ("long", "float", 2**24 + 1, float(2**24)),
        ("long", "double", 2**60, float(2**60)),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", "é".encode(), "é"),
        ("bytes", "string", b"\xff", "a string is not UTF-8, at position 1"),
        ("long", "int", 1, "long cannot be read as int, at position 0"),
        ("double", "float", 1.0, "double cannot be read as float, at position 0"),
        ("string", "int", "1", "string cannot be read as int, at position 0"),
        ("int", ["null", "long"], 1, 1),
        (["null", "int"], "int", 1, 1),
        (["null", "int"], "int", None, "it is null, which the reader's schema has not, at position 1"),
        (["null", "int"], ["long", "null"], None, None),
        (["string", "int"], "long", 1, 1),
        (["string", "int"], "long", "x", "string cannot be read as long, at position 1"),
        (E, {"type": "enum", "name": "E", "symbols": ["C", "A"]}, "A", "A"),
        (E, {"type": "enum", "name": "E", "symbols": ["C", "A"]}, "B",
         "the reader's enum lacks the symbol, and has no default, at position 1"),
        (E, {"type": "enum", "name": "E", "symbols": ["C", "A"], "default": "C"}, "B", "C"),
        (E, "string", "A", "enum E cannot be read as string, at position 0"),
        (FIXED, FIXED | {"name": "G"}, b"ab", b"ab"),
        (FIXED, FIXED | {"size": 3}, b"ab", "fixed F cannot be read as fixed F, at position 0"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": ["null", "double"]}, [1, 2], [1.0, 2.0]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, {"a": 1}, [("a", 1)]),
        ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, {"a": 1},
         "map cannot be read as array, at position 0"),
    ],
)  # fmt: skip
def test_a_type_becomes_another_where_avro_says_so(writer: Any, reader: Any, value: Any, right: Any) -> None:
    assert repr(read(writer, reader, value)) == repr([right])


MS = 1_790_000_000_123


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name} | more


@pytest.mark.parametrize(
    ("writer", "reader", "value", "right"),
    [
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), MS, MS * 1000),
        (logical("long", "timestamp-micros"), logical("long", "timestamp-millis"), MS, MS),
        (logical("long", "timestamp-nanos"), logical("long", "timestamp-micros"), -1, -1),
        (logical("long", "timestamp-nanos"), logical("long", "timestamp-micros"), 1999, 1),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-nanos"), MS, MS * 1_000_000),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-nanos"), 2**60, "a time is out of range, at"),
        (logical("long", "timestamp-millis"), logical("long", "local-timestamp-millis"), MS, MS * 1000),
        ("long", logical("long", "timestamp-millis"), MS, MS * 1000),
        (logical("long", "timestamp-millis"), "long", MS, MS),
        ("int", logical("long", "timestamp-millis"), 7, 7000),
        (logical("int", "date"), "int", 7, 7),
        (logical("int", "date"), "double", 7, 7.0),
        ("int", logical("int", "date"), 7, 7),
        (logical("int", "time-millis"), logical("long", "time-micros"), 86_399_999, 86_399_999_000),
        (logical("int", "time-millis"), logical("long", "time-micros"), 86_400_000, "a time is out of range, at"),
        (logical("int", "date"), logical("long", "timestamp-millis"), 7, "int (date) cannot be read as long"),
        (logical("long", "time-micros"), logical("int", "time-millis"), 7, "long (time-micros) cannot be read as"),
    ],
)
def test_times_are_converted_by_the_units_of_both_schemas(writer: Any, reader: Any, value: int, right: Any) -> None:
    decoder = kts.avro.AvroDecoder(writer, reader_schema=reader)
    found = decoder.decode_all(pa.array([written(stripped(writer), value)], pa.binary()))
    if isinstance(right, str):
        assert found.refused[0].startswith(right)
    else:
        whole = pa.int32() if pa.types.is_date(decoder.type) else pa.int64()
        made = found.values if pa.types.is_floating(decoder.type) else found.values.cast(whole)
        assert (made.to_pylist(), found.refused) == ([right], {})


def decimal(precision: int, scale: int, **more: Any) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale} | more


@pytest.mark.parametrize(
    ("writer", "reader", "unscaled", "right"),
    [
        (decimal(4, 2), decimal(6, 4), -9999, "-99.9900"),
        (decimal(6, 4), decimal(4, 2), 123_400, "12.34"),
        (decimal(6, 4), decimal(4, 2), 123_401, "a decimal has digits behind the point that the column lacks"),
        (decimal(6, 4), decimal(4, 2), -123_400, "-12.34"),
        (decimal(9, 0), decimal(4, 2), 99, "99.00"),
        (decimal(9, 0), decimal(4, 2), 100, "a decimal has more digits than its precision"),
        (decimal(38, 38), decimal(38, 38), 10**38 - 1, "0." + "9" * 38),
        (decimal(38, 0), decimal(38, 38), 1, "a decimal has more digits than its precision"),
        (decimal(38, 0), decimal(38, 38), 0, "0." + "0" * 38),
        (decimal(60, 2), decimal(38, 2), 10**38, "a decimal has more digits than its precision"),
        ("bytes", decimal(4, 2), 5, "0.05"),
        (decimal(4, 2, type="fixed", name="F", size=3), decimal(4, 2), -5, "-0.05"),
        (decimal(4, 2), decimal(4, 2, type="fixed", name="F", size=3), -5, "-0.05"),
    ],
)
def test_decimals_keep_their_value_in_another_scale(writer: Any, reader: Any, unscaled: int, right: str) -> None:
    size = writer["size"] if "size" in writer else (unscaled.bit_length() + 8) // 8
    [found] = read(writer, reader, unscaled.to_bytes(size, "big", signed=True))
    assert found == right or found.startswith(f"{right}, at position")


def test_decimals_of_any_length_are_those_of_python(rng: random.Random) -> None:
    schema = decimal(38, 7)
    numbers = [rng.choice([1, -1]) * rng.getrandbits(rng.randint(0, 130)) for _ in range(3000)]
    numbers += [10**38, 10**38 - 1, -(10**38), -(10**38) + 1, 2**127, -(2**127), 2**128, 2**64, -(2**64)]
    values = [
        number.to_bytes((number.bit_length() + 8) // 8 + rng.choice([0, 0, 1, 9]), "big", signed=True)
        for number in numbers
    ]
    found = kts.avro.decode(pa.array([written("bytes", one) for one in values], pa.binary()), schema, on_error="null")
    exact = Context(prec=60)
    right = [f"{Decimal(one).scaleb(-7, exact):f}" if abs(one) < 10**38 else None for one in numbers]
    assert shown(found) == right
    assert kts.avro.decode(pa.array([b"\0"]), schema)[0].as_py() == 0


def test_fields_are_matched_by_name_and_alias_and_filled_by_defaults() -> None:
    writer = record(
        {"name": "gone", "type": {"type": "array", "items": E}},
        {"name": "a", "type": "int"},
        {"name": "old", "type": "string"},
        {"name": "inner", "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}},
    )
    reader = record(
        {"name": "new", "type": "string", "aliases": ["nothing", "old"]},
        {"name": "inner", "type": {"type": "record", "name": "J", "fields": [
            {"name": "y", "type": "long", "aliases": ["x"]}, {"name": "z", "type": "boolean", "default": True}]}},
        {"name": "a", "type": ["null", "double"]},
        {"name": "n", "type": ["null", "string"], "default": None},
        {"name": "s", "type": ["string", "null"], "default": "é"},
        {"name": "t", "type": logical("long", "timestamp-millis"), "default": 5},
        {"name": "d", "type": decimal(4, 2), "default": "\u0001\u00ff"},
        {"name": "e", "type": E, "default": "B"},
        {"name": "l", "type": {"type": "array", "items": "int"}, "default": [1, -200]},
        {"name": "m", "type": {"type": "map", "values": "J"}, "default": {"k": {"y": 1}}},
        {"name": "f", "type": "float", "default": 1},
    )  # fmt: skip
    right = {
        "new": "o", "inner": {"y": 3, "z": True}, "a": 7.0, "n": None, "s": "é",
        "t": datetime.datetime(1970, 1, 1, 0, 0, 0, 5000, datetime.UTC), "d": "5.11", "e": "B", "l": [1, -200],
        "m": [("k", {"y": 1, "z": True})], "f": 1.0,
    }  # fmt: skip
    assert read(writer, reader, {"gone": ["A", "C"], "a": 7, "old": "o", "inner": {"x": 3}}) == [right]


@pytest.mark.parametrize(
    ("field", "why"),
    [
        (
            {"name": "b", "type": "int"},
            "the writer's schema lacks it, and it has no default, at position 1 in the field b",
        ),
        (
            {"name": "b", "type": "int", "default": "x"},
            "its default is no value of its type: 'x' is no int, at position",
        ),
        ({"name": "b", "type": "int", "default": 2**31}, "its default is no value of its type"),
        ({"name": "b", "type": "int", "default": True}, "its default is no value of its type"),
        ({"name": "b", "type": "bytes", "default": "€"}, "its default is no value of its type"),
        ({"name": "b", "type": E, "default": "Z"}, "its default is no value of its type"),
    ],
)
def test_a_field_that_is_missing_without_a_default_refuses_the_value(field: dict[str, Any], why: str) -> None:
    [found] = read(record({"name": "a", "type": "int"}), record({"name": "a", "type": "int"}, field), {"a": 1})
    assert found.startswith(why)


NONE, ONE = record(name="x.I"), record({"name": "v", "type": "int"}, name="J")


@pytest.mark.parametrize(
    ("writer", "value", "right"),
    [
        ("int", 1, {"double": 1.0}),
        ("long", 1, {"long": 1}),
        ("float", 1.0, {"double": 1.0}),
        (
            "boolean",
            True,
            "boolean cannot be read as one of null, double, long, string, record x.I, record J, at position 0",
        ),
        ("bytes", b"x", {"string": "x"}),
        (["null", "string"], "x", {"string": "x"}),
        (["null", "string"], None, None),
        (ONE, {"v": 1}, {"J": {"v": 1}}),
        (NONE, {}, {"I": {}}),
        (record(name="y.I"), {}, {"I": {}}),
        ([NONE, ONE], {"v": 5}, {"J": {"v": 5}}),
    ],
)
def test_a_union_of_several_types_is_a_struct_with_a_member_for_each(writer: Any, value: Any, right: Any) -> None:
    reader = ["null", "double", "long", "string", NONE, ONE]
    none = dict.fromkeys(["double", "long", "string", "I", "J"])
    assert read(writer, reader, value) == [none | right if isinstance(right, dict) else right]


def evolved(rng: random.Random, told: Any) -> Any:
    """A schema that reads values of another one, in which fastavro does as Avro's specification says."""
    if isinstance(told, list):
        return [evolved(rng, one) for one in told] if len({*map(str, told)} - {"null"}) == 1 else told
    if isinstance(told, str):
        wider = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"]}
        return rng.choice([told, *wider.get(told, ())])
    made = dict(told)
    if told["type"] in ("array", "map"):
        part = "items" if told["type"] == "array" else "values"
        made[part] = evolved(rng, told[part])
    elif told["type"] == "record":
        fields = [copy.copy(one) for one in told["fields"] if rng.random() < 0.8]
        for one in fields:
            one["type"] = evolved(rng, one["type"])
            if rng.random() < 0.3:
                one["aliases"], one["name"] = [one["name"]], f"renamed_{one['name']}"
        if rng.random() < 0.5:
            fields.append({"name": "added", "type": ["null", "string"], "default": None})
        if rng.random() < 0.5:
            fields.append({"name": "more", "type": "int", "default": rng.randint(-9, 9)})
        rng.shuffle(fields)
        made["fields"] = fields
    elif told["type"] == "enum" and rng.random() < 0.5:
        made["symbols"] = [*reversed(told["symbols"][:-1])]
        made["default"] = told["symbols"][0]
    return made


@pytest.mark.slow
def test_evolved_schemas_read_what_fastavro_reads(rng: random.Random) -> None:
    done = 0
    for _ in range(scaled(200, 3000)):
        schema = stripped(SchemaMaker(rng).record())
        plain_unions = re.findall(r"\[[^\[\]{}]*\]", json.dumps(schema))
        if any("bytes" in one and "string" in one for one in plain_unions):  # fastavro takes the first, Java the same
            continue
        reader = evolved(rng, schema)
        values = [written(schema, random_value(rng, schema)) for _ in range(5)]
        parsed = fastavro.parse_schema(schema), fastavro.parse_schema(reader)
        right = []
        for value in values:
            try:
                found = fastavro.schemaless_reader(io.BytesIO(value), *parsed)
            except (ValueError, KeyError, fastavro.read.SchemaResolutionError):  # of what is renamed within unions
                break
            right.append(column_value(reader, found))
        if len(right) < len(values):
            continue
        done += 1
        found = kts.avro.decode(pa.array(values, pa.binary()), schema, reader_schema=reader)
        found.validate(full=True)
        assert repr(shown(found)) == repr(right), (schema, reader)
    assert done > 50


def test_a_schema_that_is_large_once_names_are_types_is_refused() -> None:
    made: Any = record({"name": "x", "type": "int"}, name="A0")
    for level in range(1, 40):
        made = record({"name": "p", "type": made}, {"name": "q", "type": f"A{level - 1}"}, name=f"A{level}")
    with pytest.raises(ValueError, match="^it has more than 10,000 fields"):
        AvroColumns(AvroTypes(made))
    small = record({"name": "p", "type": record({"name": "x", "type": "long"}, name="A0")})
    assert AvroColumns(AvroTypes(small)).program(AvroTypes(made)).paths  # of a writer it is nothing


def test_a_chain_of_names_as_long_as_the_bound_is_walked() -> None:
    texts = [record({"name": "x", "type": "int"}, name="A0")]
    texts += [record({"name": "x", "type": f"A{level - 1}"}, name=f"A{level}") for level in range(1, 5000)]
    deepest = 198
    reader = kts.avro.AvroSchema(texts[deepest], texts[:deepest])
    assert len(kts.avro.decode(pa.array([b"\2"]), reader)) == 1
    with pytest.raises(ValueError, match="200 levels"):
        kts.avro.decode(pa.array([b"\2"]), kts.avro.AvroSchema(texts[4000], texts[:4000]))
    writer = kts.avro.AvroSchema(record({"name": "a", "type": "A4999"}, {"name": "b", "type": "int"}), texts)
    found = kts.avro.decode(
        pa.array([b"\2\4"]), writer, reader_schema=record({"name": "b", "type": "int"}), on_error="null"
    )
    assert found.to_pylist() == [None]  # deeper than a value may be


def test_two_schemas_whose_resolution_is_long_are_refused() -> None:
    wide = [{"type": "record", "name": f"W{number}", "fields": [{"name": "x", "type": "int"}]} for number in range(300)]
    reader = {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{n}", "type": "int", "default": 0} for n in range(400)],
    }
    assert len(wide) * len(reader["fields"]) > MOST_NODES
    with pytest.raises(ValueError, match="its resolution takes more than 100,000 steps"):
        AvroColumns(AvroTypes(reader)).program(AvroTypes(wide))


@pytest.mark.parametrize(
    ("told", "value"),
    [
        ("null", None), ("boolean", True), ("int", -(2**31)), ("long", 2**63 - 1), ("float", 1.5), ("double", -2),
        ("string", "é"), (E, "B"), ({"type": "array", "items": "int"}, [1, 2]), ({"type": "array", "items": "int"}, []),
        ({"type": "map", "values": "long"}, {"a": 1}), (["null", "int"], 5),
        (record({"name": "a", "type": "int"}), {"a": 1}),
    ],
)  # fmt: skip
def test_defaults_are_written_as_fastavro_writes_them(told: Any, value: Any) -> None:
    assert encoded(AvroTypes(told).root, value) == written(told, value)
