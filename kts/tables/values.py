"""Values as text, JSON or Avro: decoded into columns, or refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kts.arguments import INT32_MAX
from kts.segment import files

FORMATS = ("text", "json", "avro")
FEW = 1024  # rows that are parsed together where some are refused
REGISTRY_MAGIC = 0  # the first byte of a value whose schema is in a registry; then come four bytes of the schema's id
REGISTRY_HEADER = 5
LOGICAL_TYPES = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
}
AVRO_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
JSON_TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
JSON_FORMATS = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}


class Decoded(NamedTuple):
    """Values of one type, null where the bytes are null or refused, and the reasons by row."""

    values: pa.Array
    refused: dict[int, str]


class Decoder(NamedTuple):
    """How values are decoded, and the type that they get; pickled as the arguments of ``decoder_of``."""

    type: pa.DataType
    decode: Callable[[pa.Array], Decoded]
    made_of: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return decoder_of, self.made_of


class Schemas(NamedTuple):
    """Schemas of a registry: by id, and the newest of each subject."""

    by_id: Mapping[int, str]
    newest: Mapping[str, tuple[str, str]]  # the type (AVRO, JSON, PROTOBUF) and the text


def decoder_of(value_format: str, schema: str | None, schemas: Schemas | None = None) -> Decoder:
    """The decoder of a format.

    Parameters
    ----------
    value_format : str
        One of ``FORMATS``.
    schema : str, optional
        JSON Schema for ``json``, an Avro schema for ``avro``: what the table has. None for ``text``.
    schemas : Schemas, optional
        Of a registry: values begin with the id of theirs.

    Raises
    ------
    ValueError
        The schema is missing, malformed, or of a type that columns do not have.
    """
    if value_format == "text":
        if schema is not None:
            raise ValueError("value_schema: text has no schema; leave it out")
        return Decoder(pa.string(), _text, (value_format, schema))
    if schema is None:
        raise ValueError(f"value_schema: {value_format} needs a schema; give its file, or registry")
    try:
        told = json.loads(schema)
    except ValueError as error:
        raise ValueError(f"value_schema: expected JSON, found {schema[:40]!r}: {error}") from error
    if value_format == "json":
        type_ = _json_type(told, told, "the value")
        decode = partial(_json, type_, _required(told, told))
        decode = decode if schemas is None else partial(_behind_ids, schemas, decode)
    else:
        type_, decode = _avro_decoder(told, schemas)
    return Decoder(type_, decode, (value_format, schema, schemas))


# --- text --------------------------------------------------------------------------------------


def _text(values: pa.Array) -> Decoded:
    refused: dict[int, str] = {}

    def parse(first: int, end: int) -> pa.Array:
        return values.slice(first, end - first).cast(pa.string())

    suspects = _failing(values, partial(str, encoding="utf-8"))
    return Decoded(_searched(len(values), parse, suspects, pa.string(), lambda error: "not UTF-8", refused), refused)


def _searched(
    count: int,
    parse: Callable[[int, int], pa.Array],
    suspects: Callable[[int, int], list[int]],
    type_: pa.DataType,
    reason: Callable[[pa.ArrowInvalid], str],
    refused: dict[int, str],
) -> pa.Array:
    """What ``parse`` makes of rows from one to another, null for those that it refuses alone.

    Once it refused any, it gets a few rows at a time, cut at those that ``suspects`` names and then in halves.
    """
    waiting, parts = [(0, count, False)], list[pa.Array]()
    while waiting:
        first, end, looked = waiting.pop()
        try:
            parts.append(parse(first, end))
        except pa.ArrowInvalid as error:
            if end - first == 1:
                refused[first] = reason(error)
                parts.append(pa.nulls(1, type_))
                continue
            cuts: Iterable[int] = [(first + end) // 2]
            few = end - first <= FEW
            if not few:
                cuts = range(first, end, FEW)
            elif not looked and (found := suspects(first, end)):
                cuts = sorted({cut for row in found for cut in (row, row + 1)})
            edges = [first, *(cut for cut in cuts if first < cut < end), end]
            waiting += reversed([(start, stop, few) for start, stop in pairwise(edges)])
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _failing(values: pa.Array, call: Callable[[Any], object]) -> Callable[[int, int], list[int]]:
    """Names the rows whose value a call refuses with a ValueError."""

    def rows(first: int, end: int) -> list[int]:
        found = []
        for row, value in enumerate(values.slice(first, end - first).to_pylist(), first):
            try:
                if value is not None:
                    call(value)
            except (ValueError, RecursionError):
                found.append(row)
        return found

    return rows


# --- JSON --------------------------------------------------------------------------------------


def _json(type_: pa.DataType, required: list[tuple[str, ...]], values: pa.Array) -> Decoded:
    """JSON values, each in a line of its own that has its number: what spills over into another one is found."""
    texts, refused = _text(values)  # Arrow's parser takes any bytes within a string
    there = pc.indices_nonzero(texts.is_valid()).to_numpy()
    if len(there) == 0:
        return Decoded(pa.nulls(len(values), type_), refused)
    malformed: dict[int, str] = {}
    texts = texts.drop_null()
    found = _searched(
        len(texts), _json_lines(texts, type_), _failing(texts, json.loads), type_, _json_reason, malformed
    )
    for path in required:
        _refuse_missing(found, path, malformed)
    refused |= {int(there[row]): why for row, why in malformed.items()}
    places = np.full(len(values), -1)
    places[there] = np.arange(len(there))
    places[list(refused)] = -1
    return Decoded(found.take(pa.array(places, mask=places < 0)), refused)


def _json_lines(texts: pa.Array, type_: pa.DataType) -> Callable[[int, int], pa.Array]:
    """A parser of some of the values: each is in a line with its number, so that none spills over into another."""
    numbers = pa.array(np.arange(len(texts))).cast(pa.string())
    # Between two tokens they are white space, and within one they are no JSON.
    flat = pc.replace_substring_regex(texts, "[\r\n]", " ")
    lines = pc.binary_join_element_wise('{"i":', numbers, ',"v":[', flat, "]}\n", "")
    edges = np.frombuffer(lines.buffers()[1], np.int32, len(lines) + 1)
    schema = pa.schema([("i", pa.int64()), ("v", pa.list_(type_))])
    how = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def parse(first: int, end: int) -> pa.Array:
        data = lines.buffers()[2].slice(int(edges[first]), int(edges[end] - edges[first]))
        options = pyarrow.json.ReadOptions(block_size=data.size)
        table = pyarrow.json.read_json(pa.BufferReader(data), read_options=options, parse_options=how)
        found, wanted = table.column("i").to_numpy(), np.arange(first, end)
        one_each = len(found) == len(wanted) and (found == wanted).all()
        if not one_each or not pc.all(pc.equal(pc.list_value_length(table.column("v")), 1)).as_py():
            raise pa.ArrowInvalid("not one value")
        column = pc.list_flatten(table.column("v"))
        return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)

    return parse


def _json_reason(error: pa.ArrowInvalid) -> str:
    return f"not JSON of this schema: {str(error).removeprefix('JSON parse error: ').removesuffix(' in row 0')}"


def _refuse_missing(values: pa.Array, path: tuple[str, ...], refused: dict[int, str]) -> None:
    """Refuse values that lack a field, in objects that are there."""
    within = values.is_valid()
    for name in path[:-1]:
        values = pc.struct_field(values, name)
        within = pc.and_(within, values.is_valid())
    missing = pc.and_(within, pc.struct_field(values, path[-1]).is_null())
    for row in pc.indices_nonzero(missing).to_pylist():
        refused.setdefault(row, f"the field {'.'.join(path)} is missing")


def _resolved(told: Any, root: Any, where: str) -> dict[str, Any]:
    """A JSON Schema without ``$ref`` and without null among its types."""
    seen = 0
    while True:
        if not isinstance(told, dict):
            raise ValueError(f"value_schema: expected a JSON Schema for {where}, found {json.dumps(told)[:60]}")
        choices = told.get("oneOf") or told.get("anyOf")
        if "$ref" in told:
            place, seen = root, seen + 1
            for name in str(told["$ref"]).removeprefix("#").strip("/").split("/"):
                place = place.get(name) if isinstance(place, dict) else None
            if place is None or not str(told["$ref"]).startswith("#/") or seen > 100:
                raise ValueError(f"value_schema: {where} refers to {told['$ref']}, which is not in the file")
            told = place
        elif isinstance(choices, list):
            others = [one for one in choices if one != {"type": "null"}]
            if len(others) != 1:
                raise ValueError(f"value_schema: {where} may be one of several types; a column has one")
            told = others[0]
        elif isinstance(told.get("type"), list):
            kinds = [kind for kind in told["type"] if kind != "null"]
            if len(kinds) != 1:
                raise ValueError(f"value_schema: {where} may be of the types {', '.join(kinds)}; a column has one")
            told = told | {"type": kinds[0]}
        else:
            return told


def _json_type(told: Any, root: Any, where: str, depth: int = 0) -> pa.DataType:
    told = _resolved(told, root, where)
    kind = told.get("type")
    if depth > 50:
        raise ValueError(f"value_schema: {where} contains itself, which columns cannot")
    if kind == "string" and told.get("format") in JSON_FORMATS:
        return JSON_FORMATS[told["format"]]
    if kind in JSON_TYPES:
        return JSON_TYPES[kind]
    if kind == "array":
        return pa.list_(_json_type(told.get("items"), root, f"an item of {where}", depth + 1))
    if kind == "object" and told.get("properties"):
        fields = told["properties"].items()
        return pa.struct([(name, _json_type(field, root, f"the field {name}", depth + 1)) for name, field in fields])
    raise ValueError(
        f"value_schema: expected a type of {where} (string, integer, number, boolean, array with items, object with"
        f" properties), found {kind!r}"
    )


def _required(told: Any, root: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of fields that may be neither missing nor null."""
    told = _resolved(told, root, "the value")
    found = []
    for name, field in told.get("properties", {}).items():
        if name in told.get("required", ()) and not _may_be_null(field):
            found.append((*path, name))
        if _resolved(field, root, name).get("type") == "object":
            found += _required(field, root, (*path, name))
    return found


def _may_be_null(told: Any) -> bool:
    choices = told.get("oneOf") or told.get("anyOf") or []
    return "null" in (told.get("type") or ()) or any(one == {"type": "null"} for one in choices)


# --- Avro --------------------------------------------------------------------------------------


def _avro_decoder(told: Any, schemas: Schemas | None) -> tuple[pa.DataType, partial[Decoded]]:
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Avro needs {error.name}: pip install 'kafka-timestamps[tables]'", name=error.name
        ) from error
    try:
        reader = fastavro.parse_schema(_plain_avro(told))
    except Exception as error:  # fastavro has errors of many kinds
        raise ValueError(f"value_schema: not an Avro schema: {type(error).__name__} {error}") from error
    type_ = _avro_type(reader, {}, "the value")
    if schemas is None:
        return type_, partial(_avro, type_, lambda value: (value, reader, None))
    writers: dict[int, Any] = {}

    def place(value: bytes) -> tuple[bytes, Any, Any]:
        number = _schema_id(value)
        if number not in writers:
            if number not in schemas.by_id:
                raise ValueError(f"the registry has no schema {number}")
            writers[number] = fastavro.parse_schema(_plain_avro(json.loads(schemas.by_id[number])))
        return value[REGISTRY_HEADER:], writers[number], reader

    return type_, partial(_avro, type_, place)


def _avro(type_: pa.DataType, place: Callable[[bytes], tuple[bytes, Any, Any]], values: pa.Array) -> Decoded:
    """Avro values, record by record in fastavro's compiled code: nothing but a value's own end tells where it ends."""
    from fastavro import schemaless_reader

    refused: dict[int, str] = {}
    rows: list[Any] = []
    for number, value in enumerate(values.to_pylist()):
        row = None
        if value is not None:
            try:
                data, writer, reader = place(value)
                source = BytesIO(data)
                row = schemaless_reader(source, writer, reader)
                if source.tell() != len(data):
                    refused[number] = f"{len(data) - source.tell()} bytes follow the Avro value"
                    row = None
            except Exception as error:  # fastavro has errors of many kinds
                refused[number] = f"not Avro of this schema: {type(error).__name__} {error}".strip()
        rows.append(row)
    return Decoded(_avro_column(rows, type_, refused), refused)


def _avro_column(rows: list[Any], type_: pa.DataType, refused: dict[int, str]) -> pa.Array:
    try:
        return pa.array(rows, type_)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        for number, row in enumerate(rows):
            try:
                pa.array([row], type_)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                refused[number], rows[number] = f"not a value of the column: {error}", None
        return pa.array(rows, type_)


def _plain_avro(told: Any) -> Any:
    """The schema without logical types that columns do not have."""
    if isinstance(told, list):
        return [_plain_avro(one) for one in told]
    if not isinstance(told, dict):
        return told
    kept = {
        name: _plain_avro(one) if name in ("type", "items", "values", "fields") else one for name, one in told.items()
    }
    logical = kept.get("logicalType")
    if logical is not None and logical != "decimal" and logical not in LOGICAL_TYPES:
        del kept["logicalType"]
    return kept


def _avro_type(told: Any, named: dict[str, pa.DataType | None], where: str) -> pa.DataType:
    if isinstance(told, list):
        others = [one for one in told if one not in ("null", {"type": "null"})]
        if len(others) != 1:
            raise ValueError(f"value_schema: {where} is a union of several types; a column has one")
        return _avro_type(others[0], named, where)
    if isinstance(told, str):
        if told in AVRO_TYPES:
            return AVRO_TYPES[told]
        known = named.get(told)
        if known is None:
            raise ValueError(f"value_schema: {where} has the type {told}, which contains itself; a column cannot")
        return known
    if not isinstance(told, dict):
        raise ValueError(f"value_schema: expected an Avro schema for {where}, found {json.dumps(told)[:60]}")
    kind = told.get("type")
    if told.get("logicalType") in LOGICAL_TYPES:
        return LOGICAL_TYPES[told["logicalType"]]
    if told.get("logicalType") == "decimal":
        return pa.decimal128(told["precision"], told.get("scale", 0))
    if kind == "array":
        return pa.list_(_avro_type(told.get("items"), named, f"an item of {where}"))
    if kind == "map":
        return pa.map_(pa.string(), _avro_type(told.get("values"), named, f"a value of {where}"))
    if kind not in ("record", "error", "enum", "fixed"):
        return _avro_type(kind, named, where)
    named[told["name"]] = None  # with its namespace
    if kind == "enum":
        type_ = pa.string()
    elif kind == "fixed":
        type_ = pa.binary()
    else:
        type_ = pa.struct(
            [(one["name"], _avro_type(one["type"], named, f"the field {one['name']}")) for one in told["fields"]]
        )
    named[told["name"]] = type_
    return type_


# --- a registry --------------------------------------------------------------------------------


def registered(records: list[tuple[bytes | None, bytes | None]]) -> Schemas:
    """The schemas in the records of a registry's topic, in their order.

    Notes
    -----
    Source: Confluent Schema Registry, SchemaKey and SchemaValue.
    """
    by_id: dict[int, str] = {}
    newest: dict[str, tuple[str, str]] = {}
    versions: dict[str, int] = {}
    for key, value in records:
        if key is None or value is None or json.loads(key).get("keytype") != "SCHEMA":
            continue
        told = json.loads(value)
        by_id[told["id"]] = told["schema"]
        subject = told["subject"]
        if not told.get("deleted") and told["version"] >= versions.get(subject, 0):
            versions[subject] = told["version"]
            newest[subject] = told.get("schemaType", "AVRO"), told["schema"]
    return Schemas(by_id, newest)


def _schema_id(value: bytes) -> int:
    if len(value) < REGISTRY_HEADER or value[0] != REGISTRY_MAGIC:
        raise ValueError("the value does not begin with the id of a schema")
    return int.from_bytes(value[1:REGISTRY_HEADER], "big")


def _behind_ids(schemas: Schemas, decode: Callable[[pa.Array], Decoded], values: pa.Array) -> Decoded:
    """Values behind the ids of their schemas, which must be known."""
    heads = pc.binary_slice(values, 0, REGISTRY_HEADER)
    wrong: dict[int, str] = {}
    for head in pc.unique(heads).to_pylist():
        if head is None:
            continue
        try:
            number = _schema_id(head)
            why = None if number in schemas.by_id else f"the registry has no schema {number}"
        except ValueError as error:
            why = str(error)
        if why is not None:
            wrong |= dict.fromkeys(pc.indices_nonzero(pc.equal(heads, head)).to_pylist(), why)
    if wrong:
        rows = np.zeros(len(values), bool)
        rows[list(wrong)] = True
        values = pc.if_else(pa.array(rows), pa.scalar(None, pa.binary()), values)
    found = decode(pc.binary_slice(values, REGISTRY_HEADER, INT32_MAX))  # its default end overflows
    return Decoded(found.values, found.refused | wrong)


def read_schema(path: str) -> str:
    """The text of a schema's file."""
    return files.read_bytes(path).decode("utf-8")
