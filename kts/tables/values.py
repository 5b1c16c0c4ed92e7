"""Values as text, JSON or Avro: decoded into columns, or refused with a reason."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from kts.arguments import INT32_MAX
from kts.errors import InvalidRecordError, LogStorageError
from kts.segment import files

FORMATS = ("text", "json", "avro")
MOST_DIGITS = 38  # of a decimal
FEW = 1024  # rows that are parsed together where some are refused
REGISTRY_MAGIC = 0  # the first byte of a value whose schema is in a registry; then come four bytes of the schema's id
REGISTRY_HEADER = 5
OTHER_CONTEXT = ":."  # begins a subject of another context than the registry's own: it has ids of its own
RECORD = ("offset", "key", "value")
Fields = tuple[str | None, ...]  # names, and None for the items of an array
Versions = dict[tuple[str, int], Any]  # what a registry was told of each version of a subject
LOGICAL_TYPES = {  # by the type below and the logical type
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
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


class Schema(NamedTuple):
    """A schema of a registry: its format (avro, json, protobuf), its text, and those of the schemas it refers to."""

    format: str
    text: str
    needs: tuple[str, ...] = ()


class Schemas(NamedTuple):
    """Schemas of a registry: by id, and the newest of each subject."""

    by_id: Mapping[int, Schema]
    newest: Mapping[str, Schema]


def decoder_of(
    value_format: str, schema: str | None, schemas: Schemas | None = None, needs: tuple[str, ...] = ()
) -> Decoder:
    """The decoder of a format.

    Parameters
    ----------
    value_format : str
        One of ``FORMATS``.
    schema : str, optional
        JSON Schema for ``json``, an Avro schema for ``avro``: what the table has. None for ``text``.
    schemas : Schemas, optional
        Of a registry: values begin with the id of theirs.
    needs : tuple of str
        Avro schemas that ``schema`` refers to by name.

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
    decode: Callable[[pa.Array], Decoded]
    if value_format == "json":
        type_ = _json_type(told, told, "the value")
        decode = partial(_json, type_, _required(told, told))
        decode = decode if schemas is None else partial(_without_ids, decode)
    else:
        type_, decode = _avro_decoder(told, schemas, needs)
    if schemas is not None:
        decode = partial(_behind_ids, value_format, schemas, decode)
    return Decoder(type_, decode, (value_format, schema, schemas, needs))


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


def _json(type_: pa.DataType, required: list[Fields], values: pa.Array) -> Decoded:
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
    # Between two tokens a tab is white space too, and within one it is no JSON either.
    flat = pc.replace_substring_regex(texts, "[\r\n]", "\t")
    lines = pc.binary_join_element_wise('{"i":', numbers, ',"v":[', flat, "]}\n", "")
    edges = np.frombuffer(lines.buffers()[1], np.int32, len(lines) + 1)
    schema = pa.schema([("i", pa.int64()), ("v", pa.list_(_parsed_type(type_)))])
    how = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def parse(first: int, end: int) -> pa.Array:
        data = lines.buffers()[2].slice(int(edges[first]), int(edges[end] - edges[first]))
        options = pyarrow.json.ReadOptions(block_size=data.size)
        table = pyarrow.json.read_json(pa.BufferReader(data), read_options=options, parse_options=how)
        found, wanted = table.column("i").to_numpy(), np.arange(first, end)
        one_each = len(found) == len(wanted) and (found == wanted).all()
        if not one_each or not pc.all(pc.equal(pc.list_value_length(table.column("v")), 1)).as_py():
            raise pa.ArrowInvalid("not one value")
        column = pc.list_flatten(table.column("v")).cast(type_)
        return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)

    return parse


def _parsed_type(type_: pa.DataType) -> pa.DataType:
    """The type as Arrow parses it: it takes days for numbers, so that they stay text first."""
    if pa.types.is_list(type_):
        return pa.list_(_parsed_type(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _parsed_type(field.type)) for field in type_])
    return pa.string() if type_ == pa.date32() else type_


def _json_reason(error: pa.ArrowInvalid) -> str:
    return f"not JSON of this schema: {str(error).removeprefix('JSON parse error: ').removesuffix(' in row 0')}"


def _refuse_missing(values: pa.Array, path: Fields, refused: dict[int, str]) -> None:
    """Refuse values that lack a field, in objects that are there."""
    rows = pa.array(np.arange(len(values)))
    for name in path:
        there = values.is_valid()
        rows, values = rows.filter(there), values.filter(there)
        if name is None:
            rows, values = rows.take(pc.list_parent_indices(values)), pc.list_flatten(values)
        else:
            values = pc.struct_field(values, name)
    shown = "".join("[]" if name is None else f".{name}" for name in path)[1:]
    for row in rows.filter(values.is_null()).to_pylist():
        refused.setdefault(row, f"the field {shown} is missing")


def _resolved(told: Any, root: Any, where: str) -> tuple[dict[str, Any], bool]:
    """A JSON Schema without ``$ref`` and without null among its types, and whether null was among them."""
    seen, nullable = 0, False
    while True:
        if not isinstance(told, dict):
            raise ValueError(f"value_schema: expected a JSON Schema for {where}, found {json.dumps(told)[:60]}")
        choices = told.get("oneOf") or told.get("anyOf")
        if "$ref" in told:
            place, seen = root, seen + 1
            for name in str(told["$ref"]).removeprefix("#").strip("/").split("/"):
                place = place.get(name) if isinstance(place, dict) else None
            if place is None or not str(told["$ref"]).startswith("#/") or seen > 100:
                raise ValueError(f"value_schema: {where} refers to {told['$ref']}, which is not within it")
            told = place
        elif isinstance(choices, list):
            others = [one for one in choices if one != {"type": "null"}]
            if len(others) != 1:
                raise ValueError(f"value_schema: {where} may be one of several types; a column has one")
            told, nullable = others[0], nullable or len(choices) > 1
        elif isinstance(told.get("type"), list):
            kinds = [kind for kind in told["type"] if kind != "null"]
            if len(kinds) != 1:
                raise ValueError(f"value_schema: {where} may be of the types {', '.join(kinds)}; a column has one")
            told, nullable = told | {"type": kinds[0]}, nullable or len(told["type"]) > 1
        else:
            return told, nullable


def _json_type(told: Any, root: Any, where: str, depth: int = 0) -> pa.DataType:
    told, _ = _resolved(told, root, where)
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


def _required(told: Any, root: Any, path: Fields = ()) -> list[Fields]:
    """The paths of fields that may be neither missing nor null."""
    told, _ = _resolved(told, root, "the value")
    if told.get("type") == "array":
        return _required(told["items"], root, (*path, None))
    found = []
    for name, field in told.get("properties", {}).items():
        if name in told.get("required", ()) and not _resolved(field, root, name)[1]:
            found.append((*path, name))
        found += _required(field, root, (*path, name))
    return found


# --- Avro --------------------------------------------------------------------------------------


def _avro_decoder(
    told: Any, schemas: Schemas | None, needs: tuple[str, ...]
) -> tuple[pa.DataType, Callable[[pa.Array], Decoded]]:
    """The type of values of an Avro schema, and their decoder; with a registry, of values behind their ids."""
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Avro needs {error.name}: pip install 'kafka-timestamps[tables]'", name=error.name
        ) from error

    def parsed(told: Any, needs: tuple[str, ...]) -> tuple[Any, list[Any]]:
        """A schema, and those that it refers to."""
        named: dict[str, Any] = {}
        others = [fastavro.parse_schema(_plain_avro(json.loads(text)), named) for text in needs]
        return fastavro.parse_schema(_plain_avro(told), named), others

    try:
        reader, others = parsed(told, needs)
    except Exception as error:  # fastavro has errors of many kinds
        raise ValueError(f"value_schema: not an Avro schema: {type(error).__name__} {error}") from error
    types: dict[str, pa.DataType | None] = {}
    for other in others:
        _avro_type(other, types, "the value")
    type_ = _avro_type(reader, types, "the value")
    if schemas is None:
        return type_, partial(_avro, type_, lambda value: (value, reader, None))
    writers: dict[int, Any] = {}

    def placed(value: bytes) -> tuple[bytes, Any, Any]:
        number = _schema_id(value)
        if number not in writers:
            one = schemas.by_id[number]
            writers[number], _ = parsed(json.loads(one.text), one.needs)
        return value[REGISTRY_HEADER:], writers[number], reader

    return type_, partial(_avro, type_, placed)


def _avro(type_: pa.DataType, place: Callable[[bytes], tuple[bytes, Any, Any]], values: pa.Array) -> Decoded:
    """Avro values, record by record in fastavro's compiled code: nothing but a value's own end tells where it ends.

    ``place`` gives a value's Avro, the schema it was written with, and the one that it is read with.
    """
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
    """The schema without logical types that columns do not have, or that are not of their type, which Avro ignores."""
    if isinstance(told, list):
        return [_plain_avro(one) for one in told]
    if not isinstance(told, dict):
        return told
    kept = {
        name: _plain_avro(one) if name in ("type", "items", "values", "fields") else one for name, one in told.items()
    }
    kind, logical = kept.get("type"), kept.get("logicalType")
    is_decimal = logical == "decimal" and kind in ("bytes", "fixed") and "precision" in kept
    if logical is not None and not is_decimal and (not isinstance(kind, str) or (kind, logical) not in LOGICAL_TYPES):
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
            why = "which contains itself; a column cannot" if told in named else "which columns do not have"
            raise ValueError(f"value_schema: {where} has the type {told}, {why}")
        return known
    if not isinstance(told, dict):
        raise ValueError(f"value_schema: expected an Avro schema for {where}, found {json.dumps(told)[:60]}")
    kind = told.get("type")
    logical = told.get("logicalType")
    if logical == "decimal":
        if told["precision"] > MOST_DIGITS:
            raise ValueError(f"value_schema: {where} has {told['precision']} digits; a column has {MOST_DIGITS}")
        decimal = pa.decimal128(told["precision"], told.get("scale", 0))
        if kind == "fixed":
            named[told["name"]] = decimal
        return decimal
    if logical is not None:
        return LOGICAL_TYPES[str(kind), logical]
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


def registered(records: pa.Table) -> Schemas:
    """The schemas in the records of a registry's topic: its columns offset, key and value, in the topic's order.

    Raises
    ------
    InvalidRecordError
        A record is not one of a schema registry.

    Notes
    -----
    A schema that was deleted still has its id, for the values that were written with it.
    Source: Confluent Schema Registry, SchemaKey, SchemaValue and KafkaStoreMessageHandler.
    """
    versions: Versions = {}
    by_id: dict[int, Any] = {}
    for offset, key, value in zip(*(records.column(name).to_pylist() for name in RECORD), strict=True):
        if key is None:
            continue
        try:
            _register(json.loads(key), json.loads(value) if value else None, versions, by_id)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidRecordError(
                f"registry: expected a record of a schema registry at offset {offset} of its topic, found the key"
                f" {key!r:.80}: {type(error).__name__} {error}"
            ) from error

    def schema(told: Any) -> Schema:
        return Schema(told.get("schemaType", "AVRO").lower(), told["schema"], tuple(_needs(told, versions, set())))

    newest = {name[0]: schema(versions[name]) for name in sorted(versions) if not versions[name].get("deleted")}
    return Schemas({number: schema(told) for number, told in by_id.items()}, newest)


def _register(key: Any, told: Any, versions: Versions, by_id: dict[int, Any]) -> None:
    """Take a record of a registry's topic; ``told`` is its value. CLEAR_SUBJECT is about what was deleted before."""
    if key["keytype"] == "SCHEMA":
        subject, name = str(key["subject"]), (str(key["subject"]), int(key["version"]))
        if told is not None:
            versions[name] = told
            if not subject.startswith(OTHER_CONTEXT):
                by_id.setdefault(int(told["id"]), told)
        elif name in versions:
            versions[name] = versions[name] | {"deleted": True}
    elif key["keytype"] == "DELETE_SUBJECT" and told is not None:
        for name, one in versions.items():
            if name[0] == told["subject"] and name[1] <= told["version"]:
                versions[name] = one | {"deleted": True}


def _needs(told: Any, versions: Versions, seen: set[tuple[str, int]]) -> Iterator[str]:
    """The schemas that one refers to, each behind those that it refers to itself."""
    for one in told.get("references") or ():
        name = one["subject"], one["version"]
        if name in versions and name not in seen:
            seen.add(name)
            yield from _needs(versions[name], versions, seen)
            yield versions[name]["schema"]


def _schema_id(value: bytes) -> int:
    return int.from_bytes(value[1:REGISTRY_HEADER], "big")


def _refusal(head: bytes, value_format: str, schemas: Schemas) -> str | None:
    """Why values that begin so are not decoded."""
    if len(head) < REGISTRY_HEADER or head[0] != REGISTRY_MAGIC:
        return "the value does not begin with the id of a schema"
    found = schemas.by_id.get(_schema_id(head))
    if found is None:
        return f"the registry has no schema {_schema_id(head)}"
    return None if found.format == value_format else f"the schema {_schema_id(head)} is {found.format}"


def _behind_ids(
    value_format: str, schemas: Schemas, decode: Callable[[pa.Array], Decoded], values: pa.Array
) -> Decoded:
    """Values behind the ids of their schemas; ``decode`` gets those whose schema is known and of the format."""
    heads = pc.binary_slice(values, 0, REGISTRY_HEADER)
    wrong: dict[int, str] = {}
    for head in pc.unique(heads.drop_null()).to_pylist():
        why = _refusal(head, value_format, schemas)
        if why is not None:
            wrong |= dict.fromkeys(pc.indices_nonzero(pc.equal(heads, head)).to_pylist(), why)
    if wrong:
        rows = np.zeros(len(values), bool)
        rows[list(wrong)] = True
        values = pc.if_else(pa.array(rows), pa.scalar(None, pa.binary()), values)
    found = decode(values)
    return Decoded(found.values, found.refused | wrong)


def _without_ids(decode: Callable[[pa.Array], Decoded], values: pa.Array) -> Decoded:
    return decode(pc.binary_slice(values, REGISTRY_HEADER, INT32_MAX))  # its default end overflows


def read_schema(path: str) -> str:
    """The text of a schema's file."""
    try:
        return files.read_bytes(path).decode("utf-8")
    except LogStorageError as error:
        if error.errno != errno.ENOENT:
            raise
        raise FileNotFoundError(errno.ENOENT, "there is no such file for value_schema", path) from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"value_schema: expected text in UTF-8, found other bytes at position {error.start} of {path}"
        ) from error
