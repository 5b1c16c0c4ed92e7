"""Values as text, JSON and Avro: what decodes, and why the rest does not."""

from __future__ import annotations

import datetime
import io
import json
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kts.tables.values import Decoder, Schemas, decoder_of, registered

JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"type": ["string", "null"]},
        "t": {"type": "string", "format": "date-time"},
        "o": {"$ref": "#/$defs/point"},
        "l": {"type": "array", "items": {"anyOf": [{"type": "null"}, {"type": "number"}]}},
    },
    "required": ["a", "b"],
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
}
AVRO_SCHEMA = {
    "type": "record",
    "name": "R",
    "namespace": "n",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "b", "type": ["null", "string"], "default": None},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "again", "type": "n.E"},
    ],
}
TIME = datetime.datetime(2026, 1, 1, 10, tzinfo=datetime.UTC)


def decoded(decoder: Decoder, values: list[bytes | None]) -> list[Any]:
    """Each value, or the reason why there is none."""
    found = decoder.decode(pa.array(values, pa.binary()))
    assert found.values.type == decoder.type and len(found.values) == len(values)
    assert all(found.values[row].as_py() is None for row in found.refused)
    return [found.refused.get(row, value) for row, value in enumerate(found.values.to_pylist())]


def avro(row: dict[str, Any], schema: dict[str, Any] = AVRO_SCHEMA) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


def test_text_is_utf_8() -> None:
    values = [b"a", None, b"\xff", "ü€😀".encode(), b"", b"\xc3"]
    assert decoded(decoder_of("text", None), values) == ["a", None, "not UTF-8", "ü€😀", "", "not UTF-8"]


def test_json_becomes_columns() -> None:
    one = {"a": 1, "b": "ü", "t": "2026-01-01T10:00:00Z", "o": {"x": 1.5}, "l": [1, None, 2.5], "other": [{}]}
    values = [json.dumps(one).encode(), None, json.dumps(one, indent=2).encode(), b'{"b":"x","a":2,"l":[]}', b"null"]
    full = {"a": 1, "b": "ü", "t": TIME, "o": {"x": 1.5}, "l": [1, None, 2.5]}
    few = {"a": 2, "b": "x", "t": None, "o": None, "l": []}
    assert decoded(decoder_of("json", json.dumps(JSON_SCHEMA)), values) == [full, None, full, few, None]


WRONG = [
    b"",
    b" ",
    b"{",
    b'{"a":1',
    b'{"a":"x","b":""}',
    b"[1]",
    b"7",
    b'"a"',
    b"\xff",
    b'{"a":1,"b":"\xff"}',
    b'{"a":1.5}',
    b'{"a":99999999999999999999}',
    b'{"a":1,"b":"x"}{"a":2}',
    b'{"a":1},{"a":2}',
    b'{"a":1}]}{"i":1,"v":[{"a":2}',
    b'{"a":1},"w":3',
    b'{"a":1,"a":2}',
    b'{"a":1}}',
    b'{"a":1,\n"b":"x\ny"',
    b'{"t":"yesterday","a":1}',
    b'{"b":"x"}',
    b'{"a":null}',
    b'{"a":1,"o":{}}',
]


@pytest.mark.parametrize("wrong", WRONG)
def test_one_wrong_value_spoils_no_other(wrong: bytes) -> None:
    good = [b'{"a":%d,"b":null}' % number for number in range(5)]
    found = decoded(decoder_of("json", json.dumps(JSON_SCHEMA)), [*good[:3], wrong, *good[3:], wrong])
    assert [one["a"] for one in found if isinstance(one, dict)] == [0, 1, 2, 3, 4]
    assert [row for row, one in enumerate(found) if isinstance(one, str)] == [3, 6], found


def test_the_reason_says_what_is_wrong() -> None:
    decoder = decoder_of("json", json.dumps(JSON_SCHEMA))
    assert decoded(decoder, [b'{"o":{}, "a":1}', b'{"b":""}', b'{"a":"x"}', b"{"]) == [
        "the field o.x is missing",
        "the field a is missing",
        "not JSON of this schema: Column(/v/[]/a) changed from number to string",
        "not JSON of this schema: Missing a name for object member.",
    ]


def test_of_many_values_each_wrong_one_is_found(rng: random.Random) -> None:
    decoder = decoder_of("json", json.dumps(JSON_SCHEMA))
    sound = [rng.random() < 0.9 for _ in range(5000)]
    values = [b'{"a":%d,"b":"x"}' % row if good else rng.choice(WRONG) for row, good in enumerate(sound)]
    found = decoded(decoder, [*values])
    assert [isinstance(one, dict) and one["a"] == row for row, one in enumerate(found)] == sound


def test_avro_becomes_columns() -> None:
    row = {"a": 1, "b": None, "t": TIME, "m": {"k": 1}, "e": "X", "u": "1b4e28ba", "again": "Y"}
    decoder = decoder_of("avro", json.dumps(AVRO_SCHEMA))
    data = avro(row)
    found = decoded(decoder, [data, None, data[:-1], data + b"x", b"", data])
    assert found[0] == found[5] == row | {"m": [("k", 1)]} and found[1] is None
    assert found[2:5] == [
        "not Avro of this schema: EOFError",
        "1 bytes follow the Avro value",
        "not Avro of this schema: EOFError",
    ]


@pytest.mark.parametrize(
    ("value_format", "schema", "said"),
    [
        ("text", "{}", "text has no schema"),
        ("json", None, "json needs a schema"),
        ("json", "{", "expected JSON"),
        ("json", '{"type":"object"}', "expected a type of the value"),
        ("json", '{"type":["integer","string"]}', "may be of the types integer, string"),
        ("json", '{"oneOf":[{"type":"integer"},{"type":"string"}]}', "may be one of several types"),
        ("json", '{"$ref":"#/a"}', "refers to #/a"),
        ("json", '{"type":"object","properties":{"a":{"$ref":"#"}}}', "refers to #|contains itself"),
        ("avro", '["int","string"]', "is a union of several types"),
        ("avro", '"strange"', "not an Avro schema: UnknownType"),
        ("avro", '{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}', "contains itself"),
    ],
)
def test_a_schema_that_columns_cannot_have_is_refused(value_format: str, schema: str | None, said: str) -> None:
    with pytest.raises(ValueError, match=f"^value_schema: .*({said})"):
        decoder_of(value_format, schema)


def record(number: int, version: int, schema: object, subject: str = "t-value", **more: Any) -> tuple[bytes, bytes]:
    """As the registry writes it."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": number, "schema": json.dumps(schema), "deleted": False}
    return json.dumps(key).encode(), json.dumps(value | more).encode()


def test_a_registrys_topic_gives_schemas_by_id_and_the_newest_of_a_subject() -> None:
    newer = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "long"}, {"name": "c", "type": "string", "default": "d"}],
    }
    older = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    noop = (b'{"keytype":"NOOP","magic":0}', None)
    schemas = registered([noop, record(1, 1, older), record(7, 2, newer), record(9, 3, "int", deleted=True)])
    assert sorted(schemas.by_id) == [1, 7, 9] and schemas.newest == {"t-value": ("AVRO", json.dumps(newer))}
    decoder = decoder_of("avro", schemas.newest["t-value"][1], schemas)
    values = [
        b"\0\0\0\0\1" + avro({"a": 5}, older),
        b"\0\0\0\0\7" + avro({"a": 6, "c": "x"}, newer),
        b"\0\0\0\0\2",
        b"\1",
        b"",
        None,
    ]
    assert decoded(decoder, values) == [
        {"a": 5, "c": "d"},
        {"a": 6, "c": "x"},
        "not Avro of this schema: ValueError the registry has no schema 2",
        *["not Avro of this schema: ValueError the value does not begin with the id of a schema"] * 2,
        None,
    ]


def test_json_behind_ids() -> None:
    decoder = decoder_of("json", json.dumps(JSON_SCHEMA), Schemas({3: "{}"}, {}))
    good = b'\0\0\0\0\3{"a":1,"b":null}'
    found = decoded(decoder, [good, b"\0\0\0\0\4{}", b"{}", None, b"\0\0\0\0\3{", good])
    assert found[0] == found[5] and found[0]["a"] == 1 and found[3] is None
    assert found[1] == "the registry has no schema 4" and found[2] == "the value does not begin with the id of a schema"
    assert found[4].startswith("not JSON of this schema")
