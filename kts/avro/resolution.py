"""Schemas of writers against the one of a reader: its columns, and the programs that fill them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa

from kts.arguments import INT64_MAX
from kts.avro._datum import COLUMN_KINDS, OPS, Program, Shape
from kts.avro.schema import DATE, MOST_LEVELS, NO_DEFAULT, TIMES, AvroField, AvroType, AvroTypes, check_size

MOST_FIELDS = 10_000  # of a schema, each as often as names repeat it
MOST_DIGITS = 38  # of a decimal
MOST_NODES = 100_000  # of a program
DAY_NS = 86_400_000_000_000
MICRO_NS = 1000
NOWHERE = -1  # instead of a column
PLAIN = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(), "fixed": pa.binary(), "enum": pa.string(),
}  # fmt: skip
NUMBERS = ("int", "long", "float", "double")
SKIPS = {"boolean": "SKIP_BOOLEAN", "int": "SKIP_INT", "long": "SKIP_LONG", "bytes": "SKIP_BYTES",
         "string": "SKIP_BYTES", "fixed": "SKIP_FIXED", "float": "SKIP_FIXED", "double": "SKIP_FIXED",
         "enum": "SKIP_ENUM", "array": "ARRAY", "map": "MAP", "union": "UNION", "record": "RECORD",
         "null": "NOTHING"}  # fmt: skip
SIZES = {"float": 4, "double": 8}


@dataclass(eq=False)
class Wanted:
    """What a place of the reader's schema wants: a column, or the members of one that has several types.

    ``told`` is the type without null; ``whole`` may be a union of it and null, or of several types.
    """

    told: AvroType
    whole: AvroType
    column: int
    nullable: bool
    logical: str | None = None
    below: list[Wanted] = field(default_factory=list)
    members: bool = False


class Node(NamedTuple):
    """A node of a program, as ``Program`` takes it."""

    op: str
    column: int = NOWHERE
    children: Sequence[int] = ()
    size: int = 0
    factor: int = 0
    low: int = 0
    high: int = 0
    limit: int = 0
    data: bytes = b""
    ends: Sequence[int] = ()


class Resolved(NamedTuple):
    """A program, and of each node the field that it is about and why the schemas do not resolve there."""

    program: Program
    paths: list[str]
    reasons: dict[int, str]


class AvroColumns:
    """The columns of a reader's schema.

    Parameters
    ----------
    schema : AvroTypes
    nanos : bool
        Whether times in nanoseconds have such a column; otherwise it is a plain number.

    Attributes
    ----------
    type : pyarrow.DataType
        Of the value.
    shape : Shape
    below : list of list of int
        The numbers of the columns within each column.

    Raises
    ------
    ValueError
        Columns cannot have these types.
    """

    def __init__(self, schema: AvroTypes, nanos: bool = True) -> None:
        check_size(schema.root, MOST_FIELDS, MOST_LEVELS)
        self._columns: list[tuple[str, int, list[int]]] = []
        self._active: set[int] = set()
        self.nanos = nanos
        self.type, self.wanted = self._want(schema.root, "the value")
        self.below = [below for _, _, below in self._columns]
        self.shape = Shape([(COLUMN_KINDS[kind], width, below) for kind, width, below in self._columns])

    def program(self, writer: AvroTypes) -> Resolved:
        """How values of a writer's schema fill the columns.

        Raises
        ------
        ValueError
            The writer's schema makes much of little.
        """
        return _Programming(writer, self.wanted).resolved()

    def _want(self, whole: AvroType, where: str) -> tuple[pa.DataType, Wanted]:
        """Plan a place: its type, and what it wants."""
        others = [one for one in whole.items if one.kind != "null"] if whole.kind == "union" else [whole]
        nullable = whole.kind == "union" and len(others) < len(whole.items)
        number = len(self._columns)
        self._columns.append(("struct", 0, []))
        if len(others) > 1:
            names = _member_names(others)
            parts = [(name, *self._want(one, f"{where} as {name}")) for name, one in zip(names, others, strict=True)]
            wanted = Wanted(whole, whole, number, nullable, None, [one for _, _, one in parts], True)
            self._columns[number] = "struct", 0, [one.column for one in wanted.below]
            return pa.struct([(name, type_) for name, type_, _ in parts]), wanted
        if not others or others[0].kind == "null":
            raise ValueError(f"{where} has the type null, which columns do not have")
        (told,) = others
        wanted = Wanted(told, whole, number, nullable)
        if told.name:
            if id(told) in self._active:
                raise ValueError(f"{where} has the type {told.name}, which contains itself; a column cannot")
            self._active.add(id(told))
        type_, kind, width = self._column(told, wanted, where)
        self._columns[number] = kind, width, [one.column for one in wanted.below]
        self._active.discard(id(told))
        return type_, wanted

    def _column(self, told: AvroType, wanted: Wanted, where: str) -> tuple[pa.DataType, str, int]:
        """Its type, kind and bytes of a row; ``wanted`` gets what is below."""
        if told.kind == "record":
            fields = []
            for one in told.fields:
                type_, below = self._want(one.type, f"the field {one.name}")
                wanted.below.append(below)
                fields.append((one.name, type_))
            return pa.struct(fields), "struct", 0
        if told.kind in ("array", "map"):
            is_map, keys = told.kind == "map", 0
            if is_map:
                keys = len(self._columns)
                self._columns.append(("text", 0, []))
            item, below = self._want(told.items[0], f"{'a value' if is_map else 'an item'} of {where}")
            wanted.below = [Wanted(told, told, keys, False), below] if is_map else [below]
            return (pa.map_(pa.string(), item), "map", 0) if is_map else (pa.list_(item), "list", 0)
        if told.logical == "decimal":
            if told.precision > MOST_DIGITS:
                raise ValueError(f"{where} has {told.precision} digits; a column has {MOST_DIGITS}")
            return pa.decimal128(told.precision, told.scale), "fixed", 16
        type_ = PLAIN[told.kind]
        if told.logical is not None and (self.nanos or not told.logical.endswith("nanos")):
            wanted.logical = told.logical
            type_ = _time_type(told.kind, told.logical)
        if told.kind in ("bytes", "string", "fixed", "enum"):
            return type_, "text", 0
        return (type_, "flags", 1) if told.kind == "boolean" else (type_, "fixed", type_.bit_width // 8)


def _time_type(kind: str, logical: str) -> pa.DataType:
    of, unit_ns = TIMES[kind, logical]
    if of == DATE:
        return pa.date32()
    unit = "ns" if unit_ns < MICRO_NS else "us"
    return pa.time64(unit) if of == "time" else pa.timestamp(unit, tz=None if logical.startswith("local") else "UTC")


def _member_names(types: list[AvroType]) -> list[str]:
    """The names of the members of a union: those of the types, without their namespaces where that is enough."""
    short = [(one.name or one.kind).rpartition(".")[2] for one in types]
    if len({*short}) < len(short):
        short = [(one.name or one.kind).replace(".", "_") for one in types]
    if len({*short}) < len(short):
        raise ValueError("not an Avro schema: a union has a type twice")
    return short


class _Programming:
    """The program of a writer's schema: first a node that skips each of its places, then those that fill columns."""

    def __init__(self, writer: AvroTypes, wanted: Wanted) -> None:
        self._nodes: list[Node | None] = []
        self._paths: list[str] = []
        self._reasons: dict[int, str] = {}
        self._known: dict[tuple[int, int, bool], int] = {}
        self._skips = {id(one): number for number, one in enumerate(writer.places)}
        named = dict[int, str]()
        for record in writer.places:
            for field_ in record.fields:
                named.setdefault(id(field_.type), f"{record.name}.{field_.name}")
        for one in writer.places:
            self._paths.append(named.get(id(one), ""))
            self._nodes.append(
                Node(
                    SKIPS[one.kind],
                    children=[self._skips[id(below)] for below in one.below],
                    size=len(one.symbols or one.fields) or SIZES.get(one.kind, one.size),
                )
            )
        self._root = self._resolve(writer.root, wanted, "")

    def resolved(self) -> Resolved:
        nodes = [(OPS[one.op], *one[1:]) for one in self._nodes if one is not None]
        return Resolved(Program(self._root, nodes), self._paths, self._reasons)

    def _reserve(self, path: str) -> int:
        if len(self._nodes) >= MOST_NODES:
            raise ValueError(f"its resolution takes more than {MOST_NODES:,} steps")
        self._nodes.append(None)
        self._paths.append(path)
        return len(self._nodes) - 1

    def _add(self, path: str, node: Node) -> int:
        number = self._reserve(path)
        self._nodes[number] = node
        return number

    def _refused(self, path: str, why: str) -> int:
        number = self._add(path, Node("REFUSED"))
        self._reasons[number] = why
        return number

    def _resolve(self, writer: AvroType, wanted: Wanted, path: str) -> int:
        """The node that reads a place of the writer into what the reader wants."""
        key = id(writer), wanted.column, wanted.members
        if key in self._known:
            return self._known[key]
        number = self._known[key] = self._reserve(path)
        reader = wanted.told
        node: Node | None = None
        if writer.kind == "union":
            branches = []
            for one in writer.items:
                branches.append(self._resolve(one, wanted, path))
            node = Node("UNION", children=branches)
        elif writer.kind == "null":
            if wanted.nullable:
                node = Node("NOTHING", wanted.column)
            else:
                self._reasons[number] = "it is null, which the reader's schema has not"
        elif wanted.members:
            member = _member_of(writer, wanted)
            if member is not None:
                node = Node("MEMBER", wanted.column, [self._resolve(writer, wanted.below[member], path)], member)
        elif reader.kind == writer.kind == "record":
            node = Node("RECORD", wanted.column, self._fields(writer, wanted, path), len(writer.fields))
        elif reader.kind == writer.kind and reader.kind in ("array", "map"):
            child = self._resolve(writer.items[0], wanted.below[-1], f"{path}[]")
            node = Node(reader.kind.upper(), wanted.column, [child])
        elif reader.kind not in ("record", "array", "map"):
            node = _leaf(writer, wanted)
        if node is None:
            node = Node("REFUSED")
            self._reasons.setdefault(number, f"{_shown(writer)} cannot be read as {_shown(reader)}")
        self._nodes[number] = node
        return number

    def _fields(self, writer: AvroType, wanted: Wanted, path: str) -> list[int]:
        """The fields of the writer in its order, and then the defaults of those that it lacks."""
        sources: dict[str, tuple[AvroField, Wanted]] = {}
        missing = list[tuple[AvroField, Wanted]]()
        there = {one.name for one in writer.fields}
        pairs = [*zip(wanted.told.fields, wanted.below, strict=True)]
        for one, want in pairs:
            if one.name in there:
                sources[one.name] = one, want
        for one, want in pairs:
            if one.name not in there:
                name = next((name for name in one.aliases if name in there and name not in sources), None)
                if name is None:
                    missing.append((one, want))
                else:
                    sources[name] = one, want
        children = []
        for written in writer.fields:
            if written.name in sources:
                one, want = sources[written.name]
                children.append(self._resolve(written.type, want, _below(path, one.name)))
            else:
                children.append(self._skips[id(written.type)])
        for one, want in missing:
            children.append(self._default(one, want, _below(path, one.name)))
        return children

    def _default(self, one: AvroField, wanted: Wanted, path: str) -> int:
        if one.default is NO_DEFAULT:
            return self._refused(path, "the writer's schema lacks it, and it has no default")
        try:
            data = encoded(one.type, one.default)
        except (ValueError, struct.error, OverflowError) as error:
            return self._refused(path, f"its default is no value of its type: {error}")
        if one.default is None:
            return self._add(path, Node("NOTHING", wanted.column))
        child = self._resolve(wanted.whole, wanted, path)
        return self._add(path, Node("DEFAULT", children=[child], data=data, ends=[len(data)]))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(told: AvroType) -> str:
    if told.kind == "union":
        return f"one of {', '.join(map(_shown, told.items))}"
    return " ".join(filter(None, [told.kind, told.name, told.logical and f"({told.logical})"]))


def _member_of(writer: AvroType, wanted: Wanted) -> int | None:
    """The member of a union that gets values of a type: the same one, or else the first that it can become."""

    def rank(reader: AvroType) -> int | None:
        if reader.kind != writer.kind:
            promoted = writer.kind in NUMBERS and reader.kind in NUMBERS
            widened = promoted and NUMBERS.index(writer.kind) < NUMBERS.index(reader.kind)
            return 3 if widened or {writer.kind, reader.kind} == {"bytes", "string"} else None
        if not reader.name or reader.name == writer.name or writer.name in reader.aliases:
            return 0
        if reader.name.rpartition(".")[2] == writer.name.rpartition(".")[2]:
            return 1
        return 2 if reader.kind == "record" else None

    ranked = [(rank(one.told), number) for number, one in enumerate(wanted.below)]
    found = [(place, number) for place, number in ranked if place is not None]
    return min(found)[1] if found else None


def _enum(writer: AvroType, wanted: Wanted) -> Node:
    symbols = wanted.told.symbols
    places = {name: number for number, name in enumerate(symbols)}
    default = NOWHERE if wanted.told.default is None else places[wanted.told.default]
    texts = [one.encode() for one in symbols]
    ends = [*accumulate(map(len, texts), initial=0)]
    children = [places.get(name, default) for name in writer.symbols]
    return Node("ENUM", wanted.column, children, len(children), data=b"".join(texts), ends=ends)


def _leaf(writer: AvroType, wanted: Wanted) -> Node | None:
    """A type that contains no others."""
    reader, column = wanted.told, wanted.column
    if reader.kind == "enum":
        return _enum(writer, wanted) if writer.kind == "enum" else None
    if reader.logical == "decimal":
        return _decimal(writer, wanted)
    if reader.kind == "fixed":
        return Node("FIXED", column, size=reader.size) if (writer.kind, writer.size) == ("fixed", reader.size) else None
    if reader.kind == "boolean":
        return Node("BOOLEAN", column) if writer.kind == "boolean" else None
    if reader.kind in ("bytes", "string"):
        op = "STRING" if reader.kind == "string" else "BYTES"
        return Node(op, column) if writer.kind in ("bytes", "string") else None
    return _number(writer, wanted)


def _decimal(writer: AvroType, wanted: Wanted) -> Node | None:
    """Decimals by their values: of a writer that has another scale, too. Plain bytes have the reader's."""
    reader = wanted.told
    written = writer if writer.logical == "decimal" else reader
    if writer.kind not in ("bytes", "fixed") or (writer.logical is None and writer.kind != reader.kind):
        return None
    shift = reader.scale - written.scale
    digits = max(min(written.precision, reader.precision - shift, MOST_DIGITS), 0)
    op = "DECIMAL" if writer.kind == "bytes" else "DECIMAL_FIXED"
    return Node(op, wanted.column, size=writer.size, factor=shift, limit=10**digits)


def _number(writer: AvroType, wanted: Wanted) -> Node | None:
    """Numbers as they are, or wider; times in the unit of the column."""
    reader, column = wanted.told, wanted.column
    if writer.kind not in NUMBERS or NUMBERS.index(writer.kind) > NUMBERS.index(reader.kind):
        return None
    plain = writer.kind.upper() if writer.kind == reader.kind else f"{writer.kind}_{reader.kind}".upper()
    if wanted.logical is None:
        return Node(plain, column)
    of, unit_ns = TIMES[reader.kind, wanted.logical]
    if writer.logical is not None:
        written_of, unit_ns = TIMES[writer.kind, writer.logical]
        if written_of != of:
            return None
    if of == DATE:
        return Node(plain, column)
    column_ns = 1 if wanted.logical.endswith("nanos") else MICRO_NS
    factor = unit_ns // column_ns or -(column_ns // unit_ns)
    if of == "time":
        low, high = 0, DAY_NS // unit_ns - 1
    else:
        high = INT64_MAX // factor if factor > 1 else INT64_MAX
        low = -high if factor > 1 else -INT64_MAX - 1
    return Node(f"TIME_{writer.kind.upper()}", column, factor=factor, low=low, high=high)


# --- defaults in Avro --------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    raw, out = (number << 1) ^ (number >> 63), bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    return bytes([*out, raw])


def _is(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def encoded(told: AvroType, value: Any) -> bytes:
    """The JSON of a default as a value of its type. Of a union it is the first type that has it.

    Raises
    ------
    ValueError
        It is no value of the type.
    """
    kind = told.kind
    if kind == "union":
        for number, one in enumerate(told.items):
            try:
                return _varint(number) + encoded(one, value)
            except (ValueError, struct.error, OverflowError):
                continue
    elif kind == "null" and value is None:
        return b""
    elif kind == "boolean" and isinstance(value, bool):
        return bytes([value])
    elif (
        kind in ("int", "long")
        and _is(value, int)
        and -(1 << (bits := 31 if kind == "int" else 63)) <= value < 1 << bits
    ):
        return _varint(value)
    elif kind in ("float", "double") and (_is(value, (int, float)) or value in ("NaN", "Infinity", "-Infinity")):
        return struct.pack("<f" if kind == "float" else "<d", float(value))
    elif kind == "string" and isinstance(value, str):
        data = value.encode()
        return _varint(len(data)) + data
    elif kind == "bytes" and isinstance(value, str):
        data = value.encode("latin-1")
        return _varint(len(data)) + data
    elif kind == "fixed" and isinstance(value, str) and len(value) == told.size:
        return value.encode("latin-1")
    elif kind == "enum" and value in told.symbols:
        return _varint(told.symbols.index(value))
    elif kind == "array" and isinstance(value, list):
        items = b"".join(encoded(told.items[0], one) for one in value)
        return (_varint(len(value)) + items if value else b"") + b"\0"
    elif kind == "map" and isinstance(value, dict):
        texts = [(name.encode(), encoded(told.items[0], one)) for name, one in value.items()]
        items = b"".join(_varint(len(name)) + name + one for name, one in texts)
        return (_varint(len(value)) + items if value else b"") + b"\0"
    elif kind == "record" and isinstance(value, dict):
        found = [(one.type, value.get(one.name, one.default)) for one in told.fields]
        if any(one is NO_DEFAULT for _, one in found):
            raise ValueError(f"the record {told.name} lacks a field")
        return b"".join(encoded(type_, one) for type_, one in found)
    raise ValueError(f"{value!r:.40} is no {kind}")
