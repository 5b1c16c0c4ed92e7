"""Avro schemas as types: names and namespaces, logical types that count, and texts that are no schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kts.avro.schema import AvroTypes, check_size


def fields(*types: Any, **more: Any) -> dict[str, Any]:
    named = [{"name": f"f{number}", "type": told} for number, told in enumerate(types)]
    return {"type": "record", "name": "R", "fields": named} | more


def test_names_stand_for_types_of_their_namespace() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["A"]}
    told = fields(inner, "E", "n.E", fields("E", name="m.S"), {"type": "m.S"}, namespace="n")
    told["fields"][3]["type"]["fields"][0]["type"] = {"type": "fixed", "name": "E", "size": 1}
    root = AvroTypes(json.dumps(told)).root
    types = [one.type for one in root.fields]
    assert root.name == "n.R" and types[0] is types[1] is types[2] and types[0].name == "n.E"
    assert types[3] is types[4] and types[3].fields[0].type.name == "m.E"


def test_references_give_names_in_their_order() -> None:
    types = AvroTypes(fields("n.M"), [{"type": "fixed", "name": "n.F", "size": 2}, fields("F", name="n.M")])
    assert types.root.fields[0].type.fields[0].type.size == 2 and len(types.places) == 3


@pytest.mark.parametrize(
    ("told", "logical"),
    [
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "long", "logicalType": "date"}, None),
        ({"type": "int", "logicalType": "timestamp-millis"}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "decimal"),
        ({"type": "bytes", "logicalType": "decimal"}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0}, None),
        ({"type": "string", "logicalType": "decimal", "precision": 4}, None),
        ({"type": "string", "logicalType": "uuid"}, None),
        ({"type": "int", "logicalType": ["date"]}, None),
        ({"type": {"type": "long", "logicalType": "timestamp-nanos"}}, "timestamp-nanos"),
    ],
)
def test_a_logical_type_counts_where_it_is_of_its_type(told: Any, logical: str | None) -> None:
    assert AvroTypes(told).root.logical == logical


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("{", "expected JSON, found '{'"),
        ("[" * 100_000, "expected JSON"),
        ('{"type":' * 300 + '"int"' + "}" * 300, "its JSON is more than 200 levels deep"),
        ("7", "expected a type, found 7"),
        ({}, "expected a type, found {}"),
        ({"type": "array"}, "expected a type, found null"),
        ('"strange"', "the type strange is unknown"),
        (["int", ["string"]], "a union lies directly within a union"),
        ({"type": "record", "fields": []}, "expected the name of a type or field, found None"),
        ({"type": "record", "name": "R"}, "the record R has no fields"),
        ({"type": "record", "name": "R", "fields": ["a"]}, "the record R has no fields"),
        ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "the field a has no type"),
        (fields("int") | {"fields": [{"name": "a", "type": "int"}] * 2}, "the record R has a field twice"),
        ({"type": "record", "name": "\ud800", "fields": []}, "a name is not text"),
        (fields(fields("int")), "the type R is there twice"),
        ({"type": "fixed", "name": "F"}, "F has no size"),
        ({"type": "fixed", "name": "F", "size": -1}, "F has no size"),
        ({"type": "fixed", "name": "F", "size": 2**31}, "F has no size"),
        ({"type": "enum", "name": "E", "symbols": "A"}, "expected a list of symbols"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "the enum E has a symbol twice"),
        ({"type": "enum", "name": "E", "symbols": [1]}, "expected the symbols of a type"),
    ],
)
def test_what_is_no_schema_is_refused(told: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        AvroTypes(told)


def test_a_schema_within_itself_has_a_size() -> None:
    check_size(AvroTypes(fields(["null", "R"], {"type": "array", "items": "R"})).root, 10, 10)
    with pytest.raises(ValueError, match="more than 2 fields"):
        check_size(AvroTypes(fields("int", "int")).root, 2, 10)
