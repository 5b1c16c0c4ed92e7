"""Values as text, JSON and Avro: what decodes, and why the rest does not."""

from __future__ import annotations

import datetime
import io
import json
import pickle
import random
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kts.errors import InvalidRecordError
from kts.tables.values import Decoder, Schema, Schemas, decoder_of, registered

JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"type": ["string", "null"]},
        "t": {"type": "string", "format": "date-time"},
        "d": {"type": "array", "items": {"type": "string", "format": "date"}},
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
    one["d"] = ["2026-01-01", None]
    values = [json.dumps(one).encode(), None, json.dumps(one, indent=2).encode(), b'{"b":"x","a":2,"l":[]}', b"null"]
    full = {"a": 1, "b": "ü", "t": TIME, "d": [TIME.date(), None], "o": {"x": 1.5}, "l": [1, None, 2.5]}
    few = {"a": 2, "b": "x", "t": None, "d": None, "o": None, "l": []}
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
    b'{"a":1,"b":"x\ny"}',
    b'{"a":1,"b":null,"other":"x\r"}',
    b'{"t":"yesterday","a":1}',
    b'{"d":[5],"a":1,"b":null}',
    b'{"d":["2026-02-30"],"a":1,"b":null}',
    b'{"d":["2026-01-01T00:00:00Z"],"a":1,"b":null}',
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


def test_a_field_is_required_in_items_and_behind_references_unless_it_may_be_null() -> None:
    schema = {
        "type": "object",
        "properties": {
            "l": {"type": "array", "items": {"$ref": "#/$defs/item"}},
            "n": {"$ref": "#/$defs/may"},
        },
        "required": ["n"],
        "$defs": {
            "item": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
            "may": {"type": ["integer", "null"]},
        },
    }
    values = [b"{}", b'{"l":[]}', b'{"l":[{"x":1},null]}', b'{"l":[{"x":1},{}],"n":2}', b'{"l":null,"n":3}']
    assert decoded(decoder_of("json", json.dumps(schema)), [*values]) == [
        {"l": None, "n": None},
        {"l": [], "n": None},
        {"l": [{"x": 1}, None], "n": None},
        "the field l[].x is missing",
        {"l": None, "n": 3},
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
    ("kind", "value", "data"),
    [
        ({"type": "string", "logicalType": "timestamp-millis"}, "x", b"\2x"),
        ({"type": "long", "logicalType": "date"}, 5, b"\12"),
        ({"type": "bytes", "logicalType": "decimal"}, b"x", b"\2x"),
        ({"type": "int", "logicalType": "time-micros"}, 5, b"\12"),
    ],
)
def test_a_logical_type_that_is_not_of_its_type_is_ignored(kind: dict[str, str], value: object, data: bytes) -> None:
    """As Avro's specification says."""
    assert decoded(decoder_of("avro", json.dumps(kind)), [data]) == [value]


def test_a_decimal_may_be_referred_to_by_its_name() -> None:
    amount = {"type": "fixed", "name": "A", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2}
    fields = [{"name": "a", "type": amount}, {"name": "b", "type": ["null", "A"]}]
    decoder = decoder_of("avro", json.dumps({"type": "record", "name": "R", "fields": fields}))
    assert decoded(decoder, [b"\0\5\2\xff\xff"]) == [{"a": Decimal("0.05"), "b": Decimal("-0.01")}]


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
        ("avro", '{"type":"bytes","logicalType":"decimal","precision":39}', "has 39 digits; a column has 38"),
        ("avro", '"strange"', "not an Avro schema: UnknownType"),
        ("avro", '{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}', "contains itself"),
        ("avro", '{"type":"record","name":"R","fields":[{"name":"n","type":"null"}]}', "n has the type null, which co"),
    ],
)
def test_a_schema_that_columns_cannot_have_is_refused(value_format: str, schema: str | None, said: str) -> None:
    with pytest.raises(ValueError, match=f"^value_schema: .*({said})"):
        decoder_of(value_format, schema)


def key(keytype: str, subject: str = "t-value", **more: Any) -> bytes:
    """As the registry writes it: SchemaRegistryKeysTest has each kind."""
    magic = {"magic": 1 if keytype == "SCHEMA" else 0}
    named = {} if keytype == "NOOP" else {"subject": subject}
    return json.dumps({"keytype": keytype} | named | more | magic, separators=(",", ":")).encode()


Record = tuple[bytes | None, bytes | None]


def record(number: int, version: int, schema: object, subject: str = "t-value", **more: Any) -> Record:
    """As the registry writes it."""
    value = {"subject": subject, "version": version, "id": number, "schema": json.dumps(schema), "deleted": False}
    return key("SCHEMA", subject, version=version), json.dumps(value | more).encode()


def topic(*records: Record) -> pa.Table:
    keys, values = zip(*records, strict=True)
    return pa.table(
        {"offset": [*range(len(records))], "key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    )


NEWER = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "long"}, {"name": "c", "type": "string", "default": "d"}],
}
OLDER = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}


def test_a_registrys_topic_gives_schemas_by_id_and_the_newest_of_a_subject() -> None:
    schemas = registered(
        topic((key("NOOP"), None), record(1, 1, OLDER), record(7, 2, NEWER), record(9, 3, "int", deleted=True))
    )
    assert sorted(schemas.by_id) == [1, 7, 9] and schemas.newest == {"t-value": Schema("avro", json.dumps(NEWER))}
    decoder = decoder_of("avro", schemas.newest["t-value"].text, schemas)
    values = [
        b"\0\0\0\0\1" + avro({"a": 5}, OLDER),
        b"\0\0\0\0\7" + avro({"a": 6, "c": "x"}, NEWER),
        b"\0\0\0\0\2",
        b"\1",
        b"",
        None,
    ]
    assert decoded(decoder, values) == [
        {"a": 5, "c": "d"},
        {"a": 6, "c": "x"},
        "the registry has no schema 2",
        *["the value does not begin with the id of a schema"] * 2,
        None,
    ]


ONE, TWO = record(1, 1, "int"), record(2, 2, "long")


@pytest.mark.parametrize(
    ("records", "newest"),
    [
        ([ONE, TWO], "long"),
        ([TWO, ONE], "long"),
        ([ONE, TWO, record(2, 2, "long", deleted=True)], "int"),
        ([ONE, record(2, 2, "long", deleted=True), (TWO[0], None)], "int"),
        ([ONE, TWO, (key("DELETE_SUBJECT"), b'{"subject":"t-value","version":1}')], "long"),
        ([ONE, TWO, (key("DELETE_SUBJECT"), b'{"subject":"t-value","version":2}')], None),
        ([ONE, TWO, (key("DELETE_SUBJECT"), b'{"subject":"t-value","version":2}'), record(3, 3, "string")], "string"),
        ([ONE, TWO, (key("DELETE_SUBJECT", "u-value"), b'{"subject":"u-value","version":2}')], "long"),
        ([ONE, TWO, (key("DELETE_SUBJECT"), None)], "long"),
        ([ONE, TWO, (key("CLEAR_SUBJECT"), b'{"subject":"t-value"}')], "long"),
        ([ONE, TWO, (key("CONFIG"), b'{"subject":"t-value","compatibilityLevel":"NONE"}')], "long"),
        ([ONE, TWO, (key("MODE"), b'{"subject":"t-value","mode":"READONLY"}'), (key("CONFIG"), None)], "long"),
        ([ONE, TWO, (key("CONTEXT", tenant="default"), b'{"context":"."}'), (None, b"x")], "long"),
        ([ONE, TWO, (b'{"magic":0,"keytype":"NOOP"}', b"")], "long"),
    ],
    ids=lambda case: None if isinstance(case, list) else str(case),
)
def test_what_a_registry_deletes_is_not_the_newest_and_keeps_its_id(records: list[Record], newest: str | None) -> None:
    schemas = registered(topic(*records))
    found = schemas.newest.get("t-value")
    assert (found and found.text) == (newest and json.dumps(newest))
    assert schemas.by_id[1].text == '"int"' and schemas.by_id[2].text == '"long"'


def test_one_id_may_have_several_subjects_and_other_contexts_have_ids_of_their_own() -> None:
    records = [
        ONE,
        record(1, 1, "int", "u-value"),
        record(1, 1, "string", ":.other:t-value"),
        record(2, 1, "string", ":.other:v"),
    ]
    schemas = registered(topic(*records, TWO))
    assert {number: one.text for number, one in schemas.by_id.items()} == {1: '"int"', 2: '"long"'}
    assert schemas.newest["u-value"].text == '"int"' and schemas.newest["t-value"].text == '"long"'


def test_an_avro_schema_may_refer_to_others_and_these_to_more() -> None:
    inner = {"type": "enum", "name": "n.E", "symbols": ["X", "Y"]}
    middle = {"type": "record", "name": "n.M", "fields": [{"name": "e", "type": "n.E"}]}
    outer = {
        "type": "record",
        "name": "n.R",
        "fields": [{"name": "m", "type": "n.M"}, {"name": "e", "type": ["null", "n.E"]}],
    }

    def reference(name: str, subject: str) -> dict[str, Any]:
        return {"references": [{"name": name, "subject": subject, "version": 1}]}

    more = reference("n.M", "m")["references"] + reference("n.E", "e")["references"]
    records = [
        record(1, 1, inner, "e"),
        record(2, 1, middle, "m", **reference("n.E", "e")),
        record(3, 1, outer, references=more),
    ]
    schemas = registered(topic(*records))
    assert schemas.newest["t-value"].needs == (json.dumps(inner), json.dumps(middle))
    decoder = decoder_of("avro", schemas.newest["t-value"].text, schemas, schemas.newest["t-value"].needs)
    row = {"m": {"e": "Y"}, "e": "X"}
    data = b"\0\0\0\0\3\2\2\0"  # Y, the second of the union, X
    again = pickle.loads(pickle.dumps(decoder))
    assert decoded(decoder, [data, None]) == decoded(again, [data, None]) == [row, None]
    missing = registered(topic(*records[1:]))
    with pytest.raises(ValueError, match="not an Avro schema: UnknownType n.E"):
        decoder_of("avro", missing.newest["t-value"].text, missing, missing.newest["t-value"].needs)


def test_values_of_another_format_than_asked_are_refused() -> None:
    schemas = registered(
        topic(
            record(1, 1, {}, schemaType="JSON"), record(2, 1, "int", "u"), record(3, 1, "x", "p", schemaType="PROTOBUF")
        )
    )
    found = decoded(decoder_of("avro", '"int"', schemas), [b"\0\0\0\0\1{}", b"\0\0\0\0\2\2", b"\0\0\0\0\3"])
    assert found == ["the schema 1 is json", 1, "the schema 3 is protobuf"]


@pytest.mark.parametrize(
    "wrong",
    [
        (b"{", None),
        (b"[]", None),
        (b"{}", b"{}"),
        (key("SCHEMA", version=1), b"{"),
        (key("SCHEMA"), b"{}"),
        (key("SCHEMA", version=1), b"{}"),
    ],
)
def test_a_topic_that_no_registry_wrote_is_refused(wrong: Record) -> None:
    with pytest.raises(InvalidRecordError, match="expected a record of a schema registry at offset 1 of its topic"):
        registered(topic(ONE, wrong))


def test_json_behind_ids() -> None:
    decoder = decoder_of("json", json.dumps(JSON_SCHEMA), Schemas({3: Schema("json", "{}")}, {}))
    good = b'\0\0\0\0\3{"a":1,"b":null}'
    found = decoded(decoder, [good, b"\0\0\0\0\4{}", b"{}", None, b"\0\0\0\0\3{", good])
    assert found[0] == found[5] and found[0]["a"] == 1 and found[3] is None
    assert found[1] == "the registry has no schema 4" and found[2] == "the value does not begin with the id of a schema"
    assert found[4].startswith("not JSON of this schema")
