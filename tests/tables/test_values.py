"""Values as text, JSON and Avro: what decodes, and why the rest does not."""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import pickle
import random
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from support.golden import scaled

from kts.errors import InvalidRecordError, KtsWarning
from kts.tables.values import Schema, Schemas, ValueDecoder, decoder_of, registered

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


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Headers = list[list[tuple[str, bytes | None]]]


def decoded(decoder: ValueDecoder, values: list[bytes | None], headers: Headers | None = None) -> list[Any]:
    """Each value, or the reason why there is none."""
    heads = [[{"key": name, "value": value} for name, value in one] for one in headers or ()]
    found = decoder.decode(pa.array(values, pa.binary()), pa.array(heads, HEADERS) if headers else None)
    found.values.validate(full=True)
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
        "not JSON of this schema: the field a has another type, up to position 5",
        "not JSON: it ends at 1",
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


# --- JSON against Python's, with the meaning of a schema ---------------------------------------

WIDE = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"type": ["string", "null"]},
        "n": {"type": "number"},
        "k": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "integer"}},
        "o": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
        "f": {"type": "object"},
        "two": {"type": ["integer", "boolean"]},
    },
    "required": ["a", "b"],
}
SOUND = [
    {"a": 1, "b": 'x\u00e9\U0001f600"\\\n', "n": 1.5e10, "k": True, "l": [1, -2, None], "o": {"x": 0.1}, "two": 7},
    {"a": -(2**63), "b": None, "m": {"k": "v", "z": None}, "u": [{"q": [[]]}, "\ud800"], "f": {"any": [1, {}]}},
    {"b": "", "a": 2**63 - 1, "n": -0.0, "m": {}, "l": [], "two": False, "f": {}},
]
SEEDS = [json.dumps(one).encode() for one in SOUND] + [
    b'{"a":1e3,"b":"\\u00e9\\ud83d\\ude00","n":1E+400}',
    b' {"a" : 10.0 , "b" : null, "l":[1,2.0,3]}\r\n',
    b'{"a":1}],"z":[2',
]
PIECES = rb"""{ } [ ] , : " \ \u \ud800 e E5 . .0 - + 0 00 9 999999999 null true nul NaN Infinity "a":1, "a" "m"
],"z":[ //x e-1 e-400 1e309 17976931348623157e292 17976931348623159e292""".split()
PIECES += [b" ", b"\t", b"\x0c", b"\n", b"\r", b"\0", b"\x1f", b"\x7f", b"\xff", "é".encode(), "\ufeff".encode()]


class Refused(Exception):
    pass


class Digits(str):
    """A number as it was written."""


class Members(list[tuple[str, Any]]):
    """An object with each of its members."""


def refuse(*_: object) -> None:
    raise Refused


def meant(value: Any, schema: dict[str, Any]) -> Any:
    """What a value of Python's json is in the columns of WIDE."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if value is None:
        return None
    if isinstance(value, Members) and "object" in kinds:
        names = [name for name, _ in value]
        if "properties" in schema:
            made = {}
            for name, field in schema["properties"].items():
                if names.count(name) > 1:
                    raise Refused
                made[name] = meant(dict(value).get(name), field)
                if made[name] is None and name in schema.get("required", ()) and "null" not in field["type"]:
                    raise Refused
            return made
        if "additionalProperties" not in schema:
            return "text"
        if len(set(names)) < len(names):
            raise Refused
        return [(name.encode().decode(), meant(one, schema["additionalProperties"])) for name, one in value]
    if isinstance(value, Digits):
        number = Decimal(0)
        if set(value.lower().split("e")[0]) & set("123456789"):
            number = Decimal(value)
        if "integer" in kinds:
            _, digits, exponent = number.as_tuple()
            zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
            if number and int(exponent) + zeros < 0:
                raise Refused
            if len(kinds) > 1:
                return "text"
            if not -(2**63) <= number < 2**63:
                raise Refused
            return int(number)
        if "number" in kinds and abs(float(value)) != float("inf"):
            return float(value)
    elif isinstance(value, bool) and "boolean" in kinds:
        return "text" if len(kinds) > 1 else value
    elif isinstance(value, list) and "array" in kinds:
        return [meant(one, schema["items"]) for one in value]
    elif isinstance(value, str) and "string" in kinds:
        return value.encode().decode()
    raise Refused


def expected(data: bytes) -> Any:
    try:
        told = json.loads(data.decode(), object_pairs_hook=Members, parse_constant=refuse, parse_int=Digits,
                          parse_float=Digits)  # fmt: skip
        return meant(told, WIDE)
    except (Refused, ValueError, ArithmeticError):
        return "refused"


def mutated(rng: random.Random) -> bytes:
    value = bytearray(rng.choice(SEEDS))
    for _ in range(rng.randint(0, 3)):
        at, piece = rng.randrange(len(value) + 1), rng.choice(PIECES)
        match rng.randrange(5):
            case 0 | 1:
                value[at:at] = piece
            case 2:
                value[at : at + rng.randint(1, 6)] = b""
            case 3:
                value[at : at + rng.randint(0, 3)] = piece
            case _:
                other = rng.choice(SEEDS)
                begin = rng.randrange(len(other))
                value[at:at] = other[begin : begin + rng.randint(1, 20)]
    return bytes(value)


def test_mutated_json_is_what_pythons_json_and_the_schema_make_of_it(rng: random.Random) -> None:
    values = [mutated(rng) for _ in range(scaled(4_000, 200_000))]
    found = decoded(decoder_of("json", json.dumps(WIDE)), [*values])
    wrong, sound = [], 0
    for value, made in zip(values, found, strict=True):
        right = expected(value)
        shown: Any = "refused" if isinstance(made, str) else made
        if isinstance(shown, dict):
            for name in ("f", "two"):  # text: JSON of its own
                if shown[name] is not None:
                    json.loads(shown[name])
                    shown[name] = "text"
        sound += right != "refused"
        if repr(shown) != repr(right):
            wrong.append((value, right, made))
    assert wrong == []
    assert len(values) // 20 < sound < len(values)


@pytest.mark.parametrize(
    ("texts", "integer"),
    [
        ("1.0 1 10e-1 0.0000000000000000000001e22", 1),
        ("1e3 1E+3 1000.000", 1000),
        ("-1.50e1", -15),
        ("-0 -0.0 0e999999999999999999999", 0),
        ("9223372036854775807 922337203685477580.7e1", 2**63 - 1),
        ("-9223372036854775808.000", -(2**63)),
        ("9223372036854775808 -9223372036854775809 1e19 1e999999999999999999999", None),
        ("1.5 1e-1 1e-999999999999999999999", None),
        ('01 1. .5 +1 1e 0x1 NaN 1_0 "1" -', None),
    ],
)
def test_an_integer_may_be_written_in_any_way_that_is_one(texts: str, integer: int | None) -> None:
    decoder = decoder_of("json", '{"type":"object","properties":{"a":{"type":"integer"}}}')
    found = decoded(decoder, [b'{"a":%s}' % text.encode() for text in texts.split()])
    assert [one["a"] if isinstance(one, dict) else None for one in found] == [integer] * len(found), found


def micros(year: int, month: int, day: int, *of_day: int) -> int:
    """Microseconds since 1970 by the calendar of Python, which repeats every 400 years."""
    eras, near = divmod(year - 1600, 400)
    hour, minute, second, more = (*of_day, 0, 0, 0, 0)[:4]
    since = datetime.datetime(1600 + near, month, day, hour, minute) - datetime.datetime(1970, 1, 1)
    return ((since.days + eras * 146_097) * 86_400 + since.seconds + second) * 1_000_000 + more


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("2026-09-01T10:00:00.1234567Z", micros(2026, 9, 1, 10, 0, 0, 123456)),
        ("2026-09-01T10:00:00.123456999Z", micros(2026, 9, 1, 10, 0, 0, 123456)),
        ("2026-09-01T10:00:00.1Z", micros(2026, 9, 1, 10, 0, 0, 100000)),
        ("2026-09-01t12:00:00.0000001+02:00", micros(2026, 9, 1, 10)),
        ("2026-09-01 10:00:00z", micros(2026, 9, 1, 10)),
        ("2026-01-01T00:30:00+01:00", micros(2025, 12, 31, 23, 30)),
        ("2026-09-01T10:00:00-00:00", micros(2026, 9, 1, 10)),
        ("1969-12-31T23:59:59.9999999Z", -1),
        ("0000-02-29T00:00:00Z", micros(0, 2, 29)),
        ("0001-01-01T00:00:00+23:59", micros(0, 12, 31, 0, 1)),
        ("9999-12-31T23:59:59.999999999-23:59", micros(10000, 1, 1, 23, 58, 59, 999999)),
        ("+10000-01-01T00:00:00Z", micros(10000, 1, 1)),
        ("-0001-12-31T00:00:00Z", micros(-1, 12, 31)),
        ("2016-12-31T23:59:60Z", micros(2017, 1, 1)),
        ("2017-01-01T01:59:60.5+02:00", micros(2017, 1, 1, 0, 0, 0, 500000)),
        ("2026-09-01T10:00:00", micros(2026, 9, 1, 10)),
        ("2026-09-01", micros(2026, 9, 1)),
        ("2026-09-01T10:00+0200", micros(2026, 9, 1, 8)),
        ("2026-02-29T00:00:00Z", None),
        ("1900-02-29T00:00:00Z", None),
        ("2026-13-01T00:00:00Z", None),
        ("2026-09-01T24:00:00Z", None),
        ("2026-09-01T10:00:60Z", None),
        ("2026-09-01T10:00:00.Z", None),
        ("2026-09-01T10:00:00+2:00", None),
        ("2026-09-01T10:00:00+02:", None),
        ("2026-09-01T10:00:00+02:60", None),
        ("2026-09-01T10:00:00ZZ", None),
        ("2026-9-1T10:00:00Z", None),
        ("+999999-01-01T00:00:00Z", None),
        ("10000-01-01T00:00:00Z", None),
        ("", None),
    ],
)
def test_a_date_time_of_rfc_3339_is_cut_to_microseconds(text: str, right: int | None) -> None:
    decoder = decoder_of("json", '{"type":"object","properties":{"at":{"type":"string","format":"date-time"}}}')
    found = decoder.decode(pa.array([json.dumps({"at": text}).encode()]))
    assert found.values.field("at").cast(pa.int64()).to_pylist() == [right]
    assert (len(found.refused) == 1) == (right is None)


def test_days_are_those_of_the_calendar(rng: random.Random) -> None:
    days = [datetime.date.fromordinal(rng.randint(1, 3_652_059)) for _ in range(2000)]
    decoder = decoder_of("json", '{"type":"object","properties":{"d":{"type":"string","format":"date"}}}')
    assert decoded(decoder, [b'{"d":"%s"}' % day.isoformat().encode() for day in days]) == [{"d": day} for day in days]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            {'{"b":1,"a":2.0}': [("b", 1), ("a", 2)], "{}": [], "[]": None},
        ),
        ({"type": "object"}, {'{"b": [1]}': '{"b": [1]}', "[1]": None, '"x"': None}),
        ({"type": "object", "additionalProperties": True}, {'{"a":{}}': '{"a":{}}'}),
        ({"enum": ["a", "b"]}, {'"a"': "a", "1": None}),
        ({"enum": [1, None]}, {"1": 1, '"a"': None}),
        ({"enum": ["a", 1]}, {'"a"': "a", "1": "1", "true": None}),
        ({"const": "x"}, {'"x"': "x"}),
        ({"type": ["string", "integer"]}, {'"a\\u0062"': "ab", "12": "12", "1.5": None, "1e3": "1e3", "{}": None}),
        ({"type": ["integer", "number"]}, {"1": 1.0, "1.5": 1.5}),
        ({"oneOf": [{"type": "string"}, {"type": "object"}]}, {'"a"': "a", '{"x":1}': '{"x":1}'}),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, {"1": 1, '"a"': None}),
        ({"allOf": [{"$ref": "#/$defs/n"}]}, {"1": 1, '"a"': None}),
        ({"$ref": "#/$defs/a~1b"}, {"true": True}),
        (True, {"[1, 2]": "[1, 2]", '"x"': "x"}),
        ({"type": "array"}, {'["x",{"y":1}]': ["x", '{"y":1}'], "{}": None}),
        ({"type": "array", "items": [{"type": "integer"}]}, {"[1]": ["1"]}),
        ({"$ref": "#"}, {'{"tags":{}}': '{"tags":{}}'}),
    ],
)  # fmt: skip
def test_one_odd_field_refuses_no_topic(field: Any, values: dict[str, Any]) -> None:
    """It is a map, or text: a string's characters, or JSON as it is written."""
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "tags": field}}
    schema["$defs"] = {"n": {"type": "integer"}, "a/b": {"type": "boolean"}}
    found = decoded(decoder_of("json", json.dumps(schema)), [b'{"id":7,"tags":%s}' % one.encode() for one in values])
    assert [one["tags"] if isinstance(one, dict) else None for one in found] == [*values.values()]
    assert all(one["id"] == 7 for one in found if isinstance(one, dict))


@pytest.mark.parametrize(
    "value",
    [b"[" * 1_000_000, b'{"u":' * 1_000_000, b'{"l":' + b"[" * 600 + b"]" * 600 + b"}", b'{"u":[' + b"null," * 10**6],
)
def test_a_deep_or_an_open_value_is_refused(value: bytes) -> None:
    schema = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}, "l": True}})
    good = b'{"a":1}'
    found = decoded(decoder_of("json", schema), [good, value, good])
    assert found[0] == found[2] == {"a": 1, "l": None} and isinstance(found[1], str)


@pytest.mark.slow
def test_small_items_of_many_fields_do_not_multiply_memory() -> None:
    wide = {"type": "object", "properties": {f"f{number}": {"type": "integer"} for number in range(5000)}}
    schema = {"type": "object", "properties": {"l": {"type": "array", "items": wide}}}
    found = decoded(decoder_of("json", json.dumps(schema)), [b'{"l":[{}]}', b'{"l":[' + b"{}," * 5000 + b"{}]}"])
    assert len(found[0]["l"]) == 1 and found[1] == "it has more than 16,777,216 fields and items"


def test_avro_becomes_columns() -> None:
    row = {"a": 1, "b": None, "t": TIME, "m": {"k": 1}, "e": "X", "u": "1b4e28ba", "again": "Y"}
    decoder = decoder_of("avro", json.dumps(AVRO_SCHEMA))
    data = avro(row)
    found = decoded(decoder, [data, None, data[:-1], data + b"x", b"", data])
    assert found[0] == found[5] == row | {"m": [("k", 1)]} and found[1] is None
    assert found[2:5] == [
        "not Avro of this schema: it ends within a number, at position 23 in the field again",
        "not Avro of this schema: bytes follow the Avro value, at position 24",
        "not Avro of this schema: it ends within a number, at position 0 in the field a",
    ]


def numbers(kind: Any, logical: str, values: list[int]) -> list[int | None]:
    """Times of a logical type as the column has them, in its unit."""
    decoder = decoder_of("avro", json.dumps({"type": kind, "logicalType": logical}))
    data = [avro(value, {"type": kind}) for value in values]  # type: ignore[arg-type]
    found = decoder.decode(pa.array(data, pa.binary()))
    column = found.values.cast(pa.int32() if logical == "date" else pa.int64())
    made: list[int | None] = column.to_pylist()
    return made


def test_times_beyond_the_years_of_python_are_numbers_of_microseconds() -> None:
    """As Spark's from_avro: 64 bits of microseconds, and null, with a reason, beyond."""
    ends = [0, -1, 253_402_300_800_000, -62_135_596_800_001, 1_790_000_000_000_000, (2**63 - 1) // 1000]
    for logical in ("timestamp-millis", "local-timestamp-millis"):
        assert numbers("long", logical, ends) == [one * 1000 for one in ends]
        assert numbers("long", logical, [2**63 // 1000 + 1, -(2**63), 5]) == [None, None, 5000]
    for logical in ("timestamp-micros", "local-timestamp-micros"):
        assert numbers("long", logical, [2**63 - 1, -(2**63), 0]) == [2**63 - 1, -(2**63), 0]
    assert numbers("int", "date", [2**31 - 1, -(2**31), 2_932_897]) == [2**31 - 1, -(2**31), 2_932_897]
    assert numbers("int", "time-millis", [86_399_999, 86_400_000, -1]) == [86_399_999_000, None, None]
    assert numbers("long", "time-micros", [86_399_999_999, 86_400_000_000, -1]) == [86_399_999_999, None, None]


EMPTY = {"type": "record", "name": "Z", "fields": []}


def zigzag(number: int) -> bytes:
    return avro(number, "long")  # type: ignore[arg-type]


@pytest.mark.parametrize("items", [EMPTY, {"type": "fixed", "name": "Z", "size": 0}, "null"])
@pytest.mark.parametrize(
    "data", [zigzag(2**40) + b"\0", zigzag(-(2**40)) + zigzag(0) + b"\0", zigzag(-(2**63)) + b"\0\0"]
)
def test_a_count_of_items_that_take_no_bytes_is_not_believed(items: Any, data: bytes) -> None:
    """Of a field that the column has, and, behind a registry's id, of one that it has not."""
    array = {"type": "record", "name": "R", "fields": [{"name": "f", "type": {"type": "array", "items": items}}]}
    if items != "null":  # which columns do not have
        [found] = decoded(decoder_of("avro", json.dumps(array)), [data])
        assert found.startswith("not Avro of this schema: ")
    own = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": 0}]}
    schemas = registered(topic(record(1, 1, array), record(2, 2, own)))
    found = decoded(decoder_of("avro", json.dumps(own), schemas), [b"\0\0\0\0\1" + data, b"\0\0\0\0\1\0"])
    assert found[0].startswith("not Avro of this schema: ") and found[1] == {"a": 0}


def test_a_schema_within_itself_is_walked_to_a_bound() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    older = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "f", "type": node}]}
    own = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    schemas = registered(topic(record(1, 1, older), record(2, 2, own)))
    deep = [b"\0\0\0\0\1\2" + b"\2" * levels + b"\0" for levels in (0, 100, 100_000, 1_000_000)]
    refused = "not Avro of this schema: it is more than 500 levels deep, at position 250 in the field Node.next"
    assert decoded(decoder_of("avro", json.dumps(own), schemas), [*deep]) == [{"a": 1}] * 2 + [refused] * 2


def json_bomb(levels: int) -> dict[str, Any]:
    defs: dict[str, Any] = {"a0": {"type": "integer"}}
    for level in range(1, levels):
        defs[f"a{level}"] = {
            "type": "object",
            "properties": {f"p{each}": {"$ref": f"#/d/a{level - 1}"} for each in range(10)},
        }
    return {"$ref": f"#/d/a{levels - 1}", "d": defs}


def json_repeated(place: dict[str, Any]) -> dict[str, Any]:
    """A place that is large in itself, reached by 4,000 references."""
    reached = {f"f{number}": {"$ref": "#/d/a"} for number in range(4_000)}
    return {"type": "object", "properties": reached, "d": {"a": place, "b": {"type": "string"}}}


def avro_bomb(levels: int, leaf: Any = "int") -> dict[str, Any]:
    made: dict[str, Any] = {"type": "record", "name": "A0", "fields": [{"name": "x", "type": leaf}]}
    for level in range(1, levels):
        fields = [{"name": "p", "type": made}, {"name": "q", "type": f"A{level - 1}"}]
        made = {"type": "record", "name": f"A{level}", "fields": fields}
    return made


@pytest.mark.parametrize(
    ("value_format", "schema"),
    [
        ("json", json_bomb(10)),
        ("json", {"type": "object", "properties": {f"f{number}": {"type": "integer"} for number in range(10_001)}}),
        ("json", json_repeated({"enum": [f"a{number}" for number in range(10_000)]})),
        ("json", json_repeated({"type": ["string"] * 10_000})),
        ("json", json_repeated({"anyOf": [{"type": "null"}] * 10_000 + [{"type": "string"}]})),
        ("json", json_repeated({"properties": {"x": {"type": "string"}}, "required": ["x"] * 10_000})),
        ("json", json_repeated({"$ref": "#" + "/" * 10_000 + "d/b"})),
        ("json", json_repeated({"properties": {"x" * 10_000: {"type": "string"}}})),
        ("avro", avro_bomb(40)),
        ("avro", avro_bomb(40, EMPTY)),
    ],
    ids=[
        "json", "json, wide", "json, enum", "json, types", "json, choices", "json, required", "json, reference",
        "json, name", "avro", "avro of nothing",
    ],
)  # fmt: skip
def test_a_schema_is_as_large_as_its_columns(value_format: str, schema: Any) -> None:
    with pytest.raises(ValueError, match="^value_schema: it has more than 10,000 fields"):
        decoder_of(value_format, json.dumps(schema))


def test_schemas_below_the_bound_are_columns() -> None:
    assert decoder_of("json", json.dumps(json_bomb(4))).type.num_fields == 10
    [found] = decoded(decoder_of("avro", json.dumps(avro_bomb(8))), [b"\2" * 128])
    assert found["q"]["q"]["q"] == found["p"]["p"]["p"] and found["p"]["p"]["p"]["p"]["p"]["p"]["p"] == {"x": 1}


def test_a_writers_schema_that_makes_much_of_nothing_refuses_its_values() -> None:
    own = {"type": "record", "name": "A39", "fields": [{"name": "a", "type": "int", "default": 0}]}
    schemas = registered(topic(record(1, 1, avro_bomb(40, EMPTY)), record(2, 2, own)))
    [found] = decoded(decoder_of("avro", json.dumps(own), schemas), [b"\0\0\0\0\1"])
    assert found.startswith("not Avro of this schema: it has too many fields for its bytes, at position 0")


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
        ("json", '{"type":["integer","string"]}', "its fields may be anything"),
        ("json", '{"oneOf":[{"type":"integer"},{"type":"string"}]}', "its fields may be anything"),
        ("json", '{"$ref":"#/a"}', "refers to #/a"),
        ("json", '{"type":"object","properties":{"a":{"type":"strange"}}}', "found 'strange'"),
        ("json", '{"type":"object","properties":{"a":{"$ref":"other.json#/a"}}}', "refers to other.json"),
        ("json", "[" * 100_000, "expected JSON"),
        ("json", '{"items":' * 300 + "1" + "}" * 300, "levels deep"),
        ("avro", '["null"]', "has the type null"),
        ("avro", '["int","string","int"]', "a union has a type twice"),
        ("avro", '{"type":"bytes","logicalType":"decimal","precision":39}', "has 39 digits; a column has 38"),
        ("avro", '"strange"', "not an Avro schema: the type strange is unknown"),
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
    with pytest.raises(ValueError, match="not an Avro schema: the type n.E is unknown"):
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
    assert found[4] == "not JSON: it ends at 1"


GUID = hashlib.md5(json.dumps(NEWER).encode()).digest()


def test_an_id_in_a_header_goes_before_bytes_that_look_like_one() -> None:
    """Confluent's header: 0 and an id, or 1 and a GUID, which is the MD5 of the schema. The last header counts."""
    decoder = decoder_of("avro", json.dumps(NEWER), registered(topic(record(1, 1, OLDER), record(7, 2, NEWER))))
    name = "__value_schema_id"
    newer, looks = avro({"a": 6, "c": "x"}, NEWER), avro({"a": 0, "c": ""}, NEWER)
    rows: list[tuple[bytes | None, list[tuple[str, bytes | None]], Any]] = [
        (newer, [(name, b"\1" + GUID)], {"a": 6, "c": "x"}),
        (newer, [(name, b"\0\0\0\0\7"), ("other", b"x")], {"a": 6, "c": "x"}),
        (looks, [(name, b"\0\0\0\0\7")], {"a": 0, "c": ""}),
        (b"\n", [(name, b"\0\0\0\0\7"), (name, b"\0\0\0\0\1")], {"a": 5, "c": "d"}),
        (b"\0\0\0\0\1\n", [("other", b"\0\0\0\0\7")], {"a": 5, "c": "d"}),
        (b"\0\0\0\0\7" + newer, [(name, None)], {"a": 6, "c": "x"}),
        (newer, [(name, b"\0\0\0\0\2")], "the registry has no schema 2"),
        (newer, [(name, b"\2" + GUID)], "as told below"),
        (newer, [], "the value does not begin with the id of a schema"),
        (None, [(name, b"\1" + GUID)], None),
    ]
    found = decoded(decoder, [value for value, _, _ in rows], [headers for _, headers, _ in rows])
    right = [expected for _, _, expected in rows]
    assert found[:7] == right[:7] and found[8:] == right[8:]
    assert found[7].startswith(f"the header {name} has no id of a schema: 02")


def test_json_with_an_id_in_a_header_is_whole() -> None:
    decoder = decoder_of("json", json.dumps(JSON_SCHEMA), Schemas({3: Schema("json", "{}")}, {}))
    headers: Headers = [[("__value_schema_id", b"\0\0\0\0\3")], []]
    found = decoded(decoder, [b'{"a":1,"b":null}', b'{"a":1,"b":null}'], headers)
    assert found[0]["a"] == 1 and found[1] == "the value does not begin with the id of a schema"


def test_a_guid_that_the_registry_lacks_is_told_and_the_schema_of_the_column_decodes() -> None:
    decoder = decoder_of("avro", json.dumps(NEWER), registered(topic(record(1, 1, OLDER), record(7, 2, NEWER))))
    values: list[bytes | None] = [avro({"a": 6, "c": "x"}, NEWER), avro({"a": 6}, OLDER)]
    with pytest.warns(KtsWarning, match="no schema has the GUID 0{32} of the header"):
        found = decoded(decoder, values, [[("__value_schema_id", b"\1" + bytes(16))]] * 2)
    assert found == [
        {"a": 6, "c": "x"},
        "not Avro of this schema: it ends within a number, at position 1 in the field c",
    ]


def test_the_guid_of_a_schema_is_confluents() -> None:
    """Pinned in SchemaValuesTest of the registry."""
    text = '{"type":"record","name":"myrecord","fields":[{"type":"string","default":null,"name":"f"}]}'
    told = json.dumps({"subject": "s", "version": 1, "id": 4, "schema": text}).encode()
    guid = bytes(one & 255 for one in (29, 32, -53, -71, -27, -29, 94, -105, 84, -25, -38, 23, 11, 110, 93, -37))
    assert registered(topic((key("SCHEMA", "s", version=1), told))).guids == {guid: 4}


@pytest.mark.parametrize(
    "wrong",
    [
        (b"[" * 100_000, None),
        (key("SCHEMA", version=1), b"[" * 100_000),
        (key("SCHEMA", version=1), b"[1]"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1e400}', b'{"id":1,"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":true}', b'{"id":1,"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":["s"],"version":1}', b'{"id":1,"schema":"x"}'),
        record(10**30, 1, "int"),
        record(-1, 1, "int"),
        record(1, 1, "int", schemaType=5),
        (key("SCHEMA", version=1), b'{"id":1,"schema":5}'),
        record(1, 1, "int", references=5),
        record(1, 1, "int", references=[[1]]),
        record(1, 1, "int", references=[{"subject": [1], "version": 1}]),
        record(1, 1, "int", references=[{"subject": "s", "version": "1"}]),
        (key("DELETE_SUBJECT"), b'{"subject":["t"],"version":1}'),
        (key("DELETE_SUBJECT"), b'{"subject":"t","version":"1"}'),
        (b"\xff", None),
    ],
    ids=lambda one: f"{one[0]!r:.40} {one[1]!r:.30}",
)
def test_poison_in_a_registrys_topic_is_one_error_with_its_place(wrong: Record) -> None:
    with pytest.raises(InvalidRecordError, match="expected a record of a schema registry at offset 2 of its topic"):
        registered(topic(ONE, TWO, wrong))


def test_long_chains_and_loops_of_references_are_followed_once() -> None:
    def chained(number: int, other: int) -> Record:
        return record(number, 1, number, f"s{number}", references=[{"name": "x", "subject": f"s{other}", "version": 1}])

    schemas = registered(topic(*(chained(number, number - 1) for number in range(3000)), chained(3000, 3000)))
    assert schemas.newest["s2999"].needs == tuple(map(str, range(2999)))
    assert schemas.by_id[3000].needs == ("3000",)


@pytest.mark.slow
def test_what_is_newest_among_thousands_of_versions_and_deletions(rng: random.Random) -> None:
    """Against the plain rule, which looks at every version for each deletion."""
    for _ in range(30):
        records, alive = list[Record](), dict[int, bool]()
        for _ in range(rng.randint(1, 40)):
            version = rng.randint(1, 6)
            if rng.random() < 0.3:
                records.append((key("DELETE_SUBJECT"), json.dumps({"subject": "t-value", "version": version}).encode()))
                alive = {each: lives and each > version for each, lives in alive.items()}
            else:
                deleted = rng.random() < 0.2
                records.append(record(version, version, version, deleted=deleted))
                alive[version] = not deleted
        newest = registered(topic(*records)).newest.get("t-value")
        right = max((each for each, lives in alive.items() if lives), default=None)
        assert (newest and newest.text) == (None if right is None else str(right)), records
    many = [record(number, number, number) for number in range(1, 10_000)]
    gone = [(key("DELETE_SUBJECT"), b'{"subject":"t-value","version":%d}' % number) for number in range(1, 9_999)]
    schemas = registered(topic(*many, *gone))
    assert schemas.newest["t-value"].text == "9999" and len(schemas.by_id) == 9_999
