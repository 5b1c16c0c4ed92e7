"""Avro schemas: their JSON becomes types, each place of it once, and names are what they stand for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
MOST_LEVELS = 200  # of a schema's JSON, and of its types
DATE = "date"
TIMES = {  # what a logical type is of, by the type below; and its unit in nanoseconds
    ("int", DATE): (DATE, 0),
    ("int", "time-millis"): ("time", 1_000_000),
    ("long", "time-micros"): ("time", 1000),
    ("long", "timestamp-millis"): ("timestamp", 1_000_000),
    ("long", "timestamp-micros"): ("timestamp", 1000),
    ("long", "timestamp-nanos"): ("timestamp", 1),
    ("long", "local-timestamp-millis"): ("timestamp", 1_000_000),
    ("long", "local-timestamp-micros"): ("timestamp", 1000),
    ("long", "local-timestamp-nanos"): ("timestamp", 1),
}
NO_DEFAULT = object()


@dataclass(eq=False, slots=True)
class AvroType:
    """A place of a schema. A logical type that is not of its type is None, as Avro has it."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    default: str | None = None  # of an enum
    fields: list[AvroField] = field(default_factory=list)
    items: list[AvroType] = field(default_factory=list)  # of an array or a map, or the branches of a union

    @property
    def below(self) -> list[AvroType]:
        """The places within this one."""
        return self.items or [one.type for one in self.fields]


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    aliases: tuple[str, ...]
    default: Any


def loaded(schema: Any) -> Any:
    """A schema's JSON, within bounds: what is nested deeper would end in whatever walks it."""
    told = schema
    if isinstance(schema, str) and schema not in PRIMITIVES:
        try:
            told = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"expected JSON, found {schema[:40]!r}: {error}") from error
    level, depth = [told] if isinstance(told, dict | list) else [], 0
    while level:
        depth += 1
        if depth > MOST_LEVELS:
            raise ValueError(f"its JSON is more than {MOST_LEVELS} levels deep")
        below = (one for each in level for one in (each.values() if isinstance(each, dict) else each))
        level = [one for one in below if isinstance(one, dict | list)]
    return told


class AvroTypes:
    """The types of a schema.

    Parameters
    ----------
    schema
        Its text, or the JSON of it.
    references : sequence
        Schemas that it refers to by name, each behind those that it refers to itself.

    Attributes
    ----------
    root : AvroType
    places : list of AvroType
        All that the texts have.

    Raises
    ------
    ValueError
        It is not an Avro schema.
    """

    def __init__(self, schema: Any, references: Sequence[Any] = ()) -> None:
        self.places: list[AvroType] = []
        self._named: dict[str, AvroType] = {}
        for one in references:
            self._add(loaded(one), "")
        self.root = self._add(loaded(schema), "")

    def _place(self, kind: str) -> AvroType:
        found = AvroType(kind)
        self.places.append(found)
        return found

    def _add(self, told: Any, namespace: str) -> AvroType:
        if isinstance(told, str):
            if told in PRIMITIVES:
                return self._place(told)
            found = self._named.get(_full(told, namespace)) or self._named.get(told)
            if found is None:
                raise ValueError(f"not an Avro schema: the type {told:.80} is unknown")
            return found
        if isinstance(told, list):
            made = self._place("union")
            made.items = [self._add(one, namespace) for one in told]
            if any(one.kind == "union" for one in made.items):
                raise ValueError("not an Avro schema: a union lies directly within a union")
            return made
        if not isinstance(told, dict) or "type" not in told:
            raise ValueError(f"not an Avro schema: expected a type, found {json.dumps(told, default=str)[:60]}")
        kind = told["type"]
        if kind in ("array", "map"):
            made = self._place(kind)
            made.items = [self._add(told.get("items" if kind == "array" else "values"), namespace)]
            return made
        if kind in ("record", "error", "enum", "fixed"):
            return self._add_named(told, "record" if kind == "error" else kind, namespace)
        if kind not in PRIMITIVES:
            return self._add(kind, namespace)
        made = self._place(kind)
        self._set_logical(made, told)
        return made

    def _add_named(self, told: dict[str, Any], kind: str, namespace: str) -> AvroType:
        name = _text(told, "name")
        given = told.get("namespace")
        full = _full(name, given if isinstance(given, str) else namespace)
        if full in self._named:
            raise ValueError(f"not an Avro schema: the type {full:.80} is there twice")
        made = self._named[full] = self._place(kind)
        made.name = full
        inside = full.rpartition(".")[0]
        made.aliases = tuple(_full(one, inside) for one in _texts(told, "aliases"))
        if kind == "enum":
            made.symbols = tuple(_texts(told, "symbols"))
            default = told.get("default")
            made.default = default if default in made.symbols else None
            if len({*made.symbols}) < len(made.symbols):
                raise ValueError(f"not an Avro schema: the enum {full:.80} has a symbol twice")
        elif kind == "fixed":
            size = told.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
                raise ValueError(f"not an Avro schema: {full:.80} has no size")
            made.size = size
            self._set_logical(made, told)
        else:
            self._add_fields(made, told, inside)
        return made

    def _add_fields(self, made: AvroType, told: dict[str, Any], namespace: str) -> None:
        fields = told.get("fields")
        if not isinstance(fields, list) or not all(isinstance(one, dict) for one in fields):
            raise ValueError(f"not an Avro schema: the record {made.name:.80} has no fields")
        for one in fields:
            name = _text(one, "name")
            if "type" not in one:
                raise ValueError(f"not an Avro schema: the field {name:.80} has no type")
            type_ = self._add(one["type"], namespace)
            made.fields.append(AvroField(name, type_, tuple(_texts(one, "aliases")), one.get("default", NO_DEFAULT)))
        if len({one.name for one in made.fields}) < len(made.fields):
            raise ValueError(f"not an Avro schema: the record {made.name:.80} has a field twice")

    @staticmethod
    def _set_logical(made: AvroType, told: dict[str, Any]) -> None:
        logical = told.get("logicalType")
        if logical == "decimal" and made.kind in ("bytes", "fixed"):
            precision, scale = told.get("precision"), told.get("scale", 0)
            if isinstance(precision, int) and isinstance(scale, int) and precision > 0 and 0 <= scale <= precision:
                made.logical, made.precision, made.scale = logical, precision, scale
        elif isinstance(logical, str) and (made.kind, logical) in TIMES:
            made.logical = logical


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _text(told: dict[str, Any], name: str) -> str:
    found = told.get(name)
    if not isinstance(found, str) or not found:
        raise ValueError(f"not an Avro schema: expected the {name} of a type or field, found {found!r:.40}")
    try:
        found.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"not an Avro schema: a {name} is not text: {found!r:.60}") from error
    return found


def _texts(told: dict[str, Any], name: str) -> list[str]:
    found = told.get(name, [])
    if not isinstance(found, list):
        raise ValueError(f"not an Avro schema: expected a list of {name}, found {found!r:.40}")
    return [_text({name: one}, name) for one in found]


def check_size(root: AvroType, most_fields: int, most_levels: int) -> None:
    """Refuse a schema that is large once its names are replaced by what they stand for, as columns replace them.

    One that contains itself is for others to refuse: it counts as one place here.
    """
    sizes: dict[int, tuple[int, int]] = {}  # fields and levels
    open_ = [(root, iter(root.below))]
    sizes[id(root)] = (1, 1)
    while open_:
        made, below = open_[-1]
        one = next((one for one in below if id(one) not in sizes), None)
        if one is not None:
            sizes[id(one)] = (1, 1)
            open_.append((one, iter(one.below)))
            continue
        open_.pop()
        found = [sizes[id(one)] for one in made.below]
        sizes[id(made)] = size = 1 + sum(one for one, _ in found), 1 + max((level for _, level in found), default=0)
        if size[0] > most_fields or size[1] > most_levels:
            raise ValueError(
                f"it has more than {most_fields:,} fields, or {most_levels} levels, once its names stand for their"
                " types"
            )
