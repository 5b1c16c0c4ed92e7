"""Values as text, JSON or Avro: decoded into columns, or refused with a reason."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kts.arguments import INT32_MAX
from kts.avro._datum import NO_ID
from kts.avro.decoding import HEADER as REGISTRY_HEADER
from kts.avro.decoding import NO_HEADER, AvroReader, AvroSchema, ids_by_prefix
from kts.avro.resolution import MOST_FIELDS, Resolved
from kts.avro.schema import loaded
from kts.errors import InvalidRecordError, LogStorageError
from kts.segment.rereading import warn
from kts.store.source import source_of
from kts.tables._values import KINDS, TAKES, JsonPlan

MOST_ITEMS = 100  # of lists within a field, such as an enum, that count as one field more
MOST_LETTERS = 1000  # of a field's path that count as one field more
MOST_DEPTH = 50  # of a column within columns
FEW = 1024  # rows that are parsed together where some are refused
REGISTRY_MAGIC = 0  # the first byte of a value whose schema is in a registry
ID_HEADER = "__value_schema_id"  # of a record: REGISTRY_MAGIC and an id, or GUID_MAGIC and the 16 bytes of a GUID
GUID_MAGIC = 1
GUID_HEADER = 17
OF_COLUMN = NO_ID  # instead of an id: the schema of the column
OTHER_CONTEXT = ":."  # begins a subject of another context than the registry's own: it has ids of its own
RECORD = ("offset", "key", "value")
Versions = dict[tuple[str, int], Any]  # what a registry was told of each version of a subject
JSON_TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
JSON_NAMES = {
    str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array", type(None): "null"
}  # fmt: skip
JSON_FORMATS = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}


class Decoded(NamedTuple):
    """Values of one type, null where the bytes are null or refused, and the reasons by row."""

    values: pa.Array
    refused: dict[int, str]


class ValueDecoder(NamedTuple):
    """How values are decoded, and the type that they get; pickled as the arguments of ``decoder_of``.

    ``decode`` takes the values, and the headers of their records, which may have the ids of schemas.
    """

    type: pa.DataType
    decode: Callable[..., Decoded]
    made_of: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return decoder_of, self.made_of


class Schema(NamedTuple):
    """A schema of a registry: its format (avro, json, protobuf), its text, and those of the schemas it refers to."""

    format: str
    text: str
    needs: tuple[str, ...] = ()


class Schemas(NamedTuple):
    """Schemas of a registry: by id, the newest of each subject, and the ids by GUID."""

    by_id: Mapping[int, Schema]
    newest: Mapping[str, Schema]
    guids: Mapping[bytes, int] = {}


def decoder_of(
    value_format: str, schema: str | None, schemas: Schemas | None = None, needs: tuple[str, ...] = ()
) -> ValueDecoder:
    """The decoder of a format.

    Parameters
    ----------
    value_format : str
        One of ``FORMATS`` of ``kts.tables.options``.
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
        return ValueDecoder(pa.string(), partial(_without_headers, _text), (value_format, schema))
    if schema is None:
        raise ValueError(f"value_schema: {value_format} needs a schema; give its file, or registry")
    decode: Callable[..., Decoded]
    if value_format == "json":
        columns = _JsonColumns(_loaded(schema))
        type_, decode = columns.type, partial(_json, columns)
    else:
        type_, decode = _avro_decoder(schema, schemas, needs)
    decode = partial(_without_headers, decode) if schemas is None else partial(_by_ids, value_format, schemas, decode)
    return ValueDecoder(type_, decode, (value_format, schema, schemas, needs))


def _loaded(schema: str) -> Any:
    try:
        return loaded(schema)
    except ValueError as error:
        raise ValueError(f"value_schema: {error}") from error


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


def _without_headers(decode: Callable[[pa.Array], Decoded], values: pa.Array, headers: pa.Array = None) -> Decoded:
    return decode(values)


def _json(plan: _JsonColumns, values: pa.Array, ids: np.ndarray | None = None) -> Decoded:
    """JSON values: one pass checks each as one value of RFC 8259, and fills the columns of its schema."""
    texts, refused = _text(values)
    there = pc.indices_nonzero(texts.is_valid()).to_numpy()
    if len(there) == 0:
        return Decoded(pa.nulls(len(values), plan.type), refused)
    whole = len(there) == len(values)
    texts = texts if whole else texts.drop_null()
    found, wrong = plan.read(texts)
    refused |= {int(there[row]): why for row, why in wrong.items()}
    if whole:
        return Decoded(found, refused)
    places = np.full(len(values), -1)
    places[there] = np.arange(len(there))
    return Decoded(found.take(pa.array(places, mask=places < 0)), refused)


def _items(told: Any) -> int:
    """How many items the lists of a place of a JSON Schema have, which are read each time that it is reached."""
    return sum(len(one) for one in told.values() if isinstance(one, list)) if isinstance(told, dict) else 0


class _JsonColumns:
    """The columns of a JSON Schema, and how values fill them.

    Attributes
    ----------
    type : pyarrow.DataType
        Of the value.

    Notes
    -----
    A field that no column can hold as it is (any object, several types, a schema within itself) is text: a string's
    characters, and the JSON of everything else. Each place of the schema counts as often as references repeat it, so
    that a short schema cannot become a large one.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._nodes: list[tuple[str, int, list[tuple[int, bytes, bool]]]] = []
        self._paths: list[str] = []
        self._steps = 0
        self._active: set[int] = set()
        self.type, _ = self._add(root, "the value", "", 0)
        if self._nodes[0][0] == "text":
            raise ValueError(
                "value_schema: expected a type of the value (string, integer, number, boolean, array with items, object"
                f" with properties), found {json.dumps(root)[:60]}: its fields may be anything, and the value as a"
                " whole may not; decode it as text"
            )
        self._plan = JsonPlan([(KINDS[kind], takes, children) for kind, takes, children in self._nodes])

    def _step(self, where: str, count: int = 1) -> None:
        self._steps += count
        if self._steps > MOST_FIELDS:
            raise ValueError(
                f"value_schema: it has more than {MOST_FIELDS:,} fields and references ({MOST_ITEMS} items of a list,"
                f" or {MOST_LETTERS:,} letters of a name, count as one more), found at {where:.80}"
            )

    def _add(self, told: Any, where: str, path: str, depth: int) -> tuple[pa.DataType, bool]:
        """Plan one place of the schema: its type, and whether it may be null."""
        if depth > MOST_DEPTH:
            raise ValueError(f"value_schema: {where} is more than {MOST_DEPTH} levels deep")
        number = len(self._nodes)
        self._step(where, len(path) // MOST_LETTERS)
        self._paths.append(path)
        self._nodes.append(("text", 0, []))
        told, kinds, nullable, within = self._resolved(told, where)
        kind, children, type_ = "text", list[tuple[int, bytes, bool]](), pa.string()
        if kinds in ({"integer"}, {"string"}, {"boolean"}):
            (kind,) = kinds
            form = told.get("format") if kind == "string" else None
            kind = form if isinstance(form, str) and form in JSON_FORMATS else kind
            type_ = JSON_FORMATS.get(kind) or JSON_TYPES[kind]
        elif kinds in ({"number"}, {"number", "integer"}):
            kind, type_ = "number", JSON_TYPES["number"]
        elif kinds == {"array"}:
            kind = "array"
            child = len(self._nodes)
            items = told.get("items", True)
            item, _ = self._add(
                True if isinstance(items, list) else items, f"an item of {where}", f"{path}[]", depth + 1
            )
            children, type_ = [(child, b"", False)], pa.list_(item)
        elif kinds == {"object"} and isinstance(told.get("properties"), dict) and told["properties"]:
            kind, fields = "object", list[tuple[str, pa.DataType]]()
            required = told.get("required")
            required = {one for one in required if isinstance(one, str)} if isinstance(required, list) else set()
            for name, field in told["properties"].items():
                child = len(self._nodes)
                shown = f"{path}.{name}" if path else name
                one, may_be_null = self._add(field, f"the field {name}", shown, depth + 1)
                children.append((child, _utf8(name), name in required and not may_be_null))
                fields.append((name, one))
            type_ = pa.struct(fields)
        elif kinds == {"object"} and isinstance(told.get("additionalProperties"), dict):
            kind = "map"
            self._paths.append(path)
            self._nodes.append(("string", 0, []))
            child = len(self._nodes)
            one, _ = self._add(told["additionalProperties"], f"a value of {where}", f"{path}[]", depth + 1)
            children, type_ = [(number + 1, b"", False), (child, b"", False)], pa.map_(pa.string(), one)
        takes = sum(TAKES[one] for one in kinds) if kinds else sum(TAKES.values())
        self._nodes[number] = kind, takes, children
        self._active -= within
        return type_, nullable

    def _resolved(self, told: Any, where: str) -> tuple[dict[str, Any], set[str], bool, set[int]]:
        """A schema behind its references; its types without null, none for any; whether null is one; what it is in."""
        nullable, within = False, set[int]()
        while True:
            self._step(where, 1 + _items(told) // MOST_ITEMS)
            if isinstance(told, bool) or told == {}:
                return {}, set(), True, within
            if not isinstance(told, dict):
                raise ValueError(f"value_schema: expected a JSON Schema for {where}, found {json.dumps(told)[:60]}")
            if id(told) in self._active:  # it contains itself
                return {}, set(), True, within
            self._active.add(id(told))
            within.add(id(told))
            choices = told.get("oneOf") or told.get("anyOf") or told.get("allOf")
            if "$ref" in told:
                if not str(told["$ref"]).startswith("#"):
                    raise ValueError(f"value_schema: {where} refers to {told['$ref']}, which is not within it")
                told = self._at(str(told["$ref"]), where)
            elif isinstance(choices, list) and choices and "type" not in told and "properties" not in told:
                others = [one for one in choices if one not in ({"type": "null"}, {"const": None}, {"enum": [None]})]
                nullable |= len(others) < len(choices)
                if len(others) != 1:
                    return {}, set(), True, within
                told = others[0]
            else:
                kinds = self._kinds(told, where)
                return told, kinds - {"null"}, nullable or "null" in kinds or not kinds, within

    def _at(self, reference: str, where: str) -> Any:
        place = self._root
        self._step(where, len(reference) // MOST_LETTERS)
        for name in filter(None, reference[1:].split("/")):
            name = name.replace("~1", "/").replace("~0", "~")
            place = place.get(name) if isinstance(place, dict) else None
            self._step(where)
        if place is None:
            raise ValueError(f"value_schema: {where} refers to {reference}, which is not within it")
        return place

    def _kinds(self, told: dict[str, Any], where: str) -> set[str]:
        """The names of the types of a schema; none for any."""
        kind = told.get("type")
        if isinstance(kind, str | list):
            kinds = {kind} if isinstance(kind, str) else {str(one) for one in kind}
            if wrong := sorted(kinds - TAKES.keys() - {"null"}):
                raise ValueError(
                    f"value_schema: expected a type of {where} (string, integer, number, boolean, array, object),"
                    f" found {wrong[0]!r}"
                )
            return kinds
        values = [told["const"]] if "const" in told else told.get("enum")
        if isinstance(values, list) and values:
            return {JSON_NAMES[type(one)] for one in values}
        if "properties" in told or "additionalProperties" in told:
            return {"object"}
        return {"array"} if "items" in told else set()

    def read(self, texts: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """The column of texts none of which is null, and why some are refused."""
        _, offsets, data = texts.buffers()
        edges = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        data = np.frombuffer(b"" if data is None else data, np.uint8)
        columns, wrong = self._plan.read(edges, data)
        made = list(map(_Buffers._make, columns))
        return self._built(0, self.type, made), {
            row: self._reason(
                why, position, self._paths[node], bytes(data[edges[row] + position : edges[row + 1]][:12])
            )
            for row, why, position, node in wrong
        }

    def _reason(self, why: str, position: int, path: str, found: bytes) -> str:
        place = f"the field {path}" if path else "the value"
        if why == "malformed":
            shown = found.decode("utf-8", "ignore")[:1]
            return f"not JSON: found {shown!r} at position {position}" if shown else f"not JSON: it ends at {position}"
        return {
            "type": f"not JSON of this schema: {place} has another type, up to position {position}",
            "range": f"{place} has a number that its column cannot hold",
            "time": f"{place} has a text that is no such date or time",
            "surrogate": f"not text: half of a character in an escape at position {position}",
            "depth": "not JSON of this schema: it is more than 500 levels deep",
            "twice": f"{place} is there twice, or a key of it",
            "missing": f"{place} is missing",
            "many": "it has more than 16,777,216 fields and items",
        }[why]

    def _built(self, number: int, type_: pa.DataType, made: list[_Buffers]) -> pa.Array:
        kind, _, children = self._nodes[number]
        length, valid, data, offsets = made[number]
        flags = np.frombuffer(valid, np.uint8)
        nulls = length - int(flags.sum())
        validity = pa.py_buffer(np.packbits(flags, bitorder="little")) if nulls else None
        below = [child for child, _, _ in children]
        if kind == "object":
            columns = [self._built(child, type_.field(at).type, made) for at, child in enumerate(below)]
            return pa.Array.from_buffers(type_, length, [validity], nulls, children=columns)
        if kind == "array":
            items = self._built(below[0], type_.value_type, made)
            return pa.Array.from_buffers(type_, length, [validity, pa.py_buffer(offsets)], nulls, children=[items])
        if kind == "map":
            pair = [self._built(below[0], type_.key_type, made), self._built(below[1], type_.item_type, made)]
            entries = pa.StructArray.from_arrays(pair, fields=[type_.key_field, type_.item_field])
            return pa.Array.from_buffers(type_, length, [validity, pa.py_buffer(offsets)], nulls, children=[entries])
        if kind in ("string", "text", "number"):
            buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
            texts = pa.Array.from_buffers(pa.string(), length, buffers, nulls)
            return texts.cast(pa.float64()) if kind == "number" else texts
        packed = np.packbits(np.frombuffer(data, np.uint8), bitorder="little") if kind == "boolean" else data
        return pa.Array.from_buffers(type_, length, [validity, pa.py_buffer(packed)], nulls)


class _Buffers(NamedTuple):
    """What the compiled reader made of a place of the schema."""

    length: int
    valid: bytes
    data: bytes
    offsets: bytes


def _utf8(name: str) -> bytes:
    try:
        return name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"value_schema: the name of a field is not text: {name!r:.60}") from error


# --- Avro --------------------------------------------------------------------------------------


def _avro_decoder(
    schema: str, schemas: Schemas | None, needs: tuple[str, ...]
) -> tuple[pa.DataType, Callable[..., Decoded]]:
    """The type of values of an Avro schema, and their decoder; with a registry, of values behind their ids."""
    try:
        reader = AvroReader(AvroSchema(schema, needs), nanos=False)
    except ValueError as error:
        raise ValueError(f"value_schema: {error}") from error
    programs: dict[int, Resolved | str] = {OF_COLUMN: reader.own}

    def written(number: int) -> Resolved | str:
        if number not in programs:
            programs[number] = reader.own
            if schemas is not None and number in schemas.by_id:
                one = schemas.by_id[number]
                try:
                    programs[number] = reader.program(AvroSchema(one.text, one.needs))
                except ValueError as error:
                    programs[number] = f"the schema {number} is no Avro schema: {error}"
        return programs[number]

    return reader.type, partial(_avro, reader, written)


def _avro(
    reader: AvroReader, written: Callable[[int], Resolved | str], values: pa.Array, ids: np.ndarray | None = None
) -> Decoded:
    """Avro values; ``written`` gives what was made of the schema that values of an id were written with."""
    codes = None
    unique = [OF_COLUMN]
    if ids is not None:
        coded = pa.array(ids).dictionary_encode()
        codes, unique = coded.indices.to_numpy().copy(), coded.dictionary.to_pylist()
    programs, refused = list[Resolved](), dict[int, str]()
    for code, number in enumerate(unique):
        found = written(number)
        programs.append(reader.own if isinstance(found, str) else found)
        if isinstance(found, str) and codes is not None:
            rows = np.flatnonzero((codes == code) & values.is_valid().to_numpy(zero_copy_only=False))
            refused |= dict.fromkeys(rows.tolist(), found)
            codes[rows] = -1
    made, wrong = reader.read(values, programs, codes)
    return Decoded(made, refused | {row: f"not Avro of this schema: {why}" for row, why in wrong.items()})


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
    registry = _Registry()
    for offset, key, value in zip(*(records.column(name).to_pylist() for name in RECORD), strict=True):
        if key is None:
            continue
        try:
            registry.take(json.loads(key), json.loads(value) if value else None)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidRecordError(
                f"registry: expected a record of a schema registry at offset {offset} of its topic, found the key"
                f" {key!r:.80}: {type(error).__name__} {error}"
            ) from error
    return registry.schemas()


def _of(kind: type, told: Any, name: str) -> Any:
    found = told[name]
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ValueError(f"expected {name} of type {kind.__name__}, found {found!r:.40}")
    return found


class _Registry:
    """What the records of a registry's topic say, in time linear in their number."""

    def __init__(self) -> None:
        self.versions: Versions = {}
        self.by_id: dict[int, Any] = {}
        self.guids: dict[bytes, int] = {}
        self._taken: dict[tuple[str, int], int] = {}  # when each version was registered last
        self._deleted: dict[str, list[tuple[int, int]]] = {}  # of a subject: up to which version, and when
        self._now = 0

    def take(self, key: Any, told: Any) -> None:
        """Take a record; ``told`` is its value. CLEAR_SUBJECT is about what was deleted before."""
        self._now += 1
        if key["keytype"] == "SCHEMA":
            subject = _of(str, key, "subject")
            name = subject, _of(int, key, "version")
            if told is not None:
                self._check(told)
                self.versions[name], self._taken[name] = told, self._now
                if not subject.startswith(OTHER_CONTEXT):
                    self.by_id.setdefault(told["id"], told)
                    self.guids.setdefault(_guid(told), told["id"])
            elif name in self.versions:
                self.versions[name] = self.versions[name] | {"deleted": True}
        elif key["keytype"] == "DELETE_SUBJECT" and told is not None:
            deleted = _of(int, told, "version"), self._now
            self._deleted.setdefault(_of(str, told, "subject"), []).append(deleted)

    @staticmethod
    def _check(told: Any) -> None:
        _of(str, told, "schema")
        if not 0 <= _of(int, told, "id") <= INT32_MAX:
            raise ValueError(f"expected an id of 31 bits, found {told['id']}")
        if told.get("schemaType") is not None:
            _of(str, told, "schemaType")
        if not isinstance(told.get("references") or [], list):
            raise ValueError(f"expected references as a list, found {told['references']!r:.40}")
        for one in told.get("references") or []:
            _of(str, one, "subject"), _of(int, one, "version")

    def schemas(self) -> Schemas:
        """The schemas; each is made when it is asked for."""
        newest: dict[str, Any] = {}
        last: dict[str, int] = {}  # when the greatest versions of a subject were deleted
        for name in sorted(self.versions, reverse=True):
            subject, version = name
            deletions = self._deleted.get(subject)
            if deletions and subject not in last:
                deletions.sort()
            last.setdefault(subject, -1)
            while deletions and deletions[-1][0] >= version:
                last[subject] = max(last[subject], deletions.pop()[1])
            told = self.versions[name]
            if subject not in newest and not told.get("deleted") and last[subject] < self._taken[name]:
                newest[subject] = told
        return Schemas(_OnDemand(self.by_id, self.versions), _OnDemand(newest, self.versions), self.guids)


def _guid(told: Any) -> bytes:
    """The GUID of a schema, of which the registry tells clients: the MD5 of its text and its references.

    Notes
    -----
    That of a schema with metadata or rules is another one.
    Source: Confluent Schema Registry, MD5.ofSchema and Schema.updateHash.
    """
    digest = hashlib.md5(told["schema"].encode("utf-8", "replace"), usedforsecurity=False)
    for one in told.get("references") or ():
        digest.update(f"{one.get('name')}{one['subject']}".encode("utf-8", "replace"))
        digest.update((one["version"] & 0xFFFF_FFFF).to_bytes(4, "big"))
    return digest.digest()


class _OnDemand(Mapping[Any, Schema]):
    """Schemas that are put together, with all that they refer to, when one is asked for."""

    def __init__(self, told: dict[Any, Any], versions: Versions) -> None:
        self._told, self._versions = told, versions

    def __getitem__(self, name: Any) -> Schema:
        told = self._told[name]
        kind = (told.get("schemaType") or "AVRO").lower()
        return Schema(kind, told["schema"], tuple(_needs(told, self._versions)))

    def __contains__(self, name: object) -> bool:
        return name in self._told

    def __iter__(self) -> Iterator[Any]:
        return iter(self._told)

    def __len__(self) -> int:
        return len(self._told)


def _needs(told: Any, versions: Versions) -> list[str]:
    """The schemas that one refers to, each behind those that it refers to itself."""
    seen, found = set[tuple[str, int]](), list[str]()
    open_: list[tuple[Any, Iterator[Any]]] = [(None, iter(told.get("references") or ()))]
    while open_:
        name, references = open_[-1]
        one = next(references, None)
        if one is None:
            open_.pop()
            if name is not None:
                found.append(versions[name]["schema"])
        elif (other := (one["subject"], one["version"])) in versions and other not in seen:
            seen.add(other)
            open_.append((other, iter(versions[other].get("references") or ())))
    return found


def _refusal(number: int, value_format: str, schemas: Schemas) -> str | None:
    """Why values of the schema of an id are not decoded."""
    found = schemas.by_id.get(number)
    if found is None:
        return f"the registry has no schema {number}"
    return None if found.format == value_format else f"the schema {number} is {found.format}"


def _by_ids(
    value_format: str, schemas: Schemas, decode: Callable[..., Decoded], values: pa.Array, headers: pa.Array = None
) -> Decoded:
    """Values by the ids of their schemas: in a header of the record, which goes first, or in front of the value.

    ``decode`` gets the values without ids, those whose schema is known and of the format, and the ids.

    Notes
    -----
    Source: Confluent's SchemaId and DualSchemaIdDeserializer.
    """
    ids = ids_by_prefix(values)
    refused = dict.fromkeys(np.flatnonzero(ids == NO_ID).tolist(), NO_HEADER)
    bare = np.zeros(len(values), bool)
    if headers is not None:
        rows, found, wrong = _ids_of_headers(headers, schemas)
        bare[rows], ids[rows] = True, found
        refused = {row: why for row, why in refused.items() if not bare[row]} | wrong
    there = values.is_valid().to_numpy(zero_copy_only=False)
    refused = {row: why for row, why in refused.items() if there[row]}
    sound = there.copy()
    sound[list(refused)] = False
    coded = pa.array(ids).dictionary_encode()
    unique, place = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    reasons = [None if one == OF_COLUMN else _refusal(one, value_format, schemas) for one in unique]
    failing = np.array([why is not None for why in reasons], bool)
    if len(values):
        wrong_rows = np.flatnonzero(sound & failing[place])
        refused |= {int(row): str(reasons[place[row]]) for row in wrong_rows}
        sound[wrong_rows] = False
    bodies = pc.binary_slice(values, REGISTRY_HEADER, INT32_MAX)  # its default end overflows
    if bare.any():
        bodies = pc.if_else(pa.array(bare), values, bodies)
    if not sound.all():
        bodies = pc.if_else(pa.array(sound), bodies, pa.scalar(None, pa.binary()))
    done = decode(bodies, ids)
    return Decoded(done.values, done.refused | refused)


def _ids_of_headers(headers: pa.Array, schemas: Schemas) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
    """The rows whose headers have the id of a schema, these ids, and why some are refused. The last header counts."""
    flat = pc.list_flatten(headers)
    named = pc.and_(pc.equal(pc.struct_field(flat, "key"), ID_HEADER), pc.struct_field(flat, "value").is_valid())
    rows = pc.list_parent_indices(headers).filter(named).to_numpy()
    values = pc.struct_field(flat, "value").filter(named).dictionary_encode()
    ids, wrong, unknown = [], dict[int, str](), list[str]()
    for code, value in enumerate(values.dictionary.to_pylist()):
        number = OF_COLUMN
        if len(value) == REGISTRY_HEADER and value[0] == REGISTRY_MAGIC:
            number = int.from_bytes(value[1:], "big")
        elif len(value) == GUID_HEADER and value[0] == GUID_MAGIC:
            number = schemas.guids.get(value[1:], OF_COLUMN)
            if number == OF_COLUMN:
                unknown.append(value[1:].hex())
        else:
            wrong[code] = f"the header {ID_HEADER} has no id of a schema: {value.hex():.40}"
        ids.append(number)
    if unknown:
        more = f", nor {len(unknown) - 1} others" if len(unknown) > 1 else ""
        warn(
            f"registry: no schema has the GUID {unknown[0]} of the header {ID_HEADER}{more}: such values are decoded by"
            " the schema of the column; compare some of them, and give the log directory that holds the whole topic of"
            " the registry",
            None,
        )
    last = np.full(len(headers), -1)
    last[rows] = values.indices.to_numpy()
    found = np.flatnonzero(last >= 0)
    codes = last[found]
    refused = {int(row): wrong[code] for row, code in zip(found, codes, strict=True) if code in wrong} if wrong else {}
    return found, np.array(ids, np.int64)[codes], refused


def read_schema(path: str) -> str:
    """The text of a schema's file."""
    try:
        source = source_of(path)
        return source.read_bytes(path).decode("utf-8")
    except LogStorageError as error:
        if error.errno != errno.ENOENT:
            raise
        raise FileNotFoundError(errno.ENOENT, "there is no such file for value_schema", path) from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"value_schema: expected text in UTF-8, found other bytes at position {error.start} of {path}"
        ) from error
